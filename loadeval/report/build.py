"""What a report says of a run, in the order in which it is read: a function is a section."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.lines import Arm
from loadeval.data.run import ARMS, NOT_RECORDED, Run
from loadeval.estimate.before_after import BATCHES, about_two_runs
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
from loadeval.estimate.verdict import HIGH_SHARE, Verdict, cautions, not_measured, verdict
from loadeval.findings import MATTERS
from loadeval.findings.engine import DIAGNOSE, Diagnosis, Finding, diagnose
from loadeval.inside.code import FEWEST_LOOKS, looks_at_steps, step_lines
from loadeval.inside.operators import Operators, Threads, operators, threads
from loadeval.inside.stages import Stages, lanes, stages, why_no_stages
from loadeval.report.blocks import (
    Bars,
    Cell,
    Chart,
    Duration,
    Facts,
    Findings,
    FindingText,
    Number,
    Row,
    Section,
    Share,
    Table,
    Text,
    Times,
    rows_of,
    section,
    texts,
)
from loadeval.words import NOT_MEASURED, counted, duration, moment, share, times

MOST_OUTLIERS, MOST_SAMPLES, MOST_LINES = 10, 3, 3
"""Outliers that are shown, slow samples, and lines of a step on a screen. Charts have all."""
SEVERAL = ("the CPUs", "the workers", "the starts of epochs")
"""Limits of training that are more than one thing."""
SERIES = {"real": "real", "ideal": "ideal", "loader_only": "loader alone"}
"""The colours of what throughput is known of."""


@dataclass(frozen=True, eq=False)
class Result:
    """All that is known of a run, or of one beside the `ideal` that replayed.

    Its fields are the keys of the JSON. `throughput` is in `unit` per second: of the steady `real`
    and `ideal` arms, of the loader alone, `loader_only`, and over `whole` epochs. `cautions` are
    what makes the figures mean less, and `not_measured` why some are not there, a sentence each.
    `workers_started` are the worker processes that were started in the run, and `step` the lines of
    the program that a step is in. None is not known: `stages` and `operators` where the loader was
    not looked into, `threads` where those of the training process were not read, and `padding`
    where batches did not tell theirs.
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
    return [top, *(each for each in rest if each.blocks)]


# The screen


def headline(r: Result) -> Section:
    """The verdict, what comes ahead of it, and of loading alone how long it is waited for."""
    g, first = r.gap, texts(each.says for each in r.diagnosis.findings if each.ahead)
    if g.ideal is not None or g.real is None or g.waiting is None:
        remedy = r.verdict.remedy if r.verdict.level == "inconclusive" else ""
        return section(r.verdict.headline, *first, Text(remedy), priority=1)
    whole, starts = (g.whole or g.real).value, max(g.share("epoch starts"), 0.0)
    title = f"Training waited for batches {share(g.waiting.value / whole + starts)} of the time"
    if starts >= MATTERS:
        title += f", {share(starts)} for epochs to start"
    if "real" in r.throughput:
        title += f", at {Number(r.throughput['real'], f'{r.unit}/s')}"
    cost = Text("To see what that costs, measure: loadeval diagnose -- COMMAND")
    return section(title, *first, cost, priority=1)


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
    return section("a batch's time", Bars(bars), priority=2)


def what_to_do(r: Result) -> Section:
    """What to change, the largest gain first, each on top of those before it."""
    actions, limit = r.diagnosis.actions, r.diagnosis.limit
    rows: list[Row] = [
        (
            f"{at}. {_at(action.says, action.where)}",
            "not predicted" if action.speedup is None else Times(action.speedup),
        )
        for at, action in enumerate(actions, 1)
    ]
    predicted, after = [each.speedup for each in actions if each.speedup is not None], ""
    if predicted and limit and r.gap.speedup is not None:
        reached, free = times(predicted[-1].value), times(r.gap.speedup.value)
        are = "are" if limit in SEVERAL else "is"
        after = f"After that {limit} {are} the limit: {reached} of the {free} that free loading"
        after += " would give."
    return section("what to do", Table(("", "training"), rows), Text(after), priority=3)


