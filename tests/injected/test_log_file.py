"""A log whose file is removed, changed, closed, or takes nothing: training goes on as it was."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadeval import LoaderEvaluator, LoadevalWarning, Run, RunLogError, read_run
from loadeval.core import recorder, threads
from loadeval.data import log as writer
from loadeval.errors import warn
from tests.injected.reading import IN_EACH_MODE

BATCHES = list(range(60))


def wrapped(loader: Any, path: Path, mode: str = "log", **options: Any) -> LoaderEvaluator:
    if mode == "replay":
        options["num_cached_batches"] = len(BATCHES)
    return LoaderEvaluator(loader, mode, log_file=path, probes=(), **options)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a file waits as short as can be."""
    monkeypatch.setattr(recorder, "FLUSH_INTERVAL_S", 0.001)
    monkeypatch.setattr(threads, "LONGEST_JOIN_S", 0.01)
    monkeypatch.setattr(threads, "STALLED_S", 0.01)
    monkeypatch.setattr(threads, "LONGEST_END_S", 0.05)


class Stalling:
    """A file system that takes nothing until it is asked to."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.was_asked = threading.Event()

    def write(self, file: int, text: bytes) -> int:
        self.was_asked.set()
        self.goes_on.wait()
        return os.write(file, text)


@pytest.fixture
def stalling(monkeypatch: pytest.MonkeyPatch, quick: None) -> Iterator[Callable[[], Stalling]]:  # noqa: ARG001 - it is slow without
    """Lets the log's file stall from now on."""
    made: list[Stalling] = []

    def stall() -> Stalling:
        made.append(Stalling())
        system = type("System", (), {"write": staticmethod(made[-1].write)})()
        for name in ("getpid", "fstat", "close"):
            setattr(system, name, getattr(os, name))
        monkeypatch.setattr(writer, "os", system)
        return made[-1]

    yield stall
    for stalled in made:
        stalled.goes_on.set()


def written(path: Path) -> Run:
    """The run in `path`, once all that waits for it is there."""
    for thread in threading.enumerate():
        if thread.name == threads.LOG_THREAD:
            thread.join(20)
    return read_run(path)


@IN_EACH_MODE
def test_a_training_does_not_wait_for_a_file_that_stalls(
    tmp_path: Path, stalling: Callable[[], Stalling], mode: str
) -> None:
    """Two epochs and close() end though it never takes anything; all of it is in memory."""
    evaluator = wrapped(BATCHES, tmp_path / "run.jsonl", mode)
    stalling()
    assert [sorted(evaluator), sorted(evaluator)] == [BATCHES, BATCHES]
    assert evaluator.recorded().batches == 120
    with pytest.warns(LoadevalWarning, match="the last lines of the run log") as said:
        evaluator.close()
    assert len(said) == 1


