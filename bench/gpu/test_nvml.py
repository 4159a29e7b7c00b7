"""What NVML says of a device, against memory, kernels and copies that are known."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pynvml  # type: ignore[import-untyped]  # it ships no type information
import pytest
import torch

from bench.gpu.claims import (
    NVML_BUSY,
    NVML_CLOCK,
    NVML_COST,
    NVML_COUNTERS,
    NVML_DEVICE,
    NVML_MEMORY,
    NVML_PCIE,
    NVML_POWER,
)
from bench.gpu.device import Products, device_ms
from loadeval import LoaderEvaluator

# A run's readings come when they are due, and not at the moments that a test knows.
from loadeval.probes.gpu import GPUProbe, used_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.gpu.conftest import Notes

    Reading = dict[str, float]
    Work = Callable[[], object]

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
INTERVAL_S: float = inspect.signature(LoaderEvaluator).parameters["probe_interval_s"].default
GIB, MIB = 2**30, 2**20
PIECE_MS = 25.0
"""Work is queued in pieces of this length, of which the device always has one."""
SETTLED_S = 1.6
"""NVML's utilisation and power are means of up to a second before they are read."""
BEFORE_S, DURING_S = 0.5, 0.8
"""Counters are read after the first, and once more after the second: theirs is the mean."""
COPIED, MOVED = GIB, 256 * MIB
"""Bytes of a copy within the device, and of one to it or from it."""
MOST_CPU_SHARE = 0.02
MOST_WALL_MS = 50
NO_COUNTERS = "the driver gives no such counter"
SPIN = """
extern "C" __global__ void spin(int kilocycles) {
    long long end = clock64() + 1000LL * kilocycles;
    while (clock64() < end) {}
}
"""


@pytest.fixture(scope="module")
def probe() -> Iterator[GPUProbe]:
    """The probe, open, in a process that uses the device."""
    held = torch.zeros(1, device="cuda")
    opened = GPUProbe()
    opened.open()
    yield opened
    opened.close()
    del held


def read(probe: GPUProbe) -> Reading:
    """What is known of the device now; of several, of the first."""
    reading = next(iter(probe.read().values()))
    assert not isinstance(reading, str), reading
    return dict(reading)


def handle() -> Any:
    """NVML's handle of the device that is read."""
    return used_devices()[0].handle


def keep_busy(work: Work, seconds: float) -> np.ndarray[Any, Any]:
    """Queue `work` again and again, so that the device always has some.

    Returns the seconds of each by the device's clock, from the end of the one before.
    """
    taken_s = []
    events: list[Any] = []
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        work()
        events.append(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]  # torch's
        events[-1].record()
        if len(events) > 2:  # the last one has not passed
            before, passed, _ = events[-3:]
            passed.synchronize()
            taken_s.append(before.elapsed_time(passed) / 1e3)
    return np.array(taken_s)


def means_while(probe: GPUProbe, work: Work, before_s: float = BEFORE_S) -> tuple[Reading, float]:
    """The means of a time in which the device did nothing but `work`; the seconds of each."""
    keep_busy(work, before_s)
    earlier = read(probe)  # has the other direction of PCIe where there are no counters
    seconds = keep_busy(work, DURING_S).mean()
    return {**earlier, **read(probe)}, float(seconds)


def piece_of(do: Work) -> tuple[Work, int]:
    """A piece of work that does it as often as fits into PIECE_MS, and how often that is."""
    do()
    count = max(1, round(PIECE_MS / min(device_ms(do) for _ in range(3))))

    def piece() -> None:
        for _ in range(count):
            do()

    return piece, count


def cycles_of_piece() -> int:
    """Cycles of the SMs' clock in about PIECE_MS, once it has risen."""
    cycles = 10_000_000
    sleep = partial(torch.cuda._sleep, cycles)
    keep_busy(sleep, BEFORE_S)
    return round(cycles * PIECE_MS / device_ms(sleep))


def is_near(measured: float, expected: float, share: float, least: float = 0) -> bool:
    """Whether they differ by no more than a share, or `least`."""
    return abs(measured - expected) <= max(share * expected, least)


