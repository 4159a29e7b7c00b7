"""Folders of run logs: which logs are the ranks', and what is read of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadeval.data.columns import Columns
from loadeval.data.folder import (
    LoaderRecord,
    ProcessRecord,
    Role,
    logs_in,
    logs_so_far,
    processes_in,
    read_ranks,
    read_whole,
)
from loadeval.errors import RunLogError
from tests.runs.given import write_run
from tests.runs.ranks import MS, runs_of, train
from tests.runs.tables import replace

READINGS = {("host", "process"): Columns({"time_ns": [1, 2], "cpu_cores": [0.5, 0.7]})}


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Path:
    """Twelve ranks, with readings beside their batches."""
    waits_ns = np.arange(1, 13)[:, None] * np.full(10, MS)
    for rank, run in enumerate(runs_of(train(waits_ns))):
        write_run(replace(run, readings=READINGS), tmp_path / f"rank{rank}.jsonl")
    return tmp_path


def says(folder: Path, name: str, log: str, role: Role = "training", rank: int = 0) -> None:
    """Write the record of a process whose only loader has this log."""
    loader = LoaderRecord(log, role, role == "training", 1, 1)
    ProcessRecord(name, rank, 1, True, (loader,)).save(folder)


def test_logs_are_in_the_order_of_ranks(job: Path) -> None:
    """They are not in the order of names, and other files are no logs."""
    (job / "report.html").touch()
    (job / "rank0-validation.jsonl").touch()
    (job / "rank99.jsonl").mkdir()
    assert [path.name for path in logs_in(job)] == [f"rank{rank}.jsonl" for rank in range(12)]


def test_a_folder_without_logs(tmp_path: Path) -> None:
    """One of the folders in it may be meant, as in loadeval-runs."""
    assert logs_so_far(tmp_path) == []
    with pytest.raises(
        RunLogError, match=r"there is no run log in .*; expected one that loadeval run"
    ):
        logs_in(tmp_path)
    (tmp_path / "train-0731").mkdir()
    (tmp_path / "train-0731" / "rank0.jsonl").touch()
    with pytest.raises(RunLogError, match=r"expected the folder of one run, such as .*/train-0731"):
        logs_in(tmp_path)


def test_what_is_read_beside_batches_is_read_of_one_rank(job: Path) -> None:
    """A log whose header does not tell its rank tells it by its name."""
    (log,) = logs_in(job)[5:6]
    log.write_bytes(log.read_bytes().replace(b',"rank":5', b""))
    runs = read_ranks(logs_in(job))
    assert [run.header.environment["rank"] for run in runs] == list(range(12))
    assert all(len(run.steps) == 10 and not run.readings for run in runs)
    whole = read_whole(runs[5])
    assert (whole.header, list(whole.readings)) == (runs[5].header, [("host", "process")])


def test_the_training_loader_is_the_one_that_its_process_names(job: Path) -> None:
    """They are in the order of ranks; logs of other loaders are left out."""
    for rank in (10, 9):
        says(job, f"rank{rank}", f"rank{rank}-2.jsonl", rank=rank)
    assert logs_in(job) == [job / "rank9-2.jsonl", job / "rank10-2.jsonl"]
    assert [process.rank for process in processes_in(job)] == [9, 10]


def test_of_several_programs_those_count_that_train(tmp_path: Path) -> None:
    """Unless none does."""
    says(tmp_path, "rank0", "rank0-validation.jsonl", "validation")
    assert logs_in(tmp_path) == [tmp_path / "rank0-validation.jsonl"]
    says(tmp_path, "rank0-run2", "rank0-run2.jsonl")
    assert logs_in(tmp_path) == [tmp_path / "rank0-run2.jsonl"]


@pytest.mark.parametrize("text", ["", '{"name": "rank1"}', '"\\ud800"'])
def test_what_is_no_record_of_a_process_is_passed_over(job: Path, text: str) -> None:
    """It may be claimed a moment ago, or another program's; a log is in the folder itself."""
    (job / "rank1.json").write_text(text, encoding="utf-8")
    says(job, "rank2", "../rank2.jsonl")
    assert processes_in(job) == []
    assert len(logs_in(job)) == 12
