"""What a report says of a run, in the order in which it is read: a function is a section."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import zip_longest

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.lines import Arm
from loadeval.data.run import ARMS, NOT_RECORDED, SECOND_NS, Run
from loadeval.estimate.before_after import (
    BATCHES,
    Difference,
    about_backends,
    before_after,
    differences,
    took_turns,
    unit_of,
)
from loadeval.estimate.cautions import cautions, not_measured
from loadeval.estimate.epochs import epochs, first_waits, outliers, workers_started
from loadeval.estimate.gap import Gap, gap, throughput
from loadeval.estimate.metrics import (
    THREADS,
    Level,
    Metrics,
    PaddingShare,
    Quantity,
    metrics,
    padding,
)
from loadeval.estimate.stats import Estimate
from loadeval.estimate.steady import steady
from loadeval.estimate.verdict import Verdict, verdict
from loadeval.findings import MATTERS
from loadeval.findings.engine import Diagnosis, Do, diagnose
from loadeval.inside.lanes import lanes, spans
from loadeval.inside.operators import Operators, Threads, operators, threads
from loadeval.inside.stages import Stages, stages, why_no_stages
from loadeval.job import Job
from loadeval.report.blocks import (
    Bars,
    Block,
    Cell,
    Chart,
    Facts,
    Findings,
    FindingText,
    Number,
    Section,
    Table,
    Text,
)
from loadeval.report.palette import legend
from loadeval.words import NOT_MEASURED, counted, duration, moment, share, times, wall_clock, worded

Row = tuple[Cell, ...]

MOST_SAMPLES = 3
"""Slow samples, and outliers, that are shown in text; a page has all outliers in its chart."""
MOST_OUTLIERS = 10
MOST_RANKS = 64
SEVERAL = ("the CPUs", "the workers", "the starts of epochs")
"""Limits of training that are more than one thing."""
LEAST_GAIN = 0.005
"""A part of a batch's time that is negative by a smaller share of it is not shown."""
OPEN, COUNTS_NOT = -1, 2
"""Of an arm in a chart: 2 is that of batches that do not count."""
SERIES = {"real": "real", "ideal": "ideal", "loader_only": "loader"}
"""The colours of what throughput is known of."""


@dataclass(frozen=True, eq=False)
class Result:
    """All that is known of a run, or of one beside the `ideal` that replayed.

    Its fields are the keys of the JSON. `throughput` is in `unit` per second: of the steady `real`
    and `ideal` arms, of the loader alone, `loader_only`, and over `whole` epochs. `cautions` are
    what makes the figures mean less, and `not_measured` why some are not there, a sentence each.
    `workers_started` are the worker processes that were started in the run. None is not known:
    `stages` and `operators` where the loader was not looked into, `threads` where those of the
    training process were not read, and `padding` where batches did not tell theirs.
    """

    run: Run
    ideal: Run | None
    gap: Gap
    verdict: Verdict
    diagnosis: Diagnosis
    cautions: tuple[str, ...]
    not_measured: tuple[str, ...]
    throughput: Mapping[str, Estimate]
    unit: str
    epochs: Columns
    workers_started: int | None
    outliers: Columns
    stages: Stages | None
    operators: Operators | None
    threads: Threads | None
    metrics: Metrics
    padding: PaddingShare | None

    @property
    def runs(self) -> dict[Arm, Run]:
        """The run that has the batches of each arm."""
        return {"real": self.run, "ideal": self.ideal or self.run}


def result_of(run: Run, ideal: Run | None = None, **others: Run) -> Result:
    """Everything that a report of a run says; see findings.engine.diagnose."""
    measured = gap(run, ideal)
    return Result(
        run=run,
        ideal=ideal,
        gap=measured,
        verdict=verdict(measured, run, ideal),
        diagnosis=diagnose(run, ideal, **others),
        cautions=tuple(cautions(measured, run, ideal)),
        not_measured=tuple(not_measured(measured, run)),
        throughput=throughput(measured),
        unit=BATCHES if measured.samples_per_batch is None else run.header.unit,
        epochs=epochs(run),
        workers_started=workers_started(run),
        outliers=outliers(run),
        stages=stages(run),
        operators=operators(run),
        threads=threads(run, ideal),
        metrics=metrics(run, ideal),
        padding=padding(run),
    )


def sections(r: Result, commands: Sequence[str] = ()) -> list[Section]:
    """The report of a run; `commands` are those that say more."""
    made = [make(r) for make in SECTIONS]
    at = SECTIONS.index(how_sure) + 1
    every = [*made[:at], _more(commands, priority=4), *made[at:]]
    return [section for section in every if section.blocks]


def _more(commands: Sequence[str], priority: int) -> Section:
    return Section("", [Text(command, "command") for command in commands], priority)


