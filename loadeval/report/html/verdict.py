"""The top of the page: the verdict in one sentence, the figures to read first, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.backends import MeasuredRun, ranked, result_of, unit_of
from loadeval.report.backends_text import headline as backends_headline
from loadeval.report.backends_text import measured_in_words
from loadeval.report.changes import IN_SHORT, findings_in_short
from loadeval.report.facts import lost_in_words, measured
from loadeval.report.formatting import (
    LONGEST_NAME,
    NOT_MEASURED,
    counted,
    duration,
    estimated,
    number,
    share,
    shortened,
    speedup,
    throughput,
)
from loadeval.report.html.blocks import Keys, Table, Text
from loadeval.report.wording import (
    THRESHOLDS,
    backend_cautions,
    cautions,
    described_loader,
    difference_sentence,
    headline,
    not_measured,
    verdict_advice,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.backends import BackendResult
    from loadeval.analysis.findings.finding import Diagnosis
    from loadeval.analysis.stats import Estimate
    from loadeval.report.backends import BackendComparison
    from loadeval.report.comparison import Comparison
    from loadeval.report.html.blocks import Block
    from loadeval.report.html.subject import Subject
    from loadeval.runlog.model import Run

WHAT_WOULD_TELL = (
    "What free loading would gain was not measured. A run with mode='alternate' measures it by "
    "itself; beside a run with mode='log' it takes one with mode='replay'."
)
MOST_KEYS = 4


def verdict(subject: Subject) -> str:
    """What was found, with its interval, in one sentence."""
    if subject.comparison is not None:
        return headline(subject.comparison.headroom)
    if subject.backends is not None:
        return backends_headline(subject.backends)
    return _alone(subject.runs[0], subject)


def top(subject: Subject) -> list[Block]:
    """What stands under the verdict: a few figures, the reason, what to do, what to mind."""
    if subject.comparison is not None:
        ((_, diagnosis),) = subject.diagnoses
        return _of_comparison(subject.comparison, diagnosis)
    if subject.backends is not None:
        return _of_backends(subject.backends)
    return _of_one(subject)


def _alone(run: Run, subject: Subject) -> str:
    ((_, (_, summary)),) = subject.sides
    if summary.iteration_ns is None:
        return "Not measured: no steady-state batches"
    if run.header.mode == "replay":
        return "Loading was free in this run: it replayed kept batches"
    pace = f", at {_rate(run)}" if _rate(run) else ""
    return f"Training waited {share(summary.wait_share)} of the time for its batches{pace}"


def _rate(run: Run) -> str:
    measured_run = MeasuredRun.of(run)
    unit = unit_of([measured_run])
    found = result_of(run.header.name, measured_run, unit).real
    if found is None:
        return ""
    name = shortened(unit, LONGEST_NAME)
    if found.low is None or found.high is None:
        return f"{number(found.value)} {name}/s"
    between = f"95% CI {number(found.low)} to {number(found.high)}"
    return f"{number(found.value)} {name}/s ({between})"


def _of_one(subject: Subject) -> list[Block]:
    ((_, (run, summary)),) = subject.sides
    unit = shortened(run.header.unit, LONGEST_NAME)
    keys = Keys(
        (
            ("throughput", throughput(summary, unit), ""),
            ("iteration, mean", duration(summary.iteration_ns), ""),
            ("wait, mean", duration(summary.wait_ns), ""),
            ("step, mean", duration(summary.step_ns), ""),
        )
    )
    steady = counted(summary.steady_batches, "steady batch", "steady batches")
    epochs = counted(summary.epochs, "epoch", "epochs")
    what = f"{described_loader(run)}; {steady} of {summary.batches:,} in {epochs}."
    return [keys, Text((WHAT_WOULD_TELL,)), Text((what,), "small")]


def _of_comparison(comparison: Comparison, diagnosis: Diagnosis) -> list[Block]:
    found = comparison.headroom
    real, ideal, *_ = comparison.rates()
    unit = shortened(comparison.unit, LONGEST_NAME)
    keys = Keys(
        (
            ("if loading were free", *_split(found.speedup, speedup)),
            ("lost to loading", *_split(found.lost_share, share)),
            ("real", _per_second(real, unit), _a_batch(found.real_ns)),
            ("ideal", _per_second(ideal, unit), _a_batch(found.ideal_ns)),
        )
    )
    lost = [] if found.lost_ns is None else [lost_in_words(found)]
    rows = tuple(findings_in_short(diagnosis, comparison))
    # With findings, these say what to change.
    advice = [verdict_advice(found)] if found.verdict.objection is not None or not rows else []
    lines = tuple(filter(None, [*lost, *advice]))
    short = [Table("Findings in short", IN_SHORT, rows)] if rows else []
    minded = tuple(filter(None, [" ".join(cautions(found)), " ".join(not_measured(found))]))
    loader = described_loader(comparison.real)
    details = f"{loader}; {measured(found)}. Verdicts: {THRESHOLDS}."
    return [keys, Text(lines), *short, Text(minded, "caution"), Text((details,), "small")]


def _of_backends(found: BackendComparison) -> list[Block]:
    unit = shortened(found.unit, LONGEST_NAME)
    shown = ranked(found.backends)[:MOST_KEYS]
    keys = Keys(tuple((shortened(one.name, LONGEST_NAME), *_real(one, unit)) for one in shown))
    details = f"{measured_in_words(found)} Brackets are 95% intervals."
    # A headline that tells of no difference leaves its size out.
    first = [difference_sentence(one) for one in found.differences[:1] if not one.shown]
    return [
        keys,
        Text(tuple(f"{line[:1].upper()}{line[1:]}." for line in first)),
        Text(tuple(backend_cautions(found)), "caution"),
        Text((details,), "small"),
    ]


def _real(one: BackendResult, unit: str) -> tuple[str, str]:
    if one.error is not None:
        return "failed", one.error
    value, interval = _split(one.real, lambda rate: number(rate or 0.0))
    return (value, interval) if one.real is None else (f"{value} {unit}/s", interval)


def _a_batch(pace_ns: float | None) -> str:
    return "" if pace_ns is None else f"{duration(pace_ns)} a batch"


def _per_second(value: float | None, unit: str) -> str:
    return NOT_MEASURED if value is None else f"{number(value)} {unit}/s"


def _split(estimate: Estimate | None, told: Callable[[float | None], str]) -> tuple[str, str]:
    """The value, and its interval."""
    if estimate is None:
        return NOT_MEASURED, ""
    whole, value = estimated(estimate, told), told(estimate.value)
    interval = whole.removeprefix(value).strip()
    return value, interval or "no interval: too little was measured"
