"""The hot loop, and what runs for each batch.

In order of reading: `loop.py` serves an epoch span by span and reads the clock, `counting.py`
counts samples and bytes of a batch, `epoch_iterators.py` is what a training iterates, alone or in
several threads, and `annotate.py` puts a profiler's ranges around waits and steps.
"""