def _at(says: str, where: str | None) -> str:
    """What is said, and the line that it is of."""
    line = (where or "").partition(" ")[0]
    return f"{says} ({line})" if line else says


def findings(r: Result) -> Section:
    """What is wrong: on a screen in a line each."""
    found, lost = [*map(_found, r.diagnosis.findings)], r.gap.lost_share
    is_lost = lost is not None and lost.value >= MATTERS
    if is_lost and not found:
        return section("why", Text(f"No single cause has {MATTERS:.0%} of the time."), priority=6)
    return section("why", Findings(found), priority=6)


def _found(finding: Finding) -> FindingText:
    return FindingText(
        name=finding.rule,
        says=finding.says,
        cost="" if finding.cost is None else Share(finding.cost),
        where=next((do.where for do in finding.do if do.where), ""),
        do=[
            _at(do.says, do.where) + (f": {do.because}" if do.because else "") for do in finding.do
        ],
        facts=[_fact(name, value) for name, value in finding.facts.items() if value is not None],
        source=finding.source + ("" if finding.sure else "; other causes would look alike"),
    )


ENDS = {"ns": "duration", "bytes": "size"}
"""What stands behind the comma in the name of a fact, and how its number is worded."""


def _fact(name: str, value: float) -> tuple[str, Cell]:
    label, _, end = name.rpartition(", ")
    return label or name, Number(value, ENDS.get(end, "number"))


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
    return section("how sure", Text(measured), priority=5)


def how_sure(r: Result) -> Section:
    """What makes it mean less."""
    notes = [*r.run.notes, *(r.ideal.notes if r.ideal else ()), *r.cautions]
    said = [*texts(dict.fromkeys(notes), "caution"), *texts(r.not_measured, "note")]
    return section("", *said, priority=7)


# The rest


def lost(r: Result) -> Section:
    """What the time lost consists of."""
    g = r.gap
    if g.lost is None:
        return Section("")
    rows = [("time lost", Duration(g.lost), Share(g.lost_share))]
    rows += [(f"  {name}", Duration(part), Share(g.share(name))) for name, part in g.parts()]
    facts: list[tuple[str, Cell]] = [
        ("verdict", r.verdict.reason),
        ("speed-up, steady state", Times(g.steady_speedup)),
        ("loader alone", Duration(g.loader_only)),
        ("speed to keep up", Times(g.required)),
    ]
    if g.gpu_idle is not None:
        facts.append(("no work of the training's stream in the wait", Duration(g.gpu_idle)))
        if others_ns := other_kernels_ns(r.run, g.gpu_idle):
            facts.append(("other kernels ran meanwhile, at least", Duration(others_ns)))
    table = Table(("", "per batch", "of the time"), rows)
    return section("whole epochs", table, Facts(facts), Text(r.verdict.remedy))


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
            columns[arm] = [rate, *map(Duration, [iteration, *means_ns, *waits_ns])]
    labels = ("throughput", "a batch", "step", "wait", "  p50", "  p95", "  p99", "  longest")
    rows = list(zip(labels, *columns.values(), strict=True)) if columns else []
    title = "Throughput, real beside ideal"
    says = f"{r.unit} per second in the steady state, with 95% confidence intervals"
    chart = rates_chart(title, says, {"training": r.throughput}, r.unit)
    return section("steady state", Table(("", *columns), rows), chart)


def rates_chart(
    title: str, says: str, rates: Mapping[str, Mapping[str, Estimate]], unit: str
) -> Bars:
    """The throughput of a training, or of each of several backends."""
    rows = [
        (name, {series: own[key] for key, series in SERIES.items() if key in own})
        for name, own in rates.items()
        if own
    ]
    return Bars(rows, title, says, f"{unit}/s", stacked=False)


