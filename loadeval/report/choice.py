"""Backends that loadeval wrote for a folder: as JSON, and as a figure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from loadeval.analysis.choice import MOST_DIFFERENCE
from loadeval.report.figure import bar_charts, drawing
from loadeval.report.figure.figure import figure_path, save_figure
from loadeval.report.formatting import counted, number, size
from loadeval.report.json import backends_as_dict, difference_as_dict
from loadeval.report.terminal.choice import lists
from loadeval.report.wording import choice as words

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from loadeval.analysis.choice import BackendChoice, BadFile, Candidate, Kind
    from loadeval.analysis.estimate.stats import Estimate

ROW = 0.42
"""Inches of height of a bar."""
HEADING = 0.9


def choice_as_dict(choice: BackendChoice, code: str | None) -> dict[str, Any]:
    """Everything as plain data; `code` is that of the fastest."""
    return {
        "fastest": None if choice.fastest is None else choice.fastest.name,
        "words": words.choice_headline(choice),
        "folder": choice.folder,
        "kind": choice.kind.value,
        "transforms": choice.transforms,
        "files": choice.files,
        "classes": choice.classes,
        "measured_files": choice.measured,
        "batch_size": choice.batch_size,
        "cpus": list(choice.cpus),
        "reference": choice.reference,
        "most_difference": MOST_DIFFERENCE[choice.kind],
        "step": None if choice.step is None else asdict(choice.step),
        "candidates": [_candidate(each, choice.kind) for each in choice.candidates],
        "differences": [difference_as_dict(each) for each in choice.differences],
        "broken": [_bad_file(bad) for bad in choice.broken],
        "trained": None if choice.trained is None else backends_as_dict(choice.trained),
        "code": code,
    }


def _candidate(candidate: Candidate, kind: Kind) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "standing": candidate.standing.value,
        "install": candidate.install,
        "error": candidate.error,
        "difference": None if candidate.difference is None else candidate.difference._asdict(),
        "alone": [
            {"cpus": cpus, **asdict(rate), "rounds": list(candidate.rounds[cpus])}
            for cpus, rate in candidate.alone.items()
        ],
        "memory_bytes": candidate.memory_bytes,
        "truncated": None if candidate.truncated is None else _bad_file(candidate.truncated),
        "broken": [_bad_file(bad) for bad in candidate.broken],
        "unread": [_bad_file(bad) for bad in candidate.unread],
        "warned": list(candidate.warned),
        "words": words.left_out(candidate, kind),
    }


def _bad_file(bad: BadFile) -> dict[str, Any]:
    return {"name": bad.name, "outcome": bad.outcome.value, "error": bad.error}


def save_choice_figure(choice: BackendChoice, path: Path) -> None:
    """Draw the choice to `path`. Raises UsageError where that cannot be written."""
    save_figure(choice_figure(choice), figure_path(path))


def choice_figure(choice: BackendChoice) -> Figure:
    """A group of bars for each backend: real and ideal under the step, and the loader alone."""
    chart = choice_chart(choice)
    title = words.choice_headline(choice)
    details = [words.choice_basis(choice), words.BRACKETS]
    footer = [sentence for _, sentences in lists(choice) for sentence in sentences]
    footer.append(words.same_work(choice))
    heights = [HEADING + ROW * max(len(chart.rows), 1)]
    figure, (part,) = drawing.page(title, details, footer, heights)
    drawing.draw_rows(drawing.panel(part, f"Throughput in {choice.unit}/s"), chart)
    colors = ("real", "ideal", "loader") if choice.trained is not None else ("loader",)
    drawing.color_legend(part, colors)
    return drawing.finish(figure)


def choice_chart(choice: BackendChoice) -> bar_charts.BarChart:
    """The rates of each backend that was measured, the fastest first; its first row names it."""
    trained = {each.name: result for each, result in choice.under_step}
    rows: list[bar_charts.Row] = []
    for each in choice.ranked:
        rates: list[tuple[str, Estimate | None, str, str]] = []
        if each.name in trained:
            result = trained[each.name]
            rates += [("real", result.real, "real", ""), ("ideal", result.ideal, "ideal", "")]
        for count, rate in each.alone.items():
            beside = f" ({_beside(each, count, rate, max(choice.cpus))})"
            rates.append(("loader", rate, f"alone, {counted(count, 'CPU', 'CPUs')}", beside))
        rows += [
            bar_charts.rate_row(
                color, rate, label=label if place else f"{each.name}: {label}", beside=beside
            )
            for place, (color, rate, label, beside) in enumerate(rates)
        ]
    return bar_charts.BarChart(tuple(rows), choice.unit)


def _beside(candidate: Candidate, cpus: int, rate: Estimate, most: int) -> str:
    """Samples per second for each CPU; with all of them, the memory too."""
    parts = [f"{number(rate.value / cpus)} per CPU"]
    if cpus == most and candidate.memory_bytes is not None:
        parts.append(size(candidate.memory_bytes))
    return ", ".join(parts)
