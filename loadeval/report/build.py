"""What a report says of a run, in the order in which it is read: a function is a section."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

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
from loadeval.findings.engine import MATTERS, Diagnosis, Do, diagnose
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
from loadeval.report.palette import NAMES
from loadeval.words import NOT_MEASURED, counted, duration, moment, share, times, wall_clock, worded

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
NO_BOUNDS = (np.nan, np.nan)
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
    by_sample = measured.samples_per_batch is not None
    return Result(
        run=run,
        ideal=ideal,
        gap=measured,
        verdict=verdict(measured, run, ideal),
        diagnosis=diagnose(run, ideal, **others),
        cautions=tuple(cautions(measured, run, ideal)),
        not_measured=tuple(not_measured(measured, run)),
        throughput=throughput(measured),
        unit=run.header.unit if by_sample else BATCHES,
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
    more = Section("", [Text(command, "command") for command in commands], priority=4)
    at = SECTIONS.index(how_sure) + 1
    return [section for section in (*made[:at], more, *made[at:]) if section.blocks]


def change_sections(before: Result, now: Result, commands: Sequence[str] = ()) -> list[Section]:
    """Whether a run is slower than an earlier one, and what changed; then all of the later run."""
    told = before_after(before.run, now.run)
    rates = ("whole epochs", told.epochs), ("steady state", told.steady)
    times_ns = ("lost a batch", told.lost), ("wait a batch", told.wait), ("step", told.step)
    rows: list[tuple[Cell, ...]] = [
        (label, Number(each.before, unit), Number(each.now, unit), Number(each.ratio, "times"))
        for group, unit in ((rates, f"{told.unit}/s"), (times_ns, "duration"))
        for label, each in group
        if each.now is not None or each.before is not None
    ]
    changes: list[tuple[Cell, ...]] = [
        (f"{each.what}: {each.name.replace('_', ' ')}", str(each.before), str(each.now))
        for each in told.changes
    ]
    found = [{each.rule for each in result.diagnosis.findings} for result in (before, now)]
    gone, new = found[0] - found[1], found[1] - found[0]
    blocks: list[Block] = [Table(("training", "before", "now", "now / before"), rows)]
    if changes:
        blocks.append(Table(("changed", "before", "now"), changes))
    else:
        blocks.append(Text("Nothing changed that the logs tell of loader, versions and machine."))
    blocks += [
        Text(f"{label}: {', '.join(sorted(names))}.")
        for label, names in (("No longer found", gone), ("Found now", new))
        if names
    ]
    top = [
        Section(told.headline, blocks, priority=1),
        Section("how sure", [Text(each, "caution") for each in told.cautions], priority=3),
        Section("", [Text(command, "command") for command in commands], priority=2),
    ]
    head, *rest = sections(now)
    return [
        *top,
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
    pairs = differences(runs)
    of_fastest = [pair for pair in pairs if pair.one == pairs[0].one]
    title = "No backend was measured"
    if pairs:
        title = _fastest(of_fastest)
    elif ranked and "real" in rates[ranked[0]]:
        speedup = backends[ranked[0]].gap.speedup
        rate = worded(rates[ranked[0]]["real"], f"{unit}/s")
        gain = f"training would be {speedup:times} as fast if loading were free" if speedup else ""
        title = f"{ranked[0]}: {gain or rate}"
    speeds: list[tuple[Cell, ...]] = [
        (name, *(Number(rates[name].get(key), "number") for key in SERIES)) for name in ranked
    ]
    gains: list[tuple[Cell, ...]] = [
        (
            name,
            Number(r.gap.speedup, "times"),
            Number(r.gap.lost_share, "share"),
            Number(memory_bytes(r.run), "size"),
            r.verdict.level,
        )
        for name, r in sorted(backends.items(), key=lambda each: ranked.index(each[0]))
    ]
    bars = [
        (name, SERIES[key], rates[name][key])
        for name in ranked
        for key in SERIES
        if key in rates[name]
    ]
    blocks = list[Block]()
    if ranked:
        blocks.append(Table((f"{unit}/s", "real", "ideal", "loader alone"), speeds))
        blocks.append(Table(("backend", "free loading", "lost", "memory", "verdict"), gains))
    if len(pairs) > 1:
        blocks += [Text(f"{_difference(pair)}.") for pair in of_fastest]
    blocks += [Text(f"{name} failed: {error}", "caution") for name, error in failed.items()]
    if bars:
        says = f"Throughput in {unit} per second, steady state, with 95% confidence intervals"
        blocks.append(_beside_each_other("Backends", says, bars, f"{unit}/s"))
    others = [Text(f"{_difference(pair)}.") for pair in pairs[len(of_fastest) :]]
    each_backend = [
        replace(section, title=f"{name}: {section.title}")
        for name in ranked
        for make in (inside, operators_and_threads, timeline, system_metrics, settings)
        if (section := make(backends[name])).blocks
    ]
    return [
        Section(title, blocks, priority=1),
        _how_sure_of_backends(backends, len(backends) + len(failed), unequal),
        Section("", [Text(command, "command") for command in commands], priority=2),
        *([Section("the others", others)] if others else []),
        *each_backend,
    ]


def rates_of(runs: Mapping[str, Run]) -> dict[str, Mapping[str, Estimate]]:
    """What `Result.throughput` has, of several runs in the one unit that all of them know."""
    by_sample = unit_of(list(runs.values())) != BATCHES
    return {name: throughput(gap(run), by_sample) for name, run in runs.items()}


def _fastest(of_fastest: Sequence[Difference]) -> str:
    """Which backend trains fastest, if that is shown by `of_fastest`, it beside each other."""
    one, other, ratio = of_fastest[0]
    which = "the next, " if len(of_fastest) > 1 else ""
    if ratio.low is not None and ratio.low > 1:
        return f"{one} trains fastest: {ratio:times} as fast as {which}{other}"
    if ratio.low is None or len(of_fastest) == 1:
        return _difference(of_fastest[0])
    *level, last = (pair.other for pair in of_fastest if (pair.ratio.low or 0.0) <= 1)
    which = "" if len(level) + 1 == len(of_fastest) else "the fastest, "
    return f"No difference is shown between {which}{', '.join([one, *level])} and {last}"


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
    if runs and took_turns(list(runs.values())):
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
        name: (r.verdict.headline, *r.not_measured)
        if r.verdict.rule != "concluded"
        else r.not_measured
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
    about = (
        f"{ranks}{of_all}{nodes}; {steps} "
        "measured on all. At each step the job waits as long as the rank that waits longest."
    )
    said = [Text(about), Text(f"Stragglers: {job.stragglers.says}.")]
    short = Section("ranks", [*said, *(Text(each, "caution") for each in job.cautions)], priority=2)
    ranked = sorted(job.ranks, key=lambda rank: (-(rank.cost_ns or 0.0), -(rank.wait_ns or 0.0)))
    rows: list[tuple[Cell, ...]] = [
        (
            f"{rank.rank}",
            rank.host or "not known",
            Number(rank.wait_ns, "duration"),
            Number(rank.wait_share, "share"),
            Number(rank.waited_for_ns, "duration"),
            Number(rank.last_share, "share"),
            Number(rank.cost_ns, "duration"),
        )
        for rank in ranked
    ]
    head = ("rank", "host", "own wait", "of the time", "for others", "last", "costs")
    notes = [
        (
            "For others: how long its step waits for ranks that waited longer. Last: the share of "
            "the batches that some rank waits for in which it waits longest. Costs: what the job "
            "would save if this rank alone waited no longer than the others."
        ),
        f"What is found, and inside the loader, is of rank {job.shown}, which was last most often.",
    ]
    own = [
        (f"rank {rank.rank}", "waiting", Estimate(rank.wait_ns))
        for rank in ranked[:MOST_RANKS]
        if rank.wait_ns is not None
    ]
    if len(rows) > MOST_RANKS:
        notes.insert(0, f"and {len(rows) - MOST_RANKS:,} more")
    blocks: list[Block] = [Table(head, rows[:MOST_RANKS]), *(Text(note, "note") for note in notes)]
    if own:
        says = "The mean wait of each rank for its batches, those that cost the job most first"
        blocks.append(_beside_each_other("Ranks", says, own, "duration"))
    moved = [replace(each, priority=each.priority and each.priority + 1) for each in rest]
    return [top, short, *moved, Section("each rank", blocks)]


def _section(title: str, *blocks: Block) -> Section:
    """A section of those blocks that have something to show."""
    return Section(
        title,
        [block for block in blocks if not isinstance(block, Table | Facts) or len(block.rows)],
    )


# The screen


def headline(r: Result) -> Section:
    """The verdict and the figures to see first."""
    g = r.gap
    figures: list[tuple[str, Cell]] = [
        ("speed-up if loading were free", Number(g.speedup, "times")),
        ("of the time lost", Number(g.lost_share, "share")),
        ("now", Number(r.throughput.get("real"), f"{r.unit}/s")),
        ("with free loading", Number(r.throughput.get("ideal"), f"{r.unit}/s")),
    ]
    if g.ideal is not None:
        said: list[Block] = []
        if r.verdict.level == "inconclusive":
            said.append(Text(r.verdict.remedy))
        return Section(r.verdict.headline, [*said, Facts(figures, large=True)], priority=1)
    figures = [("now", Number(r.throughput.get("real"), f"{r.unit}/s"))]
    if g.real is None or g.waiting is None:
        return Section(r.verdict.headline, [Text(r.verdict.remedy)], priority=1)
    whole, starts = (g.whole or g.real).value, max(g.share("epoch starts"), 0.0)
    title = f"Training waited for batches {share(g.waiting.value / whole + starts)} of the time"
    if starts >= MATTERS:
        title += f", {share(starts)} for epochs to start"
    if "real" in r.throughput:
        title += f", at {worded(r.throughput['real'], f'{r.unit}/s')}"
    cost = Text("What that costs needs ideal loading beside it: loadeval diagnose -- COMMAND")
    return Section(title, [cost, Facts(figures, large=True)], priority=1)


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
    actions = r.diagnosis.actions
    if not actions:
        return Section("")
    rows: list[tuple[Cell, ...]] = [
        (
            f"{at}. {_at(action.says, action.where)}",
            "not predicted" if action.speedup is None else Number(action.speedup, "times"),
        )
        for at, action in enumerate(actions, 1)
    ]
    blocks: list[Block] = [Table(("", "training"), rows)]
    predicted = [action.speedup for action in actions if action.speedup is not None]
    if predicted and r.diagnosis.limit and r.gap.speedup is not None:
        are = "are" if r.diagnosis.limit in SEVERAL else "is"
        blocks.append(
            Text(
                f"After that {r.diagnosis.limit} {are} the limit: {times(predicted[-1].value)} of "
                f"the {times(r.gap.speedup.value)} that free loading would give."
            )
        )
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
            cost="" if finding.cost is None else Number(finding.cost, "share"),
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
    rows: list[tuple[Cell, ...]] = [
        ("time lost", Number(g.lost, "duration"), Number(g.lost_share, "share")),
        *(
            (f"  {name}", Number(part, "duration"), Number(g.share(name), "share"))
            for name, part in g.parts()
        ),
    ]
    facts: list[tuple[str, Cell]] = [
        ("verdict", r.verdict.reason),
        ("speed-up, steady state", Number(g.steady_speedup, "times")),
        ("loader alone", Number(g.loader_only, "duration")),
        ("faster to keep up", Number(g.required, "times")),
    ]
    if g.gpu_idle is not None:
        facts.append(("GPU without work in the wait", Number(g.gpu_idle, "duration")))
    blocks: list[Block] = [Table(("", "per batch", "of the time"), rows), Facts(facts)]
    if r.verdict.remedy:
        blocks.append(Text(r.verdict.remedy))
    return Section("whole epochs", blocks)


def nothing_found(r: Result) -> Section:
    """The rules that found nothing, as a number, and those that could not tell."""
    d = r.diagnosis
    rules = len(d.nothing) + len(d.skipped) + len(d.findings)
    said = [Text(f"Nothing was found by {counted(len(d.nothing), 'rule')} of {rules}.")]
    reasons: dict[str, list[str]] = {}
    for name, why in d.skipped.items():
        reasons.setdefault(why, []).append(name)
    said += [Text(f"{', '.join(names)}: {why}", "entry") for why, names in reasons.items()]
    if reasons:
        said.insert(1, Text("Not measured:"))
    return Section("what else was looked for", said)


def arms(r: Result) -> Section:
    """Throughput and times of each arm."""
    g = r.gap
    columns: dict[str, dict[str, Cell]] = {}
    for arm, iteration in zip(ARMS, (g.real, g.ideal), strict=True):
        run = r.runs[arm]
        steps = run.steps.take(steady(run, arm))
        if iteration is not None and len(steps):
            p50, p95, p99, longest = np.percentile(steps.wait_ns, [50, 95, 99, 100]).tolist()
            columns[arm] = {
                "throughput": Number(r.throughput.get(arm), f"{r.unit}/s"),
                "a batch": Number(iteration, "duration"),
                "step": Number(float(steps.step_ns.mean()), "duration"),
                "wait": Number(float(steps.wait_ns.mean()), "duration"),
                "  p50": Number(p50, "duration"),
                "  p95": Number(p95, "duration"),
                "  p99": Number(p99, "duration"),
                "  longest": Number(longest, "duration"),
            }
    if g.loader_only is not None:
        rate = Number(r.throughput.get("loader_only"), f"{r.unit}/s")
        columns["loader alone"] = {"throughput": rate, "a batch": Number(g.loader_only, "duration")}
    if not columns:
        return Section("")
    labels = dict.fromkeys(label for column in columns.values() for label in column)
    rows = [(label, *(column.get(label, "") for column in columns.values())) for label in labels]
    head = ("", *columns)
    blocks: list[Block] = [Table(head, rows)]
    bars = [
        (NAMES[name], name, r.throughput[key])
        for key, name in SERIES.items()
        if key in r.throughput
    ]
    if bars:
        title = "Throughput, real beside ideal"
        says = f"{r.unit} per second in the steady state, with 95% confidence intervals"
        blocks.append(_beside_each_other(title, says, bars, f"{r.unit}/s"))
    return Section("steady state", blocks)


def _beside_each_other(
    title: str, says: str, bars: Sequence[tuple[str, str, Estimate]], unit: str
) -> Chart:
    """A chart of bars, each of which has its row's name, its colour's and its length."""
    rows = [
        (row, series, length.value, *(length.bounds if length.low is not None else NO_BOUNDS))
        for row, series, length in bars
    ]
    table = _columns(("row", "series", "value", "low", "high"), rows)
    return Chart("real beside ideal", title, says, {"bars": table}, unit)


def _columns(names: Sequence[str], rows: Sequence[Sequence[object]]) -> Columns:
    return Columns(dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True)))


def by_epoch(r: Result) -> Section:
    """Each epoch, and how long their starts took."""
    table, firsts = r.epochs, first_waits(r.run)
    rows: list[tuple[Cell, ...]] = [
        (
            f"{epoch:g}",
            f"{batches:,}",
            Number(total, "duration"),
            Number(mean, "duration"),
            Number(std, "duration"),
            Number(samples if r.unit != BATCHES else per_s, f"{r.unit}/s"),
        )
        for epoch, batches, total, mean, std, samples, per_s in zip(
            *(table[name].tolist() for name in table.names), strict=True
        )
    ]
    head = ("epoch", "batches", "in all", "a batch", "standard deviation", "throughput")
    facts: list[tuple[str, Cell]] = []
    if len(firsts):
        waited = firsts.wait_ns.astype(np.float64)
        facts.append(
            ("first batch of an epoch, median", Number(float(np.median(waited)), "duration"))
        )
        facts.append(("first batch of an epoch, longest", Number(float(waited.max()), "duration")))
    if r.workers_started is not None:
        facts.append(("worker processes started", f"{r.workers_started:,}"))
    counted_are = "In all: the waits and steps of these batches, and the wait that ends the epoch."
    if r.gap.pairs is not None:
        counted_are = (
            "Batches: those with real loading, whether they are in a pair that counts or not; the "
            f"rest were served with ideal loading. {counted_are}"
        )
    table_of = Table(head, rows, "each epoch", folded=True)
    return _section("epochs", table_of, Text(counted_are, "note"), Facts(facts))


def inside(r: Result) -> Section:
    """Where the loader's time goes: stages, transforms, lines of code, samples, workers."""
    s = r.stages
    if s is None:
        why = why_no_stages(r.run)  # "" where operators are known in place of stages
        said = [Text(f"Not measured: {why}.")] if why else list[Block]()
        return Section("inside the loader", said)
    of = {"loader alone": "with the loader alone", "waits": "that training waited for"}[s.basis]
    about = Text(
        f"{duration(s.total_ns)} a batch {of}, over {counted(s.batches, 'batch', 'batches')}."
    )
    rows: list[tuple[Cell, ...]] = [
        (
            each.stage,
            Number(each.work_ns, "duration"),
            Number(each.charged_ns, "duration"),
            Number(s.share(each.charged_ns), "share"),
        )
        for each in s.stages
    ]
    left = ("not attributed", "", Number(s.not_attributed_ns, "duration"))
    rows.append((*left, Number(s.share(s.not_attributed_ns), "share")))
    transforms = [
        (each.name, Number(each.ns, "duration"), Number(each.share, "share"), f"{each.calls:.1f}")
        for each in s.transforms
    ]
    code = [
        (line.name, Number(line.share, "share"), Number(line.blocked_share, "share"))
        for line in s.code
    ]
    slow_samples = [
        (
            f"{each.index}",
            Number(each.longest_ns, "duration"),
            Number(each.times_typical, "times"),
            f"{each.times}",
        )
        for each in s.slow_samples[:MOST_SAMPLES]
    ]
    workers = [
        (
            f"{each.worker}",
            f"{each.batches:,}",
            Number(each.batch_ns, "duration"),
            Number(each.typical_ns, "duration"),
        )
        for each in s.workers
    ]
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
        about,
        Table(("stage", "work", "waited for", "share"), rows),
        _stages_chart(r, s),
        Table(("transform", "a batch", "of loading", "calls a batch"), transforms),
        Table(("line of code", "of loading", "blocked"), code),
        Table(("slowest samples", "longest", "times the typical one", "times seen"), slow_samples),
        Table(("worker", "batches", "a batch", "median"), workers if len(workers) > 1 else ()),
        Facts([(label, Number(value, unit)) for label, value, unit in facts if value is not None]),
    )


