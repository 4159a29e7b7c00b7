"""Dropping files from the page cache, with files on a real disk."""

from __future__ import annotations

import mmap
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from loadeval.errors import UsageError
from loadeval.probes import page_cache
from loadeval.probes.page_cache import check_droppable, drop, files_below, resident_pages
from loadeval.runlog.run_folder.protocol_steps import Dropped

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 1 << 20


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    """A file that was just written: it is in the page cache, and not yet on the disk."""
    path = tmp_path / "a.bin"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture(autouse=True)
def _drops(tmp_path: Path) -> None:
    try:
        check_droppable([tmp_path / "x"])
    except UsageError as error:
        pytest.skip(str(error))


def test_what_was_written_a_moment_ago_is_dropped(file: Path) -> None:
    """It is written to the disk first."""
    pages = resident_pages(file)
    assert pages is not None
    assert pages.all()
    assert drop([file]) == Dropped(1, SIZE, 0.0)


def test_what_was_read_again_is_in_memory(file: Path) -> None:
    """A whole number of pages, or one more for the rest."""
    drop([file])
    with file.open("ab") as rest:
        rest.write(b"x")
    assert len(file.read_bytes()) == SIZE + 1
    pages = resident_pages(file)
    assert pages is not None
    assert pages.tolist() == [True] * (SIZE // mmap.PAGESIZE + 1)


def test_looking_reads_nothing(file: Path) -> None:
    """So that a file that was dropped stays so."""
    drop([file])
    for _ in range(3):
        pages = resident_pages(file)
        assert pages is not None
        assert not pages.any()


def test_a_file_that_is_in_use_stays(file: Path) -> None:
    """Its pages are mapped by a program, here by this one."""
    descriptor = os.open(file, os.O_RDONLY)
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[::4096]) > 0
        assert drop([file]).stayed == 1.0
    os.close(descriptor)


def test_an_empty_file_has_nothing_to_drop(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert drop([tmp_path / "empty"]).stayed is None


def test_a_file_of_somebody_else(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux claims that all of it is in memory. So it is not known what stayed."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert drop([file]) == Dropped(1, SIZE, None)


def test_a_kernel_that_does_not_tell(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_mincore", lambda: lambda *_: -1)
    assert drop([file]) == Dropped(1, SIZE, None)


def test_files_below_folders(file: Path, tmp_path: Path) -> None:
    """In folders of folders too; a file may be named itself."""
    (tmp_path / "class" / "cat").mkdir(parents=True)
    (tmp_path / "class" / "cat" / "b.jpg").touch()
    assert sorted(files_below([tmp_path])) == [file, tmp_path / "class" / "cat" / "b.jpg"]
    assert files_below([file]) == [file]


@pytest.mark.parametrize(("name", "said"), [("x", "is no folder or file"), ("e", "holds no file")])
def test_a_folder_without_files(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    with pytest.raises(UsageError, match=said):
        files_below([tmp_path / name])


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """Here since it is gone by now."""
    with pytest.raises(UsageError, match=r"cannot drop .*gone.*No such file"):
        drop([tmp_path / "gone"])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("tmpfs", "never cold"),
        ("nfs4", "caches on other machines"),
        ("fuse.s3fs", "other machines"),
    ],
)
def test_files_that_are_not_on_a_disk(
    kind: str, said: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says on what they are."""
    mounts = [SimpleNamespace(mountpoint=str(file.parent), fstype=kind)]
    monkeypatch.setattr("psutil.disk_partitions", lambda **_: mounts)
    with pytest.raises(UsageError, match=said) as refused:
        drop([file])
    assert f"({kind})" in str(refused.value) or f"on {kind}," in str(refused.value)


def test_another_system_than_linux(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fadvise")
    with pytest.raises(UsageError, match="only on Linux"):
        drop([file])
