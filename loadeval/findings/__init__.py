"""Rules that say what is wrong with the loading of data, and the thresholds of all of them.

A threshold without a source is ours, and holds for every rule: the planted programs of `bench/zoo`
and their healthy twins show that it tells them apart.
"""

from importlib import import_module

# Shares of the training time.
MATTERS = 0.05  # less is no finding (TensorFlow's input-pipeline analyser)
WORTH = 0.03  # what gains less is no action, and a finding that others leave less is none
TRIFLE = 0.01  # less needs no word

# Other shares.
ACCOUNTED = 0.8  # of what is lost: if findings have so much, the rest is told only if it matters
MOSTLY = 0.5  # what takes so much of a thing is what it is
DOMINATES = 0.4  # of fetching and collating: what takes so much is named for it alone
BLOCKED = 0.4  # of the same: workers that are blocked so long do not lack CPUs
LARGE = 0.2  # of waiting, of an epoch, of the loader's time: it is told; within it gains are alike
WAITS_FOR_CPU = 0.15  # of a worker's time: it could run so long, and has no CPU
FEW = 0.1  # of the batches: what more of them do is usual; of a CPU: using less is doing nothing

# Ratios.
TWICE = 2.0  # as much is more than usual (SageMaker's PT_dataloader_analysis); what is asked for
MUCH_READ = 8.0  # bytes read for each of a batch: most of them are not used
SLOWER_WORKER = 1.5  # times as long as the median worker
LOCK_WAIT = 3.0  # times the wait for Python's lock in ideal steps, which may hold it themselves
SIGNIFICANT = 3.3  # standard errors: by chance once in a thousand times

# Numbers of things.
FEWEST_LOGGED = 8  # steady batches, before a log by itself says why training waits
FEWEST_BATCHES = 4  # of a worker, of a tail, of sizes that differ
FEWEST_STALLS = 3  # fewer are hardly more than chance
FEWEST_LOADERS = 5  # epochs that are broken off, before a loader is said to be made anew each time
PARTS = 20  # stretches of a run, by whose medians or means a change is told

# Times, bytes and CPUs.
NOTICED_NS = 1_000_000_000  # a first batch that takes so long, and a large part of a run
LOCK_NS = 500_000  # a wait for Python's lock: a tenth of its switch interval
TRANSFER_NS = 600_000  # passing any batch takes nearly so long: 0.2 to 0.5 ms were measured
COPIED_BYTES = 16_000_000  # Python itself, and what it imports, make a worker copy some megabytes
FEW_TENSORS_BYTES = 1000  # some five tensors are pickled to so many: two hundred bytes each
PIPE_BYTES_PER_NS = 0.4  # the slowest way of passing a batch: arrays through a pipe, 0.41 GB/s
READ_BYTES_PER_NS = 0.1  # slower is decoding: images at a tenth of that, in compressed bytes
STREAM_BYTES_PER_NS = 0.02  # slower is waiting for answers; one connection brings 50 to 100 MB/s
MANY_CPUS = 0.5  # in use by others
GPU_BUSY_PERCENT = 70.0  # with ideal loading: if kernels run for less, the step is what is slow

for _room in ("workers", "inside", "blocked", "cpus", "starts", "gpu", "run"):
    import_module(f"{__name__}.{_room}")  # in this order rules are asked
