"""A log that is followed: what time it told last."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.followed import FollowedRun
from loadeval.data import log
from loadeval.errors import RunLogError
from tests.runs.measured import record

if TYPE_CHECKING:
    from pathlib import Path

CODE = {"type": "code", "worker": 0, "running": {}, "blocked": {"data.py:31 read": 9}, "calls": {}}


def test_lines_without_a_time_do_not_end_a_silence(tmp_path: Path) -> None:
    """What a worker is seen doing is written while it hangs."""
    path = record(tmp_path / "run.jsonl", probes=())
    *lines, _ = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines))
    os.utime(path, (1_000, 1_000))
    followed = FollowedRun(path)
    assert followed.read()
    assert followed.quiet_ns(1_003) == 3_000_000_000
    with path.open("a") as file:
        file.write(json.dumps(CODE, separators=(",", ":")) + "\n")
    os.utime(path, (1_020, 1_020))
    assert followed.read()
    assert followed.quiet_ns(1_021) == 21_000_000_000
    assert followed.quiet_ns(990) == 0


def test_a_log_is_read_to_its_end_and_again_where_it_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many parts it has."""
    monkeypatch.setattr(log, "PART_BYTES", 300)
    path = tmp_path / "run.jsonl"
    followed = FollowedRun(path)
    assert not followed.read()
    record(path)
    assert followed.read()
    state = followed.run.state(0)
    assert state is not None
    assert (state.batches, state.ended) == (30, True)
    path.unlink()
    record(path, batches=5)
    assert followed.read()
    state = followed.run.state(0)
    assert state is not None
    assert state.batches == 5
    path.write_text("no log\n")
    with pytest.raises(RunLogError):
        followed.read()
