"""One screen: the verdict, the arms, the time lost, the findings, and where there is more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.backends import ranked
from loadeval.analysis.stages import Basis
from loadeval.report.findings import SHORT_HEADING, findings_in_short
from loadeval.report.formatting import (
    counted,
    duration,
    estimated,
    interval,
    number,
    per_second,
    printable,
    share,
    short_name,
    speedup,
)
from loadeval.report.lost import lost_parts
from loadeval.report.tables import table_lines, wrapped
from loadeval.report.wording.backends import (
    BRACKETS,
    backend_cautions,
    backend_not_measured,
    backends_headline,
    difference_sentence,
    failures,
    measured_in_words,
)
from loadeval.report.wording.operators import MOST_IN_SHORT, operators_in_short
from loadeval.report.wording.page import STEADY_RATES
from loadeval.report.wording.ranks import (
    HEAD,
    described_job,
    job_cautions,
    job_headline,
    rank_rows,
    stragglers_in_words,
    worst_first,
)
from loadeval.report.wording.stages import IN_SHORT, OF_WAITS, stages_in_short, work_in_words
from loadeval.report.wording.verdict import (
    STEADY,
    cautions,
    headline,
    known,
    measured,
    not_measured,
    time_span,
    verdict_advice,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.analysis.backends import BackendReport, BackendResult
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.ranks import JobReport
    from loadeval.analysis.report import Comparison, Report
    from loadeval.analysis.stats import Estimate
    from loadeval.report.tables import Rows

MOST_LINES = 25
NARROWEST = 80
"""Columns of a line of ranks: a table of many does not fold."""
LONGEST_IN_TABLE = 16
NONE = "-"
Part = list[str]


def screen(report: Report, more: Rows, width: int) -> list[str]:
    """A comparison, up to five backends, or the ranks of a job, in at most 25 lines of 80 columns.

    `more` is where to look for the rest, label and place; of one run by itself that is all.
    """
    if report.job is not None:
        return job_screen(report, report.job, more, width)
    if report.comparison is not None:
        return comparison_screen(report.comparison, more, width)
    return _more(more) if report.backends is None else backends_screen(report.backends, more, width)


def comparison_screen(found: Comparison, more: Rows, width: int) -> list[str]:
    """Real against ideal."""
    gain = found.headroom
    title = wrapped(printable(headline(gain)), width, 3)
    arms = [*table_lines(_arms(found), width), *_measured(gain, width)]
    parts = [title, arms if gain.real_ns or gain.ideal_ns else _so_far(found, width)]
    if gain.lost_ns is not None:
        parts.append(table_lines(_lost(gain), width))
    if gain.real_ns or gain.ideal_ns:
        parts[-1] += _inside(found, width)
    rest = [*parts, [], _more(more)]
    findings = _findings(found, width)
    least = len(findings[0]) + (len(findings) > 1)
    unsettled = gain.verdict.objection is not None
    room = max(MOST_LINES - least - _height([*rest, []]), int(unsettled))
    to_mind = _shortened(_to_mind(gain, width), room, width)
    ends = [*filter(None, [to_mind]), _more(more)]
    room = MOST_LINES - _height([*parts, [], *ends])
    return _joined([*parts, _fitting(findings, room), *ends])


def backends_screen(found: BackendReport, more: Rows, width: int) -> list[str]:
    """Up to five backends."""
    parts = [
        [
            *wrapped(printable(backends_headline(found)), width, 2),
            *wrapped(f"{measured_in_words(found)} {BRACKETS} {STEADY_RATES}", width, 3),
        ],
        table_lines(_backends(found), width),
    ]
    sentences = [
        *failures(found),
        *map(difference_sentence, found.differences),
        *(f"Caution: {caution}" for caution in backend_cautions(found)),
        *backend_not_measured(found),
    ]
    details = [wrapped(printable(line), width, 2) for line in sentences]
    room = MOST_LINES - _height([*parts, [], _more(more)])
    return _joined([*parts, _fitting(details, room), _more(more)])


def job_screen(report: Report, job: JobReport, more: Rows, width: int) -> list[str]:
    """What the job loses, its stragglers, and the ranks that cost it most."""
    gain = None if report.comparison is None else report.comparison.headroom
    title = job_headline(report, job) if gain is None else headline(gain)
    parts = [
        wrapped(printable(title), width, 3),
        [
            *wrapped(printable(described_job(job)), width, 2),
            *wrapped(printable(stragglers_in_words(job)), width, 4),
        ],
    ]
    if report.comparison is not None:
        parts.append(table_lines(_arms(report.comparison), width))
    cautions_of = [*job_cautions(job), *([] if gain is None else cautions(gain))]
    caution = wrapped(printable(f"Caution: {' '.join(cautions_of)}"), width, 2)
    ends = [*([caution] if cautions_of else []), _more(more)]
    room = MOST_LINES - _height([*parts, [], *ends])
    rows = [HEAD, *rank_rows(worst_first(job), LONGEST_IN_TABLE)]
    table = [[line] for line in table_lines(rows, max(width, NARROWEST))]
    return _joined([*parts, _fitting(table, room), *ends])


def _arms(found: Comparison) -> list[list[str]]:
    unit = short_name(found.unit, LONGEST_IN_TABLE)
    real, ideal, alone = (
        per_second(None if one is None else one.value, unit) for one in found.rates
    )
    gain = found.headroom
    rows = [[STEADY, "throughput", "iteration", "wait", "step"]]
    for name, rate, iteration_ns, wait_ns in (
        ("real", real, gain.real_ns, gain.real_wait_ns),
        ("ideal", ideal, gain.ideal_ns, gain.ideal_wait_ns),
    ):
        step_ns = None if iteration_ns is None or wait_ns is None else iteration_ns - wait_ns
        rows.append([name, rate, *map(duration, (iteration_ns, wait_ns, step_ns))])
    if found.ideal is None:
        rows.append(["loader alone", alone, duration(gain.loader_only_ns), NONE, NONE])
    return rows


def _measured(gain: Headroom, width: int) -> Part:
    idle_ns = gain.gpu_idle_ns
    idle = "" if idle_ns is None else f"; GPU idle while waiting: {duration(idle_ns)} per batch"
    return wrapped(f"{printable(measured(gain))}{idle}", width, 2)


def _so_far(found: Comparison, width: int) -> Part:
    """What is known where the arms cannot be compared."""
    told = known(found.headroom)
    if found.stages is not None:
        told.append(work_in_words(found.stages, found.real.header.loader))
    return wrapped(printable(" ".join(told)), width)


def _lost(gain: Headroom) -> list[list[str]]:
    total = None if gain.lost_share is None else gain.lost_share.value
    parts = [("time lost", gain.lost_ns, total, interval(gain.lost_share, share) or NONE)]
    parts += [(f"  {one.name}", one.time_ns, one.share, "") for one in lost_parts(gain)]
    rows = [[time_span(gain), "per batch", "95% CI", "of the time", "95% CI"]]
    for label, time_ns, part, part_interval in parts:
        value = duration(None if time_ns is None else time_ns.value)
        rows.append([label, value, interval(time_ns, duration) or NONE, share(part), part_interval])
    return rows


def _inside(found: Comparison, width: int) -> Part:
    """Where the loader's time goes, in one line; nothing where that is not known."""
    told: list[str] = []
    label = IN_SHORT
    if found.stages is not None:
        label = OF_WAITS if found.stages.basis is Basis.WAITS else IN_SHORT
        told = [stages_in_short(found.stages, transform=whole) for whole in (True, False)]
    elif found.operators is not None:
        told = [operators_in_short(found.operators, most) for most in range(MOST_IN_SHORT, 0, -1)]
    lines = [f"{label}  {one}" for one in told if one]
    fitting = [line for line in lines if len(line) <= width] or lines[-1:]
    return wrapped(fitting[0], width, 1) if fitting else []


