"""Findings in words: what is wrong, with its figures, and why a rule could not be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.memory import GrowthReason
from loadeval.analysis.rules.finding import Caveat, Finding, Problem, Rule, Unknown
from loadeval.analysis.stats import Estimate
from loadeval.analysis.whatif import Prediction
from loadeval.report.formatting import duration, estimated, filled, number, share, size, speedup
from loadeval.report.wording.advice import finding_advice
from loadeval.report.wording.runs import GROWTH
from loadeval.report.wording.verdict import (
    COMPETES,
    HIDDEN,
    LOADED_NOTHING,
    NO_CUDA_DEVICE,
    NO_STEADY_BATCH,
    UNMEASURED,
)
from loadeval.report.wording.whatif import prediction_in_words

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
    Problem.TRANSFER_WAITS_FOR_LOCK: (
        "Passing a batch from its worker to training takes {transfer_ns:duration}. Most of it is "
        "waiting for Python's lock (the GIL) in the worker, which keeps it while it loads the next "
        "batch: each tensor's file descriptor is sent by a thread of the worker."
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
        "Loading is blocked {share:share} of its time."
    ),
    Problem.WORKERS_BLOCKED: (
        "Loading is blocked {share:share} of its time, neither on a CPU nor waiting for one, at "
        "{place:code}: storage, the network or another process is slow to answer."
    ),
    Problem.STEP_SPINS: (
        "The training step computes with {threads} threads beside {workers} workers, on {cpus} "
        "CPUs. Its threads wait for each other by computing (they spin), so it takes far more CPU "
        "time than with ideal loading."
    ),
    Problem.WORKERS_WAIT_FOR_CPU: (
        "Loading is ready to run but waits for a CPU {share:share} of its time: more threads "
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
    Unknown.READ_IN_THREAD: (
        "the loader is read in another thread than the main one, which may load ahead"
    ),
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
    Unknown.GPU_NOT_READ: "no GPU reading covers ideal loading alone",
}

MOST_PLACES = 5
IN_WORDS: dict[str, Callable[[float], str]] = {
    "ns": duration,
    "bytes": size,
    "share": share,
    "x": speedup,
}
"""A figure as text, by its unit; in other units it is the number of what is counted."""


def describe(finding: Finding | Check | Prediction) -> str:
    """What is wrong and what to change; of a check its question, and why it was not measured.

    Of a prediction, what is predicted, what limits it, and what is assumed.
    """
    if isinstance(finding, Prediction):
        return prediction_in_words(finding)
    if isinstance(finding, Finding):
        return f"{finding_sentence(finding)} {finding_advice(finding)}"
    question, reason = QUESTIONS[finding.rule], why_not_checked(finding)
    return f"{question} Not measured: {reason}." if reason else question


def source_in_words(finding: Finding) -> str:
    """What the finding rests on."""
    if finding.problem.code is Problem.STEP_SPINS:
        return "CPU times of the training process, read in both arms"
    return SOURCES[finding.rule]


def finding_sentence(finding: Finding) -> str:
    """What is wrong."""
    wrong = _filled(PROBLEMS, finding.problem)
    return f"{wrong} {_filled(CAVEATS, finding.caveat)}" if finding.caveat else wrong


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


def _filled(templates: dict[Enum, str], remark: Remark) -> str:
    return filled(templates[remark.code], remark.values)
