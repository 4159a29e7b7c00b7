"""Both arms in one run.

In order of reading: `schedule.py` plans the blocks, `alternate.py` serves them from one loader,
once `worker_activity.py` has seen its workers rest, and `backends.py` lets several loaders take
turns under one training step.
"""
