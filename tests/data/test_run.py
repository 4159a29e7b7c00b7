"""What happened in some seconds of a run."""

from __future__ import annotations

from loadeval.data.lines import Event, Padding, Prefetch, Readings, Window
from tests.runs.given import MS, block, run_of
from tests.runs.tables import Rows


def test_between_two_moments() -> None:
    """Batches are those that were asked for then, and what was seen of them; they keep numbers."""
    began_ns = [0, 100 * MS, 200 * MS, 300 * MS]
    run = run_of(
        [block("real", MS, MS, request_ns=[ns], pair=n) for n, ns in enumerate(began_ns)],
        windows=tuple(Window(n, 0, "real", MS) for n in range(4)),
        prefetches=tuple(Prefetch(n, 0, 1, 1, MS) for n in range(4)),
        events=tuple(Event(ns, "") for ns in began_ns),
        readings=[Readings("host", "process", began_ns, {"cpu_cores": [1, 2, 3, 4]})],
        stages=[Rows(requested_ns=began_ns, transform_ns={"crop": [1, 2, 3, 4]})],
        padding=[Padding(0, *[[0, 1, 2, 3]] * 5)],
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
    blocks = [
        block("real", MS, MS, request_ns=[0, 100 * MS], pair=0),
        block("ideal", MS, MS, request_ns=[200 * MS, 300 * MS], pair=0),
    ]
    windows = (Window(0, 0, "real", 200 * MS, MS), Window(0, 0, "ideal", 200 * MS, MS))
    run = run_of(blocks, windows=windows)
    assert run.between(0, 0.4).windows == windows
    assert run.between(0, 0.3).windows == ()
