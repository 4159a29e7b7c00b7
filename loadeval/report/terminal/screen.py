"""One screen: the verdict, the arms, the time lost, the findings, and where there is more."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from loadeval.analysis.backends import ranked
from loadeval.analysis.inside.stages import Basis
from loadeval.report import facts
from loadeval.report.facts import FactKind, On, sentences
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
from loadeval.report.tables import Table, labelled, wrapped
from loadeval.report.terminal import plan
from loadeval.report.wording import operators, ranks, runs, stages, verdict
from loadeval.report.wording.backends import backends_headline
from loadeval.report.wording.lost import lost_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.backends import BackendReport, BackendResult
    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.job.ranks import JobReport
    from loadeval.analysis.report import Comparison, Report
    from loadeval.report.facts import ShownFact
    from loadeval.report.tables import Rows

MOST_LINES = 25
NARROWEST = 80
"""A line of ranks has at least so many columns: a table of many does not fold."""
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
    if report.backends is not None:
        return backends_screen(report.backends, more, width)
    return labelled(more)


def comparison_screen(comparison: Comparison, more: Rows, width: int) -> list[str]:
    """The screen of real against ideal loading."""
    headroom, shown = comparison.headroom, facts.comparison_facts(comparison)
    parts = [wrapped(printable(verdict.headline(headroom)), width, 3)]
    measured = _measured(comparison, shown, width)
    if headroom.real_ns or headroom.ideal_ns:
        parts.append([*_arms(comparison).lines(width), *measured])
        if headroom.lost_ns is not None:
            parts.append(_lost(headroom).lines(width))
        parts[-1] += _inside(comparison, width)
    else:
        parts.append(_so_far(comparison, width))
    items, limit = _to_do(comparison, parts, width), plan.limit_lines(comparison.plan, width)
    listed = [*chain(*items), *limit]
    if _height([*parts, listed, labelled(more)]) > MOST_LINES:
        # How many batches were measured matters less than what to do.
        parts = [[line for line in part if line not in measured] for part in parts]
    least = len(listed)
    if items and _height([*parts, listed, labelled(more)]) > MOST_LINES:
        least = len(items[0]) + 1 + len(limit)
    advice = sentences(shown, FactKind.TEXT, On.SCREEN)
    room = max(MOST_LINES - least - _height([*parts, [], [], labelled(more)]), len(advice))
    caution = " ".join(sentences(shown, FactKind.CAUTION, On.SCREEN))
    below = [
        *(line for sentence in advice for line in wrapped(sentence, width, 2)),
        *(wrapped(f"Caution: {caution}", width, 1 if advice else 2) if caution else []),
    ]
    return _fitted(parts, items, [_shortened(below, room, width)], more, limit)


def backends_screen(backends: BackendReport, more: Rows, width: int) -> list[str]:
    """The screen of up to five backends."""
    shown = facts.backend_facts(backends)
    basis = " ".join(sentences(shown, FactKind.BASIS, On.SCREEN))
    title = [*wrapped(printable(backends_headline(backends)), width, 2), *wrapped(basis, width, 3)]
    details = [
        wrapped(f"{'Caution: ' * (fact.kind is FactKind.CAUTION)}{fact.text}", width, 2)
        for fact in shown
        if fact.kind in (FactKind.LISTED, FactKind.CAUTION) and On.SCREEN in fact.shown
    ]
    return _fitted([title, _backends(backends).lines(width)], details, [], more)


def job_screen(report: Report, job: JobReport, more: Rows, width: int) -> list[str]:
    """The screen of a job: what it loses, its stragglers, and the ranks that cost it most."""
    shown = facts.job_facts(job)
    ranks_of_job, stragglers = sentences(shown, FactKind.TEXT, On.SCREEN)
    parts = [
        wrapped(printable(runs.report_headline(report)), width, 3),
        [*wrapped(ranks_of_job, width, 2), *wrapped(stragglers, width, 4)],
    ]
    if report.comparison is not None:
        parts.append(_arms(report.comparison).lines(width))
        shown += [
            fact for fact in facts.comparison_facts(report.comparison) if fact.label == "caution"
        ]
    cautions = " ".join(sentences(shown, FactKind.CAUTION, On.SCREEN))
    below = [wrapped(f"Caution: {cautions}", width, 2)] if cautions else []
    rows = ranks.rank_rows(ranks.worst_first(job), LONGEST_IN_TABLE)
    lines = Table("", ranks.HEAD, rows).lines(max(width, NARROWEST))
    return _fitted(parts, [[line] for line in lines], below, more)


def _fitted(
    above: list[Part], items: list[Part], below: list[Part], more: Rows, last: Sequence[str] = ()
) -> list[str]:
    """As many of the items, with `last` behind them, as there is room for between the others."""
    ends = [*filter(None, below), labelled(more)]
    room = MOST_LINES - _height([*above, [], *ends]) - len(last)
    lines: list[str] = []
    for part in filter(None, [*above, [*_fitting(items, room), *last], *ends]):
        lines += ["", *part] if lines else part
    return lines


def _arms(comparison: Comparison) -> Table:
    unit = short_name(comparison.unit, LONGEST_IN_TABLE)
    real, ideal, alone = (
        per_second(None if rate is None else rate.value, unit) for rate in comparison.rates
    )
    headroom = comparison.headroom
    rows = []
    for name, rate, iteration_ns, wait_ns in (
        ("real", real, headroom.real_ns, headroom.real_wait_ns),
        ("ideal", ideal, headroom.ideal_ns, headroom.ideal_wait_ns),
    ):
        step_ns = None if iteration_ns is None or wait_ns is None else iteration_ns - wait_ns
        rows.append([name, rate, *map(duration, (iteration_ns, wait_ns, step_ns))])
    if comparison.ideal is None:
        rows.append(["loader alone", alone, duration(headroom.loader_only_ns), NONE, NONE])
    return Table("", (verdict.STEADY, "throughput", "iteration", "wait", "step"), rows)


def _measured(comparison: Comparison, shown: Sequence[ShownFact], width: int) -> Part:
    idle_ns = comparison.headroom.gpu_idle_ns
    idle = "" if idle_ns is None else f"; GPU idle while waiting: {duration(idle_ns)} per batch"
    return wrapped(f"{' '.join(sentences(shown, FactKind.BASIS, On.SCREEN))}{idle}", width, 2)


def _so_far(comparison: Comparison, width: int) -> Part:
    """What is known where the arms cannot be compared."""
    known = verdict.known(comparison.headroom)
    if comparison.stages is not None:
        known.append(stages.work_in_words(comparison.stages, comparison.real.header.loader))
    return wrapped(printable(" ".join(known)), width)


def _lost(headroom: Headroom) -> Table:
    share_lost = None if headroom.lost_share is None else headroom.lost_share.value
    times = [("time lost", headroom.lost_ns, share_lost)]
    times += [(f"  {part.name}", part.time_ns, part.share) for part in lost_parts(headroom)]
    rows = [
        [
            label,
            duration(None if time_ns is None else time_ns.value),
            interval(time_ns, duration) or NONE,
            share(part),
            "",
        ]
        for label, time_ns, part in times
    ]
    rows[0][-1] = interval(headroom.lost_share, share) or NONE
    head = (verdict.time_span(headroom), "per batch", "95% CI", "of the time", "95% CI")
    return Table("", head, rows)


def _inside(comparison: Comparison, width: int) -> Part:
    """Where the loader's time goes, in one line; nothing where that is not known."""
    shares: list[str] = []
    label = stages.IN_SHORT
    if comparison.stages is not None:
        label = stages.OF_WAITS if comparison.stages.basis is Basis.WAITS else stages.IN_SHORT
        shares = [
            stages.stages_in_short(comparison.stages, transform=whole) for whole in (True, False)
        ]
    elif comparison.operators is not None:
        shares = [
            operators.operators_in_short(comparison.operators, most)
            for most in range(operators.MOST_IN_SHORT, 0, -1)
        ]
    lines = [f"{label}  {text}" for text in shares if text]
    fitting = [line for line in lines if len(line) <= width] or lines[-1:]
    return wrapped(fitting[0], width, 1) if fitting else []


