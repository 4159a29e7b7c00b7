"""How runs and epochs begin: first batches, worker start, shuffle buffers, loaders made anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loadeval.analysis.estimate.epochs import epoch_start_waits
from loadeval.analysis.estimate.steady import epoch_lengths
from loadeval.analysis.estimate.verdict import HIGH_SHARE, MODERATE_SHARE
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.finding import Advice, Fact, Finding, Problem, Rule, Unknown, facts
from loadeval.analysis.rules.sending import Sending
from loadeval.analysis.rules.workers import KEEP_WORKERS, PERSISTENT
from loadeval.data.columns import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.finding import Confidence
    from loadeval.data.lines import WorkerStart
    from loadeval.data.run import Run

FEW_BATCHES = 2.0
"""Times what a worker takes for one batch: a first wait of no more is for that batch."""
TRY_KEEPING = Remark(Advice.TRY_PERSISTENT_WORKERS, PERSISTENT)
MOST_OF_IT = 0.5
"""What takes this share of an epoch start is its cause."""
OF_SAMPLER = {
    "WeightedRandomSampler": Advice.DRAW_WEIGHTED_IN_PARTS,
    "RandomSampler": Advice.DRAW_IN_PARTS,
    "DistributedSampler": Advice.DRAW_IN_PARTS,
}
"""What samplers of torch's do that takes long at the start of an epoch; others are the user's."""
SPAWNING = ("spawn", "forkserver")
FEWEST_LOADERS = 5
"""Epochs that end after a batch or two, before a loader is said to be made anew at each step."""
FEW_IN_AN_EPOCH = 2
FEW_STARTS = 2.0
"""Times what a later epoch takes to start: no more is told of the first one by itself."""
NOTICED_NS = 1_000_000_000
"""A first batch that takes as long is noticed in a run of which it is a large part."""
WORTH_SENDING_LESS = 0.1
"""Of the start of workers: where it saves less, what they are sent need not be smaller."""


def slow_first_batch(case: Case) -> Answer:
    """The first batch of all is long in coming, and that of each later epoch is not."""
    waits_ns, rest_ns = epoch_start_waits(case.real), _rest_of_epoch_ns(case)
    if not len(waits_ns) or case.loader.ready_batches:
        return Remark(Unknown.NO_EPOCH_START)
    first_ns, run_ns = int(waits_ns[0]), _run_ns(case.run)
    values: dict[str, Value] = {"epoch_start_ns": first_ns, "run_share": first_ns / max(run_ns, 1)}
    is_noticed = first_ns >= NOTICED_NS and first_ns >= HIGH_SHARE * run_ns
    if rest_ns is None and not is_noticed:
        return Remark(Unknown.EPOCH_LENGTH_UNKNOWN)
    problem = Remark(Problem.FIRST_BATCH_SLOW_IN_RUN, values)
    if rest_ns is not None:
        share, batches = first_ns / (first_ns + rest_ns), round(case.epochs.batches or 0)
        if share < HIGH_SHARE and not is_noticed:
            return None
        if isinstance(_boundaries(case), Finding) and first_ns < FEW_STARTS * waits_ns[1:].mean():
            return None
        of_epoch = {"epoch_share": share, "batches": batches}
        problem = Remark(Problem.FIRST_BATCH_SLOW, {**values, **of_epoch})
    starts = [start for start in _epoch_starts(case.real) if not start.epoch]
    are_workers = any(start.begun_ns >= MOST_OF_IT * start.wait_ns for start in starts)
    sending = _sending(case, starts) if are_workers else ()
    return Finding(
        Rule.SLOW_FIRST_BATCH,
        "low",
        "measured",
        problem,
        sending or (Remark(Advice.FASTER_START),),
        facts(
            ("epoch start", first_ns, "ns"),
            ("rest of an epoch", rest_ns, "ns"),
            ("the run", run_ns, "ns"),
        ),
    )


def epoch_boundaries(case: Case) -> Answer:
    """Every epoch begins with a long wait, for no reason that was measured."""
    answer = _boundaries(case)
    return None if isinstance(answer, Finding) and _cause(case) is not None else answer


def worker_start(case: Case) -> Answer:
    """Every epoch waits for workers that start slowly."""
    return _caused(case, Rule.WORKER_START)


def shuffle_buffer(case: Case) -> Answer:
    """Every epoch waits for the first sample of its workers."""
    return _caused(case, Rule.SHUFFLE_BUFFER)


def sampler_start(case: Case) -> Answer:
    """Every epoch waits for the sampler's first indices."""
    return _caused(case, Rule.SAMPLER_START)


