"""Lightning's DDP, Fabric's and Accelerate's, in two real processes over gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loadeval import read_run

if TYPE_CHECKING:
    from collections.abc import Callable

    Train = Callable[[str], "Launch"]

SCRIPT = Path(__file__).with_name("ranks.py")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
FRAMEWORKS = ["lightning", "lightning by itself", "fabric", "accelerate"]
SAMPLES = 120
BATCHES = 15
"""The batches on each rank, in each of two epochs."""


@dataclass(frozen=True)
class Launch:
    """What the two ranks of one launch saw: their trainings, in the same order."""

    folder: Path
    ranks: list[list[dict[str, Any]]]

    def of(self, *modes: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """The trainings with us in one of `modes` that were not refused, on the two ranks."""
        pairs = zip(*self.ranks, strict=True)
        return [
            (first, second)
            for first, second in pairs
            if first["way"] and first["mode"] in modes and "error" not in first
        ]

    def without_us(self, name: str) -> list[Any]:
        """The traces of the bare training of that name, on the two ranks."""
        return [
            seen["trace"]
            for rank in self.ranks
            for seen in rank
            if seen["name"] == name and not seen["way"]
        ]


@pytest.fixture(scope="module", name="launched")
def _launched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Launch]:
    """Launches the ranks of a framework, once."""

    @cache
    def launch(framework: str) -> Launch:
        folder = tmp_path_factory.mktemp("ranks")
        how = () if framework == "lightning by itself" else TORCHRUN
        done = subprocess.run(
            [sys.executable, *how, str(SCRIPT), framework, str(folder)],
            env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr
        files = (folder / f"rank{rank}.json" for rank in (0, 1))
        return Launch(folder, [json.loads(file.read_text(encoding="utf-8")) for file in files])

    return launch


@pytest.mark.parametrize("framework", [*FRAMEWORKS, "accelerate's options"])
def test_each_rank_trains_the_same(framework: str, launched: Train) -> None:
    """Batches, their order, updates and parameters are those of the training without us."""
    launch = launched(framework)
    pairs = launch.of("log", "alternate")
    assert framework != "accelerate's options" or len(pairs) == 5 * 2
    for pair in pairs:
        assert [seen["trace"] for seen in pair] == launch.without_us(pair[0]["name"]), pair


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_ranks_share_the_data(framework: str, launched: Train) -> None:
    """Their samples in each epoch are the dataset's, none twice."""
    for pair in launched(framework).of("log", "alternate"):
        batches = [seen["trace"][0] for seen in pair]
        for epoch in (slice(BATCHES), slice(BATCHES, None)):
            numbers = [n for rank in batches for batch in rank[epoch] for n in batch]
            assert sorted(numbers) == list(range(SAMPLES)), pair


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_replay_takes_as_many_steps(framework: str, launched: Train) -> None:
    """An epoch of a replay is as long as the rank's part of the data."""
    launch = launched(framework)
    for pair in launch.of("replay"):
        bare = launch.without_us(pair[0]["name"])
        for seen, (batches, updates, _) in zip(pair, bare, strict=True):
            assert (len(seen["trace"][0]), seen["trace"][1]) == (len(batches), updates), seen


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_rank_has_a_run_log(framework: str, launched: Train) -> None:
    """It has a row for each batch that the rank trained on."""
    launch = launched(framework)
    for pair in launch.of("log", "replay", "alternate"):
        for rank, seen in enumerate(pair):
            name = f"{seen['name']}-{seen['way']}-{seen['mode']}-rank{rank}.jsonl"
            rows = read_run(launch.folder / name).steps.samples.tolist()
            assert rows == [len(batch) for batch in seen["trace"][0]], seen


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_ranks_switch_at_the_same_batch(framework: str, launched: Train) -> None:
    """Both serve the same arm at any time, and both arms."""
    pairs = launched(framework).of("alternate")
    assert pairs
    for first, second in pairs:
        assert first["arms"] == second["arms"]
        assert set(first["arms"]) == {0, 1}


def test_whatever_accelerate_builds_is_measured(launched: Train) -> None:
    """Each batch that a rank read; with dispatch_batches the first rank reads for all."""
    launch = launched("accelerate's options")
    for pair in launch.of("log", "replay", "alternate"):
        read = [len(seen["trace"][0]) for seen in pair]
        if pair[0]["name"] == "dispatch_batches":
            read = [sum(read), 0]
        assert [len(seen["arms"]) for seen in pair] == read, pair


def test_what_lightning_would_not_share_out_is_refused(launched: Train) -> None:
    """Wrapped, without a sampler of the user's, on every rank; with one it trains."""
    ranks = launched("lightning").ranks
    for rank in ranks:
        refused = [seen for seen in rank if "error" in seen]
        assert [(seen["name"], seen["way"]) for seen in refused] == [("fit", "wrapped")] * 2
        for seen in refused:
            assert "install(dataloader), or use a DistributedSampler" in seen["error"]
