"""What is said of runs: each fact is worded once, with the places that show it.

The screen, the full text, the page and the figure choose from these, and lay them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING

from loadeval.analysis.backends import ranked
from loadeval.analysis.estimate.steady import warmup_of
from loadeval.report import formatting
from loadeval.report.formatting import (
    NOT_MEASURED,
    duration,
    printable,
    settings_as_code,
    share,
    short_name,
    speedup,
)
from loadeval.report.tables import Table
from loadeval.report.wording import advice, backends, lost, metrics, page, ranks, runs, verdict
from loadeval.report.wording import plan as plan_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from loadeval.analysis.backends import BackendReport
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.job.ranks import JobReport
    from loadeval.analysis.report import Comparison, Report, RunReport, Side
    from loadeval.analysis.rules.actions import Plan
    from loadeval.analysis.rules.finding import Diagnosis
    from loadeval.data.run import Run
    from loadeval.report.tables import Rows


LONGEST_FACT = 120
"""Characters that are shown of what a file says of its loader."""
FINDINGS_HEAD = ("finding", "lost", "what to change", "predicted")
"""The rule, the time lost, what to change, and what training would gain by that."""
SHORTEST_CHANGE = 26


class On(Flag):
    """Where a fact is shown."""

    SCREEN = auto()
    FULL = auto()
    PAGE = auto()
    """The top of the page."""
    FIGURE = auto()
    ALL = SCREEN | FULL | PAGE | FIGURE


class FactKind(Enum):
    """What a fact is for its reader."""

    KEY = "a figure to read first"
    TEXT = "a sentence to read first"
    LISTED = "one of several sentences under a label"
    CAUTION = "what makes the figures mean less"
    BASIS = "what the figures are of"


@dataclass(frozen=True, slots=True)
class ShownFact:
    """A value under its label; `interval` is its 95% CI, and `detail` what belongs to it."""

    kind: FactKind
    label: str
    value: str
    shown: On
    interval: str = ""
    detail: str = ""
    estimated: bool = False
    """Whether it has a CI if there are measurements enough."""

    @property
    def text(self) -> str:
        """The value, its interval and its detail in a line."""
        value = f"{self.value} {self.interval}".rstrip()
        return ", ".join(filter(None, (value, self.detail)))


def report_facts(report: Report) -> list[ShownFact]:
    """All facts but those of the charts; of one run by itself, its figures."""
    job = [] if report.job is None else job_facts(report.job)
    if report.comparison is not None:
        return [*comparison_facts(report.comparison), *job]
    if report.backends is not None:
        return backend_facts(report.backends)
    return [*run_facts(report.runs[0]), *job]


def sentences(facts: Iterable[ShownFact], kind: FactKind, place: On) -> list[str]:
    """The facts of a kind that a place shows, as text."""
    return [fact.text for fact in facts if fact.kind is kind and place in fact.shown]


def comparison_facts(comparison: Comparison) -> list[ShownFact]:
    """Real against ideal; why something was not measured comes last."""
    headroom = comparison.headroom
    facts = [*_figures(comparison)] if headroom.real_ns or headroom.ideal_ns else []
    if known := verdict.known(headroom):
        facts.append(ShownFact(FactKind.KEY, "known", printable(" ".join(known)), On.FULL))
    if headroom.gpu_idle_ns is not None:
        idle = f"{duration(headroom.gpu_idle_ns)} per batch, by CUDA events"
        facts.append(ShownFact(FactKind.KEY, "GPU idle while waiting", idle, On.FULL))
    measured = verdict.measured(headroom)
    loader = runs.described_loader(comparison.real)
    facts += [
        _basis("measured", measured, On.SCREEN | On.FULL),
        _text("verdict", f"{headroom.verdict}: {verdict.reason(headroom)}", On.FULL),
        _basis("thresholds", verdict.THRESHOLDS, On.FULL),
        _basis("", f"{loader}; {measured}. Verdicts: {verdict.THRESHOLDS}.", On.PAGE),
        *_what_to_do(comparison),
    ]
    if headroom.lost_ns is not None:
        facts.append(_text("", verdict.lost_in_words(headroom), On.PAGE | On.FIGURE))
    remarks = [("caution", caution) for caution in verdict.cautions(headroom)]
    remarks += [(NOT_MEASURED, missing) for missing in verdict.not_measured(headroom)]
    return facts + [
        ShownFact(FactKind.CAUTION, label, printable(sentence), On.ALL)
        for label, sentence in remarks
    ]


def _figures(comparison: Comparison) -> list[ShownFact]:
    headroom, unit = comparison.headroom, short_name(comparison.unit)
    times_ns = (headroom.real_ns, headroom.ideal_ns, headroom.loader_only_ns)
    labels = (f"real, {verdict.STEADY}", f"ideal, {verdict.STEADY}", "loader alone")
    arms = [
        ShownFact(FactKind.KEY, label, NOT_MEASURED, shown)
        if rate is None or iteration_ns is None
        else ShownFact(
            FactKind.KEY,
            label,
            formatting.per_second(rate.value, unit),
            shown,
            detail=f"{duration(iteration_ns)} per batch",
        )
        for label, iteration_ns, rate, shown in zip(
            labels,
            times_ns,
            comparison.rates,
            (On.FULL | On.PAGE, On.FULL | On.PAGE, On.FULL),
            strict=True,
        )
    ]
    span = verdict.time_span(headroom)
    return [
        _estimate("speed-up", headroom.speedup, speedup, On.FULL | On.PAGE, span),
        _estimate(f"speed-up, {verdict.STEADY}", headroom.steady_speedup, speedup, On.FULL),
        _estimate("time lost", headroom.lost_share, share, On.PAGE, span),
        *arms,
        ShownFact(FactKind.KEY, "lost per batch", verdict.lost_of_whole(headroom), On.FULL),
        *(
            ShownFact(FactKind.KEY, f"  {part.name}", verdict.lost_part(part), On.FULL)
            for part in lost.lost_parts(headroom)
        ),
        ShownFact(FactKind.KEY, "required", verdict.required_in_words(headroom.required), On.FULL),
        ShownFact(FactKind.KEY, "epoch start", verdict.epoch_start_in_words(headroom), On.FULL),
    ]


def _what_to_do(comparison: Comparison) -> list[ShownFact]:
    """The advice of the verdict, where no finding says what to change or none would help."""
    headroom, diagnosis = comparison.headroom, comparison.diagnosis
    settled = headroom.verdict.objection is None
    reason = printable(f"{verdict.capitalized(verdict.reason(headroom))}.")
    facts = [_text("", reason, On.FIGURE)] if settled and headroom.speedup is not None else []
    if not (settled and diagnosis.findings):
        shown = ~On.SCREEN if settled else On.ALL
        facts.append(_text("advice", printable(verdict.verdict_advice(headroom)), shown))
    else:
        facts.append(_text("", printable(plan_words.plan_in_words(comparison.plan)), On.FIGURE))
    return facts


def backend_facts(report: BackendReport) -> list[ShownFact]:
    """Several backends, the fastest first."""
    unit = short_name(report.unit)
    facts = []
    for backend in ranked(report.backends):
        name = short_name(backend.name)
        if backend.error is None:
            rate = _estimate(
                name, backend.real, lambda value: formatting.per_second(value, unit), On.PAGE
            )
            facts.append(rate)
        else:
            facts.append(ShownFact(FactKind.KEY, name, "failed", On.PAGE, detail=backend.error))
    differences = list(map(backends.difference_sentence, report.differences))
    # The headline leaves the size of a difference that is not shown out.
    if report.differences and not report.differences[0].shown:
        facts.append(_text("", f"{verdict.capitalized(differences[0])}.", On.PAGE))
    fastest = report.differences[0].one if report.differences else None
    of_fastest = [
        sentence
        for sentence, difference in zip(differences, report.differences, strict=True)
        if difference.one == fastest
    ]
    if of_fastest:
        facts.append(_text("", f"Real throughput: {'; '.join(of_fastest)}.", On.FIGURE))
    lists: tuple[tuple[FactKind, str, Sequence[str], On], ...] = (
        (FactKind.LISTED, "Failed", backends.failures(report), ~On.FIGURE),
        (FactKind.LISTED, "Differences in real throughput", differences, ~On.FIGURE),
        (FactKind.CAUTION, "Cautions", backends.backend_cautions(report), On.ALL),
        (FactKind.LISTED, "GPUs", metrics.gpus_of_backends(report.backends), ~On.SCREEN),
        (FactKind.LISTED, "Not measured", backends.backend_not_measured(report), On.ALL),
    )
    facts += [
        ShownFact(kind, label, printable(sentence), shown)
        for kind, label, of_label, shown in lists
        for sentence in of_label
    ]
    return [
        *facts,
        _basis("", backends.measured_in_words(report), On.ALL),
        _basis("", backends.BRACKETS, ~On.FIGURE),
        _basis("", page.STEADY_RATES, On.ALL),
    ]


def job_facts(job: JobReport) -> list[ShownFact]:
    """The ranks of one job."""
    facts = [
        _text("", printable(ranks.described_job(job)), On.ALL),
        _text("", printable(ranks.stragglers_in_words(job)), On.ALL),
    ]
    return facts + [
        ShownFact(FactKind.CAUTION, "caution", printable(caution), On.ALL)
        for caution in ranks.job_cautions(job)
    ]


def run_facts(report: RunReport) -> list[ShownFact]:
    """One run by itself."""
    (side,) = report.sides
    summary = side.summary
    rate = formatting.throughput(summary, short_name(report.run.header.unit))
    steady = formatting.counted(summary.steady_batches, "steady batch", "steady batches")
    epochs = formatting.counted(summary.epochs, "epoch", "epochs")
    what = f"{runs.described_loader(report.run)}; {steady} of {summary.batches:,} in {epochs}."
    return [
        ShownFact(FactKind.KEY, "throughput", rate, On.PAGE),
        ShownFact(FactKind.KEY, "iteration, mean", duration(summary.iteration_ns), On.PAGE),
        ShownFact(FactKind.KEY, "wait, mean", duration(summary.wait_ns), On.PAGE),
        ShownFact(FactKind.KEY, "step, mean", duration(summary.step_ns), On.PAGE),
        _text("", page.HOW_TO_MEASURE_GAIN, On.PAGE),
        _basis("", what, On.PAGE),
    ]


def findings_table(diagnosis: Diagnosis) -> Table:
    """A row for each finding, with what following its advice brings by itself."""
    rows = [
        (
            finding.rule.value,
            "unknown" if finding.cost_share is None else share(finding.cost_share),
            advice.change_in_short(finding),
            advice.predicted_in_short(finding),
        )
        for finding in diagnosis.findings
    ]
    change = FINDINGS_HEAD.index("what to change")
    return Table(
        plan_words.BY_ITSELF, FINDINGS_HEAD, rows, fits=True, wraps=(change,), least=SHORTEST_CHANGE
    )


def plan_table(plan: Plan) -> Table:
    """A row for each action, with what it and those before it bring."""
    rows = [
        (
            f"{number}. {plan_words.action_in_short(action)}",
            plan_words.place_in_short(action),
            plan_words.gain_in_short(action),
        )
        for number, action in enumerate(plan.actions, 1)
    ]
    return Table(
        plan_words.TITLE, plan_words.HEAD, rows, fits=True, wraps=(0,), least=SHORTEST_CHANGE
    )


def figures(side: Side) -> Rows:
    """What was measured, as labels and values."""
    run, summary, waits = side.run, side.summary, side.summary.waits
    header, samples = run.header, summary.samples_per_batch
    ready = bool(header.loader.ready_batches)
    first, later = summary.epoch_start_ns[: not ready], summary.epoch_start_ns[not ready :]
    alternates = header.mode == "alternate"
    left_out = formatting.counted(warmup_of(run), "batch", "batches")
    average = "unknown" if samples is None else f"{samples:,.1f}".removesuffix(".0")
    return [
        ("run", short_name(header.name)),
        ("mode", f"alternate, {side.arm} arm" if alternates else header.mode),
        ("throughput", formatting.throughput(summary, short_name(header.unit))),
        ("iteration, mean", duration(summary.iteration_ns)),
        ("step, mean", duration(summary.step_ns)),
        ("wait, mean", duration(waits.mean_ns if waits else None)),
        ("wait, p50", duration(waits.p50_ns if waits else None)),
        ("wait, p95", duration(waits.p95_ns if waits else None)),
        ("wait, p99", duration(waits.p99_ns if waits else None)),
        ("wait, max", duration(waits.max_ns if waits else None)),
        ("share waited", share(summary.wait_share)),
        ("first batch, first epoch", duration(next(iter(first), None))),
        ("first batch, later epochs", _least_to_most(later)),
        ("batches", f"{summary.batches:,}"),
        ("epochs", f"{summary.epochs:,}"),
        ("steady batches", f"{summary.steady_batches:,}"),
        ("left out per epoch", "epoch start, warm-up" if alternates else left_out),
        ("samples per batch", average),
        ("bytes per batch", formatting.size(summary.bytes_per_batch)),
    ]


def loader_facts(run: Run) -> Rows:
    """What served the batches, and where, as labels and values."""
    loader, cache = run.header.loader, run.header.cache
    kept = "none"
    if cache is not None:
        kept = f"{recorded(cache.batches)} ({formatting.size(cache.nbytes)})"
    return [
        ("loader", recorded(runs.class_name(loader))),
        ("workers", recorded(loader.workers)),
        ("prefetch depth", recorded(loader.prefetch_depth)),
        ("batch size", recorded(loader.batch_size)),
        ("batches in an epoch", recorded(loader.length)),
        ("ready when wrapped", recorded(loader.ready_batches)),
        ("pinned", recorded(loader.pinned)),
        ("device", recorded(loader.device)),
        ("start method", recorded(loader.start_method)),
        ("persistent workers", recorded(loader.persistent_workers)),
        ("overrides", recorded(settings_as_code(loader.overrides or {}) or "none")),
        ("kept for replay", kept),
        ("recorded", _moment(run.header.created)),
        ("host", recorded(run.header.environment.get("host"))),
        ("usable CPUs", recorded(run.header.environment.get("cpus_usable"))),
    ]


def recorded(value: object, unknown: str = "unknown") -> str:
    """What a file says, as text; `unknown` for None."""
    if value is None:
        return unknown
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        value = ", ".join(map(str, value)) or "none"
    return short_name(value, LONGEST_FACT)


def _moment(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return printable(created)
    return formatting.wall_clock(moment)


def _least_to_most(times_ns: Sequence[int]) -> str:
    if not times_ns:
        return "none"
    least, most = duration(min(times_ns)), duration(max(times_ns))
    return least if least == most else f"{least} to {most}"


def _estimate(
    label: str,
    estimate: Estimate | None,
    text: Callable[[float], str],
    shown: On,
    detail: str = "",
) -> ShownFact:
    if estimate is None:
        return ShownFact(FactKind.KEY, label, NOT_MEASURED, shown)
    interval = formatting.interval(estimate, text)
    return ShownFact(
        FactKind.KEY, label, text(estimate.value), shown, interval, detail, estimated=True
    )


def _text(label: str, value: str, shown: On) -> ShownFact:
    return ShownFact(FactKind.TEXT, label, value, shown)


def _basis(label: str, value: str, shown: On) -> ShownFact:
    return ShownFact(FactKind.BASIS, label, value, shown)
