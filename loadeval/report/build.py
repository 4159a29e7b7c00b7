"""What a report says of a run, in the order in which it is read: a function is a section."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.lines import Arm
from loadeval.data.run import ARMS, NOT_RECORDED, Run, host_values
from loadeval.estimate.before_after import (
    BATCHES,
    Difference,
    about_backends,
    about_two_runs,
    before_after,
    differences,
    took_turns,
    unit_of,
)
from loadeval.estimate.gap import Gap, gap, throughput
from loadeval.estimate.metrics import (
    THREADS,
    Level,
    Metrics,
    PaddingShare,
    metrics,
    other_kernels_ns,
    padding,
)
from loadeval.estimate.stats import Estimate
from loadeval.estimate.steady import epochs, first_waits, outliers, steady, workers_started
from loadeval.estimate.verdict import Verdict, cautions, not_measured, verdict
from loadeval.findings import MATTERS
from loadeval.findings.engine import DIAGNOSE, Diagnosis, Do, Finding, diagnose
from loadeval.inside.code import FEWEST_LOOKS, looks_at_steps, step_lines
from loadeval.inside.lanes import lanes
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
    TextKind,
)
from loadeval.words import NOT_MEASURED, counted, duration, moment, share, times, worded

Row = tuple[Cell, ...]

MOST_SAMPLES = 3
"""Slow samples, and outliers, that are shown in text; a page has all outliers in its chart."""
MOST_OUTLIERS = 10
MOST_LINES = 3
"""Lines of a step on a screen."""
MOST_RANKS = 64
SEVERAL = ("the CPUs", "the workers", "the starts of epochs")
"""Limits of training that are more than one thing."""
SERIES = {"real": "real", "ideal": "ideal", "loader_only": "loader"}
"""The colours of what throughput is known of."""


@dataclass(frozen=True, eq=False)
class Result:
    """All that is known of a run, or of one beside the `ideal` that replayed.

    Its fields are the keys of the JSON. `throughput` is in `unit` per second: of the steady `real`
    and `ideal` arms, of the loader alone, `loader_only`, and over `whole` epochs. `cautions` are
    what makes the figures mean less, and `not_measured` why some are not there, a sentence each.
    `workers_started` are the worker processes that were started in the run, and `step` the lines of
    the program that a step is in. None is not known:
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
    step: Columns
    metrics: Metrics
    padding: PaddingShare | None


def result_of(run: Run, ideal: Run | None = None, **others: Run) -> Result:
    """Everything that a report of a run says; see findings.engine.diagnose."""
    measured, beside = gap(run, ideal), () if ideal is None else about_two_runs(run, ideal)
    return Result(
        run=run,
        ideal=ideal,
        gap=measured,
        verdict=verdict(measured, run, ideal),
        diagnosis=diagnose(run, ideal, **others),
        cautions=(*beside, *cautions(measured, run, ideal)),
        not_measured=tuple(not_measured(measured, run)),
        throughput=throughput(measured),
        unit=BATCHES if measured.samples_per_batch is None else run.header.unit,
        epochs=epochs(run),
        workers_started=workers_started(run),
        outliers=outliers(run),
        stages=stages(run),
        operators=operators(run),
        threads=threads(run, ideal),
        step=step_lines(run),
        metrics=metrics(run, ideal),
        padding=padding(run),
    )


def sections(r: Result, *, whole: bool = True) -> list[Section]:
    """The report of a run, or no more than a screen may have of it."""
    top, *rest = (make(r) for make in (SCREEN + REST if whole else SCREEN))
    return [top, *(section for section in rest if section.blocks)]


