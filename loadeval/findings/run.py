"""How a run goes: stalls, outliers, trends, memory that grows, padding, the validation loader."""

from __future__ import annotations

import math

import numpy as np

from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS
from loadeval.estimate.epochs import outliers as outliers_of
from loadeval.estimate.gap import mean_of
from loadeval.estimate.memory import HOUR_NS, LEAST_SHARE, bytes_kept, growth, last_read
from loadeval.estimate.metrics import padding as padding_of
from loadeval.estimate.stats import slope, spearman
from loadeval.estimate.steady import length_of_epochs, steady
from loadeval.findings import (
    DOMINATES,
    FEW,
    FEWEST_STALLS,
    LARGE,
    MANY_CPUS,
    MATTERS,
    MOSTLY,
    PARTS,
    SIGNIFICANT,
    TRIFLE,
    TWICE,
)
from loadeval.findings.cpus import oversubscription
from loadeval.findings.engine import DIAGNOSE, IN_PYTHON, Context, Do, Finding, Skip, rule
from loadeval.findings.workers import deeper_queue, head_of_line, slow_samples
from loadeval.words import counted, duration, number, share, size

SLOW_BATCHES = "find what slows a few batches"
FEW_BATCHES = "large files, a shard boundary, a cold cache"
"""Why a few batches are slow."""


def _needs(c: Context, batches: int) -> None:
    if len(c.rows) < batches:
        raise Skip(f"{len(c.rows)} steady-state batches, of {batches} needed")


@rule("stalls", source="the number of waits over twice the median iteration, and their share")
def stalls(c: Context) -> Finding | None:
    """Most of the waiting is for a few batches.

    Shown by three waits or more of over twice the median iteration, for a tenth of the batches or
    fewer, which have half of all waiting, where that is 5% of the time. Where the pairs of an
    alternating run are too few to show that time is lost, they have no cost.
    Excluded by head-of-line blocking and slow samples, which name what makes them.
    """
    _needs(c, PARTS)
    wait_ns, iteration_ns = c.batches.wait_ns, c.batches.wait_ns + c.batches.step_ns
    stalled_ns = wait_ns[wait_ns > TWICE * np.median(iteration_ns)]
    if not FEWEST_STALLS <= len(stalled_ns) <= FEW * len(wait_ns):
        return None
    if stalled_ns.sum() < max(MATTERS * iteration_ns.sum(), MOSTLY * wait_ns.sum(), 1):
        return None
    if c.found(head_of_line) or c.found(slow_samples):
        return None
    is_shown = not c.gap.pairs or c.loses
    longest_ns = -np.sort(-stalled_ns)  # those that hardly matter are left out
    longest_ns = longest_ns[: 1 + (longest_ns.cumsum() < (1 - FEW) * stalled_ns.sum()).sum()]
    of_time = float(longest_ns.sum() / iteration_ns.sum())
    because = f"{FEW_BATCHES}, retries"
    look = Do(SLOW_BATCHES, because)
    line = c.stages.line if c.model is not None else None
    if line is not None and line.share >= DOMINATES:
        because = f"workers are seen there {share(line.share)} of loading; {because}"
        look = Do(f"find what {line.function} does for a few batches", because, line.place)
    return Finding(
        f"{len(longest_ns):,} of {len(wait_ns):,} batches cause "
        f"{share(longest_ns.sum() / wait_ns.sum())} of the waiting, {share(of_time)} of the "
        "training time.",
        [look, *(deeper_queue(c) if c.loader.workers and is_shown else [])],
        sure=is_shown,
        cost=min(of_time, c.waiting) if is_shown else 0.0,
    )


@rule("outliers", source="twice the median, as in Amazon SageMaker's PT_dataloader_analysis")
def outliers(c: Context) -> Finding | None:
    """A few batches take more than twice the median, and nothing else that was found makes them.

    Shown by at most 5% of the batches, which cost 1% of the time by what they exceed the median.
    Excluded by long waits, where a finding says what training waits for.
    """
    _needs(c, PARTS)
    steps, iteration_ns = c.run.steps, c.batches.wait_ns + c.batches.step_ns
    rows = np.intersect1d(outliers_of(c.run).row, c.rows)
    if len(rows) > MATTERS * len(c.rows):
        return None
    waits = steps.wait_ns[rows] > steps.step_ns[rows]
    if c.explains_waiting or c.found(stalls):  # then it is no riddle
        rows, waits = rows[~waits], waits[~waits]
    beyond_ns = steps.wait_ns[rows] + steps.step_ns[rows] - float(np.median(iteration_ns))
    cost = float(beyond_ns.sum()) / max(float(iteration_ns.sum()), 1.0)
    if cost < TRIFLE:
        return None
    because = "a checkpoint, a validation, Python's garbage collection, another program"
    kinds = [
        (waits, "wait was long", "waits were long", Do(SLOW_BATCHES, FEW_BATCHES)),
        (~waits, "step was slow", "steps were slow", Do("find what slows a few steps", because)),
    ]
    kinds = [kind for kind in kinds if kind[0].any()]
    parts = " and ".join(counted(int(of.sum()), one, many) for of, one, many, _ in kinds)
    return Finding(
        f"{len(rows):,} of {len(c.rows):,} batches took over twice the median: {parts}. That costs "
        f"{share(cost)} of the training time.",
        [do for *_, do in sorted(kinds, key=lambda kind: -kind[0].sum())],
    )