def _to_mind(gain: Headroom, width: int) -> Part:
    """What would settle an inconclusive verdict, cautions, and what was not measured."""
    caution = printable(" ".join([*cautions(gain), *not_measured(gain)]))
    unsettled = gain.verdict.objection is not None
    advice = wrapped(printable(verdict_advice(gain)), width, 2) if unsettled else []
    if not caution:
        return advice
    return advice + wrapped(f"Caution: {caution}", width, 1 if unsettled else 2)


def _findings(found: Comparison, width: int) -> list[Part]:
    """The lines of each finding, those of the first one under a heading."""
    diagnosis = found.diagnosis
    if not diagnosis.findings:
        unknown = sum(check.outcome == "not measured" for check in diagnosis.checks)
        asked = counted(len(diagnosis.checks) - unknown, "check", "checks")
        return [[f"Findings: none in {asked}; {unknown} not measured"]]
    rows = [SHORT_HEADING, *findings_in_short(diagnosis, width)]
    heading, *lines = table_lines(rows, width)
    parts: list[Part] = []
    for line in lines:
        if line.startswith(" "):  # it goes on
            parts[-1].append(line)
        else:
            parts.append([line])
    return [[heading, *parts[0]], *parts[1:]]


def _backends(found: BackendReport) -> list[list[str]]:
    unit = short_name(found.unit, LONGEST_IN_TABLE)
    head = [f"{unit}/s", "real", "ideal", "loader alone", "if loading were free", "time lost"]
    return [head, *map(_backend, ranked(found.backends))]


def _backend(one: BackendResult) -> list[str]:
    name = short_name(one.name, LONGEST_IN_TABLE)
    if one.error:
        return [name, "failed", *[NONE] * 4]
    rates = [_known(rate, number) for rate in (one.real, one.ideal, one.loader_only)]
    lost = share(None if one.lost_share is None else one.lost_share.value)
    return [name, *rates, _known(one.speedup, speedup), lost]


def _known(found: Estimate | None, text: Callable[[float], str]) -> str:
    return NONE if found is None else estimated(found, text)


def _more(more: Rows) -> Part:
    widest = max((len(label) for label, _ in more), default=0)
    return [f"{label:<{widest}}  {printable(place)}" for label, place in more]


def _fitting(items: Sequence[Part], room: int) -> Part:
    """As many of `items`, from the first, as there is room for; and how many are left out."""
    lines: list[str] = []
    for place, item in enumerate(items):
        last = place == len(items) - 1
        if place and len(lines) + len(item) + (not last) > room:
            return [*lines, f"and {len(items) - place:,} more"]
        lines += item
    return lines


def _shortened(lines: Part, room: int, width: int) -> Part:
    """As many of `lines` as there is room for; the last then shows that it is not the end."""
    if len(lines) <= room or not room:
        return lines[:room]
    return [*lines[: room - 1], f"{lines[room - 1][: width - 3].rstrip()}..."]


def _height(parts: Sequence[Part]) -> int:
    return sum(map(len, parts)) + len(parts) - 1


def _joined(parts: Sequence[Part]) -> list[str]:
    lines: list[str] = []
    for part in filter(None, parts):
        lines += ["", *part] if lines else part
    return lines
