"""What holds for every command that reads runs."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.cli.commands import COMMAND, runner
from tests.runs.measured import record

READING = ["compare", "report", "whatif", "export", "watch"]


@pytest.mark.check
def test_the_package_is_the_command() -> None:
    command = [sys.executable, "-m", "loadeval"]
    done = subprocess.run([*command, "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"loadeval {metadata.version('loadeval')}\n"
    done = subprocess.run([*command, "whatif"], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Usage: loadeval whatif" in done.stderr


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


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        words = [COMMAND, "compare", record(tmp_path / "run.jsonl")]
        done = subprocess.run(words, check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "Error: No space left on device\n")


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
    command: str, program: str, code: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the exit code of a shell."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").touch()
    do = "expected a command as in a shell, such as -- python train.py"
    expected = code, "", f"Error: cannot run {program}: {why}; {do}\n"
    assert runner(command)("--", program) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
