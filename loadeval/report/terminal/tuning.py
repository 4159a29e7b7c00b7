"""The text of what tuning a loader found: a table of the trials, and the best settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import (
    NOT_MEASURED,
    estimated,
    number,
    printable,
    short_name,
    size,
    speedup,
)
from loadeval.report.tables import Table, wrapped
from loadeval.report.wording import tuning as wording
from loadeval.report.wording.whatif import SPEEDUP

if TYPE_CHECKING:
    from loadeval.analysis.predict.tuning import TuningReport


def tuning_lines(tuning: TuningReport, width: int) -> list[str]:
    """All that was found, in lines of `width`; settings as code stay on one."""
    lines = wrapped(wording.tuning_headline(tuning), width)
    lines += [
        *wrapped(wording.basis(tuning), width),
        "",
        *Table(rows=trial_rows(tuning)).lines(width),
    ]
    lists = [("Failed", wording.failures(tuning)), ("Left out", wording.left_out_in_words(tuning))]
    for title, sentences in lists:
        if sentences:
            lines += ["", title]
            lines += [
                line for sentence in sentences for line in wrapped(printable(sentence), width)
            ]
    lines += ["", *wrapped(wording.stopped_in_words(tuning), width)]
    left = wording.left_in_words(tuning)
    lines += [] if left is None else wrapped(left, width)
    return [*lines, "", f"Settings: {wording.chosen_in_words(tuning)}"]


def trial_rows(tuning: TuningReport) -> list[list[str]]:
    """A row for each trial, below a head; a column is left out if nothing in it is known."""
    head = [f"{short_name(tuning.unit)}/s", "predicted", "measured"]
    with_epochs = tuning.epoch_batches is not None
    if with_epochs:
        head.append("with epoch starts")
    rows = [[*head, SPEEDUP, "memory, predicted"]]
    for trial in tuning.trials:
        rates = [trial.throughput, *([trial.epoch_throughput] if with_epochs else [])]
        cells = [estimated(rate, number) for rate in rates]
        if trial.throughput is None:
            cells[0] = trial.state.value
        ratio = "" if trial is tuning.present else estimated(trial.ratio, speedup)
        mark = " (best)" if trial is tuning.best else ""
        rows.append(
            [
                wording.setting_in_words(trial, tuning) + mark,
                wording.predicted_in_words(trial.prediction),
                *cells,
                ratio,
                "-" if trial.memory_bytes is None else size(trial.memory_bytes),
            ]
        )
    rows = [[cell.replace(NOT_MEASURED, "-") for cell in row] for row in rows]
    columns = list(zip(*rows, strict=True))
    known = [at for at, (_, *cells) in enumerate(columns) if not {*cells} <= {"-", ""}]
    return [[row[at] for at in known] for row in rows]