def _caused(case: Case, rule: Rule) -> Answer:
    answer, cause = _boundaries(case), _cause(case)
    if not isinstance(answer, Finding):
        return answer
    if cause is None or cause.rule != rule:
        return None
    return replace(
        answer,
        rule=rule,
        confidence="measured",
        problem=cause.problem,
        changes=cause.changes,
        evidence=(*answer.evidence, *cause.evidence),
    )


def _boundaries(case: Case) -> Answer:
    waits_ns, rest_ns = epoch_start_waits(case.real), _rest_of_epoch_ns(case)
    later = waits_ns if case.loader.ready_batches else waits_ns[1:]
    if not len(later):
        return Remark(Unknown.ONE_EPOCH)
    if rest_ns is None:
        return Remark(Unknown.EPOCH_LENGTH_UNKNOWN)
    mean_ns = float(later.mean())
    cost = mean_ns / (mean_ns + rest_ns)
    if case.epoch_starts_share is not None:  # some batches may have been made during that wait
        cost = min(cost, case.epoch_starts_share)
    if cost < MODERATE_SHARE:
        return None
    changes, confidence = _against_boundaries(case, mean_ns)
    return Finding(
        Rule.EPOCH_BOUNDARIES,
        severity_of(cost),
        confidence,
        Remark(Problem.EPOCHS_START_SLOWLY, {"epoch_start_ns": mean_ns, "epoch_share": cost}),
        changes,
        facts(
            ("epoch start, later epochs", mean_ns, "ns"),
            ("rest of an epoch", rest_ns, "ns"),
            ("epochs", len(later), "epochs"),
            ("a batch in one worker", _worker_batch_ns(case), "ns"),
        ),
        cost,
    )


def recreated(case: Case) -> Answer:
    """`iter(loader)` is called for every batch."""
    steps, ends = case.real.steps, {end.epoch: end.cause for end in case.real.ends}
    counts = epoch_lengths(case.real)
    anew = sum(
        count <= FEW_IN_AN_EPOCH and ends.get(epoch) == "broken off"
        for epoch, count in counts.items()
    )
    if anew < max(FEWEST_LOADERS, 0.9 * len(counts)):
        return None
    elapsed_ns = int(steps.request_ns[-1] - steps.request_ns[0])
    firsts = steps.batch[:-1] == 0
    waited_ns = int(steps.wait_ns[:-1][firsts].sum())
    if elapsed_ns <= 0 or waited_ns < MODERATE_SHARE * elapsed_ns:
        return None
    cost = waited_ns / elapsed_ns
    each_ns = waited_ns / int(firsts.sum())
    return Finding(
        Rule.LOADER_RECREATED,
        severity_of(cost),
        "measured",
        Remark(Problem.LOADER_MADE_ANEW, {"epochs": anew, "each_ns": each_ns}),
        (Remark(Advice.KEEP_ITERATOR),),
        (
            Fact("wait for the first batch", each_ns, "ns"),
            Fact("epochs", len(counts), "epochs"),
        ),
        cost,
    )


class _Start(NamedTuple):
    """What an epoch start is mostly spent on."""

    rule: Rule
    problem: Remark
    changes: tuple[Remark, ...]
    evidence: tuple[Fact, ...]


