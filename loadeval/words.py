"""Numbers, times and shares as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TIME_UNITS = ("ns", "us", "ms", "s")
STEP_UP = 1000
MOST_IN_FULL = 1_000_000
"""So many of the largest unit, ten days, are written out."""
LEAST_SHARE = 0.001
LEAST_RATIO = 0.1
"""From here to 1 a factor has two digits, as many decimals as those over 1."""


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
    unit, *larger = TIME_UNITS
    # What rounds up to 1000 of a unit is 1.00 of the next.
    while larger and abs(float(f"{ns:.3g}")) >= STEP_UP:
        ns /= STEP_UP
        unit, *larger = larger
    if unit == TIME_UNITS[0] and float(ns).is_integer():
        return f"{ns:.0f} {unit}"
    return f"{f'{ns:.3g}' if abs(ns) >= MOST_IN_FULL else number(ns)} {unit}"


def share(part: float) -> str:
    """`part`, 0 to 1, in percent."""
    # Plus 0.0, since -0.0% is 0.0%.
    return "under 0.1%" if 0 < part < LEAST_SHARE else f"{round(part, 3) + 0.0:.1%}"


def times(ratio: float) -> str:
    """`ratio` as a factor: 2.45x, 0.98x."""
    return f"{ratio:.2f}x" if LEAST_RATIO <= ratio < 1 else f"{number(ratio)}x"


def counted(count: int, singular: str, plural: str) -> str:
    """`count` things: 1 batch, 2,000 batches."""
    return f"{count:,} {singular if count == 1 else plural}"


FORMATS: dict[str, Callable[[float], str]] = {
    "number": number,
    "duration": duration,
    "share": share,
    "times": times,
}
"""What may stand behind the colon where an Estimate is put into a sentence."""
