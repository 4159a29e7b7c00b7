"""The page of what tuning a loader found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import interval, per_second, short_name, speedup
from loadeval.report.page.blocks import Code, Keys, Section, Text
from loadeval.report.page.page import rendered
from loadeval.report.page.whatif import curve_blocks
from loadeval.report.tables import Table
from loadeval.report.terminal.tuning import trial_rows
from loadeval.report.wording import tuning as tuning_words

if TYPE_CHECKING:
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.predict.tuning import TuningReport
    from loadeval.report.page.blocks import Block

ABOUT = "tune"


def tuning_page(report: TuningReport) -> str:
    """The page as text. Raises UsageError where a page cannot hold the installed plotly."""
    sections = [_settings(report), _trials(report), *_curve(report), _left_out(report)]
    return rendered(tuning_words.tuning_headline(report), [ABOUT], _top(report), sections)


def _top(report: TuningReport) -> list[Block]:
    keys = [_rate("present", report.present.throughput, report.unit)]
    if report.best is not report.present:
        keys.append(_rate("best", report.best.throughput, report.unit))
    if report.gain is not None:
        keys.insert(0, ("speed-up", speedup(report.gain.value), _between(report.gain)))
    return [
        Keys(tuple(keys)),
        Text((tuning_words.stopped_in_words(report),)),
        Text((tuning_words.basis(report),), "small"),
    ]


def _rate(label: str, rate: Estimate | None, unit: str) -> tuple[str, str, str]:
    value = per_second(None if rate is None else rate.value, short_name(unit))
    return f"{label}, measured", value, ""


def _between(gain: Estimate) -> str:
    return f"95% CI {bounds}" if (bounds := interval(gain, speedup)) else ""


def _settings(report: TuningReport) -> Section:
    return Section("settings", "Best settings", (Code((tuning_words.chosen_in_words(report),)),))


def _trials(report: TuningReport) -> Section:
    head, *rows = trial_rows(report)
    cells = tuple(map(tuple, rows))
    table = Table("In the order in which they were tried", tuple(head), cells, figures=True)
    lines = tuning_words.failures(report)
    failed = [Text(tuple(lines), "list")] if lines else []
    return Section("trials", "What was tried", (table, *failed))


def _curve(report: TuningReport) -> list[Section]:
    if report.curve is None:
        return []
    note = tuning_words.beside_the_line(report)
    notes: list[Block] = [Text((note,))] if note else []
    return [
        Section("curve", tuning_words.CURVE_TITLE, (*notes, *curve_blocks("tuned", report.curve)))
    ]


def _left_out(report: TuningReport) -> Section:
    lines = tuning_words.left_out_in_words(report)
    nothing = tuning_words.NOTHING_LEFT_OUT if report.predicted else tuning_words.NOT_PREDICTED
    text = Text(tuple(lines), "list") if lines else Text((nothing,))
    return Section("left-out", "Left out", (text,))