def change_sections(before: Result, now: Result, commands: Sequence[str] = ()) -> list[Section]:
    """Whether a run is slower than an earlier one, and what changed; then all of the later run."""
    told = before_after(before.run, now.run)
    rate = f"{told.unit}/s"
    compared = (
        ("whole epochs", told.epochs, rate),
        ("steady state", told.steady, rate),
        ("lost a batch", told.lost, "duration"),
        ("wait a batch", told.wait, "duration"),
        ("step", told.step, "duration"),
    )
    rows: list[Row] = [
        (label, Number(each.before, unit), Number(each.now, unit), _x(each.ratio))
        for label, each, unit in compared
        if each.now is not None or each.before is not None
    ]
    changes: list[Row] = [
        (f"{each.what}: {each.name.replace('_', ' ')}", str(each.before), str(each.now))
        for each in told.changes
    ]
    blocks: list[Block] = [Table(("training", "before", "now", "now / before"), rows)]
    if changes:
        blocks.append(Table(("changed", "before", "now"), changes))
    else:
        blocks.append(Text("Nothing changed that the logs tell of loader, versions and machine."))
    then, today = ({each.rule for each in r.diagnosis.findings} for r in (before, now))
    for label, names in (("No longer found", then - today), ("Found now", today - then)):
        if names:
            blocks.append(Text(f"{label}: {', '.join(sorted(names))}."))
    head, *rest = sections(now)
    return [
        Section(told.headline, blocks, priority=1),
        Section("how sure", [Text(each, "caution") for each in told.cautions], priority=3),
        _more(commands, priority=2),
        Section(f"now: {head.title}", head.blocks),
        *(replace(each, priority=None) for each in rest),
    ]


def backends_sections(
    backends: Mapping[str, Result],
    failed: Mapping[str, str],
    commands: Sequence[str] = (),
    unequal: Sequence[str] = (),
) -> list[Section]:
    """Several backends under one training step, the fastest first.

    `failed` has the errors of those that failed, and `unequal` a clause for each difference in what
    they do.
    """
    runs = {name: r.run for name, r in backends.items()}
    unit, rates = unit_of(list(runs.values())), rates_of(runs)
    ranked = sorted(
        backends, key=lambda name: -rates[name]["real"].value if "real" in rates[name] else 0.0
    )
    beside_fastest = [pair for pair in differences(runs) if pair.one == ranked[0]]
    title = "No backend was measured"
    if beside_fastest:
        title = _fastest(beside_fastest)
    elif ranked:
        title = f"{ranked[0]}: {backends[ranked[0]].verdict.headline}"
    blocks = list[Block]()
    if ranked:
        speeds: list[Row] = [
            (name, *(Number(rates[name].get(key), "number") for key in SERIES)) for name in ranked
        ]
        gains: list[Row] = [
            (
                name,
                _x(r.gap.speedup),
                _part(r.gap.lost_share),
                Number(memory_bytes(r.run), "size"),
                r.verdict.level,
            )
            for name, r in ((name, backends[name]) for name in ranked)
        ]
        blocks.append(Table((f"{unit}/s", "real", "ideal", "loader alone"), speeds))
        blocks.append(Table(("backend", "free loading", "lost", "memory", "verdict"), gains))
    if len(beside_fastest) > 1:
        blocks += [Text(f"{_difference(pair)}.") for pair in beside_fastest]
    blocks += [Text(f"{name} failed: {error}", "caution") for name, error in failed.items()]
    bars = [
        (name, series, rates[name][key])
        for name in ranked
        for key, series in SERIES.items()
        if key in rates[name]
    ]
    if bars:
        says = f"Throughput in {unit} per second, steady state, with 95% confidence intervals"
        blocks.append(_beside_each_other("Backends", says, bars, f"{unit}/s"))
    each_backend = [
        replace(section, title=f"{name}: {section.title}")
        for name in ranked
        for make in (inside, operators_and_threads, timeline, system_metrics, settings)
        if (section := make(backends[name])).blocks
    ]
    return [
        Section(title, blocks, priority=1),
        _how_sure_of_backends(backends, len(backends) + len(failed), unequal),
        _more(commands, priority=2),
        *each_backend,
    ]


def rates_of(runs: Mapping[str, Run]) -> dict[str, Mapping[str, Estimate]]:
    """What `Result.throughput` has, of several runs in the one unit that all of them know."""
    by_sample = unit_of(list(runs.values())) != BATCHES
    return {name: throughput(gap(run), by_sample) for name, run in runs.items()}


def _fastest(beside: Sequence[Difference]) -> str:
    """Which backend trains fastest, if that is shown by it `beside` each other."""
    one, other, ratio = beside[0]
    if ratio.low is not None and ratio.low > 1:
        next_one = f"the next, {other}" if len(beside) > 1 else other
        return f"{one} trains fastest: {ratio:times} as fast as {next_one}"
    if ratio.low is None or len(beside) == 1:
        return _difference(beside[0])
    level = [pair.other for pair in beside if (pair.ratio.low or 0.0) <= 1]
    names = ", ".join([one, *level[:-1]])
    return f"No difference is shown between the fastest, {names} and {level[-1]}"


