"""Epochs that are too short for two blocks: alternated whole, or logged."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.headroom import Missing, headroom, headroom_of_two, missing_epochs
from loadeval.analysis.estimate.steady import usual_length, warmup_of
from loadeval.analysis.estimate.summary import summarise
from loadeval.analysis.estimate.verdict import InputBound, Objection, Unmeasured, VerdictAdvice
from loadeval.analysis.report import Report
from loadeval.analysis.rules.diagnosis import diagnose
from loadeval.analysis.rules.finding import Rule
from loadeval.data.blocks import whole_epochs
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import Block, EpochEnd, LoaderInfo, Prefetch
from loadeval.data.run import ARMS, Run
from loadeval.report.terminal.screen import comparison_screen
from loadeval.report.terminal.text import comparison_rows
from loadeval.report.wording.runs import report_headline
from loadeval.report.wording.verdict import headline, measured, verdict_advice
from tests.analysis.numbers import bounds, codes, value
from tests.runs.given import MS, block, part, run_of
from tests.runs.tables import blocks_of, replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.data.lines import Arm, Cause, Mode

WORKERS = LoaderInfo(
    "torch.utils.data.DataLoader",
    workers=8,
    prefetch_depth=16,
    length=5,
    persistent_workers=False,
)
FIRST, WAIT, STEP, IDEAL, END = 400, 2, 22, 20, 30
"""Milliseconds: the first wait of a real epoch, its other waits, its steps, and its end."""
REAL_BATCH = (FIRST + 4 * WAIT + 5 * STEP + END) / 5


def epoch(
    number: int, arm: Arm, pair: int | None, batches: int = 5, more: float = 0.0
) -> list[Block]:
    """One of `batches`; a real one takes `more` for its start."""
    first, wait, step = (FIRST + more, WAIT, STEP) if arm == "real" else (500.0, 0, IDEAL)
    whole = block(
        arm,
        [int(wait_ms * MS) for wait_ms in (first, *[wait] * (batches - 1))],
        step * MS,
        request_ns=number * 10_000 * MS,
        epoch=number,
        pair=pair,
        samples=4,
        nbytes=10,
    )
    if pair is None or batches == 1:
        return [whole]
    return [part(whole, slice(1), pair=None), part(whole, slice(1, None))]


def trained(
    epochs: Sequence[list[Block]],
    loader: LoaderInfo = WORKERS,
    mode: Mode = "alternate",
    cause: Cause = "exhausted",
    **more: Any,
) -> Run:
    warmup = (loader.prefetch_depth or 0) + 1
    ends = tuple(
        EpochEnd(epoch_blocks[0].epoch, cause, None, END * MS if cause == "exhausted" else None)
        for epoch_blocks in epochs
    )
    header: dict[str, Any] = {"mode": mode, "warmup": warmup, "loader": loader}
    return run_of(chain.from_iterable(epochs), ends=ends, **header, **more)


def alternated(pairs: int = 4, batches: int = 5, spread: float = 5.0, **options: Any) -> Run:
    """A warm-up epoch that begins slowly, and pairs, whose starts differ by this."""
    epochs = [epoch(0, "real", None, batches, more=5000)]
    for pair in range(pairs):
        arms: list[Arm] = ["real", "ideal"] if pair % 2 else ["ideal", "real"]
        noise = spread * (-1) ** (pair // 2)
        epochs += [
            epoch(1 + 2 * pair + place, arm, pair, batches, noise) for place, arm in enumerate(arms)
        ]
    return trained(epochs, **options)


def test_whole_epochs_are_compared() -> None:
    """Their start and end too, without the first epoch; the batches between are steady."""
    result = headroom(alternated())
    assert (result.real_ns, result.ideal_ns) == (24 * MS, 20 * MS)
    assert value(result.speedup) == pytest.approx(REAL_BATCH / IDEAL)
    assert value(result.waiting_ns) == 2 * MS
    assert value(result.contention_ns) == 2 * MS
    assert value(result.epoch_starts_ns) == pytest.approx((REAL_BATCH - 24) * MS)
    assert value(result.lost_ns) == pytest.approx((REAL_BATCH - IDEAL) * MS)
    assert (result.pairs, result.of_epochs) == (4, True)
    assert (result.real_batches, result.ideal_batches) == (16, 16)
    assert result.verdict.lowest is result.verdict.highest is InputBound.HIGHLY
    assert measured(result) == "16 real and 16 ideal batches in 4 pairs of epochs"
    assert codes(result.not_measured) == [Missing.WORKERS_CPU]


def test_of_one_pair_of_epochs_there_is_no_interval() -> None:
    speedup = headroom(alternated(1)).speedup
    assert value(speedup) == pytest.approx(REAL_BATCH / IDEAL, rel=0.05)
    assert speedup is not None
    assert (speedup.low, speedup.high) == (None, None)


@pytest.mark.parametrize(("pairs", "width"), [(3, 4.303), (4, 3.182), (9, 2.306)])
def test_the_interval_is_students_over_pairs(pairs: int, width: float) -> None:
    result = headroom(alternated(pairs, spread=20.0))
    noise = np.array([20.0 * (-1) ** (pair // 2) for pair in range(pairs)]) / 5
    error = width * noise.std(ddof=1) / np.sqrt(pairs)
    whole_ns = REAL_BATCH + noise.mean()
    low, high = bounds(result.lost_ns)
    assert high - low == pytest.approx(2 * error * MS, rel=1e-3)
    low, high = bounds(result.speedup)
    assert high / low == pytest.approx(np.exp(2 * error / whole_ns), rel=1e-3)


@pytest.mark.parametrize(("pairs", "more"), [(1, 6), (2, 4)])
def test_too_few_pairs_of_epochs_are_told(pairs: int, more: int) -> None:
    """The advice says how many epochs are missing."""
    result = headroom(alternated(pairs))
    assert result.verdict.objection is Objection.TOO_FEW_EPOCHS
    assert verdict_advice(result) == (
        f"Measure {more} more epochs at least: they are so short that each is a block."
    )
    assert headline(result).endswith(
        f"too few pairs ({pairs}) of epochs so short that each is a block"
    )


def test_wide_intervals_ask_for_more_epochs() -> None:
    result = headroom(alternated(3, spread=-399.0))
    assert result.verdict.objection is Objection.WIDE_INTERVAL
    assert result.advice[0].values == {"epochs": 10}


@pytest.mark.parametrize("length", [5, None])
def test_without_a_pair_of_epochs_their_number_is_told(length: int | None) -> None:
    """The length is known, or shown by an epoch that came to its end."""
    loader = replace(WORKERS, length=length)
    result = headroom(trained([epoch(0, "real", None), epoch(1, "real", 0)], loader))
    (cause,) = result.verdict.unmeasured
    assert cause.code is Unmeasured.NO_PAIR_OF_EPOCHS
    assert (cause.values["epochs"], cause.values["batches"]) == (2, 5)
    assert result.advice[0].code is VerdictAdvice.MORE_EPOCHS
    assert result.advice[0].values == {"epochs": 7}


def test_a_long_epoch_is_asked_for_batches() -> None:
    """It is asked for as many as make pairs; how long they take at the pace so far is said."""
    loader = replace(WORKERS, workers=0, prefetch_depth=0, length=1000)
    result = headroom(trained([epoch(0, "real", None, 8)], loader, cause="unmeasured"))
    (cause,) = result.verdict.unmeasured
    assert cause.code is Unmeasured.NO_PAIR
    needed = 3 + 4 * (8 + 8 + 3 + 3)  # one pair is for the instruments
    each_ns = (FIRST + 7 * WAIT + 8 * STEP) / 8 * MS
    assert result.advice[0].values == {"batches": needed, "elapsed_ns": needed * each_ns}
    assert verdict_advice(result).startswith("A verdict takes about 91 batches, which take 6.7")


def test_without_a_batch_nothing_is_known() -> None:
    result = headroom(trained([], replace(WORKERS, length=None)))
    assert result.advice[0].values == {"batches": 250}
    report = Report.of([trained([])])
    assert report.comparison is not None
    assert "known" not in dict(comparison_rows(report.comparison))


def test_what_is_known_is_said_in_place_of_tables() -> None:
    """What was waited, what steps took, and what the verdict needs."""
    comparison = Report.of([trained([epoch(0, "real", None)])]).comparison
    assert comparison is not None
    shown = " ".join(comparison_screen(comparison, [], 80))
    assert "not measured" not in shown.partition("Findings")[0]
    known = (
        "Batches so far: 5. Training waited 408 ms for them, 78.8% of the time (400 ms for the "
        "first of each epoch), and its steps took 110 ms."
    )
    assert known in shown
    assert "Measure 8 more epochs at least" in shown
    assert dict(comparison_rows(comparison))["known"] == known


def test_epochs_of_one_batch() -> None:
    """All of it is steady, but the end of the epoch."""
    result = headroom(alternated(batches=1, loader=replace(WORKERS, length=1)))
    assert result.real_ns == (FIRST + STEP) * MS
    # The ideal wait is that for the prefetch, which a run does not count.
    assert value(result.epoch_starts_ns) == pytest.approx(END * MS)
    assert result.pairs == 4


def test_an_epoch_that_was_left_has_its_last_step_like_others() -> None:
    """That step was not seen to end."""
    run = alternated()
    last = run.steps.batch == 4
    steps = replace(run.steps, step_ns=np.where(last, UNKNOWN, run.steps.step_ns))
    left = replace(
        run, steps=steps, ends=tuple(EpochEnd(end.epoch, "broken off") for end in run.ends)
    )
    result = headroom(left)
    assert value(result.speedup) == pytest.approx((REAL_BATCH - END / 5) / IDEAL)


def test_an_epoch_without_a_known_step() -> None:
    """Training may leave each epoch with its first batch."""
    run = alternated(batches=1, loader=replace(WORKERS, length=1))
    unknown = np.full(len(run.steps), UNKNOWN)
    assert headroom(replace(run, steps=replace(run.steps, step_ns=unknown))).speedup is None


def test_blocks_of_the_kind_that_has_more_count() -> None:
    """A run whose epochs come out shorter, or longer, than before has blocks of both kinds."""
    whole = alternated(4)
    assert set(whole_epochs(whole).values()) == {0, 1, 2, 3}
    blocks = blocks_of(whole.steps)
    both = *epoch(20, "real", 9), *epoch(20, "ideal", 9)
    more = [replace(block, epoch=20, pair=9) for block in both]
    few = replace(whole, steps=run_of([*blocks, *more]).steps)
    assert headroom(few).pairs == 4
    many = [replace(block, epoch=20, pair=pair) for pair in range(10, 16) for block in both]
    result = headroom(replace(whole, steps=run_of([*blocks, *many]).steps))
    assert (result.pairs, result.of_epochs) == (6, False)


def test_a_prefetched_epochs_start_is_no_missed_stall() -> None:
    """It is the start of the workers."""
    waits_ns = (700 * MS, *[0] * 4)
    prefetches = tuple(Prefetch(0, number, 5, 0, 0, None, waits_ns, MS, 0) for number in range(9))
    run = alternated()
    of_ideal = set(run.steps.epoch[run.steps.arm == ARMS.index("ideal")].tolist())
    ideal = tuple(prefetch for prefetch in prefetches if prefetch.epoch in of_ideal)
    for timed in (0, 4):
        some = tuple(replace(prefetch, timed=timed, elapsed_ns=timed) for prefetch in ideal)
        assert headroom(replace(run, prefetches=some)).speedup == headroom(run).speedup


def test_no_more_epochs_are_missing_than_make_the_pairs() -> None:
    run = alternated(1)
    assert [missing_epochs(run, pairs) for pairs in (0, 2, 3, 9)] == [6, 6, 0, 0]


def logged(count: int = 6, batches: int = 5, mode: Mode = "log", **options: Any) -> Run:
    arm: Arm = "ideal" if mode == "replay" else "real"
    return trained([epoch(n, arm, None, batches) for n in range(count)], mode=mode, **options)


def test_short_epochs_have_a_steady_state() -> None:
    """All but their first batch, where they are over before the queue is full."""
    run = logged()
    assert run.header.warmup == 17
    assert warmup_of(run) == 1
    summary = summarise(run)
    assert (summary.steady_batches, summary.wait_ns, summary.step_ns) == (24, 2 * MS, 22 * MS)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (logged(1), 17),
        (logged(6, 1, loader=replace(WORKERS, length=1)), 0),
        (logged(2, cause="broken off", loader=replace(WORKERS, length=None)), 17),
        (logged(3, cause="broken off", loader=replace(WORKERS, length=None)), 1),
        (logged(6, 20), 17),
    ],
    ids=["one epoch", "one batch", "left twice", "left three times", "long"],
)
def test_what_is_left_out_of_each_epoch(run: Run, expected: int) -> None:
    assert warmup_of(run) == expected


def test_a_number_that_was_asked_for_is_left_out() -> None:
    run = logged()
    assert warmup_of(replace(run, header=replace(run.header, warmup=40))) == 40


def test_short_epochs_are_compared_with_a_replay() -> None:
    replay = logged(mode="replay")
    result = headroom_of_two(logged(), replay)
    assert value(result.speedup) == pytest.approx(REAL_BATCH / IDEAL)


def test_the_headline_of_a_log_has_the_first_waits() -> None:
    """They are there where they matter, with those of the others."""
    report = Report.of([logged()])
    rest = 24 * 5
    starts = FIRST / (FIRST + rest)
    waited = starts + (1 - starts) * 2 / 24
    assert report_headline(report) == (
        f"Training waited for batches {waited:.1%} of the time ({starts:.1%} for the first batch "
        "of each epoch)"
    )
    (finding,) = (
        finding for finding in diagnose(logged()).findings if finding.rule is Rule.EPOCH_BOUNDARIES
    )
    assert finding.cost_share == pytest.approx(starts)
    (change,) = finding.changes
    assert "at_most" not in change.values  # a log predicts nothing


def test_how_long_epochs_are() -> None:
    """Those that ended count, or those that training left where there are several."""
    assert usual_length(logged(3, 5)) == 5
    assert usual_length(logged(2, 5, cause="broken off")) is None
    assert usual_length(logged(3, 5, cause="broken off")) == 5
    ended = logged(3, 5, cause="broken off")
    ended_once = replace(ended, ends=(*ended.ends[:2], EpochEnd(2, "exhausted")))
    assert usual_length(ended_once) == 5


def test_codes_of_verdicts_are_distinct() -> None:
    assert codes(headroom(alternated(1)).advice) == [VerdictAdvice.MORE_EPOCHS]
