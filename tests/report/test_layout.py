"""Nothing in the figure overlaps, is cut off or is too small, whatever the runs are."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.runlog.model import Event
from tests.report.drawn import MS, check_that_all_can_be_read, figure_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run

    Record = Callable[..., Run]


LONG = "/data/" + "W" * 3000 + "/$\\alpha_{\x1b[31m\n\u4e2d\u6587"

CASES: dict[str, Callable[[Record], tuple[Run, Run]]] = {
    "highly input-bound": lambda record: (record(), record("replay")),
    "moderately input-bound": lambda record: (record(waits_ns=[MS] * 30), record("replay")),
    "inconclusive": lambda record: (record(waits_ns=[MS] * 6), record("replay")),
    "no faster": lambda record: (record(waits_ns=[0] * 30), record("replay")),
    "slower": lambda record: (record(step_ns=MS), record("replay", step_ns=90 * MS)),
    "contention": lambda record: (record(step_ns=30 * MS), record("replay")),
    "other batch size": lambda record: (record(samples=8), record("replay")),
    "samples unknown": lambda record: (record(samples=None), record("replay", samples=None)),
    "other unit": lambda record: (record(), record("replay", unit="videos")),
    "real unmeasured": lambda record: (record(warmup=99), record("replay")),
    "ideal unmeasured": lambda record: (record(), record("replay", warmup=99)),
    "both unmeasured": lambda record: (record(warmup=99), record("replay", warmup=99)),
    "nothing at all": lambda record: (record(epochs=0), record("replay", epochs=0)),
    "no time passed": lambda record: (
        record(waits_ns=[0] * 30, step_ns=0),
        record("replay", step_ns=0),
    ),
    "one batch": lambda record: (record(waits_ns=[MS]), record("replay", waits_ns=[MS])),
    "many epochs": lambda record: (record(epochs=60), record("replay", epochs=60)),
    "some epochs": lambda record: (record(epochs=12), record("replay", epochs=12)),
    "bursts": lambda record: (record(waits_ns=[0, *[500 * MS, 0, 0, 0] * 20]), record("replay")),
    "many batches": lambda record: (record(waits_ns=[MS, 2 * MS] * 3000), record("replay")),
    "nanoseconds": lambda record: (
        record(waits_ns=[900] * 30, step_ns=300, samples=4096),
        record("replay", step_ns=280, samples=4096, tick_ns=20),
    ),
    "weeks": lambda record: (
        record(waits_ns=[10**15] * 30, step_ns=10**15),
        record("replay", step_ns=10**15),
    ),
    "long names": lambda record: (
        dataclasses.replace(
            record(name=LONG, unit=LONG),
            notes=(LONG * 2, "cut off " * 500),
            events=(Event(0, LONG),),
        ),
        record("replay", name=LONG, unit=LONG),
    ),
    "long path": lambda record: (
        dataclasses.replace(record(warmup=99, name=LONG)),
        record("replay", warmup=99, name=LONG),
    ),
}


ALTERNATING: dict[str, dict[str, Any]] = {
    "alternating": {},
    "alternating, no faster": {
        "iterations_ns": (25 * MS, 25 * MS),
        "waits_ns": (900, 0),
        "noise": 0.3,
    },
    "alternating, contention": {"iterations_ns": (25 * MS, 20 * MS), "waits_ns": (0, 0)},
    "alternating, slower": {"iterations_ns": (25 * MS, 90 * MS), "waits_ns": (0, 0), "noise": 0.2},
    "alternating, wide": {"pairs": 3, "noise": 0.6},
    "alternating, loader not alone": {"prefetches": False},
    "alternating, one pair": {"pairs": 1},
    "alternating, no pair": {"pairs": 0},
    "alternating, many pairs": {"pairs": 300, "epoch": 2000},
    "alternating, many epochs": {"pairs": 30, "epoch": 12},
    "alternating, long names": {"name": LONG, "unit": LONG},
}


@pytest.mark.parametrize("name", [*CASES, *ALTERNATING])
def test_everything_can_be_read(name: str, record: Record, alternating: Record) -> None:
    """Every text and legend has its place for itself, inside, in type that half the size allows."""
    runs = CASES[name](record) if name in CASES else (alternating(**ALTERNATING[name]),)
    check_that_all_can_be_read(figure_of(*runs))
