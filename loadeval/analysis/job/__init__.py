"""The ranks of one job as one run.

In order of reading: `alignment.py` finds the steps that ranks made together, `clocks.py` puts them
on one clock, and `ranks.py` says which rank the others wait for.
"""
