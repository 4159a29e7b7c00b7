"""The folder with the demo's files."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class DemoFolder:
    """The demo's files below `root`: JPEGs, the log of the training run, and a figure of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.photographs = root / "photographs"
        self.run_log = root / "run.jsonl"
        self.figure = root / "comparison.png"

    def prepare(self) -> list[Path]:
        """Create the folder; returns the files of an earlier demo, which a new one replaces.

        Raises UsageError if it cannot be created, or has measurements that no demo wrote.
        """
        with self.written():
            earlier = [path for path in (self.run_log, self.figure) if path.exists()]
            if earlier and not self.photographs.exists():
                raise UsageError(
                    f"{earlier[0]} already exists, and no demo wrote it: there is no "
                    f"{self.photographs.name} folder beside it; give --output another folder"
                )
            self.photographs.mkdir(parents=True, exist_ok=True)
        return earlier

    def clear(self) -> None:
        """Remove the results of an earlier demo, but not its photographs.

        Raises UsageError as `prepare` does.
        """
        with self.written():
            for path in self.prepare():
                path.unlink()

    @contextmanager
    def written(self) -> Iterator[None]:
        """Raises UsageError where what is done in the folder cannot be written."""
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"cannot write to {self.root}: {error.strerror or error}; give --output a folder "
                "that can be written, on a disk with some 100 MB free"
            ) from error
