"""What findings cost: no time is counted in two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import diagnose
from loadeval.analysis.findings.uneven import outlying_shares
from loadeval.runlog.model import LoaderInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.rules.finding import Finding
    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]
    Find = Callable[..., Finding]

SEEDS = range(150)
SLACK = 1e-9
MS = 1_000_000


def costs(real: Run, ideal: Run | None = None) -> dict[str, float]:
    found = diagnose(real, ideal).findings
    return {one.rule: one.cost_share for one in found if one.cost_share is not None}


def shaken(run: Run, rng: np.random.Generator) -> Run:
    """The run with some stalls, some long steps, and maybe a trend."""
    for column in (run.steps.wait_ns, run.steps.step_ns):
        hit = rng.random(len(column)) < rng.choice([0.0, 0.005, 0.02])
        column[hit] += int(rng.choice([100, 1000, 5000]) * MS)
        column[:] = column * np.linspace(1, rng.choice([1, 1, 4]), len(column))
    return run


@pytest.fixture
def some_run(alternating: MakeRun) -> Callable[[int], Run]:
    """An alternating run of anything, by a seed."""

    def make(seed: int) -> Run:
        rng = np.random.default_rng(seed)

        def pick(choices: list[Any]) -> Any:
            return choices[rng.integers(len(choices))]

        run = alternating(
            wait=pick([0, 1, 10, 200]),
            real=pick([10, 50, 100]),
            ideal=pick([10, 40, 60]),
            alone=pick([None, 1.0, 30.0, 300.0]),
            noise=pick([0, 2]),
            uneven=bool(rng.random() < 0.3),
            pairs=pick([1, 2, 5, 40]),
            first=pick([None, 10.0, 3000.0]),
            workers=pick([None, 0, 2, 9]),
            prefetch_depth=pick([None, 4]),
        )
        return shaken(run, rng)

    return make


@pytest.mark.parametrize("seed", SEEDS)
def test_costs_never_exceed_what_is_lost(some_run: Callable[[int], Run], seed: int) -> None:
    """Nor all of the time: what loading loses, first waits, outliers, and a fall, each once."""
    run = some_run(seed)
    found = costs(run)
    case = Case.of(run)
    assert case.headroom is not None
    assert case.headroom.lost_share is not None
    allowed = max(case.headroom.lost_share.value, 0.0) + sum(outlying_shares(case))
    allowed += found.get("epoch boundaries", 0.0) + found.get("falling throughput", 0.0)
    assert all(cost >= 0 for cost in found.values())
    assert sum(found.values()) <= min(allowed, 1.0) + SLACK


@pytest.mark.parametrize("seed", SEEDS)
def test_costs_in_a_log_never_exceed_its_time(make_run: MakeRun, seed: int) -> None:
    """All waiting at most, and of the steps what is out of the ordinary."""
    rng = np.random.default_rng(seed)
    waits = rng.choice([0, 1, 50, 400]) * rng.choice([1, 1, 1, 60], 400, p=[0.9, 0.05, 0.04, 0.01])
    run = make_run(
        [*waits.tolist()],
        [*rng.choice([50, 100, 2000], 400, p=[0.5, 0.48, 0.02]).tolist()],
        epochs=[100] * 4,
        warmup=1,
        loader=LoaderInfo("torch.x", workers=2 * (seed % 2)),
    )
    assert sum(costs(run).values()) <= 1 + SLACK


def test_capacity_does_not_cost_what_contention_does(alternating: MakeRun) -> None:
    """A loss of 70 of 120 ms: 60 are waited, 10 go into slower steps."""
    found = costs(alternating(wait=60, real=60, ideal=50, alone=80))
    assert found == pytest.approx({"capacity": 60 / 120, "contention": 10 / 120})


def test_contention_costs_no_more_than_is_lost(alternating: MakeRun) -> None:
    """Steps that are 40 ms slower for waits that are 20 shorter lose 20 ms."""
    run = alternating(wait=0, real=80, ideal=40)
    run.steps.wait_ns[run.steps.arm == 1] = 20 * MS
    assert costs(run) == pytest.approx({"contention": 20 / 80})


def test_bursts_have_the_waiting_that_they_take(long_alternating: Run, make_run: MakeRun) -> None:
    """What is left of it is that of the finding that tells why training waits."""
    found = costs(make_run([1] * 198 + [1000] * 2, 9))
    assert found["bursts"] == pytest.approx(2000 / 3998)
    assert found["waiting"] == pytest.approx(198 / 3998)
    assert costs(long_alternating)["bursts"] > 0.2


def test_outliers_that_wait_are_told_once(make_run: MakeRun, finding: Find) -> None:
    """Their waits are those of the finding on waiting; steps that take long are their own."""
    waits, steps = [20] * 99 + [500], [80] * 99 + [680]
    run = make_run(waits, steps)
    total = sum(waits) + sum(steps)
    assert costs(run) == pytest.approx(
        {"waiting": sum(waits) / total, "outliers": (500 + 680 - 100 - 480) / total}
    )
    alone = make_run([20] * 99 + [500], 80)
    assert finding("outliers", alone).cost_share is None
    few = make_run([1] * 99 + [200], 99)
    assert costs(few) == pytest.approx({"outliers": 199 / (99 * 100 + 299)})


def test_throughput_that_falls_as_waits_grow(make_run: MakeRun, finding: Find) -> None:
    """That is part of the waiting, where a finding tells of it."""
    run = make_run([number * 2 for number in range(100)], 100, loader=LoaderInfo("x", workers=2))
    assert finding("falling throughput", run).cost_share is None
    assert costs(run) == pytest.approx({"waiting": 9900 / 19900})


def test_throughput_that_falls_as_steps_grow(make_run: MakeRun) -> None:
    """That costs what no other finding tells of."""
    found = costs(make_run([0] * 100, [100 + number for number in range(100)]))
    assert found.keys() == {"falling throughput"}


def test_epochs_begin_outside_of_the_steady_time(alternating: MakeRun) -> None:
    """Of an epoch that begins for as long as it goes on, a loss of half of that is a quarter."""
    found = costs(alternating(wait=50, alone=100, first=800, length=8))
    assert found == pytest.approx({"epoch boundaries": 0.5, "capacity": 0.25})
