"""Where a loader's time goes: of loaders that are modelled, and of rows whose values are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadeval.data.columns import Columns
from loadeval.data.lines import CodeSamples, Event, Mode, OperatorTimes, Prefetch
from loadeval.data.run import Run
from loadeval.inside.code import CodeLine
from loadeval.inside.stages import Stages, stages, why_no_stages
from tests.builder import MS, looked_into, run_of, stage_rows, steps


def inside(run: Run) -> Stages:
    result = stages(run)
    assert result is not None
    return result


def charged_ms(result: Stages) -> dict[str, float]:
    """What each stage is charged, where that is something."""
    return {one.stage: one.charged_ns / MS for one in result.stages if one.charged_ns}


def alone(rows: Columns, first: int, batches: int, timed: int, **known: Any) -> Run:
    """A run in which some batches were taken back to back, the last `timed` of which count."""
    taken = rows.take((rows.batch >= first) & (rows.batch < first + batches))
    until_ns = int(taken.delivered_ns[-1])
    waits_ns = np.diff([*taken.requested_ns.tolist(), until_ns]).tolist()
    epoch, began_ns = int(rows.epoch[0]), int(taken.requested_ns[0])
    prefetch = Prefetch(
        0, epoch, batches, timed, sum(waits_ns[-timed:]), waits_ns=waits_ns, began_ns=began_ns
    )
    return looked_into(rows, prefetches=(prefetch,), **known)


def one_worker(count: int, fetch_ms: Any = 8, collate_ms: Any = 2, **known: Any) -> Columns:
    """Batches of one worker that takes 10 ms for each, and is waited for all the time."""
    took = {"workers": 1, "prefetch": 1, "collate_ms": collate_ms, **known}
    return stage_rows(fetch_ms, count, **took)


@pytest.mark.parametrize("seed", range(8))
def test_all_that_is_waited_for_is_charged_once(seed: int) -> None:
    """To what was done then for the batch that came next, whatever takes long in a loader."""
    random = np.random.default_rng(seed)
    names = ("index_ms", "collate_ms", "pickle_ms", "receive_ms", "pin_ms")
    took: dict[str, Any] = {
        name: random.gamma(0.5, random.choice([0, 1, 20]), 40) for name in names
    }
    rows = stage_rows(
        random.gamma(0.5, 20, 40) + 0.001,
        workers=int(random.integers(0, 5)),
        prefetch=int(random.integers(1, 4)),
        step_ms=random.choice([0, 5, 20]),
        **took,
    )
    result = inside(looked_into(rows))
    waits_ns = (rows.delivered_ns - rows.requested_ns)[1:]
    assert (result.basis, result.batches) == ("waits", 39)
    assert result.total_ns == pytest.approx(waits_ns.mean())
    assert sum(one.charged_ns for one in result.stages) == pytest.approx(result.total_ns)
    assert min(one.charged_ns for one in result.stages) >= 0
    assert result.not_attributed_ns == pytest.approx(0, abs=1)


@pytest.mark.parametrize(
    ("workers", "took_ms", "expected_ms"),
    [
        # Two workers take 10 ms a batch each, so training waits 5: for fetching, or collating.
        (2, {"fetch": 10}, {"fetch": 5}),
        (2, {"fetch": 4, "collate": 6}, {"fetch": 2, "collate": 3}),
        (1, {"fetch": 10, "pickle": 2}, {"fetch": 8, "pickle": 2}),
        (1, {"fetch": 2, "pickle": 10}, {"pickle": 10}),
        (4, {"fetch": 10, "receive": 9}, {"receive": 9}),
        (4, {"fetch": 10, "pin": 9}, {"pin": 9}),
        (4, {"fetch": 10, "index": 9}, {"indices": 9}),
        (0, {"fetch": 4, "index": 1}, {"indices": 1, "fetch": 4}),
    ],
)
def test_the_stage_that_makes_training_wait_is_charged(
    workers: int, took_ms: dict[str, int], expected_ms: dict[str, int]
) -> None:
    rows = stage_rows(count=80, workers=workers, **{f"{k}_ms": v for k, v in took_ms.items()})
    result = inside(alone(rows, 0, 80, 40))
    assert (result.basis, result.batches) == ("loader alone", 40)
    assert charged_ms(result) == pytest.approx(expected_ms)
    assert result.total_ns == pytest.approx(MS * sum(expected_ms.values()))


def test_between_batches_taken_back_to_back_workers_go_on() -> None:
    """That time is the loader's too; without workers nothing goes on in it."""
    for workers, expected_ms in ((1, 10), (0, 10)):
        rows = stage_rows(10, 40, workers=workers, step_ms=3)
        result = inside(alone(rows, 0, 40, 30))
        assert result.total_ns == expected_ms * MS
        assert charged_ms(result) == {"fetch": expected_ms}


