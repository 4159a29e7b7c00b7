"""Several backends side by side: the result, in words, as JSON and as a figure."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, final

from loadeval.analysis.about_backends import cautions, unmeasured
from loadeval.analysis.backends import (
    BackendResult,
    Difference,
    differences,
    failed,
    result_of,
    unit_of,
)
from loadeval.report.backends_figure import backends_figure
from loadeval.report.backends_text import backends_text
from loadeval.report.plots import figure_path, save_figure
from loadeval.report.readings import readings_as_dict
from loadeval.runtime.backends import in_words

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from loadeval.runlog.model import Run
    from loadeval.runtime.backends import Measured


@final
@dataclass(frozen=True, slots=True)
class BackendComparison:
    """Several backends under one training step.

    `backends` are in the order they were given in, `differences` between every two that were
    measured, the fastest first. Throughputs are per second, in `unit`. `cautions` say what makes
    the figures mean less than they seem to, and `not_measured` what is missing and why.
    Converted to text it is a table, and the differences in words.
    """

    backends: tuple[BackendResult, ...]
    differences: tuple[Difference, ...]
    unit: str
    cautions: tuple[str, ...]
    not_measured: tuple[str, ...]

    @classmethod
    def of_measured(
        cls, measured: Sequence[Measured], unlike: Sequence[str] = ()
    ) -> BackendComparison:
        """Of backends that took turns; `unlike` tells in what their work differs."""
        runs = [one.run for one in measured if one.run is not None and one.error is None]
        unit = unit_of(runs)
        results = []
        for name, run, error in measured:
            if error is not None:
                results.append(failed(name, in_words(error), run))
            elif run is not None:
                results.append(result_of(name, run, unit))
        return cls._of(results, unit, unlike)

    @classmethod
    def of_runs(cls, runs: Sequence[Run]) -> BackendComparison:
        """Of runs that alternated or logged, one for each backend, named as they are.

        Raises UsageError when one of them replayed.
        """
        unit = unit_of(runs)
        named = zip(_names(runs), runs, strict=True)
        return cls._of([result_of(name, run, unit) for name, run in named], unit)

    @classmethod
    def _of(
        cls, results: Sequence[BackendResult], unit: str, unlike: Sequence[str] = ()
    ) -> BackendComparison:
        return cls(
            backends=tuple(results),
            differences=differences(results, unit),
            unit=unit,
            cautions=cautions(results, unit, unlike),
            not_measured=unmeasured(results),
        )

    def __getitem__(self, name: str) -> BackendResult:
        """The result of the backend `name`."""
        for result in self.backends:
            if result.name == name:
                return result
        known = ", ".join(repr(result.name) for result in self.backends)
        raise KeyError(f"{name!r} is none of the backends {known}")

    def __str__(self) -> str:
        return backends_text(self)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the runs, ready for JSON."""
        found: dict[str, Any] = _plain(self)
        for told, difference in zip(found["differences"], self.differences, strict=True):
            told |= {"shown": difference.shown, "words": str(difference)}
        for told, result in zip(found["backends"], self.backends, strict=True):
            told["readings"] = None if result.run is None else readings_as_dict(result.run)
        return found

    def plot(self, output: str | os.PathLike[str] = "backends.png") -> Path:
        """Draw real and ideal throughput of each backend; returns the path of the figure.

        A PNG, an SVG or a PDF by its extension; what is there is replaced. Raises UsageError
        for another extension, or when the figure cannot be written.
        """
        path = figure_path(output)
        save_figure(backends_figure(self), path)
        return path


def _names(runs: Sequence[Run]) -> list[str]:
    """The runs' names, or their paths where names are not different; numbered at worst."""
    for names in ([run.header.name for run in runs], [str(run.path) for run in runs]):
        if len(set(names)) == len(names):
            return names
    return [f"{run.header.name} ({number})" for number, run in enumerate(runs, start=1)]


def _plain(found: Any) -> Any:
    if is_dataclass(found):
        return {
            field.name: _plain(getattr(found, field.name))
            for field in fields(found)
            if field.name != "run"
        }
    return [_plain(one) for one in found] if isinstance(found, tuple) else found
