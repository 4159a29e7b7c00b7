"""How a run stands, in words."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from loadeval.analysis.outliers import Outlier
from loadeval.analysis.standing import Standing, Watch
from loadeval.report.watching import span, waiting_for, watch_line, watch_screen

MS = 1_000_000
SECOND = 1_000 * MS
NOW = Standing(40, 58 * SECOND, 0.7, 264.0, 0.34)
OVERALL = Standing(900, 700 * SECOND, 1.3, 250.0, 0.25)
OUTLIERS = (Outlier(3, 17, 603 * SECOND, 279 * MS, 10 * MS), Outlier(3, 1234, 0, SECOND, 0))
WATCH = Watch(
    name="resnet",
    mode="log",
    unit="images",
    created="2026-01-31T12:00:00+00:00",
    every=1,
    epoch_batches=5_000,
    elapsed_ns=723 * SECOND,
    epoch=3,
    batch=1_234,
    batches=16_234,
    now=NOW,
    overall=OVERALL,
    epoch_start_ns=400 * MS,
    last_epoch_start_ns=300 * MS,
    median_iteration_ns=15.0 * MS,
    outlier_count=12,
    outliers=OUTLIERS,
    events=("the step changes its batch",),
    ended=False,
    silent_ns=None,
)
EMPTY = replace(
    WATCH,
    epoch=None,
    batch=None,
    batches=0,
    now=None,
    overall=None,
    epoch_start_ns=None,
    median_iteration_ns=None,
    outliers=(),
    events=(),
)


def screen(watch: Watch, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(watch_screen(watch))
    return out.getvalue()


def test_the_screen_tells_all() -> None:
    """Status, now and over all side by side, epoch starts, outliers with their places, events."""
    assert [line.rstrip() for line in screen(WATCH).splitlines()] == [
        "resnet (log)",
        "running for 12 min 3 s; epoch 3, batch 1,234 of 5,000; 16,234 batches in all",
        "",
        "                 now, over 58 s  over all",
        "throughput       264 images/s    250 images/s",
        "share waited     34.0%           25.0%",
        "iteration, mean  1.45 s          778 ms",
        "",
        "epoch start: 400 ms in the first epoch, 300 ms in the last",
        "outliers: 12 iterations over twice the median of 15.0 ms",
        "  epoch 3, batch 17, 2026-01-31 12:10:03 UTC: 289 ms, 279 ms of it waited",
        "  epoch 3, batch 1,234, 2026-01-31 12:00:00 UTC: 1.00 s, 1.00 s of it waited",
        "event: the step changes its batch",
    ]


def test_the_line_tells_as_much() -> None:
    """One line for a file or another program, with the last outlier."""
    assert watch_line(WATCH) == (
        "running for 12 min 3 s; epoch 3, batch 1,234 of 5,000; 16,234 batches in all; "
        "now 264 images/s, waited 34.0%; over all 250 images/s, waited 25.0%; "
        "epoch start 400 ms in the first epoch, 300 ms in the last; "
        "outliers 12 iterations over twice the median of 15.0 ms; "
        "the last epoch 3, batch 1,234, 2026-01-31 12:00:00 UTC: 1.00 s, 1.00 s of it waited"
    )


def test_silence_comes_first() -> None:
    """For how long no batch came is told before everything else."""
    silent = replace(WATCH, silent_ns=93 * SECOND, now=None)
    assert watch_line(silent).startswith("no batch for 93 s, 12 min 3 s after the start; epoch 3")
    assert "throughput       no steady batch  250 images/s" in screen(silent)


def test_the_end_is_told() -> None:
    """And for how long the run went on."""
    assert watch_line(replace(WATCH, ended=True)).startswith("ended after 12 min 3 s; epoch 3")


def test_before_the_first_batch_no_figure_is_made_up() -> None:
    """What is not known is said to be so."""
    assert watch_line(EMPTY) == "running for 12 min 3 s; no batch yet"
    shown = screen(EMPTY)
    assert "throughput       no steady batch  no steady batch" in shown
    assert "epoch start: not measured" in shown
    assert "outliers: not measured, too few batches" in shown


def test_batches_are_told_where_samples_are_not_known() -> None:
    """And nothing where no time passed."""
    shown = screen(
        replace(
            WATCH,
            now=replace(NOW, samples_per_s=None),
            overall=Standing(1, 0, None, None, None),
            epoch_batches=None,
            batches=1,
            last_epoch_start_ns=None,
            epoch_start_ns=5 * MS,
        )
    )
    assert "throughput       0.700 batches/s  not measured" in shown
    assert "share waited     34.0%            not measured" in shown
    assert "epoch 3, batch 1,234; 1 batch in all" in shown
    assert "epoch start: 5.00 ms in the first epoch\n" in " ".join(shown.split("  "))


def test_a_run_that_keeps_one_batch_in_n_says_so() -> None:
    """Its outliers are the slowest batches of its aggregates."""
    shown = screen(replace(WATCH, every=1_000), width=120)
    assert shown.startswith("resnet (log, one batch in 1,000)")
    assert "twice the median of 15.0 ms, of the slowest one of each aggregate" in shown


@pytest.mark.parametrize("created", ["not recorded", "9999-12-31T23:59:59+00:00"])
def test_without_a_date_the_time_counts_from_the_start(created: str) -> None:
    """A log whose beginning is not known, or out of reach, is followed all the same."""
    assert "epoch 3, batch 17, 10 min 3 s after the start: 289 ms" in screen(
        replace(WATCH, created=created)
    )


def test_text_of_a_log_cannot_steer_the_terminal() -> None:
    """Its name, its unit and its events are text, and so is its path."""
    evil = "[red]\x1b[2J"
    shown = screen(replace(WATCH, name=evil, unit=evil, events=(evil,)), width=200)
    assert "\x1b" not in shown + waiting_for(evil)
    assert shown.count(r"[red]\x1b[2J") == 4
    assert waiting_for("run.jsonl") == "Waiting for run.jsonl, where no run log is yet"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.4, "0 s"),
        (99, "99 s"),
        (100, "1 min 40 s"),
        (3_600, "1 h 0 min"),
        (90_000, "1 d 1 h"),
        (8_000_000, "92 d 14 h"),
    ],
)
def test_times_have_two_units(seconds: float, told: str) -> None:
    """The two largest."""
    assert span(round(seconds * SECOND)) == told