def test_memory_used_follows_what_is_allocated(note: Notes, probe: GPUProbe) -> None:
    size = min(10 * GIB, torch.cuda.mem_get_info()[0] // 2)
    torch.cuda.empty_cache()
    before = read(probe)["memory_used_bytes"]
    held = torch.empty(size, dtype=torch.uint8, device="cuda")
    during = read(probe)["memory_used_bytes"]
    del held
    torch.cuda.empty_cache()
    after = read(probe)["memory_used_bytes"]
    for case, measured in (("allocated", during - before), ("freed again", during - after)):
        note(
            NVML_MEMORY,
            f"{size / GIB:.3g} GiB {case}",
            expected=f"{size / GIB:.3g} GiB",
            measured=f"{measured / GIB:.4g} GiB",
            held=is_near(measured, size, 0.01),
        )


@dataclass
class Phases:
    """Readings at the end of a time without work, and of one with nothing but products."""

    idle: Reading
    busy: Reading


@pytest.fixture(scope="module")
def phases(probe: GPUProbe) -> Phases:
    """Both, one after the other."""
    products = Products(PIECE_MS)
    torch.cuda.synchronize()
    time.sleep(SETTLED_S)
    read(probe)
    time.sleep(SETTLED_S)
    idle = read(probe)
    keep_busy(products, SETTLED_S)
    read(probe)
    keep_busy(products, SETTLED_S)
    return Phases(idle, read(probe))


def test_kernel_busy_in_known_phases(note: Notes, phases: Phases) -> None:
    for case, reading, expected in (
        ("no work", phases.idle, 0),
        ("nothing but products", phases.busy, 100),
    ):
        measured = reading["kernel_busy_percent"]
        held = abs(measured - expected) <= 3
        note(NVML_BUSY, case, expected=f"{expected}%", measured=f"{measured:.3g}%", held=held)


def test_power_rises_with_work(note: Notes, phases: Phases) -> None:
    idle_w, busy_w = phases.idle["power_watts"], phases.busy["power_watts"]
    note(
        NVML_POWER,
        f"products after {idle_w:.0f} W without work",
        expected=f"over {1.5 * idle_w:.0f} W",
        measured=f"{busy_w:.0f} W",
        held=busy_w > 1.5 * idle_w,
    )


def test_clock_is_that_of_a_kernel_of_known_cycles(note: Notes, probe: GPUProbe) -> None:
    cycles = cycles_of_piece()
    reading, seconds = means_while(probe, partial(torch.cuda._sleep, cycles))
    expected_hz, measured_hz = cycles / seconds, reading["sm_clock_hz"]
    note(
        NVML_CLOCK,
        f"a kernel of {cycles / 1e6:.0f} million cycles",
        expected=f"{expected_hz / 1e6:.0f} MHz",
        measured=f"{measured_hz / 1e6:.0f} MHz",
        held=is_near(measured_hz, expected_hz, 0.03),
    )


@cache
def spin() -> Any:
    """The kernel, compiled."""
    return torch.cuda._compile_kernel(SPIN, "spin")


def spinning(blocks: int, threads: int, kilocycles: int) -> Work:
    """A kernel that keeps so many blocks on the device for so long."""
    return partial(spin(), grid=(blocks, 1, 1), block=(threads, 1, 1), args=[kilocycles])


def note_counters(note: Notes, case: str, reading: Reading, expected: Reading) -> None:
    """Note how near counters are, in percent."""
    for name, percent in expected.items():
        measured = reading.get(name)
        note(
            NVML_COUNTERS,
            f"{name.removesuffix('_percent').replace('_', ' ')}, {case}",
            expected=f"{percent:.3g}%",
            measured=NO_COUNTERS if measured is None else f"{measured:.3g}%",
            held=None if measured is None else is_near(measured, percent, 0.1, 0.3),
        )


@pytest.mark.parametrize(
    ("case", "blocks_per_sm", "threads"),
    [
        ("one warp on one SM", 0, 32),
        ("1,024 threads on every second SM", 0.5, 1024),
        ("2,048 threads on every SM", 2, 1024),
    ],
)
def test_sm_activity_of_kernels_of_known_occupancy(
    note: Notes, probe: GPUProbe, case: str, blocks_per_sm: float, threads: int
) -> None:
    """A block of 1,024 threads comes to an SM of its own as long as there are some without."""
    properties = torch.cuda.get_device_properties(0)
    sms, most_threads = properties.multi_processor_count, properties.max_threads_per_multi_processor
    blocks = int(blocks_per_sm * sms) or 1
    work = spinning(blocks, threads, cycles_of_piece() // 1000)
    reading, _ = means_while(probe, work, SETTLED_S)
    expected = {
        "sm_busy_percent": 100 * min(1, blocks / sms),
        "sm_occupancy_percent": 100 * blocks * threads / (sms * most_threads),
    }
    note_counters(note, case, reading, expected)
    measured = reading["kernel_busy_percent"]
    note(NVML_BUSY, case, expected="100%", measured=f"{measured:.3g}%", held=measured >= 97)


def test_memory_activity_of_copies_of_known_bandwidth(note: Notes, probe: GPUProbe) -> None:
    """Each byte is read and written; the most is that of the memory's clock and bus, both edges."""
    source = torch.ones(COPIED, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    piece, copies = piece_of(lambda: target.copy_(source))
    reading, seconds = means_while(probe, piece)
    mhz = pynvml.nvmlDeviceGetMaxClockInfo(handle(), pynvml.NVML_CLOCK_MEM)
    most_bytes_per_s = 2 * mhz * 1e6 * pynvml.nvmlDeviceGetMemoryBusWidth(handle()) / 8
    bytes_per_s = 2 * copies * COPIED / seconds
    case = f"copies at {bytes_per_s / 1e9:.3g} of {most_bytes_per_s / 1e9:.3g} GB/s"
    expected = {"dram_bandwidth_percent": 100 * bytes_per_s / most_bytes_per_s}
    note_counters(note, case, reading, expected)


@pytest.mark.parametrize("direction", ["receive", "transmit"])
def test_pcie_of_copies_of_known_size(note: Notes, probe: GPUProbe, direction: str) -> None:
    """Packets have heads, and reading from the host needs requests in the other direction."""
    host = torch.ones(MOVED, dtype=torch.uint8).pin_memory()
    device = torch.ones(MOVED, dtype=torch.uint8, device="cuda")
    source, target = (host, device) if direction == "receive" else (device, host)
    piece, copies = piece_of(lambda: target.copy_(source, non_blocking=True))
    reading, seconds = means_while(probe, piece)
    expected = copies * MOVED / seconds
    name = f"pcie_{direction}_bytes_per_s"
    other = {"receive": "pcie_transmit_bytes_per_s", "transmit": "pcie_receive_bytes_per_s"}
    for case, key, low, high in (
        (f"{direction}, copies at {expected / 1e9:.3g} GB/s", name, 0.95, 1.25),
        (f"the other direction of {direction}", other[direction], 0, 0.25),
    ):
        measured = reading.get(key)
        note(
            NVML_PCIE,
            case,
            expected=f"{low * expected / 1e9:.3g} to {high * expected / 1e9:.3g} GB/s",
            measured=NO_COUNTERS if measured is None else f"{measured / 1e9:.3g} GB/s",
            held=None if measured is None else low * expected <= measured <= high * expected,
        )


def values_of_visible_devices() -> dict[str, str | None]:
    """Values of CUDA_VISIBLE_DEVICES, for as many devices as there are, by what they are."""
    count, uuid = pynvml.nvmlDeviceGetCount(), used_devices()[0].uuid
    values = {
        "not set": None,
        "its UUID": uuid,
        "the beginning of its UUID": uuid[:12],
        "its UUID,-1": f"{uuid},-1",
    }
    backwards = ",".join(map(str, reversed(range(count))))
    numbers = ["0", "", "-1", str(count), "0,0", f"0,{count}", str(count - 1), backwards]
    return values | {repr(number): number for number in numbers}


@pytest.mark.usefixtures("probe")
def test_the_device_that_cuda_uses_is_read(note: Notes) -> None:
    """CUDA_VISIBLE_DEVICES tells it without a context, else the process, if NVML tells that."""
    values = values_of_visible_devices()
    command = [sys.executable, "-m", "bench.gpu.visible", json.dumps(list(values.values()))]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=40
    )
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    numbers = {pynvml.nvmlDeviceGetUUID(handle): f"GPU {at}" for at, handle in enumerate(handles)}
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    by_value = {line["value"]: line for line in lines}
    for name, value in values.items():
        line = by_value.get(value, {"error": "nothing was printed"})
        for when in ("without", "with"):
            seen = line.get(when, {"uuids": [], "said": line.get("error", "")[-300:]})
            expected = line.get("cuda", ["no error"])
            read_of = [numbers.get(uuid, uuid) for uuid in seen["uuids"]]
            note(
                NVML_DEVICE,
                f"CUDA_VISIBLE_DEVICES {name}, {when} a context",
                expected=", ".join(numbers.get(uuid, uuid) for uuid in expected) or "no GPU",
                measured=", ".join(filter(None, (*read_of, seen["said"]))),
                held=seen["uuids"] == expected and len(seen["subjects"]) == len(expected),
            )


def test_a_reading_costs_little(note: Notes, probe: GPUProbe) -> None:
    """A thread reads as often as by default, while the device computes."""
    products = Products(PIECE_MS)
    keep_busy(products, BEFORE_S)
    cpu_s, wall_s = [], []
    ended = threading.Event()

    def read_often() -> None:
        while not ended.wait(INTERVAL_S):
            began, cpu_began = time.perf_counter(), time.thread_time()
            probe.read()
            cpu_s.append(time.thread_time() - cpu_began)
            wall_s.append(time.perf_counter() - began)

    without_s = [np.median(keep_busy(products, DURING_S))]
    reader = threading.Thread(target=read_often)
    reader.start()
    with_s = np.median(keep_busy(products, 2 * DURING_S))
    ended.set()
    reader.join()
    without_s.append(np.median(keep_busy(products, DURING_S)))
    share = float(np.mean(cpu_s)) / INTERVAL_S
    wall_ms = np.array(wall_s) * 1e3
    slower = float(with_s / np.mean(without_s)) - 1
    note(
        NVML_COST,
        f"CPU time of {len(cpu_s)} readings, one each {INTERVAL_S:g} s",
        expected=f"under {MOST_CPU_SHARE:.0%} of a CPU",
        measured=f"{share:.2%}",
        held=share < MOST_CPU_SHARE,
    )
    note(
        NVML_COST,
        "how long a reading takes",
        expected=f"under {MOST_WALL_MS} ms",
        measured=f"{np.median(wall_ms):.3g} ms, at most {wall_ms.max():.3g} ms",
        held=bool(wall_ms.max() < MOST_WALL_MS),
    )
    note(
        NVML_COST,
        "kernels while they are made",
        expected="within 3%",
        measured=f"{slower:+.1%}",
        held=abs(slower) < 0.03,
    )
