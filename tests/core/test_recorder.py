"""What is measured reaches the log, whatever happens to the process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadeval import LoaderEvaluator, LoadevalWarning, read_run
from loadeval.core import recorder
from loadeval.core.loop import CHUNK
from loadeval.core.recorder import OpenEpoch
from loadeval.data.log import LogReader, RunLog


def log_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "loadeval-log"]


def test_a_log_is_brought_up_to_date_while_a_step_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    epoch = iter(LoaderEvaluator(range(3), log_file=path))
    next(epoch)
    deadline_s = time.monotonic() + 20
    while len(read_run(path).steps) == 0:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_the_log_of_a_second_run_has_a_number(tmp_path: Path) -> None:
    """Unless it is to replace that of the first one."""
    path = tmp_path / "run.jsonl"
    list(LoaderEvaluator(range(3), log_file=path))
    with pytest.warns(LoadevalWarning, match=r"run\.jsonl exists already.*run-1\.jsonl"):
        list(LoaderEvaluator(range(4), log_file=path))
    list(LoaderEvaluator(range(5), log_file=path, overwrite=True))
    assert [read_run(tmp_path / f"run{each}.jsonl").batches for each in ("", "-1")] == [5, 4]


def test_no_thread_is_alive_between_epochs(tmp_path: Path) -> None:
    during = []

    class Loader:
        def __iter__(self) -> Iterator[int]:
            during.append(len(log_threads()))  # here a loader forks its workers
            yield 1
            yield 2

    evaluator = LoaderEvaluator(Loader(), log_file=tmp_path / "run.jsonl")
    for _ in range(2):
        for _ in evaluator:
            during += [len(log_threads())]
    during.append(len(log_threads()))
    assert during == [0, 1, 1, 0, 1, 1, 0]


def test_the_hot_loop_writes_itself_when_the_thread_cannot_keep_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits in memory is bounded, also without any help of the thread."""
    monkeypatch.setattr(recorder, "FLUSH_INTERVAL_S", 1000)
    path = tmp_path / "run.jsonl"
    epoch = iter(LoaderEvaluator(range(8 * CHUNK), log_file=path))
    for _ in range(8 * CHUNK):
        next(epoch)
    assert len(read_run(path).steps) >= (8 - recorder.MAX_WAITING_SPANS - 1) * CHUNK


A_MILLION_BATCHES = """
import gc, sys
import psutil
from loadeval import LoaderEvaluator

def varying():
    sizes = [bytes(n) for n in range(1, 100)]
    for number in range(1_000_000):
        yield sizes[number % 99]

# What it imports, and what waits to be written, is there before.
for _ in LoaderEvaluator(varying, samples=len, log_file=sys.argv[1] and "first.jsonl" or None):
    pass
gc.collect()
evaluator = LoaderEvaluator(varying, samples=len, log_file=sys.argv[1] or None)
process = psutil.Process()
before = process.memory_info().rss
for _ in evaluator:
    pass
gc.collect()
print(process.memory_info().rss - before)
"""


@pytest.mark.check
@pytest.mark.parametrize(("log_file", "most_bytes"), [("", 40_000_000), ("run.jsonl", 15_000_000)])
def test_a_million_batches_take_little_memory(
    tmp_path: Path, log_file: str, most_bytes: int
) -> None:
    """They take at most 40 bytes each, also when their sizes vary; with a log hardly a trace."""
    command = [sys.executable, "-c", A_MILLION_BATCHES, log_file]
    taken = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(taken.stdout) < most_bytes


def test_who_closes_a_run_waits_for_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = LoaderEvaluator([1], log_file=tmp_path / "run.jsonl")
    recorder = evaluator._measurement.recorder
    append, is_writing, may_write = RunLog.append, threading.Event(), threading.Event()

    def slow(log: RunLog, text: bytes) -> None:
        is_writing.set()
        may_write.wait(20)
        append(log, text)

    monkeypatch.setattr(RunLog, "append", slow)
    threads = [threading.Thread(target=recorder.close) for _ in range(2)]
    threads[0].start()
    assert is_writing.wait(20)
    threads[1].start()
    threads[1].join(0.05)
    assert threads[1].is_alive()
    may_write.set()
    for thread in threads:
        thread.join(20)
    assert read_run(tmp_path / "run.jsonl").closed


def test_an_epoch_and_its_run_may_end_while_batches_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The garbage collector may end both in the middle of anything."""
    evaluator, take = LoaderEvaluator(range(10)), OpenEpoch.take
    epochs = [iter(evaluator)]
    next(epochs[0])

    def ended_by_then(epoch: OpenEpoch) -> Any:
        taken = take(epoch)
        epochs.clear()
        evaluator.close()
        return taken

    monkeypatch.setattr(OpenEpoch, "take", ended_by_then)
    run = evaluator.recorded()
    assert (run.batches, [end.cause for end in run.ends]) == (1, ["broken off"])


def test_training_goes_on_while_the_run_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """recorded() takes the log as it is, and parses it with the recording free to go on."""
    evaluator = LoaderEvaluator(range(10), log_file=tmp_path / "run.jsonl")
    list(evaluator)
    add = LogReader.add

    def meanwhile(reader: LogReader, texts: list[bytes]) -> None:
        thread = threading.Thread(target=list, args=(evaluator,))
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        add(reader, texts)

    monkeypatch.setattr(LogReader, "add", meanwhile)
    assert len(evaluator.recorded().steps) == 10
    monkeypatch.undo()
    assert len(evaluator.recorded().steps) == 20
