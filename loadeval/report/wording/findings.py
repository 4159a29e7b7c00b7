"""Findings in words: what is wrong, with its figures, and why a rule could not be checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis.estimate.memory import GrowthReason
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.predict.prediction import Prediction
from loadeval.analysis.rules.finding import Caveat, Finding, Problem, Rule, Unknown
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
    from collections.abc import Callable, Mapping, Sequence
    from enum import Enum

    from loadeval.analysis.remark import Remark
    from loadeval.analysis.rules.finding import Check, Diagnosis, Fact, Place


@dataclass(frozen=True, slots=True)
class RuleWords:
    """What a rule asks, where it and its bounds are from, and the sentences of its problems."""

    question: str
    source: str
    problems: Mapping[Problem, str]


def _words(question: str, source: str, **problems: str) -> RuleWords:
    """The words of a rule, with a sentence for each of its problems by code."""
    return RuleWords(question, source, {Problem(code): text for code, text in problems.items()})


BOUNDS = "TensorFlow's input-pipeline analyzer, 5% and 20% of the time"
TIMES = "times of real, ideal and loader-only batches"
STAGE_TIMES = "times of the stages inside the loader, and a simulation of it without this"
KERNEL = "on-CPU, run-queue and blocked time of the workers, as the kernel counts it"
EPOCH_STARTS = "first waits of the epochs, compared with a whole epoch in steady state"
ONCE = "That happens once: it matters in short runs."
MEMORY_GROWS = (
    "The memory of the {subject} grows by {bytes_per_hour:size} an hour, "
    "{share_per_hour:share} of the available {limit_bytes:size}."
)
PADDED = "{share:share} [{low:share}, {high:share}] of the tokens are padding"
WORDS = {
    Rule.CONFINED: _words(
        "Are workers kept from CPUs that there are?",
        "the CPUs that the system lets each process run on (its affinity), and a simulation of the "
        "loader on all of them",
        workers_confined="{workers} workers share {cpus:cpus} and may not use the other "
        "{more:cpus}; the training process may use {own:cpus}. Something set the affinity of the "
        "workers: worker_init_fn, or a library that they import.",
        process_confined="{workers} workers share {cpus:cpus} and may not use the other "
        "{more:cpus}. Something set the affinity of the training process after it started, such as "
        "a library at its import, and workers inherit that.",
        started_confined="{workers} workers and training share {cpus:cpus} and may not use the "
        "other {more:cpus}. It seems to have been so from the start, and may be intended.",
        worker_confined="Worker {worker} takes {batch_ns:duration} a batch, the others "
        "{others_ns:duration}: it waits for a CPU. One of the workers may use only {cpus:cpus}, "
        "while the others may use {others_cpus:cpus}. Something set its affinity: worker_init_fn, "
        "or a library.",
    ),
    Rule.CAPACITY: _words(
        "Is the loader too slow even on its own?",
        f"{TIMES}; bounds of {BOUNDS}",
        loader_too_slow="The loader is too slow even on its own: it must be {required:speedup} "
        "faster to keep up.",
    ),
    Rule.ZERO_WORKERS: _words(
        "Is nothing loaded ahead?",
        f"PyTorch's documentation of multi-process data loading; bounds of {BOUNDS}",
        nothing_loaded_ahead="Nothing is loaded ahead: training spends {wait_share:share} of its "
        "time waiting while each batch is loaded.",
    ),
    Rule.SHALLOW_QUEUE: _words(
        "Does the prefetch queue run empty?",
        f"{TIMES}, and stalls",
        queue_runs_empty="The loader alone is fast enough (a batch takes {required:share} of an "
        "ideal iteration), but training waits {wait_share:share} of its time: the queue runs empty "
        "now and then.",
    ),
    Rule.PER_BATCH_COST: _words(
        "Is the wait about the same for every batch?",
        "equal waits, and how fast batches pass between processes in torch 2.13",
        same_wait_for_every_batch="The loader alone is fast enough, but training waits about "
        "equally long for every batch, typically {p50_wait_ns:duration}: each batch has a fixed "
        "cost, and the queue is not empty.",
    ),
    Rule.WAITING: _words(
        "Is time lost whose cause was not measured?",
        f"bounds of {BOUNDS}",
        loss_unexplained="In the steady state {lost_share:share} of the time is lost to data "
        "loading, {wait_share:share} in waiting. Whether the loader is too slow or its queue too "
        "shallow was not measured.",
        wait_unexplained="Training waits for batches {wait_share:share} of its time. What it would "
        "gain without these waits was not measured: it may be less or more.",
    ),
    Rule.SLOW_TRANSFORM: _words(
        "Does one transform take most of loading a batch?",
        STAGE_TIMES,
        transform_slow="{name:name} takes {share:share} of loading a batch: {call_ns:duration} a "
        "call, {calls:,g} calls a batch.",
    ),
    Rule.COPIED_PAGES: _words(
        "Do forked workers copy the memory that they read?",
        "page faults and kernel time of the workers while they load, memory that they share",
        pages_copied="Each worker has copied {copied_bytes:size} of the {shared_bytes:size} that "
        "it shared with the training process, {all_bytes:size} in all workers, which takes "
        "{share:share} of the CPU time of loading: reading a Python object changes its reference "
        "count, and so copies its page in a forked worker.",
    ),
    Rule.DATA_FORMAT: _words(
        "Is the data in a form that is slow to read sample by sample?",
        f"lines of code, the library functions that they call, and bytes read; {STAGE_TIMES}",
        format_slow="{share:share} of loading a batch is spent in {place:code}.",
        more_read_than_used="Loading reads {read_bytes:size} for a batch of {batch_bytes:size}, "
        "{times:,.0f} times what it hands out; {share:share} of it is spent in {place:code}.",
    ),
    Rule.SLOW_FETCH: _words(
        "Does one function take most of loading a batch?",
        STAGE_TIMES,
        code_slow="{share:share} of loading a batch is spent in {place:code}.",
    ),
    Rule.SLOW_COLLATE: _words(
        "Does collating take a large part?",
        STAGE_TIMES,
        collate_slow="{name:name} takes {collate_ns:duration} to collate a batch, {share:share} of "
        "what a worker does.",
    ),
    Rule.TOKENISING: _words(
        "Are texts tokenised while they are loaded?",
        STAGE_TIMES,
        tokenises="{share:share} of loading a batch is tokenising, in {place:code}.",
        tokenises_again="{share:share} of loading a batch is tokenising, in {place:code}: the same "
        "texts in each epoch.",
    ),
    Rule.TRANSFER: _words(
        "Does passing batches to the training process take long?",
        STAGE_TIMES,
        transfer_by_pipe="Passing a batch from its worker to training takes "
        "{transfer_ns:duration}: {pickled_bytes:size} of it go through a pipe, as all that is not "
        "a tensor does.",
        transfer_of_many="Passing a batch from its worker to training takes "
        "{transfer_ns:duration}, though only {pickled_bytes:size} of it are pickled: it has many "
        "tensors or objects, each with a cost.",
        transfer_of_few="Passing a batch from its worker to training takes {transfer_ns:duration}: "
        "handing tensors from one process to another takes time for each, whatever its size.",
        transfer_waits_for_lock="Passing a batch from its worker to training takes "
        "{transfer_ns:duration}. Most of it is waiting for Python's lock (the GIL) in the worker, "
        "which keeps it while it loads the next batch: each tensor's file descriptor is sent by a "
        "thread of the worker.",
    ),
    Rule.SLOW_SAMPLER: _words(
        "Do the sampler and its indices take long?",
        STAGE_TIMES,
        sampler_slow="The training process spends {index_ns:duration} a batch on {sampler:name}, "
        "which chooses what is loaded next.",
    ),
    Rule.PINNING: _words(
        "Does pinning take long?",
        STAGE_TIMES,
        pinning_slow="Copying a batch to pinned memory takes {pin_ns:duration}.",
    ),
    Rule.HEAD_OF_LINE: _words(
        "Do finished batches wait for earlier ones?",
        STAGE_TIMES,
        finished_batches_wait="Finished batches wait for slower ones before them (head-of-line "
        "blocking): in {share:share} of the time training waits while a later batch is ready.",
    ),
    Rule.SLOW_SAMPLES: _words(
        "Are a few samples far slower than the others?",
        STAGE_TIMES,
        samples_slow="A few samples take up to {longest_ns:duration}, where a typical one takes "
        "{typical_ns:duration}: those with index {indices:name}.",
    ),
    Rule.LOCK: _words(
        "Do workers wait for a lock?",
        KERNEL,
        workers_wait_for_lock="Workers are blocked {share:share} of their time by a lock that they "
        "share, at {place:code} ({kernel:name}).",
    ),
    Rule.DISK: _words(
        "Is the data read from the disk?",
        KERNEL,
        read_from_disk="The data is read from the disk, not from the page cache: {disk_bytes:size} "
        "a batch. Loading is blocked {share:share} of its time.",
    ),
    Rule.STORAGE_LATENCY: _words(
        "Are workers blocked, but on no lock or disk?",
        KERNEL,
        workers_blocked="Loading is blocked {share:share} of its time, neither on a CPU nor "
        "waiting for one, at {place:code}: storage, the network or another process is slow to "
        "answer.",
        threads_awaited="Loading waits {share:share} of its time for threads of the same worker, "
        "at {place:code}, which hardly compute meanwhile: storage, the network or another process "
        "is slow to answer them.",
        network_latency="Each sample waits {sample_ns:duration} for the network, for "
        "{sample_bytes:size}, at {place:code}: that is latency, not bandwidth. Loading is blocked "
        "{share:share} of its time.",
        network_bandwidth="Loading waits for the network {share:share} of its time, for "
        "{batch_bytes:size} a batch ({bytes_per_s:size}/s), at {place:code}: that is bandwidth "
        "more than latency.",
    ),
    Rule.SLOW_WORKER: _words(
        "Is one worker slower than the others?",
        STAGE_TIMES,
        worker_slow="Worker {worker} takes {batch_ns:duration} a batch, the others "
        "{others_ns:duration}.",
    ),
    Rule.FEW_SHARDS: _words(
        "Do some workers have nothing to load?",
        STAGE_TIMES,
        workers_have_no_shard="{idle} of {workers} workers made no batch.",
        fewer_shards_than_workers="{idle} of {workers} workers made no batch: the dataset has "
        "{shards:shards}.",
    ),
    Rule.UNEVEN_SHARDS: _words(
        "Do some workers end long before the epoch does?",
        "waits of the batches before the last one of any worker, and after it",
        workers_end_early="Some workers end early: the last {tail_share:share} of an epoch's "
        "batches come from fewer of the {workers} workers, in the end from {left}. Training waits "
        "{tail_ns:duration} for each of these, and {before_ns:duration} for one before.",
    ),
    Rule.SLOW_OPERATOR: _words(
        "Does one stage of the pipeline hold up the others?",
        "task times of the stages by how many tasks they may work on at once, and their queues",
        operator_busy="{name:name} is busy {busy_share:share} of the time with {concurrency} at "
        "once.",
        threads_busy="The {threads} threads of the pipeline are busy {busy_share:share} of the "
        "time, most of it with {name:name}.",
        operator_starves_next="{name:name} always has work waiting, and what comes after it waits "
        "for it.",
    ),
    Rule.PYTHON_LOCK: _words(
        "Do threads of the loader hold Python's lock (GIL)?",
        "how long a thread waits for the GIL, in both arms",
        python_lock_held="Threads that load batches ({threads:name}) hold Python's lock (GIL): a "
        "thread waits {real_ns:duration} for it, and {ideal_ns:duration} with ideal loading.",
        python_lock_often_taken="While threads load batches ({threads:name}), a step stops for "
        "{stopped_ns:duration} longer than with ideal loading, though it has a CPU: its many short "
        "calls wait for Python's lock (GIL).",
    ),
    Rule.CONTENTION: _words(
        "Are steps slower while batches are loaded?",
        "difference of the steps between the real and the ideal arm",
        steps_slower="A step takes {slower_ns:duration} longer while batches are loaded: "
        f"{COMPETES}.",
    ),
    Rule.SHARED_MACHINE: _words(
        "Did other programs use the CPUs?",
        "CPU time of the machine, less that of training and its workers",
        others_use_cpus="Other programs used up to {others_cpus:cpus} during this run: results may "
        "change with what else runs.",
    ),
    Rule.STALLS: _words(
        "Is most of the waiting for a few batches?",
        "share of the waiting in the slowest 1% of the batches",
        few_batches_stall="{stalls:,} of {batches:,} batches cause {wait_share:share} of the "
        "waiting, {time_share:share} of the training time.",
    ),
    Rule.EPOCH_BOUNDARIES: _words(
        "Does every epoch start with a long wait?",
        f"{EPOCH_STARTS}; PyTorch's documentation of persistent_workers",
        epochs_start_slowly="Each epoch starts with a wait of {epoch_start_ns:duration}, "
        "{epoch_share:share} of its time.",
    ),
    Rule.WORKER_START: _words(
        "Do workers start slowly?",
        f"{EPOCH_STARTS}; {STAGE_TIMES}",
        workers_start_slowly="Each epoch starts {begun_ns:duration} late: starting its workers "
        "by {method} takes that long.",
        workers_initialise_slowly="Each epoch starts with {init_ns:duration} of {function:name} "
        "(worker_init_fn) in every worker.",
    ),
    Rule.SHUFFLE_BUFFER: _words(
        "Does the first sample of each worker take long?",
        f"{EPOCH_STARTS}; {STAGE_TIMES}",
        first_sample_slow="In each epoch the first sample of a worker takes {sample_ns:duration}: "
        "{dataset:name} fills a shuffle buffer, or opens files.",
    ),
    Rule.SAMPLER_START: _words(
        "Does the sampler take long before its first index?",
        "time to draw indices in the training process, by itself",
        first_index_slow="Each epoch starts with {index_ns:duration} in which {sampler} makes its "
        "first indices, in the training process.",
    ),
    Rule.LOADER_RECREATED: _words(
        "Is iter(loader) called for every batch?",
        "epochs that end after their first batch",
        loader_made_anew="iter(loader) is called for every batch ({epochs:,} times), and "
        "each call waits {each_ns:duration} for a first batch.",
    ),
    Rule.SLOW_FIRST_BATCH: _words(
        "Does the first batch of the run take long?",
        EPOCH_STARTS,
        first_batch_slow="The first batch came after {epoch_start_ns:duration}, {run_share:share} "
        "of the time of this run; of a whole epoch of {batches:,} batches {epoch_share:share}. "
        f"{ONCE}",
        first_batch_slow_in_run="The first batch came after {epoch_start_ns:duration}, "
        "{run_share:share} of the time of this run. "
        f"{ONCE}",
    ),
    Rule.FALLING_THROUGHPUT: _words(
        "Does training keep getting slower?",
        "Theil-Sen slope of the medians of twenty parts of the run",
        iterations_lengthen="Training keeps getting slower: an iteration takes {rise:share} longer "
        "at the end of the run than at its start.",
    ),
    Rule.DRIFT: _words(
        "Was one half of the run slower?",
        "difference of the halves' mean iterations, beyond its 95% CI",
        second_half_slower="The second half of the run was {change:share} slower than the first: "
        "figures of the whole run average the two.",
        second_half_faster="The second half of the run was {change:share} faster than the first: "
        "figures of the whole run average the two.",
    ),
    Rule.OUTLIERS: _words(
        "Do single batches take over twice the median?",
        "twice the median, as in Amazon SageMaker's PT_dataloader_analysis",
        few_batches_slow="{outliers:,} of {batches:,} batches took over twice the median "
        "({waiting:,} mostly waiting, {stepping:,} with a slow step). They cost {time_share:share} "
        "of the training time.",
    ),
    Rule.PROCESS_MEMORY: _words(
        "Does the training process's memory grow?",
        "Theil-Sen slope of the memory readings",
        memory_grows=MEMORY_GROWS,
    ),
    Rule.WORKER_MEMORY: _words(
        "Does the workers' memory grow?",
        "memory of each worker, or the Theil-Sen slope of that of all",
        memory_grows=MEMORY_GROWS,
        workers_keep_more="Each of the {workers} workers keeps {each_bytes:size} more after 1,000 "
        "batches, which does not level off: at this rate the {available_bytes:size} that are left "
        "are full after {batches:,} batches ({epochs:number} epochs), in {left_ns:duration}.",
    ),
    Rule.OVERSUBSCRIPTION: _words(
        "Are there more workers than CPUs?",
        "the warning that PyTorch gives for such a DataLoader",
        more_workers_than_cpus="The loader has {workers} workers for {cpus:cpus}: they compete for "
        "CPU, and each uses memory.",
        workers_wait_for_cpu="Loading is ready to run but waits for a CPU {share:share} of its "
        "time: more threads compute than there are CPUs.",
        step_spins="The training step computes with {threads} threads beside {workers} workers, on "
        "{cpus} CPUs. Its threads wait for each other by computing (they spin), so it takes far "
        "more CPU time than with ideal loading.",
    ),
    Rule.UNPINNED_MEMORY: _words(
        "Are batches copied to the GPU from unpinned memory?",
        "PyTorch's documentation of pinned memory and non_blocking copies",
        batches_unpinned="Batches are copied to the GPU from memory that is not pinned.",
    ),
    Rule.HIDDEN_WAITS: _words(
        "Are waits hidden by GPU work?",
        "CUDA events recorded around each wait",
        waits_hidden=HIDDEN,
    ),
    Rule.IDLE_GPU: _words(
        "Is the GPU idle even with ideal loading?",
        "NVML's utilization (any kernel running) in the ideal arm",
        gpu_idle="Loading is not the limit: even with ideal loading {gpu:name} is idle "
        "{idle_share:share} of the time.",
    ),
    Rule.NOT_REPRESENTATIVE: _words(
        "Do the kept batches stand for the epoch?",
        "rank correlation of steps with their batches' size and place",
        step_depends_on_batch="The step time depends on the batch, its size or its place in the "
        "epoch, so the kept batches may not stand for the epoch.",
    ),
    Rule.PADDING: _words(
        "Is much of the batches padding?",
        "masks, lengths or token ids of some batches, and the Theil-Sen slope of their steps by "
        "their positions",
        tokens_padded=f"{PADDED}.",
        padded_to_maximum=f"{PADDED}: every batch is padded to {{length:,}}, and the longest "
        "sequence of a batch is {longest:,g} at the median.",
    ),
}
PROBLEMS: dict[Enum, str] = {
    problem: sentence for words in WORDS.values() for problem, sentence in words.problems.items()
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
    Unknown.PREFETCH_UNKNOWN: "the loader's prefetch depth is not known",
    Unknown.WORKERS_UNKNOWN: "the loader's number of workers is not known",
    Unknown.READ_IN_THREAD: (
        "the loader is read in another thread than the main one, which may load ahead"
    ),
    Unknown.CPUS_UNKNOWN: "the number of usable CPUs is not known",
    Unknown.CPU_TIME_NOT_READ: "the machine's CPU time was not read during measured batches",
    Unknown.AFFINITY_NOT_READ: "the CPUs that workers may run on were not read",
    Unknown.CALLS_NOT_SEEN: "no calls of library functions were recorded",
    Unknown.LOCK_NOT_READ: "the threads of the process were not read",
    Unknown.FEW_LOCK_READINGS: (
        "the wait for Python's lock was read {readings} times in an arm, and {needed} are needed; "
        "measure for longer"
    ),
    Unknown.NOT_LOOKED_INTO: "the loader was not looked into, as stages=True may do",
    Unknown.NOT_FORKED: "no workers were forked",
    Unknown.WORKER_MEMORY_NOT_READ: "the memory of the workers was not read twice",
    Unknown.NO_EPOCH_START: "no epoch start was measured",
    Unknown.ONE_EPOCH: "there was no second epoch",
    Unknown.EPOCH_LENGTH_UNKNOWN: "the length of an epoch, or its iteration time, is not known",
    **{code: GROWTH[code] for code in GrowthReason},
    Unknown.NO_CUDA: NO_CUDA_DEVICE,
    Unknown.PINNING_UNKNOWN: "whether the loader pins its batches is not known",
    Unknown.GPU_NOT_READ: "no GPU reading covers ideal loading alone",
    Unknown.NO_PADDING_TOLD: "the batches have no mask, lengths or token ids that were read",
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
    question, reason = WORDS[finding.rule].question, why_not_checked(finding)
    return f"{question} Not measured: {reason}." if reason else question


def source_in_words(finding: Finding) -> str:
    """What the finding is based on."""
    if finding.problem.code is Problem.STEP_SPINS:
        return "CPU times of the training process, read in both arms"
    return WORDS[finding.rule].source


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
    estimate = Estimate(fact.value, fact.low, fact.high)
    unit = "" if fact.unit in IN_WORDS or fact.unit in fact.name else f" {fact.unit}"
    return f"{estimated(estimate, IN_WORDS.get(fact.unit, _plain))}{unit}"


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
