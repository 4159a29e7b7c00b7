"""Runs and comparisons as text."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from loadeval.analysis.report import Report
from loadeval.data.lines import LoaderInfo
from loadeval.report.facts import figures, loader_facts
from loadeval.report.terminal.text import (
    comparison_report,
    comparison_rows,
    full_report,
    runs_report,
)
from loadeval.report.wording.verdict import reason
from tests.runs.given import randomised
from tests.runs.measured import TickingClock, recorded
from tests.runs.tables import replace

if TYPE_CHECKING:
    from rich.console import RenderableType

    from loadeval.analysis.report import Comparison
    from loadeval.data.run import Run


MS = 1_000_000


def printed(*reports: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    for report in reports:
        console.print(report)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def report_of(*runs: Run) -> RenderableType:
    return runs_report(
        [run_report for run in runs for run_report in Report.of([run]).runs], metrics=False
    )


def figures_of(run: Run) -> list[dict[str, str]]:
    return [
        dict(figures(side)) for run_report in Report.of([run]).runs for side in run_report.sides
    ]


def comparison_of(*runs: Run) -> Comparison:
    comparison = Report.of(runs).comparison
    assert comparison is not None
    return comparison


def test_figures_of_a_run() -> None:
    """Rates, times, quantiles and counts are there under their names."""
    (shown,) = figures_of(recorded(waits_ns=[50 * MS, *[30 * MS] * 29], epochs=2))
    assert shown == {
        "run": "log",
        "mode": "log",
        "throughput": "100 images/s",
        "iteration, mean": "40.0 ms",
        "step, mean": "10.0 ms",
        "wait, mean": "30.0 ms",
        "wait, p50": "30.0 ms",
        "wait, p95": "30.0 ms",
        "wait, p99": "30.0 ms",
        "wait, max": "30.0 ms",
        "share waited": "75.0%",
        "first batch, first epoch": "50.0 ms",
        "first batch, later epochs": "50.0 ms",
        "batches": "60",
        "epochs": "2",
        "steady batches": "58",
        "left out per epoch": "1 batch",
        "samples per batch": "4",
        "bytes per batch": "64 bytes",
    }


def test_what_was_not_measured_is_not_0() -> None:
    """An empty run has no times; text has neither samples nor bytes."""
    (empty,) = figures_of(recorded(epochs=0))
    names = ("throughput", "iteration, mean", "wait, p99", "first batch, first epoch")
    assert {empty[name] for name in names} == {"not measured"}
    assert empty["first batch, later epochs"] == "none"
    (text,) = figures_of(recorded(batch="text"))
    assert (text["samples per batch"], text["bytes per batch"]) == ("unknown", "unknown")


def test_epoch_starts() -> None:
    """Later ones are a range; a first batch that was ready when wrapped is none."""
    run = recorded(clock=TickingClock(1000), epochs=3)
    (side,) = Report.of([run]).runs[0].sides
    summary = replace(side.summary, epoch_start_ns=(MS, 2 * MS, 5 * MS, 3 * MS))
    shown = dict(figures(replace(side, summary=summary)))
    assert shown["first batch, first epoch"] == "1.00 ms"
    assert shown["first batch, later epochs"] == "2.00 ms to 5.00 ms"
    loader = replace(run.header.loader, ready_batches=1)
    header = replace(run.header, loader=loader)
    (ready,) = figures_of(replace(run, header=header))
    assert ready["first batch, first epoch"] == "not measured"
    assert ready["first batch, later epochs"] == figures_of(run)[0]["first batch, later epochs"]


def test_loader_facts() -> None:
    """What is known of the loader is told, and of the rest that it is unknown."""
    run = recorded("replay")
    loader = LoaderInfo(backend="a.Loader", workers=4, prefetch_depth=8, pinned=True, length=30)
    header = replace(run.header, loader=loader, environment={}, created="2026-11-21")
    facts = dict(loader_facts(replace(run, header=header)))
    assert {name: value for name, value in facts.items() if value != "unknown"} == {
        "loader": "Loader",
        "workers": "4",
        "prefetch depth": "8",
        "batches in an epoch": "30",
        "pinned": "yes",
        "overrides": "none",
        "kept for replay": "2 (128 bytes)",
        "recorded": "2026-11-21 00:00:00",
    }
    header = replace(run.header, created="not recorded")  # by another tool
    assert dict(loader_facts(replace(run, header=header)))["recorded"] == "not recorded"


def test_an_alternating_run_has_a_column_for_each_arm() -> None:
    """Each with its own batches; a note stands below them once."""
    run = replace(randomised(noise=0), notes=("cut off",))
    real, ideal = figures_of(run)
    assert (real["mode"], ideal["mode"]) == ("alternate, real arm", "alternate, ideal arm")
    assert (real["throughput"], ideal["throughput"]) == ("800 images/s", "1,280 images/s")
    assert (real["steady batches"], ideal["steady batches"]) == ("95", "94")
    assert real["first batch, first epoch"] == "300 ms"
    assert printed(report_of(run)).count("alternating: cut off") == 1


@pytest.mark.parametrize("width", [50, 80, 200])
def test_no_figure_is_cut_off(width: int) -> None:
    """Five runs are told whole in any width: what does not fit beside goes below."""
    runs = [recorded(name=f"run {number}", waits_ns=[number * MS] * 9) for number in range(1, 6)]
    text = printed(report_of(*runs), width=width)
    assert all(
        value in text for run in runs for shown in figures_of(run) for value in shown.values()
    )
    assert all(len(line) <= width for line in text.splitlines())


def test_two_runs_fit_side_by_side_into_80_columns() -> None:
    """They fit however long a name is."""
    lines = printed(report_of(recorded(), recorded("replay"))).splitlines()
    assert lines[0].split() == ["run", "log", "replay"]
    text = printed(report_of(recorded(name="x" * 5000), recorded("replay")))
    assert "100 images/s" in text
    assert len(text) < 10_000
    assert printed(report_of()) == ""


def test_markup_and_control_characters_are_text() -> None:
    """A run cannot style, link or steer the terminal."""
    run = recorded(name="[red]x[/red] [link=a]b[/link]\x1b[2J", unit="[bold]\r\n")
    run = replace(run, notes=("[/nonsense] \x07 :smile:",))
    text = printed(report_of(run), width=200)
    assert r"[red]x[/red] [link=a]b[/link]\x1b[2J" in text
    assert r"100 [bold]\r\n/s" in text
    assert r"[/nonsense] \x07 :smile:" in text
    assert "\x1b" not in text


def test_facts_of_two_runs() -> None:
    """Speed-up, throughputs, loss and its parts, verdict with its reason; no loader alone."""
    comparison = comparison_of(recorded(step_ns=12 * MS), recorded("replay"))
    facts = dict(comparison_rows(comparison))
    assert facts["speed-up"] == "4.20x [4.20x, 4.20x], whole epochs"
    assert facts["real, steady state"] == "95.2 images/s, 42.0 ms per batch"
    assert facts["ideal, steady state"] == "400 images/s, 10.0 ms per batch"
    assert facts["loader alone"] == facts["required"] == "not measured"
    assert facts["lost per batch"].startswith(
        "32.0 ms [32.0 ms, 32.0 ms] of 42.0 ms, whole epochs ("
    )
    assert facts["  waiting"] == "30.0 ms [30.0 ms, 30.0 ms] (71.4%)"
    assert facts["  contention"] == "2.00 ms [2.00 ms, 2.00 ms] (4.8%)"
    assert facts["measured"] == "29 real and 29 ideal batches in two separate runs"
    assert facts["verdict"] == f"highly input-bound: {reason(comparison.headroom)}"
    unmeasured = dict(comparison_rows(comparison_of(recorded(warmup=99), recorded("replay"))))
    names = ("speed-up", "lost per batch", "  waiting", "  contention")
    assert {unmeasured[name] for name in names} == {"not measured"}


def test_facts_of_an_alternating_run() -> None:
    """The loader alone, how much faster it must be, epoch starts; what is missing comes last."""
    comparison = comparison_of(randomised(noise=0))
    rows = dict(comparison_rows(comparison))
    assert rows["loader alone"] == "800 images/s, 40.0 ms per batch"
    assert rows["required"] == "the loader must be 1.60x [1.60x, 1.60x] faster to keep up"
    assert rows["epoch start"] == "300 ms until the first batch, on average"
    assert rows["speed-up"].endswith("], whole epochs")
    assert rows["speed-up, steady state"] == "1.60x [1.60x, 1.60x]"
    assert rows["  epoch starts"].endswith("%)")
    assert rows["measured"] == "95 real and 94 ideal batches in 12 pairs of blocks"
    facts = comparison_rows(comparison_of(randomised(prefetches=False)))
    assert facts[-1][0] == "not measured"
    assert dict(facts)["loader alone"] == "not measured"


def test_the_full_report() -> None:
    """The verdict first, then findings, metrics, and both runs; of a lone run its headline."""
    report = Report.of([recorded(), recorded("replay")])
    assert report.comparison is not None
    text = printed(*full_report(report))
    assert text.startswith(printed(comparison_report(report.comparison)))
    assert text.index("\nFindings") < text.index("\nSystem metrics") < text.index("\nrun ")
    alone = printed(*full_report(Report.of([recorded()])))
    assert alone.startswith("Training waited for batches 75.0% of the time")
    assert alone.index("\nFindings") < alone.index("\nInside the loader") < alone.index("\nrun ")
