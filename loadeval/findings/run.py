"""How a run goes: stalls, what grows, padding, batches passed over, validation."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from loadeval.data.columns import UNKNOWN, Column, Columns, Values
from loadeval.data.run import Run
from loadeval.estimate.gap import mean_of
from loadeval.estimate.memory import (
    HOUR_NS,
    LEAST_SHARE,
    Growth,
    bytes_kept,
    growth,
    last_read,
    trend,
)
from loadeval.estimate.metrics import padding as padding_of
from loadeval.estimate.stats import slope, spearman
from loadeval.estimate.steady import length_of_epochs, passed_over, steady
from loadeval.estimate.steady import outliers as outliers_of
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
    WORTH,
)
from loadeval.findings.cpus import FREE_CPUS
from loadeval.findings.engine import DIAGNOSE, IN_PYTHON, Context, Do, Finding, Skip, diagnose, rule
from loadeval.findings.workers import deeper_queue, head_of_line, slow_samples
from loadeval.inside.code import (
    FEWEST_LOOKS,
    Along,
    along_of,
    first_and_last_ns,
    looks_at_steps,
)
from loadeval.words import counted, duration, number, share, size, span

SLOW_BATCHES = "find what slows a few batches"
FEW_BATCHES = "large files, a shard boundary, a cold cache, retries"
"""Why a few batches are slow."""


@rule("stalls", source="the number of waits over twice the median iteration, and their share")
def stalls(c: Context) -> Finding | None:
    """Most of the waiting is for a few batches.

    Shown by three or more waits of over twice the median iteration, in at most a tenth of the
    batches, that have half of all waiting and 5% of the time. They have no cost if an alternating
    run has too few pairs to show a loss.
    Excluded by head-of-line blocking and slow samples, which name what makes them.
    """
    c.needs(PARTS)
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
    of_time = longest_ns.sum() / iteration_ns.sum()
    look = Do(SLOW_BATCHES, FEW_BATCHES)
    line = c.stages.line if c.model is not None else None
    if line is not None and line.share >= DOMINATES:
        because = f"workers are seen there {share(line.share)} of loading; {FEW_BATCHES}"
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
    """A few batches take more than twice the median, and no other finding explains them.

    Shown by at most 5% of the batches, whose time beyond the median is 1% of the total.
    Excluded by long waits, where a finding says what training waits for.
    """
    c.needs(PARTS)
    steps, iteration_ns = c.run.steps, c.batches.wait_ns + c.batches.step_ns
    rows = np.intersect1d(outliers_of(c.run).row, c.rows)
    if len(rows) > MATTERS * len(c.rows):
        return None
    waits = steps.wait_ns[rows] > steps.step_ns[rows]
    if c.explains_waiting or c.found(stalls):  # then it is no riddle
        rows, waits = rows[~waits], waits[~waits]
    if c.found(growing_step):
        rows, waits = rows[waits], waits[waits]
    beyond_ns = steps.wait_ns[rows] + steps.step_ns[rows] - np.median(iteration_ns)
    cost = beyond_ns.sum() / max(iteration_ns.sum(), 1.0)
    if cost < TRIFLE:
        return None
    do = Do(SLOW_BATCHES, FEW_BATCHES)
    if waits.mean() < MOSTLY:
        because = "a checkpoint, a validation, Python's garbage collection, another program"
        do = Do("find what slows a few steps", because)
    counts = {"long wait": int(waits.sum()), "long step": int((~waits).sum())}
    long = " and ".join(counted(count, what) for what, count in counts.items() if count)
    return Finding(
        f"In {len(c.rows):,} batches {long} made an iteration take over twice the median. That "
        f"costs {share(cost)} of the training time.",
        [do] if cost >= WORTH else [],
    )


@rule(
    "growing step",
    source="Theil-Sen slope of twenty means; looks at the training's stack",
    of=(),
)
def growing_step(c: Context) -> Finding | None:
    """Steps get longer along the run or along each epoch, and waits do not: it is not loading.

    Shown by the means of twenty equal parts, which rise by 10% in all, beyond chance. Also, either
    one line has at least half of the growth and the other lines do not grow beyond chance, or the
    steps grow in both halves.
    Excluded by batches that grow with the steps, by waits that grow more than half as much, and by
    one jump, as where layers are unfrozen.
    """
    c.needs(2 * PARTS)
    along, steps, rise = rising_steps(c.run)
    if not rise or spearman(along_of(c.run, along)[c.rows], c.batches.nbytes) >= MOSTLY:
        return None
    first_ns, last_ns = _ends(steps)
    first_wait_ns, last_wait_ns = _ends(_parts(c.run, "wait_ns", c.rows, along))
    if last_wait_ns - first_wait_ns > MOSTLY * (last_ns - first_ns):
        return None
    line = _grown(c.run, along)
    if line is None and not _rise(steps, in_halves=True):
        return None
    of = "the run" if along == "run" else "an epoch"
    says = (
        f"A step takes {duration(first_ns)} at the start of {of} and {duration(last_ns)} at its "
        "end, and waits do not grow: it is not loading that becomes slower."
    )
    because = "losses or outputs kept with their autograd graph, a metric over all batches"
    do = Do("find what grows in the step", because)
    if line is not None:
        place, name, from_ns, to_ns = line
        says += f" In it {name} grows from {duration(from_ns)} to {duration(to_ns)}."
        because = "it takes the longer, the more there was before"
        do = Do(f"let {name} go over what is new alone, or call it less often", because, place)
    longer_ns = rise * np.median(steps) / 2  # in the mean step than in the first
    whole_ns = (c.batches.wait_ns + c.batches.step_ns).mean()
    # A rank's step is longer, too, where those of others wait.
    return Finding(says, [do], sure=not c.is_rank, cost=longer_ns / whole_ns)


def rising_steps(run: Run) -> tuple[Along, Values, float]:
    """Along what steps rise most, the means of their parts, and by how much; 0 where they do not.

    There are 40 steady real batches or more.
    """
    both_arms = np.flatnonzero(steady(run, "real") | steady(run, "ideal"))
    ways: tuple[Along, ...] = ("run", "epoch")
    parts = [(along, _parts(run, "step_ns", both_arms, along)) for along in ways]
    return max(((along, each, _rise(each)) for along, each in parts), key=lambda known: known[2])


def _parts(run: Run, name: str, rows: Column, along: Along) -> Values:
    """The means of a column in parts of these rows, in order along the run or the epoch.

    Not medians: what is done at every n-th step alone may grow, too.
    """
    rows = rows[np.argsort(along_of(run, along)[rows], kind="stable")]
    return np.array([run.steps[name][part].mean() for part in np.array_split(rows, PARTS)])


def _ends(parts: Values) -> tuple[float, float]:
    """The means of the first quarter of the parts, and of the last."""
    first, *_, last = parts.reshape(4, -1).mean(axis=1).tolist()
    return first, last


def _rise(parts: Values, *, in_halves: bool = False) -> float:
    """By how much of their median the values of parts rise; 0 where it is too little, or chance.

    It is none, too, where one jump leaves half of what a line does not explain, or less. One that
    rises `in_halves` rises in both.
    """
    at = np.arange(PARTS)
    halves = [at < PARTS / 2, at >= PARTS / 2] if in_halves else []
    trend, *trends = (slope([(at[part], parts[part])]) for part in (at >= 0, *halves))
    if trend is None or not all(each and each.low and each.low > 0 for each in (trend, *trends)):
        return 0.0
    by_line, *by_jump = (np.corrcoef(fit, parts)[0, 1] for fit in (at, *np.tri(PARTS)[1:-1]))
    if 1 - min(by_jump) ** 2 < MOSTLY * (1 - by_line**2):
        return 0.0
    rise = trend.value * (PARTS - 1) / np.median(parts)
    return rise if rise >= TWICE * MATTERS else 0.0


def _grown(run: Run, along: Along) -> tuple[str, str, float, float] | None:
    """The place, the name and the time at first and at last of what grew: a call, or a function."""
    looks = looks_at_steps(run)
    if len(looks) < FEWEST_LOOKS:
        return None
    for name in dict.fromkeys((*looks.calling.tolist(), *looks.function.tolist())):
        own = (looks.calling == name) | (looks.function == name)
        (first, last), (first_rest, last_rest) = (
            first_and_last_ns(run, each, along) for each in (own, ~own)
        )
        grown, rest = last - first, last_rest - first_rest
        # It has half of all growth or more, and the others do not grow beyond chance.
        if grown.value >= abs(rest.value) and grown.bounds[0] > 0 >= rest.bounds[0]:
            ((place, _),) = Counter(looks.place[own].tolist()).most_common(1)
            return place, name, first.value, last.value
    return None


@rule("drift", source="Theil-Sen slope of twenty medians; the halves' means, beyond their 95% CI")
def drift(c: Context) -> Finding | None:
    """Loading keeps getting slower, or one half of the run was slower than the other.

    Shown by medians of twenty parts of the run that rise by 10% in all and in both halves, if waits
    have most of the rise; or by halves whose mean iterations differ by 5%, beyond chance.
    Excluded by halves that are alike, and by `growing step`. One slow-down at some batch counts as
    halves that differ.
    """
    c.needs(2 * PARTS)
    if c.found(growing_step):
        return None
    total_ns = c.batches.wait_ns + c.batches.step_ns
    whole = c.batches.replace(
        total_ns=total_ns, amount=np.ones(len(total_ns)), block=np.zeros(len(total_ns), np.int64)
    )
    halves = [whole.take(rows) for rows in np.array_split(np.arange(len(whole)), 2)]
    medians = np.array([np.median(part) for part in np.array_split(total_ns, PARTS)])
    longer_ns, waits_ns = (
        halves[1][name].mean() - halves[0][name].mean() for name in ("total_ns", "wait_ns")
    )
    if _rise(medians, in_halves=True) and waits_ns > MOSTLY * longer_ns:
        first_ns, last_ns = _ends(medians)
        because = "a list or cache that it searches, files that it never closes"
        return Finding(
            f"Training keeps getting slower: an iteration takes {duration(last_ns)} at the end of "
            f"the run, and {duration(first_ns)} at its start.",
            [Do("find what grows in the loader", because)],
        )
    first, second = map(mean_of, halves)
    change = second - first
    part = abs(change.value) / max(total_ns.mean(), 1.0)
    if change.low is None or change.low <= 0 <= change.bounds[1] or part < MATTERS:
        return None
    because = "other work on the machine, heat, growing memory, layers that were unfrozen"
    do = Do("look for what began meanwhile", because)
    if change.value <= 0:
        because = "a page cache that fills reads faster"
        do = Do("run an epoch before the one that you measure", because)
    return Finding(
        f"An iteration took {duration(first.value)} in the first half of the run, and "
        f"{duration(second.value)} in the second: figures of the whole run average the two.",
        [do],
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
    sized = "size in bytes", "nbytes"
    for run, says, column in (
        (c.run, "place in the epoch", "batch"),
        (c.run, *sized),
        (c.ideal, *sized),
    ):
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

    Shown by memory that grows in both halves of the run, by at least 1% of the memory limit an
    hour. A run of under a minute must also have kept 16 MB, and either fill memory within an hour
    at that rate or keep half of the bytes of its batches.
    Excluded by growth in only one half (it may be chance), growth that slows down, and pages of
    mapped files, which the system may drop.
    """
    because = "losses or outputs that are kept: detach() or item() first"
    if not c.loader.workers:
        because += "; or samples that the dataset keeps, which have to fit"
    do = LET_GO if _keeps_batches(c) else Do("find what training keeps", because)
    return _growing(c, growth(c.run, "process"), "The training process keeps", do)


