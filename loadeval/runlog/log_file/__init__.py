"""The log of one run: JSON lines on disk.

In order of reading: `fields.py` and `codec.py` turn a line into a fact and back, `writer.py`
appends lines, `sequence.py` checks that they follow each other, `reader.py` makes a Run of them,
and `bulk.py` decodes many alike lines at once. `dali.py` reads the metrics file of DALI's
LoaderEvaluator.
"""
