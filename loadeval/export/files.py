"""Writes files completely or not at all, and overwrites only on request."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class NewFiles:
    """Files that are written under temporary names, and renamed when all are complete."""

    def __init__(self, *, overwrite: bool) -> None:
        self.overwrite = overwrite
        self.paths: list[Path] = []
        self.superseded: set[Path] = set()

    def part(self, path: Path) -> Path:
        """Where to write the content of `path`. Raises UsageError if `path` exists."""
        if not self.overwrite and path.exists():
            raise exists(path)
        self.paths.append(path)
        return _part(path)

    def commit(self) -> None:
        """Rename all files, and remove those that they replace."""
        for path in self.paths:
            _part(path).replace(path)
        for path in self.superseded.difference(self.paths):
            path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove what was written."""
        for path in self.paths:
            _part(path).unlink(missing_ok=True)


@contextmanager
def new_files(path: Path, *, overwrite: bool) -> Iterator[NewFiles]:
    """NewFiles that are committed at the end, or discarded after an exception.

    Raises UsageError, naming `path`, if they cannot be written.
    """
    files = NewFiles(overwrite=overwrite)
    try:
        yield files
        files.commit()
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; expected a path in a folder that "
            "exists and can be written, with space left; give another one with --output"
        ) from error
    finally:
        files.discard()


def exists(path: Path) -> UsageError:
    """The error for a `path` that exists."""
    return UsageError(
        f"{path} already exists; give another path with --output, or replace it with --overwrite"
    )


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")
