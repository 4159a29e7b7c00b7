"""Times, copies and replays the batches of any iterable; knows no framework.

Its rooms build on `core`, and on each other, in this order:

- `batches/`: what is inside a batch, and copies of it
- `replay/`: kept batches, served again and again
- `alternation/`: both arms in one run, and several loaders in turn
"""