def _difference(pair: Difference) -> str:
    one, other, ratio = pair
    if ratio.low is None:
        return f"{one} was {ratio:times} as fast as {other}, too few measurements for a 95% CI"
    if ratio.low > 1:
        return f"{one} is {ratio:times} as fast as {other}"
    return f"No difference is shown between {one} and {other}: {ratio:times}"


def _how_sure_of_backends(
    backends: Mapping[str, Result], count: int, unequal: Sequence[str]
) -> Section:
    """How the backends were measured, and what makes that mean less."""
    runs = {name: r.run for name, r in backends.items()}
    how = ", in separate runs" if len(runs) > 1 else ""
    if took_turns(list(runs.values())):
        rounds = next(iter(runs.values())).header.settings.get("rounds")
        how = f", in turns, {rounds} rounds in random order"
    gaps = [r.gap for r in backends.values()]
    counts = {
        "real": {gap.real_batches for gap in gaps} - {0},
        "ideal": {gap.ideal_batches for gap in gaps} - {0},
    }
    measured = " and ".join(
        f"{'-'.join(f'{end:,}' for end in sorted({min(each), max(each)}))} {arm}"
        for arm, each in counts.items()
        if each
    )
    about = f"{counted(count, 'backend')} under one training step{how}"
    if measured:
        about += f"; {measured} batches measured of each"
    work = [f"The backends do not do equal work: {'; '.join(unequal)}."] if unequal else []
    own = {name: (*r.cautions, *r.run.notes) for name, r in backends.items()}
    missing = {
        name: r.not_measured
        if r.verdict.rule == "concluded"
        else (r.verdict.headline, *r.not_measured)
        for name, r in backends.items()
    }
    said = [Text(f"{about}.")]
    said += [Text(each, "caution") for each in (*work, *about_backends(runs), *_by_name(own))]
    said += [Text(each, "note") for each in _by_name(missing)]
    return Section("how sure", said, priority=3)


def _by_name(said: Mapping[str, Sequence[str]]) -> list[str]:
    """Each sentence once, behind the names of all that it is about."""
    names: dict[str, list[str]] = {}
    for name, sentences in said.items():
        for sentence in dict.fromkeys(sentences):
            names.setdefault(sentence, []).append(name)
    return [f"{', '.join(about)}: {sentence}" for sentence, about in names.items()]


def memory_bytes(run: Run) -> float | None:
    """The most that the training process was seen to take, and its workers; None if not read.

    What they share counts once, where the system tells that.
    """
    most = list[float]()
    for subject in ("process", "workers"):
        table = run.readings.get(("host", subject), Columns({}))
        known = (table[name] for name in ("pss_bytes", "rss_bytes") if name in table)
        read = next((values for values in known if np.isfinite(values).any()), None)
        if read is not None:
            most.append(float(np.nanmax(read)))
    return sum(most) if most else None


def job_sections(job: Job, r: Result, commands: Sequence[str] = ()) -> list[Section]:
    """The ranks of a job, of whose run `r` tells: who keeps the others waiting comes first."""
    top, *rest = sections(r, commands)
    if r.gap.ideal is None:
        together = Number(r.throughput.get("real"), f"{r.unit}/s")
        top = Section(job.headline, [Facts([("together", together)], large=True)], priority=1)
    nodes = "" if job.nodes is None else f" on {counted(job.nodes, 'node')}"
    of_all = f" of {job.world_size}" if len(job.ranks) < job.world_size else ""
    ranks, steps = counted(len(job.ranks), "rank"), counted(job.steps, "batch", "batches")
    short = [
        Text(
            f"{ranks}{of_all}{nodes}; {steps} measured on all. "
            "At each step the job waits as long as the rank that waits longest."
        ),
        Text(f"Stragglers: {job.stragglers.says}."),
        *(Text(each, "caution") for each in job.cautions),
    ]
    ranked = sorted(job.ranks, key=lambda rank: (-(rank.cost_ns or 0.0), -(rank.wait_ns or 0.0)))
    shown = ranked[:MOST_RANKS]
    rows = _rows(
        shown,
        rank=str,
        host=lambda host: host or "not known",
        wait_ns=_ns,
        wait_share=_part,
        waited_for_ns=_ns,
        last_share=_part,
        cost_ns=_ns,
    )
    head = ("rank", "host", "own wait", "of the time", "for others", "last", "costs")
    left = len(ranked) - len(shown)
    notes = [
        *([f"and {left:,} more"] if left else []),
        (
            "For others: how long its step waits for ranks that waited longer. Last: the share of "
            "the batches that some rank waits for in which it waits longest. Costs: what the job "
            "would save if this rank alone waited no longer than the others."
        ),
        f"What is found, and inside the loader, is of rank {job.shown}, which was last most often.",
    ]
    blocks: list[Block] = [Table(head, rows), *(Text(note, "note") for note in notes)]
    own = [
        (f"rank {rank.rank}", "waiting", Estimate(rank.wait_ns))
        for rank in shown
        if rank.wait_ns is not None
    ]
    if own:
        says = "The mean wait of each rank for its batches, those that cost the job most first"
        blocks.append(_beside_each_other("Ranks", says, own, "duration"))
    moved = [replace(each, priority=each.priority and each.priority + 1) for each in rest]
    return [top, Section("ranks", short, priority=2), *moved, Section("each rank", blocks)]


