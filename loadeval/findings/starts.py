"""How runs and epochs begin: first batches, workers, shuffle buffers, samplers, new loaders."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loadeval.data.columns import UNKNOWN
from loadeval.data.run import Run
from loadeval.estimate.steady import (
    ends_ns,
    epoch_lengths,
    first_waits,
    length_of_epochs,
    once_per_run,
    usual_ends,
)
from loadeval.findings import (
    DOMINATES,
    FEW,
    FEWEST_LOADERS,
    LARGE,
    MATTERS,
    MOSTLY,
    NOTICED_NS,
    TWICE,
)
from loadeval.findings.engine import Context, Do, Finding, Part, Set, Skip, rule
from loadeval.findings.inside import less
from loadeval.findings.workers import SIMULATED
from loadeval.inside.code import seen_at
from loadeval.inside.stages import THREADS, first_batches_ns
from loadeval.model.costs import Change
from loadeval.words import duration, share, size

STARTS: tuple[Part, ...] = ("epoch starts",)
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
    **dict.fromkeys(("RandomSampler", "DistributedSampler"), ("make indices in parts", IN_PARTS)),
}
"""What samplers of torch's had better do; others are the user's."""
BEGINS = "opening files, listing shards, larger samples, filling a shuffle buffer"
LIVE_ON = Change({"persistent_workers": True})


class Start(NamedTuple):
    """An epoch's first wait, and its parts: starting and initialising workers, first, indices.

    Workers start at the same time, so the slowest one counts. Those that live on start in the first
    epoch alone. `first_ns` is how much longer than others the first batch takes its worker. Of a
    loader that was not looked into the wait alone is known.
    """

    wait_ns: float
    begun_ns: float = 0.0
    init_ns: float = 0.0
    first_ns: float = 0.0
    index_ns: float = 0.0


@once_per_run
def mean_start(run: Run, first: bool = False) -> Start | None:
    """The mean of how later epochs start, or how the `first` does; None if none was looked into."""
    starts, firsts_ns = [], first_batches_ns(run)
    for epoch, times in run.stages.by("epoch"):
        one = {name: int(times[name][0]) for name in times.names}
        asked_ns, delivered_ns = one["requested_ns"], one["delivered_ns"]
        if (epoch == 0) is not first or one["batch"] or UNKNOWN in (asked_ns, delivered_ns):
            continue
        workers = [each for each in run.worker_starts if each.epoch == epoch]
        index_ns = max(one["index_ns"], 0)
        # Workers that live on are asked before the first batch is.
        before_ns = index_ns if not workers and one["worker"] != UNKNOWN else 0
        # Workers that began before the batch was asked for are part of opening the loader.
        began_ns = min([asked_ns - before_ns, *(each.start_ns for each in workers)])
        starts.append(
            (
                delivered_ns - began_ns,
                max((each.ready_ns - each.start_ns for each in workers), default=0),
                max((each.init_ns for each in workers), default=0),
                firsts_ns.get((epoch, one["worker"]), 0.0),
                index_ns,
            )
        )
    return Start(*np.mean(starts, axis=0).tolist()) if starts else None


def _rest_of_epoch_ns(c: Context) -> float | None:
    """What an epoch takes beside its first wait, in steady state."""
    length, real = length_of_epochs(c.run), c.gap.real
    if not length or real is None:
        return None
    first = first_waits(c.run)
    alone_ns = first.mean() if length == 1 and len(first) else 0.0  # its only wait
    return max(length * real.value - alone_ns, 0.0)


def _of_epoch(c: Context, wait_ns: float, rest_ns: float) -> float:
    """The share of an epoch that a wait takes, in which some batches may have been made."""
    part = wait_ns / max(wait_ns + rest_ns, 1.0)
    return part if c.gap.starts is None else min(part, c.gap.share("epoch starts"))


def late(c: Context, cause: str | None) -> tuple[float, float, Start] | None:
    """How later epochs start, where that matters and has this cause: see Start.

    That is the mean first wait, its share of the time, and its parts.
    """
    waits_ns, rest_ns = first_waits(c.run), _rest_of_epoch_ns(c)
    later = waits_ns if c.loader.ready_batches else waits_ns[1:]
    if not len(later):
        raise Skip("only one epoch was seen to start")
    if rest_ns is None:
        raise Skip("the length of an epoch is not known")
    mean_ns = later.mean()
    cost, start = _of_epoch(c, mean_ns, rest_ns), mean_start(c.run) or Start(mean_ns)
    least_ns, worker_ns = max(MOSTLY * start.wait_ns, 1.0), start.begun_ns + start.init_ns
    most = None  # the rule of what it is mostly spent on
    if start.index_ns >= max(least_ns, worker_ns):
        most = "sampler start"
    elif worker_ns >= least_ns:
        most = "worker start"
    elif start.first_ns >= least_ns:
        most = "workers' first batch"
    return None if cost < MATTERS or most != cause else (mean_ns, cost, start)


@rule(
    "epoch boundaries",
    source=f"{EPOCH_STARTS}; PyTorch's documentation of persistent_workers",
    of=STARTS,
)
def epoch_boundaries(c: Context) -> Finding | None:
    """Every epoch begins with a long wait, for no reason that was measured.

    Shown by first waits from the second epoch on that are 5% of the time.
    Excluded by starting workers, a first sample or a sampler that takes half of them.
    """
    found = late(c, None)
    if found is None:
        return None
    (mean_ns, cost, _), workers, alone = found, c.loader.workers, c.gap.loader_only
    if workers == 0 and len(c.rows) and mean_ns < TWICE * np.median(c.batches.wait_ns):
        return None  # as for every batch
    sure = bool(workers and c.loader.persistent_workers)
    batch_ns = alone.value * workers if alone and workers else 0.0
    do: list[Do] = [Do("make the first batch of an epoch cheaper, or epochs longer", BEGINS)]
    if mean_ns <= TWICE * batch_ns:
        because = f"most of it is the first batch, which takes one worker {duration(batch_ns)}"
        sure, do = True, [Do("make epochs longer, or batches smaller", because)]
        line = c.stages.line if c.model is not None else None
        if line is not None and line.share >= DOMINATES:
            part, place = line.share / TWICE, line.place
            faster = less(part) + sooner(c, part * batch_ns)
            do.insert(0, Do(f"make {line.function} twice as fast", because, place, faster, TWICE))
    elif workers:
        because = f"it ends starting workers; what the dataset does first stays: {BEGINS}"
        do = live_on(c, because) or do
    return Finding(
        f"Each epoch starts with a wait of {duration(mean_ns)}, {share(cost)} of its time.",
        do,
        sure=sure,
        cost=cost,
    )


def live_on(c: Context, because: str) -> list[Do]:
    """To let workers live on from epoch to epoch, where they end with each."""
    name, lives_on = c.setting("persistent_workers"), c.loader.persistent_workers
    return [Set(name, False, True, because, LIVE_ON)] if name and lives_on is False else []


@rule("worker start", source=f"{EPOCH_STARTS}; {SIMULATED}", of=STARTS)
def worker_start(c: Context) -> Finding | None:
    """Every epoch waits for workers that start, or are initialised, slowly.

    Shown by a slowest worker whose start and worker_init_fn take half of an epoch's first wait.
    """
    found = late(c, "worker start")
    if found is None:
        return None
    (_, cost, start), method = found, c.loader.start_method
    do = live_on(c, "they then start once, not in each epoch")
    took, how = duration(max(start.begun_ns, start.init_ns)), f" by {method}" if method else ""
    says = f"Each epoch starts {took} late: starting its workers{how} takes that long."
    if start.init_ns > start.begun_ns:
        function = c.loader.worker_init or "worker_init_fn"
        says = f"Each epoch starts with {took} of {function}, the worker_init_fn, in every worker."
        do.append(Do(f"make {function} cheaper"))
    elif method in ("spawn", "forkserver"):
        do += _sending_less(c, first=False)
    return Finding(says, do or [Do("make epochs longer")], cost=cost)


def _sending_less(c: Context, *, first: bool) -> list[Do]:
    """What to do about what workers are sent when they start: of the first epoch, or later ones."""
    rows = [
        (each.ready_ns - each.start_ns, each.pickling_ns, each.sent_bytes, each.unpickling_ns)
        for each in c.run.worker_starts
        if (each.epoch == 0) is first and each.sent_bytes
    ]
    known = [row for row in rows if None not in row]
    what, how = "keep the dataset small", "hold paths, open files in the worker, or hold tensors"
    if not known:
        return [] if first else [Do(what, how)]
    took_ns, pickling_ns, sent_bytes, reading_ns = np.array(known, float).mean(axis=0).tolist()
    importing_ns = took_ns - pickling_ns - reading_ns
    because = (
        f"a worker takes {duration(took_ns)} to start: {duration(pickling_ns)} to pickle all "
        f"{size(sent_bytes)} that it is sent, {duration(importing_ns)} to start Python and import, "
        f"and {duration(reading_ns)} to unpickle"
    )
    if importing_ns <= pickling_ns + reading_ns:
        return [Do(what, f"{how}; {because}")]
    imports = "what is outside of if __name__ == '__main__' is done in each worker too"
    return [Do("import less in the main module", f"{imports}; {because}"), Do(what, how)]


@rule("workers' first batch", source=f"{EPOCH_STARTS}; {SIMULATED}", of=STARTS)
def first_batch(c: Context) -> Finding | None:
    """Every epoch waits for what workers do before and in their first batch.

    Shown by a first batch that takes its worker longer than others, by half of the epoch's first
    wait.
    Excluded by starting workers, or a sampler, that takes half.
    """
    found = late(c, "workers' first batch")
    if found is None:
        return None
    (line, _), usual, longer_ns = seen_at(c.run, "start"), c.stages.line, found[2].first_ns
    does = f"is then mostly in {line.name}" if line else "fills a shuffle buffer, or opens files"
    place, half = line.place if line else None, sooner(c, longer_ns / TWICE)
    do = [Do("make the shuffle buffer half as large", "or fill it bit by bit", place, half)]
    if line and (usual is None or usual.function != line.function):
        because = "what it makes may be kept in a file, or be made once, before workers start"
        do = [Do(f"make {line.function} twice as fast", because, place, half, TWICE)]
    elif c.loader.sampler:
        do = [Do("make the first batch of an epoch cheaper, or epochs longer", BEGINS, place)]
    if c.loader.sampler:  # a stream begins anew
        do = live_on(c, "workers keep what they have opened or listed") or do
    return Finding(
        f"In each epoch a worker takes {duration(longer_ns)} longer for its first batch than for "
        f"others: {c.loader.dataset or 'the dataset'} {does}.",
        do,
        cost=found[1],
    )


def sooner(c: Context, ns: float) -> Change:
    """Each epoch starts, or ends, so much sooner."""
    starts, length = c.gap.starts, length_of_epochs(c.run)
    if starts is None or not length:
        return Change()
    return Change({"starts": max(1 - ns / max(starts.value * length, 1.0), 0.0)})


@rule("epoch ends", source="the waits that end epochs, compared with whole epochs", of=STARTS)
def epoch_ends(c: Context) -> Finding | None:
    """Every epoch ends with a long wait, after which no batch comes.

    Shown by such waits that are 5% of the time; where training leaves its epochs early, by the time
    that the loader's iterator takes to end.
    Excluded by `iter(loader)` for every batch.
    """
    waits_ns = [wait_ns for wait_ns in ends_ns(c.run).values() if wait_ns is not None]
    rest_ns = _rest_of_epoch_ns(c)
    if len(waits_ns) <= 1 or rest_ns is None:
        raise Skip("fewer than two epochs were served to their ends")
    mean_ns, firsts_ns = float(np.mean(waits_ns)), first_waits(c.run)
    cost = _of_epoch(c, mean_ns, rest_ns + (firsts_ns.mean() if len(firsts_ns) else 0.0))
    if cost < MATTERS or c.found(recreated):
        return None
    (line, call), does = seen_at(c.run, "end"), "end"
    what, place, because = "do less in the dataset after its last sample", None, ""
    if line is not None:
        does, place = f"are in {line.name}", line.place
        what = f"do less at the end of {line.function}"
        if call is not None and THREADS.fullmatch(call.function):
            does = f"wait for threads of their own in {call.name}"
            what = f"end the threads of {line.function} with its last sample"
            because = "they may still be at work for samples that were served already"
            if usual_ends(c.run)[0].cause == "broken off":
                what = f"end the threads of {line.function} once training has left the epoch"
                because = "they go on with what they were given: shutdown(cancel_futures=True)"
    do: list[Do] = [Do(what, because, place, sooner(c, mean_ns))]
    if line is None and c.loader.sampler and c.loader.workers:
        do = live_on(c, "they then end once, not in each epoch") or do
    return Finding(
        f"Each epoch ends with a wait of {duration(mean_ns)}, {share(cost)} of its time, after its "
        f"last batch{f': its workers {does}' * bool(c.loader.workers)}.",
        do,
        cost=cost,
    )


@rule("sampler start", source="time to draw indices in the training process", of=STARTS)
def sampler_start(c: Context) -> Finding | None:
    """Every epoch waits for the sampler's first indices.

    Shown by drawing indices that takes half of an epoch's first wait.
    """
    found, sampler = late(c, "sampler start"), c.loader.sampler or "the sampler"
    if found is None:
        return None
    once = "do in its constructor what is the same for every epoch"
    return Finding(
        f"Each epoch starts with {duration(found[2].index_ns)} in which {sampler} makes its first "
        "indices, in the training process.",
        [Do(*OF_SAMPLER.get(sampler, ("yield indices as they are made", once)))],
        cost=found[1],
    )


@rule("loader re-created", source="epochs that end after a batch", of=("epoch starts", "waiting"))
def recreated(c: Context) -> Finding | None:
    """`iter(loader)` is called for every batch.

    Shown by nine of ten epochs, and five or more, that are broken off after one or two batches, and
    first waits and ends of 5% of the time.
    """
    steps, lengths = c.run.steps, epoch_lengths(c.run)
    broken = [end for end in c.run.ends if end.cause == "broken off"]
    anew = len({end.epoch for end in broken if lengths.get(end.epoch, TWICE + 1) <= TWICE})
    if anew < max(FEWEST_LOADERS, (1 - FEW) * len(lengths)):
        return None
    elapsed_ns = int(steps.request_ns[-1] - steps.request_ns[0])
    firsts_ns = steps.wait_ns[:-1][steps.batch[:-1] == 0]
    waited_ns = int(firsts_ns.sum())
    ended_ns = sum(end.wait_ns or 0 for end in broken)
    if elapsed_ns <= 0 or waited_ns + ended_ns < MATTERS * elapsed_ns:
        return None
    return Finding(
        f"iter(loader) is called for every batch ({anew:,} times), and each call waits "
        f"{duration(waited_ns / len(firsts_ns))} for a first batch.",
        [Do("keep the iterator between steps", "batches = iter(loader) once, then next(batches)")],
        cost=(waited_ns + ended_ns) / elapsed_ns,
    )


@rule("slow first batch", source=EPOCH_STARTS, of=STARTS)
def slow_first_batch(c: Context) -> Finding | None:
    """The first batch of the run takes long; first batches of later epochs do not.

    Shown by a first wait of at least one second and a fifth of the run; or, if only one epoch was
    seen, by one that is a fifth of the time lost.
    Excluded by later epochs that start as slowly, and a batch that was ready before.
    """
    waits_ns, rest_ns, steps = first_waits(c.run), _rest_of_epoch_ns(c), c.run.steps
    if not len(waits_ns) or c.loader.ready_batches:
        raise Skip("no epoch was seen to start")
    taken_ns, first_ns = steps.wait_ns + np.maximum(steps.step_ns, 0), int(waits_ns[0])
    run_ns = int(taken_ns.sum())
    if UNKNOWN not in steps.request_ns:
        run_ns = int((steps.request_ns + taken_ns).max() - steps.request_ns.min())
    is_noticed = first_ns >= NOTICED_NS and first_ns >= LARGE * run_ns
    cost, lost = None, c.gap.share("lost")
    if rest_ns is not None and c.gap.epochs == 1:  # else others tell what later ones cost
        cost = _of_epoch(c, first_ns, rest_ns)
        is_noticed = is_noticed or (lost >= LARGE and cost >= max(LARGE * lost, MATTERS))
    if rest_ns is None and not is_noticed:
        raise Skip("the length of an epoch is not known")
    if not is_noticed or (len(waits_ns) > 1 and first_ns < TWICE * waits_ns[1:].mean()):
        return None
    start, do = mean_start(c.run, True), list[Do]()
    if start is not None and start.begun_ns >= MOSTLY * start.wait_ns:
        do = _sending_less(c, first=True)
    because = "or find what else comes first: filling a shuffle buffer, imports in spawned workers"
    line, _ = seen_at(c.run, "start")
    if line is not None and start is not None and start.first_ns >= MOSTLY * start.wait_ns:
        do = [Do(f"make {line.function} cheaper", "keep what it makes in a file", line.place)]
    return Finding(
        f"The first batch came after {duration(first_ns)}: {share(first_ns / max(run_ns, 1))} of "
        "this run. That happens once, and matters in short runs.",
        do or [Do("keep file lists and indexes in a file", because)],
        cost=cost,
    )
