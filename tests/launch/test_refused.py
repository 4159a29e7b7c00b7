"""A setting that a loader does not take, in a program of `loadeval run`."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import UsageError
from loadeval.launch.loadeval_inject import REFUSED_MARK
from loadeval.launch.refused import is_shown
from loadeval.launch.session import Session
from loadeval.launch.settings import RunSettings
from tests.launch.conftest import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.launch.conftest import Launch

MESSAGE = "this DataLoader has no num_worker that can be changed"


@pytest.fixture(autouse=True)
def _as_python_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook that shows what a program ends with."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Of a program of `loadeval run --set num_worker=2`."""
    session = Session(RunSettings(str(tmp_path), settings={"num_worker": 2}), of_command=True)
    yield session
    session.close()


def refused(session: Session) -> UsageError:
    loader: DataLoader[Any] = DataLoader(TensorDataset(torch.arange(8.0)), 4)
    with pytest.raises(UsageError, match=MESSAGE) as raised:
        session.epoch(loader, DataLoader.__iter__)
    return raised.value


def ends_with(error: BaseException) -> None:
    """Do what Python does where nothing catches `error`."""
    sys.excepthook(type(error), error, error.__traceback__)


def test_a_program_that_ends_with_it_says_one_line(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the command need not say it again."""
    error = refused(session)
    assert not is_shown(tmp_path)
    ends_with(error)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: {MESSAGE}")
    assert is_shown(tmp_path)


def test_the_last_of_several_is_shown(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    """The program has caught the others."""
    first, last = refused(session), refused(session)
    ends_with(last)
    assert len(capsys.readouterr().err.splitlines()) == 1
    ends_with(first)
    assert capsys.readouterr().err.startswith("Traceback")


def test_another_error_has_its_traceback(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one that the program raises where it has caught ours."""
    refused(session)
    gc.collect()
    ends_with(ValueError("no such file"))
    assert capsys.readouterr().err == "ValueError: no such file\n"
    assert not is_shown(tmp_path)


def test_the_programs_own_hook_stays(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: seen.append(error))
    error = refused(session)
    ends_with(error)
    assert [value for _, value, _ in seen] == [error]


def test_who_installs_has_the_traceback(tmp_path: Path) -> None:
    """There `settings` are an argument in the program itself."""
    session = Session(RunSettings(str(tmp_path), settings={"num_worker": 2}))
    refused(session)
    assert sys.excepthook is sys.__excepthook__
    session.close()


def test_a_folder_that_is_gone(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is still shown."""
    error = refused(session)
    (tmp_path / REFUSED_MARK).unlink()
    tmp_path.rmdir()
    ends_with(error)
    assert MESSAGE in capsys.readouterr().err
    assert not is_shown(tmp_path)
    tmp_path.mkdir()


@pytest.mark.check
def test_a_command_with_such_a_setting_says_one_line(launch: Launch) -> None:
    """Beside where the logs are."""
    done = launch([sys.executable, str(PROGRAM)], "--set", "num_worker=2")
    _, line = done.err.splitlines()
    assert line.startswith(f"Error: {MESSAGE}")
    assert done.code == 1
    assert not done.folder.exists()
