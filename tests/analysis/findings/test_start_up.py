"""Time before an epoch's first batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval.record.model import LoaderInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.findings.finding import Finding
    from loadeval.record.model import Run

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
    """What it costs is told, of the later epochs alone, and that workers can stay alive."""
    found = finding("epoch boundaries", epochs(make_run, 0, 400, 600, persistent_workers=False))
    assert found.cost_share == pytest.approx(500 / 2500)
    assert found.severity == "high"
    assert found.advice.startswith("Pass persistent_workers=True")
    assert [fact.value for fact in found.evidence] == [500, 2000, 2]


@pytest.mark.parametrize("loader", [{"workers": 0}, {}])
def test_workers_that_live_on_are_not_advised(
    make_run: MakeRun, finding: Find, loader: dict[str, Any]
) -> None:
    """Nor where there are none, or where nothing is known of it."""
    found = finding("epoch boundaries", epochs(make_run, 0, 500, **loader))
    assert found.advice.startswith("Let the loader go on from one epoch to the next")


def test_workers_that_stay_already(make_run: MakeRun, finding: Find) -> None:
    """Then it is the first batch itself that takes so long."""
    found = finding("epoch boundaries", epochs(make_run, 0, 500, persistent_workers=True))
    assert found.advice.startswith("Its workers stay, so this is the time that the first batch")


def test_epochs_that_begin_quickly(make_run: MakeRun, outcome: Ask) -> None:
    """Under 5% of an epoch's time nothing is said; the first start-up does not count."""
    assert outcome("epoch boundaries", epochs(make_run, 90_000, 100)) == NOTHING


def test_a_run_of_one_epoch_has_no_boundary(make_run: MakeRun, outcome: Ask) -> None:
    """What a later one would cost is not known, unless its first batch was ready before."""
    run = epochs(make_run, 500)
    assert outcome("epoch boundaries", run) == ("not measured", "there was no second epoch")
    ready = epochs(make_run, 0, 500, ready_batches=1)
    assert outcome("epoch boundaries", ready)[0] == "found"


def test_how_long_an_epoch_is_may_not_be_known(make_run: MakeRun, outcome: Ask) -> None:
    """Without a steady batch there is nothing to compare a start-up with."""
    run = make_run([500, 500], 100, warmup=1, epochs=[1, 1])
    for rule in ("epoch boundaries", "slow start-up"):
        told, reason = outcome(rule, run)
        assert (told, reason[:11]) == ("not measured", "how long an")


def test_a_first_batch_that_is_long_in_coming(make_run: MakeRun, finding: Find) -> None:
    """It is told as paid once, and of low severity."""
    found = finding("slow start-up", epochs(make_run, 500))
    assert (found.severity, found.cost_share) == ("low", None)
    assert "20.0% of the first epoch" in found.sentence


def test_a_first_batch_that_comes_in_time(make_run: MakeRun, outcome: Ask) -> None:
    """Under a fifth of the first epoch it is left alone."""
    assert outcome("slow start-up", epochs(make_run, 499)) == NOTHING


def test_a_loader_that_was_ready_shows_no_start(make_run: MakeRun, outcome: Ask) -> None:
    """Its first batch was there before it was asked for."""
    told, reason = outcome("slow start-up", epochs(make_run, 0, 500, ready_batches=1))
    assert (told, reason) == ("not measured", "no epoch shows what its first batch costs")
