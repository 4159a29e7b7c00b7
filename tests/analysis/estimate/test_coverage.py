"""The interval contains the truth as often as it says: simulated runs, without a clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from loadeval import LoaderEvaluator
from loadeval.analysis.estimate.arms import ArmTimes, compare_arms
from loadeval.analysis.estimate.headroom import headroom
from loadeval.analysis.estimate.intervals import AllWaits, MeanTime, ratio
from loadeval.analysis.estimate.verdict import VerdictAdvice
from loadeval.testing import FakeClock
from tests.analysis.numbers import bounds, codes, in_pairs
from tests.scripted import SerialAdapter, SerialLoader, register

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Times = npt.NDArray[np.float64]
    Draw = Callable[[np.random.Generator, int, int], Times]
    Plan = Sequence[tuple[int, int]]

pytestmark = pytest.mark.check

RUNS = 1000
FEWEST, MOST = 0.92, 0.98
"""Around 95%: what is left of the error of a simulation, and of the method."""
IDEAL_WARMUP = 3


class Setting(NamedTuple):
    """Loading and step times, drawn as (runs, batches) with a mean of 1 in units of the step."""

    load: Draw
    step: Draw
    prefetched: int = 0


def steady(mean: float) -> Draw:
    """A clock and a scheduler that differ by a per cent."""
    return lambda rng, runs, batches: mean * rng.normal(1.0, 0.01, (runs, batches))


def gamma(mean: float, shape: float) -> Draw:
    return lambda rng, runs, batches: rng.gamma(shape, mean / shape, (runs, batches))


def bursts(usual: float, burst: float, often: float) -> Draw:
    def draw(rng: np.random.Generator, runs: int, batches: int) -> Times:
        return np.where(rng.random((runs, batches)) < often, burst, usual)

    return draw


def regular_bursts(usual: float, burst: float, every: int) -> Draw:
    """A burst comes every so many batches, beginning at any of them."""

    def draw(rng: np.random.Generator, runs: int, batches: int) -> Times:
        place = np.arange(batches) + rng.integers(0, every, runs)[:, None]
        return np.where(place % every == 0, burst, usual) * rng.normal(1.0, 0.01, place.shape)

    return draw


def autoregressive(mean: float, memory: float, sigma: float) -> Draw:
    """Log-normal times whose logarithms remember the last one."""

    def draw(rng: np.random.Generator, runs: int, batches: int) -> Times:
        noise = rng.normal(0.0, 1.0, (batches, runs))
        for k in range(1, batches):
            noise[k] = memory * noise[k - 1] + np.sqrt(1 - memory**2) * noise[k]
        return np.asarray(mean * np.exp(sigma * noise.T - sigma**2 / 2))

    return draw


def drifting(draw: Draw) -> Draw:
    """The machine becomes half as fast while the run lasts: the same for load and step."""
    return lambda rng, runs, batches: draw(rng, runs, batches) * np.linspace(1.0, 2.0, batches)


SETTINGS = {
    "fixed": Setting(steady(1.4), steady(1.0)),
    "gamma": Setting(gamma(1.0, 2.0), gamma(1.0, 4.0)),
    "gamma, queue of 2": Setting(gamma(1.5, 2.0), gamma(1.0, 4.0), 2),
    "bursty": Setting(bursts(0.05, 4.0, 0.1), gamma(1.0, 20.0)),
    "rare long bursts": Setting(bursts(0.05, 20.0, 0.05), gamma(1.0, 20.0)),
    "rare bursts, queue of 4": Setting(bursts(0.25, 30.0, 0.02), steady(1.0), 4),
    "autocorrelated": Setting(autoregressive(1.0, 0.8, 0.4), gamma(1.0, 10.0)),
    "long memory": Setting(autoregressive(1.0, 0.95, 0.4), gamma(1.0, 10.0)),
    "drifting": Setting(drifting(gamma(1.0, 4.0)), drifting(gamma(1.0, 4.0))),
    "hidden, queue of 4": Setting(gamma(0.4, 10.0), gamma(1.0, 20.0), 4),
    "a little slower, queue of 4": Setting(gamma(1.05, 10.0), gamma(1.0, 10.0), 4),
    "a little faster, queue of 4": Setting(gamma(0.95, 10.0), gamma(1.0, 10.0), 4),
}
REGULAR = {
    "regular bursts": Setting(regular_bursts(0.0, 20.0, 20), steady(1.0)),
    "regular bursts, queue of 4": Setting(regular_bursts(0.25, 30.0, 50), steady(1.0), 4),
}
"""Their number varies less than it would by chance, and the interval does not know."""
PLANS: dict[str, Plan] = {
    "equal": [(32, 8)] * 5,
    "unequal": [(32, 8)] * 2 + [(64, 8)] * 2,
    "three pairs": [(64, 8)] * 3,
    "many": [(64, 8)] * 10,
}
"""Counted real and ideal batches of each pair, as a run that adapts has them."""
TWO_PAIRS: Plan = [(72, 12)] * 2


def real_iterations(load: Times, step: Times, prefetched: int) -> Times:
    """The iteration of each batch, of a loader that keeps so many ready and begins with none.

    With none it loads on request; otherwise a background worker loads while there is room.
    """
    if not prefetched:
        return load + step
    now = finished = np.zeros(len(load))
    delivered: list[Times] = []
    iterations = np.empty_like(load)
    for k in range(load.shape[1]):
        room = delivered[k - prefetched] if k >= prefetched else finished
        finished = np.maximum(finished, room) + load[:, k]
        delivered.append(np.maximum(now, finished))
        iterations[:, k] = delivered[k] + step[:, k] - now
        now = delivered[k] + step[:, k]
    return iterations


class Simulated(NamedTuple):
    """Of each pair the real and the ideal iterations and the real waits, as (runs, batches).

    `real_at` and `ideal_at` are the places of their first batches, as (runs, 1).
    """

    real: list[Times]
    ideal: list[Times]
    waits: list[Times]
    real_at: list[Times]
    ideal_at: list[Times]
    loads: Times

    def arms(self, run: int) -> tuple[MeanTime, MeanTime]:
        """The arms of one of the runs."""
        arms = []
        for blocks, at in ((self.real, self.real_at), (self.ideal, self.ideal_at)):
            places = [
                float(start[run, 0]) + np.arange(block.shape[1])
                for block, start in zip(blocks, at, strict=True)
            ]
            arm = in_pairs([block[run] for block in blocks])
            arms.append(replace(arm, place=np.concatenate(places)))
        return arms[0], arms[1]

    def all_waits(self, run: int, real: MeanTime, ideal: MeanTime) -> AllWaits:
        """Each beside the ideal iteration at its place."""
        assert real.place is not None
        within, loads = np.concatenate([block[run] for block in self.waits]), self.loads[run]
        level = ideal.at(np.arange(len(loads), dtype=np.float64))
        scale = ideal.at(real.place).mean() / level.mean()
        return AllWaits(within, loads * scale, level / level.mean())


def simulated(setting: Setting, plan: Plan, rng: np.random.Generator) -> Simulated:
    """Runs of these pairs; of every two of them the first has its arms in random order."""
    queue, warmup = setting.prefetched, max(setting.prefetched + 1, IDEAL_WARMUP)
    total = sum(real + ideal + warmup + IDEAL_WARMUP for real, ideal in plan)
    load, step = setting.load(rng, RUNS, total), setting.step(rng, RUNS, total)
    runs, at = Simulated([], [], [], [], [], load), 0
    first = np.empty((RUNS, 1), dtype=bool)
    for pair, (real, ideal) in enumerate(plan):
        first = rng.random((RUNS, 1)) < 0.5 if pair % 2 == 0 else ~first
        blocks = []
        for real_at, ideal_at in ((0, real + warmup), (ideal + IDEAL_WARMUP, 0)):
            rows = slice(at + real_at, at + real_at + real + warmup)
            iterations = real_iterations(load[:, rows], step[:, rows], queue)
            start = at + ideal_at + IDEAL_WARMUP
            waits = iterations - step[:, rows]
            columns = (iterations[:, warmup:], step[:, start : start + ideal], waits[:, warmup:])
            blocks.append((*columns, np.full((1, 1), rows.start + warmup), np.full((1, 1), start)))
        for side, real_first, other in zip(runs, *blocks, strict=False):
            side.append(np.where(first, real_first, other))
        at += real + ideal + warmup + IDEAL_WARMUP
    return runs


def truth(setting: Setting) -> float:
    """The speed-up of the process itself: 200 runs of 3,000 batches, without their beginning."""
    rng = np.random.default_rng(99)
    load, step = setting.load(rng, 200, 3_000), setting.step(rng, 200, 3_000)
    iterations = real_iterations(load, step, setting.prefetched)
    return float(iterations[:, 100:].sum() / step[:, 100:].sum())


def covered(setting: Setting, plan: Plan, *, all_waits: bool = False) -> float:
    """How often the interval contains the truth, with or without the waits of all batches."""
    true, hits = truth(setting), 0
    runs = simulated(setting, plan, np.random.default_rng(7))
    for run in range(RUNS):
        real, ideal = runs.arms(run)
        if all_waits:
            real = replace(real, all_waits=runs.all_waits(run, real, ideal))
        low, high = bounds(ratio(real, ideal))
        hits += low <= true <= high
    return hits / RUNS


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "long memory"])
def test_the_interval_contains_the_truth(name: str, plan: str) -> None:
    """It does in 92 to 98 of 100 alternating runs, whatever the loader is like."""
    assert FEWEST <= covered(SETTINGS[name], PLANS[plan]) <= MOST


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", [name for name in SETTINGS if not SETTINGS[name].prefetched])
def test_the_interval_of_all_waits_contains_the_truth(name: str, plan: str) -> None:
    """Likewise of loaders that load when they are asked, whose waits are all known.

    These are in no pairs, so that drift makes the interval wider than it need be.
    """
    most = 1.0 if name == "drifting" else MOST
    assert FEWEST <= covered(SETTINGS[name], PLANS[plan], all_waits=True) <= most


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "long memory"])
def test_two_pairs_are_enough(name: str) -> None:
    """Their interval contains the truth at least as often as it says."""
    assert covered(SETTINGS[name], TWO_PAIRS) >= FEWEST


@pytest.mark.parametrize("plan", ["equal", "many"])
def test_pairs_that_differ_by_more_than_their_batches_explain(plan: str) -> None:
    """Memory or other work may slow some blocks by a tenth as a whole."""
    rng, hits = np.random.default_rng(3), 0
    for _ in range(RUNS):
        real = in_pairs([rng.gamma(10.0, 0.15, size) for size, _ in PLANS[plan]])
        slowed = ((rng.normal(0.0, 0.1), size) for _, size in PLANS[plan])
        ideal = in_pairs([rng.gamma(10.0, 0.1, size) * np.exp(by) for by, size in slowed])
        low, high = bounds(ratio(real, ideal))
        hits += low <= 1.5 / np.exp(0.1**2 / 2) <= high
    assert FEWEST <= hits / RUNS <= MOST


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", REGULAR)
def test_regular_bursts_are_within_the_interval(name: str, plan: str) -> None:
    """They are in it at least as often as it says."""
    assert covered(REGULAR[name], PLANS[plan]) >= FEWEST


@pytest.mark.parametrize(
    "name", ["fixed", "gamma", "bursty", "rare long bursts", "autocorrelated", "long memory"]
)
def test_the_interval_of_two_runs_contains_the_truth(name: str) -> None:
    """Each of the two runs has 200 batches, on a machine that does not drift."""
    setting = SETTINGS[name]
    true = truth(setting)
    rng = np.random.default_rng(11)
    load, step, replayed = (
        draw(rng, RUNS, 200) for draw in (setting.load, setting.step, setting.step)
    )
    hits = 0
    for waits, steps, others in zip(load, step, replayed, strict=True):
        real = ArmTimes(waits, steps, all_waits=AllWaits.of_run(waits))
        ideal = ArmTimes(0 * others, others)
        gain = compare_arms(real, ideal).gain
        assert gain is not None
        low, high = bounds(gain.speedup)
        hits += low <= true <= high
    assert FEWEST <= hits / RUNS <= MOST


def test_the_evaluator_finds_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A LoaderEvaluator over loads and steps with noise: the interval contains the truth."""
    register(monkeypatch, SerialLoader.__module__, SerialAdapter)
    rng = np.random.default_rng(5)
    clock = FakeClock()
    load_ns = (1_000 * rng.gamma(40.0, 200.0, 250)).astype(int).tolist()
    steps_ns = (1_000 * rng.gamma(40.0, 250.0, 250)).astype(int).tolist()
    batches = [np.zeros((4, 3))] * 250
    evaluator = LoaderEvaluator(
        SerialLoader(batches, load_ns, clock), mode="alternate", clock=clock, unit="images"
    )
    for _, step_ns in zip(evaluator, steps_ns, strict=True):
        clock.advance(step_ns)
    result = headroom(evaluator.recorded())
    low, high = bounds(result.speedup)
    assert low <= 1.8 <= high
    assert str(result.verdict) == "highly input-bound"
    assert result.loader_only_ns is not None
    assert result.ideal_ns is not None
    assert result.loader_only_ns / result.ideal_ns == pytest.approx(0.8, rel=0.1)
    assert codes(result.advice) == [VerdictAdvice.LOAD_IN_BACKGROUND]
    assert result.samples_per_batch == 4.0
    assert result.not_measured == ()
