"""What is said everywhere: numbers with their units, plurals, moments, and names."""

from __future__ import annotations

from collections.abc import Callable

TIME_UNITS = ("ns", "us", "ms", "s")
BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB")
LONG_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
FEWEST_SECONDS = 100
"""A shorter time has no other unit."""
STEP_UP = 1000
LEAST_SHARE, LEAST_WHOLE = 0.001, 0.005
"""Shares that would be rounded to nothing are under these."""
LEAST_RATIO = 0.1
"""From here to 1 a factor has two digits, as many decimals as those over 1."""
NOT_MEASURED = "not measured"


def number(value: float) -> str:
    """`value` to three digits; whole from a thousand on, and in millions or more from a million."""
    for name, great in (("billion", 1e9), ("million", 1e6)):
        if abs(value) >= great:
            return f"{number(value / great)} {name}"
    digits = f"{value:#.3g}"
    if "e+" in digits or abs(float(digits)) >= STEP_UP:
        return f"{value:,.0f}"
    return digits.rstrip(".")


def duration(ns: float) -> str:
    """`ns` nanoseconds to three digits in the unit that suits: 12.3 ms."""
    return _scaled(ns, TIME_UNITS)


def size(nbytes: float) -> str:
    """`nbytes` to three digits in the unit that suits: 4.82 MB."""
    return _scaled(nbytes, BYTE_UNITS)


def _scaled(value: float, units: tuple[str, ...]) -> str:
    unit, *larger = units
    # What rounds up to 1000 of a unit is 1.00 of the next.
    while larger and abs(float(f"{value:.3g}")) >= STEP_UP:
        value /= STEP_UP
        unit, *larger = larger
    if unit == units[0] and float(value).is_integer():
        return f"{value:.0f} {unit}"
    return f"{number(value)} {unit}"


def share(part: float) -> str:
    """`part`, 0 to 1, in percent: 45.6%."""
    # Plus 0.0, since -0.0% is 0.0%.
    return "under 0.1%" if 0 < part < LEAST_SHARE else f"{round(part, 3) + 0.0:.1%}"


def whole_share(part: float) -> str:
    """`part`, 0 to 1, in whole percent, for a line that has several: 41%, under 1%."""
    return "under 1%" if 0 < part < LEAST_WHOLE else f"{round(part, 2) + 0.0:.0%}"


def times(ratio: float) -> str:
    """`ratio` as a factor: 2.45x, 0.98x."""
    return f"{ratio:.2f}x" if LEAST_RATIO <= ratio < 1 else f"{number(ratio)}x"


def cpus(count: float) -> str:
    """CPUs in use or free: 1 CPU, 2.5 CPUs."""
    text = f"{count:.2g}"
    return f"{text} CPU" if text == "1" else f"{text} CPUs"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """`count` things: 1 batch, 2,000 batches; the plural ends in s if none is given."""
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"


def moment(ns: float) -> str:
    """A time since the run's start, in seconds: that is how a part of a run is asked for."""
    return f"{ns / 1e9:.2f} s"


def span(ns: float) -> str:
    """A long time in its two largest units: 42 s, 12 min 3 s, 3 d 4 h."""
    left = round(ns / 1e9)
    if left < FEWEST_SECONDS:
        return f"{left} s"
    parts: list[str] = []
    for unit, seconds in LONG_UNITS:
        count, left = divmod(left, seconds)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


FORMATS: dict[str, Callable[[float], str]] = {
    "number": number,
    "duration": duration,
    "size": size,
    "share": share,
    "times": times,
    "cpus": cpus,
}
"""Kinds of numbers by name: what may stand behind the colon where an estimate is in an f-string,
and the unit of a number in a report."""


def printable(text: object) -> str:
    """`text` with each character that would steer a terminal, or show nothing, as its escape."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in str(text)
    )


def shortened(text: str, limit: int) -> str:
    """`text`, or if it is longer than `limit` characters its beginning and end."""
    if len(text) <= limit:
        return text
    kept = max(limit - 3, 2)
    return f"{text[: kept - kept // 2]}...{text[len(text) - kept // 2 :]}"
