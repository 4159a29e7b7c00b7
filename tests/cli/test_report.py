"""`loadeval report`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from loadeval.cli.main import app
from loadeval.evaluator import LoaderEvaluator
from loadeval.testing import FakeClock, ScriptedLoader

MS = 1_000_000
Logs = tuple[Path, Path]
HEAVY = {"plotly", "jinja2"}


@pytest.fixture(name="logs")
def _logs(tmp_path: Path) -> Logs:
    """Run logs of a real and an ideal run: steps of 10 ms, after waits of 30 ms and of none."""
    return record(tmp_path / "real.jsonl", "log"), record(tmp_path / "ideal.jsonl", "replay")


def record(path: Path, mode: str) -> Path:
    clock = FakeClock()
    loader = ScriptedLoader([np.zeros((4, 2))] * 30, [30 * MS] * 30, clock)
    with LoaderEvaluator(loader, mode, 2, log_file=path, unit="images", clock=clock) as evaluator:
        for _ in evaluator:
            clock.advance(10 * MS)
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command, run in this process."""
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_the_page_goes_beside_the_first_run(logs: Logs) -> None:
    """Under its name, and the path is told."""
    page = logs[0].with_name("real.html")
    assert run(*logs) == (0, f"Page written to {page}\n", "")
    assert "training would be 4.00x as fast" in page.read_text("utf-8")


def test_the_page_goes_where_asked(logs: Logs, tmp_path: Path) -> None:
    """The page says by which commands it was made."""
    page = tmp_path / "a page.html"
    code, out, _ = run(logs[0], "-o", page)
    assert (code, out) == (0, f"Page written to {page}\n")
    text = page.read_text("utf-8")
    assert f"loadeval report {logs[0]} -o &#39;{page}&#39;" in text
    assert f"loadeval show {logs[0]}" in text


def test_two_that_loaded_are_backends(logs: Logs, tmp_path: Path) -> None:
    """As for compare."""
    other = record(tmp_path / "other.jsonl", "log")
    assert run(logs[0], other)[0] == 0
    assert "Backends side by side" in logs[0].with_name("real.html").read_text("utf-8")


def test_an_earlier_page_is_replaced(logs: Logs) -> None:
    """And nothing else is."""
    page = logs[0].with_name("real.html")
    assert run(logs[0])[0] == run(logs[0])[0] == 0
    page.write_text("my thesis")
    code, out, err = run(logs[0])
    assert (code, out) == (1, "")
    assert "already exists and is no page that loadeval report wrote" in err
    assert page.read_text() == "my thesis"


@pytest.mark.parametrize(
    ("output", "message"),
    [("page.pdf", ".html was expected"), ("none/page.html", "cannot write the page")],
)
def test_a_page_that_cannot_be_written_exits_with_1(
    logs: Logs, tmp_path: Path, output: str, message: str
) -> None:
    """The message goes to stderr, in one line."""
    code, out, err = run(logs[0], "-o", tmp_path / output)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_runs_that_cannot_be_told_exit_with_1(logs: Logs, tmp_path: Path) -> None:
    """Not there, no run log, the same one twice, the other way round."""
    text = tmp_path / "text.jsonl"
    text.write_text("no log")
    for runs, message in (
        ([tmp_path / "none.jsonl"], "cannot read"),
        ([text], "is not JSON"),
        ([logs[0], logs[0]], "the same file was given twice"),
        ([logs[1], logs[0]], "the other way round"),
    ):
        code, out, err = run(*runs)
        assert (code, out) == (1, "")
        assert message in err
        assert err.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))


def test_no_run_is_wrong_usage() -> None:
    """Exit code 2."""
    code, out, err = run()
    assert (code, out) == (2, "")
    assert "RUN" in err


@pytest.mark.parametrize("arguments", ["['--help']", "['report', '--help']"])
def test_help_imports_neither_plotly_nor_jinja(arguments: str) -> None:
    """They come with the first page."""
    script = (
        "import sys; from loadeval.cli.main import app\n"
        f"try: app({arguments})\n"
        "except SystemExit: pass\n"
        "print(sorted(name for name in sys.modules if name in ('plotly', 'jinja2')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_importing_loadeval_imports_neither() -> None:
    """Nor does using it without a page."""
    script = "import sys, loadeval, loadeval.report.html.page; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(done.stdout.split())