LET_GO = Do(
    "let go of each batch after its step",
    "itertools.cycle(loader) keeps an epoch, as a list does: start the loader anew at its end, "
    "while True: yield from loader",
)


def _keeps_batches(c: Context) -> bool:
    grown = growth(c.run, "process")  # without workers it may be what the dataset keeps
    in_shared = grown.of_shared >= MOSTLY or bool(c.loader.pinned)  # where workers put tensors
    has_all = abs(grown.of_batches - 1) < LARGE
    return bool(c.loader.workers) and in_shared and grown.grows and has_all


@rule("worker memory", source="memory of each worker, or the Theil-Sen slope of that of all")
def worker_memory(c: Context) -> Finding | None:
    """The loader's workers keep more and more.

    Shown by the same of the workers, or each of four readings of what they keep that is higher than
    the one before.
    Excluded by growth that levels off, and workers that start anew before it matters.
    """
    because = "a list it appends to, a cached_property of each item, lru_cache(None): bound them"
    do = Do("find what the dataset keeps", because)
    kept, workers = bytes_kept(c.run), c.loader.workers
    available = last_read(c.run, "memory_available_bytes")
    if kept and workers and available is not None and c.gap.real is not None:
        (full, left_ns), length = _full(c, kept, c.gap.real.value), length_of_epochs(c.run) or 1.0
        anew = len({start.epoch for start in c.run.worker_starts}) > 1
        if left_ns * LEAST_SHARE <= HOUR_NS and not (anew and length < available / kept):
            says = f"Each of the {workers} workers keeps {size(1000 * kept / workers)} more after "
            return Finding(f"{says}every 1,000 batches.{full}", [do], sure=False)
    grown = growth(c.run, "workers")
    if kept is not None and grown.bytes_per_hour is None:
        return None
    if grown.of_own < MOSTLY:
        do = Do("keep dataset lists in arrays, and bound caches", because)
    return _growing(c, grown, "The workers keep", do)


