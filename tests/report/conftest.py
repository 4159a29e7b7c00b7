"""Runs for the reports, made by the real writer with a clock that moves when told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.evaluator import LoaderEvaluator
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import ARMS, EpochEnd, Header, LoaderInfo, Prefetch, Run, Steps, Window
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loadeval.runlog.columns import Column

MS = 1_000_000


class TickingClock(FakeClock):
    """A clock that moves by itself, a little at each reading, as real ones seem to."""

    def __init__(self, tick_ns: int) -> None:
        super().__init__()
        self.tick_ns = tick_ns

    def __call__(self) -> int:
        self.now_ns += self.tick_ns
        return self.now_ns


def record(
    mode: str = "log",
    *,
    waits_ns: Sequence[int] = (30 * MS,) * 30,
    step_ns: int = 10 * MS,
    epochs: int = 1,
    samples: int | None = 4,
    tick_ns: int = 0,
    warmup: int = 1,
    **options: Any,
) -> Run:
    """A run of `epochs`, of which each has one batch for each of `waits_ns`."""
    clock = TickingClock(tick_ns)
    batch: object = "text" if samples is None else np.zeros((samples, 2))
    loader = ScriptedLoader([batch] * len(waits_ns), waits_ns, clock)
    options = {"unit": "images", "name": mode, "warmup": warmup, "clock": clock, **options}
    with LoaderEvaluator(loader, mode=mode, num_cached_batches=2, **options) as evaluator:
        for _ in range(epochs):
            for _ in evaluator:
                clock.advance(step_ns)
        return evaluator.recorded()


def alternating(  # noqa: PLR0913 - what a test changes, by keyword
    *,
    pairs: int = 12,
    iterations_ns: tuple[int, int] = (40 * MS, 25 * MS),
    waits_ns: tuple[int, int] = (10 * MS, 0),
    noise: float = 0.05,
    block: int = 8,
    epoch: int = 60,
    samples: int = 32,
    prefetches: bool = True,
    **header: Any,
) -> Run:
    """An alternating run of `pairs`, cut into epochs: blocks after a warm-up of 5 and of 1."""
    random = np.random.default_rng(0)
    rows: list[tuple[int, int, int, int]] = []
    for pair in range(pairs):
        for code in random.permutation(2).tolist():
            for place in range(-(5, 1)[code], block):
                scale = float(random.normal(1, noise))
                waited_ns = round(waits_ns[code] * scale)
                stepped_ns = round(iterations_ns[code] * scale) - waited_ns
                rows.append((code, pair if place >= 0 else UNKNOWN, waited_ns, stepped_ns))
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    arm, counted, wait_ns, step_ns = table.T
    number = np.arange(len(table)) // epoch
    starts = np.arange(len(table)) % epoch == 0
    arm, counted = np.where(starts, 0, arm), np.where(starts, UNKNOWN, counted)
    wait_ns = np.where(starts, 300 * MS, wait_ns)
    request_ns = np.cumsum(wait_ns + step_ns) - wait_ns - step_ns
    count, each = len(table), 4 * samples
    sizes = np.full(count, samples), np.full(count, each)
    return Run(
        Header("id", **{**ALTERNATING, **header}),
        Steps(
            number, arm, counted, request_ns, wait_ns, step_ns, *sizes, np.full(len(wait_ns), -1)
        ),
        ends=tuple(EpochEnd(int(last), "exhausted", 10**18, 0) for last in np.unique(number)),
        prefetches=tuple(
            _prefetch(one, block, iterations_ns[0], samples)
            for one in range(pairs if prefetches else 0)
        ),
        windows=tuple(_windows(number, arm, counted, wait_ns + step_ns)),
        closed=True,
    )


ALTERNATING: dict[str, Any] = {
    "name": "alternating",
    "mode": "alternate",
    "created": "2026-11-21T10:00:00+00:00",
    "unit": "images",
    "warmup": 5,
    "loader": LoaderInfo("a.Loader", workers=2, prefetch_depth=4, batch_size=32),
}


def _prefetch(pair: int, block: int, iteration_ns: int, samples: int) -> Prefetch:
    timed = block - 4
    return Prefetch(pair, pair, block, timed, timed * iteration_ns, timed * samples)


def _windows(epoch: Column, arm: Column, pair: Column, iteration_ns: Column) -> Iterator[Window]:
    parts = sorted({part for part in zip(pair, epoch, arm, strict=True) if part[0] != UNKNOWN})
    for one, number, code in parts:
        chosen = (pair == one) & (epoch == number) & (arm == code)
        elapsed_ns = int(iteration_ns[chosen].sum())
        yield Window(int(one), int(number), ARMS[code], elapsed_ns, None)


@pytest.fixture(name="alternating", scope="session")
def _alternating() -> Callable[..., Run]:
    return alternating


@pytest.fixture(name="record", scope="session")
def _record() -> Callable[..., Run]:
    return record
