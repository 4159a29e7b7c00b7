"""Waits and steps as ranges, in a trace of torch's profiler and by NVTX, beside the kernels."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from bench.gpu.claims import RANGES_NVTX, RANGES_TORCH
from bench.gpu.device import Products, is_stand_in
from bench.zoo.costs import Sleep
from bench.zoo.truth import InProcess
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.gpu.conftest import Notes

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
LISTENER = ROOT / "tests" / "core" / "nvtx_listener.c"
BATCHES = 8
WAIT_MS, WORK_MS = 4.0, 6.0
WITHIN_NS = 200_000
"""How near the clocks of host and device are brought to each other."""
WAIT, STEP = "loadeval.wait real", "loadeval.step real"
ALTERNATING = {WAIT, STEP, "loadeval.wait ideal", "loadeval.step ideal", "loadeval.switch"}
MOST_S = 35
SCRIPT = f"""
import torch
from loadeval import LoaderEvaluator

on_gpu = torch.cuda.is_available()
matrix = torch.ones(1024, 1024, device="cuda" if on_gpu else "cpu")
for _ in LoaderEvaluator(range({BATCHES}), annotate="nvtx", probes=()):
    matrix @ matrix
    if on_gpu:
        torch.cuda.synchronize()
"""


@dataclass
class Range:
    """A named time, in nanoseconds of the trace's clock."""

    name: str
    begin_ns: float
    end_ns: float

    def has(self, time_ns: float, within_ns: float = 0) -> bool:
        """Whether that is in it."""
        return self.begin_ns - within_ns <= time_ns <= self.end_ns + within_ns


@dataclass
class Kernel:
    """When a kernel was launched, began and ended."""

    launched_ns: float
    begin_ns: float
    end_ns: float


@dataclass
class Trace:
    """The ranges that loadeval made, in order, and the kernels."""

    ranges: list[Range] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)

    def of_launch(self, kernel: Kernel) -> Range | None:
        """The range in which a kernel was launched."""
        return next((span for span in self.ranges if span.has(kernel.launched_ns)), None)

    def launched_in(self) -> str:
        """The names of the ranges in which kernels were launched."""
        names = {span.name if span else "no range" for span in map(self.of_launch, self.kernels)}
        return f"{len(self.kernels)} in {', '.join(sorted(names)) or 'nothing'}"


def sleeping(batches: int, ms: float) -> InProcess:
    """A loader that takes `ms` for each batch."""
    return InProcess(batches, lambda number: torch.tensor([number]), Sleep(ms))


def traced(do: Callable[[], object], folder: Path) -> Trace:
    """The trace of what `do` does."""
    activities = [ProfilerActivity.CPU, *([] if is_stand_in() else [ProfilerActivity.CUDA])]
    with _tasks() as tasks:
        with profile(activities=activities) as profiler:
            do()
            torch.cuda.synchronize()
        path = folder / "trace.json"
        profiler.export_chrome_trace(str(path))
        return _read(path, tasks)


def _read(path: Path, tasks: list[Any]) -> Trace:
    content = json.loads(path.read_text())
    events = [event for event in content["traceEvents"] if event.get("ph") == "X"]
    launched: dict[Any, float] = {}
    trace = Trace()
    for event in sorted(events, key=lambda event: float(event["ts"])):
        begin_ns = float(event["ts"]) * 1e3
        end_ns = begin_ns + float(event["dur"]) * 1e3
        category, correlation = event.get("cat"), event.get("args", {}).get("correlation")
        if event["name"].startswith("loadeval.") and category != "gpu_user_annotation":
            trace.ranges.append(Range(event["name"], begin_ns, end_ns))
        elif category in {"cuda_runtime", "cuda_driver"} and "Launch" in event["name"]:
            launched[correlation] = begin_ns
        elif category == "kernel":
            trace.kernels.append(Kernel(launched.get(correlation, 0), begin_ns, end_ns))
    if is_stand_in():
        trace.kernels = list(_kernels_of_stand_in(tasks, content["baseTimeNanoseconds"]))
    return trace


