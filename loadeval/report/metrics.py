"""System metrics in words and in a table: each quantity real beside ideal, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from loadeval.report.formatting import (
    BYTE_UNITS,
    NOT_MEASURED,
    duration,
    number,
    printable,
    scaled,
    short_name,
)
from loadeval.report.tables import CellTable, Paragraph
from loadeval.report.wording import NO_DEVICE, NO_READINGS
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from loadeval.analysis.backends import BackendResult
    from loadeval.analysis.metrics import Level, Metrics, Quantity
    from loadeval.report.tables import Rows
    from loadeval.runlog.model import Arm


def _bytes(value: float) -> tuple[str, str]:
    count, unit = scaled(value, BYTE_UNITS)
    return count, f" {unit}"


def _bytes_per_s(value: float) -> tuple[str, str]:
    count, unit = _bytes(value)
    return count, f"{unit}/s"


UNITS: dict[str, Callable[[float], tuple[str, str]]] = {
    "_bytes_per_s": _bytes_per_s,
    "_per_s": lambda value: (number(value), "/s"),
    "_bytes": _bytes,
    "_percent": lambda value: (f"{value:.0f}%", ""),
    "_share": lambda value: (f"{value:.1%}", ""),
    "_flag": lambda value: (f"{value:.0%}", " of the time"),
    "_watts": lambda value: (number(value), " W"),
    "_celsius": lambda value: (f"{value:.0f}", " C"),
    "_hz": lambda value: (number(value / 1e9), " GHz"),
    "_cores": lambda value: (number(value), " cores"),
}
"""The number and the unit of a quantity whose name ends so; the first that fits."""
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
LONGEST_SUBJECT = 40
LONGEST_REASON = 80


def metrics_report(metrics: Metrics) -> RenderableType:
    """Mean, p50 and p95 of each arm, and the difference; and why there are none."""
    shown = [one for one in metrics.quantities if one.name in IN_FULL]
    said = [f"{probe}: {NOT_MEASURED}: {printable(reason)}" for probe, reason in metrics.missing]
    if not shown and not said:
        said = [NO_READINGS]
    rows = [["mean (p50, p95)", *ARMS, "difference"]]
    for one in shown:
        levels = [level_in_words(one.name, level) for level in (one.real, one.ideal)]
        rows.append([name_in_words(one), *levels, difference_in_words(one)])
    table = [CellTable(rows)] if shown else []
    lines = (Padding(Paragraph(line), (0, 0, 0, 2)) for line in said)
    return Group(Text("System metrics", style="bold"), *table, *lines)


def metrics_rows(sides: Sequence[tuple[Metrics, Arm]]) -> list[Rows]:
    """The means of each arm, of which run; all have the same labels."""
    told = [dict(_rows(metrics, arm)) for metrics, arm in sides]
    labels = list(dict.fromkeys(label for rows in told for label in rows))
    return [[(label, rows.get(label, NOT_MEASURED)) for label in labels] for rows in told]


def gpus_in_words(metrics: Metrics) -> list[str]:
    """How busy each GPU was, real against ideal, a sentence each."""
    said = []
    for found in metrics.quantities:
        if found.name == "kernel_busy_percent":
            levels = ((arm, found.real if arm == "real" else found.ideal) for arm in ARMS)
            known = [f"{value_of(found.name, one.mean)} {arm}" for arm, one in levels if one]
            said.append(f"{_subject(found)}: GPU busy {', '.join(known)}.")
    return said


def gpus_of_backends(backends: Iterable[BackendResult]) -> list[str]:
    """How busy the GPUs of each backend were, behind its name."""
    return [
        f"{printable(one.name)}: {sentence}"
        for one in backends
        if one.metrics is not None
        for sentence in gpus_in_words(one.metrics)
    ]


def name_in_words(found: Quantity) -> str:
    """The subject and the quantity, without its unit: GPU 0 kernel busy."""
    return f"{_subject(found)} {quantity_in_words(found.name)}"


def quantity_in_words(name: str) -> str:
    """The quantity without its unit: kernel busy."""
    ends = (end for end in UNITS if name.endswith(end))
    return printable(name.removesuffix(next(ends, "")).replace("_", " "))


def value_of(name: str, value: float) -> str:
    """A value of the quantity `name`, in the unit that its name ends in."""
    return "".join(_parts(name, value))


def level_in_words(name: str, level: Level | None) -> str:
    """The mean with p50 and p95, with their unit once where all three have the same."""
    if level is None:
        return NOT_MEASURED
    told = [_parts(name, value) for value in (level.mean, level.p50, level.p95)]
    if len({unit for _, unit in told}) == 1:
        (mean, unit), (p50, _), (p95, _) = told
        return f"{mean} ({p50}, {p95}){unit}"
    mean, p50, p95 = map("".join, told)
    return f"{mean} ({p50}, {p95})"


def difference_in_words(found: Quantity) -> str:
    """By how much the ideal mean exceeds the real one, in points where it is a percentage."""
    if found.difference is None:
        return NOT_MEASURED
    sign = "-" if found.difference < 0 else "+"
    if found.name.endswith("_percent"):
        return f"{sign}{abs(found.difference):.0f} points"
    return f"{sign}{value_of(found.name, abs(found.difference))}"


def _parts(name: str, value: float) -> tuple[str, str]:
    tell = next((tell for end, tell in UNITS.items() if name.endswith(end)), None)
    return (number(value), "") if tell is None else tell(value)


def _rows(metrics: Metrics, arm: Arm) -> Iterator[tuple[str, str]]:
    idle_ns = metrics.gpu_idle_ns[arm]
    yield "GPU idle while waiting, mean", NO_DEVICE if idle_ns is None else duration(idle_ns)
    read = False
    for one in metrics.quantities:
        level = one.real if arm == "real" else one.ideal
        if one.name in MAIN and level is not None:
            read = True
            yield name_in_words(one), value_of(one.name, level.mean)
    for probe, why in metrics.missing:
        yield probe, f"{NOT_MEASURED}: {short_name(why, LONGEST_REASON)}"
    if not read and not metrics.missing:
        yield "readings", NO_READINGS


def _subject(found: Quantity) -> str:
    return short_name(found.subject, LONGEST_SUBJECT) or found.probe
