"""The figures: plotly knows all that is in them, and they hold what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.report import Report
from loadeval.analysis.summary import epoch_starts
from loadeval.report.formatting import duration, number
from loadeval.report.html.blocks import Figure, Table
from loadeval.report.html.epoch_starts import started
from loadeval.report.html.page import sections
from loadeval.report.html.palette import LIGHT
from loadeval.runlog.model import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.runlog.model import Run

    Record = Callable[..., Run]

MS = 1_000_000


def figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """The figures of a page, by name."""
    return {found.name: found for found in of_kind(runs, Figure)}


def tables(runs: Sequence[Run]) -> dict[str, Table]:
    """The tables of a page, by caption."""
    return {found.caption: found for found in of_kind(runs, Table)}


def of_kind(runs: Sequence[Run], kind: type[Any]) -> list[Any]:
    files = [Path(f"{place}.jsonl") for place, _ in enumerate(runs)]
    told = sections(Report.of(runs), files, Path("page.html"))
    return [block for section in told for block in section.blocks if isinstance(block, kind)]


def painted(value: Any, key: str = "") -> Any:
    """`value` with colours in place of their names, as the page's script puts them in."""
    if isinstance(value, str):
        return LIGHT.get(value, value) if key.endswith("color") else value
    if isinstance(value, list):
        return [painted(one, key) for one in value]
    if isinstance(value, dict):
        return {name: painted(one, name) for name, one in value.items()}
    return value


@pytest.fixture(name="sorts")
def _sorts(record: Record, alternating: Record, readings: Record) -> dict[str, list[Run]]:
    """A page of each sort."""
    jagged = [30 * MS if place % 7 else 500 * MS for place in range(40)]
    log = record("log", waits_ns=jagged, epochs=3)
    return {
        "alternating": [readings(alternating())],
        "log": [log],
        "replay": [record("replay")],
        "pair": [log, record("replay", waits_ns=jagged)],
        "backends": [alternating(name="torch"), record("log", name="dali")],
        "nothing counts": [record("log", waits_ns=(1,), warmup=5)],
    }


SORTS = ("alternating", "log", "replay", "pair", "backends", "nothing counts")


@pytest.mark.parametrize("sort", SORTS)
def test_plotly_knows_every_property(sorts: dict[str, list[Run]], sort: str) -> None:
    """Its own validation takes each figure."""
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for figure in figures(sorts[sort]).values():
        graph_objects.Figure(painted({"data": figure.data, "layout": figure.layout}))


@pytest.mark.parametrize("sort", SORTS)
def test_each_figure_says_what_is_to_be_seen(sorts: dict[str, list[Run]], sort: str) -> None:
    """Its caption is a sentence, and every point has words of its own."""
    for figure in figures(sorts[sort]).values():
        assert figure.caption.endswith(".")
        for trace in figure.data:
            assert len(trace["customdata"]) == len(trace["x"]) == len(trace["y"])


def test_paces_are_those_of_the_comparison(alternating: Record) -> None:
    """Real, ideal and the loader alone, as the comparison has them, with intervals."""
    run = alternating()
    comparison = Report.of([run]).comparison
    assert comparison is not None
    rows = {
        cells[0]: cells[1]
        for cells in tables([run])["Throughput in images/s, with 95% intervals"].rows
    }
    rates = dict(zip(("real", "ideal", "loader alone"), comparison.rates, strict=True))
    for name, rate in rates.items():
        assert rows[name].startswith(f"{number(rate.value if rate else 0)} [")


def test_lost_time_adds_up(alternating: Record) -> None:
    """From the end of real by waiting, then by contention, to ideal."""
    figure = figures([alternating()])["batch-time"]
    parts = {
        (trace["name"], row): (start, long)
        for trace in figure.data
        for row, start, long in zip(trace["y"], trace["base"], trace["x"], strict=True)
    }
    waiting, contention = parts["waiting", 1], parts["contention", 2]
    whole_ns = sum(long for (_, row), (_, long) in parts.items() if row == 0)
    ideal_ns = sum(long for (_, row), (_, long) in parts.items() if row == 3)
    assert sum(waiting) == pytest.approx(whole_ns)
    assert sum(contention) == pytest.approx(waiting[0])
    assert contention[0] == pytest.approx(ideal_ns)


def test_blocks_of_both_arms_are_shaded(alternating: Record) -> None:
    """One rectangle for each stretch that counts."""
    shapes = figures([alternating(pairs=6, epoch=10_000)])["timeline-0"].layout["shapes"]
    shaded = [shape["fillcolor"] for shape in shapes if shape["type"] == "rect"]
    assert sorted(shaded) == ["ideal"] * 6 + ["real"] * 6


