"""Loaders that cannot keep up: what is said, and what to do."""

from __future__ import annotations

from typing import Any

from tests.builder import alternating, logged
from tests.findings import told
from tests.runs.looked_into import looked_into

FOUR = {"cpus_usable": 4, "cpus": 4}
NOTHING_AHEAD = (
    "Nothing is loaded ahead: training waits 50.0% of its time, while each batch is loaded."
)


def test_a_loader_that_is_too_slow() -> None:
    """The model knows how many workers help, and a run that nobody looked into does not."""
    says = "The loader is too slow even on its own: it must be {} faster to keep up."
    known = told("waiting", looked_into(fetch=100, environment=FOUR))
    unknown = told("waiting", alternating(wait=10, alone=20.0, spread=0.01))
    assert known == (
        says.format("2.50x [2.50x, 2.50x]"),
        "num_workers 2 -> 3",
        "make loading cheaper",
    )
    assert unknown == (
        says.format("2.00x [1.99x, 2.01x]"),
        "try more workers or threads, or make loading cheaper",
    )


def test_zero_workers() -> None:
    without: dict[str, Any] = {"workers": 0, "prefetch_depth": 0}
    assert told("zero workers", alternating(wait=10, **without)) == (
        NOTHING_AHEAD,
        "num_workers 0 -> 1",
    )
    assert told("zero workers", logged([10] * 40, **without)) == (
        NOTHING_AHEAD,
        "num_workers 0 -> 1",
    )


def test_a_loader_whose_workers_are_not_known_may_load_nothing_ahead() -> None:
    unknown: dict[str, Any] = {"workers": None, "prefetch_depth": None}
    assert told("zero workers", alternating(wait=10, alone=10.0, **unknown)) == (
        NOTHING_AHEAD,
        "load in the background",
    )
    assert told("zero workers", logged([10] * 40, **unknown)) == (
        "the loader's number of workers is not known",
    )


def test_a_loader_that_is_fast_enough() -> None:
    assert told("waiting", alternating(wait=5, alone=5.0)) == (
        (
            "The loader alone is fast enough, but training waits about equally long for every "
            "batch, typically 5.00 ms: each has a fixed cost, and the queue is not empty."
        ),
        "send fewer and larger tensors, or fewer bytes",
    )


def test_shallow_queue() -> None:
    """One batch in ten keeps training waiting, and the loader alone is fast enough."""
    uneven = looked_into(fetch=[100 if n % 10 == 9 else 10 for n in range(100)], workers=1)
    says, *do = told("shallow queue", uneven)
    assert says == (
        "The loader alone is fast enough, but its queue runs empty now and then: training waits "
        "23.1% of its time."
    )
    assert do == ["prefetch_factor 2 -> 8"]


def test_a_loader_that_was_not_timed() -> None:
    """Of a log, and of one beside the run that replayed; not where a rule says what for."""
    log, measure = logged([10] * 40), "measure with `loadeval diagnose -- COMMAND`"
    assert told("waiting", log) == (
        (
            "Training waits for batches 50.0% of its time. What it would gain without these waits "
            "was not measured: it may be less or more."
        ),
        measure,
    )
    assert told("waiting", log, logged([0] * 40, mode="replay")) == (
        (
            "Training waits 50.0% of its time. Whether the loader is too slow or its queue too "
            "shallow was not measured."
        ),
        measure,
    )
    assert told("waiting", logged([10] * 40, workers=0, prefetch_depth=0)) == ()


def test_slow_samples() -> None:
    """The same one comes again."""
    often = [number % 20 == 0 for number in range(100)]
    run = looked_into(
        fetch=[290 if slow else 30 for slow in often],
        slowest=[200 if slow else 5 for slow in often],
        slowest_index=[7 if slow else number for number, slow in enumerate(often)],
        workers=1,
        environment=FOUR,
    )
    assert told("slow samples", run) == (
        ("A few samples take up to 200 ms, where a typical one takes 8.33 ms: those with index 7."),
        "look at samples 7",
    )


def test_slow_worker() -> None:
    uneven = looked_into(fetch=[90 if n % 2 else 30 for n in range(100)], environment=FOUR)
    assert told("slow worker", uneven) == (
        "Worker 1 takes 90.0 ms a batch, the others 30.0 ms.",
        "find what worker 1 does that the others do not",
    )
    assert told("slow worker", logged([10] * 40)) == (
        (
            "the loader was not looked into: measure with `loadeval diagnose -- COMMAND`, or with "
            "stages=True in Python"
        ),
    )
