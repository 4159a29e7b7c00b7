"""The folder of JPEGs that the demo trains on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from loadeval.demo.photographs import ROTATIONS, make_photographs
from loadeval.errors import LoadevalError

if TYPE_CHECKING:
    from pathlib import Path


def test_photographs_are_jpegs(tmp_path: Path) -> None:
    """Of about 500 pixels a side, no two the same, as many in the folder of each rotation."""
    paths = make_photographs(tmp_path, 12)
    for path in paths:
        with Image.open(path) as photograph:
            assert photograph.format == "JPEG"
            assert all(450 <= side <= 550 for side in photograph.size)
    assert Counter(path.parent.name for path in paths) == dict.fromkeys(ROTATIONS, 3)
    assert sorted(paths) == sorted(tmp_path.glob("*/*.jpg"))
    assert len({path.read_bytes() for path in paths}) == 12


def test_complete_files_are_kept(tmp_path: Path) -> None:
    """A file that ends as a JPEG does is not written again."""
    first, *_ = make_photographs(tmp_path, 4)
    marked = first.read_bytes()[:-2] + b"marked\xff\xd9"
    first.write_bytes(marked)
    make_photographs(tmp_path, 4)
    assert first.read_bytes() == marked


def test_broken_files_are_made_again(tmp_path: Path) -> None:
    """A file that was cut short, and one that is missing, are made as they were."""
    first, second, *_ = make_photographs(tmp_path, 4)
    whole = first.read_bytes(), second.read_bytes()
    first.write_bytes(whole[0][:1000])
    second.unlink()
    make_photographs(tmp_path, 4)
    assert (first.read_bytes(), second.read_bytes()) == whole


def test_photograph_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matplotlib packaged without its photograph is told, with what to do."""
    gone = tmp_path / "gone.jpg"
    monkeypatch.setattr("matplotlib.cbook.get_sample_data", lambda *_, **__: gone)
    with pytest.raises(LoadevalError, match=r"gone\.jpg.*reinstall matplotlib"):
        make_photographs(tmp_path, 1)
