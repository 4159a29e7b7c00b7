"""The state of a run that goes on, in words."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from loadeval.analysis.live import LiveState, Outlier
from loadeval.analysis.rates import Rates
from loadeval.report.terminal.live import live_line, live_screen
from loadeval.report.wording.live import span, waiting_for

MS = 1_000_000
SECOND = 1_000 * MS
NOW = Rates(40, 58 * SECOND, 0.7, 264.0, 0.34)
OVERALL = Rates(900, 700 * SECOND, 1.3, 250.0, 0.25)
OUTLIERS = (Outlier(3, 17, 603 * SECOND, 279 * MS, 10 * MS), Outlier(3, 1234, 0, SECOND, 0))
STATE = LiveState(
    name="resnet",
    mode="log",
    unit="images",
    created="2026-01-31T12:00:00+00:00",
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
    STATE,
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


def screen(state: LiveState, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(live_screen(state))
    return out.getvalue()


def test_the_screen_tells_all() -> None:
    """Status, now beside the whole run, epoch starts, outliers with their places, events."""
    assert [line.rstrip() for line in screen(STATE).splitlines()] == [
        "resnet (log)",
        "running for 12 min 3 s; epoch 3, batch 1,234 of 5,000; 16,234 batches in total",
        "",
        "                last 58 s     whole run",
        "throughput      264 images/s  250 images/s",
        "time waiting    34.0%         25.0%",
        "mean iteration  1.45 s        778 ms",
        "",
        "epoch start: 400 ms in the first epoch, 300 ms in the last",
        "outliers: 12 iterations over twice the median of 15.0 ms",
        "  epoch 3, batch 17, 2026-01-31 12:10:03 UTC: 289 ms, of which 279 ms waiting",
        "  epoch 3, batch 1,234, 2026-01-31 12:00:00 UTC: 1.00 s, of which 1.00 s waiting",
        "event: the step changes its batch",
    ]


def test_the_line_tells_as_much() -> None:
    """One line for a file or another program, with the last outlier."""
    assert live_line(STATE) == (
        "running for 12 min 3 s; epoch 3, batch 1,234 of 5,000; 16,234 batches in total; "
        "now 264 images/s, waiting 34.0%; whole run 250 images/s, waiting 25.0%; "
        "epoch start 400 ms in the first epoch, 300 ms in the last; "
        "outliers 12 iterations over twice the median of 15.0 ms; "
        "the last epoch 3, batch 1,234, 2026-01-31 12:00:00 UTC: 1.00 s, of which 1.00 s waiting"
    )


def test_the_status_comes_first() -> None:
    """Whether the run goes on, has ended or is silent."""
    silent = replace(STATE, silent_ns=93 * SECOND, now=None)
    assert live_line(silent).startswith("no batch for 93 s, 12 min 3 s after the start; epoch 3")
    assert live_line(replace(STATE, ended=True)).startswith("ended after 12 min 3 s; epoch 3")
    assert live_line(EMPTY) == "running for 12 min 3 s; no batch yet"


def test_what_is_not_known_is_not_made_up() -> None:
    """Nothing before the first batch; batches where samples are not known; no rate of no time."""
    shown = screen(EMPTY)
    assert "throughput      no steady-state batches  no steady-state batches" in shown
    assert "epoch start: not measured" in shown
    assert "outliers: not measured, too few batches" in shown
    now, overall = replace(NOW, samples_per_s=None), Rates(1, 0, None, None, None)
    state = replace(STATE, now=now, overall=overall, epoch_batches=None, batches=1)
    shown = screen(replace(state, last_epoch_start_ns=None))
    assert "throughput      0.700 batches/s  not measured" in shown
    assert "time waiting    34.0%            not measured" in shown
    assert "epoch 3, batch 1,234; 1 batch in total" in shown
    assert "in the last" not in shown


@pytest.mark.parametrize("created", ["not recorded", "9999-12-31T23:59:59+00:00"])
def test_without_a_date_the_time_counts_from_the_start(created: str) -> None:
    """A log whose beginning is not known, or out of reach, is followed all the same."""
    shown = screen(replace(STATE, created=created))
    assert "epoch 3, batch 17, 10 min 3 s after the start: 289 ms" in shown


def test_text_of_a_log_cannot_steer_the_terminal() -> None:
    """Its name, its unit and its events are text, and so is its path."""
    evil = "[red]\x1b[2J"
    shown = screen(replace(STATE, name=evil, unit=evil, events=(evil,)), width=200)
    assert "\x1b" not in shown + waiting_for(evil)
    assert shown.count(r"[red]\x1b[2J") == 4


def test_times_have_two_units() -> None:
    """The two largest."""
    times = [span(round(s * SECOND)) for s in (0.4, 99, 100, 3_600, 90_000, 8_000_000)]
    assert times == ["0 s", "99 s", "1 min 40 s", "1 h 0 min", "1 d 1 h", "92 d 14 h"]