def change_sections(before: Result, now: Result, of_now: Sequence[Section]) -> list[Section]:
    """Whether a run is slower than an earlier one, what changed, and what is said `of_now`."""
    told = before_after(before.run, now.run)
    rate = f"{told.unit}/s"
    compared = (
        ("whole epochs", told.epochs, rate),
        ("steady state", told.steady, rate),
        ("lost a batch", told.lost, "duration"),
        ("wait a batch", told.wait, "duration"),
        ("step", told.step, "duration"),
    )
    rows = [
        (label, Number(each.before, unit), Number(each.now, unit), _x(each.ratio))
        for label, each, unit in compared
        if each.now is not None or each.before is not None
    ]
    changes = [
        (f"{each.what}: {each.name.replace('_', ' ')}", str(each.before), str(each.now))
        for each in told.changes
    ]
    unchanged = "Nothing changed that the logs tell of loader, versions and machine."
    then, today = ({each.rule for each in r.diagnosis.findings} for r in (before, now))
    found = {"No longer found": then - today, "Found now": today - then}
    told_now = [f"{label}: {', '.join(sorted(names))}." for label, names in found.items() if names]
    head, *rest = of_now
    return [
        _section(
            told.headline,
            Table(("training", "before", "now", "now / before"), rows),
            Table(("changed", "before", "now"), changes),
            Text("" if changes else unchanged),
            *_texts(told_now),
            priority=1,
        ),
        _section("how sure", *_texts(told.cautions, "caution"), priority=5),
        Section(f"now: {head.title}", head.blocks),
        *(replace(each, priority=None) for each in rest),
    ]


def backends_sections(
    backends: Mapping[str, Result],
    failed: Mapping[str, str],
    unequal: Sequence[str] = (),
    *,
    whole: bool = True,
) -> list[Section]:
    """Several backends under one training step, the fastest first.

    `failed` has the errors of those that failed, and `unequal` a clause for each difference in what
    they do.
    """
    runs = {name: r.run for name, r in backends.items()}
    unit, rates = unit_of(list(runs.values())), rates_of(backends)
    ranked = {name: backends[name] for name in rates}
    beside_fastest = [pair for pair in differences(runs) if pair.one == next(iter(ranked))]
    title, others = "No backend was measured", list[str]()
    if beside_fastest:
        title, *others = map(_difference, beside_fastest)
    elif ranked:
        name, r = next(iter(ranked.items()))
        title = f"{name}: {r.verdict.headline}"
    speeds: list[Row] = [
        (name, *(Number(own.get(key), "number") for key in SERIES)) for name, own in rates.items()
    ]
    gains: list[Row] = [
        (name, _x(r.gap.speedup), Number(memory_bytes(r.run), "size")) for name, r in ranked.items()
    ]
    bars = [
        (name, series, own[key])
        for name, own in rates.items()
        for key, series in SERIES.items()
        if key in own
    ]
    says = f"Throughput in {unit} per second, steady state, with 95% confidence intervals"
    each_backend = [
        replace(section, title=f"{name}: {section.title}")
        for name, r in (ranked.items() if whole else ())
        for make in (inside, operators_and_threads, timeline, system_metrics, settings)
        if (section := make(r)).blocks
    ]
    return [
        _section(
            title,
            Table((f"{unit}/s", "real", "ideal", "loader alone"), speeds),
            Table(("backend", "free loading", "memory"), gains),
            *_texts(f"{other}." for other in others),
            *_texts((f"{name} failed: {error}" for name, error in failed.items()), "caution"),
            _beside_each_other("Backends", says, bars, f"{unit}/s"),
            priority=1,
        ),
        _how_sure_of_backends(backends, len(backends) + len(failed), unequal),
        *each_backend,
    ]


def rates_of(backends: Mapping[str, Result]) -> dict[str, Mapping[str, Estimate]]:
    """What `Result.throughput` has, in the one unit that all of them know; the fastest first."""
    by_sample = unit_of([r.run for r in backends.values()]) != BATCHES
    rates = {name: throughput(r.gap, by_sample) for name, r in backends.items()}
    ranked = sorted(rates, key=lambda name: -rates[name].get("real", Estimate(0.0)).value)
    return {name: rates[name] for name in ranked}


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
    about = f"{counted(count, 'backend')} under one training step"
    if len(runs) > 1:
        about += ", in turns" if took_turns(list(runs.values())) else ", in separate runs"
    work = [f"The backends do not do equal work: {'; '.join(unequal)}."] if unequal else []
    own = {name: (*r.cautions, *r.run.notes) for name, r in backends.items()}
    missing = {
        name: (*([] if r.verdict.rule == "concluded" else [r.verdict.headline]), *r.not_measured)
        for name, r in backends.items()
    }
    return _section(
        "how sure",
        Text(f"{about}."),
        *_texts((*work, *about_backends(runs), *_by_name(own)), "caution"),
        *_texts(_by_name(missing), "note"),
        priority=5,
    )