def test_a_batch_that_was_not_looked_into_moves_no_other() -> None:
    """As the first of those that were taken back to back: the one after them is not of them."""
    rows = one_worker(40, [*[8] * 20, 500, *[8] * 19])
    rows = rows.replace(requested_ns=rows.requested_ns + 50 * MS * (rows.batch >= 20))
    run = alone(rows, 10, 10, 6)
    without = looked_into(rows.take(rows.batch != 10), prefetches=run.prefetches)
    for result in map(inside, (run, without)):
        assert (result.batches, result.total_ns) == (6, 10 * MS)


@pytest.mark.parametrize("told", [{"epoch": 1}, {"began_ns": None}])
def test_waits_are_divided_where_no_batch_was_taken_back_to_back(told: dict[str, Any]) -> None:
    known: dict[str, Any] = {"epoch": 0, "batches": 20, "timed": 10, "began_ns": 0}
    prefetch = Prefetch(pair=0, elapsed_ns=0, **{**known, **told})
    result = inside(looked_into(one_worker(40), prefetches=(prefetch,)))
    assert (result.basis, result.batches) == ("waits", 39)


def test_what_a_stage_takes_does_not_depend_on_who_waits() -> None:
    """The first batch of an epoch does not count, and a stage that took no part has no row."""
    took = {"index_ms": 1, "collate_ms": 3, "pickle_ms": 4, "receive_ms": 5}
    rows = stage_rows([900, *[2] * 8], step_ms=1, pickled_bytes=1000, **took)
    result = inside(looked_into(rows))
    assert {one.stage: one.work_ns / MS for one in result.stages} == {
        "indices": 1,
        "fetch": 2,
        "collate": 3,
        "pickle": 4,
        "receive": 5,
    }
    assert (result.fetch_ns, result.collate_ns, result.pickled_bytes) == (2 * MS, 3 * MS, 1000)
    assert result.share_of("pin") is None


def given(**columns: Any) -> Run:
    """Two batches of one worker with these moments, in nanoseconds."""
    rows = one_worker(2)
    known = {"index_ns": 0, "receive_ns": 0, "received_ns": -1, "collate_ns": 0, **columns}
    table = {name: np.broadcast_to(values, 2) for name, values in known.items()}
    return replace(looked_into(rows, workers=1), stages=rows.replace(**table))


def test_moments_in_disorder_are_charged_once() -> None:
    """A batch that was received before it is said to be pickled, say, by clocks that differ."""
    result = inside(
        given(
            requested_ns=[0, 100],
            delivered_ns=[50, 200],
            fetch_start_ns=[0, 100],
            fetch_ns=[10, 60],
            collate_ns=[0, 10],
            pickle_start_ns=[5, 150],
            pickle_ns=[1, 30],
            received_ns=[40, 120],
            index_ns=[0, 500],
        )
    )
    charged = {one.stage: one.charged_ns for one in result.stages if one.charged_ns}
    assert charged == {"fetch": 60, "collate": 10, "pickle": 10, "indices": 20}
    assert result.not_attributed_ns == 0


def test_a_queue_that_waits_for_pythons_lock_waits_for_fetching() -> None:
    """Its worker has the lock, and fetches the next batch."""
    result = inside(
        given(
            requested_ns=[0, 100],
            delivered_ns=[50, 200],
            fetch_start_ns=[0, 100],
            fetch_ns=[10, 40],
            collate_ns=[0, 20],
            pickle_start_ns=[15, 170],
            pickle_ns=[1, 30],
        )
    )
    charged = {one.stage: one.charged_ns for one in result.stages if one.charged_ns}
    assert charged == {"fetch": 40 + 10, "collate": 20, "pickle": 30}


def test_a_batch_lies_in_the_queue_from_pickling_until_it_is_read() -> None:
    """Not known is not 0."""
    moments = {
        "requested_ns": [0, 100],
        "delivered_ns": [40, 120],
        "fetch_start_ns": [0, 10],
        "fetch_ns": [10, 10],
        "pickle_start_ns": [11, 20],
        "pickle_ns": [9, 10],
        "receive_ns": [15, 10],
    }
    assert inside(given(**moments, received_ns=[35, 110])).queue_ns == (0 + 70) / 2
    assert inside(given(**moments)).queue_ns is None


