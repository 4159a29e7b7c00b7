"""Predictions as text: a table over num_workers, or the present beside other settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import estimated, number, short_name, size, speedup
from loadeval.report.tables import Table, wrapped
from loadeval.report.wording import whatif as wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.predict.prediction import Prediction, WorkerCurve

    Row = tuple[str, ...]

INDENT = "  "


def curve_lines(curve: WorkerCurve, width: int) -> list[str]:
    """The table over num_workers, and below it what is assumed."""
    rows = curve_rows(curve)
    digits = max(len(workers) for workers, *_ in rows[1:])
    # One column for both, so that a table which folds says it again.
    marked = [(f"{workers:>{digits}} {how}", *cells) for workers, how, *cells in rows[1:]]
    lines = wrapped(wording.CURVE_HEADLINE, width)
    lines += ["", *Table("", (rows[0][0], *rows[0][2:]), marked).lines(width)]
    lines += ["", *wrapped(" ".join(curve_notes(curve)), width)]
    return lines + _assumed(curve.predicted, width)


def prediction_lines(
    measured: Estimate, present: Prediction, prediction: Prediction, width: int
) -> list[str]:
    """The present, whose throughput was `measured`, beside `found`; and what is assumed."""
    before, after = wording.settings_of(present), wording.settings_of(prediction)
    changed = [name for name in after if after[name] != before.get(name) or name == "num_workers"]
    rows: list[Row] = [
        ("", wording.PRESENT_HEAD, wording.PREDICTED_HEAD),
        *((name, before.get(name, ""), after[name]) for name in changed),
        (
            _per_second(prediction.unit),
            estimated(measured, number),
            wording.ranged(prediction.throughput, number),
        ),
        (wording.SPEEDUP, "", wording.ranged(prediction.speedup, speedup)),
        (wording.HELD_UP_BY, wording.limit_in_short(present), wording.limit_in_short(prediction)),
        *(
            (name, size(now), size(then))
            for name, now, then in (
                (wording.MEMORY, present.memory_bytes, prediction.memory_bytes),
                (
                    wording.SHARED_MEMORY,
                    present.shared_memory_bytes,
                    prediction.shared_memory_bytes,
                ),
            )
            if now or then
        ),
    ]
    lines = wrapped(f"{wording.TITLE}: {wording.changed_in_words(prediction, present)}", width)
    lines += ["", *Table(rows=rows).lines(width)]
    short = map(wording.shortage_in_words, prediction.shortages)
    sentences = " ".join(
        (wording.limit_sentence(prediction), *short, wording.RANGES, wording.ALWAYS_PREDICTED)
    )
    return [*lines, "", *wrapped(sentences, width), *_assumed([prediction], width)]


def curve_rows(curve: WorkerCurve) -> list[Row]:
    """A row for each number of workers, below a head; the second cell says how it is known.

    A column is left out if nothing in it is known.
    """
    unit = next((prediction.unit for prediction in curve.predicted), curve.unit)
    rows: list[Row] = [
        (
            "workers",
            "",
            _per_second(unit),
            wording.SPEEDUP,
            wording.HELD_UP_BY,
            wording.MEMORY,
            wording.SHARED_MEMORY,
        )
    ]
    predicted = {prediction.num_workers: prediction for prediction in curve.predicted}
    measured: dict[int, list[Estimate]] = {}
    for workers, rate in curve.measured:
        measured.setdefault(workers, []).append(rate)
    for workers in sorted({*predicted, *measured}):
        rest = _predicted_cells(predicted.get(workers))
        for rate in measured.get(workers, ()):
            faster = _measured_speedup(rate, curve)
            rows.append((f"{workers}", wording.MEASURED, estimated(rate, number), faster, *rest))
        if workers not in measured:
            prediction = predicted[workers]
            cells = (
                wording.ranged(prediction.throughput, number),
                wording.ranged(prediction.speedup, speedup),
            )
            rows.append((f"{workers}", wording.PREDICTED, *cells, *rest))
    kept = [at for at, column in enumerate(zip(*rows[1:], strict=True)) if any(column)]
    return [tuple(row[at] for at in kept) for row in rows]


def curve_notes(curve: WorkerCurve) -> list[str]:
    """What the cells of the table mean."""
    notes = [
        wording.cpus_in_words(curve),
        wording.RANGES,
        wording.WHAT_SPEEDUPS_ARE,
        wording.ALWAYS_PREDICTED,
    ]
    if any(prediction.memory_bytes and prediction.num_workers for prediction in curve.predicted):
        notes.append(wording.WHAT_MEMORY_IS)
    if any(prediction.shared_memory_bytes for prediction in curve.predicted):
        notes.append(wording.WHAT_SHARED_MEMORY_IS)
    return [*filter(None, notes), *wording.shortages_in_words(curve.predicted)]


def _predicted_cells(prediction: Prediction | None) -> Row:
    if prediction is None:
        return "", "", ""
    sizes = (
        (prediction.memory_bytes, prediction.shared_memory_bytes)
        if prediction.num_workers
        else (None, None)
    )
    return wording.limit_in_short(prediction), *(size(nbytes) if nbytes else "" for nbytes in sizes)


def _measured_speedup(rate: Estimate, curve: WorkerCurve) -> str:
    present = curve.measured[-1][1]
    return wording.PRESENT if rate is present else speedup(rate.value / present.value)


def _per_second(unit: str) -> str:
    return f"{short_name(unit)}/s"


def _assumed(predicted: Sequence[Prediction], width: int) -> list[str]:
    """What is assumed, a paragraph each; nothing where nothing is."""
    assumptions = wording.assumptions_in_words(predicted)
    lines = ["", wording.ASSUMED] if assumptions else []
    for assumption in assumptions:
        lines += [INDENT + line for line in wrapped(assumption, width - len(INDENT))]
    return lines
