"""Runs that show one thing each, and what is found in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.diagnosis import diagnose
from loadeval.report.wording.advice import change_in_short
from loadeval.report.wording.findings import describe, why_not_checked
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import (
    Arm,
    Block,
    EpochEnd,
    Header,
    LoaderInfo,
    Prefetch,
    Readings,
    Run,
    Steps,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from enum import Enum

    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.finding import Diagnosis, Finding, Outcome, Rule

    MakeRun = Callable[..., Run]

MS = 1_000_000
NOTHING = "nothing found"
GAINS = {"speedup", "low", "high", "at_most", "times"}
LONGEST_CHANGE = 50
"""Characters of what the screen says."""


def block(
    arm: Arm, pair: int | None, start_ns: int, count: int, wait_ms: float, step_ms: float
) -> Block:
    def column(value: float) -> Any:
        return np.full(count, int(value * MS))

    request_ns = start_ns + np.arange(count) * int((wait_ms + step_ms) * MS)
    unknown = np.full(count, UNKNOWN)
    return Block(0, arm, request_ns, column(wait_ms), column(step_ms), unknown, unknown, pair)


@pytest.fixture
def alternating() -> Callable[..., Run]:
    """Ten pairs of blocks of 8 batches, times in milliseconds, and the loader's own pace."""

    def make(  # noqa: PLR0913 - what a test changes, by keyword
        *,
        wait: float = 0.0,
        real: float = 50.0,
        ideal: float = 50.0,
        alone: float | None = None,
        noise: float = 0.0,
        uneven: bool = False,
        pairs: int = 10,
        first: float | None = None,
        environment: dict[str, Any] | None = None,
        readings: Sequence[Readings] = (),
        **loader: Any,
    ) -> Run:
        blocks, start_ns = [], 0
        for pair in range(pairs):
            step = real + (noise if pair % 2 else -noise)
            for arm, waited, taken in (("real", wait, step), ("ideal", 0.0, ideal)):
                found = block(
                    "real" if arm == "real" else "ideal", pair, start_ns, 8, waited, taken
                )
                if uneven:  # one batch in four is waited for, four times as long
                    found.wait_ns[:] = np.where(np.arange(8) % 4 == 3, 4 * found.wait_ns, 0)
                start_ns = int(found.request_ns[-1]) + int((4 * waited + taken) * MS)
                blocks.append(found if first is None else replace(found, epoch=pair))
            if first is not None:  # each pair is an epoch, which begins with this wait
                begin = replace(block("real", None, start_ns, 1, first, real), epoch=pair)
                blocks.insert(-2, begin)
        prefetches = (
            []
            if alone is None
            else [Prefetch(pair, 0, 8, 8, int(8 * alone * MS), None) for pair in range(pairs)]
        )
        info = LoaderInfo(**{"backend": "torch.utils.data.DataLoader", "workers": 2, **loader})
        header = Header(
            "id", "run", "alternate", "", "images", 1, info, {}, environment or {"cpus_usable": 8}
        )
        return Run(
            header,
            Steps.from_blocks(blocks, []),
            ends=(EpochEnd(0, "broken off"),),
            prefetches=tuple(prefetches),
            readings=tuple(readings),
        )

    return make


def diagnosed(real: Run, ideal: Run | None = None) -> Diagnosis:
    """What is found: each finding has evidence, and each remark a sentence that it fills."""
    found = diagnose(real, ideal)
    assert all(one.evidence for one in found.findings)
    assert all(describe(one).endswith(".") for one in found.findings)
    assert all(0 < len(change_in_short(one)) <= LONGEST_CHANGE for one in found.findings)
    for check in found.checks:
        assert bool(why_not_checked(check)) == (check.outcome == "not measured")
    return found


def finding(rule: Rule, real: Run, ideal: Run | None = None) -> Finding:
    """The finding of a rule, which must be there."""
    (found,) = (one for one in diagnosed(real, ideal).findings if one.rule is rule)
    return found


def outcome(rule: Rule, real: Run, ideal: Run | None = None) -> Outcome | Enum:
    """What came of asking a rule, or the code of why it could not tell."""
    (check,) = (one for one in diagnosed(real, ideal).checks if one.rule is rule)
    return check.outcome if check.reason is None else check.reason.code