@rule("drift", source="Theil-Sen slope of twenty medians; the halves' means, beyond their 95% CI")
def drift(c: Context) -> Finding | None:
    """Training becomes slower all the time, or one half of the run was slower than the other.

    Shown by medians of twenty parts of the run that rise by 10% in all, and in both halves; or by
    halves whose mean iterations differ by 5%, and beyond chance.
    Excluded by halves that are alike. Training that becomes slower once, at some batch, has halves
    that differ, and not both of these become slower.
    """
    _needs(c, 2 * PARTS)
    total_ns = c.batches.wait_ns + c.batches.step_ns
    whole = c.batches.replace(
        total_ns=total_ns, amount=np.ones(len(total_ns)), block=np.zeros(len(total_ns), np.int64)
    )
    halves = [whole.take(rows) for rows in np.array_split(np.arange(len(whole)), 2)]
    medians = np.array([np.median(part) for part in np.array_split(total_ns, PARTS)])
    at = np.arange(PARTS, dtype=np.float64)
    # One step, wherever it is, cannot make both halves slower.
    of_both = (at < PARTS / 2, at >= PARTS / 2)
    trend, *trends = (slope([(at[part], medians[part])]) for part in (at >= 0, *of_both))
    rise = 0.0 if trend is None else trend.value * (PARTS - 1) / float(np.median(medians))
    if rise >= TWICE * MATTERS and all(half and half.low and half.low > 0 for half in trends):
        longer_ns, waits_ns = (
            halves[1][name].mean() - halves[0][name].mean() for name in ("total_ns", "wait_ns")
        )
        because = "losses or outputs kept with their autograd graph, a metric over all batches"
        do = Do("find what grows in the step", because)
        if waits_ns > longer_ns / 2:
            because = "a list or cache that it searches, files that it never closes"
            do = Do("find what grows in the loader", because)
        first_ns, *_, last_ns = medians.reshape(4, -1).mean(axis=1).tolist()
        return Finding(
            f"Training keeps getting slower: an iteration takes {duration(last_ns)} at the end of "
            f"the run, and {duration(first_ns)} at its start.",
            [do],
        )
    first, second = map(mean_of, halves)
    change = second - first
    part = abs(change.value) / max(float(total_ns.mean()), 1.0)
    if change.low is None or change.low <= 0 <= change.bounds[1] or part < MATTERS:
        return None
    slower, do = "slower", Do("look for other work on the machine, heat and growing memory")
    if change.value <= 0:
        because = "a page cache that fills reads faster"
        slower, do = "faster", Do("run an epoch before the one that you measure", because)
    return Finding(
        f"The second half of the run was {share(part)} {slower} than the first: figures of the "
        "whole run average the two.",
        [do],
        {"iteration in the first half, ns": first, "in the second half, ns": second},
    )


@rule("not representative", source="rank correlation of steps with their batches' size and place")
def not_representative(c: Context) -> Finding | None:
    """A step's time depends on its batch, and only some batches were replayed.

    Shown by a rank correlation of 0.5 of steps with the size of their batches, or their place in
    the epoch.
    Excluded by an alternating run, which serves every batch.
    """
    if c.run.header.mode == "alternate":
        return None
    if c.ideal is None:
        raise Skip("no batches were replayed")
    facts = dict[str, float]()
    for says, column in (("place in the epoch", "batch"), ("size in bytes", "nbytes")):
        for run in (c.run,) if column == "batch" else (c.run, c.ideal):
            steps = run.steps.take(steady(run) & (run.steps[column] != UNKNOWN))
            rho = spearman(steps.step_ns, steps[column])
            errors = abs(rho) * math.sqrt(max(len(steps) - 1, 0))
            if abs(rho) >= MOSTLY and errors >= SIGNIFICANT:
                facts[f"rank correlation with {says}"] = rho
    if not facts:
        return None
    return Finding(
        "How long a step takes depends on its batch, so those that were replayed may not stand for "
        "the epoch.",
        [Do(DIAGNOSE, f"{IN_PYTHON}: it serves every batch once")],
        facts,
    )


@rule("process memory", source="Theil-Sen slope of the memory readings")
def process_memory(c: Context) -> Finding | None:
    """The training process keeps more and more.

    Shown by memory that rises in both halves of the run, by 1% of all in an hour.
    Excluded by a rise in one half alone, as it may be chance.
    """
    because = "losses or outputs that are kept: call detach() or item() first"
    return _growing(c, "process", Do("find what training keeps", because))


