"""What to say about loaders whose stages cannot be timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadeval import StageNote


class NotTimed:
    """Says once, when the first epoch begins, why nothing is timed: see LoaderStages."""

    def __init__(self, why: str) -> None:
        self._untold = [StageNote(why)]
        self._begun = False

    def begin(self, loader: Any) -> Callable[[int], object]:  # noqa: ARG002 - nothing to look into
        """See LoaderStages."""
        return self._known

    def _known(self, _epoch: int) -> None:
        self._begun = True

    def take(self) -> list[StageNote]:
        """The note, once."""
        if not self._begun:
            return []
        notes, self._untold = self._untold, []
        return notes

    def close(self) -> None:
        """Do nothing, for nothing is held."""
