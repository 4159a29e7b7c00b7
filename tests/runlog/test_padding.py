"""Padding in a run log, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import RunLogError, read_run
from loadeval.runlog.log_file.codec import decode, encode
from loadeval.runlog.log_file.writer import RunLog, write_metrics
from loadeval.runlog.model import PaddedBatches
from tests.runs.given import make_header, run_of

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = ("batch", "positions", "padded", "length", "longest")
LINE = PaddedBatches(1, *(np.array([7, 8]) + place for place in range(len(COLUMNS))))


def same(line: Any) -> bool:
    return line.epoch == LINE.epoch and all(
        np.array_equal(getattr(line, name), getattr(LINE, name)) for name in COLUMNS
    )


def test_a_line_comes_back_as_it_was() -> None:
    assert same(decode(encode(LINE)))
    assert encode(LINE)["type"] == "padding"


@pytest.mark.parametrize("name", COLUMNS)
def test_each_column_has_a_number_for_each_batch(name: str) -> None:
    with pytest.raises(RunLogError, match="as many were expected"):
        decode({**encode(LINE), name: [1]})
    with pytest.raises(RunLogError, match=f"as '{name}', where"):
        decode({**encode(LINE), name: None})


def test_a_run_has_the_lines_of_its_log(tmp_path: Path) -> None:
    """It has those of a metrics file too; a log without any reads as before."""
    log = RunLog(tmp_path / "run.jsonl", make_header())
    assert read_run(log.path).padding == ()
    log.write(LINE)
    log.end(0)
    (line,) = read_run(log.path).padding
    assert same(line)
    run = run_of(mode="log", padding=(LINE,))
    write_metrics(run, tmp_path / "metrics.json")
    (line,) = read_run(tmp_path / "metrics.json").padding
    assert same(line)
