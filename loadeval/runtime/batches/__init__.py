"""What is inside a batch: `tree.py` walks its containers and leaves, `copies.py` copies them."""
