"""What the documents say is so."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadeval.data.lines import decode
from loadeval.data.log import read_run
from loadeval.estimate import verdict
from loadeval.estimate.before_after import EQUAL_WITHIN, LEAST_CHANGE
from loadeval.estimate.verdict import HIGH_SHARE, MODERATE_SHARE
from tests.runs.measured import record

RUN_LOG = Path(__file__).parents[1] / "docs" / "run-log.md"
HOW_IT_MEASURES = RUN_LOG.with_name("how-it-measures.md")


def code_blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of `document` in `language`."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL
    )


@pytest.fixture
def run_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small run in run.jsonl, in the working folder: three epochs, the last broken off."""
    monkeypatch.chdir(tmp_path)
    waits_ns, batch = [30, 10, 20, 10, 10], np.zeros((4, 2), dtype=np.uint8)
    path = tmp_path / "run.jsonl"
    return record(path, waits_ns=waits_ns, step_ns=7, batch=batch, epochs=3, left_after={(2, 0)})


def test_the_code_that_reads_a_run_log_reads_it(
    run_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's code runs as it stands, and finds what read_run finds."""
    scope: dict[str, Any] = {}
    for block in code_blocks(RUN_LOG, "python"):
        exec(block, scope)
    steps = read_run(run_log).steps
    assert scope["wait_ns"].tolist() == steps.wait_ns.tolist()
    assert scope["epoch"].tolist() == steps.epoch.tolist()
    known = np.where(np.isnan(scope["step_ns"]), -1, scope["step_ns"])
    assert known.tolist() == steps.step_ns.tolist()
    assert steps.step_ns.tolist() == [7] * 10 + [-1]
    assert "11 batches, mean wait 0.00 ms" in capsys.readouterr().out


def test_the_example_lines_are_lines_of_a_run_log() -> None:
    """Each is read."""
    examples = code_blocks(RUN_LOG, "json")
    assert [decode(each.encode()).__class__.__name__ for each in examples] == [
        *("Header", "Block", "EpochEnd", "RunEnd")
    ]


def test_the_rules_of_an_inconclusive_verdict_are_all_there() -> None:
    """In the order in which they are asked."""
    rows = re.findall(r"^\| `([\w ]+)` \| [^|`]+ \|$", HOW_IT_MEASURES.read_text(), re.MULTILINE)
    code = inspect.getsource(verdict)
    asked = re.findall(r'^ {12}"([\w ]+)",$', code, re.MULTILINE)
    assert rows == ["not measured", *asked]


def test_the_thresholds_are_those_of_the_verdict() -> None:
    """The page's bounds are the code's."""
    text = HOW_IT_MEASURES.read_text()
    assert f"| {MODERATE_SHARE:.0%} and over | moderately input-bound |" in text
    assert f"| {HIGH_SHARE:.0%} and over | highly input-bound |" in text


def test_the_bounds_of_a_baseline_are_those_of_the_code() -> None:
    """From which ratio on a run is slower, faster or as fast."""
    text = (RUN_LOG.parent / "howto" / "ci-gate.md").read_text()
    said = (
        f'It is "Slower" if the whole CI is under {1 - LEAST_CHANGE:.2f}, "Faster" if above '
        f'{1 + LEAST_CHANGE:.2f}, "As fast" if within {1 - EQUAL_WITHIN:.2f} to '
        f"{1 + EQUAL_WITHIN:.2f}"
    )
    assert said in text
