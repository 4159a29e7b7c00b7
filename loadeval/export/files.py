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
        self.parts: dict[Path, Path] = {}

    def part(self, path: Path) -> Path:
        """Where to write the content of `path`. Raises UsageError if `path` exists."""
        if not self.overwrite and path.exists():
            raise UsageError(
                f"{path} already exists; give another path with --output, or replace it with "
                "--overwrite"
            )
        return self.parts.setdefault(path, path.with_name(f".{path.name}.{os.getpid()}.part"))


@contextmanager
def new_files(path: Path, *, overwrite: bool) -> Iterator[NewFiles]:
    """NewFiles that get their names at the end, or are removed after an exception.

    Raises UsageError, naming `path`, if they cannot be written.
    """
    files = NewFiles(overwrite=overwrite)
    try:
        yield files
        for whole, part in files.parts.items():
            part.replace(whole)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; expected a path in a folder that "
            "exists and can be written, with space left; give another one with --output"
        ) from error
    finally:
        for part in files.parts.values():
            part.unlink(missing_ok=True)
