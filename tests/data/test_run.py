"""What happened in some seconds of a run."""

from __future__ import annotations

import numpy as np

from loadeval.data.columns import Columns
from loadeval.data.lines import EpochEnd, Event, Padding, Prefetch, Window
from loadeval.data.run import table_of
from tests.builder import MS, run_of, stage_rows, steps


def test_between_two_moments() -> None:
    """Batches are those that were asked for then, and what was seen of them; they keep numbers."""
    began_ns, number = np.arange(4) * 100 * MS, np.arange(4)
    crop = {"epoch": np.zeros(4, np.int64), "batch": number, "ns": [1.0, 2, 3, 4]}
    run = run_of(
        [steps("real", 1, 99, 1, pair=n) for n in range(4)],
        windows=tuple(Window(n, 0, "real", MS) for n in range(4)),
        prefetches=tuple(Prefetch(n, 0, 1, 1, MS) for n in range(4)),
        events=tuple(Event(ns, "") for ns in began_ns.tolist()),
        readings={("host", "process"): Columns({"time_ns": began_ns, "cpu_cores": [1, 2, 3, 4]})},
        stages=stage_rows(0, 4).replace(requested_ns=began_ns),
        transforms={"crop": Columns(crop)},
        padding=table_of(Padding, [Padding(0, *[number.tolist()] * 5)]),
    )
    part = run.between(0.1, 0.3)
    assert part.steps.batch.tolist() == part.stages.batch.tolist() == [1, 2]
    assert part.transforms["crop"].ns.tolist() == [2, 3]
    assert part.padding.batch.tolist() == [1, 2]
    assert part.readings["host", "process"].cpu_cores.tolist() == [2, 3]
    assert [window.pair for window in part.windows] == [1, 2]
    assert [prefetch.pair for prefetch in part.prefetches] == [1, 2]
    assert [event.time_ns // MS for event in part.events] == [100, 200]


def test_windows_of_a_pair_that_is_cut_are_left_out() -> None:
    """What workers computed in it may have been outside of these seconds."""
    windows = (Window(0, 0, "real", 200 * MS, MS), Window(0, 0, "ideal", 200 * MS, MS))
    blocks = [steps("real", 1, 99, 2, pair=0), steps("ideal", 1, 99, 2, pair=0)]
    run = run_of(blocks, windows=windows)
    assert run.between(0, 0.4).windows == windows
    assert run.between(0, 0.3).windows == ()


def test_prefetches_of_instrumented_blocks_are_those_that_began_then() -> None:
    """Their batches are in no pair. They tell what the loader's stages take alone."""
    prefetches = tuple(
        Prefetch(0, 0, 1, 1, MS, began_ns=ms * MS, instrumented=True) for ms in (50, 250)
    )
    run = run_of([steps("real", 1, 99, 4, instrumented=True)], prefetches=prefetches)
    assert run.between(0.1, 0.3).prefetches == prefetches[1:]


def test_an_epoch_that_training_left_ended_with_its_last_batch() -> None:
    """Nobody asked for another one, so that its end has no moment of its own."""
    ends = tuple(EpochEnd(epoch, "broken off") for epoch in (0, 1))
    run = run_of([steps("real", 1, 99, 2, epoch=epoch) for epoch in (0, 1)], ends=ends)
    assert run.between(0, 0.3).ends == ends[:1]
    assert run.between(0.1, 0.4).ends == ends
