"""Facts about a run: plain data, the files they are kept in, and where they came from.

In order of reading: `model.py` and `stages.py` have what a Run consists of, as NumPy columns
(`columns.py`). `log_file/` writes and reads the log of one run, and `run_folder/`
what `loadeval run` leaves for many processes. `blocks.py` has the sizes of an alternating run's
blocks, `environment.py` describes machine and software, and `redaction.py` leaves names out of what
is written.
"""
