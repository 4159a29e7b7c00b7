"""`loadeval protocol --cold` finds what is planted in a real program: storage, or preparing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadeval.analysis.phases import Phase, phases_of
from loadeval.errors import UsageError
from loadeval.probes.page_cache import check_droppable
from loadeval.runlog.log_file.reader import read_run
from tests.launch.conftest import LOADEVAL

pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("cold_program.py")
BATCHES, SIZE = 60, 8


@pytest.mark.parametrize(
    ("size", "rounds", "most"),
    [(2_000_000, 0, Phase.STORAGE), (8_000, 300, Phase.PREPARATION)],
    ids=["storage", "preparation"],
)
def test_what_was_planted_is_found(
    size: int, rounds: int, most: Phase, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Large files on a real disk, or small ones that are hashed again and again."""
    folder = tmp_path_factory.mktemp("cold")
    try:
        check_droppable([folder / "x"])
    except UsageError as error:
        pytest.skip(str(error))
    data = folder / "data"
    data.mkdir()
    for number in range(BATCHES * SIZE):
        (data / f"{number}.bin").write_bytes(os.urandom(size))
    logs = folder / "logs"
    options = ["--cold", "--stop-after", "0", "--warm-up", "0", "--output", str(logs)]
    command = [sys.executable, str(PROGRAM), str(data), str(rounds)]
    subprocess.run(
        [sys.executable, *LOADEVAL, "protocol", *options, "--", *command], check=True, timeout=300
    )
    runs = [
        logs / name for name in ("cold/rank0.jsonl", "real/rank0.jsonl", "real/rank0-replay.jsonl")
    ]
    phases = phases_of(*map(read_run, runs))
    assert phases is not None
    assert phases.most is most
    assert phases.shares[most] > 0.5
