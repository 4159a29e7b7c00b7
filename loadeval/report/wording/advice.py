"""What to change, in words: the advice of a finding, in sentences and in short."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loadeval.analysis.estimate.memory import GrowthAdvice
from loadeval.analysis.rules.finding import Advice
from loadeval.report.formatting import filled
from loadeval.report.wording.runs import GROWTH

if TYPE_CHECKING:
    from enum import Enum

    from loadeval.analysis.remark import Remark
    from loadeval.analysis.rules.finding import Finding


@dataclass(frozen=True, slots=True)
class Words:
    """What to change in a sentence; and `short`, unless it only explains another change.

    `if_twice` is the short form where half the time is what was predicted.
    """

    sentence: str
    short: str = ""
    if_twice: str = ""


ADVICE: dict[Enum, Words] = {
    Advice.ALLOW_IN_WORKERS: Words(
        "Let workers use all CPUs: call os.sched_setaffinity(0, range(os.cpu_count())) at the end "
        "of worker_init_fn, or take out what set the affinity.",
        short="os.sched_setaffinity in worker_init_fn",
    ),
    Advice.ALLOW_AFTER_IMPORTS: Words(
        "Let training and its workers use all CPUs: call os.sched_setaffinity(0, "
        "range(os.cpu_count())) after the imports and before the first epoch, or take out what set "
        "the affinity. Printing os.sched_getaffinity(0) between imports shows which one does.",
        short="os.sched_setaffinity after the imports",
    ),
    Advice.START_WITH_CPUS: Words(
        "If that is not intended, start training with more CPUs: see taskset, numactl, Slurm's "
        "--cpus-per-task and --cpu-bind, mpirun's --bind-to.",
        short="start training with more CPUs",
    ),
    Advice.LOOK_AT_INIT: Words("worker_init_fn is {function:name}: look there first."),
    Advice.UNSET_BINDING: Words(
        "The environment has {variables}, with which OpenMP binds the thread that imports it to "
        "one place: unset that."
    ),
    Advice.RAISE: Words(
        "Raise {setting} from {present} to {proposed} and measure.",
        short="raise {setting} from {present} to {proposed}",
    ),
    Advice.LOWER: Words(
        "Lower {setting} from {present} to {proposed} and measure.",
        short="lower {setting} from {present} to {proposed}",
    ),
    Advice.LOWER_WORKERS: Words(
        "Lower {setting} from {present}, use fewer threads, and copy less.",
        short="lower {setting} from {present}",
    ),
    Advice.ADD_WORKERS_OR_THREADS: Words(
        "Give the loader more workers or threads if CPUs are free, or make decoding and transforms "
        "cheaper.",
        short="try more workers or threads",
    ),
    Advice.NO_MORE_WORKERS: Words("More workers will not help."),
    Advice.NO_WORKERS_HELP: Words(
        "Workers will not help: starting them and passing batches to training costs what they gain."
    ),
    Advice.TRY_WORKERS: Words(
        "Raise {setting} from {present} to {proposed} only if measuring shows that it helps, as "
        "tune() does: workers take time to start, and to pass each tensor of a batch to training.",
        short="try raising {setting} from {present} to {proposed}",
    ),
    Advice.LOAD_IN_TRAINING: Words(
        "Pass {setting}={proposed}: the training process then loads itself, and no batch is passed "
        "between processes.",
        short="set {setting}={proposed}",
    ),
    Advice.LOAD_IN_BACKGROUND: Words(
        "Load in the background: in a DataLoader with a worker (a generator becomes an "
        "IterableDataset), or in a thread that keeps a few batches ready.",
        short="load in the background",
    ),
    Advice.LOADING_EVICTS_CACHES: Words(
        "Loading in the training process evicts the step's data from the CPU caches."
    ),
    Advice.CPUS_BUSY: Words("No CPU is free (training may use {cpus})."),
    Advice.CPU_TIME_LIMITED: Words(
        "The cgroup's CPU limit throttled training in {throttled_share:share} of its periods."
    ),
    Advice.CPU_USE_NOT_READ: Words(
        "How many CPUs were free was not measured: more workers help only while some are."
    ),
    Advice.CPUS_NEEDED: Words(
        "The workers use {used:cpus} and need {needed:cpus} to keep up; training and other "
        "programs leave {left:cpus} of {cpus}."
    ),
    Advice.CPUS_FREE: Words(
        "With {cpus_left:cpus} unused, they may compete for memory bandwidth, Python's GIL or the "
        "GPU."
    ),
    Advice.CPUS_AND_LOCK_FREE: Words(
        "With {cpus_left:cpus} unused, and no thread that holds Python's GIL for long, they may "
        "compete for memory bandwidth or the GPU."
    ),
    Advice.WORKERS_NEEDED: Words(
        "Keeping up takes {workers} workers; training and other programs leave {cpus_left:cpus} of "
        "{cpus}."
    ),
    Advice.WORKERS_MOSTLY_WAIT: Words(
        "The {workers} workers use only {used:cpus} in all. What they wait for was not measured: "
        "storage or the network, where more workers help, or a lock or the training process, where "
        "they do not."
    ),
    Advice.NO_CPU_FOR_WORKER: Words(
        "No CPU is free for it: it helps only while the step or loading waits for something."
    ),
    Advice.RECEIVING_LIMITS: Words(
        "The training process spends {receiving_ns:duration} of CPU time to receive, unpickle and "
        "pin a batch, which takes the loader alone {loader_only_ns:duration}. Send tensors instead "
        "of NumPy arrays or objects, fewer and larger ones, and fewer bytes.",
        short="fewer and larger tensors, fewer bytes",
    ),
    Advice.CHEAPER_OR_CPUS: Words(
        "Make decoding and transforms cheaper, or give the training more CPUs.",
        short="make the loader {required:speedup} faster",
    ),
    Advice.CHEAPER_LOADING: Words(
        "Make decoding and transforms cheaper.", short="make loading cheaper"
    ),
    Advice.CHEAPER_ALSO: Words("Also make decoding and transforms cheaper."),
    Advice.CHEAPER_INSTEAD: Words("Or make decoding and transforms cheaper."),
    Advice.CHEAPER_ON_DEVICE: Words(
        "Make decoding and transforms cheaper, move them to the GPU, or give the training more "
        "CPUs.",
        short="cheaper transforms or more CPUs",
    ),
    Advice.LIGHTER_LOADING: Words(
        "Use cheaper transforms, fewer threads and fewer copies.",
        short="cheaper transforms and copies",
    ),
    Advice.MEASURE_QUIET: Words(
        "Measure again while nothing else runs, unless training always shares the machine.",
        short="measure on a quiet machine",
    ),
    Advice.RAISE_PREFETCH_DEPTH: Words(
        "Raise {setting} so that {proposed} batches are ready instead of {present}, and measure.",
        short="raise {setting} to keep {proposed} ready",
    ),
    Advice.PREFETCH_MORE: Words(
        "Prefetch more batches and measure.", short="prefetch more batches"
    ),
    Advice.HIDES_STALL: Words(
        "That hides up to {hidden_ns:duration} more of a stall; the longest wait was "
        "{longest_wait_ns:duration}."
    ),
    Advice.HIDES_PART_OF_STALL: Words(
        "That hides up to {hidden_ns:duration} more of a stall, but the longest wait was "
        "{longest_wait_ns:duration}: also find out what makes the slowest batches slow."
    ),
    Advice.HIDES_QUEUE_LENGTH: Words(
        "If the loader otherwise keeps up, that hides stalls for as long as the queue lasts."
    ),
    Advice.CUT_BYTES: Words(
        "A deeper prefetch will not help. The batches are so large that copying them between "
        "processes may take that long: try tensors instead of NumPy arrays, fewer bytes (integers, "
        "converted to floats on the GPU), or threads, which copy nothing.",
        short="fewer bytes, or tensors for arrays",
    ),
    Advice.FEWER_TENSORS: Words(
        "A deeper prefetch will not help. The cause was not measured: passing a batch between "
        "processes (each tensor, objects that are unpickled), or a slow sampler. Try fewer and "
        "larger tensors in a batch, and measure.",
        short="fewer and larger tensors",
    ),
    Advice.MAYBE_PINNING: Words("It may also be pinning."),
    Advice.ALTERNATE: Words(
        "Measure with mode='alternate', which serves every batch once and times the loader alone.",
        short="measure with mode='alternate'",
    ),
    Advice.FIND_SLOW_BATCHES: Words(
        "Find out what makes these batches slow to load: large files, a shard boundary, a cold "
        "cache, retries.",
        short="find what slows a few batches",
    ),
    Advice.FIND_PERIOD: Words(
        "Find out what the loader does every {period:,} batches, such as opening a shard.",
        short="find what happens every {period:,} batches",
    ),
    Advice.FIND_SLOW_WORKER: Words(
        "The stalls come every {period:,} batches, a multiple of the {workers} workers: find out "
        "what one worker does that the others do not.",
        short="find what slows one worker",
    ),
    Advice.FIND_SLOW_STEPS: Words(
        "Find out what slows these steps down: a checkpoint, a validation, Python's garbage "
        "collection, another program.",
        short="find what slows a few steps",
    ),
    Advice.FIND_LOADER_GROWTH: Words(
        "The waits grow: look for a loader that does more with every batch (a list or cache that "
        "it searches, files that it never closes), and for a disk or network that slows down once "
        "a cache or burst allowance is used up.",
        short="find what grows in the loader",
    ),
    Advice.FIND_STEP_GROWTH: Words(
        "The steps grow: look for losses or outputs that are kept with their autograd graph, a "
        "metric over all batches so far, and a CPU or GPU that throttles from heat.",
        short="find what grows in the step",
    ),
    Advice.FIND_SLOWDOWN: Words(
        "Look for other work on the machine, CPUs that throttle from heat, and growing memory.",
        short="find what slowed the machine",
    ),
    Advice.WARM_UP_CACHE: Words(
        "A page cache that fills makes reading faster: run an epoch before the one that you "
        "measure. Or other work on the machine ended.",
        short="run an epoch before measuring",
    ),
    Advice.CHEAPER_FIRST_BATCH: Words(
        "Most of it is the first batch, which takes one worker {batch_ns:duration}: make batches "
        "cheaper or smaller, or epochs longer.",
        short="longer epochs, smaller batches",
    ),
    Advice.WORKER_START_AT_MOST: Words("Starting workers takes at most {start_ns:duration} of it."),
    Advice.CHEAPER_EPOCH_START: Words(
        "The workers stay alive between epochs, so it is what they do for the first batch: filling "
        "a shuffle buffer, opening files, listing shards. Make that cheaper, or epochs longer.",
        short="longer epochs, cheaper start",
    ),
    Advice.TRY_PERSISTENT_WORKERS: Words(
        "Either starting workers takes that long, or what the dataset does first, such as filling "
        "a shuffle buffer. Try {setting}={proposed} and compare this wait: it ends only the "
        "former. Or make epochs longer.",
        short="try {setting}={proposed}",
    ),
    Advice.KEEP_WORKERS: Words(
        "Pass {setting}={proposed}: workers then start once, not in each epoch.",
        short="set {setting}={proposed}",
    ),
    Advice.FIND_EPOCH_START: Words(
        "The cause was not measured: see what the loader does for the first batch of each epoch "
        "(opening files, listing shards, filling a shuffle buffer), do it only once, or make "
        "epochs longer.",
        short="longer epochs, cheaper start",
    ),
    Advice.FASTER_START: Words(
        "Look at what happens before the first batch: listing files, building an index, filling a "
        "shuffle buffer, imports in spawned workers. Save an index or file list to disk.",
        short="cache file lists and indexes",
    ),
    GrowthAdvice.DROP_KEPT_TENSORS: Words(
        GROWTH[GrowthAdvice.DROP_KEPT_TENSORS], short="find what keeps losses or batches"
    ),
    GrowthAdvice.AVOID_COPY_ON_WRITE: Words(
        GROWTH[GrowthAdvice.AVOID_COPY_ON_WRITE], short="keep dataset lists in arrays"
    ),
    GrowthAdvice.BOUND_WORKER_CACHES: Words(
        GROWTH[GrowthAdvice.BOUND_WORKER_CACHES], short="find what the dataset keeps"
    ),
    Advice.MOSTLY_IN: Words("Most of it is in {place:code}."),
    Advice.LOOK_AT: Words("Workers were seen most often in {place:code}."),
    Advice.CALL_AFTER: Words(
        "{name:code} handles {elements:number} numbers per sample (pixels times channels), and "
        "{smaller:code}, which comes later, leaves {left:number}: call {name:code} after "
        "{smaller:code}.",
        short="call {name:name} after {smaller:name}",
    ),
    Advice.PACK_DATASET: Words(
        "Hold the dataset in NumPy arrays or tensors (texts as packed bytes with an array of "
        "offsets) in place of lists, tuples and dicts. Where garbage collection touches the "
        "objects, gc.freeze() before workers start keeps it away. spawn is no cure: it copies all "
        "of the dataset at once.",
        short="dataset in NumPy arrays, not objects",
    ),
    Advice.STORE_UNCOMPRESSED: Words(
        "Do not unpack an archive for each sample: store arrays uncompressed, as .npy files that "
        "np.load(path, mmap_mode='r') maps, or compressed by a fast codec (zstd, lz4).",
        short="uncompressed .npy, mapped",
    ),
    Advice.COLUMNS_AS_ARRAYS: Words(
        "Take the columns out of the table as NumPy arrays or tensors once, in __init__ "
        "(frame['column'].to_numpy()), and index these: to select one row of a DataFrame costs as "
        "much as thousands of elements of an array.",
        short="columns as arrays, in __init__",
    ),
    Advice.KEEP_ARRAYS: Words(
        "Do not build tensors from lists or dicts of Python numbers: keep the data as one NumPy "
        "array or tensor, and take torch.from_numpy(array[index]) of it.",
        short="torch.from_numpy of an array",
    ),
    Advice.PARSE_ONCE: Words(
        "Parse the text once, before training or in __init__, and store what is used of it as "
        "arrays.",
        short="parse once, store arrays",
    ),
    Advice.SMALLER_ROW_GROUPS: Words(
        "A row group is read and decoded whole, whichever rows are used: read rows in the order of "
        "the file and keep the last row group, rewrite the file with row groups as small as a "
        "batch, or store rows that are read in random order as arrays (.npy, Arrow IPC).",
        short="rows in order, or smaller row groups",
    ),
    Advice.CHUNK_BY_SAMPLE: Words(
        "A chunk is read and unpacked whole, however little of it is used: store one sample in a "
        "chunk, uncompressed or by a fast codec (lzf, lz4), or read the samples of a batch at once "
        "(__getitems__).",
        short="one sample in a chunk",
    ),
    Advice.OPEN_ONCE: Words(
        "Open the file once in each worker, at its first sample, and keep it: its index is read "
        "whenever it is opened.",
        short="open files once in each worker",
    ),
    Advice.READ_WHAT_IS_USED: Words(
        "Read only what is used: split large files, map them (np.load(path, mmap_mode='r'), "
        "np.memmap), seek to a sample by an index, or keep what was read for the samples after it.",
        short="read only what is used",
    ),
    Advice.CHEAPER_NAMED: Words(
        "Make {name:code} cheaper: smaller inputs, a faster library, once for the whole batch or "
        "on the GPU, or once and for all before training.",
        short="make {name:name} cheaper",
        if_twice="make {name:name} twice as fast",
    ),
    Advice.CHEAPER_COLLATE: Words(
        "Make collate_fn cheaper: stack tensors once with torch.stack, pad with one allocation, "
        "and move loops into __getitem__.",
        short="make collate_fn cheaper",
        if_twice="make collate_fn twice as fast",
    ),
    Advice.TOKENISE_ONCE: Words(
        "Tokenise once, before training, and keep the token ids as arrays: in a file that workers "
        "map into memory, or by dataset.map(..., batched=True). Texts that differ in each epoch "
        "are tokenised faster a batch at a time, in collate_fn.",
        short="tokenise once, before training",
    ),
    Advice.SEND_TENSORS: Words(
        "Return torch tensors from the workers (torch.from_numpy in collate_fn): they go through "
        "shared memory, not through the pipe.",
        short="return tensors, not arrays",
    ),
    Advice.SEND_FEWER: Words(
        "Send fewer and larger tensors: stack those of a kind in collate_fn, and leave out what "
        "training does not use. More workers will not help.",
        short="fewer and larger tensors",
        if_twice="fewer, larger tensors, if twice as fast",
    ),
    Advice.SEND_LESS_OFTEN: Words(
        "Larger batches are passed less often, and "
        "torch.multiprocessing.set_sharing_strategy('file_system') takes about half the time "
        "to pass them. More workers will not help.",
        short="larger batches, or sharing by file_system",
        if_twice="share by file_system, if twice as fast",
    ),
    Advice.SHARE_BY_FILE: Words(
        "Call torch.multiprocessing.set_sharing_strategy('file_system') at the start of the "
        "script: then tensors are passed by name, and training does not wait for the worker.",
        short="share tensors by file_system",
    ),
    Advice.CHEAPER_SAMPLER: Words(
        "Make the sampler cheaper: draw all indices of an epoch at once as a list, without a loop "
        "over weights or lengths for each batch. More workers will not help.",
        short="make the sampler cheaper",
        if_twice="make the sampler twice as fast",
    ),
    Advice.OUT_OF_ORDER: Words(
        "Pass in_order=False (torch 2.6 or later) if training may see batches in another order.",
        short="pass in_order=False",
    ),
    Advice.FIX_SAMPLES: Words(
        "Look at the samples with index {indices:name}, which take up to {longest_ns:duration}: "
        "make them smaller, or leave them out.",
        short="look at samples {indices:name}",
    ),
    Advice.SHORTER_LOCK: Words(
        "Do not share the lock: open the file or database once in each worker, or hold it for a "
        "shorter time. More workers will not help.",
        short="do not share the lock",
    ),
    Advice.READ_LESS: Words(
        "Read less, or faster: smaller or compressed files, few large files read in order, a "
        "faster disk, or enough memory to keep the data in the page cache.",
        short="read less, or from a faster disk",
    ),
    Advice.MORE_REQUESTS_AT_ONCE: Words(
        "Blocked workers need no CPU, so more of them help even beyond the number of CPUs; so do "
        "several requests at once in a sample or batch, and a cache nearby.",
        short="more requests at once",
    ),
    Advice.REQUESTS_AT_ONCE: Words(
        "Ask for the samples of a batch at once, {requests} or more: give the dataset "
        "__getitems__(indices), which reads them in a thread pool of each worker; an iterable "
        "dataset reads ahead in threads.",
        short="{requests} requests at once, in __getitems__",
    ),
    Advice.KEEP_CONNECTION: Words(
        "Keep connections open in each worker, by a session or a pool. New ones for a sample: "
        "{connections:.3g}; each waits for the server before a request can.",
        short="keep connections open, in a session or pool",
    ),
    Advice.CACHE_LOCALLY: Words(
        "Or wait less often: keep what was read on a local disk, or read shards of many samples.",
        short="a local cache, or larger shards",
    ),
    Advice.FETCH_LESS: Words(
        "Fetch fewer bytes: compressed or smaller samples, only the parts that are used, a cache "
        "on a local disk; or store the data nearer. More workers share the same connection.",
        short="fewer bytes, or a local cache",
    ),
    Advice.ONE_THREAD_EACH: Words(
        "Let each worker compute in one thread: torch.set_num_threads(1), OMP_NUM_THREADS=1, "
        "TOKENIZERS_PARALLELISM=false, cv2.setNumThreads(0), in worker_init_fn or before it.",
        short="one thread in each worker",
    ),
    Advice.FEWER_THREADS: Words(
        "Call torch.set_num_threads({threads}) in the training process, or start it with "
        "OMP_NUM_THREADS={threads}, and measure again: the next run shows what else to change.",
        short="torch.set_num_threads({threads})",
    ),
    Advice.FREE_CPUS: Words(
        "Free CPUs: fewer threads in the training process (torch.set_num_threads) or in other "
        "programs. More workers will not help.",
        short="free CPUs: fewer threads",
    ),
    Advice.BALANCE_WORKERS: Words(
        "Find out what this worker does that the others do not: larger samples or shards, another "
        "disk, a busy CPU. Shards of equal size, or in_order=False, balance the workers.",
        short="balance the workers",
    ),
    Advice.MORE_SHARDS: Words(
        "Split the data into at least {workers} shards of equal size, or lower the number of "
        "workers to {busy}: any more only take memory.",
        short="at least {workers} shards",
    ),
    Advice.SHARDS_MADE_BY: Words("To make more shards: {setting}."),
    Advice.EQUAL_SHARDS: Words(
        "Give all {workers} workers as many samples: shards of equal size, and a multiple of "
        "{workers} of them. Many small shards differ less than a few large ones.",
        short="shards of equal size",
    ),
    Advice.SHARDS_LEFT_OVER: Words(
        "{shards:shards} cannot be divided evenly among {workers} workers: some read one more."
    ),
    Advice.DRAW_IN_PARTS: Words(
        "It makes a list of all indices of the dataset, however few are used. Draw with "
        "replacement where that is as good: RandomSampler then draws a few at a time. Or spare the "
        "list, which is about half of it, and yield the permutation in parts: for part in "
        "torch.randperm(n).split(10_000): yield from part.tolist().",
        short="make indices in parts",
    ),
    Advice.DRAW_WEIGHTED_IN_PARTS: Words(
        "It draws the whole epoch at once. Sum up the weights once, and yield a part at a time: "
        "sums = weights.cumsum(0), then torch.searchsorted(sums, sums[-1] * torch.rand(10_000)).",
        short="draw weighted indices in parts",
    ),
    Advice.LIGHTER_SAMPLER: Words(
        "Do in the sampler's constructor what is the same for every epoch, and yield indices as "
        "they are made, or make those of the next epoch in a thread.",
        short="yield indices as they are made",
    ),
    Advice.RAISE_CONCURRENCY: Words(
        "Let {name:name} work on more items at once: raise its {setting}.",
        short="raise {setting} of {name:name}",
    ),
    Advice.RAISE_THREADS: Words(
        "Give the pipeline more threads: raise {setting}.", short="raise {setting}"
    ),
    Advice.CHEAPER_OPERATOR: Words("Make {name:name} cheaper.", short="cheaper {name:name}"),
    Advice.USE_PROCESSES: Words(
        "Load in processes instead of threads (a DataLoader's num_workers, or SPDL's "
        "run_pipeline_in_subprocess).",
        short="processes instead of threads",
    ),
    Advice.RELEASE_LOCK: Words(
        "Load with functions that release the GIL, as compiled code can.",
        short="functions that release the GIL",
    ),
    Advice.LESS_IN_THREADS: Words(
        "Do less with a batch in {threads:name}: convert and collate in the workers, and send few "
        "large tensors, which are not unpickled value by value.",
        short="less work in {threads:name}",
    ),
    Advice.SMALLER_DATASET: Words(
        "Keep the dataset small: hold paths, and open files and memory maps in the worker (a map "
        "that the dataset holds is sent in full); or hold tensors, which are shared. Workers that "
        "are forked are sent nothing; fork is safe only before CUDA or threads are in use.",
        short="keep the dataset small",
    ),
    Advice.WORKER_START_PARTS: Words(
        "A worker takes {worker_ns:duration} to start: {pickling_ns:duration} to pickle "
        "{sent_bytes:size} for it, the dataset and all else that it is sent, "
        "{importing_ns:duration} to start Python and import, and {unpickling_ns:duration} to "
        "unpickle."
    ),
    Advice.WORKERS_START_IN_TURN: Words(
        "The {workers} workers start one after the other, imports included: so much does not fit "
        "into a pipe (64 kB), and no worker is begun before the last one reads."
    ),
    Advice.FEWER_IMPORTS: Words(
        "Import less: whatever the main module does outside of if __name__ == '__main__' is done "
        "in each worker too. By forkserver, multiprocessing.set_forkserver_preload(['torch']) "
        "imports once for all workers.",
        short="import less in the main module",
    ),
    Advice.CHEAPER_INIT: Words(
        "Or make worker_init_fn cheaper.", short="make worker_init_fn cheaper"
    ),
    Advice.SMALLER_BUFFER: Words(
        "Use a smaller shuffle buffer, fill it little by little, or make epochs longer.",
        short="a smaller shuffle buffer",
    ),
    Advice.KEEP_ITERATOR: Words(
        "Keep the iterator: batches = iter(loader) once, then next(batches) at each step.",
        short="keep the iterator between steps",
    ),
    Advice.PIN_MEMORY: Words(
        "Pass {setting}={proposed} and copy with .to(device, non_blocking=True): the copy is then "
        "faster, and nothing waits for it. What that brings is not predicted.",
        short="set {setting}={proposed}",
    ),
    Advice.KEEP_LOADER: Words(
        "Leave the loader as it is: these waits cost nothing.", short="nothing: hidden by GPU work"
    ),
    Advice.PROFILE_STEP: Words(
        "Look at the training step: many small kernels (larger batches, torch.compile and CUDA "
        "graphs help), .item() and print in each step, CPU work between steps. torch.profiler and "
        "Nsight Systems show which.",
        short="profile the step, not the loader",
    ),
    Advice.GROUP_BY_LENGTH: Words(
        "Put sequences of like length into one batch: a batch sampler that sorts windows of some "
        "hundred batches by length, in Hugging Face's Trainer group_by_length=True "
        "(train_sampling_strategy='group_by_length' in transformers 5). Or pack several sequences "
        "into one.",
        short="batches of like length",
    ),
    Advice.PAD_TO_LONGEST: Words(
        "Pad to the longest sequence of each batch, not to a maximum: padding='longest' in place "
        "of padding='max_length', or DataCollatorWithPadding.",
        short="pad to the longest of each batch",
    ),
}
FREE_CPUS_OF_OTHERS = "free CPUs that others use"
RANGE = "{speedup:speedup} [{low:speedup}, {high:speedup}]"


def finding_advice(finding: Finding) -> str:
    """What to change."""
    return " ".join(_advised(change) for change in finding.changes)


def change_in_short(finding: Finding) -> str:
    """What to change, in a few words; `finding_advice` says more."""
    change = _main_change(finding)
    if change is None:
        return "-"
    text = in_short(replace(change, values={**finding.problem.values, **change.values}))
    kept = next((other for other in finding.changes if other.code is Advice.KEEP_WORKERS), None)
    if change.code is Advice.RAISE and kept is not None:  # alone, workers would start in each epoch
        text = ", ".join(filled("{setting}={proposed}", both.values) for both in (change, kept))
    return f"perhaps {text}" if finding.confidence == "possible" else text


def in_short(change: Remark) -> str:
    """What following one advice is, in a few words."""
    values, code = change.values, change.code
    if code is Advice.FREE_CPUS and "others_cpus" in values:
        return FREE_CPUS_OF_OTHERS
    if code is Advice.CHEAPER_OR_CPUS and "required" not in values:
        code = Advice.CHEAPER_LOADING  # how much faster is known only of a loader timed alone
    words = ADVICE[code]
    return filled(("times" in values and words.if_twice) or words.short, values)


def predicted_in_short(finding: Finding) -> str:
    """What training would gain by that change: 1.31x [1.22x, 1.40x]; "" where it is not known."""
    change = _main_change(finding)
    values = {} if change is None else change.values
    if "at_most" in values:
        return filled("at most {at_most:speedup}", values)
    return filled(RANGE, values) if "speedup" in values else ""


def _main_change(finding: Finding) -> Remark | None:
    return next((change for change in finding.changes if ADVICE[change.code].short), None)


def _advised(change: Remark) -> str:
    values, sentences = change.values, [filled(ADVICE[change.code].sentence, change.values)]
    if "speedup" in values:
        condition = " if it took half as long" if "times" in values else ""
        sentences.append(f"Predicted{condition}: training {filled(RANGE, values)} as fast.")
    elif "at_most" in values:
        sentences.append(filled("Predicted: training at most {at_most:speedup} as fast.", values))
    elif "sooner_ns" in values:
        sentences.append(filled("Predicted: at most {sooner_ns:duration} sooner.", values))
    if "others_cpus" in values:
        sentences.append(filled("Other programs use {others_cpus:cpus}.", values))
    return " ".join(sentences)