def _cause(case: Case) -> _Start | None:
    """What the starts of later epochs are mostly spent on, where the loader was looked into."""
    starts = [start for start in _epoch_starts(case.real) if start.epoch]
    if not starts:
        return None
    wait_ns, begun_ns, init_ns, sample_ns, index_ns = _means(starts)
    least_ns = MOST_OF_IT * wait_ns
    if index_ns >= max(least_ns, begun_ns + init_ns, 1.0):
        sampler = case.loader.sampler or "the sampler"
        values: dict[str, Value] = {
            "index_ns": index_ns,
            "sampler": sampler,
            "epoch_start_ns": wait_ns,
        }
        return _Start(
            Rule.SAMPLER_START,
            Remark(Problem.FIRST_INDEX_SLOW, values),
            (Remark(OF_SAMPLER.get(sampler, Advice.LIGHTER_SAMPLER), {"sooner_ns": index_ns}),),
            (Fact("indices at the start of an epoch", index_ns, "ns"),),
        )
    if begun_ns + init_ns >= max(least_ns, 1.0):
        return _initialise(case, init_ns) if init_ns > begun_ns else _begin(case, starts)
    if sample_ns >= max(least_ns, 1.0):
        return _Start(
            Rule.SHUFFLE_BUFFER,
            Remark(
                Problem.FIRST_SAMPLE_SLOW,
                {"sample_ns": sample_ns, "dataset": case.loader.dataset or "the dataset"},
            ),
            (Remark(Advice.SMALLER_BUFFER),),
            (Fact("first sample of a worker", sample_ns, "ns"),),
        )
    return None


def _keeping(case: Case) -> tuple[Remark, ...]:
    """Advice to start the workers once, where they start with each epoch."""
    if case.loader.persistent_workers:
        return ()
    return (KEEP_WORKERS,)


class _EpochStart(NamedTuple):
    """An epoch's first wait, and its parts: starting and initialising workers, sample, indices.

    Workers start at the same time, so the slowest one counts. Those that live on start in the
    first epoch alone.
    """

    epoch: int
    wait_ns: int
    begun_ns: int
    init_ns: int
    sample_ns: int
    index_ns: int
    workers: tuple[WorkerStart, ...]


def _epoch_starts(run: Run) -> Iterator[_EpochStart]:
    """Of each epoch whose first batch was looked into."""
    by_epoch: dict[int, list[WorkerStart]] = {}
    for start in run.worker_starts:
        by_epoch.setdefault(start.epoch, []).append(start)
    for epoch, times in run.stages.by("epoch"):
        first = times.take(slice(1))
        moments = first.requested_ns.tolist() + first.delivered_ns.tolist()
        if first.batch.tolist() != [0] or UNKNOWN in moments:
            continue
        asked_ns, delivered_ns = moments
        workers = by_epoch.get(epoch, [])
        index_ns = max(int(first.index_ns[0]), 0)
        # Workers that live on are asked before the first batch is.
        before_ns = index_ns if not workers and first.worker[0] != UNKNOWN else 0
        is_first = first.slowest_index[0] == 0  # of an iterable dataset: its worker's first
        yield _EpochStart(
            epoch,
            # Workers that began before the batch was asked for are part of opening the loader.
            delivered_ns - min([asked_ns - before_ns, *(worker.start_ns for worker in workers)]),
            max((worker.ready_ns - worker.start_ns for worker in workers), default=0),
            max((worker.init_ns for worker in workers), default=0),
            int(max(first.slowest_ns[0], 0)) if is_first else 0,
            index_ns,
            tuple(workers),
        )


def _means(starts: Sequence[_EpochStart]) -> tuple[float, ...]:
    """Their first wait, and of that starting, initialising, the first sample, indices."""
    return tuple(np.mean([start[1:6] for start in starts], axis=0).tolist())


def _initialise(case: Case, init_ns: float) -> _Start:
    return _Start(
        Rule.WORKER_START,
        Remark(
            Problem.WORKERS_INITIALISE_SLOWLY,
            {"init_ns": init_ns, "function": case.loader.worker_init or "worker_init_fn"},
        ),
        (*_keeping(case), Remark(Advice.CHEAPER_INIT)),
        (Fact("worker_init_fn", init_ns, "ns"),),
    )