def _stages_chart(r: Result, s: Stages) -> Chart:
    rows: list[tuple[object, ...]] = []
    for each in s.stages:
        parts = [
            np.nan if part is None else part
            for part in (each.cpu_ns, each.run_queue_ns, each.blocked_ns)
        ]
        rows.append(
            (each.stage, each.stage, each.charged_ns, s.share(each.charged_ns) or 0.0, *parts)
        )
        if each.stage == "fetch":
            rows += [
                (
                    f"  {one.name}",
                    "fetch",
                    (s.transform_share(one) or 0.0) * s.total_ns,
                    s.transform_share(one) or 0.0,
                    *[np.nan] * 3,
                )
                for one in s.transforms
            ]
    left = s.not_attributed_ns
    rows.append(("not attributed", "not_attributed", left, s.share(left) or 0.0, *[np.nan] * 3))
    names = ("label", "stage", "value", "share", "on_cpu", "waiting_for_cpu", "blocked")
    tables = {"stages": _columns(names, rows)}
    says = f"What of {duration(s.total_ns)} a batch each stage is waited for"
    shown = lanes(r.run)
    if shown is not None:
        bars: list[tuple[object, ...]] = []
        for stage, (begin_ns, took_ns) in spans(shown.batches).items():
            columns = (begin_ns, took_ns, shown.batches.worker, shown.batches.batch)
            bars += [
                (_lane(stage, worker), stage, begin / SECOND_NS, (begin + took) / SECOND_NS, batch)
                for begin, took, worker, batch in zip(
                    *(each.tolist() for each in columns), strict=True
                )
                if begin != UNKNOWN and took > 0
            ]
        bars += [
            ("training", "step", start / SECOND_NS, end / SECOND_NS, OPEN)
            for start, end in zip(
                shown.steps.start_ns.tolist(), shown.steps.end_ns.tolist(), strict=True
            )
        ]
        bars.sort(key=lambda bar: (bar[0] != "training", str(bar[0])))
        of_lanes = ("lane", "what", "begin_s", "end_s", "batch")
        if bars:
            tables["lanes"] = _columns(of_lanes, bars)
            says += f". {shown.says}"
    return Chart("stages", "Inside the loader", says, tables, "duration")