@rule("worker memory", source="memory of each worker, or the Theil-Sen slope of that of all")
def worker_memory(c: Context) -> Finding | None:
    """The loader's workers keep more and more.

    Shown by the same of the workers, or each of four readings of what they keep that is higher than
    the one before.
    Excluded by growth that levels off, and workers that start anew before it matters.
    """
    because = "a cache or list that the dataset appends to, or lru_cache(None): bound it"
    kept, workers = bytes_kept(c.run), c.loader.workers
    available = last_read(c.run, "memory_available_bytes")
    if kept and workers and available is not None and c.gap.real is not None:
        batches, length = available / kept, length_of_epochs(c.run) or 1.0
        left_ns = batches * c.gap.real.value
        anew = len({start.epoch for start in c.run.worker_starts}) > 1
        if not (anew and length < batches) and left_ns * LEAST_SHARE <= HOUR_NS:
            return Finding(
                f"Each of the {workers} workers keeps {size(1000 * kept / workers)} more after "
                f"1,000 batches. At this rate the {size(available)} that are left are full in "
                f"{duration(left_ns)}, after {batches:,.0f} batches.",
                [Do("find what the dataset keeps", because)],
            )
    return _growing(c, "workers", Do("keep dataset lists in arrays, and bound caches", because))


def _growing(c: Context, subject: str, do: Do) -> Finding | None:
    rate, limit = growth(c.run, subject), last_read(c.run, "memory_limit_bytes")
    whose = "training process" if subject == "process" else subject
    if rate is None or limit is None:
        raise Skip(f"too few memory readings of the {whose} for a trend; run for some minutes")
    if not rate:
        return None
    rises = f"{size(rate)} an hour, of {size(limit)} in all"
    return Finding(f"The memory of the {whose} grows by {rises}.", [do])


@rule("padding", source="masks or lengths of batches; Theil-Sen slope of their steps")
def padding(c: Context) -> Finding | None:
    """Much of the batches is padding, and steps take longer for it. It is not lost to loading.

    Shown by a fifth of the tokens that is padding.
    Excluded by steps that do not follow the number of tokens, by 5% of the time.
    """
    told = padding_of(c.run)
    if told is None:
        raise Skip("no batch told its padding: a mask or lengths")
    gain = None
    if told.step_ns is not None and len(c.rows):
        gain = told.saved_ns / (told.step_ns + float(c.batches.wait_ns.mean()))
    if told.share.value < LARGE or (gain is not None and gain < MATTERS):
        return None
    because = "by a batch sampler that sorts windows by length, or group_by_length=True"
    do = [Do("put samples of like length into a batch", because)]
    says = f"{told.share:share} of the tokens are padding"
    if told.length is not None and told.longest < told.length:
        because = "padding='longest' in place of 'max_length', or DataCollatorWithPadding"
        do.insert(0, Do("pad to the longest of each batch", because))
        says += (
            f": every batch is padded to {told.length:,}, and the longest sequence of a batch is "
            f"{told.longest:,g} at the median"
        )
    return Finding(f"{says}.", do, sure=gain is not None)


@rule("shared machine", source="CPU time of the machine, less that of training and its workers")
def shared_machine(c: Context) -> Finding | None:
    """Others used the CPUs, so that the figures are not of this training alone.

    Shown by other programs that used half a CPU or more.
    """
    used = [level for arm in ARMS if (level := c.cpus.others(arm)) is not None]
    if not used:
        raise Skip("the machine's CPU time was not read during measured batches")
    if max(used) < MANY_CPUS:
        return None
    crowded = c.found(oversubscription)
    says_so = crowded is not None and any("other programs" in do.says for do in crowded.do)
    do = Do("measure again while nothing else runs", "unless training always shares the machine")
    return Finding(
        f"Other programs used up to {number(max(used))} CPUs during this run: results may change "
        "with what else runs.",
        [] if says_so else [do],
    )


@rule("slow validation", source="waits of the validation loader, beside the time of the whole run")
def slow_validation(c: Context) -> Finding | None:
    """Training waits long for the batches of validation.

    Shown by waits in validation that are 5% of the run's time.
    """
    validation, whole = c.others.get("validation"), c.gap.whole
    if validation is None:
        raise Skip("no validation loader was measured: `loadeval run -- COMMAND` measures it too")
    if whole is None or not validation.batches:
        raise Skip("training, or validation, has no batch that counts")
    waited_ns = float(validation.steps.wait_ns.sum())
    own_ns = waited_ns + float(np.maximum(validation.steps.step_ns, 0).sum())
    part = waited_ns / (own_ns + whole.value * c.run.batches)
    if part < MATTERS:
        return None
    own, workers = validation.loader, c.loader.workers
    do = Do("make loading for validation cheaper, or validate less often", where=own.made_at)
    if workers and own.workers == 0:
        says = f"{c.setting('num_workers') or 'workers'} 0 -> {workers} for validation"
        do = Do(says, "as training has", own.made_at)
    settings = ("workers", "prefetch_depth", "persistent_workers", "pinned")
    return Finding(
        f"Of this run {share(part)} is waiting for batches of validation.",
        [do],
        {
            name.replace("_", " "): f"{theirs} in validation, {ours} in training"
            for name in settings
            if (theirs := getattr(own, name)) != (ours := getattr(c.loader, name))
        },
    )
