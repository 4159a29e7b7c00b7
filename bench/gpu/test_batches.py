"""Batches that lie on the device, or in pinned memory: as they were made, and copies alike."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import loadeval
from bench.gpu.claims import (
    BATCHES_KEPT,
    BATCHES_PINNED,
    COPIES_BOUNDED,
    COPIES_NO_SYNC,
    CUDA_FAILURE,
    GRAPH_CAPTURE,
    IN_PLACE,
)
from bench.gpu.device import Products, memory_left
from bench.judge import batches_in, column, lines_of
from bench.zoo.programs import Samples
from loadeval import CacheError, LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.gpu.conftest import Notes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:the training step changes its batch"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

ROOT = Path(__file__).parents[2]
BATCHES = 120
KEPT = 7
ELEMENTS = 2**24
"""Elements of float32: at 3 TB/s a copy of 64 MB takes 40 us, longer than the next launch."""
SEEN = 64
"""Elements of each batch that are looked at."""
STEP_MS = 2.0


def new_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's


class OneBuffer:
    """Fills the same memory for each batch, on the consumer's stream."""

    waits = False

    def __init__(self, elements: int = ELEMENTS) -> None:
        self.buffer = torch.empty(elements, device="cuda")

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(BATCHES):
            self.buffer.fill_(float(number))
            yield self.buffer


class OneBufferBeside(OneBuffer):
    """The same on a stream of its own, for which the consumer's stream waits.

    It asks for another batch when its step is done, so nothing waits for the consumer. What its
    stream does before the batch is there makes a copy late.
    """

    waits = True

    def __iter__(self) -> Iterator[torch.Tensor]:
        beside, more = new_stream(), Products(1.0)
        for number in range(BATCHES):
            with torch.cuda.stream(beside):
                self.buffer.fill_(float(number))
            torch.cuda.current_stream().wait_stream(beside)
            more()
            yield self.buffer