def _by_name(said: Mapping[str, Iterable[str]]) -> list[str]:
    """Each sentence once, behind the names of all that it is about."""
    names: dict[str, list[str]] = {}
    for name, sentences in said.items():
        for sentence in dict.fromkeys(sentences):
            names.setdefault(sentence, []).append(name)
    return [f"{', '.join(about)}: {sentence}" for sentence, about in names.items()]


def memory_bytes(run: Run) -> float | None:
    """The most that the training process was seen to take, and its workers; None if not read.

    What they share counts once.
    """
    most = list[float]()
    for subject in ("process", "workers"):
        if len(read := host_values(run, subject, "pss_bytes")):
            most.append(float(read.max()))
    return sum(most) if most else None


def job_sections(job: Job, r: Result, of_run: Sequence[Section]) -> list[Section]:
    """The ranks of a job, of whose run `r` tells: who keeps the others waiting comes first."""
    top, *rest = of_run
    if r.gap.ideal is None:
        top = Section(job.headline, priority=1)
    measured = f"{counted(job.steps, 'batch', 'batches')} measured on all {len(job.ranks):,} ranks"
    if "real" in r.throughput:
        measured += f", together {worded(r.throughput['real'], f'{r.unit}/s')}"
    measured += ". At each step the job waits as long as the rank that waits longest."
    short = _section(
        "ranks",
        *_texts([measured, f"Stragglers: {job.stragglers.says}."]),
        *_texts(job.cautions, "caution"),
        priority=2,
    )
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
    own = [
        (f"rank {rank.rank}", "waiting", Estimate(rank.wait_ns))
        for rank in shown
        if rank.wait_ns is not None
    ]
    says = "The mean wait of each rank for its batches, those that cost the job most first"
    means = (
        "For others: how long its step waits for ranks that waited longer. Last: the share of the "
        "batches that some rank waits for in which it waits longest. Costs: what the job would "
        "save if this rank alone waited no longer than the others."
    )
    each_rank = _section(
        "each rank",
        Table(("rank", "host", "own wait", "of the time", "for others", "last", "costs"), rows),
        Text(means, "note"),
        Text(
            f"What is found, and inside the loader, is of rank {job.shown}, for which the others "
            "wait most.",
            "note",
        ),
        _beside_each_other("Ranks", says, own, "duration"),
    )
    return [top, short, *rest, each_rank]


# What sections are made of


_ns = partial(Number, unit="duration")
_part = partial(Number, unit="share")
_x = partial(Number, unit="times")


def _rows(items: Columns | Iterable[object], **cells: Callable[..., Cell]) -> list[Row]:
    """A row for each item: of each field, or column, that is named, the cell that is made of it."""
    if isinstance(items, Columns):
        columns = [map(cell, items[name].tolist()) for name, cell in cells.items()]
        return list(zip(*columns, strict=True))
    return [tuple(cell(getattr(each, name)) for name, cell in cells.items()) for each in items]


def _texts(said: Iterable[str], kind: TextKind = "plain") -> list[Text]:
    return [Text(each, kind) for each in said]


def _section(title: str, *blocks: Block, priority: int | None = None) -> Section:
    """A section of those blocks that have something to show."""

    def shows(block: Block) -> bool:
        match block:
            case Text():
                return bool(block.text)
            case Table() | Facts() | Bars():
                return bool(block.rows)
            case Chart():
                return any(map(len, block.tables.values()))
            case Findings():
                return bool(block.found)

    return Section(title, list(filter(shows, blocks)), priority)


def _beside_each_other(
    title: str, says: str, bars: Sequence[tuple[str, str, Estimate]], unit: str
) -> Chart:
    """A chart of bars, each of which has its row's name, its colour's and its length."""
    table = Columns.of_rows(("row", "series", "length"), bars)
    return Chart("real beside ideal", title, says, {"bars": table}, unit)


# The screen


