"""How runs and epochs begin: first batches, worker start, shuffle buffers, loaders made anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.finding import Advice, Fact, Finding, Problem, Rule, Unknown, facts
from loadeval.analysis.rules.workers import KEEP_WORKERS, PERSISTENT
from loadeval.analysis.summary import epoch_lengths, epoch_start_waits
from loadeval.analysis.verdict import HIGH_SHARE, MODERATE_SHARE
from loadeval.runlog.columns import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.finding import Confidence
    from loadeval.runlog.model import Run
    from loadeval.runlog.stages import WorkerStart

FEW_BATCHES = 2.0
"""Times what a worker takes for one batch: a first wait of no more is for that batch."""
TRY_KEEPING = Remark(Advice.TRY_PERSISTENT_WORKERS, PERSISTENT)
MOST_OF_IT = 0.5
"""Of an epoch start: what takes as much is its cause."""
SPAWNING = ("spawn", "forkserver")
FEWEST_LOADERS = 5
"""Epochs that end after a batch or two, before a loader is said to be made anew at each step."""
FEW_IN_AN_EPOCH = 2


def slow_first_batch(case: Case) -> Answer:
    """The first batch of all is long in coming."""
    found, rest_ns = epoch_start_waits(case.real), _rest_of_epoch_ns(case)
    if not len(found) or case.loader.ready_batches:
        return Remark(Unknown.NO_EPOCH_START)
    if rest_ns is None:
        return Remark(Unknown.EPOCH_LENGTH_UNKNOWN)
    first_ns = int(found[0])
    share = first_ns / (first_ns + rest_ns)
    if share < HIGH_SHARE:
        return None
    return Finding(
        Rule.SLOW_FIRST_BATCH,
        "low",
        "measured",
        Remark(Problem.FIRST_BATCH_SLOW, {"epoch_start_ns": first_ns, "epoch_share": share}),
        (Remark(Advice.FASTER_START),),
        (Fact("epoch start", first_ns, "ns"), Fact("rest of an epoch", rest_ns, "ns")),
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
    found, rest_ns = epoch_start_waits(case.real), _rest_of_epoch_ns(case)
    later = found if case.loader.ready_batches else found[1:]
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
            ("a batch in one worker", _one_batch_ns(case), "ns"),
        ),
        cost,
    )


def recreated(case: Case) -> Answer:
    """The loader is iterated anew for each batch."""
    if case.batches_left_out:
        return case.batches_left_out
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
    starts = np.array(list(_starts_ns(case.real)), dtype=np.float64)
    if not len(starts):
        return None
    wait_ns, begun_ns, init_ns, sample_ns = starts.mean(axis=0).tolist()
    least_ns = MOST_OF_IT * wait_ns
    if begun_ns + init_ns >= max(least_ns, 1.0):
        return _initialise(case, init_ns) if init_ns > begun_ns else _begin(case, begun_ns)
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
    """To start the workers once, where they start with each epoch."""
    if case.loader.persistent_workers:
        return ()
    return (KEEP_WORKERS,)


def _starts_ns(run: Run) -> Iterator[tuple[int, int, int, int]]:
    """Of each later epoch: its first wait, and of that starting, initialising, the first sample.

    Workers start at the same time, so the slowest one counts. Those that live on start in the
    first epoch alone.
    """
    by_epoch: dict[int, list[WorkerStart]] = {}
    for start in run.worker_starts:
        by_epoch.setdefault(start.epoch, []).append(start)
    for times in run.stages:
        first = times.part(slice(1))
        moments = first.requested_ns.tolist() + first.delivered_ns.tolist()
        if not times.epoch or first.batch.tolist() != [0] or UNKNOWN in moments:
            continue
        asked_ns, delivered_ns = moments
        workers = by_epoch.get(times.epoch, [])
        # Workers that began before the batch was asked for are part of opening the loader.
        wait_ns = delivered_ns - min([asked_ns, *(one.start_ns for one in workers)])
        begun_ns = max((one.ready_ns - one.start_ns for one in workers), default=0)
        init_ns = max((one.init_ns for one in workers), default=0)
        is_first = first.slowest_index[0] == 0  # of an iterable dataset: its worker's first
        yield wait_ns, begun_ns, init_ns, int(max(first.slowest_ns[0], 0)) if is_first else 0


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


def _begin(case: Case, begun_ns: float) -> _Start:
    method = case.loader.start_method or "fork"
    spawns = (Remark(Advice.SMALLER_DATASET),) if method in SPAWNING else ()
    return _Start(
        Rule.WORKER_START,
        Remark(Problem.WORKERS_START_SLOWLY, {"begun_ns": begun_ns, "method": method}),
        (*_keeping(case), *spawns) or (Remark(Advice.CHEAPER_EPOCH_START),),
        (Fact("starting a worker", begun_ns, "ns"),),
    )


def _rest_of_epoch_ns(case: Case) -> float | None:
    length, iteration_ns = case.epochs.batches, case.summary.iteration_ns
    if not length or not iteration_ns:
        return None
    is_start = length == 1 and (case.epochs.epoch_start_ns or 0.0)  # its only wait
    return max(length * iteration_ns - is_start, 0.0)


def _one_batch_ns(case: Case) -> float | None:
    """How long one worker takes for a batch, where all together take the loader's time alone."""
    alone_ns = None if case.headroom is None else case.headroom.loader_only_ns
    return alone_ns * case.loader.workers if alone_ns and case.loader.workers else None


def _against_boundaries(case: Case, first_ns: float) -> tuple[tuple[Remark, ...], Confidence]:
    workers, persistent = case.loader.workers, case.loader.persistent_workers
    one_ns = _one_batch_ns(case)
    if one_ns is not None and first_ns <= FEW_BATCHES * one_ns:
        cheaper = Remark(Advice.CHEAPER_FIRST_BATCH, {"batch_ns": one_ns})
        if persistent:
            return (cheaper,), "likely"
        rest_ns = max(first_ns - one_ns, 0.0)
        return (cheaper, Remark(Advice.WORKER_START_AT_MOST, {"start_ns": rest_ns})), "likely"
    if workers and persistent:
        return (Remark(Advice.CHEAPER_EPOCH_START),), "likely"
    if workers and persistent is False:
        return (TRY_KEEPING,), "possible"
    return (Remark(Advice.FIND_EPOCH_START),), "possible"
