"""Loaders that cannot keep up: too few workers, none, a queue that is too shallow, or the order."""

from __future__ import annotations

import math

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import ARMS
from loadeval.estimate.stats import Estimate
from loadeval.findings import (
    DOMINATES,
    FEW,
    FEWEST_BATCHES,
    LARGE,
    MATTERS,
    MOSTLY,
    SLOWER_WORKER,
    TWICE,
)
from loadeval.findings.engine import (
    DIAGNOSE,
    IN_PYTHON,
    NO_IDEAL,
    Context,
    Do,
    Finding,
    Set,
    Skip,
    rule,
)
from loadeval.model.costs import Change, in_share
from loadeval.model.model import cheapest
from loadeval.words import counted, duration, number, share

TIMES = "times of real, ideal and loader-only batches"
SIMULATED = "times of the stages inside the loader, and a simulation of it without this"
OWN_PART = "torch.utils.data.get_worker_info() in __iter__: part id of num_workers"
UNORDERED = Change({"in_order": False})
WITHOUT_SLOW_SAMPLES = Change(costs={"slow samples": 1e9})
"""So many times as fast: they take as long as others."""


def best_workers(c: Context) -> Change:
    """As many workers as bring the most; none where that is as many as there are."""
    if c.model is None:
        return Change()
    best = c.model.best_workers()
    return Change() if best == c.loader.workers else c.model.with_workers(best)


def more_workers(c: Context) -> list[Do]:
    """To raise the number of workers, if that helps, and to keep them."""
    change, name = best_workers(c), c.setting("num_workers")
    proposed = change.settings.get("num_workers")
    if proposed is None or name is None or proposed <= (c.loader.workers or 0):
        return []
    is_stream = c.loader.backend.startswith("torch.") and not c.loader.sampler
    because = f"each has to serve its own part: {OWN_PART}" if is_stream else ""
    do: list[Do] = [Set(name, c.loader.workers, proposed, because, change)]
    kept = c.setting("persistent_workers")
    if kept and c.loader.persistent_workers is False and not c.loader.workers:
        do.append(Set(kept, False, True, "they start once, not in each epoch"))
    return do


def best_prefetch(c: Context) -> Change:
    """The least prefetch factor, of twice to 16 times the present one, that comes near the best.

    No more, for each batch in the queue takes memory.
    """
    if c.model is None or not c.loader.workers:
        return Change()
    now = c.model.settings["prefetch_factor"]
    changes = [Change({"prefetch_factor": times * now}) for times in (2, 4, 8, 16)]
    return changes[cheapest([c.model.simulate(each, in_range=False) for each in changes])]


def deeper_queue(c: Context) -> list[Do]:
    """To keep more batches ready."""
    depth, change = c.loader.prefetch_depth, best_prefetch(c)
    factor, total = c.setting("prefetch_factor"), c.setting("prefetch_depth")
    if depth and factor:
        present = depth // (c.loader.workers or 1)
        proposed = change.settings.get("prefetch_factor", 2 * present)
        return [Set(factor, present, proposed, change=change)]
    return [Set(total, depth, 2 * depth)] if depth and total else [Do("prefetch more batches")]


def in_stalls(c: Context) -> float:
    """The share of the waiting that is above twice the median wait."""
    wait_ns = c.batches.wait_ns
    beyond_ns = wait_ns - TWICE * np.median(wait_ns)
    return float(beyond_ns[beyond_ns > 0].sum() / max(wait_ns.sum(), 1))