def headline(r: Result) -> Section:
    """The verdict, what comes ahead of it, and of loading alone how long it is waited for."""
    g, first = r.gap, _texts(each.says for each in r.diagnosis.findings if each.ahead)
    if g.ideal is not None or g.real is None or g.waiting is None:
        remedy = r.verdict.remedy if r.verdict.level == "inconclusive" else ""
        return _section(r.verdict.headline, *first, Text(remedy), priority=1)
    whole, starts = (g.whole or g.real).value, max(g.share("epoch starts"), 0.0)
    title = f"Training waited for batches {share(g.waiting.value / whole + starts)} of the time"
    if starts >= MATTERS:
        title += f", {share(starts)} for epochs to start"
    if "real" in r.throughput:
        title += f", at {worded(r.throughput['real'], f'{r.unit}/s')}"
    cost = Text("What that costs needs ideal loading beside it: loadeval diagnose -- COMMAND")
    return _section(title, *first, cost, priority=1)


def batch_time(r: Result) -> Section:
    """One bar of a batch's time, and the ideal below it."""
    g = r.gap
    if g.real is None:
        return Section("")
    whole = (g.whole or g.real).value
    parts = {name: part.value for name, part in g.parts() if part.value > 0}
    bars = [("a batch", {"step": max(whole - sum(parts.values()), 0.0), **parts})]
    if g.ideal is not None:
        bars.append(("ideal", {"step": g.ideal.value}))
    return _section("a batch's time", Bars(bars), priority=2)


def what_to_do(r: Result) -> Section:
    """What to change, the largest gain first, each on top of those before it."""
    actions, limit = r.diagnosis.actions, r.diagnosis.limit
    rows: list[Row] = [
        (
            f"{at}. {_at(action.says, action.where)}",
            "not predicted" if action.speedup is None else _x(action.speedup),
        )
        for at, action in enumerate(actions, 1)
    ]
    predicted, after = [each.speedup for each in actions if each.speedup is not None], ""
    if predicted and limit and r.gap.speedup is not None:
        reached, free = times(predicted[-1].value), times(r.gap.speedup.value)
        are = "are" if limit in SEVERAL else "is"
        after = f"After that {limit} {are} the limit: {reached} of the {free} that free loading"
        after += " would give."
    return _section("what to do", Table(("", "training"), rows), Text(after), priority=3)


def _at(says: str, where: str | None) -> str:
    """What is said, and the line that it is of."""
    line = (where or "").partition(" ")[0]
    return f"{says} ({line})" if line else says


def findings(r: Result) -> Section:
    """What is wrong: on a screen in a line each."""
    return _section("why", Findings([*map(_found, r.diagnosis.findings)]), priority=6)


def _found(finding: Finding) -> FindingText:
    to_do = [(do, do.where or "" if isinstance(do, Do) else "") for do in finding.do]
    return FindingText(
        name=finding.rule,
        says=finding.says,
        cost="" if finding.cost is None else _part(finding.cost),
        where=next((where for _, where in to_do if where), ""),
        do=[_at(do.says, where) + (f": {do.because}" if do.because else "") for do, where in to_do],
        facts=[_fact(name, value) for name, value in finding.facts.items() if value is not None],
        source=finding.source + ("" if finding.sure else "; other causes would look alike"),
    )


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
    ideal = "" if g.ideal is None else f" and {g.ideal_batches:,} ideal"
    pairs = "" if g.pairs is None else f" in {counted(g.pairs, 'pair')} of blocks"
    measured, d = f"Measured: {g.real_batches:,} real{ideal} batches{pairs}.", r.diagnosis
    if d.more_batches:
        more = counted(max(d.more_batches.values()), "more batch", "more batches")
        rules = counted(len(d.more_batches), "rule")
        measured += f" Too short for {rules}: {more} would do for all."
    return _section("how sure", Text(measured), priority=5)


def how_sure(r: Result) -> Section:
    """What makes it mean less."""
    notes = [*r.run.notes, *(r.ideal.notes if r.ideal else ()), *r.cautions]
    said = [*_texts(dict.fromkeys(notes), "caution"), *_texts(r.not_measured, "note")]
    return _section("", *said, priority=7)


# The rest


