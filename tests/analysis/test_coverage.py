"""The interval contains the truth as often as it says: simulated runs, without a clock."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from loadeval import IterableAdapter, LoaderEvaluator, LoaderInfo
from loadeval.analysis.arms import ArmTimes, compare_arms
from loadeval.analysis.headroom import headroom
from loadeval.analysis.stats import over_runs, speedup_of_pairs
from loadeval.analysis.verdict import VerdictAdvice
from loadeval.runtime import registry
from loadeval.testing import FakeClock, ScriptedLoader
from tests.analysis.numbers import bounds, codes

if TYPE_CHECKING:
    from collections.abc import Callable

    Times = npt.NDArray[np.float64]
    Draw = Callable[[np.random.Generator, int, int], Times]

RUNS = 500
PAIRS, BLOCK = 12, 8
FEWEST, MOST = 0.92, 0.98


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
    "autocorrelated": Setting(autoregressive(1.0, 0.8, 0.4), gamma(1.0, 10.0)),
    "drifting": Setting(drifting(gamma(1.0, 4.0)), drifting(gamma(1.0, 4.0))),
}


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


def simulated(setting: Setting, rng: np.random.Generator) -> tuple[Times, Times]:
    """The times of each run's real and ideal blocks, as (runs, pairs), in random order."""
    warmup = setting.prefetched + 1
    served = warmup + BLOCK
    shape = (RUNS, PAIRS * 2 * served)
    load, step = setting.load(rng, *shape), setting.step(rng, *shape)
    real, ideal = np.empty((2, RUNS, PAIRS))
    for pair in range(PAIRS):
        first = rng.random(RUNS) < 0.5
        sums = []
        for half in (0, 1):
            start = (2 * pair + half) * served
            rows = slice(start, start + served)
            iterations = real_iterations(load[:, rows], step[:, rows], setting.prefetched)
            sums.append((iterations[:, warmup:].sum(1), step[:, rows][:, warmup:].sum(1)))
        real[:, pair] = np.where(first, sums[0][0], sums[1][0])
        ideal[:, pair] = np.where(first, sums[1][1], sums[0][1])
    return real, ideal


def truth(setting: Setting) -> float:
    """The speed-up of the process itself: 200 runs of 3,000 batches, without their beginning."""
    rng = np.random.default_rng(99)
    load, step = setting.load(rng, 200, 3_000), setting.step(rng, 200, 3_000)
    iterations = real_iterations(load, step, setting.prefetched)
    return float(iterations[:, 100:].sum() / step[:, 100:].sum())


@pytest.mark.parametrize("name", SETTINGS)
def test_the_interval_contains_the_truth(name: str) -> None:
    """In 92 to 98 of 100 alternating runs of 12 pairs, whatever the loader is like."""
    setting = SETTINGS[name]
    true = truth(setting)
    covered = 0
    for real_ns, ideal_ns in zip(*simulated(setting, np.random.default_rng(7)), strict=True):
        low, high = bounds(speedup_of_pairs(real_ns, ideal_ns))
        covered += low <= true <= high
    assert FEWEST <= covered / RUNS <= MOST


@pytest.mark.parametrize("name", ["fixed", "gamma", "bursty", "autocorrelated"])
def test_the_interval_of_two_runs_contains_the_truth(name: str) -> None:
    """Likewise of 200 batches in each of two runs on a machine that does not drift."""
    setting = SETTINGS[name]
    true = truth(setting)
    rng = np.random.default_rng(11)
    load, step, replayed = (
        draw(rng, RUNS, 200) for draw in (setting.load, setting.step, setting.step)
    )
    covered = 0
    ones = np.ones(200)
    for waits, steps, others in zip(load, step, replayed, strict=True):
        real, ideal = ArmTimes(waits, steps, ones, None), ArmTimes(0 * others, others, ones, None)
        gain = compare_arms(real, ideal, over_runs).gain
        assert gain is not None
        low, high = bounds(gain.speedup)
        covered += low <= true <= high
    assert FEWEST <= covered / RUNS <= MOST


class InProcess(ScriptedLoader):
    """A loader that is known to have no workers, for whose rest nobody need wait."""


class InProcessAdapter(IterableAdapter):
    def describe(self, loader: Any) -> LoaderInfo:
        return replace(super().describe(loader), workers=0, prefetch_depth=0)


def test_the_evaluator_finds_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A LoaderEvaluator over loads and steps with noise: the interval contains the truth."""
    point = EntryPoint(__name__, f"{__name__}:InProcessAdapter", registry.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _: InProcessAdapter)
    monkeypatch.setattr(registry, "registered", lambda: {__name__: point})
    rng = np.random.default_rng(5)
    clock = FakeClock()
    load_ns = rng.gamma(40.0, 20.0, 250).astype(int).tolist()
    steps_ns = rng.gamma(40.0, 25.0, 250).astype(int).tolist()
    batches = [np.zeros((4, 3))] * 250
    evaluator = LoaderEvaluator(
        InProcess(batches, load_ns, clock), mode="alternate", clock=clock, unit="images"
    )
    for _, step_ns in zip(evaluator, steps_ns, strict=True):
        clock.advance(step_ns)
    found = headroom(evaluator.recorded())
    low, high = bounds(found.speedup)
    assert low <= 1.8 <= high
    assert str(found.verdict) == "highly input-bound"
    assert found.loader_only_ns is not None
    assert found.ideal_ns is not None
    assert found.loader_only_ns / found.ideal_ns == pytest.approx(0.8, rel=0.1)
    assert codes(found.advice) == [VerdictAdvice.LOAD_IN_BACKGROUND]
    assert found.samples_per_batch == 4.0
    assert found.not_measured == ()
    assert found.pairs == 11
