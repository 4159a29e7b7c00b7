"""The figure of several backends: what it shows, and that nothing in it overlaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from loadeval import BackendComparison
from loadeval.report.figure import backends_figure
from loadeval.report.palette import LIGHT
from loadeval.runtime.backends import Measured
from tests.report.drawn import MS, check_that_all_can_be_read, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from loadeval import Run

    Record = Callable[..., Run]

LONG = "the WebDataset of the whole department, read from its shards, in its third version"
ERROR = RuntimeError("a stage of the pipeline failed: cannot identify image file " * 9)


def turns(alternating: Record, name: str, real_ms: float = 40, **more: object) -> Measured:
    iterations = round(real_ms * MS), 25 * MS
    settings = {"comparison": "one", "rounds": 6}
    run = alternating(name=name, pairs=6, iterations_ns=iterations, settings=settings, **more)
    return Measured(name, run, None)


@pytest.fixture(name="pair")
def _pair(alternating: Record) -> BackendComparison:
    return BackendComparison.of_measured(
        [turns(alternating, "torch"), turns(alternating, "dali", 30)]
    )


def written(figure: Figure) -> list[str]:
    return [text.get_text() for text in texts(figure)]


def bars(figure: Figure) -> list[tuple[float, tuple[float, ...]]]:
    """Length and colour of each, from the top."""
    (axes,) = figure.axes
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [(bar.get_width(), to_rgba(bar.get_facecolor())) for bar in found]


def whiskers(figure: Figure) -> list[list[float]]:
    """The ends of each."""
    (axes,) = figure.axes
    return [np.asarray(line.get_xdata(), dtype=float).tolist() for line in axes.lines]


def test_each_backend_has_a_bar_for_each_pace(pair: BackendComparison) -> None:
    """The fastest first, as long as its throughputs are high."""
    rates = [
        rate
        for name in ("dali", "torch")
        for rate in (pair[name].real, pair[name].ideal, pair[name].loader_only)
    ]
    expected = [(rate and rate.value) for rate in rates]
    found = bars(backends_figure(pair))
    assert [length for length, _ in found] == expected
    assert [color for _, color in found] == [to_rgba(LIGHT[one]) for one in ("real", "ideal", "loader")] * 2


def test_each_interval_is_a_whisker(pair: BackendComparison) -> None:
    """From its low to its high end."""
    found = whiskers(backends_figure(pair))
    real = pair["dali"].real
    assert real is not None
    assert found[0] == [real.low, real.high]
    assert len(found) == 6


def test_a_wide_interval_does_not_squeeze_the_bars(alternating: Record) -> None:
    """Its whisker goes on beyond what is drawn, without a cap there; its ends are written."""
    wild = turns(alternating, "wild", noise=0.9, block=1)
    found = BackendComparison.of_measured([turns(alternating, "torch"), wild])
    rates = [rate for one in found.backends for rate in (one.real, one.ideal, one.loader_only)]
    highest = max(rate.value for rate in rates if rate)
    assert max(rate.high or 0 for rate in rates if rate) > 1.5 * highest
    longest = max(end for _, end in whiskers(backends_figure(found)))
    assert longest == pytest.approx(1.5 * highest)


def test_the_title_is_the_headline(pair: BackendComparison) -> None:
    """Below it stands what was counted, and what the brackets are."""
    told = written(backends_figure(pair))
    assert any(line.startswith("dali trains fastest: 1.33x") for line in told)
    assert "Whiskers and brackets are 95% intervals." in told


def test_what_is_lost_is_told_beside(pair: BackendComparison) -> None:
    """In percent, with its interval and the verdict."""
    told = written(backends_figure(pair))
    lost = pair["torch"].lost_share
    assert lost is not None
    assert f"{lost.value:.1%}" in told
    assert "highly input-bound" in told


def test_a_failed_backend_has_its_error_in_place_of_bars(alternating: Record) -> None:
    """In three lines at most."""
    measured = [turns(alternating, "torch"), Measured("spdl", None, ERROR)]
    figure = backends_figure(BackendComparison.of_measured(measured))
    assert len(bars(figure)) == 3
    assert any(line.startswith("failed: RuntimeError: a stage") for line in written(figure))


def test_what_was_not_measured_is_written_in_place_of_a_bar(record: Record) -> None:
    """A run of mode log has neither ideal nor loader alone."""
    figure = backends_figure(BackendComparison.of_runs([record(name="a"), record(name="b")]))
    told = written(figure)
    assert told.count("ideal not measured") == told.count("loader alone not measured") == 2
    assert len(bars(figure)) == 2


def test_all_failed_is_a_figure_too() -> None:
    """It has no bars, and says so."""
    failed = [Measured(name, None, ERROR) for name in ("torch", "dali")]
    figure = backends_figure(BackendComparison.of_measured(failed))
    assert bars(figure) == []
    assert "No backend was measured" in written(figure)


def test_too_little_for_intervals_is_a_figure_too(alternating: Record) -> None:
    """Without whiskers, and without brackets."""
    run = alternating(name="torch", pairs=2, settings={"comparison": "one", "rounds": 2})
    figure = backends_figure(BackendComparison.of_measured([Measured("torch", run, None)]))
    assert whiskers(figure) == []
    assert not any(text.startswith("[") for text in written(figure))


def many(alternating: Record, record: Record) -> dict[str, BackendComparison]:
    two = [turns(alternating, "torch"), turns(alternating, LONG, 30)]
    six = [turns(alternating, f"{number}: {LONG}", 30 + number) for number in range(6)]
    broken = [*two, Measured("spdl", two[0].run, ERROR)]
    huge = [turns(alternating, "torch", samples=10**9), turns(alternating, "dali", 0.01)]
    logged = [record(name=LONG), alternating(name="torch")]
    return {
        "two": BackendComparison.of_measured(two),
        "six": BackendComparison.of_measured(six),
        "broken": BackendComparison.of_measured(broken),
        "huge": BackendComparison.of_measured(huge),
        "logged": BackendComparison.of_runs(logged),
        "tex": BackendComparison.of_measured([turns(alternating, "$x^2$ \\frac")]),
    }


@pytest.mark.parametrize("kind", ["two", "six", "broken", "huge", "logged", "tex"])
def test_no_text_overlaps_another_or_leaves_the_page(
    alternating: Record, record: Record, kind: str
) -> None:
    """Whatever the names, errors and numbers are."""
    # Lines of text may touch: an extent has room for accents.
    figure = backends_figure(many(alternating, record)[kind])
    check_that_all_can_be_read(figure, wide=1, high=3)
