"""`loadeval demo`: what it prints, and what it says when it cannot run."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from loadeval.cli.main import app
from loadeval.data.log import read_run
from loadeval.demo.run import run_demo
from loadeval.estimate.gap import gap
from loadeval.estimate.verdict import verdict

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

# From Python 3.12 on, forking a process in which torch has threads gives this warning.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["demo", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def printed(folder: Path) -> list[str]:
    small = partial(run_demo, photographs=512, epochs=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loadeval.demo.run.run_demo", small)
        result = run("--output", folder)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


@pytest.mark.check
def test_verdict(folder: Path, printed: list[str]) -> None:
    """The verdict printed is the one that follows from the log."""
    run = read_run(folder / "run.jsonl")
    found = verdict(gap(run), run)
    assert any(line.startswith(found.level.capitalize()) for line in printed)


@pytest.mark.check
def test_files_are_named(folder: Path, printed: list[str]) -> None:
    """The last lines tell what prints more, makes a page, and is the figure."""
    log, figure = folder / "run.jsonl", folder / "comparison.png"
    assert printed[-3:] == [
        f"More: loadeval compare {log} --full; as a page: loadeval report {log}",
        "",
        f"Figure written to {figure}",
    ]
    assert log.is_file()
    assert figure.is_file()


@pytest.mark.check
def test_bars(printed: list[str]) -> None:
    """There is a bar for each stage, and all are full."""
    text = "\n".join(printed)
    assert "512/512" in text
    assert "48/48" in text


@pytest.mark.check
def test_replacing(
    folder: Path,
    printed: list[str],  # noqa: ARG001 - so that there is an earlier demo
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second demo in the folder says that it replaces the first one's files."""
    monkeypatch.setattr("loadeval.demo.run.run_demo", _interrupted)
    first, *_ = run("--output", folder).stdout.splitlines()
    assert first == "Replacing run.jsonl, comparison.png of an earlier demo."


def test_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends it with exit code 130 and one line."""
    monkeypatch.setattr("loadeval.demo.run.run_demo", _interrupted)
    result = run("--output", tmp_path)
    assert result.exit_code == 130
    assert result.stderr == "Interrupted.\n"


def test_not_a_folder(tmp_path: Path) -> None:
    """An output that cannot be a folder is one line of error."""
    file = tmp_path / "file"
    file.write_text("")
    result = run("--output", file)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: cannot write to {file}: ")
    assert result.stderr.count("\n") == 1


def test_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a CUDA device it says in one line what to do, and makes nothing."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = run("--output", tmp_path / "demo", "--device", "cuda")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: cannot train on a GPU: torch ")
    assert result.stderr.endswith("or train on the CPU with --device cpu\n")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "demo").exists()


def test_device_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains on the CPU unless told otherwise."""
    devices: list[object] = []

    def train(*_: object, device: object) -> None:
        devices.append(device)
        _interrupted()

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("loadeval.demo.run.run_demo", train)
    for options in ([], ["--device", "cuda"]):
        assert run("--output", tmp_path, *options).exit_code == 130
    assert devices == ["cpu", "cuda"]


# What imports torch in a process of its own takes seconds.
SLOW = [pytest.param(package, marks=pytest.mark.check) for package in ("PIL", "matplotlib")]


@pytest.mark.parametrize("package", ["torch", *SLOW])
def test_package_missing(package: str, tmp_path: Path) -> None:
    """Without one of these it says in one line what to install, and makes nothing."""
    result = _in_python_without(package, "demo", "--output", str(tmp_path / "demo"))
    assert result.returncode == 1
    assert f"{package} is not installed" in result.stderr
    assert 'pip install "loadeval[demo]"' in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("package", ["torch", "PIL"])
def test_help_without(package: str) -> None:
    """Help needs neither torch nor Pillow."""
    result = _in_python_without(package, "demo", "--help")
    assert result.returncode == 0
    assert "--output" in result.stdout
    assert "loadeval-demo" in result.stdout


def _interrupted(*_: object, **__: object) -> None:
    signal.raise_signal(signal.SIGINT)


def _in_python_without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.modules[{package!r}] = None; from loadeval.cli.main import app; app()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