def _begin(case: Case, starts: Sequence[_EpochStart]) -> _Start:
    (wait_ns, begun_ns, *_), method = _means(starts), case.loader.start_method or "fork"
    values: dict[str, Value] = {"begun_ns": begun_ns, "method": method, "epoch_start_ns": wait_ns}
    unmeasured = (Remark(Advice.SMALLER_DATASET),) if method in SPAWNING else ()
    changes = (*_keeping(case), *(_sending(case, starts) or unmeasured))
    return _Start(
        Rule.WORKER_START,
        Remark(Problem.WORKERS_START_SLOWLY, values),
        changes or (Remark(Advice.CHEAPER_EPOCH_START),),
        (Fact("starting workers", begun_ns, "ns"),),
    )


def _sending(case: Case, starts: Sequence[_EpochStart]) -> tuple[Remark, ...]:
    """What the start of workers is made of that are sent the dataset, and what to change.

    Empty where that was not measured, and of workers that are forked.
    """
    sending = Sending.of([worker for start in starts for worker in start.workers])
    if sending is None:
        return ()
    wait_ns, begun_ns, *_ = _means(starts)
    means, workers = sending.means, case.loader.workers or 1
    # Workers that are sent little import at the same time, as far as there are CPUs.
    crowd = max(workers / (case.cpus or 1), 1.0) if sending.in_turn else 1.0
    sooner_ns = min(begun_ns, wait_ns) - crowd * means["importing_ns"]
    imports_most = means["importing_ns"] > means["pickling_ns"] + means["unpickling_ns"]
    remarks = (
        (True, Remark(Advice.WORKER_START_PARTS, means)),
        (sending.in_turn, Remark(Advice.WORKERS_START_IN_TURN, {"workers": workers})),
        (
            sooner_ns >= WORTH_SENDING_LESS * begun_ns,
            Remark(Advice.SMALLER_DATASET, {"sooner_ns": sooner_ns}),
        ),
        (imports_most, Remark(Advice.FEWER_IMPORTS)),
    )
    return tuple(remark for is_said, remark in remarks if is_said)


def _run_ns(run: Run) -> int:
    """How long training went on; of a run without moments its waits and known steps."""
    steps = run.steps
    taken_ns = steps.wait_ns + np.maximum(steps.step_ns, 0)
    if UNKNOWN in steps.request_ns:
        return int(taken_ns.sum())
    return int((steps.request_ns + taken_ns).max() - steps.request_ns.min())


def _rest_of_epoch_ns(case: Case) -> float | None:
    length, iteration_ns = case.epochs.batches, case.summary.iteration_ns
    if not length or not iteration_ns:
        return None
    is_start = length == 1 and (case.epochs.epoch_start_ns or 0.0)  # its only wait
    return max(length * iteration_ns - is_start, 0.0)


def _worker_batch_ns(case: Case) -> float | None:
    """How long one worker takes for a batch, where all together take the loader's time alone."""
    alone_ns = None if case.headroom is None else case.headroom.loader_only_ns
    return alone_ns * case.loader.workers if alone_ns and case.loader.workers else None


def _against_boundaries(case: Case, first_ns: float) -> tuple[tuple[Remark, ...], Confidence]:
    workers, persistent = case.loader.workers, case.loader.persistent_workers
    batch_ns = _worker_batch_ns(case)
    if batch_ns is not None and first_ns <= FEW_BATCHES * batch_ns:
        cheaper = Remark(Advice.CHEAPER_FIRST_BATCH, {"batch_ns": batch_ns})
        if persistent:
            return (cheaper,), "likely"
        rest_ns = max(first_ns - batch_ns, 0.0)
        return (cheaper, Remark(Advice.WORKER_START_AT_MOST, {"start_ns": rest_ns})), "likely"
    if workers and persistent:
        return (Remark(Advice.CHEAPER_EPOCH_START),), "likely"
    if workers and persistent is False:
        return (TRY_KEEPING,), "possible"
    return (Remark(Advice.FIND_EPOCH_START),), "possible"
