"""What lies in a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.choice import Kind
from loadeval.backends.data import find_data
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def test_subfolders_are_classes(tmp_path: Path) -> None:
    """The samples come in the order of their paths, with the number of their folder."""
    data = find_data(fill(tmp_path, "cat/2.JPG", "cat/1.png", "dog/1.jpeg", "dog/notes.md"))
    assert data.kind is Kind.IMAGES
    assert [path[len(str(tmp_path)) + 1 :] for path, _ in data.samples] == [
        "cat/1.png",
        "cat/2.JPG",
        "dog/1.jpeg",
    ]
    assert [label for _, label in data.samples] == [0, 0, 1]
    assert (data.classes, set(data.suffixes)) == (2, {".jpg", ".jpeg", ".png"})


def test_a_folder_without_classes_has_one(tmp_path: Path) -> None:
    assert find_data(fill(tmp_path, "1.jpg", "2.jpg")).classes == 1


def test_the_kind_is_that_of_most_files(tmp_path: Path) -> None:
    """A stray file does not change what a folder is."""
    assert find_data(fill(tmp_path, "1.jpg", "2.jpg", "notes.txt")).kind is Kind.IMAGES


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "has no file that is known, of 0"),
        (["a.md"], "has no file that is known, of 1"),
        (["a.tar"], "have no images: a.tar: ReadError: empty file"),
    ],
)
def test_a_folder_without_data_is_one_error(tmp_path: Path, names: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_data(fill(tmp_path, *names))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        find_data(fill(tmp_path, "1.jpg") / "1.jpg")


def test_files_that_are_measured_are_the_same_each_time(tmp_path: Path) -> None:
    """They are drawn at random from all, and stay in their order."""
    data = find_data(fill(tmp_path, *(f"{number:03}.jpg" for number in range(100))))
    drawn = data.chosen(10)
    assert drawn == data.chosen(10) == sorted(drawn)
    assert len(drawn) == 10
    assert data.chosen(100) == list(data.samples)
