"""What is noted of an epoch, and how it gets into the log or into memory.

In order of reading: `chunk.py` has what the hot loop notes of each batch, `recorder.py` collects
that of the epochs of a run, and `new_recorder.py` makes one by the settings. `stages.py` asks an
adapter what happened inside its loader.
"""
