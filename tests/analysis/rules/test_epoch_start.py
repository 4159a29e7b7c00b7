"""Time before an epoch's first batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval.runlog.model import LoaderInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.rules.finding import Finding
    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]
    Find = Callable[..., Finding]
    Ask = Callable[..., tuple[str, str]]

NOTHING = ("nothing found", "")


def epochs(make_run: MakeRun, *first: int, **loader: Any) -> Run:
    """Epochs of 20 batches of 100 ns, with these first waits."""
    waits = [wait for one in first for wait in [one, *[0] * 19]]
    info = LoaderInfo(**{"backend": "torch.x", "workers": 2, **loader})
    return make_run(waits, 100, warmup=1, epochs=[20] * len(first), loader=info)


def test_epochs_that_begin_with_a_wait(make_run: MakeRun, finding: Find) -> None:
    """What it costs is told, of the later epochs alone."""
    found = finding("epoch boundaries", epochs(make_run, 0, 400, 600, persistent_workers=False))
    assert found.cost_share == pytest.approx(500 / 2500)
    assert found.severity == "high"
    assert [fact.value for fact in found.evidence] == [500, 2000, 2]


def test_starting_workers_looks_like_filling_a_buffer(make_run: MakeRun, finding: Find) -> None:
    """Both are told where workers do not stay, and what tells them apart; nothing is promised."""
    found = finding("epoch boundaries", epochs(make_run, 0, 500, persistent_workers=False))
    assert found.advice.startswith("Not known which: workers that are started anew, or what the ")
    assert "filling a shuffle buffer. Try persistent_workers=True and compare" in found.advice
    assert found.confidence == "possible"


@pytest.mark.parametrize("loader", [{"workers": 0}, {}])
def test_workers_that_live_on_are_not_advised(
    make_run: MakeRun, finding: Find, loader: dict[str, Any]
) -> None:
    """Nor where there are none, or where nothing is known of it."""
    found = finding("epoch boundaries", epochs(make_run, 0, 500, **loader))
    assert found.advice.startswith("Not known why: see what the loader does for the first batch")
    assert found.confidence == "possible"


def test_workers_that_stay_already(make_run: MakeRun, finding: Find) -> None:
    """Then it is what they do before the first batch."""
    found = finding("epoch boundaries", epochs(make_run, 0, 500, persistent_workers=True))
    assert found.advice.startswith("Its workers stay, so this is what they do for the first batch")
    assert found.confidence == "likely"


FIRST_BATCH = (
    "Most of it is the first batch, which takes a worker 200 ms: make batches cheaper or smaller, "
    "or epochs longer."
)


@pytest.mark.parametrize(
    ("persistent", "advice"),
    [
        (False, f"{FIRST_BATCH} Starting workers is 100 ms of it at most."),
        (True, FIRST_BATCH),
    ],
)
def test_a_first_wait_for_one_batch(
    alternating: MakeRun, finding: Find, persistent: bool, advice: str
) -> None:
    """Two workers that make a batch each 100 ms take 200 for one, which is most of 300 ms."""
    run = alternating(wait=50, alone=100, first=300, length=8, persistent_workers=persistent)
    found = finding("epoch boundaries", run)
    assert (found.advice, found.confidence) == (advice, "likely")
    assert found.evidence[-1].value == 200e6


def test_a_first_wait_for_more_than_two_batches(alternating: MakeRun, finding: Find) -> None:
    """What else is done before the first batch is not known."""
    run = alternating(wait=50, alone=100, first=401, length=8, persistent_workers=False)
    assert finding("epoch boundaries", run).advice.startswith("Not known which")


def test_epochs_that_begin_quickly(make_run: MakeRun, outcome: Ask) -> None:
    """Under 5% of an epoch's time nothing is said; the first epoch start does not count."""
    assert outcome("epoch boundaries", epochs(make_run, 90_000, 100)) == NOTHING


def test_a_run_of_one_epoch_has_no_boundary(make_run: MakeRun, outcome: Ask) -> None:
    """What a later one would cost is not known, unless its first batch was ready before."""
    run = epochs(make_run, 500)
    assert outcome("epoch boundaries", run) == ("not measured", "there was no second epoch")
    ready = epochs(make_run, 0, 500, ready_batches=1)
    assert outcome("epoch boundaries", ready)[0] == "found"


def test_how_long_an_epoch_is_may_not_be_known(make_run: MakeRun, outcome: Ask) -> None:
    """Without a steady batch there is nothing to compare an epoch start with."""
    run = make_run([500, 500], 100, warmup=1, epochs=[1, 1])
    for rule in ("epoch boundaries", "slow epoch start"):
        told, reason = outcome(rule, run)
        assert (told, reason[:11]) == ("not measured", "how long an")


def test_a_first_batch_that_is_long_in_coming(make_run: MakeRun, finding: Find) -> None:
    """It is told as paid once, and of low severity."""
    found = finding("slow epoch start", epochs(make_run, 500))
    assert (found.severity, found.cost_share) == ("low", None)
    assert "20.0% of the first epoch" in found.sentence


def test_a_first_batch_that_comes_in_time(make_run: MakeRun, outcome: Ask) -> None:
    """Under a fifth of the first epoch it is left alone."""
    assert outcome("slow epoch start", epochs(make_run, 499)) == NOTHING


def test_a_loader_that_was_ready_shows_no_start(make_run: MakeRun, outcome: Ask) -> None:
    """Its first batch was there before it was asked for."""
    told, reason = outcome("slow epoch start", epochs(make_run, 0, 500, ready_batches=1))
    assert (told, reason) == ("not measured", "no epoch shows what its first batch costs")
