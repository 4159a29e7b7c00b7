"""The referee: how long a device really did nothing in each wait, as torch.profiler saw it."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

WAIT = "wait for a batch"
ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}


def idle_in_waits_ms(
    loader: Iterable[torch.Tensor], step: Callable[[torch.Tensor], object]
) -> list[float]:
    """Milliseconds of each wait of an epoch, without loadeval, in which the device did nothing."""
    # The host is traced too: else its waits are not on the device's clock.
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        batches = iter(loader)
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
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return reduced_ms(events)[:-1]  # the last wait is for the end of the epoch


def reduced_ms(events: Sequence[dict[str, Any]]) -> list[float]:
    """What is left of each wait without the union of kernels, copies and memsets, of any stream."""
    busy = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") in ON_DEVICE
    )
    waits = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("name") == WAIT and event.get("cat") == "user_annotation"
    )
    idle_ms = []
    for start, end in waits:
        idle_us, until = 0.0, start
        for began, done in busy:
            if began >= end:
                break
            idle_us += max(0.0, began - until)
            until = max(until, done)
        idle_ms.append((idle_us + max(0.0, end - until)) / 1e3)
    return idle_ms