def test_finished_batches_wait_for_an_earlier_one() -> None:
    """Here the third, of four, takes 50 ms, while the other worker has the fourth ready at 20."""
    rows = stage_rows([10, 10, 50, 10])
    result = inside(looked_into(rows, prefetch_depth=4))
    assert result.head_of_line_ns == 40 * MS / 4
    assert inside(looked_into(rows, workers=1, prefetch_depth=4)).head_of_line_ns is None


def test_fetching_and_collating_are_split_by_what_the_kernel_tells() -> None:
    """Over the batches of which the kernel's figures are known."""
    columns = {
        "cpu_ns": [5 * MS, 5 * MS, -1, 7 * MS],
        "run_queue_ns": [MS, MS, -1, MS],
        "other_cpu_ns": [MS, MS, -1, 3 * MS],
    }
    result = inside(looked_into(one_worker(4, **columns)))
    assert (result.cpu_ns, result.run_queue_ns, result.other_cpu_ns) == (6 * MS, MS, 2 * MS)
    assert result.blocked_ns == pytest.approx(3 * MS)


def test_ticks_of_the_kernel_are_no_more_than_the_time_that_passed() -> None:
    columns = {"cpu_ns": [12 * MS] * 4, "run_queue_ns": [MS] * 4}
    result = inside(looked_into(one_worker(4, **columns)))
    assert (result.cpu_ns, result.run_queue_ns, result.blocked_ns) == (10 * MS, 0, 0)


def with_transforms(ms: dict[str, list[float]], **sizes: tuple[float, float]) -> Stages:
    """Batches of 10 ms with these times in transforms, each called ten times."""
    tables = {
        name: Columns(
            {
                "epoch": np.zeros(len(times), np.int64),
                "batch": np.arange(len(times)),
                "ns": np.array(times) * MS,
                "calls": np.full(len(times), 10.0),
            }
        )
        for name, times in ms.items()
    }
    return inside(looked_into(one_worker(4), transforms=tables, sizes=sizes))


def test_transforms_are_means_the_longest_first() -> None:
    """The first batch of an epoch does not count."""
    result = with_transforms({"Crop": [900, 1, 3], "Blur": [900, 6, 6, 6]})
    assert [(one.name, one.calls, one.ns, one.share) for one in result.transforms] == [
        ("Blur", 10, 6 * MS, 0.6),
        ("Crop", 10, 2 * MS, 0.2),
    ]


def test_what_only_calls_transforms_is_none() -> None:
    """Its own code is one where it takes 5% of fetching or more."""
    names = ("Compose.__call__", "Compose.__call__ (2)", "Mix.forward", "Crop")
    times = dict.fromkeys(names, [0.4] * 4) | {"Mix.forward": [1] * 4}
    sizes = {"Compose.__call__": (60.0, 6.0), "Crop": (60.0, 6.0)}
    result = with_transforms(times, **sizes)
    assert [one.name for one in result.transforms] == ["Mix.forward", "Crop"]
    assert result.callers == ("Compose.__call__",)
    assert [(size.name, size.before, size.after) for size in result.sizes] == [("Crop", 60, 6)]


CODE = (
    CodeSamples(
        0,
        {"a.py:3 load > Image.open": 30, "a.py:9 Set.__getitem__": 10},
        {},
        {"a.py:3 load > PIL.Image.open": 20, "a.py:7 load > json.loads": 10},
    ),
    CodeSamples(
        1, {"a.py:4 load": 10}, {"a.py:3 load > io_schedule": 40, "a.py:5 load > futex": 10}
    ),
)


def test_a_function_has_its_commonest_line_and_what_it_was_blocked_in() -> None:
    result = inside(looked_into(one_worker(4), code=CODE))
    assert [replace(line, share=round(line.share, 9)) for line in result.code] == [
        CodeLine("a.py:3 load", "Image.open", 0.9, 0.5, "io_schedule"),
        CodeLine("a.py:9 Set.__getitem__", "", 0.1, 0, ""),
    ]
    assert [line.name for line in result.code] == [
        "a.py:3 load > Image.open",
        "a.py:9 Set.__getitem__",
    ]
    assert result.blocked_line == result.line == result.code[0]
    assert replace(result, callers=("load",)).line == result.code[1]


