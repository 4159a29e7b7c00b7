"""What training would do with other settings of its loader.

In order of reading: `costs.py` has what each batch takes, `simulation.py` loads batches with given
costs and a given setting, on the CPUs that `scheduling.py` shares. `recorded.py` takes both from a
run, and calibrates them until the replay takes as long as was measured, with `cpus.py` for who else
computed, and `allowed_cpus.py` for where. `change.py` replays it with a change, those of
`faster.py` and `first_workers.py` included, and gives a `prediction.py`; `whatif.py` asks it for
one setting or for many.
"""
