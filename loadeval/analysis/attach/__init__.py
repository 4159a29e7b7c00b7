"""What is seen of a training that runs already, from outside: stacks at moments, and /proc.

`probes/observing.py` reads it, as plain data. In order of reading: `marks.py` reads one stack by
what adapters declare, `job.py` tells which process trains and which load for it, `shares.py` makes
shares of the time of moments, with intervals, `workers.py` says what workers and threads do,
`findings.py` judges by the thresholds of `rules/`, and `report.py` has it all.
"""
