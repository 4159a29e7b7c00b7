"""Where in the program a loader was made."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from loadeval.adapter import PLACES, made_at
from loadeval.launch.hook import is_library, note_made

REBUILDERS = {"rebuilder"}
FILE = Path(__file__).name


class Loader:
    """It holds a dataset."""

    def __init__(self, dataset: Any = None) -> None:
        self.dataset = dataset


def line() -> int:
    return sys._getframe(1).f_lineno


def run_as(name: str, path: str, source: str, **names: Any) -> dict[str, Any]:
    """What a module of that name and file leaves."""
    space: dict[str, Any] = {"__name__": name, **names}
    exec(compile(source, path, "exec"), space)
    return space


def note(loader: Any) -> None:
    note_made(loader, sys._getframe(1), REBUILDERS)


def test_the_line_is_that_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is told from the working directory."""
    monkeypatch.chdir(Path(__file__).parent)
    loader = Loader()
    here = line() + 1
    note(loader)
    assert made_at(loader) == f"{FILE}:{here}"


def test_a_file_elsewhere_is_told_in_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So it is where there is no working directory."""
    monkeypatch.chdir(tmp_path)
    loader, other = Loader(), Loader()
    note(loader)
    monkeypatch.setattr(os, "getcwd", fails)
    note(other)
    assert str(made_at(loader)).startswith(f"{__file__}:")
    assert str(made_at(other)).startswith(f"{__file__}:")


def fails(*_: Any) -> Any:
    raise OSError


def test_libraries_are_passed_over() -> None:
    """What they make is made where the program calls them."""
    made = run_as("library", "/x/site-packages/library.py", "def make(note, x): note(x)")["make"]
    loader = Loader()
    here = line() + 1
    made(note, loader)
    assert str(made_at(loader)).endswith(f"{FILE}:{here}")


def test_what_is_made_again_was_made_where_the_first_was() -> None:
    """A package that makes loaders anew leaves the line of the first one of a dataset."""
    remade = run_as("rebuilder.loops", "/x/site-packages/loops.py", "def make(note, x): note(x)")
    dataset = Loader()
    first, again, strange = Loader(dataset), Loader(dataset), Loader(Loader())
    note(first)
    remade["make"](note, again)
    remade["make"](note, strange)
    assert made_at(again) == made_at(first) is not None
    assert made_at(strange) is None


def test_the_innermost_constructor_counts() -> None:
    """That of a subclass calls it, and is seen later."""
    loader = Loader()
    note(loader)
    first = made_at(loader)
    note(loader)
    assert made_at(loader) == first


def test_nothing_is_raised_and_nothing_kept() -> None:
    """An object without attributes, a dataset that takes no weak reference, one that is gone."""
    note(object())
    loader = Loader([1, 2])
    note(loader)
    number = id(loader)
    assert number in PLACES
    del loader
    assert number not in PLACES
    assert made_at([1, 2]) is None


def test_without_a_line_of_the_program_nothing_is_known() -> None:
    loader = Loader()
    note_made(loader, None, REBUILDERS)
    assert made_at(loader) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (os.__file__, True),
        ("<stdin>", True),
        ("/venv/lib/python3.11/site-packages/torch/a.py", True),
        ("/home/alice/train.py", False),
    ],
)
def test_files_of_libraries(path: str, expected: bool) -> None:
    assert is_library(path) is expected