@rule("zero workers", source="PyTorch's documentation of num_workers", undo=best_workers)
def zero_workers(c: Context) -> Finding | None:
    """Nothing is loaded ahead: each batch is loaded while training waits for it.

    Shown by no workers; where their number is not known, by waits as long as loading takes.
    Excluded by waits under a quarter of that, as of a loader that a thread reads ahead.
    """
    waited, real = c.gap.real_wait, c.gap.real
    if c.loader.workers is None and c.gap.loader_only is None:
        raise Skip("the loader's number of workers is not known")
    if not c.loses or not c.loads_on_request or waited is None or real is None:
        return None
    if any(event.kind == "read in a thread" for event in c.run.events):
        raise Skip("the loader is read in another thread than the main one, which may load ahead")
    do, name = more_workers(c), c.setting("num_workers")
    if c.model is None and name and c.loader.workers == 0:
        needed = math.ceil(waited.value / max(real.value - waited.value, 1.0))
        count = max(min(needed, (c.cpus.usable or 2) - 1), 1)
        do = [Set(name, 0, count, "measure: workers take time to start")]
    elif c.model is None:  # else workers bring nothing, and others name what takes long
        do = [Do("load in the background", "in a worker, or a thread that keeps batches ready")]
    return Finding(
        f"Nothing is loaded ahead: training waits {share(waited.value / real.value)} of its time, "
        "while each batch is loaded.",
        do,
        cost=c.waiting * (1 - in_stalls(c)) if c.is_log else None,
    )


@rule("shallow queue", source=f"{TIMES}, and stalls", undo=best_prefetch)
def shallow_queue(c: Context) -> Finding | None:
    """The loader alone is fast enough, and its queue runs empty now and then.

    Shown by waits over twice their median that are more than a fifth of the waiting.
    Excluded by waits that are about equal, a loader that does not keep up alone, and a deeper queue
    that brings under 5%.
    """
    if c.gap.steady_speedup is None:
        raise Skip(NO_IDEAL)
    if not c.loses or c.loads_on_request:
        return None
    required, part = c.gap.required, in_stalls(c)
    if required is None:
        raise Skip(f"the loader alone was not timed: {DIAGNOSE}")
    if required.value > 1 or c.waiting < MATTERS or part <= LARGE:
        return None
    if c.loader.prefetch_depth is None:
        raise Skip("the loader's prefetch depth is not known")
    if c.model is not None and c.gained(best_prefetch(c)) < MATTERS:
        return None
    line, at = c.stages.line if c.model else None, ""
    if line is not None and line.share >= DOMINATES:
        at = f" {share(line.share)} of loading is spent in {line.place}."
    return Finding(
        f"The loader alone is fast enough, but its queue runs empty now and then: training waits "
        f"{share(c.waiting)} of its time.{at}",
        deeper_queue(c),
        sure=required.high is not None and required.high <= 1,
        cost=c.waiting * part,
    )


@rule(
    "waiting",
    source=f"{TIMES}; the bound is that of TensorFlow's input-pipeline analyser",
    turn="last",
)
def waiting(c: Context) -> Finding | None:
    """Time is lost in waiting, and no single line, stage or cause has it.

    Shown by a loader that alone takes longer for a batch than an ideal iteration; if it does not,
    or that was not measured, by training that waits 5% of the time. It costs what other findings
    leave of the waiting and, where the loader is too slow and no CPU is free, of slower steps.
    Excluded by a loader that loads only while it is waited for; where the loader alone was not
    timed, by any finding of what training waits for.
    """
    if not c.loses or c.loads_on_request or not c.waiting:
        return None
    required, says = c.gap.required, f"Training waits {share(c.waiting)} of its time"
    if required is None:
        if c.explains_waiting:
            return None
        says += ". Whether the loader is too slow or its queue too shallow was not measured."
        if c.is_log:
            says = (
                f"Training waits for batches {share(c.waiting)} of its time. What it would gain "
                "without these waits was not measured: it may be less or more."
            )
        do = Do(DIAGNOSE, f"{IN_PYTHON}: it times the loader alone, and looks inside")
        return Finding(says, [do], sure=not c.is_log, cost=c.waiting)
    if required.value > 1:
        return _too_slow(c, required)
    if c.waiting < MATTERS:
        return None
    return Finding(f"{says}, though the loader alone is fast enough.", sure=False, cost=c.waiting)


