"""Several runs beside each other, and whether the later of two is slower."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadeval.data.run import Run
from loadeval.estimate.before_after import BeforeAfter, before_after, differences, unit_of
from tests.builder import alternating, logged, run_of, steps

LOG = logged([5.0] * 60)
OTHER = logged([5.0] * 60, backend="spdl.pipeline.Pipeline")


def noisy(wait: float, step: float = 10.0, seed: int = 0, **known: Any) -> Run:
    """Six epochs, whose first batch is waited for 50 ms."""
    noise = np.random.default_rng(seed)
    blocks = []
    for epoch in range(6):
        waits = noise.normal(wait, 0.1, 30)
        waits[0] = 50
        blocks.append(steps("real", waits, noise.normal(step, 0.2, 30), epoch=epoch))
    return run_of(blocks, **{"mode": "log", **known})


def compared(wait: float, **known: Any) -> BeforeAfter:
    return before_after(noisy(5), noisy(wait, seed=1, **known))


@pytest.mark.parametrize(
    ("wait", "pace", "headline"),
    [
        (8, "slower", "Slower than the baseline: 0.85x [0.85x, 0.85x] of its throughput"),
        (2, "faster", "Faster than the baseline: 1.22x [1.21x, 1.22x] of its throughput"),
        (
            5.1,
            "equal",
            "As fast as the baseline, within 10%: 1.00x [0.99x, 1.00x] of its throughput",
        ),
    ],
)
def test_whether_training_became_slower(wait: float, pace: str, headline: str) -> None:
    result = compared(wait)
    assert (result.pace, result.headline) == (pace, f"{headline}, over whole epochs")


def test_times_are_of_as_many_samples() -> None:
    """Batches twice as large, which take twice as long, are as fast."""
    before = noisy(5)
    half = run_of([before.steps.replace(samples=np.full(180, 2))], mode="log")
    result: Any = before_after(half, before)
    assert result.steady.ratio.value == pytest.approx(2)
    assert result.wait.before.value == pytest.approx(2 * result.wait.now.value)


def test_few_batches_decide_nothing() -> None:
    result = before_after(logged([5.0] * 15), logged([9.0] * 15))
    assert result.headline == (
        "Undecided against the baseline: too few batches: 14 now and 14 before, and each needs at "
        "least 20"
    )
    assert result.gate(0.01)[0] is None


def test_of_one_epoch_its_start_is_not_judged() -> None:
    noise = np.random.default_rng(0)
    before, now = (logged(noise.normal(wait, 0.1, 60)) for wait in (5, 8))
    result = before_after(before, now)
    assert result.pace == "slower"
    assert result.says.endswith("in the steady state")
    assert result.cautions == (
        (
            "Epoch starts are not judged: that takes two epochs or more in each run, whose starts "
            "differ little."
        ),
        (
            "Two runs one after the other also differ by what the machine did meanwhile, and the "
            "95% CI does not cover that: repeat both to be sure."
        ),
    )


def test_what_changed() -> None:
    """What is not known of one of them does not."""
    environment = {"packages": {"torch": "2.8"}, "host": "b"}
    now = noisy(5, workers=4, pinned=True, environment=environment)
    before = noisy(5, environment={"packages": {"torch": "2.7"}, "host": "a"})
    result = before_after(before, now)
    assert [tuple(change) for change in result.changes] == [
        ("loader", "workers", 2, 4),
        ("versions", "torch", "2.7", "2.8"),
        ("machine", "host", "a", "b"),
    ]


def test_backends_that_took_turns_are_compared_round_by_round() -> None:
    """What slows both in a round is gone."""
    slower = np.repeat(np.linspace(1, 3, 8), 33)

    def in_turns(wait: float, comparison: str) -> Run:
        run = alternating(wait=wait, spread=0.02)
        drifted = {
            name: (run.steps[name] * slower).astype(np.int64) for name in ("wait_ns", "step_ns")
        }
        return run_of([run.steps.replace(**drifted)], settings={"comparison": comparison})

    def width(one: str, other: str) -> float:
        backends = {"slow": in_turns(5, one), "fast": in_turns(2, other)}
        ((*names, ratio),) = differences(backends)
        assert names == ["fast", "slow"]
        assert ratio.value == pytest.approx(15 / 12, rel=0.02)
        low, high = ratio.bounds
        return high - low

    assert width("a", "a") < width("a", "b") / 10


def test_throughput_is_counted_in_samples_where_all_are_known() -> None:
    unknown = run_of([steps("real", 5, 10, 60, samples=-1)], mode="log")
    assert unit_of([LOG, OTHER]) == "images"
    assert unit_of([LOG, unknown]) == "batches"
    assert unit_of([LOG, logged([5.0] * 60, unit="texts")]) == "batches"