# What sections are made of


def _ns(value: float | Estimate | None) -> Number:
    return Number(value, "duration")


def _part(value: float | Estimate | None) -> Number:
    return Number(value, "share")


def _x(value: float | Estimate | None) -> Number:
    return Number(value, "times")


def _rows(items: Iterable[object], **cells: Callable[..., Cell]) -> list[Row]:
    """A row for each item: of each field that is named, the cell that is made of it."""
    return [tuple(cell(getattr(each, name)) for name, cell in cells.items()) for each in items]


def _section(title: str, *blocks: Block) -> Section:
    """A section of those blocks that have something to show."""
    return Section(
        title,
        [block for block in blocks if not isinstance(block, Table | Facts) or len(block.rows)],
    )


def _columns(names: Sequence[str], rows: Sequence[Sequence[object]]) -> Columns:
    return Columns(dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True)))


def _beside_each_other(
    title: str, says: str, bars: Sequence[tuple[str, str, Estimate]], unit: str
) -> Chart:
    """A chart of bars, each of which has its row's name, its colour's and its length."""
    rows = [
        (row, series, length.value, *((np.nan, np.nan) if length.low is None else length.bounds))
        for row, series, length in bars
    ]
    table = _columns(("row", "series", "value", "low", "high"), rows)
    return Chart("real beside ideal", title, says, {"bars": table}, unit)


# The screen


def headline(r: Result) -> Section:
    """The verdict and the figures to see first."""
    g = r.gap
    now = ("now", Number(r.throughput.get("real"), f"{r.unit}/s"))
    if g.ideal is not None:
        figures: list[tuple[str, Cell]] = [
            ("speed-up if loading were free", _x(g.speedup)),
            ("of the time lost", _part(g.lost_share)),
            now,
            ("with free loading", Number(r.throughput.get("ideal"), f"{r.unit}/s")),
        ]
        said = [Text(r.verdict.remedy)] if r.verdict.level == "inconclusive" else []
        return Section(r.verdict.headline, [*said, Facts(figures, large=True)], priority=1)
    if g.real is None or g.waiting is None:
        return Section(r.verdict.headline, [Text(r.verdict.remedy)], priority=1)
    whole, starts = (g.whole or g.real).value, max(g.share("epoch starts"), 0.0)
    title = f"Training waited for batches {share(g.waiting.value / whole + starts)} of the time"
    if starts >= MATTERS:
        title += f", {share(starts)} for epochs to start"
    if "real" in r.throughput:
        title += f", at {worded(r.throughput['real'], f'{r.unit}/s')}"
    cost = Text("What that costs needs ideal loading beside it: loadeval diagnose -- COMMAND")
    return Section(title, [cost, Facts([now], large=True)], priority=1)


def batch_time(r: Result) -> Section:
    """One bar of a batch's time, and the ideal below it."""
    g = r.gap
    if g.real is None:
        return Section("")
    whole = (g.whole or g.real).value
    parts = {
        name: part.value
        for name, part in sorted(g.parts(), key=lambda each: each[1].value > 0)
        if part.value > 0 or part.value <= -LEAST_GAIN * whole
    }  # what is negative takes off the step beside it
    bars = [("a batch", {"step": max(whole - sum(parts.values()), 0.0), **parts})]
    if g.ideal is not None:
        bars.append(("ideal", {"step": g.ideal.value}))
    return Section("a batch's time", [Bars(bars)], priority=2)


def bars_chart(title: str, bars: Bars) -> Chart:
    """Bars as a chart, for what has no other way to draw them."""
    rows = [(row, part, value) for row, parts in bars.rows for part, value in parts.items()]
    table = _columns(("row", "part", "value"), rows)
    return Chart("time per batch", title, "", {"parts": table}, bars.unit)


def what_to_do(r: Result) -> Section:
    """What to change, the largest gain first, each on top of those before it."""
    actions, limit = r.diagnosis.actions, r.diagnosis.limit
    if not actions:
        return Section("")
    rows: list[Row] = [
        (
            f"{at}. {_at(action.says, action.where)}",
            "not predicted" if action.speedup is None else _x(action.speedup),
        )
        for at, action in enumerate(actions, 1)
    ]
    blocks: list[Block] = [Table(("", "training"), rows)]
    predicted = [action.speedup for action in actions if action.speedup is not None]
    if predicted and limit and r.gap.speedup is not None:
        reached, free = times(predicted[-1].value), times(r.gap.speedup.value)
        are = "are" if limit in SEVERAL else "is"
        says = f"After that {limit} {are} the limit: {reached} of the {free} that free loading"
        blocks.append(Text(f"{says} would give."))
    return Section("what to do", blocks, priority=3)


