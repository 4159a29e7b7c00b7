"""Times the batches of any iterable; knows no framework.

`measurement.py` serves and records the epochs of one loader in any mode: begin there. It asks a
loader through its adapter (`adapter.py`, found by `registry.py`), by the user's `settings.py`.
Its rooms build on each other, in this order:

- `background/`: our threads, and what they do while a training runs
- `recording/`: what is noted of an epoch, and how it gets into the log
- `serving/`: the hot loop, and what it calls for each batch

`guard.py` keeps what fails in loadeval from the training, and `cuda.py` asks a device for time.
"""
