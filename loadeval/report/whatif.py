"""Predictions as text: a table over num_workers, or the present beside other settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import estimated, number, short_name, size, speedup
from loadeval.report.tables import table_lines, wrapped
from loadeval.report.wording.whatif import (
    ALWAYS_PREDICTED,
    ASSUMED,
    CURVE_HEADLINE,
    HELD_UP_BY,
    MEASURED,
    MEMORY,
    PREDICTED,
    PREDICTED_HEAD,
    PRESENT,
    PRESENT_HEAD,
    RANGES,
    SHARED_MEMORY,
    SPEEDUP,
    TITLE,
    WHAT_MEMORY_IS,
    WHAT_SHARED_MEMORY_IS,
    WHAT_SPEEDUPS_ARE,
    assumptions_in_words,
    changed_in_words,
    cpus_in_words,
    limit_in_short,
    limit_sentence,
    ranged,
    settings_of,
    shortage_in_words,
    shortages_in_words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.stats import Estimate
    from loadeval.analysis.whatif import Prediction, WorkerCurve

    Row = tuple[str, ...]

INDENT = "  "


def curve_lines(curve: WorkerCurve, width: int) -> list[str]:
    """The table over num_workers, and below it what is assumed."""
    rows = curve_rows(curve)
    digits = max(len(workers) for workers, *_ in rows[1:])
    # One column for both, so that a table which folds says it again.
    marked = [(f"{workers:>{digits}} {how}", *cells) for workers, how, *cells in rows[1:]]
    lines = wrapped(CURVE_HEADLINE, width)
    lines += ["", *table_lines([(rows[0][0], *rows[0][2:]), *marked], width)]
    lines += ["", *wrapped(" ".join(curve_notes(curve)), width)]
    return lines + _assumed(curve.predicted, width)


def prediction_lines(
    measured: Estimate, present: Prediction, found: Prediction, width: int
) -> list[str]:
    """The present, whose throughput was `measured`, beside `found`; and what is assumed."""
    before, after = settings_of(present), settings_of(found)
    changed = [name for name in after if after[name] != before.get(name) or name == "num_workers"]
    rows: list[Row] = [
        ("", PRESENT_HEAD, PREDICTED_HEAD),
        *((name, before.get(name, ""), after[name]) for name in changed),
        (_per_second(found.unit), estimated(measured, number), ranged(found.throughput, number)),
        (SPEEDUP, "", ranged(found.speedup, speedup)),
        (HELD_UP_BY, limit_in_short(present), limit_in_short(found)),
        *(
            (name, size(now), size(then))
            for name, now, then in (
                (MEMORY, present.memory_bytes, found.memory_bytes),
                (SHARED_MEMORY, present.shared_memory_bytes, found.shared_memory_bytes),
            )
            if now or then
        ),
    ]
    lines = wrapped(f"{TITLE}: {changed_in_words(found, present)}", width)
    lines += ["", *table_lines(rows, width)]
    short = map(shortage_in_words, found.shortages)
    told = " ".join((limit_sentence(found), *short, RANGES, ALWAYS_PREDICTED))
    return [*lines, "", *wrapped(told, width), *_assumed([found], width)]


def curve_rows(curve: WorkerCurve) -> list[Row]:
    """A row for each number of workers, below their head: how it is known is the second cell.

    A column of which nothing is known is left out.
    """
    unit = next((one.unit for one in curve.predicted), curve.unit)
    rows: list[Row] = [
        ("workers", "", _per_second(unit), SPEEDUP, HELD_UP_BY, MEMORY, SHARED_MEMORY)
    ]
    found = {one.num_workers: one for one in curve.predicted}
    measured: dict[int, list[Estimate]] = {}
    for workers, rate in curve.measured:
        measured.setdefault(workers, []).append(rate)
    for workers in sorted({*found, *measured}):
        rest = _predicted_cells(found.get(workers))
        for rate in measured.get(workers, ()):
            told = _measured_speedup(rate, curve)
            rows.append((f"{workers}", MEASURED, estimated(rate, number), told, *rest))
        if workers not in measured:
            one = found[workers]
            cells = ranged(one.throughput, number), ranged(one.speedup, speedup)
            rows.append((f"{workers}", PREDICTED, *cells, *rest))
    kept = [at for at, column in enumerate(zip(*rows[1:], strict=True)) if any(column)]
    return [tuple(row[at] for at in kept) for row in rows]


def curve_notes(curve: WorkerCurve) -> list[str]:
    """What the cells of the table are."""
    notes = [cpus_in_words(curve), RANGES, WHAT_SPEEDUPS_ARE, ALWAYS_PREDICTED]
    if any(one.memory_bytes and one.num_workers for one in curve.predicted):
        notes.append(WHAT_MEMORY_IS)
    if any(one.shared_memory_bytes for one in curve.predicted):
        notes.append(WHAT_SHARED_MEMORY_IS)
    return [*filter(None, notes), *shortages_in_words(curve.predicted)]


def _predicted_cells(one: Prediction | None) -> Row:
    if one is None:
        return "", "", ""
    found = (one.memory_bytes, one.shared_memory_bytes) if one.num_workers else (None, None)
    return limit_in_short(one), *(size(nbytes) if nbytes else "" for nbytes in found)


def _measured_speedup(rate: Estimate, curve: WorkerCurve) -> str:
    present = curve.measured[-1][1]
    return PRESENT if rate is present else speedup(rate.value / present.value)


def _per_second(unit: str) -> str:
    return f"{short_name(unit)}/s"


def _assumed(predicted: Sequence[Prediction], width: int) -> list[str]:
    """What is taken for granted, a paragraph each; nothing where that is nothing."""
    found = assumptions_in_words(predicted)
    lines = ["", ASSUMED] if found else []
    for told in found:
        lines += [INDENT + line for line in wrapped(told, width - len(INDENT))]
    return lines
