"""Copies of logs with placeholders say the same as the logs, but for whose they are."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.errors import RunLogError
from loadeval.runlog import redaction
from loadeval.runlog.log_file.reader import read_run
from loadeval.runlog.log_file.writer import write_metrics
from loadeval.runlog.model import Event
from loadeval.runlog.redacted_copies import redacted_copies
from loadeval.runlog.run_folder.folder import logs_in, replayed_logs
from loadeval.runlog.run_folder.processes import LoaderRecord, ProcessRecord, processes_in
from tests.runs.given import write_run
from tests.runs.staged import staged

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.runlog.model import Run

NEEDLES = ("node7", "alice", "scan-7", "data.py", "secret")


def alices(name: str = "secret") -> Run:
    """A run with the needles in its texts."""
    run = staged(name=name)
    header = replace(run.header, environment={"host": "node7.alice", "pid": 7})
    ends = (*run.ends[:-1], replace(run.ends[-1], cause="failed", error="OSError: no scan-7.npy"))
    events = (Event(1, "cannot read /home/alice/scan-7.npy"),)
    return replace(run, header=header, ends=ends, events=events)


placeholder = partial(redaction.placeholder, salt="a salt")


@pytest.fixture(autouse=True)
def _salted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(redaction.SALT, "a salt")


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Path:
    return write_run(alices(), tmp_path / "secret.jsonl")


def texts_below(folder: Path) -> str:
    """All that is in it, names of files included."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join([*map(str, files), *(path.read_text() for path in files)])


def check_redacted(copy: Path, run: Run) -> None:
    """It has the numbers of `run`, and no needle."""
    copied = read_run(copy)
    for name in ("request_ns", "wait_ns", "step_ns", "samples"):
        assert np.array_equal(getattr(copied.steps, name), getattr(run.steps, name))
    assert copied.header.environment == {"host": placeholder("host", "node7.alice"), "pid": 7}
    assert copied.header.loader == run.header.loader
    text = copy.name + copy.read_text()
    assert [needle for needle in NEEDLES if needle in text] == []


def test_a_log(log: Path) -> None:
    """It has other names and the same numbers, and is removed at the end."""
    assert all(needle in log.name + log.read_text() for needle in NEEDLES)
    with redacted_copies([log]) as (copy,):
        check_redacted(copy, read_run(log))
        assert read_run(copy).header.name == copy.stem == placeholder("run", "secret")
    assert not copy.exists()


def test_a_metrics_file(tmp_path: Path) -> None:
    """What save_metrics() wrote, whose keys are DALI's."""
    path = tmp_path / "secret.json"
    write_metrics(alices(), path)
    with redacted_copies([path]) as (copy,):
        check_redacted(copy, read_run(path))
        assert (
            json.loads(copy.read_text())["batch_times"]
            == (json.loads(path.read_text())["batch_times"])
        )


@pytest.mark.parametrize("text", ['{"batch_times": [0.5]}', "[1, 2]", "no JSON"])
def test_a_file_of_others_is_copied(tmp_path: Path, text: str) -> None:
    """DALI's has numbers alone; what is no run is refused by whoever reads it."""
    path = tmp_path / "dali.json"
    path.write_text(text)
    with redacted_copies([path]) as (copy,):
        assert copy.read_text() == text


def test_a_folder_of_a_run(tmp_path: Path) -> None:
    """It is known as before which logs are of which rank, and which are replays."""
    folder = tmp_path / "secret"
    folder.mkdir()
    for name in ("rank0", "rank0-replay", "rank1-run2"):
        write_run(alices(name), folder / f"{name}.jsonl")
        loader = LoaderRecord(f"{name}.jsonl", "training", "log", "A", None, True, 1, 9)
        rank = int(name[4])
        ProcessRecord(name, rank, 7, "node7.alice", True, (loader,)).save(folder)
    (folder / "rank2.json").write_text("")
    (folder / "report.html").write_text("node7")
    with redacted_copies([folder]) as (copy,):
        assert [path.name for path in logs_in(copy)] == ["rank0.jsonl", "rank1-run2.jsonl"]
        assert [path.name for path in replayed_logs(copy)] == ["rank0-replay.jsonl"]
        assert {process.host for process in processes_in(copy)} == {
            placeholder("host", "node7.alice")
        }
        assert [path.name for path in copy.glob("*.html")] == []
        for path in logs_in(copy):
            check_redacted(path, alices(path.stem))
            assert read_run(path).header.name == path.stem
        text = texts_below(copy)
    assert [needle for needle in NEEDLES if needle in text] == []


def test_files_of_one_name_in_two_folders(tmp_path: Path) -> None:
    """Each has a copy, and one that was given twice has one."""
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        paths.append(write_run(staged(name=folder), tmp_path / folder / "rank0.jsonl"))
    with redacted_copies([*paths, paths[0]]) as copies:
        assert copies[0] == copies[2]
        names = [read_run(path).header.name for path in copies[:2]]
        assert names == [placeholder("run", "a"), placeholder("run", "b")]


@pytest.mark.parametrize("wrong", ['{"type":"event"}', '{"type":"event", "message": "secr', "x"])
def test_a_line_that_cannot_be_read_is_told_of_the_original(log: Path, wrong: str) -> None:
    """The error names the file that the user named, and the number of the line."""
    log.write_text(f"{log.read_text().splitlines()[0]}\n{wrong}\n")
    with (
        pytest.raises(RunLogError, match=r"secret\.jsonl, line 2 (has no|is no)"),
        redacted_copies([log]) as (copy,),
    ):
        read_run(copy)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The error is that of reading it."""
    path = tmp_path / "none.jsonl"
    with pytest.raises(RunLogError, match=r"cannot read .*none\.jsonl"), redacted_copies([path]):
        pass