def advised(found: Finding) -> list[Enum]:
    """The codes of what is advised."""
    return [change.code for change in found.changes]


def numbers(found: Finding) -> dict[Enum, Mapping[str, Value]]:
    """The numbers in what is advised, by its codes, but for what it is predicted to bring."""
    return {
        change.code: {name: value for name, value in change.values.items() if name not in GAINS}
        for change in found.changes
    }


def gains(found: Finding) -> dict[Enum, Mapping[str, Value]]:
    """What each piece of advice is predicted to bring, by its code."""
    return {
        change.code: {name: value for name, value in change.values.items() if name in GAINS}
        for change in found.changes
    }


@pytest.fixture
def level() -> Callable[..., Readings]:
    """Readings of one quantity, every 10 ms, always the same."""

    def make(probe: str, subject: str, name: str, value: float) -> Readings:
        time_ns = np.arange(2000, dtype=np.int64) * 10 * MS
        return Readings(probe, subject, time_ns, {name: np.full(2000, value)})

    return make


def cores_read(run: Run, **subjects: float | tuple[float, float]) -> Run:
    """A run with the CPUs in use, each the same in both arms, or a pair: real and ideal.

    The machine's are those of the others, unless they are given: nobody else is at work.
    """
    pairs = [one if isinstance(one, tuple) else (one, one) for one in subjects.values()]
    subjects.setdefault("machine", (sum(one for one, _ in pairs), sum(one for _, one in pairs)))
    steps, time_ns = run.steps, np.arange(2000, dtype=np.int64) * 10 * MS
    rows = np.searchsorted(steps.request_ns, time_ns) - 1
    ideal = steps.arm[rows.clip(min=0)] == 1
    found = []
    for subject, cores in subjects.items():
        levels = cores if isinstance(cores, tuple) else (cores, cores)
        values = {"cpu_cores": np.where(ideal, levels[1], levels[0])}
        found.append(Readings("host", subject, time_ns, values))
    return replace(run, readings=tuple(found))


@pytest.fixture
def with_cores() -> Callable[..., Run]:
    """`cores_read`."""
    return cores_read


@pytest.fixture
def long_alternating() -> Run:
    """Thirty pairs, of whose real batches every hundredth waits long."""
    blocks = []
    for pair in range(30):
        real = block("real", pair, pair * 20_000 * MS, 8, 1, 99)
        real.wait_ns[7] = 4000 * MS if pair % 12 == 5 else MS
        blocks += [real, block("ideal", pair, pair * 20_000 * MS + 10_000 * MS, 8, 0, 99)]
    info = LoaderInfo("torch.utils.data.DataLoader", workers=2)
    header = Header("id", "run", "alternate", "", "images", 1, info)
    return Run(header, Steps.from_blocks(blocks, []))


@pytest.fixture
def stalling(alternating: Callable[..., Run]) -> Run:
    """A loader that is fast enough alone, and stalls for a second in one real batch of 25."""
    run = alternating(wait=2, alone=30, pairs=50, prefetch_depth=4)
    real = np.flatnonzero(run.steps.arm == 0)
    run.steps.wait_ns[real[12::25]] = 1000 * MS
    return run


@pytest.fixture
def timed_run() -> Run:
    """A log of 30 batches of 100 ns, of which number 3 waits for 900."""
    wait_ns = np.full(30, 10)
    wait_ns[3] = 900
    step_ns = np.full(30, 90)
    request_ns = np.append(0, np.cumsum(wait_ns + step_ns)[:-1]) + 2700
    request_ns[:4] = [0, 100, 200, 3000]
    unknown = np.full(30, UNKNOWN)
    found = Block(0, "real", request_ns, wait_ns, step_ns, unknown, unknown)
    header = Header("id", "run", "log", "", "images", 0, LoaderInfo("loader"))
    return Run(header, Steps.from_blocks([found], []))


@pytest.fixture
def short_alternating() -> Run:
    """A run with batches of the real arm alone, of which no pair was measured whole."""
    blocks = [block("real", 0, 0, 30, 10, 20)]
    header = Header("id", "run", "alternate", "", "images", 1, LoaderInfo("torch.x"))
    return Run(header, Steps.from_blocks(blocks, []))
