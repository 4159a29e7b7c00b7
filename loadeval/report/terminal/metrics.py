"""System metrics in a table: each quantity real beside ideal, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from loadeval.data.run import ARMS
from loadeval.report.formatting import NOT_MEASURED, duration, printable, short_name
from loadeval.report.tables import Paragraph, Table
from loadeval.report.wording import metrics as wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from loadeval.analysis.estimate.metrics import Metrics
    from loadeval.data.lines import Arm
    from loadeval.report.tables import Rows

MAIN = (
    "kernel_busy_percent",
    "sm_busy_percent",
    "memory_used_bytes",
    "power_watts",
    "cpu_cores",
    "disk_read_bytes_per_s",
    "cgroup_throttled_share",
)
"""Shown of each subject; the rest is in JSON, and in what `loadeval export` writes."""
IN_FULL = (*MAIN, "pss_bytes", "rss_bytes", "memory_available_bytes")
LONGEST_REASON = 80


def metrics_report(metrics: Metrics) -> RenderableType:
    """Mean, p50 and p95 of each arm, and the difference; and why there are none."""
    shown = [quantity for quantity in metrics.quantities if quantity.name in IN_FULL]
    lines = [f"{probe}: {NOT_MEASURED}: {printable(reason)}" for probe, reason in metrics.missing]
    if not shown and not lines:
        lines = [wording.NO_READINGS]
    rows = []
    for quantity in shown:
        levels = [
            wording.level_in_words(quantity.name, level)
            for level in (quantity.real, quantity.ideal)
        ]
        rows.append(
            [wording.name_in_words(quantity), *levels, wording.difference_in_words(quantity)]
        )
    table = [Table("", ("mean (p50, p95)", *ARMS, "ideal - real"), rows)] if shown else []
    paragraphs = (Padding(Paragraph(line), (0, 0, 0, 2)) for line in lines)
    return Group(Text("System metrics", style="bold"), *table, *paragraphs)


def metrics_rows(sides: Sequence[tuple[Metrics, Arm]]) -> list[Rows]:
    """The means of each arm, of which run; all have the same labels."""
    columns = [dict(_rows(metrics, arm)) for metrics, arm in sides]
    labels = list(dict.fromkeys(label for rows in columns for label in rows))
    return [[(label, rows.get(label, NOT_MEASURED)) for label in labels] for rows in columns]


def _rows(metrics: Metrics, arm: Arm) -> Iterator[tuple[str, str]]:
    idle_ns = metrics.gpu_idle_ns[arm]
    unknown = wording.NO_DEVICE if arm == "real" else NOT_MEASURED  # in replay it never is
    yield "GPU idle while waiting, mean", unknown if idle_ns is None else duration(idle_ns)
    read = False
    for quantity in metrics.quantities:
        level = quantity.real if arm == "real" else quantity.ideal
        if quantity.name in MAIN and level is not None:
            read = True
            yield wording.name_in_words(quantity), wording.value_of(quantity.name, level.mean)
    for probe, why in metrics.missing:
        yield probe, f"{NOT_MEASURED}: {short_name(why, LONGEST_REASON)}"
    if not read and not metrics.missing:
        yield "readings", wording.NO_READINGS
