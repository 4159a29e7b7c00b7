"""Figures and findings in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.headroom import compare, headroom
from loadeval.analysis.stats import Estimate
from loadeval.analysis.summary import summarise
from loadeval.report.formatting import (
    counted,
    duration,
    estimated,
    number,
    printable,
    share,
    shortened,
    size,
    speedup,
    throughput,
)
from loadeval.report.wording import described_loader, headline

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run

MS = 1_000_000


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
    """Nanoseconds are told in ns, us, ms or s; none at all is not measured."""
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
    ("told", "text"),
    [
        (share(None), "not measured"),
        (share(0.0), "0.0%"),
        (share(0.0001), "under 0.1%"),  # not rounded to nothing
        (share(0.456), "45.6%"),
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
def test_figures_and_names_in_words(told: str, text: str) -> None:
    """None is never a number, and what a terminal would obey becomes visible."""
    assert told == text


@pytest.mark.parametrize(
    ("options", "text"),
    [({}, "100 images/s"), ({"samples": None}, "25.0 batches/s"), ({"warmup": 99}, "not measured")],
)
def test_throughput(record: Callable[..., Run], options: dict[str, Any], text: str) -> None:
    """In samples under their name where they are counted, in batches where they are unknown."""
    assert throughput(summarise(record(**options)), "images") == text


def test_size_in_decimal_units() -> None:
    """Bytes are told in kB, MB, GB."""
    assert (size(12), size(4_816_896), size(3e9)) == ("12 bytes", "4.82 MB", "3.00 GB")


def test_counted_has_its_plural() -> None:
    """One is singular."""
    assert counted(1, "batch", "batches") == "1 batch"
    assert counted(2000, "batch", "batches") == "2,000 batches"


def test_printable_escapes_what_steers_a_terminal() -> None:
    """Escape sequences, line ends, direction marks and lone surrogates become visible."""
    assert printable("a\x1b[31m\n\u202e\ud800b") == r"a\x1b[31m\n\u202e\ud800b"


def test_printable_keeps_letters_of_any_script() -> None:
    """What can be shown stays as it is."""
    assert printable("Läufer 中文") == "Läufer 中文"


def test_shortened_keeps_beginning_and_end() -> None:
    """A long name loses its middle, and is as long as asked for."""
    assert shortened("short", 10) == "short"
    assert shortened("beginning-middle-end", 10) == "begi...end"


def test_throughput_in_samples(record: Callable[..., Run]) -> None:
    """Where samples are counted they are told under their name."""
    assert throughput(summarise(record()), "images") == "100 images/s"


def test_throughput_in_batches(record: Callable[..., Run]) -> None:
    """Where samples are unknown batches are told."""
    assert throughput(summarise(record(samples=None)), "images") == "25.0 batches/s"


def test_throughput_of_an_unmeasured_run(record: Callable[..., Run]) -> None:
    """Without a steady batch there is no throughput."""
    assert throughput(summarise(record(warmup=99)), "images") == "not measured"


def test_headline_highly_input_bound(record: Callable[..., Run]) -> None:
    """Waits of three steps each make training four times as fast without."""
    assert headline(compare(record(), record("replay"))) == (
        "Highly input-bound: training would be 4.00x as fast if loading were free "
        "(95% CI 4.00x to 4.00x)"
    )


def test_headline_moderately_input_bound(record: Callable[..., Run]) -> None:
    """A wait of a tenth of the step is moderate."""
    real = record(waits_ns=[MS] * 30)
    assert headline(compare(real, record("replay"))) == (
        "Moderately input-bound: training would be 1.10x as fast if loading were free "
        "(95% CI 1.10x to 1.10x)"
    )


@pytest.mark.parametrize(("step_ns", "ratio"), [(10 * MS, "1.00x"), (9_700_000, "0.97x")])
def test_headline_no_faster(record: Callable[..., Run], step_ns: int, ratio: str) -> None:
    """A speed-up of 1, or below, is told as no faster."""
    real = record(waits_ns=[0] * 30, step_ns=step_ns)
    assert headline(compare(real, record("replay"))) == (
        "Not input-bound: training would be no faster if loading were free "
        f"(95% CI {ratio} to {ratio})"
    )


def test_headline_without_an_interval(record: Callable[..., Run]) -> None:
    """Where none could be had, none is told."""
    found = compare(record(), record("replay"))
    found = replace(found, speedup=Estimate(4.0, None, None))
    assert headline(found) == (
        "Highly input-bound: training would be 4.00x as fast if loading were free"
    )


def test_headline_of_a_span(alternating: Callable[..., Run]) -> None:
    """A verdict that spans two levels is told as it is."""
    found = replace(headroom(alternating()), verdict="moderately to highly input-bound")
    assert headline(found).startswith("Moderately to highly input-bound: training would be 1.")


def test_headline_of_an_alternating_run_without_pairs(alternating: Callable[..., Run]) -> None:
    """It is said why there is nothing to compare."""
    found = headroom(alternating(pairs=0))
    assert headline(found) == f"Inconclusive: {found.reason}"


def test_headline_inconclusive(record: Callable[..., Run]) -> None:
    """Too few steady batches make no finding, whatever their speed-up is."""
    found = compare(record(waits_ns=[MS] * 6), record("replay"))
    assert headline(found) == f"Inconclusive: {found.reason}"


@pytest.mark.parametrize(
    ("real", "ideal", "text"),
    [
        (99, 1, "the steady pace of the real run was not measured"),
        (1, 99, "the steady pace of the ideal run was not measured"),
        (99, 99, "the steady pace of neither run was measured"),
    ],
)
def test_headline_unmeasured(record: Callable[..., Run], real: int, ideal: int, text: str) -> None:
    """It is said which run has nothing to compare."""
    found = headline(compare(record(warmup=real), record("replay", warmup=ideal)))
    assert found == f"Inconclusive: {text}"


def test_described_loader_leaves_out_what_is_unknown(record: Callable[..., Run]) -> None:
    """Of a plain iterable only its class is known."""
    assert described_loader(record()) == "ScriptedLoader"


def test_described_loader_of_a_replay(record: Callable[..., Run]) -> None:
    """A replay was served from kept batches."""
    assert described_loader(record("replay")) == "2 kept batches replayed"
