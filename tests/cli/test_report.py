"""`loadeval report`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import runner
from tests.runs.measured import record

Logs = tuple[Path, Path]
run = runner("report")


@pytest.fixture(name="logs")
def _logs(tmp_path: Path) -> Logs:
    """Run logs of a real and an ideal run: steps of 10 ms, after waits of 30 ms and of none."""
    return record(tmp_path / "real.jsonl", "log"), record(tmp_path / "ideal.jsonl", "replay")


def test_the_page_goes_beside_the_first_run(logs: Logs) -> None:
    page = logs[0].with_name("real.html")
    assert run(*logs) == (0, f"Page written to {page}\n", "")
    assert "training would be 4.00x as fast" in page.read_text("utf-8")


def test_an_earlier_page_is_replaced(logs: Logs) -> None:
    page = logs[0].with_name("real.html")
    assert run(logs[0])[0] == run(logs[0])[0] == 0
    page.write_text("my thesis")
    code, out, err = run(logs[0])
    assert (code, out) == (1, "")
    assert "already exists and is no page that loadeval report wrote" in err
    assert page.read_text() == "my thesis"


def test_a_page_that_cannot_be_written_exits_with_1(logs: Logs, tmp_path: Path) -> None:
    code, out, err = run(logs[0], "-o", tmp_path / "none" / "page.html")
    assert (code, out) == (1, "")
    assert "cannot write the page" in err
    assert err.count("\n") == 1
