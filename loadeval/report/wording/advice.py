"""What to change, in words: the advice of a finding, in sentences and in short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.memory import GrowthAdvice
from loadeval.analysis.rules.finding import Advice
from loadeval.report.formatting import cpus, filled
from loadeval.report.wording.runs import GROWTH

if TYPE_CHECKING:
    from enum import Enum

    from loadeval.analysis.remark import Remark
    from loadeval.analysis.rules.finding import Finding

ADVICE: dict[Enum, str] = {
    Advice.RAISE: "Raise {setting} from {present} to {proposed} and measure.",
    Advice.LOWER: "Lower {setting} from {present} to {proposed} or less and measure.",
    Advice.LOWER_WORKERS: "Lower {setting} from {present}, use fewer threads, and copy less.",
    Advice.ADD_WORKERS_OR_THREADS: (
        "Give the loader more workers or threads if CPUs are free, or make decoding and transforms "
        "cheaper."
    ),
    Advice.NO_MORE_WORKERS: "More workers will not help.",
    Advice.NO_WORKERS_HELP: (
        "Workers will not help: starting them and passing batches to training costs what they gain."
    ),
    Advice.TRY_WORKERS: (
        "Raise {setting} from {present} to {proposed} only if measuring shows that it helps, as "
        "tune() does: workers take time to start, and to pass each tensor of a batch to training."
    ),
    Advice.LOAD_IN_TRAINING: (
        "Pass {setting}={proposed}: the training process then loads itself, and no batch is passed "
        "between processes."
    ),
    Advice.LOAD_IN_BACKGROUND: (
        "Load in the background: in a DataLoader with a worker (a generator becomes an "
        "IterableDataset), or in a thread that keeps a few batches ready."
    ),
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
    Advice.CHEAPER_LOADING: "Make decoding and transforms cheaper.",
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
    Advice.SHARE_BY_FILE: (
        "Call torch.multiprocessing.set_sharing_strategy('file_system') at the start of the "
        "script: then tensors are passed by name, and nobody waits for the worker."
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
    Advice.FEWER_THREADS: (
        "Call torch.set_num_threads({threads}) in the training process, or start it with "
        "OMP_NUM_THREADS={threads}, and measure again: what else to change shows then."
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
        "Pass {setting}={proposed} and copy with .to(device, non_blocking=True): the copy is then "
        "faster, and nothing waits for it. What that brings is not predicted."
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
    Advice.TRY_WORKERS: "try raising {setting} from {present} to {proposed}",
    Advice.LOAD_IN_TRAINING: "set {setting}={proposed}",
    Advice.LOAD_IN_BACKGROUND: "load in the background",
    Advice.RECEIVING_LIMITS: "fewer and larger tensors, fewer bytes",
    Advice.CHEAPER_OR_CPUS: "make the loader {required:speedup} faster",
    Advice.CHEAPER_LOADING: "make loading cheaper",
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
    Advice.SHARE_BY_FILE: "share tensors by file_system",
    Advice.CHEAPER_SAMPLER: "make the sampler cheaper",
    Advice.OUT_OF_ORDER: "pass in_order=False",
    Advice.FIX_SAMPLES: "look at samples {indices:name}",
    Advice.SHORTER_LOCK: "do not share the lock",
    Advice.READ_LESS: "read less, or from a faster disk",
    Advice.MORE_REQUESTS_AT_ONCE: "more requests at once",
    Advice.ONE_THREAD_EACH: "one thread in each worker",
    Advice.FREE_CPUS: "free CPUs: fewer threads",
    Advice.FEWER_THREADS: "torch.set_num_threads({threads})",
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
SHORT_IF_TWICE: dict[Enum, str] = {
    Advice.CHEAPER_NAMED: "make {name:name} twice as fast",
    Advice.CHEAPER_COLLATE: "make collate_fn twice as fast",
    Advice.CHEAPER_SAMPLER: "make the sampler twice as fast",
    Advice.SEND_FEWER: "fewer, larger tensors, if twice as fast",
    Advice.SEND_LESS_OFTEN: "share by file_system, if twice as fast",
}
"""The same where half the time is what was predicted."""
FREE_CPUS_OF_OTHERS = "free CPUs that other programs use"
RANGE = "{speedup:speedup} [{low:.2f}, {high:.2f}]"


def finding_advice(finding: Finding) -> str:
    """What to change."""
    return " ".join(_advised(change) for change in finding.changes)


def change_in_short(finding: Finding) -> str:
    """What to change, in a few words; `finding_advice` says more."""
    change = _change_to_tell(finding)
    if change is None:
        return "-"
    short = SHORT_IF_TWICE if "times" in change.values else SHORT_CHANGES
    values, code = {**finding.problem.values, **change.values}, change.code
    if code is Advice.CHEAPER_OR_CPUS and "required" not in values:
        code = Advice.CHEAPER_LOADING  # how much faster is known only of a loader timed alone
    text = filled(short[code], values)
    kept = next((one for one in finding.changes if one.code is Advice.KEEP_WORKERS), change)
    if code is Advice.RAISE and kept is not change:  # by themselves they would start in each epoch
        text = ", ".join(filled("{setting}={proposed}", one.values) for one in (change, kept))
    if code is Advice.FREE_CPUS and "others_cpus" in values:
        text = FREE_CPUS_OF_OTHERS
    return f"perhaps {text}" if finding.confidence == "possible" else text


def predicted_in_short(finding: Finding) -> str:
    """What training would gain by that change: 1.31x [1.22x, 1.40x]; "" where it is not known."""
    change = _change_to_tell(finding)
    values = {} if change is None else change.values
    if "at_most" in values:
        return filled("at most {at_most:speedup}", values)
    return filled(RANGE, values) if "speedup" in values else ""


def _change_to_tell(finding: Finding) -> Remark | None:
    return next((change for change in finding.changes if change.code in SHORT_CHANGES), None)


def _advised(change: Remark) -> str:
    text, others = filled(ADVICE[change.code], change.values), change.values.get("others_cpus")
    if "times" in change.values:
        text = f"{text} Predicted if it took half as long: training {filled(RANGE, change.values)}."
    elif "speedup" in change.values:
        text = f"{text} Predicted: training {filled(RANGE, change.values)}."
    elif "at_most" in change.values:
        text = filled(f"{text} Predicted: training {{at_most:speedup}} at most.", change.values)
    return text if others is None else f"{text} Other programs use {cpus(float(others))}."
