"""What holds for every command that reads runs."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import imported_by, runner
from tests.runs import DEMO
from tests.runs.measured import record

if TYPE_CHECKING:
    from pathlib import Path

READING = ["compare", "report", "whatif", "export", "watch"]
FRAMEWORKS = {"torch", "nvidia", "tensorboard", "pyarrow", "pandas"}
DRAWING = {"matplotlib", "jinja2"}


@pytest.mark.check
def test_the_package_is_the_command() -> None:
    """`python -m loadeval` is `loadeval`."""
    command = [sys.executable, "-m", "loadeval"]
    done = subprocess.run([*command, "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"loadeval {metadata.version('loadeval')}\n"
    done = subprocess.run([*command, "whatif"], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Usage: loadeval whatif" in done.stderr


@pytest.mark.parametrize("command", READING)
def test_no_run_is_wrong_usage(command: str) -> None:
    """At least one file is needed."""
    code, out, err = runner(command)()
    assert (code, out) == (2, "")
    assert "RUN" in err


@pytest.mark.parametrize("command", READING)
def test_what_cannot_be_read_exits_with_1(command: str, tmp_path: Path) -> None:
    """The message is one line on stderr that cannot steer the terminal; stdout has nothing."""
    good, bad = record(tmp_path / "good.jsonl"), tmp_path / "bad.jsonl"
    bad.write_text("no log\n")
    options = {"watch": ["--once"], "export": ["--format", "csv"]}.get(command, [])
    several = [good] if command in {"compare", "report"} else []
    for path, message in ((tmp_path / "\x1b[2J", r"\x1b[2J"), (bad, "bad.jsonl")):
        code, out, err = runner(command)(*several, path, *options)
        assert (code, out) == (1, "")
        assert err.startswith("Error: ")
        assert message in err
        assert "\x1b" not in err
        assert err.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize("command", ["diagnose", "run", "tune"])
@pytest.mark.parametrize(
    ("program", "code", "why"),
    [
        ("pyhton", 127, "No such file or directory"),
        ("./there", 126, "Permission denied"),
        ("train.py", 127, "a script needs a Python"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_is_made(
    command: str,
    program: str,
    code: int,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the exit code of a shell."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").touch()
    do = "expected a command as in a shell, such as -- python train.py"
    expected = code, "", f"Error: cannot run {program}: {why}; {do}\n"
    assert runner(command)("--", program) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_nothing_is_imported_that_a_command_does_not_need(tmp_path: Path) -> None:
    """No framework for any, and no library that draws unless something is drawn."""
    runs = [record(tmp_path / f"{mode}.jsonl", mode) for mode in ("log", "replay")]
    packages = imported_by(
        ["--help"],
        ["report", "--help"],
        ["compare", *runs],
        ["compare", runs[0], record(tmp_path / "other.jsonl")],
        ["export", runs[0], "-f", "chrome"],
        ["export", runs[0], "-f", "csv"],
        ["watch", runs[0], "--once"],
        ["backends", tmp_path],
        ["doctor"],
        ["whatif", DEMO],
    )
    assert not packages & (FRAMEWORKS | DRAWING)
