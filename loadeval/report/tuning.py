"""What tuning a loader found: in words and as JSON, and the loader itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping  # noqa: TC003 - dataclass fields
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, final

from loadeval.analysis.tuning import Trial, TuningReport
from loadeval.report.formatting import NOT_MEASURED, estimated, number, printable, size, speedup
from loadeval.report.tables import NO_LIMIT, table_lines
from loadeval.report.wording.tuning import (
    basis,
    failures,
    left_out_in_words,
    predicted_in_words,
    setting_in_words,
    settings_as_code,
    stopped_in_words,
    tuning_headline,
)

if TYPE_CHECKING:
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
        return tuning_text(self)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return tuning_as_dict(self)


def tuning_text(found: TuningReport) -> str:
    """All that was found; lines are as long as they need to be."""
    parts = [[tuning_headline(found), basis(found)], table_lines(_rows(found), NO_LIMIT)]
    lists = [("Failed", failures(found)), ("Left out", left_out_in_words(found))]
    parts += [[title, *map(printable, lines)] for title, lines in lists if lines]
    parts.append([stopped_in_words(found)])
    parts.append([f"Settings: {settings_as_code(found.best.settings)}"])
    return "\n\n".join("\n".join(part) for part in parts)


def _rows(found: TuningReport) -> list[list[str]]:
    unit = printable(found.unit)
    head = ["", f"predicted {unit}/s", f"measured {unit}/s"]
    with_epochs = found.epoch_batches is not None
    if with_epochs:
        head.append("with epoch starts")
    rows = [[*head, "of present", "memory, predicted"]]
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
                size(trial.memory_bytes),
            ]
        )
    return [[cell.replace(NOT_MEASURED, "-") for cell in row] for row in rows]


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