def _growing(c: Context, grown: Growth, who: str, do: Do) -> Finding | None:
    if grown.bytes_per_hour is None:
        raise Skip(grown.says)
    if not grown.grows:
        return None
    says = f"{who} more and more: {size(grown.kept_bytes)} in {span(grown.seen_ns)}"
    if grown.of_shared >= MOSTLY:
        says += ", in shared memory, in which tensors come from workers"
    if do is LET_GO:
        says += ". That is as much as its batches hold: all of them are still alive"
    batches = max(grown.batches, 1)
    full, left_ns = _full(c, grown.kept_bytes / batches, grown.seen_ns / batches)
    return Finding(f"{says}.{full}", [do], ahead=left_ns <= HOUR_NS)


def _full(c: Context, batch_bytes: float, batch_ns: float) -> tuple[str, float]:
    """When memory is full, if a batch takes so long and leaves so much in it: in words, and ns."""
    left = last_read(c.run, "memory_available_bytes")
    if left is None or batch_bytes <= 0:
        return "", math.inf
    batches = left / batch_bytes
    left_ns = batches * batch_ns
    when = f"{span(left_ns)}, after {batches:,.0f} batches"
    return f" At this rate the {size(left)} that are left are full in {when}.", left_ns


@rule("open files", source="descriptors of the training process, and of the worker that has most")
def open_files(c: Context) -> Finding | None:
    """Files are opened, and stay open, until no more can be.

    Shown by descriptors that become more in both halves of the run, by 10% of their limit.
    Excluded by a rise in one half alone, and one that becomes slower.
    """
    is_read = False
    for subject, whose in (("process", "The training process"), ("workers", "A worker")):
        table = c.run.readings.get(("host", subject), Columns({}))
        if "open_files_limit" not in table:
            continue
        table = table.take(np.isfinite(table.open_files + table.open_files_limit))
        first, second, _ = trend(c.run, table, table.open_files)
        if first is None or second is None or None in (first.low, second.low):
            continue
        is_read, seen_ns = True, np.ptp(table.time_ns)
        now, limit = table.open_files[-1], table.open_files_limit.min()
        more, slows = now - table.open_files[0], second.value < first.value / TWICE
        if min(first.bounds[0], second.bounds[0]) <= 0 or slows or more < FEW * limit:
            continue
        left_ns = max((limit - now) / second.value, 0.0) * HOUR_NS
        says = (
            f"{whose} has {now:,.0f} open files of the {limit:,.0f} that it may have, {more:,.0f} "
            f"more than {span(seen_ns)} before: at this rate there are no more in {span(left_ns)}."
        )
        do = Do("close the files that samples are read from", "or keep one open for each file")
        if c.loader.workers and subject == "process":
            because = "each has a descriptor as long as it is kept"
            do = Do("keep no tensors that workers sent, or clone() them", because)
            do = LET_GO if _keeps_batches(c) else do
        return Finding(says, [do], ahead=left_ns <= HOUR_NS)
    if not is_read:
        raise Skip("open files were read too few times for a trend")
    return None


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
    if told.step_ns is not None and told.saved_ns is not None and len(c.rows):
        gain = told.saved_ns / (told.step_ns + c.batches.wait_ns.mean())
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