def _too_slow(c: Context, required: Estimate) -> Finding:
    """What is said of a loader that must become faster by `required`."""
    do, inside, left = more_workers(c), c.model and c.stages, c.cpus.left
    says = f"The loader alone is too slow: it must be {required:times} as fast to keep up."
    if inside and not c.explains_waiting:  # else what to make cheaper is said with its line
        parts = {part.name: part.share for part in inside.transforms}
        parts = parts or {line.place: line.share for line in inside.code}
        parts["collate"] = c.collating
        named = [name for name in parts if parts[name] >= MATTERS]
        named = sorted(named, key=lambda name: -parts[name])[:3]
        most = ", ".join(f"{name} {share(parts[name])}" for name in named)
        do.append(Do("make loading cheaper", f"most of it is in {most}" if most else ""))
    if inside and c.cpus.are_busy and (inside.cpu_ns or 0.0) >= MOSTLY * c.work_ns:
        says = (
            f"Loading takes {duration(inside.cpu_ns or 0.0)} of CPU a batch, and no CPU is free: "
            f"the loader must be {required:times} as fast to keep up."
        )
    if not inside and not do:
        because = "how many CPUs were free was not measured"
        if c.cpus.are_busy:
            because = f"no CPU is free of the {c.cpus.usable} that training may use"
        elif left is not None:
            because = f"{number(left)} CPUs are left for workers"
        name = c.setting("num_workers")
        more = f"{name} above {c.loader.workers}" if name else "more workers or threads"
        do = [Do(f"try {more}, or make loading cheaper", because)]
    return Finding(
        says,
        do,
        sure=required.low is None or required.low > 1,
        cost=c.waiting + (c.contention if c.cpus.are_busy else 0.0),
    )


def _look_at_samples(c: Context) -> tuple[str, Do]:
    """The indices of those that are slow most often, and to look at these."""
    slow = sorted(c.stages.slow_samples, key=lambda each: (-each.times, -each.longest_ns))[:3]
    indices = ", ".join(str(sample.index) for sample in slow)
    because = "make them smaller, or leave them out"
    change = WITHOUT_SLOW_SAMPLES if c.loses else None
    return indices, Do(f"look at samples {indices}", because, change=change)


@rule("head-of-line blocking", source=SIMULATED, undo=lambda _: UNORDERED + WITHOUT_SLOW_SAMPLES)
def head_of_line(c: Context) -> Finding | None:
    """Finished batches wait for slower ones before them.

    Shown by training that waits while a later batch is ready, 5% of the time.
    Excluded by one worker that is slower than the others.
    """
    waited_ns = c.stages.head_of_line_ns
    if not c.loses or waited_ns is None or c.gap.real is None or slow_worker_of(c) is not None:
        return None
    of_time = waited_ns / c.gap.real.value
    if of_time < MATTERS:
        return None
    do: list[Do] = []
    if c.loader.in_order:
        because = "training then sees batches in another order; torch 2.6 or later"
        do.append(Set("in_order", True, False, because, UNORDERED))
    if c.stages.slow_samples:
        do.append(_look_at_samples(c)[1])
    return Finding(
        f"Finished batches wait for slower ones before them: in {share(of_time)} of the time "
        "training waits while a later batch is ready.",
        do,
        # A log has no model that tells it from what makes each batch slow.
        cost=of_time if c.is_log and of_time < MOSTLY * c.waiting else None,
    )


@rule("slow samples", source=SIMULATED, undo=lambda _: WITHOUT_SLOW_SAMPLES)
def slow_samples(c: Context) -> Finding | None:
    """A few samples take far longer than the others.

    Shown by samples of three times the typical time in a tenth of the batches or fewer; in half of
    them where the same ones are slow again. These are found, without a cost, where too few batches
    count to say that time is lost.
    Excluded by finished batches that wait for them, and slow samples in more batches: those are
    what samples are like.
    """
    slow = c.stages.slow_samples
    if not slow or c.model is None or c.found(head_of_line):
        return None
    comes_again = any(sample.times > 1 for sample in slow)
    part = (c.model.costs["part slow samples"] > 0).mean()
    if part > (MOSTLY if comes_again else FEW):
        return None
    if not c.loses and (not comes_again or c.gained(WITHOUT_SLOW_SAMPLES) < MATTERS):
        return None
    indices, look = _look_at_samples(c)
    return Finding(
        f"A few samples take up to {duration(slow[0].longest_ns)}, where a typical one takes "
        f"{duration(c.stages.sample_ns or 0.0)}: those with index {indices}.",
        [look],
        sure=c.loses,
        cost=None if c.loses else 0.0,
    )