def _at(says: str, where: str | None) -> str:
    """What is said, and the line that it is of."""
    line = (where or "").partition(" ")[0]
    return f"{says} ({line})" if line else says


def findings(r: Result) -> Section:
    """What is wrong: on a screen in a line each."""
    found = [
        FindingText(
            name=finding.rule,
            says=finding.says,
            cost="" if finding.cost is None else _part(finding.cost),
            where=next((do.where for do in finding.do if isinstance(do, Do) and do.where), ""),
            do=[
                _at(do.says, do.where if isinstance(do, Do) else None)
                + (f": {do.because}" if do.because else "")
                for do in finding.do
            ],
            facts=[
                _fact(name, value) for name, value in finding.facts.items() if value is not None
            ],
            source=finding.source + ("" if finding.sure else "; other causes would look alike"),
        )
        for finding in r.diagnosis.findings
    ]
    return Section("why", [Findings(found)] if found else [], priority=6)


ENDS = {"ns": "duration", "bytes": "size", "share": "share", "times": "times", "CPUs": "cpus"}
"""What stands behind the comma in the name of a fact, and how its number is worded."""


def _fact(name: str, value: object) -> tuple[str, Cell]:
    label, _, end = name.rpartition(", ")
    label, unit = label or name, ENDS.get(end)
    if isinstance(value, Estimate):
        return label, Number(value, unit or "duration")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return label, str(value)
    if unit is None and isinstance(value, int):
        return label, f"{value:,}"
    return label, Number(value, unit or "number")


def batches_measured(r: Result) -> Section:
    """How much was measured."""
    g = r.gap
    batches = f"{g.real_batches:,} real"
    if g.ideal is not None:
        batches += f" and {g.ideal_batches:,} ideal"
    pairs = "" if g.pairs is None else f" in {counted(g.pairs, 'pair')} of blocks"
    return Section("how sure", [Text(f"Measured: {batches} batches{pairs}.")], priority=5)


def how_sure(r: Result) -> Section:
    """What makes it mean less."""
    notes = [*r.run.notes, *(r.ideal.notes if r.ideal else ())]
    said = [Text(note, "caution") for note in dict.fromkeys([*notes, *r.cautions])]
    said += [Text(why, "note") for why in r.not_measured]
    return Section("", said, priority=7)


# The rest


def lost(r: Result) -> Section:
    """What the time lost consists of."""
    g = r.gap
    if g.lost is None:
        return Section("")
    parts: list[Row] = [(f"  {name}", _ns(part), _part(g.share(name))) for name, part in g.parts()]
    rows: list[Row] = [("time lost", _ns(g.lost), _part(g.lost_share)), *parts]
    facts: list[tuple[str, Cell]] = [
        ("verdict", r.verdict.reason),
        ("speed-up, steady state", _x(g.steady_speedup)),
        ("loader alone", _ns(g.loader_only)),
        ("faster to keep up", _x(g.required)),
    ]
    if g.gpu_idle is not None:
        facts.append(("GPU without work in the wait", _ns(g.gpu_idle)))
    remedy = [Text(r.verdict.remedy)] if r.verdict.remedy else []
    table = Table(("", "per batch", "of the time"), rows)
    return Section("whole epochs", [table, Facts(facts), *remedy])


def arms(r: Result) -> Section:
    """Throughput and times of each arm."""
    g = r.gap
    labels: tuple[str, ...] = (
        "throughput",
        "a batch",
        "step",
        "wait",
        "  p50",
        "  p95",
        "  p99",
        "  longest",
    )
    columns: dict[str, list[Cell]] = {}
    for arm, iteration in zip(ARMS, (g.real, g.ideal), strict=True):
        run = r.runs[arm]
        steps = run.steps.take(steady(run, arm))
        if iteration is not None and len(steps):
            means = float(steps.step_ns.mean()), float(steps.wait_ns.mean())
            waits = np.percentile(steps.wait_ns, [50, 95, 99, 100]).tolist()
            rate = Number(r.throughput.get(arm), f"{r.unit}/s")
            columns[arm] = [rate, _ns(iteration), *map(_ns, [*means, *waits])]
    if g.loader_only is not None:
        rate = Number(r.throughput.get("loader_only"), f"{r.unit}/s")
        columns["loader alone"] = [rate, _ns(g.loader_only)]
    if not columns:
        return Section("")
    labels = labels[: max(map(len, columns.values()))]
    rows = list(zip_longest(labels, *columns.values(), fillvalue=""))
    blocks: list[Block] = [Table(("", *columns), rows)]
    bars = [
        (legend(series), series, r.throughput[key])
        for key, series in SERIES.items()
        if key in r.throughput
    ]
    if bars:
        title = "Throughput, real beside ideal"
        says = f"{r.unit} per second in the steady state, with 95% confidence intervals"
        blocks.append(_beside_each_other(title, says, bars, f"{r.unit}/s"))
    return Section("steady state", blocks)