def lost(r: Result) -> Section:
    """What the time lost consists of."""
    g = r.gap
    if g.lost is None:
        return Section("")
    rows = [("time lost", _ns(g.lost), _part(g.lost_share))]
    rows += [(f"  {name}", _ns(part), _part(g.share(name))) for name, part in g.parts()]
    facts: list[tuple[str, Cell]] = [
        ("verdict", r.verdict.reason),
        ("speed-up, steady state", _x(g.steady_speedup)),
        ("loader alone", _ns(g.loader_only)),
        ("faster to keep up", _x(g.required)),
    ]
    if g.gpu_idle is not None:
        facts.append(("no work of the training's stream in the wait", _ns(g.gpu_idle)))
        if others_ns := other_kernels_ns(r.run, g.gpu_idle):
            facts.append(("other kernels ran meanwhile, at least", _ns(others_ns)))
    table = Table(("", "per batch", "of the time"), rows)
    return _section("whole epochs", table, Facts(facts), Text(r.verdict.remedy))


def arms(r: Result) -> Section:
    """Throughput and times of each arm."""
    g = r.gap
    columns: dict[str, list[Cell]] = {}
    of_arms: tuple[tuple[Arm, Run, Estimate | None], ...] = (
        ("real", r.run, g.real),
        ("ideal", r.ideal or r.run, g.ideal),
    )
    for arm, run, iteration in of_arms:
        steps = run.steps.take(steady(run, arm))
        if iteration is not None and len(steps):
            waits_ns = np.percentile(steps.wait_ns, [50, 95, 99, 100]).tolist()
            means_ns = [float(steps.step_ns.mean()), float(steps.wait_ns.mean())]
            rate = Number(r.throughput.get(arm), f"{r.unit}/s")
            columns[arm] = [rate, *map(_ns, [iteration, *means_ns, *waits_ns])]
    labels = ("throughput", "a batch", "step", "wait", "  p50", "  p95", "  p99", "  longest")
    rows = list(zip(labels, *columns.values(), strict=True)) if columns else []
    bars = [
        ("training", series, r.throughput[key])
        for key, series in SERIES.items()
        if key in r.throughput
    ]
    says = f"{r.unit} per second in the steady state, with 95% confidence intervals"
    return _section(
        "steady state",
        Table(("", *columns), rows),
        _beside_each_other("Throughput, real beside ideal", says, bars, f"{r.unit}/s"),
    )


def by_epoch(r: Result) -> Section:
    """Each epoch, and how long their starts took."""
    first_ns = first_waits(r.run)
    rate = "batches_per_s" if r.unit == BATCHES else "samples_per_s"
    cells: dict[str, Callable[..., Cell]] = {
        "epoch": "{:g}".format,
        "batches": "{:,}".format,
        **dict.fromkeys(("total_ns", "mean_ns", "std_ns"), _ns),
        rate: lambda per_s: Number(per_s, f"{r.unit}/s"),
    }
    head = ("epoch", "batches", "in all", "a batch", "standard deviation", "throughput")
    facts: list[tuple[str, Cell]] = []
    if len(first_ns):
        facts = [
            ("first batch of an epoch, median", _ns(float(np.median(first_ns)))),
            ("first batch of an epoch, longest", _ns(float(first_ns.max()))),
        ]
    if r.workers_started is not None:
        facts.append(("worker processes started", f"{r.workers_started:,}"))
    are = (
        "Batches: those with real loading. In all: the waits and steps of these, and the wait that "
        "ends the epoch."
    )
    table = Table(head, _rows(r.epochs, **cells), "each epoch", folded=True)
    return _section("epochs", table, Text(are, "note"), Facts(facts))


