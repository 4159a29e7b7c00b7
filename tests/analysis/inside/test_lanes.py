"""Which stretch of a run is looked at batch by batch, and what is on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.inside.lanes import MOST_BATCHES, Choice, Lanes, lanes_of
from loadeval.analysis.inside.timeline import LoaderTimeline
from loadeval.data.columns import UNKNOWN
from tests.runs.staged import MS, staged, without_stages
from tests.runs.tables import replace, rows_of

if TYPE_CHECKING:
    import pytest

    from loadeval.data.run import Run


def lanes(run: Run) -> Lanes:
    result = lanes_of(run)
    assert result is not None
    return result


def test_a_short_epoch_is_shown_whole() -> None:
    """The last of those that are as long."""
    stretch = lanes(staged("log", batches=90))
    assert (stretch.choice, set(stretch.times.epoch)) == (Choice.WHOLE_EPOCH, {1})
    assert len(stretch) == stretch.of == 90
    assert stretch.workers == (0, 1)


def test_a_long_epoch_is_shown_around_the_longest_head_of_line_wait() -> None:
    """The batch that was waited for is in the middle."""
    run = staged("log", batches=700, epochs=1)
    stretch = lanes(run)
    assert (stretch.choice, len(stretch), stretch.of) == (Choice.HEAD_OF_LINE, MOST_BATCHES, 700)
    assert int(stretch.head_of_line_ns.argmax()) == MOST_BATCHES // 2


def test_the_longest_wait_at_the_beginning_or_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stretch has as many batches as any."""
    run = staged("log", batches=260, epochs=1)
    for place in (1, 258):
        blocked = np.zeros(260, dtype=np.int64)
        blocked[place] = 900 * MS
        monkeypatch.setattr(LoaderTimeline, "head_of_line_ns", lambda _, b=blocked: b)
        stretch = lanes(run)
        assert (stretch.choice, len(stretch)) == (Choice.HEAD_OF_LINE, MOST_BATCHES)
        assert (stretch.head_of_line_ns > 0).sum() == 1


def test_without_long_waits_a_typical_stretch_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the median time of those looked at, and no batch is marked."""
    none = np.zeros(900, dtype=np.int64)
    monkeypatch.setattr(LoaderTimeline, "head_of_line_ns", lambda _: none)
    run = staged("log", batches=900, epochs=1)
    stretch = lanes(run)
    assert (stretch.choice, len(stretch)) == (Choice.TYPICAL, MOST_BATCHES)
    assert not stretch.head_of_line_ns.any()
    (times,) = rows_of(run)
    took = [
        times.delivered_ns[first + MOST_BATCHES - 1] - times.requested_ns[first]
        for first in range(1, 900 - MOST_BATCHES + 1, MOST_BATCHES // 4)
    ]
    shown = stretch.times.delivered_ns[-1] - stretch.times.requested_ns[0]
    assert sum(took < shown) <= len(took) // 2 <= sum(took <= shown)


def test_steps_are_those_of_the_stretch() -> None:
    """Each begins where its wait ends."""
    stretch = lanes(staged("log", batches=90))
    assert stretch.step_start_ns.tolist() == stretch.times.delivered_ns.tolist()
    assert set((stretch.step_end_ns - stretch.step_start_ns).tolist()) == {8 * MS}


def test_all_that_is_shown_is_in_the_span() -> None:
    """The span is from the first request, or fetch, to the end of the last step."""
    stretch = lanes(staged("log", batches=90))
    first, last = stretch.span
    assert first == stretch.times.requested_ns[0]
    assert last == stretch.step_end_ns[-1]


def test_stages_follow_on_one_another() -> None:
    """Fetch, collate, pickle; and with it the batch is ready."""
    stretch = lanes(staged("log", batches=90))
    assert (stretch.times.fetch_start_ns < stretch.fetched_ns).all()
    assert (stretch.fetched_ns < stretch.collated_ns).all()
    assert (stretch.collated_ns <= stretch.pickle_start_ns).all()
    assert (stretch.pickle_start_ns < stretch.ready_ns).all()


def test_without_workers_nothing_is_pickled() -> None:
    """The one lane is that of the training process."""
    stretch = lanes(staged("log", workers=0, batches=40))
    assert stretch.workers == (UNKNOWN,)
    assert stretch.pickle_start_ns.tolist() == stretch.ready_ns.tolist()


def test_an_epoch_of_one_batch() -> None:
    """Nothing tells how long it is from one batch to the next, so no wait is long."""
    stretch = lanes(staged("log", batches=1, epochs=1))
    assert len(stretch) == 1
    assert not stretch.head_of_line_ns.any()


def test_a_run_that_was_not_looked_into_has_none() -> None:
    """One in whose epochs nothing was delivered has none either."""
    run = staged("log", batches=20, epochs=1)
    (times,) = rows_of(run)
    assert lanes_of(without_stages(run)) is None
    assert lanes_of(replace(run, stages=(times.part(slice(0, 0)),))) is None
