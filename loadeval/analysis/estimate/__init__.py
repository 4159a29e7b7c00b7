"""What free loading would bring, with its interval.

In order of reading: `steady.py` says which batches count, `summary.py` has the figures of one arm,
and `epochs.py` what epochs add to them. `arms.py` compares the real arm and the ideal one in pairs,
on `stats.py` and `intervals.py`; `stalls.py` allows for rare stalls, and `throughput.py` has their
rates. `headroom.py` says what is lost to what, `cautions.py` what makes that mean less, and
`verdict.py` what follows. `metrics.py` and `memory.py` are what probes read meanwhile.
"""
