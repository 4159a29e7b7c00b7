"""A simulated DataLoader, next to one of recurrences, and by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadeval.data.columns import Columns
from loadeval.model.simulate import SETTLING, simulate

MS = 1_000_000
STAGES = ("index_ns", "fetch_ns", "collate_ns", "pickle_ns", "receive_ns", "pin_ns")
COSTS = ("cpu", "run_queue", "blocked", "read", "pickle", "receive", "lock", "pin", "index")
SCALES = st.sampled_from([0, 10_000, MS, 20 * MS])


@dataclass
class LoaderModel:
    """A DataLoader by recurrences: each moment of a batch follows from those of batches before it.

    Its batches take as long as told, in the order of asking for them. Nothing is shared with
    `loadeval.model.simulate`, which goes from event to event.
    """

    workers: int
    prefetch_factor: int
    index_ns: list[int] = field(repr=False)
    fetch_ns: list[int] = field(repr=False)
    collate_ns: list[int] = field(repr=False)
    pickle_ns: list[int] = field(repr=False)
    receive_ns: list[int] = field(repr=False)
    pin_ns: list[int] = field(repr=False)
    step_ns: int
    in_order: bool
    pins: bool

    def __len__(self) -> int:
        return len(self.fetch_ns)

    def delivered_ns(self) -> list[int]:
        """When training gets each batch."""
        now, pin_free, free = 0, 0, [0] * self.workers
        owners, ready, received = list[int](), dict[int, int](), dict[int, int]()
        delivered: list[int] = []

        def send(worker: int, now: int) -> None:
            number = len(owners)
            if number < len(self):
                work_ns = self.fetch_ns[number] + self.collate_ns[number] + self.pickle_ns[number]
                ready[number] = free[worker] = max(now, free[worker]) + work_ns
                owners.append(worker)

        for number in range(self.workers * self.prefetch_factor):
            send(number % self.workers, now)
        for place in range(len(self)):
            while place not in received if self.in_order else not received:
                first = min(ready, key=lambda number: (ready[number], number))
                came_ns = ready.pop(first)
                if self.pins:  # a thread receives and pins meanwhile
                    got_ns = max(pin_free, came_ns) + self.receive_ns[first]
                    received[first] = pin_free = got_ns + self.pin_ns[first]
                else:
                    received[first] = now = max(now, came_ns) + self.receive_ns[first]
            number = place if self.in_order else min(received, key=lambda each: received[each])
            now = max(now, received.pop(number)) + self.index_ns[number]
            send(owners[number], now)
            delivered.append(now)
            now += self.step_ns
        return delivered


@st.composite
def loaders(draw: st.DrawFn) -> LoaderModel:
    """Loaders of any setting with workers, and some hundred batches."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def column(scale: int) -> list[int]:
        spread = draw(st.sampled_from([0.1, 1.0, 4.0]))
        return (scale * rng.gamma(1 / spread, spread, 300)).astype(int).tolist()

    columns = {name: column(draw(SCALES) + 1000 * (name == "fetch_ns")) for name in STAGES}
    return LoaderModel(
        workers=draw(st.integers(1, 5)),
        prefetch_factor=draw(st.integers(1, 3)),
        step_ns=draw(SCALES),
        in_order=draw(st.booleans()),
        pins=draw(st.booleans()),
        **columns,
    )


def costs(count: int = 400, *, step: float = 0.0, step_cpus: float = 1.0, **ms: Any) -> Columns:
    """What batches take, in milliseconds: the same for all, or one for each; 0 by default."""
    columns = {f"{name}_ns": np.full(count, ms.pop(name, 0.0)) * MS for name in COSTS}
    assert not ms
    step_ns = np.full(count, step * MS)
    return Columns({**columns, "step_ns": step_ns, "step_cpu_ns": step_ns * step_cpus})


def iteration_ms(batches: Columns, num_workers: int = 2, **settings: Any) -> float:
    return simulate(batches, num_workers=num_workers, **settings).iteration_ns / MS


@given(loaders())
def test_a_simulation_takes_as_long_as_the_loader(loader: LoaderModel) -> None:
    """For any costs and settings, once the queue has settled."""
    twice = replace(loader, **{name: getattr(loader, name) * 2 for name in STAGES})
    counted = len(loader) - len(loader) // SETTLING
    counted -= counted % loader.workers
    taken_ns = np.diff(twice.delivered_ns())[len(loader) - 1 - counted : len(loader) - 1]
    columns = {name: np.array(getattr(loader, name)) / MS for name in STAGES}
    batches = costs(
        300,
        step=loader.step_ns / MS,
        cpu=columns["fetch_ns"] / 2 + columns["collate_ns"],
        blocked=columns["fetch_ns"] / 2,
        pin=columns["pin_ns"] * loader.pins,
        **{name: columns[f"{name}_ns"] for name in ("pickle", "receive", "index")},
    )
    simulated_ms = iteration_ms(
        batches,
        loader.workers,
        prefetch_factor=loader.prefetch_factor,
        in_order=loader.in_order,
        pins=loader.pins,
    )
    assert simulated_ms == pytest.approx(taken_ns.mean() / MS, rel=1e-3)