def inside(r: Result) -> Section:
    """Where the loader's time goes: stages, transforms, lines of code, samples, workers."""
    s, title = r.stages, "inside the loader"
    if s is None:
        why = why_no_stages(r.run)  # "" where operators are known in place of stages
        return _section(title, Text(f"Not measured: {why}." if why else ""))
    of = {"loader alone": "with the loader alone", "waits": "that training waited for"}[s.basis]
    batches = counted(s.batches, "batch", "batches")
    by_stage: list[Row] = [
        (each.stage, _ns(each.work_ns), _ns(each.charged_ns), _part(s.share(each.charged_ns)))
        for each in s.stages
    ]
    left_ns = s.not_attributed_ns
    by_stage.append(("not attributed", "", _ns(left_ns), _part(s.share(left_ns))))
    transforms = _rows(s.transforms, name=str, ns=_ns, share=_part, calls="{:.1f}".format)
    code = _rows(s.code, name=str, share=_part, blocked_share=_part)
    samples = s.slow_samples[:MOST_SAMPLES]
    slow = _rows(samples, index=str, longest_ns=_ns, times_typical=_x)
    workers = _rows(s.workers, worker=str, batches="{:,}".format, batch_ns=_ns, typical_ns=_ns)
    work_ns = max(s.fetch_ns + s.collate_ns, 1.0)
    facts: list[tuple[str, float | None, str]] = [
        ("fetch and collate: on a CPU", s.cpu_ns and s.cpu_ns / work_ns, "share"),
        ("  waiting for one", s.run_queue_ns and s.run_queue_ns / work_ns, "share"),
        ("  blocked", s.blocked_ns and s.blocked_ns / work_ns, "share"),
        ("waited while a later batch lay ready", s.head_of_line_ns, "duration"),
        ("a batch lay in the queue", s.queue_ns, "duration"),
    ]
    return _section(
        title,
        Text(f"{duration(s.total_ns)} a batch {of}, over {batches}."),
        Table(("stage", "work", "waited for", "share"), by_stage),
        _stages_chart(r, s),
        Table(("transform", "a batch", "of loading", "calls a batch"), transforms),
        Table(("line of code", "of loading", "blocked"), code),
        Table(("slowest samples", "longest", "times the typical one"), slow),
        Table(("worker", "batches", "a batch", "median"), workers if len(workers) > 1 else ()),
        Facts([(label, Number(value, unit)) for label, value, unit in facts if value is not None]),
    )


def _stages_chart(r: Result, s: Stages) -> Chart:
    rows: list[tuple[str, str, float]] = []
    for each in s.stages:
        rows.append((each.stage, each.stage, each.charged_ns))
        if each.stage == "fetch":
            for one in s.transforms:
                waited_ns = min(one.ns / max(s.fetch_ns, 1.0), 1.0) * each.charged_ns
                rows.append((f"  {one.name}", "fetch", waited_ns))
    rows.append(("not attributed", "not_attributed", s.not_attributed_ns))
    tables = {"stages": Columns.of_rows(("label", "stage", "ns"), rows)}
    says = f"What of {duration(s.total_ns)} a batch each stage is waited for"
    if shown := lanes(r.run):
        tables |= {"batches": shown.batches, "steps": shown.steps}
        says += f". {shown.says}"
    return Chart("stages", "Inside the loader", says, tables, "duration")


def step_in_short(r: Result) -> Section:
    """What a step is, where loading is not what training waits for."""
    names = zip(r.step.place.tolist(), r.step.call.tolist(), r.step.share.tolist(), strict=True)
    lines = [
        f"{share(part)} {call or place.partition(' ')[2]} ({place.partition(' ')[0]})"
        for place, call, part in names
    ]
    is_all = r.gap.lost_share is not None and r.gap.lost_share.value < MATTERS
    says = f"A step: {', '.join(lines[:MOST_LINES])}." if is_all and lines else ""
    return _section("", Text(says), priority=3)


