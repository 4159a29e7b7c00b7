"""Folders with the logs of ranks, which every command that reads runs tells as one job."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.cli.commands import runner
from tests.runs.given import write_run
from tests.runs.measured import record
from tests.runs.ranks import MS, runs_of, train, train_in_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadeval import Run


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


def test_compare_tells_the_loss_of_the_job_and_its_straggler(job: Path) -> None:
    code, out, err = runner("compare")(job)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("4 ranks of one job waited for batches 14.4% of the time, at ")
    assert "4 ranks on 2 nodes; 160 batches measured on all." in out
    assert "Straggler: rank 2 on node1, last in " in out
    assert lines[-3] == f"straggler   loadeval compare {job / 'rank2.jsonl'} --full"
    assert "backend" not in out
    assert len(lines) <= 25


def test_compare_has_the_verdict_of_a_job_that_alternated(alternated: Path) -> None:
    code, out, _ = runner("compare")(alternated)
    assert code == 0
    assert out.startswith("Moderately input-bound: training would be 1.17x as fast")
    assert "Straggler: rank 2 on node1" in out
    assert len(out.splitlines()) <= 25
    full = runner("compare")(alternated, "--full")[1]
    assert "Findings, and what is inside the loader, are those of rank 2" in " ".join(full.split())


def test_a_job_can_be_gated(alternated: Path, job: Path) -> None:
    """Its verdict decides; without one it cannot."""
    assert runner("compare")(alternated, "--fail-above", "5")[0] == 3
    code, _, err = runner("compare")(job, "--fail-above", "5")
    assert code == 2
    assert "--fail-above needs" in err


@pytest.mark.parametrize("which", ["job", "alternated"])
def test_json_has_the_job_and_its_ranks(which: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(which)
    document = json.loads(runner("compare")(folder, "--json")[1])
    assert document["job"]["stragglers"]["kind"] == "some ranks"
    assert document["job"]["stragglers"]["ranks"] == [2]
    assert [rank["rank"] for rank in document["job"]["ranks"]] == [0, 1, 2, 3]
    assert ("verdict" in document) == (which == "alternated")


def test_the_logs_themselves_are_told_as_their_folder_is(job: Path) -> None:
    logs = [job / f"rank{rank}.jsonl" for rank in range(4)]
    of_logs, of_folder = (
        json.loads(runner("compare")(*paths, "--json")[1])["job"] for paths in (logs, [job])
    )
    assert of_logs == of_folder


def test_in_full_the_job_comes_before_its_figures(job: Path) -> None:
    out = runner("compare")(job, "--full")[1]
    assert out.index("Straggler: rank 2") < out.index("share waited")


def test_a_job_is_drawn(job: Path, tmp_path: Path) -> None:
    figure = tmp_path / "job.png"
    assert runner("compare")(job, "-o", figure)[0] == 0
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_the_page_of_a_job_is_in_its_folder(job: Path) -> None:
    """With a section of its ranks, which are not called backends."""
    assert runner("report")(job)[0] == 0
    text = (job / "report.html").read_text(encoding="utf-8").partition("<main")[2]
    page = text.partition("<script")[0]
    assert '<section id="ranks"' in page
    assert "rank 2" in page
    assert "backend" not in page.lower()
    logs = [job / f"rank{rank}.jsonl" for rank in range(4)]
    assert runner("report")(*logs, "-o", job / "again.html")[0] == 0


def test_the_page_of_many_ranks_has_a_dot_for_each(tmp_path: Path) -> None:
    many = folder_of(runs_of(train(waits(120, 40))), tmp_path / "many")
    assert runner("report")(many)[0] == 0
    page = (many / "report.html").read_text(encoding="utf-8")
    assert "the first 16 of 120" in page
    assert len(page) < 8e6
    out = runner("compare")(many)[1]
    assert len(out.splitlines()) <= 25
    assert "and 1" in out
    full = runner("compare")(many, "--full")[1]
    assert "and 56 more" in full


def test_a_folder_with_one_rank_is_that_run(job: Path, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    shutil.copy(job / "rank1.jsonl", folder / "rank1.jsonl")
    log = folder / "rank1.jsonl"
    of_folder, of_log = (runner("compare")(path, "--json")[1] for path in (folder, log))
    assert of_folder == of_log


def test_other_loaders_of_the_ranks_are_not_the_job(job: Path) -> None:
    """Their logs have more in their names."""
    before = runner("compare")(job)[1]
    for name in ("rank0-validation", "rank0-2", "rank1-validation"):
        shutil.copy(job / "rank0.jsonl", job / f"{name}.jsonl")
    assert runner("compare")(job)[1] == before


def test_two_jobs_are_compared_as_two_runs_are(job: Path, alternated: Path) -> None:
    out = runner("compare")(job, alternated)[1]
    assert "alternated" in out
    assert "2 backends under one training step" in out


def test_a_folder_of_other_runs_is_no_job(tmp_path: Path) -> None:
    for name in ("one", "other"):
        record(tmp_path / f"{name}.jsonl")
    code, out, err = runner("compare")(tmp_path)
    assert (code, out) == (1, "")
    assert "has 2 run logs, which are not of the ranks of one job" in err


def test_a_folder_without_logs_is_an_error(tmp_path: Path) -> None:
    code, _, err = runner("compare")(tmp_path)
    assert code == 1
    assert "there is no run log in" in err


def test_missing_ranks_are_a_caution(job: Path) -> None:
    (job / "rank0.jsonl").unlink()
    out = " ".join(runner("compare")(job)[1].split())
    assert "Caution: The logs of 1 of 4 ranks are missing (0)" in out