@pytest.mark.parametrize(
    ("taken", "settings", "expected_ms"),
    [
        ({"cpu": 6, "blocked": 4, "index": 2, "pin": 1, "receive": 9}, {"num_workers": 0}, 16),
        ({"cpu": 6, "run_queue": 1, "blocked": 1, "pickle": 2}, {}, 5),
        # Receiving waits until its worker lets go of Python's lock: here until it is done.
        ({"cpu": 10, "receive": 1, "lock": math.inf}, {"num_workers": 1}, 10 + 1),
        ({"cpu": 10, "receive": 1, "lock": math.inf}, {"num_workers": 8}, 3 + 1),
        # A storage serves one after the other.
        ({"cpu": 1, "read": 7}, {"num_workers": 8}, 7),
    ],
)
def test_what_limits_a_loader(
    taken: dict[str, Any], settings: dict[str, Any], expected_ms: float
) -> None:
    """What the loader of recurrences does not have."""
    assert iteration_ms(costs(step=3, **taken), **settings) == pytest.approx(expected_ms, rel=0.02)


@pytest.mark.parametrize(
    ("taken", "settings", "expected_ms"),
    [
        ({"cpu": 8}, {"cpus": 2.0}, 4),  # four workers share two CPUs
        ({"cpu": 8, "step": 4}, {"cpus": 3.0}, 4),  # and a step: 12 ms of a batch on three
        ({"cpu": 2, "blocked": 6}, {"cpus": 1.0}, (8 + 6) / 4),  # what is blocked needs none
        ({"cpu": 8}, {"cpus": 4.0, "worker_cpus": 1.0}, 8),  # they are kept to one
        ({"cpu": 8}, {"cpus": 2.0, "others_cpus": 2.0}, 8 / 4 * 3),  # who are more get more
        ({"cpu": 8}, {"growth": 0.1}, 8 / 4 * 1.3),  # three further CPUs are in use
        ({"cpu": 8}, {"growth": 0.1, "cpus": 2.0}, 8 / 2 * 1.1),
        ({"blocked": 8}, {"growth": 0.1}, 8 / 4),
        ({"cpu": 1, "step": 10, "step_cpus": 0.0}, {"cpus": 1.0}, 10),  # it waits for a device
        # It was measured beside other programs, which alone do not make it longer.
        ({"step": 10}, {"cpus": 2.0, "others_cpus": 2.0}, 10),
    ],
)
def test_cpus_are_shared(
    taken: dict[str, Any], settings: dict[str, Any], expected_ms: float
) -> None:
    """By four workers, the training process and other programs, equally."""
    time_ms = iteration_ms(costs(**taken), **{"num_workers": 4, **settings})
    assert time_ms == pytest.approx(expected_ms, rel=0.05)


@pytest.mark.parametrize(
    ("workers", "threads", "cpus", "expected_ms"),
    [
        (2, 1, None, 10),
        (2, 1, 2.0, 15),  # each has two thirds of a CPU
        (1, 2, 2.0, 20),  # its threads wait for each other, and one of them shares its CPU
    ],
)
def test_a_step_takes_longer_beside_workers_that_want_its_cpu(
    workers: int, threads: int, cpus: float | None, expected_ms: float
) -> None:
    batches = costs(cpu=80, step=10, step_cpus=threads)
    simulated = simulate(batches, num_workers=workers, cpus=cpus)
    assert simulated.step_ns / MS == pytest.approx(expected_ms, rel=0.02)


@given(loaders(), st.floats(0.5, 6), st.floats(1, 3))
def test_more_cpus_are_never_slower(loader: LoaderModel, cpus: float, times: float) -> None:
    """All batches take the same, beside a step of 5 ms."""
    means = {name: np.mean(getattr(loader, name)) / MS for name in ("fetch_ns", "collate_ns")}
    batches = costs(cpu=means["fetch_ns"], blocked=means["collate_ns"], step=5)
    few, more = (iteration_ms(batches, loader.workers, cpus=each) for each in (cpus, cpus * times))
    assert more <= 1.02 * few


def test_out_of_order_a_slow_batch_is_waited_for_by_its_worker_alone() -> None:
    """In order the others have filled the queue long before it is done."""
    blocked = np.where(np.arange(400) % 20 == 0, 40.0, 0.0)
    in_order, any_order = (
        iteration_ms(costs(cpu=2, blocked=blocked), 4, in_order=each) for each in (True, False)
    )
    assert any_order == pytest.approx((2 + 40 / 20) / 4, rel=0.1)
    assert in_order > 1.8 * any_order