def the_step(r: Result) -> Section:
    """Where a step goes: the lines of the program in which the training thread was seen."""
    cells: dict[str, Callable[..., Cell]] = {"place": str, "call": str, "share": _part}
    rows = _rows(r.step.take(slice(MOST_OUTLIERS)), **cells, first_ns=_ns, last_ns=_ns)
    head = ("line of the program", "calls", "of the step", "at first", "at last")
    looks, seen = len(looks_at_steps(r.run)), ""
    if not rows:
        seen = f"Not measured: {looks} looks at steps, of {FEWEST_LOOKS} needed; {DIAGNOSE}."
    return _section("the step", Text(seen), Table(head, rows))


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
    known = r.threads or Threads((), {})
    of_process = _rows(
        known.threads,
        name=str,
        threads="{:.0f}".format,
        cpu_cores=by_arm,
        run_queue_cores=by_arm,
    )
    locks = [
        (f"wait for Python's lock, {arm}", _ns(wait.wait_ns))
        for arm, wait in known.lock_wait.items()
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
    order = np.argsort(-r.outliers.times_median, kind="stable")[:MOST_OUTLIERS]
    worst = r.outliers.take(order)
    rows = _rows(
        worst.replace(took_ns=worst.wait_ns + worst.step_ns),
        request_ns=lambda at_ns: "" if at_ns == UNKNOWN else moment(at_ns),
        epoch=str,
        batch=str,
        took_ns=_ns,
        wait_ns=_ns,
        times_median=_x,
        worker=lambda worker: "" if worker == UNKNOWN else f"{worker}",
    )
    head = ("at", "epoch", "batch", "took", "waited", "of the median", "worker")
    table = Table(head, rows, "outliers", folded=True)
    return _section("along the run", _waits_chart(r), table)


def _waits_chart(r: Result) -> Chart:
    steps = r.run.steps
    is_outlier = np.zeros(len(steps), np.bool_)
    is_outlier[r.outliers.row] = True
    # An ideal block's first wait, in which its batches are loaded, is not one of ideal loading.
    shown = (steps.arm != ARMS.index("ideal")) | steady(r.run, "ideal")
    readings = {key: read for key, read in r.run.readings.items() if key[0] != THREADS}
    marked = counted(len(r.outliers), "outlier")
    says = f"The wait for each of {counted(int(shown.sum()), 'batch', 'batches')}, {marked} marked"
    tables = {"batches": steps.replace(outlier=is_outlier).take(shown)}
    return Chart("waits", "Waits", says, tables, "duration", readings)


def system_metrics(r: Result) -> Section:
    """What the probes read, in each arm."""
    m = r.metrics
    rows: list[Row] = [
        (
            f"{each.subject or each.probe} {named(each.name)[0]}",
            *(_level(level, named(each.name)[1]) for level in (each.real, each.ideal)),
        )
        for each in m.quantities
    ]
    return _section(
        "system metrics",
        Table(("mean (p95)", "real", "ideal"), rows, "readings", folded=True),
        *_texts((f"{probe} not measured: {why}" for probe, why in m.missing), "note"),
    )


def _level(level: Level | None, unit: str) -> str:
    if level is None:
        return NOT_MEASURED
    return f"{worded(level.mean, unit)} ({worded(level.p95, unit)})"


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


def nothing_found(r: Result) -> Section:
    """The rules that found nothing, as a number, and those that could not tell."""
    d = r.diagnosis
    rules = len(d.nothing) + len(d.skipped) + len(d.findings)
    reasons: dict[str, list[str]] = {}
    for name, why in d.skipped.items():
        reasons.setdefault(why, []).append(name)
    return _section(
        "what else was looked for",
        Text(f"Nothing was found by {counted(len(d.nothing), 'rule')} of {rules}."),
        Text("Not measured:" if reasons else ""),
        *_texts((f"{', '.join(names)}: {why}" for why, names in reasons.items()), "entry"),
    )


def settings(r: Result) -> Section:
    """What was measured: the loader, its settings, the machine."""
    loader, header = r.run.loader, r.run.header
    own = (
        *("workers", "prefetch_depth", "batch_size", "length", "start_method"),
        *("persistent_workers", "pinned", "dataset", "sampler", "made_at"),
    )
    known = {
        "run": header.name,
        "mode": header.mode,
        "recorded (UTC)": header.created.partition(".")[0].replace("T", " ") or NOT_RECORDED,
        "loader": loader.backend.rpartition(".")[2] or NOT_RECORDED,
        **{name.replace("_", " "): getattr(loader, name) for name in own},
        "usable CPUs": header.environment.get("cpus_usable"),
        "host": header.environment.get("host"),
    }
    facts = [(label, str(value)) for label, value in known.items() if value is not None]
    return _section("what was measured", Facts(facts))


Make: TypeAlias = Callable[[Result], Section]
SCREEN: tuple[Make, ...] = (
    *(headline, batch_time, step_in_short, what_to_do, findings, batches_measured, how_sure),
)
REST: tuple[Make, ...] = (
    *(lost, arms, by_epoch, inside, the_step, operators_and_threads, timeline, system_metrics),
    *(nothing_found, settings),
)