@contextmanager
def _tasks() -> Iterator[list[Any]]:
    """The tasks that the stand-in is given meanwhile, which no profiler sees."""
    tasks: list[Any] = []
    if not is_stand_in():
        yield tasks
        return
    from bench.gpu import stand_in

    torch.cuda.synchronize()
    stand_in.ACCOUNT.loads.clear()
    queue = stand_in.Stream.queue

    def noted(stream: Any, task: Any) -> None:
        if task.duration_ns:
            tasks.append(task)
        queue(stream, task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stand_in.Stream, "queue", noted)
        yield tasks


def _kernels_of_stand_in(tasks: list[Any], base_ns: int) -> Iterator[Kernel]:
    from bench.gpu.stand_in import ACCOUNT

    # What is queued on one stream is done in that order.
    offset_ns = time.time_ns() - time.perf_counter_ns() - base_ns
    for task, (begin_ns, end_ns, _) in zip(tasks, ACCOUNT.loads, strict=True):
        yield Kernel(task.queued_ns + offset_ns, begin_ns + offset_ns, end_ns + offset_ns)


@pytest.mark.parametrize("syncs", [True, False], ids=["syncs", "asynchronous"])
def test_ranges_and_kernels_in_a_trace(note: Notes, tmp_path: Path, syncs: bool) -> None:
    """Kernels run in a step that waits for them; else some run in the next wait."""
    work = Products(WORK_MS)
    traced(work, tmp_path)  # the profiler's own beginning

    def train() -> None:
        loader = sleeping(BATCHES, WAIT_MS)
        with LoaderEvaluator(loader, annotate="torch", probes=()) as evaluator:
            for _ in evaluator:
                work()
                if syncs:
                    torch.cuda.synchronize()

    trace = traced(train, tmp_path)
    how = "steps that wait for the device" if syncs else "steps that do not wait"
    names = [span.name for span in trace.ranges]
    expected = [WAIT, STEP] * BATCHES + [WAIT]
    apart = all(
        before.end_ns <= after.begin_ns
        for before, after in zip(trace.ranges, trace.ranges[1:], strict=False)
    )
    for case, wanted, measured, held in (
        (
            "ranges",
            f"{BATCHES + 1} waits and {BATCHES} steps in turn",
            f"{names.count(WAIT)} waits and {names.count(STEP)} steps",
            names == expected and apart,
        ),
        (
            "launches",
            f"{work.count * BATCHES} or more in {STEP}",
            trace.launched_in(),
            len(trace.kernels) >= work.count * BATCHES and _only_in(trace, {STEP}),
        ),
        _where_kernels_run(trace, syncs),
    ):
        note(RANGES_TORCH, f"{case}, {how}", expected=wanted, measured=measured, held=held)


def _only_in(trace: Trace, names: set[str]) -> bool:
    return all((span := trace.of_launch(kernel)) and span.name in names for kernel in trace.kernels)


def _where_kernels_run(trace: Trace, syncs: bool) -> tuple[str, str, str, bool]:
    """Where kernels ran whose step waits for them, or does not."""
    steps = [(kernel, trace.of_launch(kernel)) for kernel in trace.kernels]
    after = [kernel.end_ns - step.end_ns for kernel, step in steps if step is not None]
    before = [kernel.launched_ns - kernel.begin_ns for kernel, _ in steps]
    latest_ms, earliest_ms = max(after, default=0) / 1e6, max(before, default=0) / 1e6
    said = f"{latest_ms:+.3g} ms after their step, {earliest_ms:+.3g} ms before their launch"
    is_later = latest_ms * 1e6 > WITHIN_NS
    held = bool(after) and max(before) <= WITHIN_NS and is_later is not syncs
    wanted = "in their step" if syncs else "beyond their step"
    return "kernels", wanted, said, held


