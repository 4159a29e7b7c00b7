"""Where a program made its DataLoader."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from torch.utils.data import DataLoader, TensorDataset

import loadeval
from loadeval.launch.made_at import made_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Own(DataLoader[Any]):
    pass


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path) -> Iterator[None]:
    loadeval.install(output=tmp_path / "logs")
    yield
    loadeval.uninstall()


@pytest.mark.parametrize("kind", [DataLoader, Own])
def test_it_is_the_users_line(kind: Any) -> None:
    """Its file and line, of a subclass too."""
    loader = kind(TensorDataset())
    place = made_at(loader)
    assert place is not None
    assert place.file == __file__
    assert place.line == test_it_is_the_users_line.__code__.co_firstlineno + 3


def test_code_without_a_file_is_no_place() -> None:
    """Such as what a notebook or exec() runs: nothing could be changed there."""
    scope: dict[str, Any] = {"DataLoader": DataLoader, "dataset": TensorDataset()}
    exec(compile("loader = DataLoader(dataset)", "<cell>", "exec"), scope)
    place = made_at(scope["loader"])
    assert place is None or place.file == __file__


def test_frames_of_packages_are_passed() -> None:
    """Those of Python itself, and of what is installed; there may be none of the user."""
    place = made_at(Mock(side_effect=DataLoader)(TensorDataset()))
    assert place is not None
    assert place.file == __file__
    with ThreadPoolExecutor(1) as pool:
        loader: Any = pool.submit(DataLoader, TensorDataset()).result()
    assert made_at(loader) is None


def test_what_was_made_before_has_none() -> None:
    """Nobody noted it."""
    loadeval.uninstall()
    assert made_at(DataLoader(TensorDataset())) is None
