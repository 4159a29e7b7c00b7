"""Ranks that `loadeval run` measures: one schedule, and no hang where ranks end or die apart."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.launch.conftest import Launched, launched, ran

pytestmark = pytest.mark.timeout(240)  # of two launches, each of which has a limit of its own

DDP = str(Path(__file__).with_name("scripts") / "ddp.py")
BATCHES, FEWER, LAST = 60, 9, 90
"""The same numbers as in ddp.py."""


def torchrun(ranks: int) -> list[str]:
    command = str(Path(sys.executable).with_name("torchrun"))
    return [command, "--standalone", f"--nproc-per-node={ranks}", DDP]


def bare(tmp_path: Path, command: list[str], *options: str) -> tuple[int, list[str]]:
    """Its exit code, and the losses of each rank."""
    folder = tmp_path / "bare"
    folder.mkdir()
    done = ran(tmp_path, *command, folder, *options)
    return done.returncode, losses_in(folder)


def alternated(tmp_path: Path, command: list[str], *options: str) -> tuple[Launched, list[str]]:
    """The same with us."""
    folder = tmp_path / "measured"
    folder.mkdir()
    done = launched(tmp_path, [*command, str(folder), *options], "--mode", "alternate")
    return done, losses_in(folder)


def losses_in(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())]


def test_all_ranks_switch_at_the_same_batch(tmp_path: Path) -> None:
    ranks = 4
    done, losses = alternated(tmp_path, torchrun(ranks))
    assert done.code == 0, done.err
    assert (0, losses) == bare(tmp_path, torchrun(ranks))
    assert done.batches == {f"rank{rank}.jsonl": 2 * BATCHES for rank in range(ranks)}
    first, *others = (done.run(log).steps for log in done.batches)
    assert set(first.arm.tolist()) == {0, 1}
    for other in others:
        assert other.arm.tolist() == first.arm.tolist()
        assert other.pair.tolist() == first.pair.tolist()
    printed = " ".join(done.err.split())
    assert "if loading were free" in printed or "Inconclusive" in printed


def test_ranks_of_unequal_lengths_do_not_hang(tmp_path: Path) -> None:
    """Inside `join`, where a rank that has ended goes along with the others."""
    ranks = 2
    done, losses = alternated(tmp_path, torchrun(ranks), "--join")
    assert done.code == 0, done.err
    assert (0, losses) == bare(tmp_path, torchrun(ranks), "--join")
    assert done.batches == {
        f"rank{rank}.jsonl": 2 * (BATCHES - rank * FEWER) for rank in range(ranks)
    }
    shortest = 2 * (BATCHES - (ranks - 1) * FEWER)
    assert f"Ranks have {shortest} to {2 * BATCHES} batches" in " ".join(done.err.split())


def test_a_rank_that_dies_ends_the_others_as_without_us(tmp_path: Path) -> None:
    """The exit code is the same; what was measured until then is told."""
    command = torchrun(2)
    done, _ = alternated(tmp_path, command, "--dies")
    code, _ = bare(tmp_path, command, "--dies")
    assert done.code == code
    assert code
    assert set(done.batches) == {"rank0.jsonl", "rank1.jsonl"}
    # The other rank may have asked for its next batch.
    assert all(0 < count <= LAST + 1 for count in done.batches.values())
    assert "rank1.jsonl  training" in done.err
    for process in done.processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
