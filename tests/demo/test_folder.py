"""What the demo's folder may hold before a demo, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadeval.demo.folder import DemoFolder
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def with_results(root: Path) -> DemoFolder:
    folder = DemoFolder(root)
    for name in ("run.jsonl", "comparison.png"):
        (root / name).write_text("measured")
    return folder


def test_new_folder(tmp_path: Path) -> None:
    """A folder that is not there is made, with those above it; nothing is replaced."""
    folder = DemoFolder(tmp_path / "deep" / "down")
    assert folder.prepare() == []
    assert folder.photographs.is_dir()


def test_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    """`prepare` tells its files, `clear` removes them, and everything else stays."""
    DemoFolder(tmp_path).prepare()
    folder = with_results(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    assert folder.prepare() == [folder.run_log, folder.figure]
    assert folder.run_log.exists()
    folder.clear()
    assert {path.name for path in tmp_path.iterdir()} == {"photographs", "notes.txt"}


def test_measurements_of_others(tmp_path: Path) -> None:
    """A run log without photographs beside it is somebody's measurement, and is kept."""
    folder = with_results(tmp_path)
    with pytest.raises(UsageError, match=r"run\.jsonl already exists.*--output"):
        folder.clear()
    assert folder.run_log.read_text() == "measured"


def test_what_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    """A path that cannot be a folder, and a result that is no file and so cannot be removed."""
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match=r"cannot write to .*file.*--output"):
        DemoFolder(file).prepare()
    folder = DemoFolder(tmp_path)
    folder.prepare()
    folder.figure.mkdir()
    with pytest.raises(UsageError, match="cannot write to"):
        folder.clear()
