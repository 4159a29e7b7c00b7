"""What runs in the training process, whatever the framework.

`batch.py` walks and copies what is inside a batch, and `padding.py` tells how much of it is
padding. `replay.py` serves kept batches again and again. `rounds.py` plans blocks, and who has
turns when, and `alternate.py` serves both arms of one run by that.
"""
