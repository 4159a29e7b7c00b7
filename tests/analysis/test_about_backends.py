"""Cautions about a comparison of backends, and what it could not measure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loadeval.analysis.backends import (
    APART,
    BATCHES,
    BY_BATCH,
    BackendResult,
    cautions,
    failed,
    unmeasured,
    whole_epochs,
)
from loadeval.analysis.stats import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run

RATE = Estimate(100.0, 90.0, 110.0)


def results(*runs: Run, together: bool = True, **more: Any) -> list[BackendResult]:
    """Backends a, b and so on."""
    settings = {"comparison": "one"} if together else {}
    in_turns = [replace(run, header=replace(run.header, settings=settings)) for run in runs]
    return [BackendResult("abc"[i], real=RATE, run=run, **more) for i, run in enumerate(in_turns)]


def test_two_backends_in_turns_need_no_caution(make_run: Callable[..., Run]) -> None:
    """Nor do none at all."""
    assert cautions(results(make_run([1]), make_run([1])), "images") == ()
    assert cautions([], BATCHES) == ()


def test_unequal_work_is_said_first(make_run: Callable[..., Run]) -> None:
    """With all its differences."""
    told = cautions(results(make_run([1]), make_run([1])), BATCHES, ["b: other", "c: too"])
    assert told == ("The backends do not do equal work: b: other; c: too.", BY_BATCH)


def test_separate_runs_are_cautioned(make_run: Callable[..., Run]) -> None:
    """Drift between them is in no interval; one alone has nothing beside it."""
    runs = make_run([1]), make_run([1])
    assert cautions(results(*runs, together=False), "images") == (APART,)
    assert cautions(results(runs[0], together=False), "images") == ()


def test_different_machines_are_named(make_run: Callable[..., Run]) -> None:
    """Where both runs tell theirs."""
    hosts: list[dict[str, Any]] = [{"host": "b", "cpus_usable": 2}, {"host": "a"}, {}]
    runs = [make_run([1], environment=one) for one in hosts]
    told = cautions(results(*runs), "images")[0]
    assert told == "The runs were made on different machines: host a and b."
    assert cautions(results(runs[0], runs[0]), "images") == ()


def test_many_differences_are_cautioned(make_run: Callable[..., Run]) -> None:
    """Three backends have three differences."""
    (told,) = cautions(results(*[make_run([1])] * 3), "images")
    assert told.startswith("Each of the 3 differences has a 95% interval of its own")


def test_what_is_said_of_several_is_said_once(make_run: Callable[..., Run]) -> None:
    """Behind their names; so are notes of reading a run, and failed backends have no say."""
    run = replace(make_run([1]), notes=("the end is missing",))
    found = [*results(run, run, caution="workers were busy."), failed("z", "OSError")]
    assert cautions(found, "images") == ("a, b: workers were busy.", "a, b: the end is missing")
    missing = [
        BackendResult("a", not_measured=("X.", "Y.")),
        BackendResult("b", not_measured=("X.",)),
    ]
    assert unmeasured(missing) == ("a, b: X.", "a: Y.")


def test_epochs_count_from_the_end_of_another_one(make_run: Callable[..., Run]) -> None:
    """Only then is it sure that they were served from their beginning."""
    run = make_run([1] * 12, epochs=[2, 5, 5], samples=4)
    assert whole_epochs(run, "images") == {20}
    assert whole_epochs(run, BATCHES) == {5}
    broken = replace(run, ends=(replace(run.ends[0], cause="broken off"), *run.ends[1:]))
    assert whole_epochs(replace(broken, ends=broken.ends[:2]), BATCHES) == set()


def test_epochs_of_unknown_samples_are_not_counted(make_run: Callable[..., Run]) -> None:
    """Their batches are."""
    run = make_run([1] * 4, epochs=[2, 2], samples=[4, 4, 4, -1])
    assert whole_epochs(run, "images") == set()
    assert whole_epochs(run, BATCHES) == {2}


def test_unequal_epochs_are_told(make_run: Callable[..., Run]) -> None:
    """Where each backend has its own size; not where one is common, or only one is known."""
    short, long = (make_run([1] * 2 * size, epochs=[size, size]) for size in (3, 300))
    both = make_run([1] * 606, epochs=[3, 300, 303])
    told = cautions(results(short, long), "images")
    assert told == ("The backends' epochs are not equally large, in images: a 12, b 1,200.",)
    assert cautions(results(long, both), "images") == ()
    assert cautions(results(long, make_run([1])), "images") == ()
    varied = make_run([1] * 13, epochs=[4, 4, 5])
    assert "b 16 or 20." in cautions(results(short, varied), "images")[0]
