"""Findings in words: what is wrong, what to change, and why a rule could not be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.memory import GrowthAdvice, GrowthReason
from loadeval.analysis.rules.finding import Advice, Caveat, Finding, Problem, Rule, Unknown
from loadeval.analysis.stats import Estimate
from loadeval.report.formatting import (
    cpus,
    duration,
    estimated,
    filled,
    number,
    share,
    size,
    speedup,
)
from loadeval.report.wording.runs import GROWTH
from loadeval.report.wording.verdict import (
    COMPETES,
    HIDDEN,
    LOADED_NOTHING,
    NO_CUDA_DEVICE,
    NO_STEADY_BATCH,
    UNMEASURED,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from enum import Enum

    from loadeval.analysis.remark import Remark
    from loadeval.analysis.rules.finding import Check, Diagnosis, Fact, Place

QUESTIONS = {
    Rule.CAPACITY: "Is the loader too slow even on its own?",
    Rule.ZERO_WORKERS: "Is nothing loaded ahead?",
    Rule.SHALLOW_QUEUE: "Does the prefetch queue run empty?",
    Rule.PER_BATCH_COST: "Is the wait about the same for every batch?",
    Rule.WAITING: "Is time lost whose cause was not measured?",
    Rule.SLOW_TRANSFORM: "Does one transform take most of loading a batch?",
    Rule.SLOW_FETCH: "Does one function take most of loading a batch?",
    Rule.SLOW_COLLATE: "Does collating take a large part?",
    Rule.TRANSFER: "Does passing batches to the training process take long?",
    Rule.SLOW_SAMPLER: "Do the sampler and its indices take long?",
    Rule.PINNING: "Does pinning take long?",
    Rule.HEAD_OF_LINE: "Do finished batches wait for earlier ones?",
    Rule.SLOW_SAMPLES: "Are a few samples far slower than the others?",
    Rule.LOCK: "Do workers wait for a lock?",
    Rule.DISK: "Is the data read from the disk?",
    Rule.STORAGE_LATENCY: "Are workers blocked, but on no lock or disk?",
    Rule.SLOW_WORKER: "Is one worker slower than the others?",
    Rule.FEW_SHARDS: "Do some workers have nothing to load?",
    Rule.SLOW_OPERATOR: "Does one stage of the pipeline hold up the others?",
    Rule.PYTHON_LOCK: "Do threads of the loader hold Python's lock (GIL)?",
    Rule.CONTENTION: "Are steps slower while batches are loaded?",
    Rule.SHARED_MACHINE: "Did other programs use the CPUs?",
    Rule.STALLS: "Is most of the waiting for a few batches?",
    Rule.EPOCH_BOUNDARIES: "Does every epoch start with a long wait?",
    Rule.WORKER_START: "Do workers start slowly?",
    Rule.SHUFFLE_BUFFER: "Does the first sample of each worker take long?",
    Rule.LOADER_RECREATED: "Is the loader iterated anew for each batch?",
    Rule.SLOW_FIRST_BATCH: "Does the first batch of the run take long?",
    Rule.FALLING_THROUGHPUT: "Does training keep getting slower?",
    Rule.DRIFT: "Was one half of the run slower?",
    Rule.OUTLIERS: "Do single batches take over twice the median?",
    Rule.PROCESS_MEMORY: "Does the training process's memory grow?",
    Rule.WORKER_MEMORY: "Does the workers' memory grow?",
    Rule.OVERSUBSCRIPTION: "Are there more workers than CPUs?",
    Rule.UNPINNED_MEMORY: "Are batches copied to the GPU from unpinned memory?",
    Rule.HIDDEN_WAITS: "Are waits hidden by GPU work?",
    Rule.IDLE_GPU: "Is the GPU idle even with ideal loading?",
    Rule.NOT_REPRESENTATIVE: "Do the kept batches stand for the epoch?",
}
BOUNDS = "TensorFlow's input-pipeline analyzer, 5% and 20% of the time"
TIMES = "times of real, ideal and loader-only batches"
STAGE_TIMES = "times of the stages inside the loader, and a simulation of it without this"
KERNEL = "on-CPU, run-queue and blocked time of the workers, as the kernel counts it"
EPOCH_STARTS = "first waits of the epochs, compared with a whole epoch in steady state"
SOURCES = {
    Rule.CAPACITY: f"{TIMES}; bounds of {BOUNDS}",
    Rule.ZERO_WORKERS: f"PyTorch's documentation of multi-process data loading; bounds of {BOUNDS}",
    Rule.SHALLOW_QUEUE: f"{TIMES}, and stalls",
    Rule.PER_BATCH_COST: "equal waits, and how fast batches pass between processes in torch 2.13",
    Rule.WAITING: f"bounds of {BOUNDS}",
    **dict.fromkeys(
        (
            Rule.SLOW_TRANSFORM,
            Rule.SLOW_FETCH,
            Rule.SLOW_COLLATE,
            Rule.TRANSFER,
            Rule.SLOW_SAMPLER,
            Rule.PINNING,
            Rule.HEAD_OF_LINE,
            Rule.SLOW_SAMPLES,
            Rule.SLOW_WORKER,
            Rule.FEW_SHARDS,
        ),
        STAGE_TIMES,
    ),
    Rule.LOCK: KERNEL,
    Rule.DISK: KERNEL,
    Rule.STORAGE_LATENCY: KERNEL,
    Rule.SLOW_OPERATOR: (
        "task times of the stages by how many tasks they may work on at once, and their queues"
    ),
    Rule.PYTHON_LOCK: "how long a thread that wants the GIL waits for it, in both arms",
    Rule.CONTENTION: "difference of the steps between the real and the ideal arm",
    Rule.SHARED_MACHINE: "CPU time of the machine, less that of training and its workers",
    Rule.STALLS: "share of the waiting in the slowest 1% of the batches",
    Rule.EPOCH_BOUNDARIES: f"{EPOCH_STARTS}; PyTorch's documentation of persistent_workers",
    Rule.WORKER_START: f"{EPOCH_STARTS}; {STAGE_TIMES}",
    Rule.SHUFFLE_BUFFER: f"{EPOCH_STARTS}; {STAGE_TIMES}",
    Rule.LOADER_RECREATED: "epochs that end after their first batch",
    Rule.SLOW_FIRST_BATCH: EPOCH_STARTS,
    Rule.FALLING_THROUGHPUT: "Theil-Sen slope of the medians of twenty parts of the run",
    Rule.DRIFT: "difference of the halves' mean iterations, beyond its 95% CI",
    Rule.OUTLIERS: "twice the median, as in Amazon SageMaker's PT_dataloader_analysis",
    Rule.PROCESS_MEMORY: "Theil-Sen slope of the memory readings",
    Rule.WORKER_MEMORY: "Theil-Sen slope of the memory readings",
    Rule.OVERSUBSCRIPTION: "the warning that PyTorch gives for such a DataLoader",
    Rule.UNPINNED_MEMORY: "PyTorch's documentation of pinned memory and non_blocking copies",
    Rule.HIDDEN_WAITS: "CUDA events recorded around each wait",
    Rule.IDLE_GPU: "NVML's utilization (any kernel running) in the ideal arm",
    Rule.NOT_REPRESENTATIVE: "rank correlation of steps with their batches' size and place",
}
"""Where each rule and its bounds are from."""
PROBLEMS: dict[Enum, str] = {
    Problem.LOADER_TOO_SLOW: (
        "The loader is too slow even on its own: it must be {required:speedup} faster to keep up."
    ),
    Problem.NOTHING_LOADED_AHEAD: (
        "Nothing is loaded ahead: training spends {wait_share:share} of its time waiting while "
        "each batch is loaded."
    ),
    Problem.QUEUE_RUNS_EMPTY: (
        "The loader alone is fast enough (a batch takes {required:share} of an ideal iteration), "
        "but training waits {wait_share:share} of its time: the queue runs empty now and then."
    ),
    Problem.SAME_WAIT_FOR_EVERY_BATCH: (
        "The loader alone is fast enough, but training waits about equally long for every batch, "
        "typically {p50_wait_ns:duration}: a cost per batch, and no empty queue."
    ),
    Problem.LOSS_UNEXPLAINED: (
        "In the steady state {lost_share:share} of the time is lost to data loading, "
        "{wait_share:share} in waiting. Whether the loader is too slow or its queue too shallow "
        "was not measured."
    ),
    Problem.WAIT_UNEXPLAINED: (
        "Training waits for batches {wait_share:share} of its time. What it would gain without "
        "these waits was not measured: it may be less or more."
    ),
    Problem.TRANSFORM_SLOW: (
        "{name:name} takes {share:share} of loading a batch: {call_ns:duration} a call, "
        "{calls:,g} calls a batch."
    ),
    Problem.CODE_SLOW: "{share:share} of loading a batch is spent in {place:code}.",
    Problem.COLLATE_SLOW: (
        "{name:name} takes {collate_ns:duration} to collate a batch, {share:share} of what a "
        "worker does."
    ),
    Problem.TRANSFER_BY_PIPE: (
        "Passing a batch from its worker to training takes {transfer_ns:duration}: "
        "{pickled_bytes:size} of it go through a pipe, as all that is not a tensor does."
    ),
    Problem.TRANSFER_OF_MANY: (
        "Passing a batch from its worker to training takes {transfer_ns:duration}, though only "
        "{pickled_bytes:size} of it are pickled: it has many tensors or objects, each with a cost."
    ),
    Problem.TRANSFER_OF_FEW: (
        "Passing a batch from its worker to training takes {transfer_ns:duration}: handing tensors "
        "from one process to another takes time for each, whatever its size."
    ),
    Problem.SAMPLER_SLOW: (
        "The training process spends {index_ns:duration} a batch on {sampler:name}, which chooses "
        "what is loaded next."
    ),
    Problem.PINNING_SLOW: "Copying a batch to pinned memory takes {pin_ns:duration}.",
    Problem.FINISHED_BATCHES_WAIT: (
        "Finished batches wait for slower ones before them (head-of-line blocking): in "
        "{share:share} of the time training waits while a later batch lies ready."
    ),
    Problem.SAMPLES_SLOW: (
        "A few samples take up to {longest_ns:duration}, where a typical one takes "
        "{typical_ns:duration}: those with index {indices:name}."
    ),
    Problem.WORKERS_WAIT_FOR_LOCK: (
        "Workers are blocked {share:share} of their time by a lock that they share, at "
        "{place:code} ({kernel:name})."
    ),
    Problem.READ_FROM_DISK: (
        "The data is read from the disk, not from the page cache: {disk_bytes:size} a batch. "
        "Workers are blocked {share:share} of their time."
    ),
    Problem.WORKERS_BLOCKED: (
        "Workers are blocked {share:share} of their time, neither on a CPU nor waiting for one, at "
        "{place:code}: storage, the network or another process is slow to answer."
    ),
    Problem.WORKERS_WAIT_FOR_CPU: (
        "Workers are ready to run but wait for a CPU {share:share} of their time: more threads "
        "compute than there are CPUs."
    ),
    Problem.WORKER_SLOW: (
        "Worker {worker} takes {batch_ns:duration} a batch, the others {others_ns:duration}."
    ),
    Problem.WORKERS_HAVE_NO_SHARD: "Workers without anything to load: {idle} of {workers}.",
    Problem.OPERATOR_BUSY: (
        "{name:name} is busy {busy_share:share} of the time with {concurrency} at once."
    ),
    Problem.THREADS_BUSY: (
        "The {threads} threads of the pipeline are busy {busy_share:share} of the time, most of it "
        "with {name:name}."
    ),
    Problem.OPERATOR_STARVES_NEXT: (
        "{name:name} always has work waiting, and what comes after it waits for it."
    ),
    Problem.OPERATOR_COSTLIEST: (
        "{name:name} takes {share:share} of the time that all operators take for a batch."
    ),
    Problem.PYTHON_LOCK_HELD: (
        "Threads that load batches ({threads:name}) hold Python's lock (GIL): who wants it waits "
        "{real_ns:duration}, and {ideal_ns:duration} with ideal loading."
    ),
    Problem.STEPS_SLOWER: (
        f"A step takes {{slower_ns:duration}} longer while batches are loaded: {COMPETES}."
    ),
    Problem.OTHERS_USE_CPUS: (
        "Other programs used up to {others_cpus:cpus} during this run: results may change with "
        "what else runs."
    ),
    Problem.FEW_BATCHES_STALL: (
        "{stalls:,} of {batches:,} batches cause {wait_share:share} of the waiting, "
        "{time_share:share} of the training time."
    ),
    Problem.EPOCHS_START_SLOWLY: (
        "Each epoch starts with a wait of {epoch_start_ns:duration}, {epoch_share:share} of its "
        "time."
    ),
    Problem.WORKERS_START_SLOWLY: (
        "Each epoch starts {begun_ns:duration} late: that long it takes to start a worker by "
        "{method}, which loads modules and the dataset in it."
    ),
    Problem.WORKERS_INITIALISE_SLOWLY: (
        "Each epoch starts with {init_ns:duration} of {function:name} (worker_init_fn) in every "
        "worker."
    ),
    Problem.FIRST_SAMPLE_SLOW: (
        "In each epoch the first sample of a worker takes {sample_ns:duration}: {dataset:name} "
        "fills a shuffle buffer, or opens files."
    ),
    Problem.LOADER_MADE_ANEW: (
        "The loader is iterated anew for each batch ({epochs:,} times): each waits "
        "{each_ns:duration} for its first batch."
    ),
    Problem.FIRST_BATCH_SLOW: (
        "The first batch of the run takes {epoch_start_ns:duration}, {epoch_share:share} of the "
        "first epoch. That happens once, so it matters only in short runs."
    ),
    Problem.ITERATIONS_LENGTHEN: (
        "Training keeps getting slower: an iteration takes {rise:share} longer at the end of the "
        "run than at its start."
    ),
    Problem.SECOND_HALF_SLOWER: (
        "The second half of the run was {change:share} slower than the first: figures of the whole "
        "run average the two."
    ),
    Problem.SECOND_HALF_FASTER: (
        "The second half of the run was {change:share} faster than the first: figures of the whole "
        "run average the two."
    ),
    Problem.FEW_BATCHES_SLOW: (
        "{outliers:,} of {batches:,} batches over twice the median iteration ({waiting:,} mostly "
        "waiting, {stepping:,} with a slow step) cost {time_share:share} of the training time."
    ),
    Problem.MEMORY_GROWS: (
        "The memory of the {subject} grows by {bytes_per_hour:size} an hour, "
        "{share_per_hour:share} of the available {limit_bytes:size}."
    ),
    Problem.MORE_WORKERS_THAN_CPUS: (
        "The loader has {workers} workers for {cpus:cpus}: they compete for CPU, and each uses "
        "memory."
    ),
    Problem.BATCHES_UNPINNED: "Batches are copied to the GPU from memory that is not pinned.",
    Problem.WAITS_HIDDEN: HIDDEN,
    Problem.GPU_IDLE: (
        "Loading is not the limit: even with ideal loading {gpu:name} is idle {idle_share:share} "
        "of the time."
    ),
    Problem.STEP_DEPENDS_ON_BATCH: (
        "The step time depends on the batch, its size or its place in the epoch, so the kept "
        "batches may not stand for the epoch."
    ),
}
CAVEATS: dict[Enum, str] = {
    Caveat.TOO_FEW_PAIRS: (
        "There is no 95% CI with under {needed} pairs: run about {more_batches:,} more batches to "
        "get one."
    ),
    Caveat.RUNS_TOO_SHORT: "The runs are too short for a 95% CI: run more batches in both.",
}
ADVICE: dict[Enum, str] = {
    Advice.RAISE: "Raise {setting} from {present} to {proposed} and measure.",
    Advice.LOWER: "Lower {setting} from {present} to {proposed} or less and measure.",
    Advice.LOWER_WORKERS: "Lower {setting} from {present}, use fewer threads, and copy less.",
    Advice.ADD_WORKERS_OR_THREADS: (
        "Give the loader more workers or threads if CPUs are free, or make decoding and transforms "
        "cheaper."
    ),
    Advice.NO_MORE_WORKERS: "More workers will not help.",
    Advice.LOAD_IN_BACKGROUND: (
        "Load in the background: in a DataLoader with a worker (a generator becomes an "
        "IterableDataset), or in a thread that keeps a few batches ready."
    ),
    Advice.LOAD_IN_WORKERS: "Load in workers.",
    Advice.LOADING_EVICTS_CACHES: (
        "Loading in the training process evicts the step's data from the CPU caches."
    ),
    Advice.CPUS_BUSY: "No CPU is free (training may use {cpus}).",
    Advice.CPU_TIME_LIMITED: (
        "The cgroup's CPU limit throttled training in {throttled_share:share} of its periods."
    ),
    Advice.CPU_USE_NOT_READ: (
        "How many CPUs were free was not measured: more workers help only while some are."
    ),
    Advice.CPUS_NEEDED: (
        "The workers use {used:cpus} and need {needed:cpus} to keep up; training and other "
        "programs leave {left:cpus} of {cpus}."
    ),
    Advice.CPUS_FREE: (
        "With {cpus_left:cpus} unused, they may compete for memory bandwidth, Python's GIL or the "
        "GPU."
    ),
    Advice.WORKERS_NEEDED: (
        "Keeping up takes {workers} workers; training and other programs leave {cpus_left:cpus} of "
        "{cpus}."
    ),
    Advice.WORKERS_MOSTLY_WAIT: (
        "The {workers} workers use only {used:cpus} in all. What they wait for was not measured: "
        "storage or the network, where more workers help, or a lock or the training process, where "
        "they do not."
    ),
    Advice.NO_CPU_FOR_WORKER: (
        "No CPU is left for it, so it helps only while the step or loading waits for something."
    ),
    Advice.RECEIVING_LIMITS: (
        "The training process spends {receiving_ns:duration} of CPU time to receive, unpickle and "
        "pin a batch, which takes the loader alone {loader_only_ns:duration}. Send tensors instead "
        "of NumPy arrays or objects, fewer and larger ones, and fewer bytes."
    ),
    Advice.CHEAPER_OR_CPUS: (
        "Make decoding and transforms cheaper, or give the training more CPUs."
    ),
    Advice.CHEAPER_ALSO: "Also make decoding and transforms cheaper.",
    Advice.CHEAPER_INSTEAD: "Or make decoding and transforms cheaper.",
    Advice.CHEAPER_ON_DEVICE: (
        "Make decoding and transforms cheaper, move them to the GPU, or give the training more "
        "CPUs."
    ),
    Advice.LIGHTER_LOADING: "Use cheaper transforms, fewer threads and fewer copies.",
    Advice.MEASURE_QUIET: (
        "Measure again while nothing else runs, unless training always shares the machine."
    ),
    Advice.RAISE_PREFETCH_DEPTH: (
        "Raise {setting} so that {proposed} batches are ready instead of {present}, and measure."
    ),
    Advice.PREFETCH_MORE: "Prefetch more batches and measure.",
    Advice.HIDES_STALL: (
        "That hides up to {hidden_ns:duration} more of a stall; the longest wait was "
        "{longest_wait_ns:duration}."
    ),
    Advice.HIDES_PART_OF_STALL: (
        "That hides up to {hidden_ns:duration} more of a stall, but the longest wait was "
        "{longest_wait_ns:duration}: also find out what makes the slowest batches slow."
    ),
    Advice.HIDES_QUEUE_LENGTH: (
        "If the loader keeps up otherwise, that hides stalls as long as the queued batches last."
    ),
    Advice.CUT_BYTES: (
        "A deeper prefetch will not help. The batches are so large that copying them between "
        "processes may take that long: try tensors instead of NumPy arrays, fewer bytes (integers, "
        "converted to floats on the GPU), or threads, which copy nothing."
    ),
    Advice.FEWER_TENSORS: (
        "A deeper prefetch will not help. The cause was not measured: passing a batch between "
        "processes (each tensor, objects that are unpickled), or a slow sampler. Try fewer and "
        "larger tensors in a batch, and measure."
    ),
    Advice.MAYBE_PINNING: "It may also be pinning.",
    Advice.ALTERNATE: (
        "Measure with mode='alternate', which serves every batch once and times the loader alone."
    ),
    Advice.FIND_SLOW_BATCHES: (
        "Find out what makes these batches slow to load: large files, a shard boundary, a cold "
        "cache, retries."
    ),
    Advice.FIND_PERIOD: (
        "Find out what the loader does every {period:,} batches, such as opening a shard."
    ),
    Advice.FIND_SLOW_WORKER: (
        "The stalls come every {period:,} batches, a multiple of the {workers} workers: find out "
        "what one worker does that the others do not."
    ),
    Advice.FIND_SLOW_STEPS: (
        "Find out what slows these steps down: a checkpoint, a validation, Python's garbage "
        "collection, another program."
    ),
    Advice.FIND_LOADER_GROWTH: (
        "The waits grow: look for a loader that does more with every batch (a list or cache that "
        "it searches, files that it never closes), and for a disk or network that slows down once "
        "a cache or burst allowance is used up."
    ),
    Advice.FIND_STEP_GROWTH: (
        "The steps grow: look for losses or outputs that are kept with their autograd graph, a "
        "metric over all batches so far, and a CPU or GPU that throttles from heat."
    ),
    Advice.FIND_SLOWDOWN: (
        "Look for other work on the machine, CPUs that throttle from heat, and growing memory."
    ),
    Advice.WARM_UP_CACHE: (
        "A page cache that fills makes reading faster: run an epoch before the one that you "
        "measure. Or other work on the machine ended."
    ),
    Advice.CHEAPER_FIRST_BATCH: (
        "Most of it is the first batch, which takes one worker {batch_ns:duration}: make batches "
        "cheaper or smaller, or epochs longer."
    ),
    Advice.WORKER_START_AT_MOST: "Starting workers takes at most {start_ns:duration} of it.",
    Advice.CHEAPER_EPOCH_START: (
        "The workers stay alive between epochs, so it is what they do for the first batch: filling "
        "a shuffle buffer, opening files, listing shards. Make that cheaper, or epochs longer."
    ),
    Advice.TRY_PERSISTENT_WORKERS: (
        "Either starting workers takes that long, or what the dataset does first, such as filling "
        "a shuffle buffer. Try {setting}={proposed} and compare this wait: it ends only the "
        "former. Or make epochs longer."
    ),
    Advice.KEEP_WORKERS: "Pass {setting}={proposed}: workers then start once, not in each epoch.",
    Advice.FIND_EPOCH_START: (
        "The cause was not measured: see what the loader does for the first batch of each epoch "
        "(opening files, listing shards, filling a shuffle buffer), do it only once, or make "
        "epochs longer."
    ),
    Advice.FASTER_START: (
        "Look at what happens before the first batch: listing files, building an index, filling a "
        "shuffle buffer, imports in spawned workers. Save an index or file list to disk."
    ),
    **{code: GROWTH[code] for code in GrowthAdvice},
    Advice.MOSTLY_IN: "Most of it is in {place:code}.",
    Advice.LOOK_AT: "Workers were seen most often in {place:code}.",
    Advice.CHEAPER_NAMED: (
        "Make {name:code} cheaper: smaller inputs, a faster library, once for the whole batch or "
        "on the GPU, or once and for all before training."
    ),
    Advice.CHEAPER_COLLATE: (
        "Make collate_fn cheaper: stack tensors once with torch.stack, pad with one allocation, "
        "and move loops into __getitem__."
    ),
    Advice.SEND_TENSORS: (
        "Return torch tensors from the workers (torch.from_numpy in collate_fn): they go through "
        "shared memory, not through the pipe."
    ),
    Advice.SEND_FEWER: (
        "Send fewer and larger tensors: stack those of a kind in collate_fn, and leave out what "
        "training does not use. More workers will not help."
    ),
    Advice.SEND_LESS_OFTEN: (
        "Larger batches are passed less often, and "
        "torch.multiprocessing.set_sharing_strategy('file_system') passes them in some half of the "
        "time. More workers will not help."
    ),
    Advice.CHEAPER_SAMPLER: (
        "Make the sampler cheaper: draw all indices of an epoch at once as a list, without a loop "
        "over weights or lengths for each batch. More workers will not help."
    ),
    Advice.OUT_OF_ORDER: (
        "Pass in_order=False (torch 2.6 or later) if training may see batches in another order."
    ),
    Advice.FIX_SAMPLES: (
        "Look at the samples with index {indices:name}, which take up to {longest_ns:duration}: "
        "make them smaller, or leave them out."
    ),
    Advice.SHORTER_LOCK: (
        "Do not share the lock: open the file or database once in each worker, or hold it for "
        "less. More workers will not help."
    ),
    Advice.READ_LESS: (
        "Read less, or faster: smaller or compressed files, few large files read in order, a "
        "faster disk, or so much memory that the data stays in the page cache."
    ),
    Advice.MORE_REQUESTS_AT_ONCE: (
        "Blocked workers need no CPU, so more of them help even beyond the number of CPUs; so do "
        "several requests at once in a sample or batch, and a cache nearby."
    ),
    Advice.ONE_THREAD_EACH: (
        "Let each worker compute in one thread: torch.set_num_threads(1), OMP_NUM_THREADS=1, "
        "cv2.setNumThreads(0), in worker_init_fn or before it."
    ),
    Advice.FREE_CPUS: (
        "Free CPUs: fewer threads in the training process (torch.set_num_threads) or in other "
        "programs. More workers will not help."
    ),
    Advice.BALANCE_WORKERS: (
        "Find out what this worker does that the others do not: larger samples or shards, another "
        "disk, a busy CPU. Shards of equal size, or in_order=False, balance the workers."
    ),
    Advice.MORE_SHARDS: (
        "Split the data into at least {workers} shards of equal size, or lower the number of "
        "workers by {idle}."
    ),
    Advice.RAISE_CONCURRENCY: ("Let {name:name} work on more items at once: raise its {setting}."),
    Advice.RAISE_THREADS: "Give the pipeline more threads: raise {setting}.",
    Advice.CHEAPER_OPERATOR: "Make {name:name} cheaper.",
    Advice.USE_PROCESSES: (
        "Load in processes instead of threads, or with functions that release the GIL."
    ),
    Advice.SMALLER_DATASET: (
        "Keep the dataset small: hold paths or open files in the worker, not data in its "
        "attributes; or start workers by fork or forkserver."
    ),
    Advice.CHEAPER_INIT: "Or make worker_init_fn cheaper.",
    Advice.SMALLER_BUFFER: (
        "Use a smaller shuffle buffer, fill it little by little, or make epochs longer."
    ),
    Advice.KEEP_ITERATOR: (
        "Keep the iterator: batches = iter(loader) once, then next(batches) at each step."
    ),
    Advice.PIN_MEMORY: (
        "Pass {setting}={proposed} and copy with .to(device, non_blocking=True): the copy then "
        "overlaps the step."
    ),
    Advice.KEEP_LOADER: "Leave the loader as it is: these waits cost nothing.",
    Advice.PROFILE_STEP: (
        "Look at the training step: many small kernels (larger batches, torch.compile and CUDA "
        "graphs help), .item() and print in each step, CPU work between steps. torch.profiler and "
        "Nsight Systems show which."
    ),
}
SHORT_CHANGES: dict[Enum, str] = {
    Advice.RAISE: "raise {setting} from {present} to {proposed}",
    Advice.LOWER: "lower {setting} from {present} to {proposed}",
    Advice.LOWER_WORKERS: "lower {setting} from {present}",
    Advice.ADD_WORKERS_OR_THREADS: "try more workers or threads",
    Advice.LOAD_IN_BACKGROUND: "load in the background",
    Advice.LOAD_IN_WORKERS: "load in workers",
    Advice.RECEIVING_LIMITS: "fewer and larger tensors, fewer bytes",
    Advice.CHEAPER_OR_CPUS: "make the loader {required:speedup} faster",
    Advice.CHEAPER_ON_DEVICE: "cheaper transforms, or more CPUs",
    Advice.LIGHTER_LOADING: "cheaper transforms, less copying",
    Advice.MEASURE_QUIET: "measure again on a quiet machine",
    Advice.RAISE_PREFETCH_DEPTH: "raise {setting} to keep {proposed} ready",
    Advice.PREFETCH_MORE: "prefetch more batches",
    Advice.CUT_BYTES: "fewer bytes, or tensors for arrays",
    Advice.FEWER_TENSORS: "fewer and larger tensors",
    Advice.ALTERNATE: "measure with mode='alternate'",
    Advice.FIND_SLOW_BATCHES: "find what makes a few batches slow",
    Advice.FIND_PERIOD: "find what happens every {period:,} batches",
    Advice.FIND_SLOW_WORKER: "find what slows one of the workers",
    Advice.FIND_SLOW_STEPS: "find what slows a few steps",
    Advice.FIND_LOADER_GROWTH: "find what grows in the loader",
    Advice.FIND_STEP_GROWTH: "find what grows in the step",
    Advice.FIND_SLOWDOWN: "measure again on a quiet machine",
    Advice.WARM_UP_CACHE: "run an epoch before measuring",
    Advice.CHEAPER_FIRST_BATCH: "longer epochs, or smaller batches",
    Advice.CHEAPER_EPOCH_START: "longer epochs, or a cheaper start",
    Advice.TRY_PERSISTENT_WORKERS: "try {setting}={proposed}",
    Advice.KEEP_WORKERS: "set {setting}={proposed}",
    Advice.FIND_EPOCH_START: "longer epochs, or a cheaper start",
    Advice.FASTER_START: "save file lists and indexes to disk",
    GrowthAdvice.DROP_KEPT_TENSORS: "find what keeps losses or batches",
    GrowthAdvice.AVOID_COPY_ON_WRITE: "keep dataset lists in arrays",
    GrowthAdvice.BOUND_WORKER_CACHES: "find what the dataset keeps",
    Advice.CHEAPER_NAMED: "make {name:name} cheaper",
    Advice.CHEAPER_COLLATE: "make collate_fn cheaper",
    Advice.SEND_TENSORS: "return tensors, not arrays",
    Advice.SEND_FEWER: "fewer and larger tensors",
    Advice.SEND_LESS_OFTEN: "larger batches, or sharing by file_system",
    Advice.CHEAPER_SAMPLER: "make the sampler cheaper",
    Advice.OUT_OF_ORDER: "pass in_order=False",
    Advice.FIX_SAMPLES: "look at samples {indices:name}",
    Advice.SHORTER_LOCK: "do not share the lock",
    Advice.READ_LESS: "read less, or from a faster disk",
    Advice.MORE_REQUESTS_AT_ONCE: "more requests at once",
    Advice.ONE_THREAD_EACH: "one thread in each worker",
    Advice.FREE_CPUS: "free CPUs: fewer threads",
    Advice.BALANCE_WORKERS: "balance the workers",
    Advice.MORE_SHARDS: "at least {workers} shards",
    Advice.RAISE_CONCURRENCY: "raise {setting} of {name:name}",
    Advice.RAISE_THREADS: "raise {setting}",
    Advice.CHEAPER_OPERATOR: "cheaper {name:name}",
    Advice.USE_PROCESSES: "processes instead of threads",
    Advice.SMALLER_DATASET: "keep the dataset small",
    Advice.CHEAPER_INIT: "make worker_init_fn cheaper",
    Advice.SMALLER_BUFFER: "a smaller shuffle buffer",
    Advice.KEEP_ITERATOR: "keep the iterator between steps",
    Advice.PIN_MEMORY: "set {setting}={proposed}",
    Advice.KEEP_LOADER: "nothing: hidden by GPU work",
    Advice.PROFILE_STEP: "profile the step, not the loader",
}
"""What to change, in a few words; codes that only explain a change have none."""
UNKNOWNS: dict[Enum, str] = {
    Unknown.NO_IDEAL: "ideal loading was not measured: use mode='alternate'",
    Unknown.NOT_REPLAYED: "no batches were replayed",
    Unknown.LOADED_NOTHING: LOADED_NOTHING,
    Unknown.LOADER_ALONE_NOT_TIMED: "the loader alone was not timed, as mode='alternate' may do",
    **UNMEASURED,
    Unknown.NO_STEADY_BATCH: NO_STEADY_BATCH,
    Unknown.TOO_FEW_BATCHES: "{batches:,} steady-state batches, of {needed:,} needed",
    Unknown.BATCHES_LEFT_OUT: "the log keeps one batch in {every:,}",
    Unknown.PREFETCH_UNKNOWN: "the loader's prefetch depth is not known",
    Unknown.WORKERS_UNKNOWN: "the loader's number of workers is not known",
    Unknown.CPUS_UNKNOWN: "the number of usable CPUs is not known",
    Unknown.CPU_TIME_NOT_READ: "the machine's CPU time was not read during measured batches",
    Unknown.LOCK_NOT_READ: "the threads of the process were not read",
    Unknown.FEW_LOCK_READINGS: (
        "the wait for Python's lock was read {readings} times in an arm, and {needed} are needed; "
        "measure for longer"
    ),
    Unknown.NOT_LOOKED_INTO: "the loader was not looked into, as stages=True may do",
    Unknown.NO_EPOCH_START: "no epoch start was measured",
    Unknown.ONE_EPOCH: "there was no second epoch",
    Unknown.EPOCH_LENGTH_UNKNOWN: "the length of an epoch, or its iteration time, is not known",
    **{code: GROWTH[code] for code in GrowthReason},
    Unknown.NO_CUDA: NO_CUDA_DEVICE,
    Unknown.PINNING_UNKNOWN: "whether the loader pins its batches is not known",
    Unknown.GPU_NOT_READ: "no GPU was read during ideal loading",
}

MOST_PLACES = 5
IN_WORDS: dict[str, Callable[[float], str]] = {
    "ns": duration,
    "bytes": size,
    "share": share,
    "x": speedup,
}
"""A figure as text, by its unit; in other units it is the number of what is counted."""


def describe(finding: Finding | Check) -> str:
    """What is wrong and what to change; of a check its question, and why it was not measured."""
    if isinstance(finding, Finding):
        return f"{finding_sentence(finding)} {finding_advice(finding)}"
    question, reason = QUESTIONS[finding.rule], why_not_checked(finding)
    return f"{question} Not measured: {reason}." if reason else question


def finding_sentence(finding: Finding) -> str:
    """What is wrong."""
    wrong = _filled(PROBLEMS, finding.problem)
    return f"{wrong} {_filled(CAVEATS, finding.caveat)}" if finding.caveat else wrong


def finding_advice(finding: Finding) -> str:
    """What to change."""
    return " ".join(_advised(change) for change in finding.changes)


def change_in_short(finding: Finding) -> str:
    """What to change, in a few words; `finding_advice` says more."""
    change = next(change for change in finding.changes if change.code in SHORT_CHANGES)
    return filled(SHORT_CHANGES[change.code], {**finding.problem.values, **change.values})


def why_not_checked(check: Check) -> str:
    """Why a rule could not be checked, as a clause; "" where it was."""
    return "" if check.reason is None else _filled(UNKNOWNS, check.reason)


def checked_in_words(diagnosis: Diagnosis) -> list[str]:
    """What was checked without a finding, and what could not be and why, in a line each."""
    clear = [check.rule.value for check in diagnosis.checks if check.outcome == "nothing found"]
    reasons: dict[str, list[str]] = {}
    for check in diagnosis.checks:
        if check.outcome == "not measured":
            reasons.setdefault(why_not_checked(check), []).append(check.rule.value)
    lines = [f"Nothing found: {', '.join(clear)}."] if clear else []
    unknown = "; ".join(f"{', '.join(rules)} ({reason})" for reason, rules in reasons.items())
    return [*lines, f"Not measured: {unknown}."] if unknown else lines


def value_in_words(fact: Fact) -> str:
    """The value of a figure, with its unit, and its interval where it has one."""
    found = Estimate(fact.value, fact.low, fact.high)
    unit = "" if fact.unit in IN_WORDS or fact.unit in fact.name else f" {fact.unit}"
    return f"{estimated(found, IN_WORDS.get(fact.unit, _plain))}{unit}"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else number(value)


def places_in_words(places: Sequence[Place]) -> list[str]:
    """The first batches: epoch and number, when each was requested, how long it and its wait took.

    How many more there are comes last.
    """
    more = [f"and {len(places) - MOST_PLACES:,} more"] if len(places) > MOST_PLACES else []
    return [*map(_place, places[:MOST_PLACES]), *more]


def _place(place: Place) -> str:
    when = took = ""
    if place.start_ns is not None:
        when = f" at {duration(place.start_ns)}"
        if place.end_ns is not None:
            took = f"took {duration(place.end_ns - place.start_ns)}, "
    return (
        f"epoch {place.epoch}, batch {place.batch:,}{when}: {took}waited {duration(place.wait_ns)}"
    )


def _advised(change: Remark) -> str:
    text, others = _filled(ADVICE, change), change.values.get("others_cpus")
    return text if others is None else f"{text} Other programs use {cpus(float(others))}."


def _filled(templates: dict[Enum, str], remark: Remark) -> str:
    return filled(templates[remark.code], remark.values)
