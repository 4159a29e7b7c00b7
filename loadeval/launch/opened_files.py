"""Which files a command opened to read them: its data set, found without being named."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from loadeval.launch.loadeval_inject import OPENED_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_DATA = frozenset({".py", ".pyc", ".pyi", ".so", ".pth", ".toml", ".cfg", ".ini", ".egg-link"})
"""The names of a program's own files end so."""
SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib/", "/run/")
MOST_FILES = 1_000_000
"""In a larger data set only what was opened is dropped."""


def data_files(folder: Path) -> list[Path]:
    """The files of the data set that the command opened whose notes are in `folder`.

    A run of some hundred batches opens only a part of a data set. Files in the same folders whose
    names end alike are taken to belong to it.
    """
    opened = set(_opened(folder))
    kinds = {(path.parent, path.suffix) for path in opened}
    beside: set[Path] = set()
    for parent, suffix in kinds:
        beside.update(path for path in _listed(parent) if path.suffix == suffix)
        if len(beside) > MOST_FILES:
            return sorted(opened)
    return sorted(opened | beside)


def _opened(folder: Path) -> Iterator[Path]:
    """What was opened, without the files of Python, of the program and of the system."""
    own = [*SYSTEM, *{f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib")}]
    own += [f"{prefix}/" for prefix in {sys.prefix, sys.base_prefix}]
    for notes in folder.glob(f"{OPENED_MARK}*"):
        for line in notes.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            path = Path(line)
            if path.suffix not in NO_DATA and not line.startswith(tuple(own)) and path.is_file():
                yield path


def _listed(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file()]
    except OSError:
        return []
