"""A setting that a loader does not take, in a program of `loadeval run`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import UsageError
from loadeval.launch.session import Session
from loadeval.launch.settings import RunSettings
from tests.launch.conftest import PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

    from tests.launch.conftest import Launch

MESSAGE = "this DataLoader has no num_threads that can be changed"
ENDING = """
from loadeval.launch.session import RefusedError
from loadeval import UsageError
try:
    raise RefusedError(UsageError("no num_threads"))
except Exception as error:
    print(error)
    raise
"""


def refused(folder: Path, *, of_command: bool) -> UsageError:
    session = Session(RunSettings(str(folder), settings={"num_threads": 2}), of_command=of_command)
    loader: DataLoader[Any] = DataLoader(TensorDataset(torch.arange(8.0)), 4)
    with pytest.raises(UsageError, match=MESSAGE) as raised:
        session.epoch(loader, loader.__iter__)
    session.close()
    return raised.value


@pytest.mark.parametrize("of_command", [True, False])
def test_the_command_is_told(of_command: bool, tmp_path: Path) -> None:
    """In a process that called install() the error has its traceback: there it is an argument."""
    error = refused(tmp_path, of_command=of_command)
    assert (tmp_path / ".refused").read_text().startswith(MESSAGE)
    assert isinstance(error, SystemExit) is of_command


def test_a_program_that_ends_with_it_says_one_line() -> None:
    """It can be caught like any other error."""
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "no num_threads\n")
    assert done.stderr == "Error: no num_threads\n"


@pytest.mark.check
def test_a_command_with_such_a_setting_says_one_line(launch: Launch) -> None:
    """Beside where the logs are."""
    done = launch([sys.executable, str(PROGRAM)], "--set", "num_threads=2")
    _, line = done.err.splitlines()
    assert line.startswith(f"Error: {MESSAGE}")
    assert done.code == 1
    assert not done.folder.exists()
