"""One screen: the verdict, the arms, the time lost, the findings, and where there is more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.backends import ranked
from loadeval.report.backends_text import headline as backends_headline
from loadeval.report.backends_text import measured_in_words
from loadeval.report.changes import IN_SHORT, findings_in_short
from loadeval.report.facts import measured
from loadeval.report.folding import table_lines, wrapped
from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    duration,
    estimated,
    number,
    printable,
    share,
    shortened,
    speedup,
)
from loadeval.report.wording import (
    backend_cautions,
    backend_not_measured,
    cautions,
    difference_sentence,
    headline,
    not_measured,
    verdict_advice,
)
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.analysis.findings.finding import Diagnosis
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.stats import Estimate
    from loadeval.report.backends import BackendComparison
    from loadeval.report.comparison import Comparison
    from loadeval.report.facts import Rows

MOST_LINES = 25
LONGEST_IN_TABLE = 16
NONE = "-"
Part = list[str]


def comparison_screen(
    found: Comparison, diagnosis: Diagnosis, more: Rows, width: int = 80
) -> list[str]:
    """Real against ideal in at most 25 lines of 80; `more` is where to look, label and place."""
    gain = found.headroom
    parts = [
        wrapped(printable(headline(gain)), width, 3),
        [*table_lines(_arms(found), width), *_measured(gain, width)],
    ]
    if gain.lost_ns is not None:
        parts.append(table_lines(_lost(gain), width))
    ends = [*filter(None, [_to_mind(gain, width)]), _more(more)]
    room = MOST_LINES - _height([*parts, [], *ends])
    return _joined([*parts, _findings(found, diagnosis, width, room), *ends])


def backends_screen(found: BackendComparison, more: Rows, width: int = 80) -> list[str]:
    """Up to five backends, or ranks, in at most 25 lines of 80."""
    parts = [
        [
            *wrapped(printable(backends_headline(found)), width, 2),
            *wrapped(f"{measured_in_words(found)} 95% CI in brackets.", width, 2),
        ],
        table_lines(_backends(found), width),
    ]
    failures = [f"{one.name} failed: {one.error}" for one in found.backends if one.error]
    minded = [f"Caution: {caution}" for caution in backend_cautions(found)]
    told = [
        *failures,
        *map(difference_sentence, found.differences),
        *minded,
        *backend_not_measured(found),
    ]
    details = [wrapped(printable(line), width, 2) for line in told]
    room = MOST_LINES - _height([*parts, [], _more(more)])
    return _joined([*parts, _fitting(details, room), _more(more)])


def _arms(found: Comparison) -> list[list[str]]:
    unit = shortened(printable(found.unit), LONGEST_IN_TABLE)
    rates = found.rates()
    rows = [["", "throughput", "iteration", "wait", "step"]]
    for name, per_second, (_, side) in zip(ARMS, rates, found.sides, strict=False):
        times = (side.iteration_ns, side.wait_ns, side.step_ns)
        rows.append([name, _rate(per_second, unit), *map(duration, times)])
    if found.ideal is None:
        alone = duration(found.headroom.loader_only_ns)
        rows.append(["loader alone", _rate(rates[2], unit), alone, NONE, NONE])
    return rows


def _rate(per_second: float | None, unit: str) -> str:
    return NOT_MEASURED if per_second is None else f"{number(per_second)} {unit}/s"


def _measured(gain: Headroom, width: int) -> Part:
    starved = gain.gpu_idle_ns
    idle = "" if starved is None else f"; GPU idle while waiting: {duration(starved)} per batch"
    return wrapped(f"{printable(measured(gain))}{idle}", width, 2)


def _lost(gain: Headroom) -> list[list[str]]:
    parts = (
        ("time lost", gain.lost_ns, gain.lost_share),
        ("  waiting", gain.waiting_ns, None),
        ("  contention", gain.contention_ns, None),
    )
    rows = [["", "per batch", "95% CI", "of the time", "95% CI"]]
    for label, time_ns, part in parts:
        shares = ["", ""] if part is None else [share(part.value), _interval(part, share)]
        value = NOT_MEASURED if time_ns is None else duration(time_ns.value)
        rows.append([label, value, _interval(time_ns, duration), *shares])
    return rows


def _interval(found: Estimate | None, told: Callable[[float | None], str]) -> str:
    if found is None or found.low is None or found.high is None:
        return NONE
    return f"{told(found.low)} to {told(found.high)}"


def _to_mind(gain: Headroom, width: int) -> Part:
    """What would settle an inconclusive verdict, cautions, and what was not measured."""
    said = printable(" ".join([*cautions(gain), *not_measured(gain)]))
    open_ = gain.verdict.objection is not None
    advice = wrapped(printable(verdict_advice(gain)), width, 2) if open_ else []
    return advice + (wrapped(f"Caution: {said}", width, 1 if open_ else 2) if said else [])


def _findings(found: Comparison, diagnosis: Diagnosis, width: int, room: int) -> Part:
    if not diagnosis.findings:
        unknown = sum(check.outcome == "not measured" for check in diagnosis.checks)
        asked = counted(len(diagnosis.checks) - unknown, "check", "checks")
        return [f"Findings: none in {asked}; {unknown} not measured"]
    rows = [IN_SHORT, *findings_in_short(diagnosis, found)]
    return _fitting([[line] for line in table_lines(rows, width)], room)


def _backends(found: BackendComparison) -> list[list[str]]:
    unit = shortened(printable(found.unit), LONGEST_IN_TABLE)
    rows = [[f"{unit}/s", "real", "ideal", "loader alone", "if loading were free", "time lost"]]
    for one in ranked(found.backends):
        name = shortened(printable(one.name), LONGEST_IN_TABLE)
        if one.error:
            rows.append([name, "failed", *[NONE] * 4])
            continue
        rates = (one.real, one.ideal, one.loader_only)
        lost = share(None if one.lost_share is None else one.lost_share.value)
        told = [*(_known(rate, _plain) for rate in rates), _known(one.speedup, speedup), lost]
        rows.append([name, *told])
    return rows


def _known(found: Estimate | None, told: Callable[[float | None], str]) -> str:
    return NONE if found is None else estimated(found, told)


def _plain(value: float | None) -> str:
    return number(value or 0.0)


def _more(more: Rows) -> Part:
    widest = max((len(label) for label, _ in more), default=0)
    return [f"{label:<{widest}}  {printable(place)}" for label, place in more]


def _fitting(items: Sequence[Part], room: int) -> Part:
    """As many of `items`, from the first, as there is room for; and how many are left out."""
    lines: list[str] = []
    for place, item in enumerate(items):
        last = place == len(items) - 1
        if place and len(lines) + len(item) + (not last) > room:
            return [*lines, f"and {len(items) - place} more"]
        lines += item
    return lines


def _height(parts: Sequence[Part]) -> int:
    return sum(map(len, parts)) + len(parts) - 1


def _joined(parts: Sequence[Part]) -> list[str]:
    lines: list[str] = []
    for part in filter(None, parts):
        lines += ["", *part] if lines else part
    return lines