class Prefetcher:
    """Like Apex's: copies a batch from pinned memory, on a stream of its own, during a step."""

    waits = False

    def __init__(self, elements: int = ELEMENTS // 16) -> None:
        self.elements = elements

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[torch.Tensor]:
        beside = new_stream()
        ahead = self._copied(0, beside)
        for number in range(BATCHES):
            current = torch.cuda.current_stream()
            current.wait_stream(beside)
            batch = ahead
            batch.record_stream(current)
            ahead = self._copied(number + 1, beside)
            yield batch

    def _copied(self, number: int, beside: torch.cuda.Stream) -> torch.Tensor:
        pinned = torch.full((self.elements,), float(number)).pin_memory()
        with torch.cuda.stream(beside):
            return pinned.to("cuda", non_blocking=True)


class Fresh:
    """Makes each batch in memory of its own."""

    def __init__(self, elements: int) -> None:
        self.elements = elements

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(BATCHES):
            yield torch.full((self.elements,), float(number), device="cuda")


def trained(evaluator: LoaderEvaluator, *, waits: bool) -> tuple[Any, bool]:
    """Some elements of each batch as steps saw them, and whether all batches were on the device."""
    work = Products(STEP_MS)
    seen = torch.full((BATCHES, SEEN), -1.0, device="cuda")
    on_device = True
    for number, batch in enumerate(evaluator):
        work()
        on_device = on_device and batch.is_cuda
        seen[number].copy_(batch[:: len(batch) // SEEN])
        if waits:
            torch.cuda.current_stream().synchronize()
    torch.cuda.synchronize()
    return seen.cpu().numpy(), on_device


@pytest.mark.parametrize(
    ("mode", "own_stream"),
    [
        ("log", False),
        ("alternate", False),
        ("alternate", True),
        ("replay", False),
        ("replay", True),
    ],
)
@pytest.mark.parametrize("kind", [OneBuffer, OneBufferBeside, Prefetcher])
def test_batches_are_as_they_were_made(
    note: Notes, tmp_path: Path, kind: type[Any], mode: Any, own_stream: bool
) -> None:
    """The evaluator is made on the default stream, on which replay then makes its copies."""
    log = tmp_path / "run.jsonl"
    evaluator = LoaderEvaluator(kind(), mode=mode, probes=(), log_file=log, **_options(mode))
    with torch.cuda.stream(new_stream()) if own_stream else nullcontext():
        seen, on_device = trained(evaluator, waits=kind.waits)
    evaluator.close()
    expected = np.arange(BATCHES) % (KEPT if mode == "replay" else BATCHES)
    right = int((seen == expected[:, None]).all(1).sum())
    where = "" if on_device else ", not on the device"
    arms = {window["arm"] for window in lines_of(log, "window")}
    note(
        BATCHES_KEPT,
        f"{kind.__name__}, {mode}, {'a stream of its own' if own_stream else 'default stream'}",
        expected=f"{BATCHES} batches",
        measured=f"{right}{where}",
        held=right == BATCHES and on_device and (mode != "alternate" or len(arms) == 2),
    )


def _options(mode: str) -> dict[str, Any]:
    return {"num_cached_batches": KEPT} if mode == "replay" else {}


def numbered(index: int) -> dict[str, torch.Tensor]:
    """A large tensor and a small one, which both say which batch it is."""
    return {"x": torch.full((2**18,), float(index)), "y": torch.tensor([index])}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", ["log", "alternate", "replay"])
def test_pinned_batches_stay_pinned(note: Notes, mode: Any, workers: int) -> None:
    """They go to the device behind queued work, when their memory in the host is free again."""
    loader = DataLoader(
        Samples(numbered, BATCHES), batch_size=None, num_workers=workers, pin_memory=True
    )
    work = Products(STEP_MS)
    seen = torch.full((BATCHES, SEEN), -1.0, device="cuda")
    pinned, numbers = 0, []
    with LoaderEvaluator(loader, mode=mode, probes=(), **_options(mode)) as evaluator:
        for place, batch in enumerate(evaluator):
            pinned += batch["x"].is_pinned() and batch["y"].is_pinned()
            numbers.append(int(batch["y"]))
            work()
            moved = batch["x"].to("cuda", non_blocking=True)
            seen[place].copy_(moved[:: len(moved) // SEEN])
    torch.cuda.synchronize()
    right = int((seen.cpu().numpy() == np.array(numbers)[:, None]).all(1).sum())
    note(
        BATCHES_PINNED,
        f"{mode}, {workers} workers",
        expected=f"{BATCHES} pinned, {BATCHES} right",
        measured=f"{pinned} pinned, {right} right",
        held=pinned == right == BATCHES,
    )


BOUND = 6.5
UNCOUNTED = 3
"""The batch that is being copied, that of the step before, and one that the loader may hold."""


def test_copies_on_the_device_are_bounded(note: Notes, tmp_path: Path) -> None:
    """A block of steps of 5 ms would have some twenty."""
    elements = ELEMENTS // 8
    work = Products(5.0)
    work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    most = int(BOUND * 4 * elements)
    log = tmp_path / "run.jsonl"
    options: dict[str, Any] = {"mode": "alternate", "probes": (), "max_cache_bytes": most}
    with LoaderEvaluator(Fresh(elements), log_file=log, **options) as evaluator:
        for _ in evaluator:
            work()
    held = (torch.cuda.max_memory_allocated() - before) / (4 * elements)
    prefetched = [prefetch["batches"] for prefetch in lines_of(log, "prefetch")]
    note(
        COPIES_BOUNDED,
        f"alternate, max_cache_bytes of {BOUND} batches",
        expected=f"some, at most {int(BOUND)}; {int(BOUND) + UNCOUNTED} batches in memory",
        measured=f"{min(prefetched)} to {max(prefetched)}; {held:.1f} batches in memory",
        held=1 < max(prefetched) <= BOUND and held <= int(BOUND) + UNCOUNTED,
    )


def test_replay_keeps_its_bound_on_the_device(note: Notes) -> None:
    """It says that more do not fit, and gives back what it had taken."""
    elements = ELEMENTS // 8
    before = torch.cuda.memory_allocated()
    options: dict[str, Any] = {"mode": "replay", "probes": ()}
    fits = LoaderEvaluator(Fresh(elements), num_cached_batches=5, **options)
    taken = (torch.cuda.memory_allocated() - before) / (4 * elements)
    fits.close()
    del fits
    most = int(BOUND * 4 * elements)
    try:
        LoaderEvaluator(Fresh(elements), num_cached_batches=9, max_cache_bytes=most, **options)
        message = "no error"
    except CacheError as error:
        message = str(error).split(" take ")[0]
    left = (torch.cuda.memory_allocated() - before) / (4 * elements)
    note(
        COPIES_BOUNDED,
        f"replay of 5 batches, and of 9 with max_cache_bytes of {BOUND}",
        expected="5.0 in memory; 7 of 9 batches for replay; 0.0 left",
        measured=f"{taken:.1f} in memory; {message}; {left:.1f} left",
        held=round(taken, 1) == 5
        and message == "7 of 9 batches for replay"
        and round(left, 1) == 0,
    )


def test_copies_leave_the_training_memory(note: Notes, tmp_path: Path) -> None:
    """The device is nearly full; later steps take more than those before the first copies."""
    elements = ELEMENTS
    work = Products(5.0)
    work()
    outcome, log = "no error", tmp_path / "run.jsonl"
    with memory_left(16 * 4 * elements):
        evaluator = LoaderEvaluator(Fresh(elements), mode="alternate", probes=(), log_file=log)
        try:
            for number, _ in enumerate(evaluator):
                taken = torch.empty((4 if number < BATCHES // 2 else 7) * elements, device="cuda")
                work()
                del taken
        except torch.OutOfMemoryError as error:
            outcome = str(error)
        torch.cuda.synchronize()
        evaluator.close()
    prefetched = [prefetch["batches"] for prefetch in lines_of(log, "prefetch")]
    note(
        COPIES_BOUNDED,
        "a device with memory for 16 batches, 7 of which a step takes",
        expected="no error, some batches prefetched",
        measured=f"{outcome}, {max(prefetched, default=0)} batches prefetched",
        held=outcome == "no error" and max(prefetched, default=0) > 1,
    )


@pytest.mark.parametrize("mode", ["log", "alternate", "replay"])
def test_no_step_waits_for_the_device(
    note: Notes, tmp_path: Path, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are on the device. Blocks of an alternating run begin and end with a wait at most."""
    work_ms = 8.0
    work, calls = Products(work_ms), 0
    synchronize = torch.cuda.synchronize

    def counted(device: Any = None) -> None:
        nonlocal calls
        calls += 1
        synchronize(device)

    log = tmp_path / "run.jsonl"
    options: dict[str, Any] = {"mode": mode, "probes": (), "log_file": log, **_options(mode)}
    evaluator = LoaderEvaluator(Fresh(2**16), **options)
    synchronize()
    monkeypatch.setattr(torch.cuda, "synchronize", counted)
    for _ in islice(evaluator, 80):
        work()
    waited_for = calls
    synchronize()
    evaluator.close()
    windows = len(list(lines_of(log, "window")))
    host_ms = float(np.nanmedian(column(log, "step_ns"))) / 1e6
    allowed = 2 * windows + 2  # and in the block that was broken off
    note(
        COPIES_NO_SYNC,
        f"{mode}, steps of {work_ms:g} ms on the device",
        expected=f"{'2 for a block' if mode == 'alternate' else 'no'} waits for the device, "
        f"under {work_ms / 2:g} ms on the host",
        measured=f"{waited_for} in {windows} blocks, {host_ms:.2f} ms",
        held=waited_for <= (allowed if mode == "alternate" else 0) and host_ms < work_ms / 2,
    )


@pytest.mark.parametrize("mode", ["alternate", "replay"])
def test_a_step_that_changes_its_batch_is_found(note: Notes, tmp_path: Path, mode: Any) -> None:
    """Replay serves copies from then on; alternate serves each batch once."""
    work = Products(STEP_MS)
    seen = torch.full((BATCHES, SEEN), -1.0, device="cuda")
    log = tmp_path / "run.jsonl"
    options: dict[str, Any] = {"mode": mode, "probes": (), "log_file": log, **_options(mode)}
    evaluator = LoaderEvaluator(Fresh(2**16), **options)
    for number, batch in enumerate(islice(evaluator, BATCHES)):
        work()
        seen[number].copy_(batch[:: len(batch) // SEEN])
        batch.add_(0.5)
    torch.cuda.synchronize()
    evaluator.close()
    values = seen.cpu().numpy()
    served = values[values[:, 0] >= 0]
    made = (served == served.round()).all(1) & (served == served[:, :1]).all(1)
    noticed = any("changes its batch" in event["message"] for event in lines_of(log, "event"))
    note(
        IN_PLACE,
        mode,
        expected=f"{len(served)} batches as made" + (", told" if mode == "replay" else ""),
        measured=f"{made.sum()} batches as made" + (", told" if noticed else ""),
        held=bool(made.all()) and len(served) > KEPT and noticed is (mode == "replay"),
    )


def test_a_failure_of_cuda_is_the_programs_own(note: Notes, tmp_path: Path) -> None:
    """It ends the program as without loadeval, at the program's own call; the log is whole."""
    log = tmp_path / "run.jsonl"
    command = [sys.executable, "-m", "bench.gpu.failing"]
    paths = (str(ROOT), str(ROOT / "adapters"), os.environ.get("PYTHONPATH", ""))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    children = [
        subprocess.Popen(
            [*command, *arguments], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
        )
        for arguments in ([], [str(log)])
    ]
    errors = [child.communicate(timeout=50)[1] for child in children]
    plain, measured = (child.returncode for child in children)
    logged = batches_in(log)
    is_same = all("device-side assert triggered" in error for error in errors)
    in_ours = str(Path(loadeval.__file__).parent) + os.sep in errors[1]
    note(
        CUDA_FAILURE,
        "a device-side assert in the sixth step",
        expected="both end with it and the same code; 6 batches logged, nothing of loadeval told",
        measured=f"{plain} and {measured}, {'the same' if is_same else 'another'} error; "
        f"{logged} batches logged, {'loadeval' if in_ours else 'nothing'} told",
        held=plain == measured != 0 and is_same and logged == 6 and not in_ours,
    )


def test_a_graph_is_captured_while_a_run_is_logged(note: Notes, tmp_path: Path) -> None:
    """The thread that writes the log asks for events, every half second: the last test here.

    A capture that fails leaves more behind than its error.
    """
    work, more = Products(5.0), Products(0.5)
    work()
    more()
    loader = [torch.zeros(1)] * 40
    outcome = "captured"
    log = tmp_path / "run.jsonl"
    with LoaderEvaluator(loader, log_file=log, probes=()) as evaluator:
        for number, _ in enumerate(evaluator):
            work()
            if number == 30:
                graph = torch.cuda.CUDAGraph()
                try:
                    with torch.cuda.graph(graph):
                        for _ in range(15):
                            more()
                            time.sleep(0.1)
                    graph.replay()
                except RuntimeError as error:
                    outcome = str(error).splitlines()[0]
    torch.cuda.synchronize()
    known = int((column(log, "gpu_idle_ns") >= 0).sum())
    note(
        GRAPH_CAPTURE,
        "for 1.5 s, in the middle of an epoch",
        expected=f"captured; {len(loader)} idle times",
        measured=f"{outcome}; {known} idle times",
        held=outcome == "captured" and known == len(loader),
    )