def by_epoch(r: Result) -> Section:
    """Each epoch, and how long their starts took."""
    first_ns = first_waits(r.run)
    rate = "batches_per_s" if r.unit == BATCHES else "samples_per_s"
    cells: dict[str, Callable[..., Cell]] = {
        "epoch": "{:g}".format,
        "batches": "{:,}".format,
        **dict.fromkeys(("total_ns", "mean_ns", "std_ns"), Duration),
        rate: lambda per_s: Number(per_s, f"{r.unit}/s"),
    }
    head = ("epoch", "batches", "in all", "a batch", "standard deviation", "throughput")
    facts: list[tuple[str, Cell]] = []
    if len(first_ns):
        facts = [
            ("first batch of an epoch, median", Duration(float(np.median(first_ns)))),
            ("first batch of an epoch, longest", Duration(float(first_ns.max()))),
        ]
    if r.workers_started is not None:
        facts.append(("worker processes started", f"{r.workers_started:,}"))
    are = (
        "Batches: those with real loading. In all: the waits and steps of these, and the wait that "
        "ends the epoch."
    )
    table = Table(head, rows_of(r.epochs, **cells), "each epoch")
    return section("epochs", table, Text(are, "note"), Facts(facts))


def inside(r: Result) -> Section:
    """Where the loader's time goes: stages, transforms, lines of code, samples, workers."""
    s, title = r.stages, "inside the loader"
    if s is None:
        why = why_no_stages(r.run)  # "" where operators are known in place of stages
        return section(title, Text(f"Not measured: {why}." if why else ""))
    of = {"loader alone": "with the loader alone", "waits": "that training waited for"}[s.basis]
    batches = counted(s.batches, "batch", "batches")
    charged: list[tuple[str, Cell, float]] = [
        *((each.stage, Duration(each.work_ns), each.charged_ns) for each in s.stages),
        ("not attributed", "", s.not_attributed_ns),
    ]
    by_stage = [(name, work, Duration(ns), Share(s.share(ns))) for name, work, ns in charged]
    transforms = rows_of(s.transforms, name=str, ns=Duration, share=Share, calls="{:.1f}".format)
    code = rows_of(s.code, name=str, share=Share, blocked_share=Share)
    samples = s.slow_samples[:MOST_SAMPLES]
    slow = rows_of(samples, index=str, longest_ns=Duration, times_typical=Times)
    workers = rows_of(
        s.workers, worker=str, batches="{:,}".format, batch_ns=Duration, typical_ns=Duration
    )
    work_ns = max(s.fetch_ns + s.collate_ns, 1.0)
    facts: list[tuple[str, float | None, str]] = [
        ("fetch and collate: on a CPU", s.cpu_ns and s.cpu_ns / work_ns, "share"),
        ("  waiting for one", s.run_queue_ns and s.run_queue_ns / work_ns, "share"),
        ("  blocked", s.blocked_ns and s.blocked_ns / work_ns, "share"),
        ("waited while a later batch lay ready", s.head_of_line_ns, "duration"),
        ("a batch lay in the queue", s.queue_ns, "duration"),
    ]
    return section(
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
    rows.append(("not attributed", "not attributed", s.not_attributed_ns))
    tables = {"stages": Columns.of_rows(("label", "stage", "ns"), rows)}
    says = f"What of {duration(s.total_ns)} a batch each stage is waited for"
    if shown := lanes(r.run):
        tables |= {"batches": shown.batches, "steps": shown.steps}
        says += f". {shown.says}"
    return Chart("stages", "Inside the loader", says, tables, "duration")


def step_in_short(r: Result) -> Section:
    """What a step is, where loading is not what highly bounds training."""
    names = zip(r.step.place.tolist(), r.step.call.tolist(), r.step.share.tolist(), strict=True)
    lines = [
        f"{share(part)} {call or place.partition(' ')[2]} ({place.partition(' ')[0]})"
        for place, call, part in names
    ]
    is_most = r.gap.lost_share is not None and r.gap.lost_share.value < HIGH_SHARE
    says = f"A step: {', '.join(lines[:MOST_LINES])}." if is_most and lines else ""
    return section("", Text(says), priority=3)


def the_step(r: Result) -> Section:
    """Where a step goes: the lines of the program in which the training thread was seen."""
    cells: dict[str, Callable[..., Cell]] = {"place": str, "call": str, "share": Share}
    rows = rows_of(r.step.take(slice(MOST_OUTLIERS)), **cells, first_ns=Duration, last_ns=Duration)
    head = ("line of the program", "calls", "of the step", "at first", "at last")
    looks, seen = len(looks_at_steps(r.run)), ""
    if not rows:
        seen = f"Not measured: {looks} looks at steps, of {FEWEST_LOOKS} needed; {DIAGNOSE}."
    return section("the step", Text(seen), Table(head, rows))


def operators_and_threads(r: Result) -> Section:
    """Operators of a pipeline, and threads of the training process."""

    def by_arm(cores: Mapping[Arm, float | None]) -> str:
        return ", ".join("-" if (count := cores[arm]) is None else f"{count:.2f}" for arm in ARMS)

    of_pipeline = rows_of(
        r.operators.operators if r.operators else (),
        name=str,
        task_ns=Duration,
        cpu_ns=Duration,
        concurrency=lambda count: "" if count is None else f"{count}",
        busy_share=Share,
        queue_share=Share,
    )
    known = r.threads or Threads((), {})
    of_process = rows_of(
        known.threads,
        name=str,
        threads="{:.0f}".format,
        cpu_cores=by_arm,
        run_queue_cores=by_arm,
    )
    locks = [
        (f"wait for Python's lock, {arm}", Duration(wait.wait_ns))
        for arm, wait in known.lock_wait.items()
        if wait is not None
    ]
    head = ("thread", "threads", "CPUs (real, ideal)", "waiting for one")
    return section(
        "operators and threads",
        Table(("operator", "a task", "on CPU", "at once", "busy", "queue filled"), of_pipeline),
        Table(head, of_process, "threads"),
        Facts(locks),
    )


def timeline(r: Result) -> Section:
    """The waits along the run, and its outliers by their time."""
    order = np.argsort(-r.outliers.times_median, kind="stable")[:MOST_OUTLIERS]
    worst = r.outliers.take(order)
    rows = rows_of(
        worst.replace(took_ns=worst.wait_ns + worst.step_ns),
        request_ns=lambda at_ns: "" if at_ns == UNKNOWN else moment(at_ns),
        epoch=str,
        batch=str,
        took_ns=Duration,
        wait_ns=Duration,
        times_median=Times,
        worker=lambda worker: "" if worker == UNKNOWN else f"{worker}",
    )
    head = ("at", "epoch", "batch", "took", "waited", "of the median", "worker")
    table = Table(head, rows, "outliers")
    return section("along the run", _waits_chart(r), table)


def _waits_chart(r: Result) -> Chart:
    steps = r.run.steps
    is_outlier = np.zeros(len(steps), np.bool_)
    is_outlier[r.outliers.row] = True
    # An ideal block's first wait, in which its batches are loaded, is not one of ideal loading.
    shown = (steps.arm != ARMS.index("ideal")) | steady(r.run, "ideal")
    readings = {key: read for key, read in r.run.readings.items() if key[0] != THREADS}
    marked = f", {counted(len(r.outliers), 'outlier')} marked" if len(r.outliers) else ""
    says = f"The wait for each of {counted(int(shown.sum()), 'batch', 'batches')}{marked}"
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
    return section(
        "system metrics",
        Table(("mean (p95)", "real", "ideal"), rows, "readings"),
        *texts((f"{probe} not measured: {why}" for probe, why in m.missing), "note"),
    )


def _level(level: Level | None, unit: str) -> str:
    if level is None:
        return NOT_MEASURED
    return f"{Number(level.mean, unit)} ({Number(level.p95, unit)})"


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
    return section(
        "what else was looked for",
        Text(f"Nothing was found by {counted(len(d.nothing), 'rule')} of {rules}."),
        Text("Not measured:" if reasons else ""),
        *texts((f"{', '.join(names)}: {why}" for why, names in reasons.items()), "entry"),
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
    return section("what was measured", Facts(facts))


Make: TypeAlias = Callable[[Result], Section]
SCREEN: tuple[Make, ...] = (
    *(headline, batch_time, step_in_short, what_to_do, findings, batches_measured, how_sure),
)
REST: tuple[Make, ...] = (
    *(lost, arms, by_epoch, inside, the_step, operators_and_threads, timeline, system_metrics),
    *(nothing_found, settings),
)
OF_EACH: tuple[Make, ...] = (inside, operators_and_threads, timeline, system_metrics, settings)
"""What is said of each of several backends."""
