"""A training that runs already, seen from outside: what limits it, and why no batch comes.

Nothing is put into it: `probes` reads stacks and /proc as plain data. `marks.py` reads one stack by
what adapters declare, and tells which process trains and which load for it, `observe.py` makes
shares of the time of what was seen at moments, and says what is wrong, and `hang.py` finds what
holds up a training that gets no batch.
"""
