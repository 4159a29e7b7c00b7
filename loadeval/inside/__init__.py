"""Inside the loader: where the time goes that a batch takes to load.

Of a run whose loader was looked into, a user learns

1. which stage training waits for: each moment of a wait is charged to what was done then for the
   batch that came next, and what belongs to no stage is shown as such;
2. what each stage takes, whoever waits for it, and how much of that workers were on a CPU, were
   waiting for one, or were blocked, and by what;
3. which transforms, lines of code and samples take the time, and whether one worker is slower;
4. how long finished batches waited for an earlier one, and how long they lay ready;
5. what each worker and training did when, batch by batch;
6. of a pipeline of operators, as SPDL's, which one is the bottleneck; of any loader, what its
   threads do in the training process, and how long they wait for Python's lock;
7. and where nothing is known, why.
"""