def test_lines_share_the_time_of_their_stage() -> None:
    """However often they are seen: collating gives up Python's lock, and fetching does not."""
    seen = (
        CodeSamples(0, {"a.py:3 load": 9, "a.py:5 crop": 1}, {}, stage="fetch"),
        CodeSamples(0, {"collate.py:7 stack": 90}, {}, stage="collate"),
    )
    result = inside(looked_into(one_worker(4), code=seen))
    fetching = result.fetch_ns / (result.fetch_ns + result.collate_ns)
    assert 0 < fetching < 1
    assert {line.place: line.share for line in result.code} == pytest.approx(
        {
            "a.py:3 load": 0.9 * fetching,
            "a.py:5 crop": 0.1 * fetching,
            "collate.py:7 stack": 1 - fetching,
        }
    )


def test_slow_samples_take_over_three_times_the_typical_one() -> None:
    """That is told without the slowest of each batch."""
    slowest_ms, fetch_ms, index = np.full(40, 0.9), np.full(40, 8.0), np.arange(40)
    for row, ms, at in ((5, 30, 77), (9, 50, 78), (20, 40, 77), (30, 60, -1)):
        slowest_ms[row], index[row], fetch_ms[row] = ms, at, ms + 7.1
    slowest_ns = (slowest_ms * MS).astype(np.int64)
    rows = one_worker(40, fetch_ms, slowest_ns=slowest_ns, slowest_index=index, samples=10)
    result = inside(looked_into(rows))
    typical_ns = 7.1 / 9 * MS
    assert result.sample_ns == pytest.approx(typical_ns)
    assert [(sample.index, sample.times, sample.longest_ns) for sample in result.slow_samples] == [
        (78, 1, 50 * MS),
        (77, 2, 40 * MS),
    ]
    assert result.slow_samples[0].times_typical == pytest.approx(50 * MS / typical_ns)


def test_a_sample_that_was_slow_once_is_not_slow() -> None:
    """Its worker waited for a CPU, or it was not slow in another epoch."""
    slowest_ns = np.full(40, MS)
    slowest_ns[[5, 25]] = 30 * MS
    given: dict[str, Any] = {"slowest_ns": slowest_ns, "slowest_index": np.arange(40) * 10}
    fetch_ms = slowest_ns / MS + 7
    rows = one_worker(40, fetch_ms, samples=10, **given)
    again = one_worker(40, 8.0, slowest_ns=MS, slowest_index=1, samples=10, epoch=1)
    preempted = rows.replace(run_queue_ns=np.where(np.arange(40) == 5, 29 * MS, 0))
    part = again.take(slice(20))
    for epochs, found in (
        ((rows,), [50, 250]),
        ((preempted,), [250]),
        ((rows, part), [50, 250]),
        ((rows, again), []),
    ):
        result = inside(looked_into(*epochs, length=40))
        assert [sample.index for sample in result.slow_samples] == found


def test_without_workers_there_are_none() -> None:
    result = inside(looked_into(stage_rows(10, 4, workers=0), workers=0))
    assert (result.workers, result.head_of_line_ns, result.queue_ns) == ((), None, None)


def test_of_one_batch_nothing_is_charged() -> None:
    """Its request is an epoch's start; its work is told."""
    result = inside(looked_into(one_worker(1)))
    assert (result.batches, result.total_ns, result.fetch_ns) == (0, 0, 8 * MS)
    assert result.share(0.0) is None


LOOK = 'to look inside, measure with stages=True or mode="alternate"'
CANNOT = "loadeval cannot look into DataLoader; the page on adapters says how to"


@pytest.mark.parametrize(
    ("mode", "settings", "batches", "expected"),
    [
        ("log", {"stages": None}, 9, f"this run was not asked to look; {LOOK}"),
        ("log", {}, 9, f"this run was not asked to look; {LOOK}"),
        ("alternate", {"stages": None}, 9, CANNOT),
        ("alternate", {}, 0, "no batch was served"),
        ("replay", {"stages": None}, 9, ""),
    ],
)
def test_why_a_run_has_no_stages(
    mode: Mode, settings: dict[str, Any], batches: int, expected: str
) -> None:
    run = run_of([steps("real", 1, 1, batches)], mode=mode, settings=settings)
    assert why_no_stages(run) == expected


def test_what_the_loader_said_comes_first() -> None:
    events = (Event(7, "no fetcher", "stages missing"), Event(9, "other", "stages missing"))
    run = run_of([steps("real", 1, 1, 9)], settings={}, events=events)
    assert why_no_stages(run) == "no fetcher"
    assert why_no_stages(replace(run, operators=(OperatorTimes(0, "decode", 0, 9, 9, 1),))) == ""
    assert why_no_stages(looked_into(one_worker(4))) == ""
