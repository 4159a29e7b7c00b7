"""Several backends under one training step: the result, in words, as JSON and as a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from loadeval.analysis.backends import BackendReport
from loadeval.errors import in_words
from loadeval.report.figure.figure import backends_figure, figure_path, save_figure
from loadeval.report.json import backends_as_dict
from loadeval.report.terminal.text import backends_text

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from loadeval.data.run import Run


@final
@dataclass(frozen=True, slots=True)
class BackendComparison(BackendReport):
    """Several backends under one training step; as text: tables and the differences."""

    @classmethod
    def of_measured(
        cls,
        measured: Sequence[tuple[str, Run | None, Exception | None]],
        unlike: Sequence[str] = (),
    ) -> BackendComparison:
        """The comparison of backends that took turns; `unlike` tells in what their work differs."""
        return cls.of_backends(
            [
                (name, run, None if error is None else in_words(error))
                for name, run, error in measured
            ],
            unlike,
        )

    def __str__(self) -> str:
        return backends_text(self)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the runs, ready for JSON."""
        return backends_as_dict(self)

    def plot(self, output: str | os.PathLike[str] = "backends.png") -> Path:
        """Draw real and ideal throughput of each backend; returns the path of the figure.

        A PNG, an SVG or a PDF by its extension; what is there is replaced. Raises UsageError
        for another extension, or when the figure cannot be written.
        """
        path = figure_path(output)
        save_figure(backends_figure(self), path)
        return path
