"""How runs and epochs begin: first batches, workers, shuffle buffers, samplers, new loaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import WorkerStart
from loadeval.estimate.epochs import first_waits
from loadeval.estimate.steady import epoch_lengths, length_of_epochs
from loadeval.findings.engine import MATTERS, MOSTLY, Context, Do, Finding, Set, Skip, rule
from loadeval.findings.workers import SIMULATED
from loadeval.model.changes import Change
from loadeval.words import duration, share, size

HIGH = 0.2
"""Of an epoch or the run: from here on a single long start is told."""
FEW_BATCHES = 2.0
"""Times what a worker takes for one batch: a first wait of no more is for that batch."""
FEW_STARTS = 2.0
"""Times what a later epoch takes to start: no more is told of the first one by itself."""
NOTICED_NS = 1_000_000_000
"""A first batch that takes as long is noticed in a run of which it is a large part."""
FEWEST_LOADERS, FEW_IN_AN_EPOCH = 5, 2
"""Epochs that end after a batch or two, before a loader is said to be made anew at each step."""
EPOCH_STARTS = "first waits of the epochs, compared with a whole epoch in steady state"
IN_PARTS = (
    "draw with replacement where that is as good, or yield the permutation in parts: for part in "
    "torch.randperm(n).split(10_000): yield from part.tolist()"
)
OF_SAMPLER = {
    "WeightedRandomSampler": (
        "draw weighted indices in parts",
        "sums = weights.cumsum(0), then torch.searchsorted(sums, sums[-1] * torch.rand(10_000))",
    ),
    "RandomSampler": ("make indices in parts", IN_PARTS),
    "DistributedSampler": ("make indices in parts", IN_PARTS),
}
"""What samplers of torch's had better do; others are the user's."""
BEGINS = "opening files, listing shards, filling a shuffle buffer"


class Start(NamedTuple):
    """An epoch's first wait, and its parts: starting and initialising workers, sample, indices.

    Workers start at the same time, so the slowest one counts. Those that live on start in the first
    epoch alone.
    """

    epoch: int
    workers: tuple[WorkerStart, ...]
    wait_ns: float
    begun_ns: float
    init_ns: float
    sample_ns: float
    index_ns: float


def starts_of(c: Context) -> list[Start]:
    """Of each epoch whose first batch was looked into."""
    starts = []
    for epoch, times in c.run.stages.by("epoch"):
        first = times.take(slice(1))
        asked_ns, delivered_ns = int(first.requested_ns[0]), int(first.delivered_ns[0])
        if first.batch[0] != 0 or UNKNOWN in (asked_ns, delivered_ns):
            continue
        workers = tuple(each for each in c.run.worker_starts if each.epoch == epoch)
        index_ns = max(int(first.index_ns[0]), 0)
        # Workers that live on are asked before the first batch is.
        before_ns = index_ns if not workers and first.worker[0] != UNKNOWN else 0
        is_first = first.slowest_index[0] == 0  # of an iterable dataset: its worker's first
        starts.append(
            Start(
                epoch,
                workers,
                # Workers that began before the batch was asked for are part of opening the loader.
                delivered_ns - min([asked_ns - before_ns, *(each.start_ns for each in workers)]),
                max((each.ready_ns - each.start_ns for each in workers), default=0),
                max((each.init_ns for each in workers), default=0),
                int(max(first.slowest_ns[0], 0)) if is_first else 0,
                index_ns,
            )
        )
    return starts


def _rest_of_epoch_ns(c: Context) -> float | None:
    """What an epoch takes beside its first wait, in steady state."""
    length, real = length_of_epochs(c.run), c.gap.real
    if not length or real is None:
        return None
    first = first_waits(c.run).wait_ns
    alone_ns = float(first.mean()) if length == 1 and len(first) else 0.0  # its only wait
    return max(length * real.value - alone_ns, 0.0)


def mean_start(c: Context) -> Start | None:
    """The mean of how later epochs start; None where none was looked into."""
    later = [start for start in starts_of(c) if start.epoch]
    if not later:
        return None
    workers = tuple(each for start in later for each in start.workers)
    return Start(later[0].epoch, workers, *np.mean([start[2:] for start in later], axis=0).tolist())


def cause(start: Start | None) -> str | None:
    """What the start of an epoch is mostly spent on, by the rule that tells it."""
    if start is None:
        return None
    least_ns, begun_ns = MOSTLY * start.wait_ns, start.begun_ns + start.init_ns
    if start.index_ns >= max(least_ns, begun_ns, 1.0):
        return "sampler start"
    if begun_ns >= max(least_ns, 1.0):
        return "worker start"
    return "shuffle buffer" if start.sample_ns >= max(least_ns, 1.0) else None


def boundaries(c: Context) -> tuple[float, float] | None:
    """The mean first wait of later epochs and its share of the time, where that matters."""
    waits_ns = first_waits(c.run).wait_ns
    later = waits_ns if c.loader.ready_batches else waits_ns[1:]
    if not len(later):
        raise Skip("only one epoch was seen to start")
    rest_ns = _rest_of_epoch_ns(c)
    if rest_ns is None:
        raise Skip("the length of an epoch is not known")
    mean_ns = float(later.mean())
    cost = mean_ns / (mean_ns + rest_ns)
    if c.gap.starts is not None:  # some batches may have been made during that wait
        cost = min(cost, c.gap.share("epoch starts"))
    return None if cost < MATTERS else (mean_ns, cost)


def late(c: Context, why: str) -> tuple[Start, float] | None:
    """The mean start of later epochs and its share of the time, if it matters and that is why."""
    found, start = boundaries(c), mean_start(c)
    return None if found is None or start is None or cause(start) != why else (start, found[1])


@rule(
    "epoch boundaries",
    source=f"{EPOCH_STARTS}; PyTorch's documentation of persistent_workers",
    of=("epoch starts",),
)
def epoch_boundaries(c: Context) -> Finding | None:
    """Every epoch begins with a long wait, for no reason that was measured.

    Shown by first waits from the second epoch on that are 5% of the time.

    Excluded by starting workers, a first sample or a sampler that takes half of them.
    """
    found = boundaries(c)
    if found is None or cause(mean_start(c)) is not None:
        return None
    mean_ns, cost = found
    workers, persistent = c.loader.workers, c.loader.persistent_workers
    alone, name, sure = c.gap.loader_only, c.setting("persistent_workers"), True
    batch_ns = alone.value * workers if alone and workers else None
    live_on = Change({"persistent_workers": True})
    do: Set | Do
    if batch_ns is not None and mean_ns <= FEW_BATCHES * batch_ns:
        because = f"most of it is the first batch, which takes one worker {duration(batch_ns)}"
        do = Do("make epochs longer, or batches smaller", because)
    elif workers and persistent:
        do = Do("make the first batch of an epoch cheaper, or epochs longer", BEGINS)
    elif workers and persistent is False and name:
        because = f"it ends starting workers; what the dataset does first stays: {BEGINS}"
        do, sure = Set(name, False, True, because, live_on), False
    else:
        because = f"see what the loader does for the first batch ({BEGINS}), and do it once"
        do, sure = Do("make epochs longer, or their starts cheaper", because), False
    return Finding(
        f"Each epoch starts with a wait of {duration(mean_ns)}, {share(cost)} of its time.",
        [do],
        {"start of a later epoch, ns": mean_ns, "rest of an epoch, ns": _rest_of_epoch_ns(c)},
        sure=sure,
        cost=cost,
    )


@rule("worker start", source=f"{EPOCH_STARTS}; {SIMULATED}", of=("epoch starts",))
def worker_start(c: Context) -> Finding | None:
    """Every epoch waits for workers that start, or are initialised, slowly.

    Shown by half of an epoch's first wait, which the slowest worker took to start and for its
    worker_init_fn.

    Excluded by workers that live on, or take less than half.
    """
    found = late(c, "worker start")
    if found is None:
        return None
    start, cost = found
    name, method, do = c.setting("persistent_workers"), c.loader.start_method or "fork", []
    if name and not c.loader.persistent_workers:
        live_on = Change({"persistent_workers": True})
        do.append(Set(name, False, True, "they then start once, not in each epoch", live_on))
    if start.init_ns > start.begun_ns:
        function = c.loader.worker_init or "worker_init_fn"
        return Finding(
            f"Each epoch starts with {duration(start.init_ns)} of {function}, the worker_init_fn, "
            "in every worker.",
            [*do, Do(f"make {function} cheaper")],
            {"worker_init_fn, ns": start.init_ns},
            cost=cost,
        )
    sending = _sending(c, start.workers)
    if method in ("spawn", "forkserver") and not sending:
        sending = [Do("keep the dataset small", "hold paths, and open files in the worker")]
    return Finding(
        f"Each epoch starts {duration(start.begun_ns)} late: starting its workers by {method} "
        "takes that long.",
        [*do, *sending] or [Do("make epochs longer")],
        {"starting workers, ns": start.begun_ns},
        cost=cost,
    )


def _sending(c: Context, sent: Sequence[WorkerStart]) -> list[Set | Do]:
    """What to do about workers that are sent the dataset; none where that was not measured."""
    if not sent or any(
        None in (each.pickling_start_ns, each.pickling_ns, each.unpickling_ns)
        or not each.sent_bytes
        for each in sent
    ):
        return []
    rows = np.array(
        sorted(
            (
                each.epoch,
                each.pickling_start_ns,
                each.pickling_ns,
                each.sent_bytes,
                each.ready_ns - (each.unpickling_ns or 0),
                each.ready_ns,
            )
            for each in sent
        ),
        dtype=np.float64,
    )
    epoch, began, pickling, sent_bytes, read, ready = rows.T
    importing_ns = float((read - began - pickling).mean())
    told = (
        f"a worker takes {duration(float((ready - began).mean()))} to start: "
        f"{duration(float(pickling.mean()))} to pickle {size(float(sent_bytes.mean()))} for it, "
        "the dataset and all else that it is sent, "
        f"{duration(importing_ns)} to start Python and import, "
        f"and {duration(float((ready - read).mean()))} to unpickle"
    )
    # None was begun before the one ahead of it read what it was sent: a pipe holds 64 kB of that.
    waited = (began[1:] >= read[:-1])[epoch[1:] == epoch[:-1]]
    if len(waited) and waited.all():
        told += f"; the {c.loader.workers} workers start one after the other, imports included"
    small, less = (
        "hold paths, open files in the worker, or hold tensors",
        ("what is outside of if __name__ == '__main__' is done in each worker too"),
    )
    if importing_ns > float((pickling + ready - read).mean()):
        first = Do("import less in the main module", f"{less}; {told}")
        return [first, Do("keep the dataset small", small)]
    return [Do("keep the dataset small", f"{small}; {told}")]


@rule("shuffle buffer", source=f"{EPOCH_STARTS}; {SIMULATED}", of=("epoch starts",))
def shuffle_buffer(c: Context) -> Finding | None:
    """Every epoch waits for the first sample of its workers.

    Shown by half of an epoch's first wait, which a worker took for its first sample.

    Excluded by starting workers, or a sampler, that takes half.
    """
    found = late(c, "shuffle buffer")
    if found is None:
        return None
    sample_ns, cost = found[0].sample_ns, found[1]
    return Finding(
        f"In each epoch the first sample of a worker takes {duration(sample_ns)}: "
        f"{c.loader.dataset or 'the dataset'} fills a shuffle buffer, or opens files.",
        [Do("make the shuffle buffer smaller", "or fill it bit by bit, or make epochs longer")],
        {"first sample of a worker, ns": sample_ns},
        cost=cost,
    )


@rule(
    "sampler start",
    source="time to draw indices in the training process, by itself",
    of=("epoch starts",),
)
def sampler_start(c: Context) -> Finding | None:
    """Every epoch waits for the sampler's first indices.

    Shown by half of an epoch's first wait, which the training process took to draw indices.

    Excluded by starting workers that takes longer.
    """
    found = late(c, "sampler start")
    if found is None:
        return None
    index_ns, cost = found[0].index_ns, found[1]
    sampler = c.loader.sampler or "the sampler"
    otherwise = (
        "yield indices as they are made",
        "do in its constructor what is the same for every epoch",
    )
    return Finding(
        f"Each epoch starts with {duration(index_ns)} in which {sampler} makes its first indices, "
        "in the training process.",
        [Do(*OF_SAMPLER.get(sampler, otherwise))],
        {"first indices of an epoch, ns": index_ns},
        cost=cost,
    )


@rule(
    "loader re-created",
    source="epochs that end after their first batch",
    of=("epoch starts", "waiting"),
)
def recreated(c: Context) -> Finding | None:
    """`iter(loader)` is called for every batch.

    Shown by nine of ten epochs, and five or more, that are broken off after one or two batches, and
    first waits of 5% of the time.

    Excluded by epochs that go on, or end by themselves.
    """
    steps, ends = c.run.steps, {end.epoch: end.cause for end in c.run.ends}
    counts = epoch_lengths(c.run)
    anew = sum(
        count <= FEW_IN_AN_EPOCH and ends.get(epoch) == "broken off"
        for epoch, count in counts.items()
    )
    if anew < max(FEWEST_LOADERS, 0.9 * len(counts)):
        return None
    elapsed_ns = int(steps.request_ns[-1] - steps.request_ns[0])
    firsts = steps.batch[:-1] == 0
    waited_ns = int(steps.wait_ns[:-1][firsts].sum())
    if elapsed_ns <= 0 or waited_ns < MATTERS * elapsed_ns:
        return None
    each_ns = waited_ns / int(firsts.sum())
    return Finding(
        f"iter(loader) is called for every batch ({anew:,} times), and each call waits "
        f"{duration(each_ns)} for a first batch.",
        [Do("keep the iterator between steps", "batches = iter(loader) once, then next(batches)")],
        {"wait for the first batch, ns": each_ns, "epochs": len(counts)},
        cost=waited_ns / elapsed_ns,
    )


@rule("slow first batch", source=EPOCH_STARTS, of=("epoch starts",))
def slow_first_batch(c: Context) -> Finding | None:
    """The first batch of all is long in coming, and that of each later epoch is not.

    Shown by a first wait of a fifth of the epoch, or of a second and a fifth of the run; and of a
    single epoch that makes up a fifth of what is lost.

    Excluded by later epochs that start as slowly, and a batch that was ready before.
    """
    waits_ns, rest_ns, steps = first_waits(c.run).wait_ns, _rest_of_epoch_ns(c), c.run.steps
    if not len(waits_ns) or c.loader.ready_batches:
        raise Skip("no epoch was seen to start")
    taken_ns = steps.wait_ns + np.maximum(steps.step_ns, 0)
    run_ns = int(taken_ns.sum())
    if UNKNOWN not in steps.request_ns:
        run_ns = int((steps.request_ns + taken_ns).max() - steps.request_ns.min())
    first_ns = int(waits_ns[0])
    is_noticed = first_ns >= NOTICED_NS and first_ns >= HIGH * run_ns
    if rest_ns is None and not is_noticed:
        raise Skip("the length of an epoch is not known")
    of_epoch, cost = "", None
    if rest_ns is not None:
        part, lost = first_ns / max(first_ns + rest_ns, 1.0), c.gap.share("lost")
        if c.gap.epochs == 1:  # else those of later epochs are known, and others tell
            cost = min(part, c.gap.share("epoch starts"))
            is_noticed = is_noticed or (lost >= HIGH and cost >= max(HIGH * lost, MATTERS))
        if part < HIGH and not is_noticed:
            return None
        try:
            later = boundaries(c)
        except Skip:
            later = None
        if later is not None and first_ns < FEW_STARTS * waits_ns[1:].mean():
            return None
        batches = round(length_of_epochs(c.run) or 0)
        of_epoch = f", and {share(part)} of a whole epoch of {batches:,} batches"
    starts = [start for start in starts_of(c) if not start.epoch]
    are_workers = any(start.begun_ns >= MOSTLY * start.wait_ns for start in starts)
    because = "or find what else comes first: filling a shuffle buffer, imports in spawned workers"
    return Finding(
        f"The first batch came after {duration(first_ns)}: {share(first_ns / max(run_ns, 1))} of "
        f"this run{of_epoch}. That happens once, and matters in short runs.",
        (_sending(c, [each for start in starts for each in start.workers]) if are_workers else [])
        or [Do("keep file lists and indexes in a file", because)],
        {"first batch, ns": first_ns, "rest of an epoch, ns": rest_ns, "this run, ns": run_ns},
        cost=cost,
    )