def _lane(stage: str, worker: int) -> str:
    """Who did a stage: the training process, or a worker."""
    return (
        "training"
        if worker == UNKNOWN or stage in ("indices", "receive", "pin")
        else f"worker {worker}"
    )


def operators_and_threads(r: Result) -> Section:
    """Operators of a pipeline, and threads of the training process."""
    operators: list[tuple[Cell, ...]] = [
        (
            each.name,
            Number(each.task_ns, "duration"),
            Number(each.cpu_ns, "duration"),
            "" if each.concurrency is None else f"{each.concurrency}",
            Number(each.busy_share, "share"),
            Number(each.queue_share, "share"),
        )
        for each in (r.operators.operators if r.operators else ())
    ]
    known = r.threads if r.threads and r.threads.threads else None
    threads = [
        (
            each.name,
            f"{each.threads:.0f}",
            _by_arm(each.cpu_cores),
            _by_arm(each.run_queue_cores),
        )
        for each in (known.threads if known else ())
    ]
    locks = [
        (f"wait for Python's lock, {arm}", Number(wait.wait_ns, "duration"))
        for arm, wait in (known.lock_wait.items() if known else ())
        if wait is not None
    ]
    head = ("thread", "threads", "CPUs (real, ideal)", "waiting for one")
    return _section(
        "operators and threads",
        Table(("operator", "a task", "on CPU", "at once", "busy", "queue filled"), operators),
        Table(head, threads, "threads", folded=True),
        Facts(locks),
    )


