"""Folders with the logs of ranks, which every command that reads runs tells as one job."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadeval import Run
from tests.cli.commands import runner
from tests.runs.given import write_run
from tests.runs.measured import record
from tests.runs.ranks import MS, runs_of, train, train_in_pairs

compare = runner("compare")


def folder_of(runs: Sequence[Run], folder: Path) -> Path:
    folder.mkdir()
    for run in runs:
        write_run(run, folder / f"{run.header.name}.jsonl")
    return folder


def waits(ranks: int = 4, batches: int = 160) -> Any:
    """Rank 2 waits for every other batch."""
    wait_ns = np.random.default_rng(0).exponential(0.1 * MS, (ranks, batches)).astype(np.int64)
    wait_ns[2, ::2] += 30 * MS
    return wait_ns


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Path:
    return folder_of(runs_of(train(waits()), 2), tmp_path / "job")


@pytest.fixture(name="alternated")
def _alternated(tmp_path: Path) -> Path:
    training, arm, pair = train_in_pairs(waits(batches=480))
    return folder_of(runs_of(training, 2, arm=arm, pair=pair), tmp_path / "alternated")


def test_a_job_that_alternated_has_a_verdict(alternated: Path, job: Path) -> None:
    """Which can be gated; that of a job that logged cannot."""
    code, out, _ = compare(alternated, "--fail-above", "5")
    assert code == 3
    assert out.startswith("Moderately input-bound: training would be 1.17x as fast")
    assert "Stragglers: rank 2 on node1" in out
    assert compare(job, "--fail-above", "5")[0] == 2


def test_json_has_the_job_and_its_ranks(job: Path) -> None:
    """The logs themselves are told as their folder is."""
    told = json.loads(compare(job, "--json")[1])
    assert told["job"]["stragglers"]["ranks"] == [2]
    assert [rank["rank"] for rank in told["job"]["ranks"]] == [0, 1, 2, 3]
    logs = [job / f"rank{rank}.jsonl" for rank in range(4)]
    assert json.loads(compare(*logs, "--json")[1])["job"]["ranks"] == told["job"]["ranks"]


def test_many_ranks_fit_on_a_screen(tmp_path: Path) -> None:
    """In full only the costliest 64 have a row."""
    many = folder_of(runs_of(train(waits(120, 40))), tmp_path / "many")
    assert len(compare(many)[1].splitlines()) <= 25
    assert len(re.findall(r"^\d+ +node0 ", compare(many, "--full")[1], re.MULTILINE)) == 64


def test_other_loaders_of_the_ranks_are_not_the_job(job: Path) -> None:
    """Their logs have more in their names."""
    before = compare(job)[1]
    for name in ("rank0-validation", "rank0-2", "rank1-validation"):
        shutil.copy(job / "rank0.jsonl", job / f"{name}.jsonl")
    assert compare(job)[1] == before


def test_two_jobs_are_compared_as_two_runs_are(job: Path, tmp_path: Path) -> None:
    slower = folder_of(runs_of(train(waits() + 20 * MS), 2), tmp_path / "slower")
    assert compare(job, slower)[1].startswith("Slower than the baseline: 0.")


def test_what_is_no_job(tmp_path: Path, job: Path) -> None:
    for name in ("one", "other"):
        record(tmp_path / f"{name}.jsonl")
    code, out, err = compare(tmp_path)
    assert (code, out) == (1, "")
    assert "has 2 run logs, which are not of the ranks of one job" in err
    (tmp_path / "empty").mkdir()
    assert "there is no run log in" in compare(tmp_path / "empty")[2]
    (job / "rank0.jsonl").unlink()
    out = " ".join(compare(job)[1].split())
    assert "Caution: The logs of 1 of 4 ranks are missing (0)" in out