def test_the_logs_of_a_program_that_stall_at_its_end_are_waited_for_together(
    tmp_path: Path, stalling: Callable[[], Stalling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one for long; one warning is of all."""
    evaluators = [wrapped(BATCHES, tmp_path / f"rank{rank}.jsonl") for rank in range(3)]
    stalling()
    limits_s, within = list[float | None](), threads.within

    def noted(limit_s: float | None, *rest: Any) -> bool:
        limits_s.append(limit_s)
        return within(limit_s, *rest)

    monkeypatch.setattr(threads, "within", noted)
    with pytest.warns(LoadevalWarning, match="the last lines of the run log") as said:
        for evaluator in evaluators:
            assert list(evaluator) == BATCHES
            evaluator.close()
    assert len(said) == 1
    assert limits_s == [threads.LONGEST_END_S, threads.STALLED_S, threads.STALLED_S]


def test_what_waited_for_the_file_is_in_it_once_it_goes_on(
    tmp_path: Path, stalling: Callable[[], Stalling]
) -> None:
    evaluator = wrapped(BATCHES, tmp_path / "run.jsonl")
    file = stalling()
    list(evaluator)
    file.goes_on.set()
    list(evaluator)
    evaluator.close()
    run = written(tmp_path / "run.jsonl")
    assert (run.closed, run.batches) == (True, 120)


def remove(path: Path) -> None:
    path.unlink()


def cut_off(path: Path) -> None:
    os.truncate(path, 0)


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("another rank's\n")


@IN_EACH_MODE
@pytest.mark.parametrize("fault", [remove, cut_off, append])
def test_a_file_that_is_lost_is_told_once(
    tmp_path: Path, fault: Callable[[Path], None], mode: str
) -> None:
    """The run goes on in memory, from there on; what is in the file's place is left alone."""
    path = tmp_path / "folder" / "run.jsonl"
    path.parent.mkdir()
    evaluator = wrapped(BATCHES, path, mode)
    list(evaluator)
    assert evaluator.recorded().batches == 60  # written, too
    fault(path)
    left = path.read_bytes() if path.exists() else None
    with pytest.warns(LoadevalWarning, match="it was removed or cut off, or another") as said:
        assert [sorted(evaluator), sorted(evaluator)] == [BATCHES, BATCHES]
        evaluator.close()
    assert len(said) == 1
    assert evaluator.recorded().batches == 120
    assert (path.read_bytes() if path.exists() else None) == left


def test_a_file_that_was_renamed_gets_the_rest(tmp_path: Path) -> None:
    evaluator = wrapped(BATCHES, tmp_path / "run.jsonl")
    list(evaluator)
    (tmp_path / "run.jsonl").rename(tmp_path / "other.jsonl")
    list(evaluator)
    evaluator.close()
    run = read_run(tmp_path / "other.jsonl")
    assert (run.closed, run.batches) == (True, 120)


def test_a_file_that_the_program_closes_is_not_written(tmp_path: Path) -> None:
    """A daemon closes all of them; another file that then has its number is left alone."""
    evaluator = wrapped(BATCHES, tmp_path / "run.jsonl")
    list(evaluator)
    queue: Any = evaluator._measurement.recorder._lines
    number = queue.log._file
    os.close(number)
    assert os.open(tmp_path / "others.txt", os.O_WRONLY | os.O_CREAT) == number
    with pytest.warns(LoadevalWarning, match="the program closed its file descriptor"):
        list(evaluator)
    evaluator.close()
    assert os.write(number, b"mine") == 4
    assert (tmp_path / "others.txt").read_text() == "mine"
    os.close(number)
    assert evaluator.recorded().batches == 120


def test_a_run_that_was_overwritten_leaves_the_next_one_alone(tmp_path: Path) -> None:
    """A cell of a notebook may run again: the evaluator of before is dropped later."""
    path = tmp_path / "run.jsonl"
    first = wrapped(BATCHES, path)
    list(first)
    second = wrapped(BATCHES, path, overwrite=True)
    list(second)
    list(first)
    first.close()
    second.close()
    run = read_run(path)
    assert (run.closed, run.batches) == (True, 60)


def test_a_relative_path_is_of_the_folder_in_which_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may change to another one."""
    monkeypatch.chdir(tmp_path)
    evaluator = LoaderEvaluator(BATCHES, log_file="run.jsonl", probes=())
    list(evaluator)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir("other")
    assert evaluator.recorded().batches == 60
    evaluator.close()
    assert read_run(tmp_path / "run.jsonl").closed


def test_a_pipe_is_no_log(tmp_path: Path) -> None:
    """It could not be read back; and nobody is waited for to read it."""
    os.mkfifo(tmp_path / "pipe")
    file = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(RunLogError, match="it is no file"):
        wrapped(BATCHES, tmp_path / "pipe", overwrite=True)
    os.close(file)
    with pytest.raises(RunLogError, match="cannot write the run log"):
        wrapped(BATCHES, tmp_path / "pipe", overwrite=True)


class Broken:
    """A stderr of a program's own, which is not as it should be."""

    def write(self, _: str) -> int:
        raise LookupError("not today")


@pytest.mark.parametrize("stderr", [None, Broken()])
def test_a_warning_that_cannot_be_given_raises_nothing(
    stderr: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warnings are errors in these tests, and in some programs."""
    monkeypatch.setattr("sys.stderr", stderr)
    warn("something")