def _by_arm(cores: Mapping[Arm, float | None]) -> str:
    return ", ".join("-" if (count := cores[arm]) is None else f"{count:.2f}" for arm in ARMS)


def timeline(r: Result) -> Section:
    """The waits along the run, and its outliers by their time."""
    charts = [
        _waits_chart(r, run, "" if r.ideal is None else f", {arm}")
        for arm, run in r.runs.items()
        if len(run.steps) and (arm == "real" or r.ideal is not None)
    ]
    steps, table = r.run.steps, r.outliers
    order = np.argsort(-table.times_median, kind="stable")[:MOST_OUTLIERS]
    rows: list[tuple[Cell, ...]] = []
    for row, factor, worker in zip(
        *(table[name][order].tolist() for name in ("row", "times_median", "worker")), strict=True
    ):
        took = float(steps.wait_ns[row] + steps.step_ns[row])
        at = moment(float(steps.request_ns[row])) if steps.request_ns[row] != UNKNOWN else ""
        rows.append(
            (
                at,
                f"epoch {steps.epoch[row]}, batch {steps.batch[row]}",
                Number(took, "duration"),
                Number(float(steps.wait_ns[row]), "duration"),
                Number(factor, "times"),
                "" if worker == UNKNOWN else f"{worker}",
            )
        )
    head = ("at", "batch", "took", "waited", "of the median", "worker")
    return _section("along the run", *charts, Table(head, rows, "outliers", folded=True))


