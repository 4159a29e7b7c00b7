"""What training would do if its loader were changed, predicted from one recorded run.

Of an alternating run whose loader was looked into, a user learns

1. how much faster training would be over whole epochs with other settings, with more or fewer CPUs,
   or with a transform, a line of code or a stage that takes less time, or with all of these: a
   speed-up and the range in which it is expected, which may be a loss;
2. how many workers are enough, and the throughput with each number of them;
3. what holds training up then: "then the CPUs";
4. what memory, and shared memory, workers and prefetched batches would take, and if that is there;
5. and what each prediction takes for granted, in sentences.

Nothing is predicted from a log run, which does not tell what a step takes without loading.
"""