def _to_do(comparison: Comparison, parts: list[Part], width: int) -> list[Part]:
    """The lines of each action; the findings are added to the last of `parts`.

    Where nothing was found that is what was checked.
    """
    diagnosis = comparison.diagnosis
    if not diagnosis.findings:
        unknown = sum(check.outcome == "not measured" for check in diagnosis.checks)
        checks = counted(len(diagnosis.checks) - unknown, "check", "checks")
        return [[f"Findings: none in {checks}; {unknown} not measured"]]
    parts[-1] += plan.findings_lines(diagnosis, width, 1)
    return plan.plan_lines(comparison.plan, width)


def _backends(report: BackendReport) -> Table:
    unit = short_name(report.unit, LONGEST_IN_TABLE)
    head = [f"{unit}/s", "real", "ideal", "loader alone", "if loading were free", "time lost"]
    return Table("", head, list(map(_backend, ranked(report.backends))))


def _backend(backend: BackendResult) -> list[str]:
    name = short_name(backend.name, LONGEST_IN_TABLE)
    if backend.error:
        return [name, "failed", *[NONE] * 4]
    rates = (backend.real, backend.ideal, backend.loader_only)
    estimates = [*((rate, number) for rate in rates), (backend.speedup, speedup)]
    cells = (
        NONE if estimate is None else estimated(estimate, text) for estimate, text in estimates
    )
    return [name, *cells, share(None if backend.lost_share is None else backend.lost_share.value)]


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
    return [*lines[: room - 1], f"{lines[room - 1][: width - 3].rstrip(' .')}..."]


def _height(parts: Sequence[Part]) -> int:
    return sum(map(len, parts)) + len(parts) - 1
