"""Time that few batches take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.evaluator import LoaderEvaluator
from loadeval.runlog.model import LoaderInfo
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.rules.finding import Finding
    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]
    Find = Callable[..., Finding]
    Ask = Callable[..., tuple[str, str]]

NOTHING = ("nothing found", "")
WORKERS = LoaderInfo("torch.utils.data.DataLoader", workers=2, prefetch_depth=4)


def bursty(every: int, count: int = 400, burst: int = 2000) -> list[int]:
    """Waits of which every so manieth is a burst, beginning with the last of the first so many."""
    return [burst if number % every == every - 1 else 1 for number in range(count)]


def test_most_of_the_waiting_is_for_few_batches(make_run: MakeRun, finding: Find) -> None:
    """Their share, their number, and which they were are told, the longest first."""
    waits = bursty(100)
    waits[199] = 3000
    found = finding("bursts", make_run(waits, 99, loader=WORKERS))
    assert found.sentence == (
        "95.8% of the waiting is for 4 of the 400 batches, 18.4% of the training time."
    )
    assert [place.batch for place in found.places] == [199, 99, 299, 399]
    assert found.advice == (
        "Look for what makes these batches slow: large files, a cold cache, retries. If the loader "
        "is fast enough otherwise, raise prefetch_factor from 2 to 4 and measure: that hides a "
        "stall as long as the batches that are ready last."
    )
    assert found.severity == "moderate"


def test_no_deeper_queue_without_workers(make_run: MakeRun, finding: Find) -> None:
    """A loader that loads nothing ahead has none."""
    info = LoaderInfo("torch.utils.data.DataLoader", workers=0)
    found = finding("bursts", make_run(bursty(100), 99, loader=info))
    assert found.advice.endswith("large files, a cold cache, retries.")


def test_waiting_that_is_spread_evenly(make_run: MakeRun, outcome: Ask) -> None:
    """Half of it in a hundredth of the batches is the least for a burst."""
    even = [30 if number % 10 else 60 for number in range(400)]
    assert outcome("bursts", make_run(even, 90)) == NOTHING
    assert outcome("bursts", make_run([0] * 400, 90)) == NOTHING


def test_bursts_that_cost_little(make_run: MakeRun, outcome: Ask) -> None:
    """Waiting under 5% of the time is left alone, in however few batches it comes."""
    assert outcome("bursts", make_run(bursty(100, burst=400), 99)) == NOTHING


def test_too_few_batches_for_bursts(make_run: MakeRun, outcome: Ask) -> None:
    """A hundredth of them would be less than two."""
    told, reason = outcome("bursts", make_run(bursty(50, 199), 99))
    assert (told, reason) == ("not measured", "too few steady batches, 199: 200 are needed")


@pytest.mark.parametrize(
    ("every", "advice"), [(100, "The period is a multiple of the 2 workers"), (101, "every 101 ba")]
)
def test_bursts_come_regularly(make_run: MakeRun, finding: Find, every: int, advice: str) -> None:
    """The period is told, and what it points to."""
    run = make_run(bursty(every, every * 8, 5000), 99, loader=WORKERS)
    found = finding("bursts", run)
    assert found.sentence.endswith(f"They come every {every} batches.")
    assert advice in found.advice
    assert found.evidence[-1].value == every


def test_bursts_at_random_have_no_period(make_run: MakeRun, finding: Find) -> None:
    """Gaps of all lengths."""
    waits = np.ones(1000, np.int64)
    waits[[10, 30, 90, 300, 420, 700, 720, 800, 990, 999]] = 5000
    assert "They come" not in finding("bursts", make_run(waits.tolist(), 99)).sentence


def test_an_alternating_run_has_no_period(alternating: MakeRun, outcome: Ask) -> None:
    """Its batches that count have gaps; of 80 there is nothing to be told anyway."""
    assert outcome("bursts", alternating())[0] == "not measured"


def test_an_alternating_run_with_bursts(long_alternating: Run, finding: Find) -> None:
    """They are found, and no period is told."""
    assert "They come" not in finding("bursts", long_alternating).sentence


def test_outliers(make_run: MakeRun, finding: Find) -> None:
    """Batches over twice the median are told, with where they are and what took the time."""
    waits, steps = [10] * 100, [90] * 100
    waits[40], steps[70] = 400, 600
    found = finding("outliers", make_run(waits, steps, epochs=[50, 50]))
    assert found.sentence == (
        "2 of the 100 batches take more than twice the median iteration, beyond it 8.3% of the "
        "training time; 1 of them mostly by waiting, 1 by their step."
    )
    assert [(place.epoch, place.batch, place.wait_ns) for place in found.places] == [
        (1, 20, 10),
        (0, 40, 400),
    ]
    assert (found.places[0].start_ns, found.places[0].end_ns) == (None, None)


def test_outliers_have_times(timed_run: Run, finding: Find) -> None:
    """When the batch was asked for, and when its step ended."""
    (place,) = finding("outliers", timed_run).places
    assert (place.start_ns, place.end_ns, place.wait_ns) == (3000, 3990, 900)


def test_batches_under_twice_the_median(make_run: MakeRun, outcome: Ask) -> None:
    """Just twice is not over it."""
    steps = [90] * 100
    steps[3] = 180
    assert outcome("outliers", make_run([0] * 100, steps)) == NOTHING


def test_what_is_common_is_no_outlier(make_run: MakeRun, outcome: Ask) -> None:
    """One batch in ten is another kind of batch."""
    steps = [900 if number % 10 == 0 else 90 for number in range(100)]
    assert outcome("outliers", make_run([0] * 100, steps)) == NOTHING


@pytest.mark.parametrize("rule", ["bursts", "outliers"])
def test_a_log_of_every_tenth_batch(outcome: Ask, rule: str) -> None:
    """What others took is not known of each, though their totals are."""
    clock = FakeClock()
    loader = ScriptedLoader(range(400), [10] * 400, clock)
    evaluator = LoaderEvaluator(loader, every=10, clock=clock)
    for _ in evaluator:
        clock.advance(90)
    told = outcome(rule, evaluator.recorded())
    assert told == ("not measured", "the log keeps one batch in 10")


def test_too_few_batches_for_outliers(make_run: MakeRun, outcome: Ask) -> None:
    """A median of a handful tells nothing."""
    assert outcome("outliers", make_run([0] * 19, 90))[0] == "not measured"