def by_epoch(r: Result) -> Section:
    """Each epoch, and how long their starts took."""
    firsts = first_waits(r.run)
    rows: list[Row] = [
        (
            f"{epoch:g}",
            f"{batches:,}",
            _ns(total),
            _ns(mean),
            _ns(std),
            Number(per_s if r.unit == BATCHES else samples, f"{r.unit}/s"),
        )
        for epoch, batches, total, mean, std, samples, per_s in zip(
            *(r.epochs[name].tolist() for name in r.epochs.names), strict=True
        )
    ]
    head = ("epoch", "batches", "in all", "a batch", "standard deviation", "throughput")
    facts: list[tuple[str, Cell]] = []
    if len(firsts):
        facts = [
            ("first batch of an epoch, median", _ns(float(np.median(firsts.wait_ns)))),
            ("first batch of an epoch, longest", _ns(float(firsts.wait_ns.max()))),
        ]
    if r.workers_started is not None:
        facts.append(("worker processes started", f"{r.workers_started:,}"))
    are = "In all: the waits and steps of these batches, and the wait that ends the epoch."
    if r.gap.pairs is not None:
        are = (
            "Batches: those with real loading, whether they are in a pair that counts or not; the "
            f"rest were served with ideal loading. {are}"
        )
    table = Table(head, rows, "each epoch", folded=True)
    return _section("epochs", table, Text(are, "note"), Facts(facts))


def inside(r: Result) -> Section:
    """Where the loader's time goes: stages, transforms, lines of code, samples, workers."""
    s = r.stages
    if s is None:
        why = why_no_stages(r.run)  # "" where operators are known in place of stages
        said = [Text(f"Not measured: {why}.")] if why else list[Block]()
        return Section("inside the loader", said)
    of = {"loader alone": "with the loader alone", "waits": "that training waited for"}[s.basis]
    batches = counted(s.batches, "batch", "batches")
    by_stage: list[Row] = [
        (each.stage, _ns(each.work_ns), _ns(each.charged_ns), _part(s.share(each.charged_ns)))
        for each in s.stages
    ]
    left = s.not_attributed_ns
    by_stage.append(("not attributed", "", _ns(left), _part(s.share(left))))
    transforms = _rows(s.transforms, name=str, ns=_ns, share=_part, calls="{:.1f}".format)
    code = _rows(s.code, name=str, share=_part, blocked_share=_part)
    samples = s.slow_samples[:MOST_SAMPLES]
    slow = _rows(samples, index=str, longest_ns=_ns, times_typical=_x, times=str)
    workers = _rows(s.workers, worker=str, batches="{:,}".format, batch_ns=_ns, typical_ns=_ns)
    work_ns = max(s.fetch_ns + s.collate_ns, 1.0)
    facts: list[tuple[str, float | None, str]] = [
        ("fetch and collate: on a CPU", s.cpu_ns and s.cpu_ns / work_ns, "share"),
        ("  waiting for one", s.run_queue_ns and s.run_queue_ns / work_ns, "share"),
        ("  blocked", s.blocked_ns and s.blocked_ns / work_ns, "share"),
        ("waited while a later batch lay ready", s.head_of_line_ns, "duration"),
        ("a batch lay in the queue", s.queue_ns, "duration"),
        ("pickled for a batch", s.pickled_bytes, "size"),
        ("read for a batch", s.read_bytes, "size"),
        ("of that from the disk", s.disk_bytes, "size"),
    ]
    return _section(
        "inside the loader",
        Text(f"{duration(s.total_ns)} a batch {of}, over {batches}."),
        Table(("stage", "work", "waited for", "share"), by_stage),
        _stages_chart(r, s),
        Table(("transform", "a batch", "of loading", "calls a batch"), transforms),
        Table(("line of code", "of loading", "blocked"), code),
        Table(("slowest samples", "longest", "times the typical one", "times seen"), slow),
        Table(("worker", "batches", "a batch", "median"), workers if len(workers) > 1 else ()),
        Facts([(label, Number(value, unit)) for label, value, unit in facts if value is not None]),
    )