def test_ranges_of_an_alternating_run(note: Notes, tmp_path: Path) -> None:
    """Launches are in the steps of either arm."""
    work = Products(1.0)

    def train() -> None:
        loader = sleeping(150, 1.0)
        with LoaderEvaluator(loader, "alternate", annotate="torch", probes=()) as evaluator:
            for _ in evaluator:
                work()

    traced(work, tmp_path)
    trace = traced(train, tmp_path)
    names = {span.name for span in trace.ranges}
    note(
        RANGES_TORCH,
        "names, alternate",
        expected=", ".join(sorted(ALTERNATING)),
        measured=", ".join(sorted(names)),
        held=names == ALTERNATING,
    )
    note(
        RANGES_TORCH,
        "launches, alternate",
        expected="in steps",
        measured=trace.launched_in(),
        held=bool(trace.kernels) and _only_in(trace, {STEP, "loadeval.step ideal"}),
    )


def note_nvtx(note: Notes, by: str, names: list[str] | None, measured: str = "") -> None:
    """Note the names of ranges that were seen; None where that was not possible."""
    if names is not None:
        measured = f"{names.count(WAIT)} waits and {names.count(STEP)} steps"
    note(
        RANGES_NVTX,
        f"seen by {by}",
        expected=f"{BATCHES + 1} waits and {BATCHES} steps in turn",
        measured=measured,
        held=None if names is None else names == [WAIT, STEP] * BATCHES + [WAIT],
    )


def test_nvtx_ranges_are_heard(note: Notes, tmp_path: Path) -> None:
    """A library hears them that NVTX loads as it would load Nsight Systems."""
    by, compiler = "a listener", shutil.which("cc")
    if compiler is None:
        note_nvtx(note, by, None, "no C compiler to make it")
        return
    library = tmp_path / "listener.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, LISTENER], check=True)
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=MOST_S,
    )
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    begun = [line[2] for line in lines if line[:1] == ["begin"]]
    ended = [line[1] for line in lines if line[:1] == ["end"]]
    complete = done.returncode == 0 and len(ended) == len(begun)
    note_nvtx(note, by, begun if complete else [done.stderr[-300:]])


def test_nvtx_ranges_are_in_nsight_systems(note: Notes, tmp_path: Path) -> None:
    by, nsys = "Nsight Systems", shutil.which("nsys")
    if nsys is None:
        note_nvtx(note, by, None, "nsys is not installed")
        return
    report, database = tmp_path / "report.nsys-rep", tmp_path / "report.sqlite"
    collect = [nsys, "profile", "--trace=nvtx,cuda", "--sample=none", "--cpuctxsw=none"]
    export = [nsys, "export", "--type=sqlite", f"--output={database}", str(report)]
    commands = ([*collect, f"--output={report}", sys.executable, "-c", SCRIPT], export)
    until_s = time.monotonic() + MOST_S
    for command in commands:
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=max(1, until_s - time.monotonic()),
            )
        except subprocess.TimeoutExpired:
            note_nvtx(note, by, None, f"{command[1]} took over {MOST_S} s")
            return
        if done.returncode:
            note_nvtx(note, by, None, f"{command[1]}: {(done.stderr or done.stdout)[-300:]}")
            return
    trace = _of_nsys(database)
    note_nvtx(note, by, [span.name for span in trace.ranges])
    inside = sum(
        any(span.name == STEP and span.has(kernel.begin_ns, WITHIN_NS) for span in trace.ranges)
        for kernel in trace.kernels
    )
    note(
        RANGES_NVTX,
        "kernels in Nsight Systems",
        expected=f"{BATCHES} or more in {STEP}",
        measured=f"{inside} of {len(trace.kernels)}",
        held=inside >= BATCHES if trace.kernels else None,
    )


def _of_nsys(path: Path) -> Trace:
    """The ranges and the kernels in a report of Nsight Systems, exported to SQLite."""
    trace = Trace()
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        texts = dict(database.execute("SELECT id, value FROM StringIds").fetchall())
        for row in database.execute("SELECT * FROM NVTX_EVENTS ORDER BY start"):
            name = row["text"] or texts.get(row["textId"]) or ""
            if name.startswith("loadeval.") and row["end"] is not None:
                trace.ranges.append(Range(name, row["start"], row["end"]))
        if "CUPTI_ACTIVITY_KIND_KERNEL" in tables:
            for row in database.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL"):
                trace.kernels.append(Kernel(0, row["start"], row["end"]))
    return trace
