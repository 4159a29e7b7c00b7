"""What was read of the machine, real beside ideal, as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from loadeval.analysis.metrics import missing, of_two_runs, quantities
from loadeval.report.folding import CellTable, Paragraph
from loadeval.report.formatting import NOT_MEASURED, printable
from loadeval.report.readings import MAIN, TOO_SHORT, name_in_words, value_of
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from loadeval.analysis.metrics import Level, Quantity
    from loadeval.runlog.model import Run

SHOWN = (*MAIN, "pss_bytes", "rss_bytes", "memory_available_bytes")
GAP = 2


def readings_report(real: Run, ideal: Run | None = None) -> RenderableType:
    """Means of each arm with p50 and p95, and the difference; and why there are none."""
    found = quantities(real) if ideal is None else of_two_runs(quantities(real), quantities(ideal))
    shown = [one for one in found if one.name in SHOWN]
    runs = [real] if ideal is None else [real, ideal]
    reasons = dict.fromkeys(one for run in runs for one in missing(run))
    said = [f"{probe}: {NOT_MEASURED}: {printable(reason)}" for probe, reason in reasons]
    if not shown and not said:
        said = [TOO_SHORT]
    table = [CellTable(_rows(shown))] if shown else []
    lines = (Padding(Paragraph(line), (0, 0, 0, GAP)) for line in said)
    return Group(Text("System metrics", style="bold"), *table, *lines)


def difference_in_words(found: Quantity) -> str:
    """By how much the ideal mean exceeds the real one, in points where it is a percentage."""
    if found.difference is None:
        return NOT_MEASURED
    sign = "-" if found.difference < 0 else "+"
    if found.name.endswith("_percent"):
        return f"{sign}{abs(found.difference):.0f} points"
    return f"{sign}{value_of(found.name, abs(found.difference))}"


def _rows(shown: list[Quantity]) -> list[list[str]]:
    rows = [["mean (p50, p95)", *ARMS, "difference"]]
    for one in shown:
        levels = [level_in_words(one.name, level) for level in (one.real, one.ideal)]
        rows.append([name_in_words(one), *levels, difference_in_words(one)])
    return rows


def level_in_words(name: str, level: Level | None) -> str:
    """The mean with p50 and p95, their unit once where they have one in common."""
    if level is None:
        return NOT_MEASURED
    told = [value_of(name, value) for value in (level.mean, level.p50, level.p95)]
    (mean, p50, p95), units = zip(*(one.partition(" ")[::2] for one in told), strict=True)
    if len(set(units)) == 1:
        return f"{mean} ({p50}, {p95}) {units[0]}".rstrip()
    return f"{told[0]} ({told[1]}, {told[2]})"
