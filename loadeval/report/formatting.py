"""Numbers, times, sizes and names from a run as text."""

from __future__ import annotations

import string
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.estimate.summary import Summary

TIME_UNITS = ("ns", "us", "ms", "s")
BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB")
STEP_UP = 1000
LONGEST_NAME = 48
"""At most so many characters of a name from a run are shown."""
LONGEST_PLACE = 70
"""At most so many characters of a place in code are shown."""
MOST_IN_FULL = 1_000_000
"""So many of the largest unit, ten days or an exabyte, are written out."""
LEAST_SHARE = 0.001
NOT_MEASURED = "not measured"
LEAST_RATIO = 0.1
"""From here to 1 a factor has two digits, as many decimals as those over 1."""


def printable(text: object) -> str:
    """`text` with each character that would steer a terminal, or show nothing, as its escape."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in str(text)
    )


def shortened(text: str, limit: int) -> str:
    """`text`, or when it is longer than `limit` characters its beginning and end."""
    if len(text) <= limit:
        return text
    kept = max(limit - 3, 2)
    return f"{text[: kept - kept // 2]}...{text[len(text) - kept // 2 :]}"


def short_name(name: object, limit: int = LONGEST_NAME) -> str:
    """A name from a run, printable and in at most `limit` characters."""
    return shortened(printable(name), limit)


def code_place(place: object) -> str:
    """A place in code, printable, and with the end that tells most where it is long."""
    text = printable(place)
    return text if len(text) <= LONGEST_PLACE else f"…{text[1 - LONGEST_PLACE :]}"


def duration(ns: float | None) -> str:
    """`ns` nanoseconds to three digits in the unit that suits; "not measured" for None."""
    return NOT_MEASURED if ns is None else " ".join(scaled(ns, TIME_UNITS))


def size(nbytes: float | None) -> str:
    """`nbytes` to three digits in the unit that suits; "unknown" for None."""
    return "unknown" if nbytes is None else " ".join(scaled(nbytes, BYTE_UNITS))


def number(value: float) -> str:
    """`value` to three digits; whole from a thousand on, and in millions or more from a million."""
    for name, great in (("billion", 1e9), ("million", 1e6)):
        if abs(value) >= great:
            return f"{number(value / great)} {name}"
    digits = f"{value:#.3g}"
    if "e+" in digits or abs(float(digits)) >= STEP_UP:
        return f"{value:,.0f}"
    return digits.rstrip(".")


def share(part: float | None) -> str:
    """`part`, 0 to 1, in percent; "not measured" for None."""
    if part is None:
        return NOT_MEASURED
    # Plus 0.0, since -0.0% is 0.0%.
    return "under 0.1%" if 0 < part < LEAST_SHARE else f"{round(part, 3) + 0.0:.1%}"


def whole_share(part: float) -> str:
    """`part`, 0 to 1, in whole percent, for a line that has several: 41%."""
    return f"{round(part, 2) + 0.0:.0%}"


def speedup(ratio: float | None) -> str:
    """`ratio` as a factor: 2.45x, 0.98x; "not measured" for None."""
    if ratio is None:
        return NOT_MEASURED
    return f"{ratio:.2f}x" if LEAST_RATIO <= ratio < 1 else f"{number(ratio)}x"


def estimated(estimate: Estimate | None, text: Callable[[float], str]) -> str:
    """A value, and behind it its interval where there is one: 2.45x [2.40x, 2.51x]."""
    if estimate is None:
        return NOT_MEASURED
    return f"{text(estimate.value)} {interval(estimate, text)}".rstrip()


def interval(estimate: Estimate | None, text: Callable[[float], str]) -> str:
    """The bounds of the interval: [2.40x, 2.51x]; "" where there is none."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f"[{text(estimate.low)}, {text(estimate.high)}]"


def per_second(rate: float | None, unit: str) -> str:
    """A throughput in `unit` per second; "not measured" for None."""
    return NOT_MEASURED if rate is None else f"{number(rate)} {unit}/s"


def throughput(summary: Summary, unit: str) -> str:
    """Samples per second under their name, or batches per second where those are unknown."""
    if summary.samples_per_s is not None:
        return per_second(summary.samples_per_s, unit)
    return per_second(summary.batches_per_s, "batches")


def cpus(count: float) -> str:
    """CPUs in use or free: 1 CPU, 2.5 CPUs."""
    text = f"{count:.2g}"
    return f"{text} CPU" if text == "1" else f"{text} CPUs"


def counted(count: int, singular: str, plural: str) -> str:
    """`count` things: 1 batch, 2,000 batches."""
    return f"{count:,} {singular if count == 1 else plural}"


def wall_clock(moment: datetime) -> str:
    """Date and time, and the time zone where it is known."""
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}".rstrip()


def scaled(value: float, units: tuple[str, ...]) -> tuple[str, str]:
    """`value`, which is in the first of `units`, to three digits in the unit that suits."""
    unit, *larger = units
    # What rounds up to 1000 of a unit is 1.00 of the next.
    while larger and abs(float(f"{value:.3g}")) >= STEP_UP:
        value /= STEP_UP
        unit, *larger = larger
    if unit == units[0] and float(value).is_integer():
        return f"{value:.0f}", unit
    return f"{value:.3g}" if abs(value) >= MOST_IN_FULL else number(value), unit


def settings_as_code(settings: Mapping[str, Any]) -> str:
    """Settings as arguments of a call."""
    return ", ".join(f"{name}={printable(repr(value))}" for name, value in settings.items())


def filled(template: str, values: Mapping[str, Any]) -> str:
    """`template` with `values` put in: `{wait_ns:duration}`, `{lost:share}`, `{required:speedup}`.

    A format that is none of FORMATS is one of Python's.
    """
    return _Template().vformat(template, (), values)


class _Template(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        own = FORMATS.get(format_spec)
        return super().format_field(value, format_spec) if own is None else own(value)


FORMATS: dict[str, Callable[[Any], str]] = {
    "duration": duration,
    "size": size,
    "number": number,
    "share": share,
    "speedup": speedup,
    "cpus": cpus,
    "shards": partial(counted, singular="shard", plural="shards"),
    "name": short_name,
    "code": code_place,
}
