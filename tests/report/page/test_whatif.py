"""The page's section on other numbers of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.report import Report
from loadeval.report.page.blocks import Figure, Heading, Text
from loadeval.report.page.whatif import MOST_RUNS, whatif
from loadeval.report.tables import Table
from tests.report.predictions import PRESENT_RATE, prediction, worker_curve
from tests.runs.measured import recorded
from tests.runs.staged import staged, without_stages
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.analysis.predict.prediction import WorkerCurve
    from loadeval.analysis.report import RunReport
    from loadeval.data.run import Run
    from loadeval.report.page.blocks import Block


def blocks_of(curve: WorkerCurve, name: str = "") -> tuple[Block, ...]:
    """Those of a run with this curve."""
    (run,) = Report.of([without_stages(staged(batches=60))]).runs
    run = replace(run, name=name)
    vars(run)["whatif"] = curve
    (section,) = whatif(Report((run,), None, None))
    return section.blocks


def figure_of(curve: WorkerCurve) -> Figure:
    return next(block for block in blocks_of(curve) if isinstance(block, Figure))


def trace_of(figure: Figure, name: str) -> dict[str, Any]:
    return next(trace for trace in figure.data if trace["name"] == name)


def reported(count: int, run: Run) -> Report:
    (run_report,) = Report.of([run]).runs
    runs: list[RunReport] = [replace(run_report, number=at) for at in range(count)]
    return Report(tuple(runs), None, None)


def test_a_run_that_was_looked_into_has_the_section() -> None:
    """With a figure and a table, and a heading for each of several runs."""
    (section,) = whatif(Report.of([staged(epochs=1, batches=90)]))
    assert (section.name, section.heading) == ("what-if", "What if")
    kinds = [type(block) for block in section.blocks]
    assert kinds == [Figure, Table, Text, Text]
    report = reported(3, without_stages(staged(batches=60)))
    runs = [replace(run, name=name) for run, name in zip(report.runs, "abc", strict=True)]
    for run in runs[:2]:
        vars(run)["whatif"] = worker_curve()
    (section,) = whatif(replace(report, runs=tuple(runs)))
    assert [type(block) for block in section.blocks] == [Heading, *kinds] * 2


def test_other_runs_have_none() -> None:
    """Those that logged or replayed, or have too few batches to predict from, have none."""
    for run in (recorded("log"), recorded("replay"), staged("log"), staged(epochs=1, batches=3)):
        assert whatif(Report.of([run])) == []


def test_many_ranks_have_none() -> None:
    """Predicting takes its time, and they are alike."""
    assert whatif(reported(MOST_RUNS + 1, staged(epochs=1, batches=90))) == []


def test_a_curve_is_computed_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; the reports that do not show it do not wait for it."""
    counted: list[object] = []
    made = worker_curve()

    class Model:
        def __init__(self, recorded: object) -> None:
            counted.append(recorded)

        def curve(self) -> WorkerCurve:
            return made

    monkeypatch.setattr("loadeval.analysis.report.LoaderModel", Model)
    (run_report,) = Report.of([staged()]).runs
    assert not counted
    assert run_report.whatif is run_report.whatif is made
    assert len(counted) == 1


def test_dots_are_measured_and_the_dashed_line_predicted() -> None:
    """Each in words that say which it is."""
    figure = figure_of(worker_curve())
    measured, predicted = (trace_of(figure, name) for name in ("measured", "predicted"))
    assert (measured["mode"], measured["x"], measured["y"]) == ("markers", [2], [500.0])
    assert measured["customdata"] == ["2 workers<br>measured 500 [480, 520] images/s"]
    assert (predicted["line"]["dash"], predicted["x"]) == ("dash", list(range(1, 9)))
    assert all("<br>predicted " in words for words in predicted["customdata"])


def test_whiskers_are_the_intervals() -> None:
    """They have length 0 where there is none."""
    rates = (2, PRESENT_RATE), (6, Estimate(900.0, None, None))
    whiskers = trace_of(figure_of(worker_curve(measured=rates)), "measured")["error_y"]
    assert (whiskers["array"], whiskers["arrayminus"]) == ([20.0, 0.0], [20.0, 0.0])


def test_the_band_goes_around_what_is_predicted() -> None:
    """Along the low ends, and back along the high ones."""
    curve = worker_curve(predicted=(prediction(1, 100.0), prediction(2, 200.0)))
    band, *_ = figure_of(curve).layout["shapes"]
    assert band["path"] == "M1,90.0 L2,180.0 L2,220.00000000000003 L1,110.00000000000001 Z"


@pytest.mark.parametrize(("cpus", "anchor"), [(4.0, "left"), (8.0, "right")])
def test_a_line_is_where_the_cpus_end(cpus: float, anchor: str) -> None:
    """With its name beside it, and what it is in the caption."""
    figure = figure_of(worker_curve(cpus=cpus))
    _, line = figure.layout["shapes"]
    (mark,) = figure.layout["annotations"]
    assert (line["x0"], line["x1"]) == (cpus, cpus)
    assert (mark["text"], mark["xanchor"]) == (f"{cpus:.0f} CPUs", anchor)
    assert "vertical line" in figure.caption


def test_without_cpus_there_is_no_line() -> None:
    """The band is left."""
    figure = figure_of(worker_curve(cpus=None))
    assert len(figure.layout["shapes"]) == 1
    assert "vertical line" not in figure.caption


def test_assumptions_are_below_the_table() -> None:
    """Nothing where there are none."""
    assert "Assumed: " in str(blocks_of(worker_curve())[-1])
    bare = blocks_of(worker_curve(predicted=(prediction(),)))
    assert "Assumed: " not in str(bare)


def test_a_unit_is_drawn_as_it_is() -> None:
    """No markup is read out of it."""
    unit = "<b>$x$"
    curve = worker_curve(unit=unit, predicted=(prediction(unit=unit),))
    figure = figure_of(curve)
    drawn = [*figure.data[0]["customdata"], *figure.data[1]["customdata"]]
    drawn.append(figure.layout["yaxis"]["title"]["text"])
    assert all("&lt;b&gt;&#36;x&#36;/s" in text for text in drawn)
