"""Folders with the logs of ranks, which every command that reads runs tells as one job.

The files in tests/golden have what it says of two jobs.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.commands import runner
from tests.recordings import laid_out
from tests.runs.given import write_run
from tests.runs.measured import record
from tests.runs.ranks import MS, runs_of, train

compare = runner("compare")


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Path:
    """The logs of three ranks, in a folder."""
    return tmp_path / laid_out("ranks", tmp_path)[0]


def test_a_limit_is_for_a_job_that_alternated(job: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    alternated = tmp_path / "other" / laid_out("ranks-alternate", tmp_path / "other")[0]
    assert compare(alternated, "--fail-above", "5")[0] == 3
    assert compare(job, "--fail-above", "5")[0] == 2


def test_the_logs_themselves_are_told_as_their_folder_is(job: Path) -> None:
    told = [json.loads(compare(*given, "--json")[1]) for given in ([job], job.iterdir())]
    assert told[0]["job"]["ranks"] == told[1]["job"]["ranks"]


def test_many_ranks_fit_on_a_screen(tmp_path: Path) -> None:
    """In full only the costliest 64 have a row."""
    waits_ns = np.random.default_rng(0).exponential(0.1 * MS, (120, 40)).astype(np.int64)
    for run in runs_of(train(waits_ns)):
        write_run(run, tmp_path / f"{run.header.name}.jsonl")
    assert len(compare(tmp_path)[1].splitlines()) <= 25
    assert len(re.findall(r"^\d+ +node0 ", compare(tmp_path, "--full")[1], re.MULTILINE)) == 64


def test_other_loaders_of_the_ranks_are_not_the_job(job: Path) -> None:
    """Their logs have more in their names."""
    before = compare(job)[1]
    for name in ("rank0-validation", "rank0-2", "rank1-validation"):
        shutil.copy(job / "rank0.jsonl", job / f"{name}.jsonl")
    assert compare(job)[1] == before


def test_two_jobs_are_compared_as_two_runs_are(job: Path) -> None:
    shutil.copytree(job, job.with_name("again"))
    assert " the baseline" in compare(job, job.with_name("again"))[1].splitlines()[0]


def test_what_is_no_job(tmp_path: Path, job: Path) -> None:
    for name in ("one", "other"):
        record(tmp_path / f"{name}.jsonl")
    code, out, err = compare(tmp_path)
    assert (code, out) == (1, "")
    assert "has 2 run logs, which are not of the ranks of one job" in err
    (job / "rank0.jsonl").unlink()
    out = " ".join(compare(job)[1].split())
    assert "Caution: The logs of 1 of 3 ranks are missing (0)" in out
