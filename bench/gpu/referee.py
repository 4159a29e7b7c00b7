"""The referee: what a device really did, and when training waited, as torch.profiler saw it."""

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

WAIT = "wait for a batch"
ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
BATCHES = 60
Events = Sequence[dict[str, Any]]


def traced(loader: Iterable[torch.Tensor], step: Callable[[torch.Tensor], object]) -> Events:
    """What happens on the host and the device in so many batches, without loadeval."""
    # The host is traced too: else its waits are not on the device's clock.
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        batches = islice(loader, BATCHES)
        while True:
            with record_function(WAIT):
                batch = next(batches, None)
            if batch is None:
                break
            step(batch)
        torch.cuda.synchronize()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events: Events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return events


def waits_of(events: Events) -> list[tuple[float, float]]:
    """When each wait began and ended; the last one is for the end of the epoch."""
    return sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("name") == WAIT and event.get("cat") == "user_annotation"
    )[:-1]


def idle_in_waits_ms(events: Events) -> list[float]:
    """What is left of each wait without the union of kernels, copies and memsets, of any stream."""
    busy = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") in ON_DEVICE
    )
    idle_ms = []
    for start, end in waits_of(events):
        idle_us, until = 0.0, start
        for began, done in busy:
            if began >= end:
                break
            idle_us += max(0.0, began - until)
            until = max(until, done)
        idle_ms.append((idle_us + max(0.0, end - until)) / 1e3)
    return idle_ms


def copied_ms(events: Events) -> float:
    """How long copies to the device take for a batch."""
    to_device = (event["dur"] for event in events if "HtoD" in event.get("name", ""))
    return sum(to_device) / len(waits_of(events)) / 1e3