@rule("batches passed over", source="the first step of an optimizer, and steps before it", of=())
def batches_passed_over(c: Context) -> Finding | None:
    """Training takes batches without training on them, as in a resumed run that skips some.

    Shown by batches before the first optimizer step whose steps take under a twentieth of later
    steps (under 1 ms if no optimizer has stepped yet), and for which training waits 5% of the run.
    Excluded by gradient accumulation (as many batches for one optimizer step later on), and by
    training that begins with the next epoch.
    """
    count, steps = passed_over(c.run), c.run.steps
    if count is None:
        raise Skip("steps of optimizers were not seen: `loadeval run -- COMMAND` sees PyTorch's")
    passed, rest = steps.take(slice(count)).where(arm=0), steps.take(slice(count, None))
    if not len(passed):
        return None
    waited_ns = count * passed.wait_ns.mean()
    cost = waited_ns / (waited_ns + (rest.wait_ns + rest.step_ns.clip(0)).sum() or 1.0)
    if cost < MATTERS:
        return None
    which = f"The first {count:,} of {len(steps):,}" if len(rest) else f"All {count:,}"
    skip, because = "raw records", "shards, lines or names, before samples are made of them"
    if c.loader.sampler:
        skip = "indices"
        because = (
            "a resumed run needs the indices of its sampler alone: itertools.islice(batch_sampler, "
            "first, None) loads nothing; or torchdata's StatefulDataLoader"
        )
    return Finding(
        f"{which} batches were loaded and passed over, without a step of an optimizer: training "
        f"waited {duration(waited_ns)} for them.",
        [Do(f"skip {skip}: {count:,} batches are loaded for nothing", because, c.loader.made_at)],
        sure=len(rest) > 0,
        cost=cost,
        ahead=True,
    )


