"""A program of `loadeval run` that ends: what it shows of why, as without loadeval."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval.launch.loadeval_inject import ENDED_MARK
from loadeval.launch.session import Session
from loadeval.launch.settings import RunSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _as_python_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook that shows what a program ends with."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)


@pytest.fixture(name="session")
def _session(tmp_path: Path) -> Iterator[Session]:
    session = Session(RunSettings(str(tmp_path)), of_command=True)
    loader: DataLoader[Any] = DataLoader(TensorDataset(torch.arange(8)), 4)
    assert session.epoch(loader, loader.__iter__) is not None
    yield session
    session.close()


@pytest.mark.parametrize(
    ("error", "is_ended", "shown"),
    [
        (KeyboardInterrupt(), True, ""),
        (KeyboardInterrupt(), False, "KeyboardInterrupt\n"),
        (ValueError("no such file"), True, "ValueError: no such file\n"),
    ],
)
def test_the_ctrl_c_of_loadeval_has_no_traceback(
    error: BaseException,
    is_ended: bool,
    shown: str,
    session: Session,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was said. Whatever else ends the program has one."""
    if is_ended:
        (session.folder / ENDED_MARK).touch()
    sys.excepthook(type(error), error, None)
    assert capsys.readouterr().err == shown


def test_the_hook_is_pythons_again(session: Session) -> None:
    session.close()
    assert sys.excepthook is sys.__excepthook__


def test_the_programs_own_hook_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def own(*_: object) -> None: ...

    monkeypatch.setattr(sys, "excepthook", own)
    session = Session(RunSettings(str(tmp_path)), of_command=True)
    loader: DataLoader[Any] = DataLoader(TensorDataset(torch.arange(8)), 4)
    assert session.epoch(loader, loader.__iter__) is not None
    assert sys.excepthook is own
    session.close()
