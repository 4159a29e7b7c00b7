"""Runs of each kind, their every time known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from loadeval import LoaderInfo, read_run
from loadeval.data.lines import Block, EpochEnd, Event, GpuIdle, Header, Readings, RunEnd
from loadeval.testing import FakeClock, ScriptedLoader
from tests.runs.given import write_log
from tests.runs.measured import record
from tests.scripted import SerialAdapter, SerialLoader, register

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval import Run

CREATED = "2026-01-31T12:00:00+00:00"
WAIT_NS, STEP_NS = 30_001, 10_003


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """Two epochs, the second broken off, much of it not known; readings, an event, no end."""
    header = Header(
        run_id="1a2b",
        name='a "run"',
        mode="log",
        created=CREATED,
        unit="images",
        warmup=1,
        loader=LoaderInfo("a.Loader"),
    )
    return write_log(
        tmp_path / "run.jsonl",
        header,
        Block(
            epoch=0,
            arm="real",
            request_ns=[1_001, 51_001, 90_000],
            wait_ns=[40_000, 0, 2_500],
            step_ns=[10_000, 38_999, None],
            samples=[4, None, 4],
            nbytes=[64, 64, 64],
        ),
        EpochEnd(0, "exhausted", 100_000, 7_000),
        GpuIdle(0, 0, [0, 500], [None, None]),
        Block(
            epoch=1,
            arm="real",
            request_ns=[200_000],
            wait_ns=[1_000],
            step_ns=[None],
            samples=[None],
            nbytes=[None],
        ),
        EpochEnd(1, "broken off"),
        Readings("host", "", [], {}, "there is no /proc"),
        Readings(
            "gpu",
            "0",
            [60_000, 150_000],
            {"busy_percent": [97.5, 30.0], "memory_bytes": [None, 2e9]},
        ),
        Event(120_000, "the step changes its batch"),
    )


@pytest.fixture
def empty_file(tmp_path: Path) -> Path:
    """A log of two epochs that had no batch, and one that was broken off before the first."""
    header = Header(
        run_id="1a2b",
        name="empty",
        mode="log",
        created=CREATED,
        unit="images",
        warmup=1,
        loader=LoaderInfo("a.Loader"),
    )
    return write_log(
        tmp_path / "empty.jsonl",
        header,
        EpochEnd(0, "exhausted", 5_000, 2_000),
        EpochEnd(1, "failed", 9_000, 2_000, "OSError: no disk"),
        EpochEnd(2, "broken off"),
        RunEnd(0),
    )


@pytest.fixture
def dali_file(tmp_path: Path) -> Path:
    """What DALI's class saves."""
    path = tmp_path / "dali.json"
    metrics = {
        "mode": "log",
        "total_batches": 2,
        "total_time": 5.0,
        "batch_times": [1.0, 2.0],
        "cached_batches": 0,
    }
    path.write_text(json.dumps(metrics))
    return path


class Prefetching(SerialLoader):
    """A loader that may have two batches ready."""

    prefetched = 2


@pytest.fixture
def alternating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Three epochs of an alternating run, the last one broken off."""
    register(monkeypatch, __name__, SerialAdapter)
    return measured(tmp_path / "alternate.jsonl", "alternate", Prefetching)


@pytest.fixture
def replayed(tmp_path: Path) -> Run:
    """Three epochs of kept batches, the last one broken off."""
    return measured(tmp_path / "replay.jsonl", "replay")


def measured(path: Path, mode: str, loader: type[ScriptedLoader] = ScriptedLoader) -> Run:
    record(
        path,
        mode,
        waits_ns=[WAIT_NS] * 90,
        step_ns=STEP_NS,
        epochs=3,
        left_after={(2, 50)},
        loader=loader,
        clock=FakeClock(5_000),
        unit="samples",
        num_cached_batches=20,
        probes=(),
    )
    return read_run(path)
