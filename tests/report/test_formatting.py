"""Numbers, times, sizes and names as text."""

from __future__ import annotations

from typing import Any

import pytest

from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.summary import summarise
from loadeval.report.formatting import (
    counted,
    duration,
    estimated,
    interval,
    number,
    printable,
    share,
    shortened,
    size,
    speedup,
    throughput,
)
from tests.runs.measured import recorded


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (812, "812 ns"),
        (12.5, "12.5 ns"),
        (999.6, "1.00 us"),
        (1_500, "1.50 us"),
        (15_200_000, "15.2 ms"),
        (999_600_000, "1.00 s"),
        (90_000_000_000, "90.0 s"),
        (2e15, "2e+06 s"),
        (-3_200_000, "-3.20 ms"),
        (None, "not measured"),
    ],
)
def test_duration_has_three_digits_and_the_unit_that_suits(ns: float | None, text: str) -> None:
    """Nanoseconds are in ns, us, ms or s; none at all is not measured."""
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.01234, "0.0123"),
        (2.449, "2.45"),
        (123.4, "123"),
        (999.6, "1,000"),
        (45_678.9, "45,679"),
        (3_226_627_291, "3.23 billion"),
        (1_500_000, "1.50 million"),
    ],
)
def test_number_has_three_digits_or_is_whole(value: float, text: str) -> None:
    """A number keeps three digits, its whole part from a thousand on."""
    assert number(value) == text


@pytest.mark.parametrize(
    ("formatted", "text"),
    [
        (share(None), "not measured"),
        (share(0.0), "0.0%"),
        (share(0.0001), "under 0.1%"),  # not rounded to nothing
        (share(0.456), "45.6%"),
        (share(-0.0001), "0.0%"),
        (speedup(None), "not measured"),
        (speedup(1.034), "1.03x"),  # two decimals above and below 1
        (speedup(0.9849), "0.98x"),
        (speedup(0.0123), "0.0123x"),
        (estimated(None, speedup), "not measured"),
        (estimated(Estimate(1.661, None, None), speedup), "1.66x"),
        (estimated(Estimate(1.661, 1.64, 1.68), speedup), "1.66x [1.64x, 1.68x]"),
        (size(None), "unknown"),
        (size(12), "12 bytes"),
        (size(4_816_896), "4.82 MB"),
        (size(3e9), "3.00 GB"),
        (counted(1, "batch", "batches"), "1 batch"),
        (counted(2000, "batch", "batches"), "2,000 batches"),
        (printable("a\x1b[31m\n\u202e\ud800b"), r"a\x1b[31m\n\u202e\ud800b"),  # nothing steers
        (printable("Läufer 中文"), "Läufer 中文"),
        (shortened("short", 10), "short"),
        (shortened("beginning-middle-end", 10), "begi...end"),
    ],
)
def test_figures_and_names_in_words(formatted: str, text: str) -> None:
    """None is never a number, and what a terminal would obey becomes visible."""
    assert formatted == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (2.471e6, 2.479e6, "[2.47 million, 2.48 million]"),
        (2.471e6, 2.473e6, "[2.47 million, 2.47 million]"),
        (None, None, ""),
    ],
)
def test_an_interval_has_two_bounds(low: float | None, high: float | None, text: str) -> None:
    assert interval(Estimate(2.472e6, low, high), number) == text


@pytest.mark.parametrize(
    ("options", "text"),
    [({}, "100 images/s"), ({"batch": "text"}, "25.0 batches/s"), ({"warmup": 99}, "not measured")],
)
def test_throughput(options: dict[str, Any], text: str) -> None:
    """In samples under their name where they are counted, in batches where they are unknown."""
    assert throughput(summarise(recorded(**options)), "images") == text
