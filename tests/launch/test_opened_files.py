"""Which files a command opened, in a real process and in one that it forks."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from loadeval.launch import opened_files
from loadeval.launch.command import environment
from loadeval.launch.loadeval_inject import note_opened
from loadeval.launch.opened_files import data_files
from loadeval.launch.settings import RunSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROGRAM = """
import json, os, sys
from pathlib import Path
data = Path(sys.argv[1])
(data / "a.jpg").read_bytes()
(data / "a.jpg").read_bytes()
(data / "log.txt").write_text("written")
os.close(os.open(os.fsencode(data / "c.bin"), os.O_RDONLY))
open(os.dup(0)).close()
if os.fork() == 0:
    (data / "worker" / "d.npy").read_bytes()
    os._exit(0)
os.wait()
try:
    open(data / "missing.jpg")
except FileNotFoundError:
    print("missing")
"""


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> Path:
    """What a program reads, and other files beside it."""
    data = tmp_path / "data"
    (data / "worker").mkdir(parents=True)
    for name in ("a.jpg", "b.jpg", "c.bin", "notes.txt", "program.py", "worker/d.npy"):
        (data / name).touch()
    return data


@pytest.fixture(name="notes")
def _notes(data: Path, tmp_path: Path) -> Path:
    """The folder with the notes of PROGRAM, which sees nothing of them."""
    notes = tmp_path / "notes"
    notes.mkdir()
    settings = RunSettings(str(tmp_path), notes_opened=str(notes))
    script = data / "program.py"
    script.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, script, data],
        env=environment(settings, os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == ("missing\n", "")
    return notes


def test_what_was_read_and_what_lies_beside_it(notes: Path, data: Path) -> None:
    """Not what was written, nor the program; a worker's files too."""
    assert data_files(notes) == [
        data / name for name in ("a.jpg", "b.jpg", "c.bin", "worker/d.npy")
    ]


def test_of_a_huge_data_set_only_what_was_read(
    notes: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_files, "MOST_FILES", 1)
    assert data_files(notes) == [data / name for name in ("a.jpg", "c.bin", "worker/d.npy")]


def test_a_folder_that_cannot_be_listed(
    notes: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be read all the same."""

    def iterdir(_: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(type(data), "iterdir", iterdir)
    assert data / "a.jpg" in data_files(notes)


def test_notes_that_cannot_be_written_change_nothing(data: Path, tmp_path: Path) -> None:
    """The program opens its files."""
    settings = RunSettings(str(tmp_path), notes_opened="/nowhere")
    ran = subprocess.run(
        [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", data / "a.jpg"],
        env=environment(settings, os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == ("\n", "")


def test_a_file_is_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python's audit hook is called with; a hook that was added stays for good."""
    hooks: list[Callable[[str, tuple[object, ...]], None]] = []
    monkeypatch.setattr(sys, "addaudithook", hooks.append)
    note_opened(None)
    assert hooks == []
    note_opened(str(tmp_path))
    (hook,) = hooks
    for path in ("/data/a.jpg", b"/data/b.jpg", "/data/a.jpg"):
        hook("open", (path, "rb", os.O_RDONLY))
    hook("open", ("/data/written.txt", "wb", os.O_WRONLY))
    hook("open", (3, "rb", os.O_RDONLY))
    hook("import", ("json", None, None, None, None))
    hook("open", (object(), "rb", os.O_RDONLY))
    (notes,) = tmp_path.iterdir()
    assert notes.read_text() == "/data/a.jpg\n/data/b.jpg\n"