def _waits_chart(r: Result, run: Run, of: str) -> Chart:
    steps = run.steps
    arm = np.full(len(steps), COUNTS_NOT)
    for code, name in enumerate(ARMS):
        arm[steady(run, name)] = code
    is_timed = bool((steps.request_ns != UNKNOWN).all())
    end_ns = steps.request_ns + steps.wait_ns
    outlier = np.zeros(len(steps), np.bool_)
    if run is r.run:
        outlier[r.outliers.row] = True
    table = Columns(
        {
            "time_s": end_ns / SECOND_NS if is_timed else np.arange(len(steps)).astype(np.float64),
            "wait_ns": steps.wait_ns,
            "arm": arm,
            "epoch": steps.epoch,
            "batch": steps.batch,
            "outlier": outlier,
        }
    )
    span = (float(table.time_s.min()), float(table.time_s.max())) if is_timed else None
    says = (
        f"The wait for each of {counted(len(steps), 'batch', 'batches')}, "
        f"{counted(int(outlier.sum()), 'outlier')} marked"
    )
    tables = {"batches": table}
    if span and run is r.run and (readings := _readings(run)) is not None:
        tables["readings"] = readings
    return Chart("waits", f"Waits{of}", says, tables, "duration", span)


def system_metrics(r: Result) -> Section:
    """What the probes read, in each arm."""
    m = r.metrics
    rows: list[tuple[Cell, ...]] = [
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
            ("padding of a batch", Number(r.padding.share, "share")),
            ("a step would be shorter by", Number(r.padding.saved_ns, "duration")),
        ]
    return _section(
        "system metrics",
        Table(("mean (p95)", "real", "ideal"), rows, "readings", folded=True),
        *(Text(f"{probe} not measured: {why}", "note") for probe, why in m.missing),
        *grows,
        Facts(facts),
    )


