"""The page of what tuning a loader found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import interval, per_second, short_name, speedup
from loadeval.report.html.blocks import Code, Keys, Section, Table, Text
from loadeval.report.html.page import rendered
from loadeval.report.html.whatif import curve_blocks
from loadeval.report.tuning import trial_rows
from loadeval.report.wording.tuning import (
    CURVE_TITLE,
    NOT_PREDICTED,
    NOTHING_LEFT_OUT,
    basis,
    beside_the_line,
    chosen_in_words,
    failures,
    left_out_in_words,
    stopped_in_words,
    tuning_headline,
)

if TYPE_CHECKING:
    from loadeval.analysis.stats import Estimate
    from loadeval.analysis.tuning import TuningReport
    from loadeval.report.html.blocks import Block

ABOUT = "tune"


def tuning_page(found: TuningReport) -> str:
    """The page as text. Raises UsageError where a page cannot hold the installed plotly."""
    sections = [_settings(found), _trials(found), *_curve(found), _left_out(found)]
    return rendered(tuning_headline(found), [ABOUT], _top(found), sections)


def _top(found: TuningReport) -> list[Block]:
    keys = [_rate("present", found.present.throughput, found.unit)]
    if found.best is not found.present:
        keys.append(_rate("best", found.best.throughput, found.unit))
    if found.gain is not None:
        keys.insert(0, ("speed-up", speedup(found.gain.value), _between(found.gain)))
    return [Keys(tuple(keys)), Text((stopped_in_words(found),)), Text((basis(found),), "small")]


def _rate(label: str, rate: Estimate | None, unit: str) -> tuple[str, str, str]:
    told = per_second(None if rate is None else rate.value, short_name(unit))
    return f"{label}, measured", told, ""


def _between(gain: Estimate) -> str:
    return f"95% CI {told}" if (told := interval(gain, speedup)) else ""


def _settings(found: TuningReport) -> Section:
    return Section("settings", "Best settings", (Code((chosen_in_words(found),)),))


def _trials(found: TuningReport) -> Section:
    head, *rows = trial_rows(found)
    cells = tuple(map(tuple, rows))
    table = Table("In the order in which they were tried", tuple(head), cells, figures=True)
    told = failures(found)
    failed = [Text(tuple(told), "list")] if told else []
    return Section("trials", "What was tried", (table, *failed))


def _curve(found: TuningReport) -> list[Section]:
    if found.curve is None:
        return []
    note = beside_the_line(found)
    notes: list[Block] = [Text((note,))] if note else []
    return [Section("curve", CURVE_TITLE, (*notes, *curve_blocks("tuned", found.curve)))]


def _left_out(found: TuningReport) -> Section:
    told = left_out_in_words(found)
    nothing = NOTHING_LEFT_OUT if found.predicted else NOT_PREDICTED
    text = Text(tuple(told), "list") if told else Text((nothing,))
    return Section("left-out", "Left out", (text,))
