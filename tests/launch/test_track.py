"""`loadeval run --track`: the training loader of a program that nobody edited is tracked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from loadeval import UsageError
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


@pytest.mark.check
def test_a_program_is_tracked(launch: Launch) -> None:
    """Its training loader is, and its validation loader is not; what it prints is the same."""
    command = [sys.executable, str(PROGRAM)]
    plain, done = launch(command, "--output", "plain"), launch(command, "--track", "tensorboard")
    assert (done.code, done.out) == (0, plain.out), done.err
    (folder,) = (done.folder.parent / "runs").iterdir()
    assert "rank0" in folder.name
