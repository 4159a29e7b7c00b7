"""Runs and comparisons as text."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from loadeval.analysis.headroom import compare
from loadeval.analysis.summary import summarise
from loadeval.report.comparison import columns
from loadeval.report.text import (
    RunsReport,
    comparison_report,
    figures,
    loader_facts,
    notes,
)
from loadeval.report.wording import cautions, verdict_advice
from loadeval.runlog.model import EpochEnd, Event, LoaderInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from loadeval.runlog.model import Run

MS = 1_000_000


def printed(report: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(report)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def report_of(*runs: Run) -> RunsReport:
    return RunsReport([(run, summarise(run)) for run in runs])


def test_figures_of_a_run(record: Callable[..., Run]) -> None:
    """Rates, times, quantiles and counts are there under their names."""
    run = record(waits_ns=[50 * MS, *[30 * MS] * 29], epochs=2)
    found = dict(figures(run, summarise(run)))
    assert found == {
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


def test_figures_of_an_unmeasured_run(record: Callable[..., Run]) -> None:
    """What was not measured, or is not known, is said so, and is not 0."""
    run = record(epochs=0)
    found = dict(figures(run, summarise(run)))
    assert {
        found[name] for name in ("throughput", "iteration, mean", "wait, p99", "share waited")
    } == {"not measured"}
    assert found["first batch, first epoch"] == "not measured"
    assert found["first batch, later epochs"] == "none"


def test_unknown_samples_are_unknown(record: Callable[..., Run]) -> None:
    """A loader of text has neither samples nor bytes."""
    run = record(samples=None)
    found = dict(figures(run, summarise(run)))
    assert (found["samples per batch"], found["bytes per batch"]) == ("unknown", "unknown")


def test_epoch_starts_of_later_epochs_are_a_range(record: Callable[..., Run]) -> None:
    """From the shortest to the longest, without the first."""
    run = record(tick_ns=1000, epochs=3)
    (first, *later) = summarise(run).epoch_start_ns
    summary = dataclasses.replace(summarise(run), epoch_start_ns=(first, 2 * MS, 5 * MS, 3 * MS))
    assert len(later) == 2
    assert dict(figures(run, summary))["first batch, later epochs"] == "2.00 ms to 5.00 ms"


def test_loader_facts(record: Callable[..., Run]) -> None:
    """What is known of the loader is told, and of the rest that it is unknown."""
    run = record("replay")
    loader = LoaderInfo(backend="a.Loader", workers=4, prefetch_depth=8, pinned=True, length=30)
    header = dataclasses.replace(run.header, loader=loader, environment={}, created="2026-11-21")
    found = dict(loader_facts(dataclasses.replace(run, header=header)))
    assert found == {
        "loader": "Loader",
        "workers": "4",
        "prefetch depth": "8",
        "batch size": "unknown",
        "batches in an epoch": "30",
        "ready when wrapped": "unknown",
        "pinned": "yes",
        "device": "unknown",
        "start method": "unknown",
        "persistent workers": "unknown",
        "kept for replay": "2 (128 bytes)",
        "recorded": "2026-11-21 00:00:00",
        "host": "unknown",
        "usable CPUs": "unknown",
    }


def test_a_time_that_is_none_is_told_as_it_is(record: Callable[..., Run]) -> None:
    """A file of another tool has no time."""
    run = record()
    header = dataclasses.replace(run.header, created="not recorded")
    found = dict(loader_facts(dataclasses.replace(run, header=header)))
    assert found["recorded"] == "not recorded"


def test_notes_events_and_failures_are_told(record: Callable[..., Run]) -> None:
    """What reading brought up, what happened when, and what ended an epoch."""
    run = dataclasses.replace(
        record(),
        notes=("cut off",),
        events=(Event(1_500 * MS, "copies"),),
        ends=(EpochEnd(3, "failed", 0, 0, "ValueError: bad"),),
    )
    assert notes(run) == [
        "log: cut off",
        "log, at 1.50 s: copies",
        "log, epoch 3 failed: ValueError: bad",
    ]


def test_notes_are_printed_under_the_figures(record: Callable[..., Run]) -> None:
    """The notes of a run follow its table."""
    run = dataclasses.replace(record(), notes=("cut off",))
    assert printed(report_of(run)).endswith("\nNotes\n  log: cut off".ljust(80 + 7) + "\n")


def test_an_alternating_run_has_a_column_for_each_arm(alternating: Callable[..., Run]) -> None:
    """The real arm's batches and the ideal one's, each with its own rates."""
    real, ideal = (dict(figures(*side)) for side in columns(alternating(noise=0)))
    assert (real["mode"], ideal["mode"]) == ("alternate, real arm", "alternate, ideal arm")
    assert (real["throughput"], ideal["throughput"]) == ("800 images/s", "1,280 images/s")
    assert (real["steady batches"], ideal["steady batches"]) == ("95", "94")
    assert real["left out per epoch"] == "epoch starts, warm-up"
    assert real["first batch, first epoch"] == "300 ms"


def test_notes_of_an_alternating_run_are_told_once(alternating: Callable[..., Run]) -> None:
    """Its two columns are of one run."""
    run = dataclasses.replace(alternating(), notes=("cut off",))
    assert printed(RunsReport(columns(run))).count("cut off") == 1


def test_comparison_prints_finding_advice_and_caution(record: Callable[..., Run]) -> None:
    """The finding is the first line, and advice and caution are whole."""
    headroom = compare(record(), record("replay"))
    text = printed(comparison_report(headroom))
    assert text.startswith("Highly input-bound: training would be 4.00x as fast")
    words = " ".join(text.split())
    assert verdict_advice(headroom) in words
    assert " ".join(cautions(headroom)) in words


@pytest.mark.parametrize("width", [50, 80, 200])
def test_no_figure_is_cut_off(record: Callable[..., Run], width: int) -> None:
    """Five runs are told whole in any width: what does not fit beside goes below."""
    runs = [record(name=f"run {number}", waits_ns=[number * MS] * 9) for number in range(1, 6)]
    text = printed(report_of(*runs), width)
    rows = [figures(run, summarise(run)) for run in runs]
    assert all(value in text for column in rows for _, value in column)
    assert all(len(line) <= width for line in text.splitlines())


def test_two_runs_fit_side_by_side_into_80_columns(record: Callable[..., Run]) -> None:
    """A real and an ideal run are told in one table."""
    lines = printed(report_of(record(), record("replay"))).splitlines()
    assert lines[0].split() == ["run", "log", "replay"]


def test_a_long_name_does_not_push_figures_out(record: Callable[..., Run]) -> None:
    """A name of thousands of characters is shortened, and the throughput is still there."""
    text = printed(report_of(record(name="x" * 5000), record("replay")))
    assert "100 images/s" in text
    assert len(text) < 10_000


def test_markup_and_control_characters_are_text(record: Callable[..., Run]) -> None:
    """A run cannot style, link or steer the terminal."""
    run = record(name="[red]x[/red] [link=a]b[/link]\x1b[2J", unit="[bold]\r\n")
    run = dataclasses.replace(run, notes=("[/nonsense] \x07 :smile:",))
    text = printed(report_of(run), 200)
    assert r"[red]x[/red] [link=a]b[/link]\x1b[2J" in text
    assert r"100 [bold]\r\n/s" in text
    assert r"[/nonsense] \x07 :smile:" in text
    assert "\x1b" not in text


def test_no_runs_make_an_empty_report() -> None:
    """Nothing to tell is nothing told."""
    assert printed(RunsReport([])) == ""


def test_a_batch_that_was_ready_is_no_epoch_start(record: Callable[..., Run]) -> None:
    """The first epoch's epoch start is then not measured; those of later epochs are."""
    run = record(tick_ns=1000, epochs=3)
    loader = dataclasses.replace(run.header.loader, ready_batches=1)
    ready = dataclasses.replace(run, header=dataclasses.replace(run.header, loader=loader))
    assert summarise(ready).epoch_start_ns == summarise(run).epoch_start_ns[1:]
    found = dict(figures(ready, summarise(ready)))
    assert found["first batch, first epoch"] == "not measured"
    assert (
        found["first batch, later epochs"]
        == dict(figures(run, summarise(run)))["first batch, later epochs"]
    )
