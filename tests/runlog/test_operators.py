"""What operators did, in a run log and back."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadeval import OperatorTimes, RunLogError, read_run
from loadeval.runlog.log_file.codec import decode, encode
from loadeval.runlog.log_file.writer import RunLog, write_metrics
from tests.runs.given import make_header, run_of

if TYPE_CHECKING:
    from pathlib import Path

COUNTS = st.integers(0, 2**62 - 1)
LINES = st.builds(
    OperatorTimes,
    operator=st.text(),
    **{
        field.name: st.none() | COUNTS if field.default is None else COUNTS
        for field in fields(OperatorTimes)
        if field.name != "operator"
    },
)
LINE = OperatorTimes(0, "decode", 1, 900, 500, tasks=3, task_ns=70, concurrency=2)


@given(LINES)
def test_a_line_comes_back_as_it_was(line: OperatorTimes) -> None:
    assert decode(encode(line)) == line


@pytest.mark.parametrize(
    ("name", "value"), [("tasks", None), ("tasks", -1), ("run_ns", 1.5), ("operator", 3)]
)
def test_what_is_no_count_or_name_is_an_error(name: str, value: Any) -> None:
    with pytest.raises(RunLogError, match=f"as '{name}', where"):
        decode({**encode(LINE), name: value})


def test_its_moment_counts_from_the_start_of_the_run() -> None:
    moved = LINE.since(400)
    assert (moved.time_ns, moved.elapsed_ns, moved.task_ns) == (500, 500, 70)


def test_a_run_has_the_lines_of_its_log(tmp_path: Path) -> None:
    """It has those of a metrics file too."""
    log = RunLog(tmp_path / "run.jsonl", make_header())
    log.write(LINE)
    log.end(0)
    assert read_run(log.path).operators == (LINE,)
    run = run_of(operators=(LINE,))
    write_metrics(run, tmp_path / "metrics.json")
    assert read_run(tmp_path / "metrics.json").operators == (LINE,)
    assert np.array_equal(run.steps.wait_ns, [])
