"""A pace that changes while a run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.analysis.rules.finding import Finding
    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]
    Find = Callable[..., Finding]
    Ask = Callable[..., tuple[str, str]]

NOTHING = ("nothing found", "")


def noisy(level: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[int]:
    """Values about `level`, of which each is up to 2% off."""
    spread = np.random.default_rng(0).uniform(0.98, 1.02, len(level))
    return [int(value) for value in np.asarray(level) * spread]


def test_throughput_that_falls(make_run: MakeRun, finding: Find, outcome: Ask) -> None:
    """By how much is told; a drift is then not told as well."""
    run = make_run([0] * 400, noisy(np.linspace(100_000, 150_000, 400)))
    found = finding("falling throughput", run)
    assert found.evidence[-1].value == pytest.approx(0.4, abs=0.05)
    assert found.cost_share == pytest.approx(0.2, abs=0.03)
    assert found.advice.startswith("The steps grow")
    assert outcome("drift", run) == NOTHING


def test_waits_that_grow(make_run: MakeRun, finding: Find) -> None:
    """They point to the loader."""
    run = make_run(noisy(np.linspace(1000, 60_000, 400)), noisy([100_000.0] * 400))
    assert finding("falling throughput", run).advice.startswith("The waits grow")


@pytest.mark.parametrize("end", [100_000, 108_000, 60_000])
def test_throughput_that_does_not_fall(make_run: MakeRun, outcome: Ask, end: int) -> None:
    """It stays, falls by less than a tenth, or rises."""
    run = make_run([0] * 400, noisy(np.linspace(100_000, end, 400)))
    assert outcome("falling throughput", run) == NOTHING


def test_one_step_is_no_trend(make_run: MakeRun, finding: Find, outcome: Ask) -> None:
    """A pace that changed once is a drift."""
    run = make_run([0] * 400, noisy([100_000.0] * 200 + [130_000.0] * 200))
    assert outcome("falling throughput", run) == NOTHING
    found = finding("drift", run)
    assert "slower than the first" in found.sentence
    assert [fact.value for fact in found.evidence] == pytest.approx([100_000, 130_000], rel=0.01)


def test_a_run_that_becomes_faster_drifts_too(make_run: MakeRun, finding: Find) -> None:
    """As one whose page cache fills."""
    run = make_run([0] * 400, noisy([130_000.0] * 200 + [100_000.0] * 200))
    assert "faster than the first" in finding("drift", run).sentence


def test_a_small_change_is_no_drift(make_run: MakeRun, outcome: Ask) -> None:
    """Under 5% of the iteration it is left alone."""
    run = make_run([0] * 400, noisy([100_000.0] * 200 + [104_000.0] * 200))
    assert outcome("drift", run) == NOTHING


def test_steps_that_take_no_time_have_no_trend(make_run: MakeRun, outcome: Ask) -> None:
    """There is nothing to divide by."""
    run = make_run([0] * 100, 0)
    assert outcome("falling throughput", run) == outcome("drift", run) == NOTHING


@pytest.mark.parametrize("rule", ["falling throughput", "drift"])
def test_too_few_batches_for_a_change(make_run: MakeRun, outcome: Ask, rule: str) -> None:
    """Forty are needed."""
    told = outcome(rule, make_run([0] * 39))
    assert told == ("not measured", "too few steady batches, 39: 40 are needed")
