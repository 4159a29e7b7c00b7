"""What blocks workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from loadeval.data.lines import CodeSamples
from loadeval.inside.stages import Stages, awaits_threads, blockage, computing_threads, stages
from tests.builder import MS, looked_into, stage_rows

LINE = "data.py:31 __getitem__"


def seen(
    running: Mapping[str, int] | None = None,
    blocked: Mapping[str, int] | None = None,
    calls: Mapping[str, int] | None = None,
    fetch_ms: float = 10,
    **columns: Any,
) -> Stages:
    """A loader of two workers whose line LINE was seen so often, by what it called or waited in."""
    counts = [
        {f"{LINE} > {name}" if name else LINE: count for name, count in (each or {}).items()}
        for each in (running, blocked, calls)
    ]
    run = looked_into(stage_rows(fetch_ms, 20, **columns), code=(CodeSamples(0, *counts),))
    result = stages(run)
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("blocked_in", "calls", "columns", "workers", "expected"),
    [
        ("flock_lock_inode", {}, {}, 2, "lock"),
        ("futex_do_wait", {}, {}, 2, "lock"),
        # No other worker holds a lock that one alone has, nor one of its own threads'.
        ("futex_do_wait", {}, {}, 1, "other"),
        ("futex_do_wait", {"queue.Queue.get": 50}, {}, 2, "other"),
        ("futex_do_wait", {}, {"other_cpu_ns": 6 * MS}, 2, "other"),
        ("folio_wait_bit_common", {}, {}, 2, "disk"),
        ("", {}, {"read_bytes": 10**6, "disk_bytes": 4 * 10**5}, 2, "disk"),
        ("", {}, {"read_bytes": 10**6, "disk_bytes": 10**5}, 2, "other"),
        ("", {}, {"read_bytes": 9000, "disk_bytes": 9000}, 2, "other"),  # Python's own files
        ("hrtimer_nanosleep", {}, {}, 2, "other"),
    ],
)
def test_what_blocks_workers(
    blocked_in: str, calls: dict[str, int], columns: dict[str, int], workers: int, expected: str
) -> None:
    """They are blocked for nine tenths of fetching: the kernel names where, or bytes tell."""
    times = {"cpu_ns": MS, "run_queue_ns": 0, **columns}
    result = seen({"": 10}, {blocked_in: 90}, calls, **times)
    assert blockage(result, workers, blocked=0.9) == expected


def test_a_process_that_is_asked_by_a_pipe() -> None:
    """Such as a Manager's; of another one nobody knows that it serves all workers."""
    for leaf, expected in (("Connection._recv", "server"), ("Redis.get", "other")):
        result = seen({leaf: 40}, {"unix_stream_read_generic": 60})
        assert blockage(result, 2, blocked=0.6) == expected


def test_a_lock_that_is_tried_again_after_a_sleep() -> None:
    """As SQLite does: what workers do meanwhile adds up to the loader's time, here 5 ms of 10."""
    result = seen({"": 50}, {"hrtimer_nanosleep": 50})
    assert blockage(result, 2, blocked=0.5) == "lock"
    assert blockage(result, 1, blocked=0.5) == "other"


def test_threads_of_a_worker_compute_while_it_waits_for_them() -> None:
    """Where they compute for less than half of that, it may be for something else."""
    times: dict[str, Any] = {"cpu_ns": 2 * MS, "run_queue_ns": 0}
    for other_ms, expected in ((6, 0.75), (3, 0.0), (20, 1.0)):
        result = seen({"": 20}, {"futex_do_wait": 80}, other_cpu_ns=other_ms * MS, **times)
        assert computing_threads(result) == expected
        assert awaits_threads(result) is (expected > 0)
    assert computing_threads(seen({"": 20}, {"sk_wait_data": 80}, other_cpu_ns=MS, **times)) == 0