def _stages_chart(r: Result, s: Stages) -> Chart:
    unknown = (None, None, None)
    bars: list[tuple[str, str, float, tuple[float | None, ...]]] = []
    for each in s.stages:
        parts = (each.cpu_ns, each.run_queue_ns, each.blocked_ns)
        bars.append((each.stage, each.stage, each.charged_ns, parts))
        if each.stage == "fetch":
            for one in s.transforms:
                waited_ns = (s.transform_share(one) or 0.0) * s.total_ns
                bars.append((f"  {one.name}", "fetch", waited_ns, unknown))
    bars.append(("not attributed", "not_attributed", s.not_attributed_ns, unknown))
    names = ("label", "stage", "value", "share", "on_cpu", "waiting_for_cpu", "blocked")
    rows = [
        (
            label,
            stage,
            ns,
            s.share(ns) or 0.0,
            *(np.nan if part is None else part for part in parts),
        )
        for label, stage, ns, parts in bars
    ]
    tables = {"stages": _columns(names, rows)}
    says = f"What of {duration(s.total_ns)} a batch each stage is waited for"
    shown = lanes(r.run)
    if shown is not None:
        done = [
            ("training", "step", start, end, OPEN)
            for start, end in zip(
                shown.steps.start_ns.tolist(), shown.steps.end_ns.tolist(), strict=True
            )
        ]
        for stage, (begin_ns, took_ns) in spans(shown.batches).items():
            columns = (begin_ns, took_ns, shown.batches.worker, shown.batches.batch)
            for begin, took, worker, batch in zip(*(c.tolist() for c in columns), strict=True):
                if begin != UNKNOWN and took > 0:
                    is_ours = worker == UNKNOWN or stage in ("indices", "receive", "pin")
                    lane = "training" if is_ours else f"worker {worker}"
                    done.append((lane, stage, begin, begin + took, batch))
        done.sort(key=lambda bar: (bar[0] != "training", bar[0]))
        if done:
            tables["lanes"] = _columns(
                ("lane", "what", "begin_s", "end_s", "batch"),
                [(lane, what, a / SECOND_NS, b / SECOND_NS, n) for lane, what, a, b, n in done],
            )
            says += f". {shown.says}"
    return Chart("stages", "Inside the loader", says, tables, "duration")


def operators_and_threads(r: Result) -> Section:
    """Operators of a pipeline, and threads of the training process."""

    def by_arm(cores: Mapping[Arm, float | None]) -> str:
        return ", ".join("-" if (count := cores[arm]) is None else f"{count:.2f}" for arm in ARMS)

    of_pipeline = _rows(
        r.operators.operators if r.operators else (),
        name=str,
        task_ns=_ns,
        cpu_ns=_ns,
        concurrency=lambda count: "" if count is None else f"{count}",
        busy_share=_part,
        queue_share=_part,
    )
    known = r.threads if r.threads and r.threads.threads else None
    of_process = _rows(
        known.threads if known else (),
        name=str,
        threads="{:.0f}".format,
        cpu_cores=by_arm,
        run_queue_cores=by_arm,
    )
    locks = [
        (f"wait for Python's lock, {arm}", _ns(wait.wait_ns))
        for arm, wait in (known.lock_wait.items() if known else ())
        if wait is not None
    ]
    head = ("thread", "threads", "CPUs (real, ideal)", "waiting for one")
    return _section(
        "operators and threads",
        Table(("operator", "a task", "on CPU", "at once", "busy", "queue filled"), of_pipeline),
        Table(head, of_process, "threads", folded=True),
        Facts(locks),
    )


def timeline(r: Result) -> Section:
    """The waits along the run, and its outliers by their time."""
    charts = [
        _waits_chart(r, run, "" if r.ideal is None else f", {arm}")
        for arm, run in r.runs.items()
        if len(run.steps) and (arm == "real" or r.ideal is not None)
    ]
    order = np.argsort(-r.outliers.times_median, kind="stable")[:MOST_OUTLIERS]
    worst = r.outliers.take(order)
    steps = r.run.steps.take(worst.row)
    columns = (steps.request_ns, steps.epoch, steps.batch, steps.wait_ns, steps.step_ns)
    rows: list[Row] = [
        (
            moment(float(at_ns)) if at_ns != UNKNOWN else "",
            f"epoch {epoch}, batch {batch}",
            _ns(float(wait_ns + step_ns)),
            _ns(float(wait_ns)),
            _x(factor),
            "" if worker == UNKNOWN else f"{worker}",
        )
        for at_ns, epoch, batch, wait_ns, step_ns, factor, worker in zip(
            *(c.tolist() for c in (*columns, worst.times_median, worst.worker)), strict=True
        )
    ]
    head = ("at", "batch", "took", "waited", "of the median", "worker")
    return _section("along the run", *charts, Table(head, rows, "outliers", folded=True))


def _waits_chart(r: Result, run: Run, of: str) -> Chart:
    steps = run.steps
    arm = np.full(len(steps), COUNTS_NOT)
    for code, name in enumerate(ARMS):
        arm[steady(run, name)] = code
    outlier = np.zeros(len(steps), np.bool_)
    if run is r.run:
        outlier[r.outliers.row] = True
    is_timed = bool((steps.request_ns != UNKNOWN).all())
    time_s = (steps.request_ns + steps.wait_ns) / SECOND_NS if is_timed else np.arange(len(steps))
    table = Columns(
        {
            "time_s": time_s,
            "wait_ns": steps.wait_ns,
            "arm": arm,
            "epoch": steps.epoch,
            "batch": steps.batch,
            "outlier": outlier,
        }
    )
    span = (float(time_s.min()), float(time_s.max())) if is_timed else None
    batches, marked = counted(len(steps), "batch", "batches"), counted(sum(outlier), "outlier")
    tables = {"batches": table}
    if span and run is r.run and (readings := _readings(run)) is not None:
        tables["readings"] = readings
    says = f"The wait for each of {batches}, {marked} marked"
    return Chart("waits", f"Waits{of}", says, tables, "duration", span)


