"""What CUDA does, and the stand-in for it: other tests rest on it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from bench.gpu.claims import AS_CUDA
from bench.gpu.device import Products, device_ms, is_stand_in, memory_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.gpu.conftest import Notes

pytestmark = pytest.mark.gpu

QUEUED_MS = 60.0
LARGE = 2**20 if is_stand_in() else 2**24
"""Elements of float32: a copy of few bytes from pageable memory may be staged at once."""


def timing_event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's


def host_ms(do: Callable[[], object]) -> float:
    """How long the host takes for it, with a device that is done before."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    do()
    return (time.perf_counter() - began) * 1e3


def noted(note: Notes, case: str, facts: dict[str, bool]) -> None:
    """Note which of these are so; they should all be."""
    wrong = [fact for fact, holds in facts.items() if not holds]
    measured = f"not: {', '.join(wrong)}" if wrong else "so"
    note(AS_CUDA, case, expected=", ".join(facts), measured=measured, held=not wrong)


def test_events_pass_in_order(note: Notes) -> None:
    """An event passes when all work before it is done, and no later than those after it."""
    work = Products(QUEUED_MS)
    work_ms = device_ms(work)
    first, second = timing_event(), timing_event()
    torch.cuda.synchronize()
    first.record()
    work()
    second.record()
    before = second.query()
    try:
        first.elapsed_time(second)
        outcome = "no error"
    except RuntimeError:
        outcome = "an error"
    second.synchronize()
    elapsed_ms = first.elapsed_time(second)
    noted(
        note,
        "events",
        {
            "the second has not passed before its work": not before,
            "its time is an error until then": outcome == "an error",
            "the first has passed before the second": first.query(),
            "between them is the work": abs(elapsed_ms - work_ms) < 0.1 * work_ms,
        },
    )


def test_launches_return_before_the_work_is_done(note: Notes) -> None:
    """What is read of a tensor waits for it."""
    work = Products(QUEUED_MS)
    work_ms = device_ms(work)
    value = torch.zeros(4, device="cuda")
    versions = [value._version]

    def launch() -> None:
        work()
        value.fill_(1.0)
        versions.append(value._version)

    def launch_and_read() -> None:
        launch()
        value[0].item()

    launched_ms, read_ms = host_ms(launch), host_ms(launch_and_read)
    noted(
        note,
        "launches",
        {
            "launching is quick": launched_ms < work_ms / 2,
            "item() waits for the work": read_ms > 0.9 * work_ms,
            "a change is counted when it is launched": versions[1] > versions[0],
        },
    )


def test_streams_know_nothing_of_each_other(note: Notes) -> None:
    """A copy on another stream sees what was there before, unless it waits."""
    work = Products(QUEUED_MS)
    beside: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
    source = torch.zeros(1024, device="cuda")
    seen = []
    for waits in (False, True):
        copy = torch.full((1024,), -1.0, device="cuda")
        source.zero_()
        torch.cuda.synchronize()
        work()
        source.fill_(1.0)
        with torch.cuda.stream(beside):
            if waits:
                beside.wait_stream(torch.cuda.default_stream())
            copy.copy_(source)
        beside.synchronize()
        seen.append(copy[0].item())
    torch.cuda.synchronize()
    noted(
        note,
        "streams",
        {"without waiting it sees the old value": seen[0] == 0.0, "else the new": seen[1] == 1.0},
    )


@pytest.mark.parametrize(
    ("pinned", "non_blocking", "blocks"),
    [(True, True, False), (True, False, True), (False, True, True), (False, False, True)],
)
def test_what_copies_to_the_device_wait_for(
    note: Notes, pinned: bool, non_blocking: bool, blocks: bool
) -> None:
    """Queued work, from pageable memory; nothing, from pinned memory, if they need not."""
    work = Products(QUEUED_MS)
    work_ms = device_ms(work)
    source = torch.full((LARGE,), 3.0)
    source = source.pin_memory() if pinned else source
    copies: list[torch.Tensor] = []

    def copy() -> None:
        work()
        copies.append(source.to("cuda", non_blocking=non_blocking))

    copy()  # memory for it
    copies.clear()
    taken_ms = host_ms(copy)
    torch.cuda.synchronize()
    waits = "waits for queued work" if blocks else "does not wait"
    kind = "pinned" if pinned else "pageable"
    noted(
        note,
        f"a copy from {kind} memory, non_blocking={non_blocking}",
        {waits: (taken_ms > work_ms / 2) is blocks, "is right": copies[0][-1].item() == 3.0},
    )


def test_memory_is_counted(note: Notes) -> None:
    """More than there is cannot be had."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    taken = torch.empty(LARGE, device="cuda")
    held = torch.cuda.memory_allocated() - before
    del taken
    left = torch.cuda.memory_allocated() - before
    peak = torch.cuda.max_memory_allocated() - before
    outcome = "no error"
    with memory_left(4 * LARGE):
        try:
            torch.empty(2 * LARGE, device="cuda")
        except torch.OutOfMemoryError:
            outcome = "an error"
    noted(
        note,
        "memory",
        {
            "a tensor takes its bytes": held == 4 * LARGE,
            "it gives them back": left == 0,
            "the most is remembered": peak == 4 * LARGE,
            "more than is free is an error": outcome == "an error",
        },
    )


@pytest.mark.parametrize("mode", ["thread_local", "global"])
def test_a_question_from_another_thread_ends_a_capture(note: Notes, mode: str) -> None:
    """Unless the capture is of its thread alone: the last test here, since it leaves a mess."""
    work = Products(1.0)
    event = timing_event()
    event.record()
    torch.cuda.synchronize()
    asked = threading.Event()

    def ask() -> None:
        try:
            event.query()
        except RuntimeError:
            pass
        finally:
            asked.set()

    graph = torch.cuda.CUDAGraph()
    thread = threading.Thread(target=ask)
    try:
        with torch.cuda.graph(graph, capture_error_mode=mode):
            work()
            thread.start()
            asked.wait(10)
        outcome = "captured"
    except RuntimeError:
        outcome = "not captured"
    thread.join()
    expected = "not captured" if mode == "global" else "captured"
    noted(note, f"capture, {mode}", {expected: outcome == expected})
