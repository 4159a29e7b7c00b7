"""Folders of run logs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.errors import RunLogError
from loadeval.runlog.log_file.codec import encode, to_text
from loadeval.runlog.log_file.reader import read_run
from loadeval.runlog.model import Readings
from loadeval.runlog.run_folder.folder import (
    logs_in,
    read_batches,
    read_ranks,
    read_whole,
)
from loadeval.runlog.run_folder.processes import LoaderRecord, ProcessRecord
from tests.runs.given import write_run
from tests.runs.ranks import MS, runs_of, train

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.runlog.model import Run
    from loadeval.runlog.run_folder.processes import Role

READINGS = Readings("host", "process", np.array([1, 2]), {"cpu_cores": np.array([0.5, 0.7])})


def write(path: Path, run: Run) -> Path:
    """With a line that only one rank's is looked at of."""
    return write_run(replace(run, readings=(READINGS,)), path)


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Path:
    waits_ns = np.arange(1, 13)[:, None] * np.full(10, MS)
    for rank, run in enumerate(runs_of(train(waits_ns))):
        write(tmp_path / f"rank{rank}.jsonl", run)
    return tmp_path


def test_logs_are_in_the_order_of_ranks(job: Path) -> None:
    """They are not in the order of names, and other files are no logs."""
    (job / "report.html").touch()
    (job / "rank0-validation.jsonl").touch()
    (job / "rank99.jsonl").mkdir()
    assert [path.name for path in logs_in(job)] == [f"rank{rank}.jsonl" for rank in range(12)]


def test_logs_of_other_names_are_by_name(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.jsonl").touch()
    assert [path.name for path in logs_in(tmp_path)] == ["a.jsonl", "b.jsonl"]


def test_a_folder_without_logs(tmp_path: Path) -> None:
    with pytest.raises(RunLogError, match=r"there is no run log in .*; expected one for each rank"):
        logs_in(tmp_path)


def test_only_what_is_needed_of_each_rank_is_read(job: Path) -> None:
    """The rest when it is asked for."""
    (run, *_) = read_ranks(logs_in(job))
    assert run.readings == ()
    assert len(read_whole(run).readings) == 1


def test_a_run_that_was_in_no_file_is_whole() -> None:
    run = runs_of(train(np.full((2, 10), MS)))[0]
    assert read_whole(run) is run


def test_equal_columns_are_held_once(job: Path) -> None:
    first, second = read_ranks(logs_in(job))[:2]
    assert first.steps.samples is second.steps.samples
    assert first.steps.wait_ns is not second.steps.wait_ns


def test_ranks_are_read_in_order(job: Path) -> None:
    runs = read_ranks(logs_in(job))
    assert [run.header.environment["rank"] for run in runs] == list(range(12))
    assert all(len(run.steps) == 10 for run in runs)


def test_a_log_that_is_damaged_is_told_with_its_line(job: Path) -> None:
    """The line is that of a run that is read alone, though lines before it are left out."""
    path = job / "rank3.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines[:3], "no line\n", *lines[3:]]), encoding="utf-8")
    for read in (read_run, read_batches):
        with pytest.raises(RunLogError, match=r"rank3.jsonl, line 4 is no line of a run log"):
            read(path)
    with pytest.raises(RunLogError, match="line 4"):
        read_ranks(logs_in(job))


def test_a_line_that_is_cut_off_is_noted_though_it_is_not_needed(job: Path) -> None:
    path = job / "rank3.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    readings = to_text(encode(READINGS))
    path.write_text("".join([*lines[:2], readings[:30]]), encoding="utf-8")
    assert any("cut off" in note for note in read_batches(path).notes)


def test_the_rank_is_in_the_name_where_the_log_does_not_tell(tmp_path: Path) -> None:
    """A launcher may have set none of the variables by which a process knows its own."""
    for rank in (0, 3):
        run = runs_of(train(np.full((4, 10), MS)))[rank]
        path = write(tmp_path / f"rank{rank}.jsonl", run)
        header, *lines = path.read_text(encoding="utf-8").splitlines()
        content: dict[str, Any] = json.loads(header)
        del content["environment"]["rank"]
        del content["environment"]["world_size"]
        path.write_text("\n".join([json.dumps(content), *lines, ""]), encoding="utf-8")
    first, second = read_ranks(logs_in(tmp_path))
    assert (first.header.environment["rank"], second.header.environment["rank"]) == (0, 3)
    assert first.header.environment["world_size"] == 2
    assert read_whole(second).header.environment["rank"] == 3


# Folders of `loadeval run`


def says(folder: Path, name: str, log: str, role: Role = "training", rank: int = 0) -> None:
    """Write the record of a process whose training loader, or only one, has this log."""
    loader = LoaderRecord(log, role, "log", "x", None, role == "training", 1, 1)
    ProcessRecord(name, rank, 1, "host", True, (loader,)).save(folder)


def test_the_training_loader_is_the_one_that_its_process_names(job: Path) -> None:
    """They are in the order of ranks; logs of other loaders are left out."""
    for rank in (10, 9):
        says(job, f"rank{rank}", f"rank{rank}-2.jsonl", rank=rank)
    assert logs_in(job) == [job / "rank9-2.jsonl", job / "rank10-2.jsonl"]


def test_of_several_programs_those_count_that_train(tmp_path: Path) -> None:
    """Unless none does."""
    says(tmp_path, "rank0", "rank0-validation.jsonl", "validation")
    assert logs_in(tmp_path) == [tmp_path / "rank0-validation.jsonl"]
    says(tmp_path, "rank0-run2", "rank0-run2.jsonl")
    assert logs_in(tmp_path) == [tmp_path / "rank0-run2.jsonl"]


def test_the_rank_of_any_of_its_loaders_is_in_the_name(tmp_path: Path) -> None:
    """The name counts where the log does not tell the rank."""
    run = runs_of(train(np.full((1, 10), MS)))[0]
    header = replace(run.header, environment={})
    paths = [
        write(tmp_path / f"rank{rank}-2.jsonl", replace(run, header=header)) for rank in (0, 1)
    ]
    assert [run.header.environment["rank"] for run in read_ranks(paths)] == [0, 1]


@pytest.mark.parametrize("text", ["", "[]", '{"name": "rank1"}', '{"loaders": [1]}'])
def test_what_is_no_record_of_a_process_is_passed_over(job: Path, text: str) -> None:
    """It may be claimed a moment ago, or another program's."""
    (job / "rank1.json").write_text(text, encoding="utf-8")
    assert len(logs_in(job)) == 12
