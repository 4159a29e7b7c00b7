"""What runs say, as pure functions of them: nothing here draws, prints or reads a clock.

`report.py` computes everything, and `once.py` has a run keep what was computed of it, so that it is
computed once. The rooms build on each other, in this order:

- `estimate/`: the arms of a run, their difference with its interval, the verdict
- `inside/`: where a batch's loading time goes, by stage, operator, worker and thread
- `predict/`: the recorded loader, replayed by a simulation with other settings
- `job/`: the ranks of one job, on one clock
- `rules/`: findings, each with what shows it, what it costs and what changing it brings
- `attach/`: a training that runs already, from stacks and the kernel's figures
- `hangs/`: why no batch comes, from the same
"""