def slow_worker_of(c: Context) -> tuple[int, float, float] | None:
    """The worker that is slower than the others: its number, its batch, and theirs in ns."""
    workers = [each for each in c.stages.workers if each.batches >= FEWEST_BATCHES]
    if len(workers) <= 1:
        return None
    slowest = max(workers, key=lambda each: each.typical_ns)
    others_ns = np.median([each.typical_ns for each in workers if each is not slowest])
    if slowest.typical_ns < max(SLOWER_WORKER * others_ns, 1.0):
        return None
    return slowest.worker, slowest.typical_ns, others_ns


def lacks_cpu(c: Context, worker: int) -> bool:
    """Whether a worker would not be slow if it did not wait for a CPU."""
    if c.model is None:
        return False
    costs = c.model.costs
    own = costs.worker == worker
    if not own.any() or own.all():
        return False
    taken_ns = costs.cpu_ns + costs.blocked_ns + costs.read_ns
    return bool(np.median(taken_ns[own]) < SLOWER_WORKER * np.median(taken_ns[~own]))


def balanced(c: Context) -> Change:
    """The slow worker takes as long as the others."""
    slow = slow_worker_of(c)
    if slow is None:
        return Change()
    worker, own_ns, others_ns = slow
    return Change(
        costs=lambda costs: in_share(costs, np.where(costs.worker == worker, others_ns / own_ns, 1))
    )


@rule("slow worker", source=SIMULATED, undo=balanced)
def slow_worker(c: Context) -> Finding | None:
    """One worker takes longer for a batch than the others.

    Shown by a median batch of 1.5 times that of the other workers, over four batches or more.
    Excluded by a wait for a CPU, without which it would be as fast.
    """
    slow = slow_worker_of(c)
    if not c.loses or slow is None or lacks_cpu(c, slow[0]):
        return None
    worker, own_ns, others_ns = slow
    because = "larger samples or shards, another disk, a busy CPU; in_order=False balances workers"
    return Finding(
        f"Worker {worker} takes {duration(own_ns)} a batch, the others {duration(others_ns)}.",
        [Do(f"find what worker {worker} does that the others do not", because, change=balanced(c))],
    )


@rule("samples served twice", source="content of the first batches of each worker", of=())
def served_twice(c: Context) -> Finding | None:
    """Workers serve the same samples, so that each comes several times an epoch.

    Shown by workers of an iterable dataset that all begin with the same batches, unless those
    batches are all identical.
    Excluded by one worker, and by a sampler.
    """
    workers = c.loader.workers or 0
    if workers <= 1 or c.loader.sampler:
        return None
    known = c.run.stages.take(c.run.stages.fingerprint != UNKNOWN)
    if not len(known):
        raise Skip("the content of batches is not known")
    for _, epoch in known.by("epoch"):
        begins = [tuple(own.fingerprint.tolist()) for _, own in epoch.by("worker")]
        alike = {each[: min(map(len, begins))] for each in begins}
        if len(begins) == workers and len(alike) == 1 < len({*alike.pop()}):  # they are no constant
            break
    else:
        return None
    do = f"give each worker its own part of the samples: all come {workers} times"
    return Finding(
        f"The first batches of all workers are the same: every sample comes {workers} times an "
        "epoch, which takes as many times as long.",
        [Do(do, OWN_PART, c.loader.made_at)],
        cost=1 - 1 / workers,
        ahead=True,
    )


