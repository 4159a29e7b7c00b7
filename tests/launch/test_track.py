"""`loadeval run --track`: the training loader of a program that nobody edited is tracked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from loadeval import LoadevalWarning, UsageError
from loadeval.launch import session as module
from loadeval.launch.session import Session
from loadeval.launch.settings import RunSettings, check
from tests.cli.commands import runner
from tests.launch.conftest import PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

    from tests.launch.conftest import Launch


def test_the_processes_are_told_the_tracker() -> None:
    """By their environment, as all settings."""
    settings = RunSettings("logs", track="mlflow")
    assert RunSettings.from_environment(settings.environment()) == settings


def test_an_unknown_tracker_is_refused(tmp_path: Path) -> None:
    """Before the command is run."""
    with pytest.raises(UsageError, match="track is 'comet'; expected one of mlflow, wandb, tens"):
        check(RunSettings("", track="comet"))
    mark = tmp_path / "mark"
    code, _, err = runner("run")("--track", "comet", "--", "touch", mark)
    assert (code, "track is 'comet'" in err, mark.exists()) == (1, True, False)


def test_one_loader_is_tracked(tmp_path: Path) -> None:
    """The first one that trains; scalars of two would be mixed."""
    session = Session(RunSettings(str(tmp_path), track="tensorboard"))
    assert [session._tracker_once() for _ in range(2)] == ["tensorboard", None]


def test_without_its_package_the_run_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program may have an environment of its own, and goes on."""
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    session = Session(RunSettings(str(tmp_path), track="mlflow"))
    with pytest.warns(LoadevalWarning, match="so this run is not tracked; .*pip install mlflow"):
        assert session._tracker_once() is None


@pytest.mark.check
def test_a_program_is_tracked(launch: Launch) -> None:
    """Its training loader is, and its validation loader is not; what it prints is the same."""
    command = [sys.executable, str(PROGRAM)]
    plain, done = launch(command, "--output", "plain"), launch(command, "--track", "tensorboard")
    assert (done.code, done.out) == (0, plain.out), done.err
    (folder,) = (done.folder.parent / "runs").iterdir()
    assert "rank0" in folder.name
