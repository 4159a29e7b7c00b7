"""What tuning a loader found: in words, as JSON, as a figure and a page, and the loader itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping  # noqa: TC003 - dataclass reads its fields' types
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, final

from loadeval.analysis.predict.tuning import Trial, TuningReport
from loadeval.errors import UsageError
from loadeval.report.figure.curve_figure import worker_curve_figure
from loadeval.report.figure.figure import figure_path, save_figure
from loadeval.report.formatting import printable
from loadeval.report.json import curve_as_dict
from loadeval.report.tables import NO_LIMIT
from loadeval.report.terminal.tuning import tuning_lines
from loadeval.report.wording.tuning import (
    NO_CURVE,
    beside_the_line,
    stopped_in_words,
    tuning_headline,
)

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from typing_extensions import Self

    from loadeval.analysis.predict.prediction import Prediction


@final
@dataclass(frozen=True, slots=True)
class Tuning(TuningReport):
    """What `tune` found; as text: a table of what was tried, and the best settings as code.

    `trials` are in the order in which they were measured, the `present` settings first; `best` is
    one of them, and `gain` its throughput over the present one, with its 95% CI, from rounds in
    which both took turns, or both with a third one: None where the present settings are best.
    Throughputs are per second, in `unit`; predictions are never among what was measured. `stopped`
    is why no more were measured.
    """

    maker: Callable[[Mapping[str, Any]], Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, report: TuningReport, maker: Callable[[Mapping[str, Any]], Any]) -> Self:
        """`maker` makes a loader with settings."""
        return cls(
            **{field.name: getattr(report, field.name) for field in fields(TuningReport)},
            maker=maker,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The best settings, by keyword."""
        return dict(self.best.settings)

    def make(self) -> Any:
        """A new loader with the best settings."""
        return self.maker(self.settings)

    def __str__(self) -> str:
        return "\n".join(tuning_lines(self, NO_LIMIT))

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return tuning_as_dict(self)

    def plot(self, output: str | os.PathLike[str] = "tune.png") -> Path:
        """Draw throughput against `num_workers`, measured and predicted; returns the path.

        A PNG, an SVG or a PDF by its extension; what is there is replaced. Raises UsageError
        for another extension, when the figure cannot be written, or when nothing was predicted.
        """
        path = figure_path(output)
        if self.curve is None:
            raise UsageError(NO_CURVE)
        details = [beside_the_line(self)]
        save_figure(worker_curve_figure(self.curve, tuning_headline(self), details), path)
        return path

    def page(self, output: str | os.PathLike[str] = "tune.html") -> Path:
        """Write everything as one HTML file that opens offline; returns the path.

        An earlier page is replaced. Raises UsageError for another extension than .html, when
        another file is there, or when the page cannot be written.
        """
        from loadeval.report.page import page  # noqa: PLC0415 - needed only to write a page
        from loadeval.report.page.tuning import tuning_page  # noqa: PLC0415 - needed only here

        path = page.page_path(output)
        page.write_page(tuning_page(self), path)
        return path


def tuning_as_dict(tuning: TuningReport) -> dict[str, Any]:
    """Everything as plain data: codes for machines, sentences for people."""
    return {
        "settings": plain(tuning.best.settings),
        "best": tuning.trials.index(tuning.best),
        "gain": None if tuning.gain is None else asdict(tuning.gain),
        "left": None if tuning.left is None else asdict(tuning.left),
        "stopped": tuning.stopped.value,
        "stopped_words": stopped_in_words(tuning),
        "unit": tuning.unit,
        "step": tuning.step,
        "predicted": tuning.predicted,
        "epoch_batches": tuning.epoch_batches,
        "curve": None if tuning.curve is None else curve_as_dict(tuning.curve),
        "trials": [_trial_as_dict(trial) for trial in tuning.trials],
        "left_out": [
            {
                "settings": plain(settings.settings),
                "code": settings.reason.code.value,
                "values": dict(settings.reason.values),
            }
            for settings in tuning.left_out
        ],
    }


def _trial_as_dict(trial: Trial) -> dict[str, Any]:
    rates = {
        name: None if (rate := getattr(trial, name)) is None else asdict(rate)
        for name in ("throughput", "epoch_throughput", "ratio")
    }
    return {
        "settings": plain(trial.settings),
        "state": trial.state.value,
        "predicted": None if trial.prediction is None else _prediction(trial.prediction),
        **rates,
        "memory_bytes": trial.memory_bytes,
        "error": trial.error,
    }


def _prediction(prediction: Prediction) -> dict[str, Any]:
    return {**asdict(prediction.throughput), "limit": prediction.limit.value}


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for JSON: what is neither a number, a text nor a truth value as text."""
    return {
        name: value if isinstance(value, str | int | float | None) else printable(value)
        for name, value in settings.items()
    }
