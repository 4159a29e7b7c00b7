"""Real and ideal batches of different sizes, on which steps depend: simulated runs, by a seed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from loadeval.analysis.estimate.arms import ArmTimes, compare_arms
from loadeval.analysis.estimate.headroom import headroom
from tests.runs.given import MS, alternating
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.analysis.estimate.arms import Gain
    from loadeval.analysis.estimate.stats import Estimate

    Times = npt.NDArray[np.float64]

RUNS = 150
FEWEST, MOST = 0.9, 0.99
"""Around 95%, within what so few runs tell."""
PAIRS, REAL, IDEAL = 6, 32, 16
STEP_NS, SLOWER = 10e6, 0.1
"""A step of ideal loading at the mean size; beside loading it takes a tenth longer."""
BYTES = 50_000.0


def arms(
    rng: np.random.Generator, follows: float, *, waits: bool = False
) -> tuple[ArmTimes, ArmTimes]:
    """The arms of a run, real first; steps are in proportion to the bytes, as far as they follow.

    Where training `waits`, each real batch comes 1.5 steps after the one before, whatever its size.
    """
    both = []
    for slower, count, first in ((1 + SLOWER, REAL, 0), (1.0, IDEAL, REAL)):
        nbytes = BYTES * rng.gamma(6.0, 1 / 6.0, PAIRS * count)
        work = 1 - follows + follows * nbytes / BYTES
        step_ns = STEP_NS * slower * work * rng.normal(1.0, 0.03, PAIRS * count)
        is_real = slower > 1
        pair = np.repeat(np.arange(PAIRS), count)
        wait_ns = (1.5 * STEP_NS - step_ns).clip(min=0) if waits and is_real else 0 * step_ns
        both.append(
            ArmTimes(
                wait_ns,
                step_ns,
                np.ones(PAIRS * count),
                pair=pair,
                place=pair * (REAL + IDEAL)
                + first
                + np.tile(np.arange(count), PAIRS).astype(float),
                nbytes=nbytes.round(),
            )
        )
    real, ideal = both
    return real, ideal


@cache
def gains(follows: float, *, waits: bool = False, sized: bool = True) -> list[Gain]:
    """What many runs gain; the same runs without their bytes where they are not `sized`."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(RUNS):
        real, ideal = arms(rng, follows, waits=waits)
        if not sized:
            real, ideal = replace(real, nbytes=None), replace(ideal, nbytes=None)
        gain = compare_arms(real, ideal).gain
        assert gain is not None
        found.append(gain)
    return found


def covered(estimates: list[Estimate], truth: float) -> float:
    return float(np.mean([each.low <= truth <= each.high for each in estimates]))  # type: ignore[operator]


def width(estimates: list[Estimate]) -> float:
    return float(np.median([each.high - each.low for each in estimates]))  # type: ignore[operator]


@pytest.mark.parametrize("follows", [0.0, 1.0])
def test_the_interval_holds_the_truth(follows: float) -> None:
    """As often as it says, and the estimate has no bias, whether steps follow sizes or not."""
    found = gains(follows)
    contention, speedups = ([getattr(gain, name) for gain in found] for name in NAMES)
    assert FEWEST <= covered(contention, SLOWER * STEP_NS) <= MOST
    assert FEWEST <= covered(speedups, 1 + SLOWER) <= MOST
    errors = [each.value - SLOWER * STEP_NS for each in contention]
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(RUNS)


NAMES = ("contention_ns", "steady_speedup")


@pytest.mark.parametrize("name", NAMES)
def test_sizes_narrow_the_interval(name: str) -> None:
    """Sizes that differ by 40% hide a difference of a tenth, unless they are known."""
    with_sizes, without = (
        [getattr(gain, name) for gain in gains(1.0, sized=sized)] for sized in (True, False)
    )
    assert width(with_sizes) < 0.25 * width(without)
    assert covered(without, SLOWER * STEP_NS if name == NAMES[0] else 1 + SLOWER) > 0.9


def test_sizes_that_steps_do_not_follow_change_nothing() -> None:
    """But by chance, in one run of some hundred thousand: both arms must show it."""
    assert gains(0.0) == gains(0.0, sized=False)


def test_a_loader_that_sets_the_pace() -> None:
    """Real iterations do not follow the size, and ideal ones do: the mean size's error counts."""
    rng = np.random.default_rng(3)
    many = [arms(rng, 1.0, waits=True)[0] for _ in range(1000)]
    truth_ns = np.mean([np.mean(arm.wait_ns + arm.step_ns) for arm in many])
    with_sizes, without = (
        [gain.steady_speedup for gain in gains(1.0, waits=True, sized=sized)]
        for sized in (True, False)
    )
    assert FEWEST <= covered(with_sizes, float(truth_ns) / STEP_NS) <= MOST
    assert width(with_sizes) < width(without)


def test_the_parts_add_up() -> None:
    """Waiting and slower steps are all that is lost, at the same size too."""
    for gain in gains(1.0, waits=True)[:20]:
        lost_ns = gain.real_ns - gain.ideal_ns
        assert gain.waiting_ns.value + gain.contention_ns.value == pytest.approx(lost_ns)


@pytest.mark.parametrize("spread", [0.0, 0.005])
def test_sizes_that_hardly_differ_are_the_same(spread: float) -> None:
    """Their line would be drawn through next to one point."""
    real, ideal = (
        replace(arm, nbytes=BYTES * (1 + spread * np.sin(arm.step_ns)))
        for arm in arms(np.random.default_rng(1), 0.0)
    )
    assert (
        compare_arms(real, ideal).gain
        == compare_arms(replace(real, nbytes=None), replace(ideal, nbytes=None)).gain
    )


def test_few_batches_tell_no_line() -> None:
    """Nineteen ideal ones."""
    real, ideal = arms(np.random.default_rng(1), 1.0)
    few = ideal.only(np.arange(ideal.count) % 5 == 0).only(np.arange(20) < 19)
    assert (
        compare_arms(real, few).gain
        == compare_arms(replace(real, nbytes=None), replace(few, nbytes=None)).gain
    )


def test_sizes_are_those_of_the_run() -> None:
    """Real batches are larger by chance, and steps longer for that alone: nothing is lost."""
    run = alternating(wait=0.0, pairs=6)
    rng, steps = np.random.default_rng(5), run.steps
    nbytes = rng.integers(30_000, 70_000, len(steps)) + np.where(steps.arm == 0, 3000, 0)
    step_ns = (1000 * nbytes * rng.normal(1.0, 0.01, len(steps))).astype(np.int64)
    sized, without = (
        headroom(replace(run, steps=replace(steps, step_ns=step_ns, nbytes=known))).contention_ns
        for known in (nbytes, steps.nbytes)
    )
    assert sized is not None
    assert without is not None
    assert abs(sized.value) < 0.5 * MS < without.value
    assert width([sized]) < 0.2 * width([without])