def _readings(run: Run) -> Columns | None:
    """Quantities that change along the run, or all where none does; None where none was read."""
    lines = [
        (*named(name), subject or probe, table.time_ns / SECOND_NS, np.asarray(table[name], float))
        for (probe, subject), table in run.readings.items()
        if probe != THREADS
        for name in table.names[1:]
        if np.isfinite(np.asarray(table[name], float)).any()
    ]
    changing = {panel for panel, *_, values in lines if np.nanmin(values) < np.nanmax(values)}
    tables = [
        Columns(
            {
                "panel": np.full(len(values), panel),
                "unit": np.full(len(values), unit),
                "subject": np.full(len(values), subject),
                "time_s": time_s,
                "value": values,
            }
        )
        for panel, unit, subject, time_s, values in lines
        if panel in changing or not changing
    ]
    return Columns.concat(tables) if tables else None


def system_metrics(r: Result) -> Section:
    """What the probes read, in each arm."""
    m = r.metrics
    rows: list[Row] = [
        (
            f"{each.subject or each.probe} {named(each.name)[0]}",
            *(_level(each, level) for level in (each.real, each.ideal)),
        )
        for each in m.quantities
    ]
    grows = [
        Text(
            f"Memory of the {each.subject}: {each.says}, "
            f"{worded(each.bytes_per_hour, 'size')} an hour."
        )
        for each in m.growths
        if each.bytes_per_hour is not None
    ]
    facts: list[tuple[str, Cell]] = []
    if r.padding is not None:
        facts = [
            ("padding of a batch", _part(r.padding.share)),
            ("a step would be shorter by", _ns(r.padding.saved_ns)),
        ]
    return _section(
        "system metrics",
        Table(("mean (p95)", "real", "ideal"), rows, "readings", folded=True),
        *(Text(f"{probe} not measured: {why}", "note") for probe, why in m.missing),
        *grows,
        Facts(facts),
    )


UNITS = {
    "_bytes_per_s": "bytes/s",
    "_per_s": "/s",
    "_bytes": "size",
    "_percent": "%",
    "_share": "share",
    "_flag": "share",
    "_watts": "W",
    "_celsius": "C",
    "_hz": "Hz",
    "_cores": "cpus",
}
"""The unit of a quantity whose name ends so; the first that fits."""


def named(quantity: str) -> tuple[str, str]:
    """A quantity's name in words, and its unit."""
    end = next((end for end in UNITS if quantity.endswith(end)), "")
    return quantity.removesuffix(end).replace("_", " "), UNITS.get(end, "")


def _level(quantity: Quantity, level: Level | None) -> Cell:
    if level is None:
        return NOT_MEASURED
    unit = named(quantity.name)[1]
    return f"{worded(level.mean, unit)} ({worded(level.p95, unit)})"


def nothing_found(r: Result) -> Section:
    """The rules that found nothing, as a number, and those that could not tell."""
    d = r.diagnosis
    rules = len(d.nothing) + len(d.skipped) + len(d.findings)
    said = [Text(f"Nothing was found by {counted(len(d.nothing), 'rule')} of {rules}.")]
    reasons: dict[str, list[str]] = {}
    for name, why in d.skipped.items():
        reasons.setdefault(why, []).append(name)
    if reasons:
        said.append(Text("Not measured:"))
    said += [Text(f"{', '.join(names)}: {why}", "entry") for why, names in reasons.items()]
    return Section("what else was looked for", said)


def settings(r: Result) -> Section:
    """What was measured: the loader, its settings, the machine."""
    loader, header = r.run.loader, r.run.header
    recorded = header.created or NOT_RECORDED
    with suppress(ValueError):  # not everybody writes when
        recorded = wall_clock(datetime.fromisoformat(recorded))
    known = {
        "run": header.name,
        "mode": header.mode,
        "recorded": recorded,
        "loader": loader.backend.rpartition(".")[2] or NOT_RECORDED,
        "workers": loader.workers,
        "prefetch depth": loader.prefetch_depth,
        "batch size": loader.batch_size,
        "batches in an epoch": loader.length,
        "start method": loader.start_method,
        "persistent workers": loader.persistent_workers,
        "pinned": loader.pinned,
        "dataset": loader.dataset,
        "sampler": loader.sampler,
        "made at": loader.made_at,
        "usable CPUs": header.environment.get("cpus_usable"),
        "host": header.environment.get("host"),
        "in place of the program's": None,
    }
    if loader.overrides:
        changed = ", ".join(f"{name}={value!r}" for name, value in loader.overrides.items())
        known["in place of the program's"] = changed
    facts = [
        (label, {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value))
        for label, value in known.items()
        if value is not None
    ]
    return Section("what was measured", [Facts(facts)])


SECTIONS: tuple[Callable[[Result], Section], ...] = (
    *(headline, batch_time, what_to_do, findings, batches_measured, how_sure),
    *(lost, arms, by_epoch, inside, operators_and_threads, timeline, system_metrics),
    *(nothing_found, settings),
)
