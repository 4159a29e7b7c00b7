"""What is concluded of a gap, and what is said beside it."""

from __future__ import annotations

import numpy as np
import pytest

from loadeval.data.lines import Prefetch, Window
from loadeval.data.run import Run
from loadeval.estimate.before_after import about_two_runs
from loadeval.estimate.gap import gap
from loadeval.estimate.verdict import Verdict, cautions, gate_of, verdict
from tests.builder import MS, alternating, logged, run_of, steps


def concluded(run: Run, ideal: Run | None = None) -> Verdict:
    return verdict(gap(run, ideal), run, ideal)


def cautioned(run: Run, ideal: Run | None = None) -> list[str]:
    return [*cautions(gap(run, ideal), run, ideal)]


@pytest.mark.parametrize(
    ("wait", "level"),
    [
        (0.52, "not input-bound"),
        (0.53, "moderately input-bound"),
        (2.49, "moderately input-bound"),
        (2.51, "highly input-bound"),
    ],
)
def test_levels_are_at_5_and_20_percent_of_the_time(wait: float, level: str) -> None:
    """An ideal iteration takes 10 ms: 0.526 ms more are 5%."""
    assert concluded(alternating(wait=wait)).level == level


def test_an_interval_that_spans_a_threshold_names_both_levels() -> None:
    found = concluded(alternating(wait=2.5, spread=0.15))
    assert found.level == "moderately to highly input-bound"
    assert found.remedy.startswith("Measure more batches or epochs, ")


def test_workers_that_were_busy_slow_the_ideal_arm() -> None:
    """As long as it is not more than enough all the same."""
    windows = tuple(Window(pair, 0, "ideal", 80 * MS, 40 * MS) for pair in range(8))
    found = concluded(alternating(wait=1, windows=windows))
    assert found.rule == "workers busy in the ideal arm"
    assert "(50% of a CPU)" in found.reason
    assert concluded(alternating(wait=5, windows=windows)).level == "highly input-bound"
    assert cautioned(alternating(wait=5, windows=windows))[0].startswith(
        "The loader's workers were busy in the ideal blocks (50% of a CPU)"
    )


def test_an_ideal_arm_that_is_slower_cannot_come_from_loading() -> None:
    assert concluded(alternating(ideal=12)).rule == "ideal arm slower"


STALLED = [Prefetch(0, 0, 9, 8, 1_000 * MS, 32, [MS] * 8 + [1_000 * MS])]


def test_stalls_too_rare_to_be_estimated_are_said_with_their_count() -> None:
    """One came while batches were prefetched, none in the batches that count."""
    run = alternating(spread=0.01, prefetches=tuple(STALLED))
    found = concluded(run)
    assert found.rule == "stalls too rare"
    assert found.reason.endswith(
        "1 stall of up to 960 ms, 0 of them measured: too few to show how often one comes"
    )
    assert cautioned(run) == [
        (
            "Stalls were too rare to be estimated: 1 stall of up to 960 ms, 0 of them measured: "
            "too few to show how often one comes."
        )
    ]


@pytest.mark.parametrize(("at", "rule"), [(5, "stalls too rare"), (0, "concluded")])
def test_a_stall_in_an_instrumented_block_is_said(at: int, rule: str) -> None:
    """But not the first wait of a block, which may be for the prefetch."""
    waits = np.zeros(24)
    waits[at] = 3_000
    looked_into = steps("real", waits, 10, instrumented=True)
    assert concluded(run_of([alternating(spread=0.01).steps, looked_into])).rule == rule


def test_the_run_without_steady_batches_is_named() -> None:
    real, replay = logged([5.0] * 60), logged([0.0], mode="replay", name="short")
    assert concluded(real, replay).reason == (
        "short has no steady-state batches: it has 1, and the warm-up of each epoch takes 1"
    )


def test_stalls_that_were_measured_three_times_are_estimated() -> None:
    waits = np.zeros(240)
    waits[[20, 90, 200]] = 1_000
    run, replay = logged(waits, 10.0), logged([0.0] * 60, mode="replay")
    assert not any("Stalls" in caution for caution in cautioned(run, replay))
    waits[200] = 0
    assert any(
        "2 stalls of up to 1.00 s" in caution for caution in cautioned(logged(waits), replay)
    )


def test_two_runs_are_cautioned_about() -> None:
    real = logged([5.0] * 60, environment={"host": "a"}, batch_size=4)
    ideal = logged([0.0] * 60, mode="replay", environment={"host": "b"}, batch_size=8, unit="texts")
    assert [*about_two_runs(real, ideal)] == [
        "The two runs differ: batch size 4 (real), 8 (ideal).",
        "The two runs differ: host a (real), b (ideal).",
        "Samples are not known in both runs: batches are compared as if equally large.",
        (
            "The runs are separate: machine drift between them counts as a loading difference, and "
            "the 95% CI does not cover it."
        ),
    ]


def test_one_epoch_start_is_cautioned_about() -> None:
    assert cautioned(run_of([steps("real", 1_000, 10, 1), alternating().steps])) == [
        (
            "Only one epoch start was seen, 27.4% of the time: the 95% CI leaves out how much "
            "epoch starts differ. Run two epochs or more."
        )
    ]


def test_a_gate_that_the_interval_spans_is_undecided() -> None:
    run = alternating(wait=2.5, spread=0.1)
    result = gap(run)
    is_above, said = gate_of(verdict(result, run), result.lost_share, 0.2)
    assert is_above is None
    assert said == (
        "Undecided whether more than 20% is lost: 19.7% [17.0%, 22.4%] of the training time is "
        "lost to data loading; the 95% CI spans the limit. Measure more batches or epochs."
    )


def test_a_gate_is_undecided_where_the_verdict_is_for_another_reason_than_width() -> None:
    few, wide = alternating(wait=5, pairs=2, real=8), alternating(wait=2, spread=0.8, pairs=4)
    outcomes = [gate_of(verdict(gap(run), run), gap(run).lost_share, 0.9)[0] for run in (few, wide)]
    assert outcomes == [None, False]
