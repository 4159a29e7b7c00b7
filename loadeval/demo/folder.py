"""The folder with the demo's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """The demo's files below `root`."""

    root: Path

    @property
    def photographs(self) -> Path:
        """The folder of JPEGs."""
        return self.root / "photographs"

    @property
    def run_log(self) -> Path:
        """The log of the training run."""
        return self.root / "run.jsonl"

    @property
    def figure(self) -> Path:
        """The comparison, as an image."""
        return self.root / "comparison.png"

    def prepare(self) -> list[Path]:
        """Create the folder; returns the files of an earlier demo, which a new one replaces.

        Raises UsageError if it cannot be created, or has measurements that no demo wrote.
        """
        results = [self.run_log, self.figure]
        try:
            earlier = [path for path in results if path.exists()]
            if earlier and not self.photographs.exists():
                raise UsageError(
                    f"{earlier[0]} already exists, and no demo wrote it: there is no "
                    f"{self.photographs.name} folder beside it; give --output another folder"
                )
            self.photographs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self.cannot_write(error) from error
        return earlier

    def clear(self) -> None:
        """Remove the results of an earlier demo, but not its photographs.

        Raises UsageError as `prepare` does.
        """
        earlier = self.prepare()
        try:
            for path in earlier:
                path.unlink()
        except OSError as error:
            raise self.cannot_write(error) from error

    def cannot_write(self, error: OSError) -> UsageError:
        """The error for a folder that cannot be written."""
        return UsageError(
            f"cannot write to {self.root}: {error.strerror or error}; give --output a folder that "
            "can be written, on a disk with some 100 MB free"
        )
