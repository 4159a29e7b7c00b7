"""What tuning a loader found: in words, as JSON, as a figure and a page, and the loader itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping  # noqa: TC003 - dataclass fields
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, final

from loadeval.analysis.tuning import Trial, TuningReport
from loadeval.errors import UsageError
from loadeval.report.curve_figure import worker_curve_figure
from loadeval.report.figure import figure_path, save_figure
from loadeval.report.formatting import (
    NOT_MEASURED,
    estimated,
    number,
    printable,
    short_name,
    size,
    speedup,
)
from loadeval.report.json import curve_as_dict
from loadeval.report.tables import NO_LIMIT, table_lines, wrapped
from loadeval.report.wording.tuning import (
    NO_CURVE,
    basis,
    beside_the_line,
    chosen_in_words,
    failures,
    left_out_in_words,
    predicted_in_words,
    setting_in_words,
    stopped_in_words,
    tuning_headline,
)
from loadeval.report.wording.whatif import SPEEDUP

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from typing_extensions import Self

    from loadeval.analysis.whatif import Prediction


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
            **{one.name: getattr(report, one.name) for one in fields(TuningReport)}, maker=maker
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
        from loadeval.report.html.page import page_path, write_page  # noqa: PLC0415 - to write one
        from loadeval.report.html.tuning import tuning_page  # noqa: PLC0415 - imports this module

        path = page_path(output)
        write_page(tuning_page(self), path)
        return path


def tuning_lines(found: TuningReport, width: int) -> list[str]:
    """All that was found, in lines of `width`; settings as code stay on one."""
    lines = wrapped(tuning_headline(found), width)
    lines += [*wrapped(basis(found), width), "", *table_lines(trial_rows(found), width)]
    lists = [("Failed", failures(found)), ("Left out", left_out_in_words(found))]
    for title, told in lists:
        if told:
            lines += ["", title]
            lines += [line for one in told for line in wrapped(printable(one), width)]
    lines += ["", *wrapped(stopped_in_words(found), width)]
    return [*lines, "", f"Settings: {chosen_in_words(found)}"]


def trial_rows(found: TuningReport) -> list[list[str]]:
    """A row for each trial, below their head; a column of which nothing is known is left out."""
    head = [f"{short_name(found.unit)}/s", "predicted", "measured"]
    with_epochs = found.epoch_batches is not None
    if with_epochs:
        head.append("with epoch starts")
    rows = [[*head, SPEEDUP, "memory, predicted"]]
    for trial in found.trials:
        rates = [trial.throughput, *([trial.epoch_throughput] if with_epochs else [])]
        cells = [estimated(rate, number) for rate in rates]
        if trial.throughput is None:
            cells[0] = trial.state.value
        ratio = "" if trial is found.present else estimated(trial.ratio, speedup)
        mark = " (best)" if trial is found.best else ""
        rows.append(
            [
                setting_in_words(trial, found) + mark,
                predicted_in_words(trial.prediction),
                *cells,
                ratio,
                "-" if trial.memory_bytes is None else size(trial.memory_bytes),
            ]
        )
    rows = [[cell.replace(NOT_MEASURED, "-") for cell in row] for row in rows]
    columns = list(zip(*rows, strict=True))
    known = [at for at, (_, *cells) in enumerate(columns) if not {*cells} <= {"-", ""}]
    return [[row[at] for at in known] for row in rows]


def tuning_as_dict(found: TuningReport) -> dict[str, Any]:
    """Everything as plain data: codes for machines, sentences for people."""
    return {
        "settings": plain(found.best.settings),
        "best": found.trials.index(found.best),
        "gain": None if found.gain is None else asdict(found.gain),
        "stopped": found.stopped.value,
        "stopped_words": stopped_in_words(found),
        "unit": found.unit,
        "step": found.step,
        "predicted": found.predicted,
        "epoch_batches": found.epoch_batches,
        "curve": None if found.curve is None else curve_as_dict(found.curve),
        "trials": [_trial_as_dict(one) for one in found.trials],
        "left_out": [
            {
                "settings": plain(one.settings),
                "code": one.reason.code.value,
                "values": dict(one.reason.values),
            }
            for one in found.left_out
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


def _prediction(found: Prediction) -> dict[str, Any]:
    return {**asdict(found.throughput), "limit": found.limit.value}


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for JSON: what is neither a number, a text nor a truth value as text."""
    return {
        name: value if isinstance(value, str | int | float | None) else printable(value)
        for name, value in settings.items()
    }
