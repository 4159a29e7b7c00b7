"""What the panels of the figure show of one alternating run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba

from loadeval.analysis.headroom import headroom
from loadeval.report.style import IDEAL, REAL
from tests.report.drawn import MS, bars, figure_of, legend, written

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from loadeval.runlog.model import Run

    Record = Callable[..., Run]


def blocks(axes: Axes) -> list[LineCollection]:
    """The means of the blocks, a collection for each arm."""
    return [lines for lines in axes.collections if isinstance(lines, LineCollection)][:2]


def test_throughput_of_an_alternating_run(alternating: Record) -> None:
    """Three bars, and on the ideal one a whisker: the interval of the speed-up."""
    run = alternating()
    found = headroom(run)
    axes = figure_of(run).axes[0]
    paces = [found.real_ns, found.ideal_ns, found.loader_only_ns]
    rates = [32e9 / pace for pace in paces if pace is not None]
    assert [height for _, _, height in bars(axes)] == pytest.approx(rates, rel=1e-6)
    (whisker,) = axes.lines
    assert found.speedup is not None
    ends = [found.speedup.low, found.speedup.high]
    assert np.asarray(whisker.get_ydata()).tolist() == pytest.approx(
        [rates[0] * end for end in ends if end is not None]
    )


def test_loader_alone_that_was_not_timed(alternating: Record) -> None:
    """Its place is kept, and says so."""
    axes = figure_of(alternating(prefetches=False)).axes[0]
    assert len(bars(axes)) == 2
    assert written(axes)[2] == "not\nmeasured"


def test_lost_parts_have_whiskers(alternating: Record) -> None:
    """What waiting and contention cost is drawn with its interval."""
    run = alternating()
    found = headroom(run)
    drawn = [np.asarray(line.get_xdata()).tolist() for line in figure_of(run).axes[1].lines]
    assert len(drawn) == 2
    for ends, lost in zip(drawn, (found.waiting_ns, found.contention_ns), strict=True):
        assert lost is not None
        assert lost.low is not None
        assert lost.high is not None
        assert ends[1] - ends[0] == pytest.approx(lost.high - lost.low)


def test_iterations_are_drawn_by_arm(alternating: Record) -> None:
    """A line for each block at its mean, in the colour of its arm; the counted batches as dots."""
    run = alternating(noise=0, epoch=1000)
    axes = figure_of(run).axes[2]
    assert legend(axes) == ["real", "ideal", "1 epoch start (300 ms)"]
    for lines, iteration_ns, color in zip(
        blocks(axes), (40 * MS, 25 * MS), (REAL, IDEAL), strict=True
    ):
        heights = [np.asarray(part)[:, 1].tolist() for part in lines.get_segments()]
        assert heights == [[iteration_ns, iteration_ns]] * 12
        assert np.asarray(lines.get_edgecolor())[0].tolist() == pytest.approx(to_rgba(color))
    dots = [len(np.asarray(line.get_xdata())) for line in axes.lines if line.get_marker() == "o"]
    assert dots == [96, 96]


def test_a_block_that_goes_on_in_the_next_epoch_is_drawn_in_parts(alternating: Record) -> None:
    """Its first batch there, an epoch start, counts for nothing; epoch starts and epochs are marked."""
    run = alternating(epoch=60)
    axes = figure_of(run).axes[2]
    assert sum(len(lines.get_segments()) for lines in blocks(axes)) > 24
    assert legend(axes) == ["real", "ideal", "5 epoch starts (300 ms)", "new epoch"]


def test_iterations_of_a_run_without_a_pair(alternating: Record) -> None:
    """The panel says that nothing was measured."""
    assert written(figure_of(alternating(pairs=0)).axes[2]) == ["not measured"]


def test_a_pair_that_was_not_finished_is_not_drawn(alternating: Record) -> None:
    """The panel shows what the figures are made of."""
    run = alternating(noise=0, epoch=1000)
    pair = np.where(run.steps.pair == 11, np.where(run.steps.arm == 0, 11, -1), run.steps.pair)
    cut = dataclasses.replace(run, steps=dataclasses.replace(run.steps, pair=pair))
    drawn = blocks(figure_of(cut).axes[2])
    assert [len(lines.get_segments()) for lines in drawn] == [11, 11]
