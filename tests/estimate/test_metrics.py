"""What was read beside the times: readings fall to the arm that was served meanwhile; padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadeval.data.columns import Columns
from loadeval.data.run import Run
from loadeval.estimate.metrics import (
    Level,
    Quantity,
    metrics,
    other_kernels_ns,
    padding,
    quantities,
)
from tests.builder import MS, run_of, steps

BLOCKS = [steps("real", 20, 80, 10, pair=0), steps("ideal", 20, 80, 10, pair=0)]
"""A second of each arm."""


def read(
    at_ms: Sequence[float], values: Sequence[float], name: str = "sm_clock_hz", **known: Any
) -> Run:
    """BLOCKS, unless others are `known`, and readings of one quantity of a GPU."""
    times = (np.array(at_ms) * MS).astype(np.int64)
    of_run = {"readings": {("gpu", "GPU 0"): Columns({"time_ns": times, name: values})}, **known}
    return run_of(of_run.pop("blocks", BLOCKS), **of_run)


def quantity_of(run: Run) -> Quantity:
    (quantity,) = quantities(run)
    return quantity


def test_each_arm_has_its_own_level() -> None:
    """A reading counts for the arm whose batches were served when it was taken."""
    run = read([100, 200, 300, 1100, 1200, 1300], [40.0, 40, 44, 90, 90, 96])
    quantity = quantity_of(run)
    assert (quantity.probe, quantity.subject, quantity.name) == ("gpu", "GPU 0", "sm_clock_hz")
    assert quantity.real == Level(42.0, 43.8)
    assert quantity.ideal == Level(93.0, 95.7)


def test_a_reading_counts_where_all_of_the_time_since_the_one_before_was_one_arms() -> None:
    """Nine tenths of it, that is."""
    quantity = quantity_of(read([500, 1049, 1500, 1600], [1.0, 2, 3, 4]))
    assert (quantity.real, quantity.ideal) == (Level(2, 2), Level(3.5, 3.95))
    assert quantity_of(read([500, 1100, 1200], [1.0, 2, 3])).real is None


@pytest.mark.parametrize(("others", "is_known"), [((), False), (("sm_busy_percent",), True)])
def test_a_mean_of_the_driver_is_over_a_second(others: tuple[str, ...], is_known: bool) -> None:
    """So it tells nothing of a shorter block; a GPU's own counters count since the one before."""
    names, read = ("kernel_busy_percent", *others), np.array([40.0, 90])
    table = Columns({"time_ns": np.array([1300, 1400]) * MS, **dict.fromkeys(names, read)})
    run = run_of(BLOCKS, readings={("gpu", "GPU 0"): table})
    assert (names[0] in {quantity.name for quantity in quantities(run)}) is is_known


def test_a_log_is_all_of_the_real_arm_and_its_replay_of_the_ideal_one() -> None:
    real, ideal = [steps("real", 20, 80, 10)], [steps("ideal", 20, 80, 10)]
    log = read([500, 600], [7.0, 9.0], blocks=real, mode="log", warmup=0)
    replay = read([500, 600], [7.0, 5.0], blocks=ideal, mode="replay", warmup=0)
    assert quantity_of(log).ideal is None
    (quantity,) = metrics(log, replay).quantities
    assert (quantity.real, quantity.ideal) == (Level(9, 9), Level(5, 5))


def test_kernels_that_run_while_the_training_has_no_work_are_of_others() -> None:
    """Multiprocessors are busy for 90 of 100 ms at least, and its stream has work for 80."""
    of_gpu = [steps("real", 20, 80, 10, gpu_idle_ms=20, gpu_step_ms=80)]
    known: dict[str, Any] = {"blocks": of_gpu, "mode": "log", "warmup": 0}
    for busy, expected in ((90.0, 10 * MS), (80.0, 0)):
        run = read([500, 600], [busy, busy], "sm_busy_percent", **known)
        assert other_kernels_ns(run, 20.0 * MS) == pytest.approx(expected)
    assert other_kernels_ns(read([500, 600], [90.0, 90.0], **known), 20.0 * MS) is None


def test_why_a_probe_read_nothing_is_told() -> None:
    """Threads have a table of their own."""
    missing = {("host", ""): "no such file", ("threads", ""): "no /proc"}
    nothing = Columns.empty(["time_ns"])
    run = run_of(BLOCKS, readings=dict.fromkeys(missing, nothing), missing=missing)
    assert metrics(run).missing == (("host", "no such file"),)
    busy = Columns({"time_ns": [100 * MS, 200 * MS], "cpu_cores": [1.0, 1.0]})
    assert metrics(run_of(BLOCKS, readings={("threads", "decode"): busy})).quantities == ()


# Padding


def padded(
    share: float = 0.75,
    *,
    count: int = 60,
    every: int = 1,
    ms_per_token: float = 0.0,
    length: int | None = None,
    **known: Any,
) -> Run:
    """Batches of 16 sequences of which so much is padding; steps take 10 ms, and more by length."""
    random = np.random.default_rng(0)
    longest = random.integers(20, 200, count) if length is None else np.full(count, 93)
    padded_to = longest if length is None else np.full(count, length)
    tokens = (16 * padded_to * (1 - share) * random.uniform(0.8, 1.2, count)).astype(np.int64)
    told = {
        "epoch": np.zeros(count, np.int64),
        "batch": np.arange(count),
        "positions": 16 * padded_to,
        "padded": 16 * padded_to - tokens,
        "length": padded_to,
        "longest": longest,
    }
    noise_ms = random.uniform(0, 1, count) if not ms_per_token else 0.0
    served = steps("real", 1, 10 + padded_to * ms_per_token + noise_ms, count)
    table = Columns(told).take(slice(None, None, every))
    return run_of([served], mode="log", padding=table, **known)


def test_the_share_of_padding_has_an_interval_over_batches() -> None:
    """Four times as many batches halve it."""
    widths = []
    for count in (30, 120):
        found: Any = padding(padded(count=count))
        low, high = found.share.bounds
        assert low < 0.75 < high
        widths.append(high - low)
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.3)


def test_steps_that_follow_the_length_would_be_shorter() -> None:
    """Of 10 ms and 0.5 ms for each of 110 tokens, three quarters of these go."""
    share: Any = padding(padded(ms_per_token=0.5))
    assert share.step_ns == pytest.approx(65 * MS, rel=0.05)
    assert share.saved_ns == pytest.approx(0.75 * 55 * MS, rel=0.05)
    assert share.length is None
    of_one_length: Any = padding(padded(length=512))
    assert (of_one_length.length, of_one_length.saved_ns) == (512, None)


def test_of_few_batches_nothing_is_told() -> None:
    """Nor of what cannot be: a file may say that a batch has more padding than positions."""
    assert padding(padded(every=20)) is None
    run = padded(count=5)
    assert padding(run) is not None
    wrong = run.padding.replace(padded=np.where(run.padding.batch < 2, 9999, run.padding.padded))
    assert padding(replace(run, padding=wrong)) is None
