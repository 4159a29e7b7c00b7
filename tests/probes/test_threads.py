"""What the threads probe reads of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from loadeval.errors import ProbeError
from loadeval.probes.threads import Files, PythonLockProbe, ThreadsProbe, Times, subject_of

Reading = dict[str, "Mapping[str, float | None]"]


class Scripted(Files):
    """Threads that have used what a test says; `times` is by their numbers."""

    def __init__(self) -> None:
        self.times: dict[int, Times] = {}
        self.names: dict[int, str] = {}

    def threads(self) -> list[int]:
        return list(self.times)

    def times_of(self, tid: int) -> Times | None:
        return self.times.get(tid, Times(0, 0))

    def name_of(self, tid: int) -> str:
        return self.names[tid]


def scripted() -> tuple[ThreadsProbe, Scripted]:
    files = Scripted()
    probe = ThreadsProbe(files)
    probe.open()
    return probe, files


@contextmanager
def at_work(work: Callable[[], object], name: str, count: int = 1) -> Iterator[None]:
    """Threads that do `work` over and over."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.is_set():
            work()

    started = [threading.Thread(target=run, name=f"{name}_{number}") for number in range(count)]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in started:
            thread.join()


def read_beside_training(readings: int = 5) -> list[Reading]:
    """Readings of a thread that is not the training thread, as that of the MetricsReader."""
    probes, taken = (ThreadsProbe(), PythonLockProbe()), []

    def read() -> None:
        for probe in probes:
            probe.open()
        for _ in range(readings):
            taken.append(
                {subject: reading for probe in probes for subject, reading in probe.read().items()}
            )
            time.sleep(0.02)
        for probe in probes:
            probe.close()

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    return taken


def count() -> int:
    return sum(number * number for number in range(200_000))


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("[DALI][TP3]", "[DALI][TP]"),
        ("ThreadPoolExecutor-0_12", "ThreadPoolExecutor"),
        ("Thread-7 (fetch)", "Thread (fetch)"),
        ("h264dec", "h264dec"),
    ],
)
def test_threads_of_a_pool_have_one_subject(name: str, subject: str) -> None:
    assert subject_of(name) == subject


def test_threads_of_one_name_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: clock[0])
    probe, files = scripted()
    files.names = {7: "decode-1", 8: "decode-2"}
    files.times |= {7: Times(100, 0), 8: Times(5_000, 900)}
    probe.read()
    files.times |= {7: Times(600, 250), 8: Times(5_300, 1_000)}
    clock[0] = 2_000
    decoding = probe.read()["decode"]
    assert decoding == {"cpu_cores": 0.8, "run_queue_cores": 0.35, "threads": 2}


def test_the_threads_of_this_process_are_named_by_python() -> None:
    with at_work(count, "decode", 2):
        readings = read_beside_training()
    assert readings[-1]["decode"]["threads"] == 2
    assert sum(reading["decode"].get("cpu_cores") or 0.0 for reading in readings) > 0


def test_where_threads_are_not_told_of_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "times_of", lambda *_: None)
    with pytest.raises(ProbeError, match="does not tell the CPU time of threads"):
        ThreadsProbe().open()