@rule("shared machine", source="CPU time of the machine, less that of training and its workers")
def shared_machine(c: Context) -> Finding | None:
    """Others used the CPUs, so that the figures are not of this training alone.

    Shown by other programs that used half a CPU or more.
    """
    used = [level for level in c.cpus.others.values() if level is not None]
    if not used:
        raise Skip("the machine's CPU time was not read during measured batches")
    if max(used) < MANY_CPUS:
        return None
    return Finding(
        f"Other programs used up to {number(max(used))} CPUs during this run: results may change "
        "with what else runs.",
        [FREE_CPUS],
    )


@rule(
    "slow validation",
    source="waits of the validation loader, beside the time of the whole run",
    of=(),
)
def slow_validation(c: Context) -> Finding | None:
    """Training waits long for the batches of validation.

    Shown by waits in validation that are 5% of the run's time.
    """
    validation, whole = c.others.get("validation"), c.gap.whole
    if validation is None:
        raise Skip("no validation loader was measured: `loadeval run -- COMMAND` measures it too")
    if whole is None or not validation.batches:
        raise Skip("training, or validation, has no batch that counts")
    waited_ns = validation.steps.wait_ns.sum()
    own_ns = waited_ns + np.maximum(validation.steps.step_ns, 0).sum()
    part = waited_ns / (own_ns + whole.value * c.run.batches)
    if part < MATTERS:
        return None
    own, workers = validation.loader, c.loader.workers
    do = Do("make loading for validation cheaper, or validate less often", where=own.made_at)
    if workers and own.workers == 0:
        more = f"{c.setting('num_workers') or 'workers'} 0 -> {workers} for validation"
        do = Do(more, "as training has", own.made_at)
    else:
        for action in diagnose(validation).actions:
            if action.where or action.setting:
                do = Do(f"{action.says}, for validation", action.because, action.where)
                break
    says = f"{share(part)} of this run is waiting for batches of validation."
    return Finding(says, [do], cost=part)
