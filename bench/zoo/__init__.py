"""Planted programs: what all instruments, and the recorded runs of the tests, are made from.

`costs` is work and time, for loaders and steps; `programs` what a program is, and the DataLoader
that most have. `catalogue` has the programs with a fault inside the loader and their healthy twins,
from one file for each theme: `images`, `texts`, `arrays`, `order`, `storage`, `workers`, `threads`.
`outside` has those that show without a look inside, `device` those that only a GPU feels, `truth`
trainings whose speed-up is measured apart, and `workloads` those whose throughput is predicted.
`hangs` and `whole` are whole programs, for a command to start.
"""
