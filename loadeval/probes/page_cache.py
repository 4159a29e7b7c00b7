"""A data set's files in the page cache: dropping them from it, and whether they are gone."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
import psutil

from loadeval.errors import UsageError
from loadeval.runlog.run_folder.protocol_steps import Dropped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs"})
"""File systems that are the page cache itself."""
NETWORK = (
    *("nfs", "cifs", "smb", "9p", "virtiofs", "ceph", "lustre", "gluster", "beegfs", "gpfs"),
    *("afs", "fuse"),
)
"""How the names of file systems begin that have caches of their own, on other machines."""
LOOKED_AT = 64
"""Of so many files it is looked whether they are gone."""
EMPTY = np.zeros(0, np.bool_)


def files_below(folders: Iterable[Path]) -> list[Path]:
    """All files in these folders, and those that are named themselves.

    Raises UsageError where there are none.
    """
    files = []
    for folder in folders:
        below = [folder] if folder.is_file() else list(folder.rglob("*"))
        below = [path for path in below if path.is_file()]
        if not below:
            what = "holds no file" if folder.is_dir() else "is no folder or file"
            raise UsageError(f"{folder} {what}; expected the folder of the files that are loaded")
        files += below
    return files


def drop(files: Sequence[Path]) -> Dropped:
    """Drop `files` from the page cache, so that reading them reads the disk.

    What was written to them, and is not on the disk yet, is written there first. Raises UsageError
    where they cannot be dropped: on another system than Linux, for files that are not on a local
    disk, or that may not be read.
    """
    check_droppable(files)
    nbytes = sum(map(_drop, files))
    return Dropped(len(files), nbytes, _stayed(files))


def _drop(path: Path) -> int:
    with _opened(path) as descriptor:
        with suppress(OSError):  # a file system that is mounted read-only has nothing to write
            os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.fstat(descriptor).st_size


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A descriptor of the file. Raises UsageError."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise UsageError(
            f"cannot drop {path} from the page cache: {error.strerror}; expected files that may be "
            "read"
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check_droppable(files: Iterable[Path]) -> None:
    """Raises UsageError for files that are on no local disk, and where there is no such call."""
    if not hasattr(os, "posix_fadvise"):
        raise UsageError("files can be dropped from the page cache only on Linux")
    mounts = {mount.mountpoint: mount.fstype for mount in psutil.disk_partitions(all=True)}
    kinds = {}
    for folder in {path.absolute().parent for path in files}:
        place = next((str(at) for at in (folder, *folder.parents) if str(at) in mounts), "")
        kinds[folder] = mounts.get(place, "")
    for folder, kind in kinds.items():
        if kind in IN_MEMORY:
            raise UsageError(
                f"{folder} is in memory ({kind}), so that its files are never cold; expected files "
                "on a local disk"
            )
        if kind.startswith(NETWORK):
            raise UsageError(
                f"{folder} is on {kind}, which has caches on other machines that cannot be "
                "dropped from here; expected files on a local disk"
            )


def _stayed(files: Sequence[Path]) -> float | None:
    """The share of some of the files' pages that are in memory.

    A read that must not wait (RWF_NOWAIT) would tell too, but it makes the kernel read ahead.
    """
    step = max(len(files) // LOOKED_AT, 1)
    in_memory = [resident_pages(path) for path in files[::step]]
    known = np.concatenate([pages for pages in in_memory if pages is not None] or [EMPTY])
    return float(known.mean()) if known.size else None


def resident_pages(path: Path) -> NDArray[np.bool_] | None:
    """Which pages of a file are in memory, by mincore(2), or None where the kernel does not tell.

    It tells nothing of a file that the user neither owns nor may write to. Raises UsageError for a
    file that cannot be read.
    """
    with _opened(path) as descriptor:
        size = os.fstat(descriptor).st_size
        if not size:
            return EMPTY
        if os.fstat(descriptor).st_uid != os.geteuid() and not os.access(path, os.W_OK):
            return None
        pages = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
        with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapped:
            start = np.frombuffer(mapped, np.uint8).ctypes.data
            failed = _mincore()(start, size, pages.ctypes.data)
    return None if failed else (pages & 1).astype(bool)


def _mincore() -> Callable[[int, int, int], int]:
    mincore = ctypes.CDLL(None).mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return mincore