def _readings(run: Run) -> Columns | None:
    """Quantities that change along the run, or all where none does; None where none was read."""
    lines = [
        (*named(name), subject or probe, table.time_ns / SECOND_NS, np.asarray(table[name], float))
        for (probe, subject), table in run.readings.items()
        if probe != THREADS
        for name in table.names[1:]
        if np.isfinite(np.asarray(table[name], float)).any()
    ]
    if not lines:
        return None
    changing = {panel for panel, *_, values in lines if np.nanmin(values) < np.nanmax(values)}
    return Columns.concat(
        [
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
    for end, unit in UNITS.items():
        if quantity.endswith(end):
            return quantity.removesuffix(end).replace("_", " "), unit
    return quantity.replace("_", " "), ""


def _level(quantity: Quantity, level: Level | None) -> Cell:
    if level is None:
        return NOT_MEASURED
    unit = named(quantity.name)[1]
    return f"{worded(level.mean, unit)} ({worded(level.p95, unit)})"


def settings(r: Result) -> Section:
    """What was measured: the loader, its settings, the machine."""
    loader, header = r.run.loader, r.run.header
    created = header.created
    recorded = wall_clock(datetime.fromisoformat(created)) if created else NOT_RECORDED
    facts: list[tuple[str, Cell]] = [
        ("run", header.name),
        ("mode", header.mode),
        ("recorded", recorded),
        ("loader", loader.backend.rpartition(".")[2] or NOT_RECORDED),
    ]
    known = {
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
    }
    facts += [
        (label, {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value))
        for label, value in known.items()
        if value is not None
    ]
    if loader.overrides:
        changed = ", ".join(f"{name}={value!r}" for name, value in loader.overrides.items())
        facts.append(("in place of the program's", changed))
    return Section("what was measured", [Facts(facts)])


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


SECTIONS: tuple[Callable[[Result], Section], ...] = (
    *(headline, batch_time, what_to_do, findings, batches_measured, how_sure),
    *(lost, arms, by_epoch, inside, operators_and_threads, timeline, system_metrics),
    *(nothing_found, settings),
)