def test_many_blocks_are_not_shaded_and_that_is_told(alternating: Record) -> None:
    """They would be one grey."""
    figure = figures([alternating(pairs=300)])["timeline-0"]
    assert not [shape for shape in figure.layout["shapes"] if shape["type"] == "rect"]
    assert "blocks are too many to be shaded" in figure.caption


def test_a_long_run_is_thinned_and_that_is_told(record: Record) -> None:
    """A single slow batch of many is still drawn."""
    waits = [MS + place % 13 for place in range(20_000)]
    waits[12_345] = 77 * MS
    figure = figures([record("log", waits_ns=waits)])["timeline-0"]
    (line,) = (one for one in figure.data if one["name"] == "real" and one["yaxis"] == "y")
    assert len(line["x"]) <= 2_000
    (spike,) = (words for words in line["customdata"] if duration(77 * MS) in words)
    assert spike.startswith("epoch 0, batch 12345, at ")
    assert any("Thinned: of 20,000 batches" in note for note in figure.notes)


def test_lines_do_not_join_epochs(record: Record) -> None:
    """There is a gap between any two."""
    figure = figures([record("log", epochs=3)])["timeline-0"]
    (line,) = (one for one in figure.data if one["name"] == "real" and one["yaxis"] == "y")
    assert line["x"].count(None) == 2


@pytest.mark.parametrize("ready", [None, 3])
def test_epoch_starts_are_those_of_the_analysis(alternating: Record, ready: int | None) -> None:
    """With the epochs that they are of."""
    run = alternating()
    loader = replace(run.header.loader, ready_batches=ready)
    run = replace(run, header=replace(run.header, loader=loader))
    epochs, waits = started(run)
    assert waits.tolist() == epoch_starts(run).tolist()
    assert len(epochs) == len(waits)
    assert epochs[0] == (1 if ready else 0)


def test_very_many_epoch_starts_are_a_line(record: Record) -> None:
    """Bars would be thinner than a pixel."""
    (trace,) = figures([record("log", waits_ns=(MS,) * 2, epochs=400)])["epoch starts"].data
    assert (trace["type"], len(trace["x"])) == ("scatter", 400)


def test_outliers_are_over_twice_the_median(record: Record) -> None:
    """The worst stand in a table, with epoch, batch and time."""
    waits = [10 * MS] * 30
    waits[20], waits[25] = 400 * MS, 100 * MS
    found = tables([record("log", waits_ns=waits)])
    (table,) = (one for caption, one in found.items() if "2 outliers" in caption)
    assert [row[0] for row in table.rows] == ["epoch 0, batch 20", "epoch 0, batch 25"]
    assert table.rows[0][2:5] == ("410 ms", "400 ms", "10.0 ms")
    assert table.rows[0][5] == "20.5"


def test_of_many_outliers_the_worst_twenty(record: Record) -> None:
    """Their number is told."""
    waits = [MS if place % 3 else 300 * MS for place in range(300)]
    (table,) = (
        one
        for caption, one in tables([record("log", waits_ns=waits)]).items()
        if "outliers" in caption
    )
    assert len(table.rows) == 20
    assert table.caption.startswith("The worst 20 of 99 outliers")


def test_all_waits_are_in_the_distribution(alternating: Record) -> None:
    """The shares of each arm add up to 1, waits of nothing included."""
    figure = figures([alternating()])["distribution"]
    assert [trace["name"] for trace in figure.data] == ["real", "ideal"]
    for trace in figure.data:
        assert sum(trace["y"]) == pytest.approx(1, abs=1e-4)
    assert "Waits of nothing are at its left end." in figure.caption


def test_readings_share_the_axis_of_the_waits(alternating: Record, readings: Record) -> None:
    """The same range, and the same name."""
    found = figures([readings(alternating())])
    timeline, machine = found["timeline-0"], found["machine-0"]
    assert timeline.time_axis == machine.time_axis
    assert timeline.layout["xaxis"]["range"] == machine.layout["xaxis"]["range"]


def test_a_run_without_times_is_drawn_by_batch(record: Record) -> None:
    """As one of DALI's LoaderEvaluator is."""
    run = record("log")
    steps = replace(run.steps, request_ns=np.full(len(run.steps), UNKNOWN))
    figure = figures([replace(run, steps=steps)])["timeline-0"]
    assert figure.layout["xaxis"]["title"]["text"] == "batch number"
    assert "at " not in figure.data[-1]["customdata"][0]