@rule("few shards", source=SIMULATED, undo=lambda c: Change({"num_workers": c.loader.workers}))
def few_shards(c: Context) -> Finding | None:
    """Some workers have nothing to load: the dataset has fewer shards than workers.

    Shown by workers that made no batch.
    Excluded by epochs of under four batches for each worker.
    """
    workers, shards = c.loader.workers or 0, c.loader.shards
    if c.model is None:
        raise Skip("the loader was not looked into, or ideal loading not measured")
    idle = workers - c.model.settings["num_workers"]
    # Epochs of few batches leave workers without one, too.
    longest = max(len(part) for _, part in c.run.stages.by("epoch"))
    if not c.loses or idle <= 0 or longest < FEWEST_BATCHES * workers:
        return None
    has = f": the dataset has {counted(shards, 'shard')}" if shards and shards < workers else ""
    made_by = (c.loader.setting_names or {}).get("num_shards")
    made = f", by {made_by}" if made_by else ""
    because = f"of equal size{made}; any more workers only take memory"
    change = Change({"num_workers": workers})
    return Finding(
        f"{idle} of {workers} workers made no batch{has}.",
        [Do(f"split the data into {workers} shards or more", because, change=change)],
    )


@rule("uneven shards", source="waits before the last batch of any worker, and after it")
def uneven_shards(c: Context) -> Finding | None:
    """Some workers finish long before the epoch ends, and the others load the rest.

    Shown by the batches after some worker's last one, two for each worker or more: training waits
    longer for these than for those before, by 5% of the time.
    It has no cost in an alternating run, whose blocks hold more or less of the tail than epochs.
    """
    workers, shards, steps = c.loader.workers or 0, c.loader.shards, c.run.steps
    whole = {end.epoch for end in c.run.ends if end.cause == "exhausted"}
    epochs = [part for epoch, part in c.run.stages.by("epoch") if epoch in whole]
    if not c.stages.workers:
        return None
    if not epochs or not len(c.rows):
        raise Skip("no epoch was served to its end")
    tails = list[np.ndarray]()
    for part in epochs:
        place = np.arange(len(part))
        last = [place[part.worker == worker].max() for worker in {*part.worker} - {UNKNOWN}]
        tail = place > min(last, default=len(part))
        tails.append(tail & (tail.sum() >= TWICE * len(last)))
    if sum(tail.any() for tail in tails) <= len(tails) / 2:
        return None
    parts, tail = Columns.concat(epochs), np.concatenate(tails)
    # In real blocks, whatever is read in them, once the loader has refilled its queue; by time, for
    # an alternating run numbers batches otherwise than the loader.
    looked, place = steps.instrumented & (steps.arm == ARMS.index("real")), np.arange(len(steps))
    began = np.maximum.accumulate(np.where(looked, -1, place))
    is_steady = looked & (place - began > c.run.header.warmup)
    is_steady[c.rows] = True
    at = np.searchsorted(steps.request_ns, parts.delivered_ns, side="right") - 1
    counts = (at >= 0) & is_steady[at]
    counts &= parts.delivered_ns <= (steps.request_ns + steps.wait_ns)[at]
    wait_ns = parts.delivered_ns - parts.requested_ns
    in_tail, before = wait_ns[tail & counts], wait_ns[~tail & counts]
    if min(len(in_tail), len(before)) < FEWEST_BATCHES:
        raise Skip("too few steady batches in the tails of epochs", c.run.batches)
    tail_ns, before_ns = in_tail.mean(), before.mean()
    lost_ns = max(tail_ns - before_ns, 0.0) * tail.mean()
    step_ns = c.batches.step_ns.mean() if c.gap.ideal is None else c.gap.ideal.value
    cost = lost_ns / (step_ns + before_ns + lost_ns)
    if cost < MATTERS:
        return None
    odd = f": {shards} cannot be divided evenly" if shards and shards % workers else ""
    because = f"shards of equal size, and a multiple of {workers} of them{odd}"
    return Finding(
        f"Some workers end early: the last {share(tail.mean())} of an epoch's batches come "
        f"from fewer of the {workers} workers. Training waits {duration(tail_ns)} for each of "
        f"these, and {duration(before_ns)} for one before.",
        [Do(f"give each of the {workers} workers the same number of samples", because)],
        cost=cost if c.is_log else None,
    )
