"""What runs inside a training: it serves batches, reads the clock, and records.

In order of reading: `loop.py` serves an epoch and reads the clock, `counting.py` counts samples,
bytes and padding of a batch, `recorder.py` takes what was noted to the log or into memory, and
`threads.py` has the threads that write the log and read the machine. `cuda.py` asks a GPU for its
own times, and `annotate.py` puts a profiler's ranges around waits and steps.

`batch.py` walks and copies what is inside a batch. `replay.py` serves kept batches again and again.
`schedule.py` plans blocks, and `alternate.py` serves both arms of one run by it.
"""
