"""A finding: what is wrong, the figures that show it, what it costs and what to change.

Findings have codes and numbers; their sentences are in `loadeval.report.wording`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from loadeval.analysis.remark import Remark

Severity = Literal["high", "moderate", "low"]
Confidence = Literal["measured", "likely", "possible"]
Outcome = Literal["found", "nothing found", "not measured"]


class Rule(Enum):
    """What a run is checked for, by its short name, in the order of asking."""

    CONFINED = "confined workers"
    CAPACITY = "capacity"
    ZERO_WORKERS = "zero workers"
    SHALLOW_QUEUE = "shallow queue"
    PER_BATCH_COST = "per-batch cost"
    WAITING = "waiting"
    SLOW_TRANSFORM = "slow transform"
    COPIED_PAGES = "copied pages"
    DATA_FORMAT = "data format"
    SLOW_FETCH = "slow fetch"
    SLOW_COLLATE = "slow collate"
    TOKENISING = "tokenising"
    TRANSFER = "transfer"
    SLOW_SAMPLER = "slow sampler"
    PINNING = "pinning"
    HEAD_OF_LINE = "head-of-line blocking"
    SLOW_SAMPLES = "slow samples"
    LOCK = "lock"
    DISK = "disk"
    STORAGE_LATENCY = "storage latency"
    SLOW_WORKER = "slow worker"
    FEW_SHARDS = "few shards"
    UNEVEN_SHARDS = "uneven shards"
    SLOW_OPERATOR = "slow operator"
    PYTHON_LOCK = "Python lock"
    CONTENTION = "contention"
    OVERSUBSCRIPTION = "oversubscription"
    SHARED_MACHINE = "shared machine"
    STALLS = "stalls"
    EPOCH_BOUNDARIES = "epoch boundaries"
    WORKER_START = "worker start"
    SHUFFLE_BUFFER = "shuffle buffer"
    SAMPLER_START = "sampler start"
    LOADER_RECREATED = "loader re-created"
    SLOW_FIRST_BATCH = "slow first batch"
    FALLING_THROUGHPUT = "falling throughput"
    DRIFT = "drift"
    OUTLIERS = "outliers"
    PROCESS_MEMORY = "process memory"
    WORKER_MEMORY = "worker memory"
    UNPINNED_MEMORY = "unpinned memory"
    HIDDEN_WAITS = "hidden waits"
    IDLE_GPU = "idle GPU"
    NOT_REPRESENTATIVE = "not representative"
    PADDING = "padding"


class Problem(Enum):
    """What is wrong."""

    WORKERS_CONFINED = "workers_confined"
    PROCESS_CONFINED = "process_confined"
    STARTED_CONFINED = "started_confined"
    WORKER_CONFINED = "worker_confined"
    LOADER_TOO_SLOW = "loader_too_slow"
    NOTHING_LOADED_AHEAD = "nothing_loaded_ahead"
    QUEUE_RUNS_EMPTY = "queue_runs_empty"
    SAME_WAIT_FOR_EVERY_BATCH = "same_wait_for_every_batch"
    LOSS_UNEXPLAINED = "loss_unexplained"
    WAIT_UNEXPLAINED = "wait_unexplained"
    TRANSFORM_SLOW = "transform_slow"
    PAGES_COPIED = "pages_copied"
    FORMAT_SLOW = "format_slow"
    MORE_READ_THAN_USED = "more_read_than_used"
    CODE_SLOW = "code_slow"
    COLLATE_SLOW = "collate_slow"
    TOKENISES = "tokenises"
    TOKENISES_AGAIN = "tokenises_again"
    TRANSFER_BY_PIPE = "transfer_by_pipe"
    TRANSFER_OF_MANY = "transfer_of_many"
    TRANSFER_OF_FEW = "transfer_of_few"
    TRANSFER_WAITS_FOR_LOCK = "transfer_waits_for_lock"
    SAMPLER_SLOW = "sampler_slow"
    PINNING_SLOW = "pinning_slow"
    FINISHED_BATCHES_WAIT = "finished_batches_wait"
    SAMPLES_SLOW = "samples_slow"
    WORKERS_WAIT_FOR_LOCK = "workers_wait_for_lock"
    READ_FROM_DISK = "read_from_disk"
    WORKERS_BLOCKED = "workers_blocked"
    THREADS_AWAITED = "threads_awaited"
    NETWORK_LATENCY = "network_latency"
    NETWORK_BANDWIDTH = "network_bandwidth"
    STEP_SPINS = "step_spins"
    WORKERS_WAIT_FOR_CPU = "workers_wait_for_cpu"
    WORKER_SLOW = "worker_slow"
    WORKERS_HAVE_NO_SHARD = "workers_have_no_shard"
    FEWER_SHARDS_THAN_WORKERS = "fewer_shards_than_workers"
    WORKERS_END_EARLY = "workers_end_early"
    OPERATOR_BUSY = "operator_busy"
    THREADS_BUSY = "threads_busy"
    OPERATOR_STARVES_NEXT = "operator_starves_next"
    PYTHON_LOCK_HELD = "python_lock_held"
    PYTHON_LOCK_OFTEN_TAKEN = "python_lock_often_taken"
    STEPS_SLOWER = "steps_slower"
    OTHERS_USE_CPUS = "others_use_cpus"
    FEW_BATCHES_STALL = "few_batches_stall"
    EPOCHS_START_SLOWLY = "epochs_start_slowly"
    WORKERS_START_SLOWLY = "workers_start_slowly"
    WORKERS_INITIALISE_SLOWLY = "workers_initialise_slowly"
    FIRST_SAMPLE_SLOW = "first_sample_slow"
    FIRST_INDEX_SLOW = "first_index_slow"
    LOADER_MADE_ANEW = "loader_made_anew"
    FIRST_BATCH_SLOW = "first_batch_slow"
    FIRST_BATCH_SLOW_IN_RUN = "first_batch_slow_in_run"
    ITERATIONS_LENGTHEN = "iterations_lengthen"
    SECOND_HALF_SLOWER = "second_half_slower"
    SECOND_HALF_FASTER = "second_half_faster"
    FEW_BATCHES_SLOW = "few_batches_slow"
    MEMORY_GROWS = "memory_grows"
    WORKERS_KEEP_MORE = "workers_keep_more"
    MORE_WORKERS_THAN_CPUS = "more_workers_than_cpus"
    BATCHES_UNPINNED = "batches_unpinned"
    WAITS_HIDDEN = "waits_hidden"
    GPU_IDLE = "gpu_idle"
    STEP_DEPENDS_ON_BATCH = "step_depends_on_batch"
    TOKENS_PADDED = "tokens_padded"
    PADDED_TO_MAXIMUM = "padded_to_maximum"


class Advice(Enum):
    """What to change, or what that depends on."""

    ALLOW_IN_WORKERS = "allow_in_workers"
    ALLOW_AFTER_IMPORTS = "allow_after_imports"
    START_WITH_CPUS = "start_with_cpus"
    LOOK_AT_INIT = "look_at_init"
    UNSET_BINDING = "unset_binding"
    RAISE = "raise"
    ADD_WORKERS_OR_THREADS = "add_workers_or_threads"
    NO_MORE_WORKERS = "no_more_workers"
    NO_WORKERS_HELP = "no_workers_help"
    TRY_WORKERS = "try_workers"
    LOAD_IN_TRAINING = "load_in_training"
    LOAD_IN_BACKGROUND = "load_in_background"
    LOADING_EVICTS_CACHES = "loading_evicts_caches"
    LOWER_WORKERS = "lower_workers"
    LOWER = "lower"
    CPUS_BUSY = "cpus_busy"
    CPU_TIME_LIMITED = "cpu_time_limited"
    CPU_USE_NOT_READ = "cpu_use_not_read"
    CPUS_NEEDED = "cpus_needed"
    CPUS_FREE = "cpus_free"
    CPUS_AND_LOCK_FREE = "cpus_and_lock_free"
    WORKERS_NEEDED = "workers_needed"
    WORKERS_MOSTLY_WAIT = "workers_mostly_wait"
    NO_CPU_FOR_WORKER = "no_cpu_for_worker"
    RECEIVING_LIMITS = "receiving_limits"
    CHEAPER_OR_CPUS = "cheaper_or_cpus"
    CHEAPER_LOADING = "cheaper_loading"
    CHEAPER_ALSO = "cheaper_also"
    CHEAPER_INSTEAD = "cheaper_instead"
    CHEAPER_ON_DEVICE = "cheaper_on_device"
    LIGHTER_LOADING = "lighter_loading"
    MEASURE_QUIET = "measure_quiet"
    RAISE_PREFETCH_DEPTH = "raise_prefetch_depth"
    PREFETCH_MORE = "prefetch_more"
    HIDES_STALL = "hides_stall"
    HIDES_PART_OF_STALL = "hides_part_of_stall"
    HIDES_QUEUE_LENGTH = "hides_queue_length"
    CUT_BYTES = "cut_bytes"
    FEWER_TENSORS = "fewer_tensors"
    MAYBE_PINNING = "maybe_pinning"
    ALTERNATE = "alternate"
    FIND_SLOW_BATCHES = "find_slow_batches"
    FIND_PERIOD = "find_period"
    FIND_SLOW_WORKER = "find_slow_worker"
    FIND_SLOW_STEPS = "find_slow_steps"
    FIND_LOADER_GROWTH = "find_loader_growth"
    FIND_STEP_GROWTH = "find_step_growth"
    FIND_SLOWDOWN = "find_slowdown"
    WARM_UP_CACHE = "warm_up_cache"
    CHEAPER_FIRST_BATCH = "cheaper_first_batch"
    WORKER_START_AT_MOST = "worker_start_at_most"
    CHEAPER_EPOCH_START = "cheaper_epoch_start"
    TRY_PERSISTENT_WORKERS = "try_persistent_workers"
    KEEP_WORKERS = "keep_workers"
    FIND_EPOCH_START = "find_epoch_start"
    FASTER_START = "faster_start"
    LOOK_AT = "look_at"
    MOSTLY_IN = "mostly_in"
    CALL_AFTER = "call_after"
    PACK_DATASET = "pack_dataset"
    STORE_UNCOMPRESSED = "store_uncompressed"
    COLUMNS_AS_ARRAYS = "columns_as_arrays"
    KEEP_ARRAYS = "keep_arrays"
    PARSE_ONCE = "parse_once"
    SMALLER_ROW_GROUPS = "smaller_row_groups"
    CHUNK_BY_SAMPLE = "chunk_by_sample"
    OPEN_ONCE = "open_once"
    READ_WHAT_IS_USED = "read_what_is_used"
    CHEAPER_NAMED = "cheaper_named"
    CHEAPER_COLLATE = "cheaper_collate"
    TOKENISE_ONCE = "tokenise_once"
    SEND_TENSORS = "send_tensors"
    SEND_FEWER = "send_fewer"
    SEND_LESS_OFTEN = "send_less_often"
    SHARE_BY_FILE = "share_by_file"
    CHEAPER_SAMPLER = "cheaper_sampler"
    OUT_OF_ORDER = "out_of_order"
    FIX_SAMPLES = "fix_samples"
    SHORTER_LOCK = "shorter_lock"
    READ_LESS = "read_less"
    MORE_REQUESTS_AT_ONCE = "more_requests_at_once"
    REQUESTS_AT_ONCE = "requests_at_once"
    KEEP_CONNECTION = "keep_connection"
    CACHE_LOCALLY = "cache_locally"
    FETCH_LESS = "fetch_less"
    ONE_THREAD_EACH = "one_thread_each"
    FREE_CPUS = "free_cpus"
    FEWER_THREADS = "fewer_threads"
    BALANCE_WORKERS = "balance_workers"
    MORE_SHARDS = "more_shards"
    SHARDS_MADE_BY = "shards_made_by"
    EQUAL_SHARDS = "equal_shards"
    SHARDS_LEFT_OVER = "shards_left_over"
    RAISE_CONCURRENCY = "raise_concurrency"
    RAISE_THREADS = "raise_threads"
    CHEAPER_OPERATOR = "cheaper_operator"
    USE_PROCESSES = "use_processes"
    RELEASE_LOCK = "release_lock"
    LESS_IN_THREADS = "less_in_threads"
    WORKER_START_PARTS = "worker_start_parts"
    WORKERS_START_IN_TURN = "workers_start_in_turn"
    SMALLER_DATASET = "smaller_dataset"
    FEWER_IMPORTS = "fewer_imports"
    CHEAPER_INIT = "cheaper_init"
    SMALLER_BUFFER = "smaller_buffer"
    DRAW_IN_PARTS = "draw_in_parts"
    DRAW_WEIGHTED_IN_PARTS = "draw_weighted_in_parts"
    LIGHTER_SAMPLER = "lighter_sampler"
    KEEP_ITERATOR = "keep_iterator"
    PIN_MEMORY = "pin_memory"
    KEEP_LOADER = "keep_loader"
    PROFILE_STEP = "profile_step"
    GROUP_BY_LENGTH = "group_by_length"
    PAD_TO_LONGEST = "pad_to_longest"


class Unknown(Enum):
    """Why a rule could not tell."""

    NO_IDEAL = "no_ideal"
    NOT_REPLAYED = "not_replayed"
    LOADED_NOTHING = "loaded_nothing"
    LOADER_ALONE_NOT_TIMED = "loader_alone_not_timed"
    NO_STEADY_BATCH = "no_steady_batch"
    TOO_FEW_BATCHES = "too_few_batches"
    PREFETCH_UNKNOWN = "prefetch_unknown"
    WORKERS_UNKNOWN = "workers_unknown"
    READ_IN_THREAD = "read_in_thread"
    CPUS_UNKNOWN = "cpus_unknown"
    CPU_TIME_NOT_READ = "cpu_time_not_read"
    AFFINITY_NOT_READ = "affinity_not_read"
    NOT_LOOKED_INTO = "not_looked_into"
    NOT_FORKED = "not_forked"
    WORKER_MEMORY_NOT_READ = "worker_memory_not_read"
    CALLS_NOT_SEEN = "calls_not_seen"
    LOCK_NOT_READ = "lock_not_read"
    FEW_LOCK_READINGS = "few_lock_readings"
    NO_EPOCH_START = "no_epoch_start"
    ONE_EPOCH = "one_epoch"
    EPOCH_LENGTH_UNKNOWN = "epoch_length_unknown"
    NO_CUDA = "no_cuda"
    PINNING_UNKNOWN = "pinning_unknown"
    GPU_NOT_READ = "gpu_not_read"
    NO_PADDING_TOLD = "no_padding_told"


class Caveat(Enum):
    """Why a finding is only possible."""

    TOO_FEW_PAIRS = "too_few_pairs"
    RUNS_TOO_SHORT = "runs_too_short"


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure that a finding rests on.

    `unit` is "ns", "bytes", "share" (0 to 1), "x" (a factor), "rank correlation" (-1 to 1), or
    what is counted: "batches", "CPUs", "workers" and so on. `low` and `high` bound its 95%
    interval where it has one.
    """

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A batch that shows what was found: number `batch` of `epoch`, both from 0.

    `start_ns`, since the run's start, is when it was asked for, `end_ns` when its step ended;
    None where that is not known.
    """

    epoch: int
    batch: int
    start_ns: int | None
    end_ns: int | None
    wait_ns: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong; `loadeval.describe` tells it in sentences.

    `problem` is what is wrong, and `changes` what to change, each a code with its numbers.
    `cost_share` is the share of the training time that it costs, 0 to 1, no part of which is in
    the cost of another finding; None where it is not known, or where others have it all.
    `confidence` is "measured" where what is wrong was, "likely" where it is inferred from figures
    that leave little else, and "possible" where other causes would look the same, or the run was
    too short to be sure, as `caveat` then says.
    """

    rule: Rule
    severity: Severity
    confidence: Confidence
    problem: Remark
    changes: tuple[Remark, ...]
    evidence: tuple[Fact, ...]
    cost_share: float | None = None
    places: tuple[Place, ...] = ()
    caveat: Remark | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A rule that was asked, and what came of it; `reason` is why it could not tell."""

    rule: Rule
    outcome: Outcome
    reason: Remark | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings, the costliest first, and everything that was checked."""

    findings: tuple[Finding, ...]
    checks: tuple[Check, ...]


def facts(*figures: tuple[str, float | None, str]) -> tuple[Fact, ...]:
    """The figures that are known, each a name, a value and a unit."""
    return tuple(Fact(name, value, unit) for name, value, unit in figures if value is not None)
