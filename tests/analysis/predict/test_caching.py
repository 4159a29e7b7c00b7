"""Where a cache of samples would pay, from runs in which no clock runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import Machine, plan
from loadeval.analysis.predict.caching import OWN_CODE, best_place, cache_places
from loadeval.analysis.predict.recorded import Recorded
from loadeval.analysis.predict.whatif import LoaderModel
from loadeval.analysis.report import Report
from loadeval.analysis.rules.actions import Target
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import diagnosis_of
from loadeval.analysis.rules.finding import Advice
from loadeval.analysis.rules.plan import plan_for
from loadeval.report.wording.caching import cache_advice, cache_table
from loadeval.report.wording.plan import action_in_short
from loadeval.runlog.stages import WHOLE_SAMPLE
from tests.runs.looked_into import COUNT, looked_into

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval import Run
    from loadeval.analysis.predict.caching import CachePlace

MB, GB = 1e6, 1e9
DECODED, CROPPED = 1 * MB, 0.15 * MB
SIZES = {
    "decode": (None, DECODED),
    "crop": (DECODED, CROPPED),
    "label": (8.0, 8.0),
    WHOLE_SAMPLE: (None, CROPPED + 8),
}
"""JPEGs, whose labels have a transform too: bytes before and after."""
RANDOM_CROP = {"decode": 0.0, "crop": 1.0, "label": 0.0, WHOLE_SAMPLE: 1.0}


@pytest.fixture(autouse=True)
def _short_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts of relations, for which few batches do."""
    monkeypatch.setattr("loadeval.analysis.predict.costs.MOST_BATCHES", 32)


def run_of(
    sizes: Mapping[str, tuple[float | None, float | None]] = SIZES,
    varies: Mapping[str, float] = RANDOM_CROP,
    memory: float | None = 64 * GB,
    **given: Any,
) -> Run:
    """One worker that takes 40 ms for four samples, most of it to decode; a step of 20 ms."""
    environment = {"cpus_usable": 4, **({} if memory is None else {"memory_bytes": memory})}
    options: dict[str, Any] = {
        "workers": 1,
        "fetch": 40.0,
        "step": 20.0,
        "transforms": {"decode": 0.6, "crop": 0.2, "label": 0.05},
        "environment": environment,
        "loader": {"length": 1000, "batch_size": 4},
    }
    run = looked_into(**options | given)

    def columns(values: Mapping[str, float | None]) -> dict[str, Any]:
        """Of the first batch alone, as in a log."""
        return {
            name: np.array([np.nan if value is None else value] + [np.nan] * (COUNT - 1))
            for name, value in values.items()
        }

    (times,) = run.stages
    times = replace(
        times,
        bytes_before=columns({name: size[0] for name, size in sizes.items()}),
        bytes_after=columns({name: size[1] for name, size in sizes.items()}),
        varies=columns(varies),
    )
    return replace(run, stages=(times,))


def places(run: Run, memory: float | None = 64 * GB) -> dict[str, CachePlace]:
    model = LoaderModel.of(run)
    found = cache_places(run, Recorded.of(run), lambda c: model.with_change(c).speedup, memory)
    return {place.name: place for place in found}


def test_places_are_on_the_way_of_a_sample() -> None:
    """The transform of a label is none, nor is what nothing is known of before the first one."""
    assert list(places(run_of())) == ["decode", "crop", WHOLE_SAMPLE]


def test_before_the_first_transform_is_a_place_where_its_size_is_known() -> None:
    """What goes into that is not random, where what comes out is not."""
    sizes = {**SIZES, "decode": (0.1 * MB, DECODED)}
    own = places(run_of(sizes))[OWN_CODE]
    assert own.total_bytes == pytest.approx(4000 * 0.1 * MB)
    assert own.is_random is False
    assert own.replaced == ()
    assert places(run_of(sizes, {**RANDOM_CROP, "decode": 1.0}))[OWN_CODE].is_random is None


def test_without_transforms_whole_samples_are_the_only_place() -> None:
    found = places(run_of({WHOLE_SAMPLE: (None, MB)}, {}, transforms={}))
    assert list(found) == [WHOLE_SAMPLE]


def test_the_whole_set_is_all_samples_of_all_ranks() -> None:
    """1000 batches of four, twice."""
    environment = {"cpus_usable": 4, "world_size": 2}
    for ranks, run in ((1, run_of()), (2, run_of(environment=environment))):
        assert places(run)["decode"].total_bytes == pytest.approx(ranks * 4000 * DECODED)


def test_a_transform_that_is_called_twice_makes_two_of_them() -> None:
    """An image and its mask."""
    run = run_of()
    (times,) = run.stages
    calls = {**times.transform_calls, "decode": times.transform_calls["decode"] * 2}
    sizes = {**SIZES, "crop": (2 * DECODED, CROPPED)}
    twice = run_of(sizes)
    twice = replace(twice, stages=(replace(twice.stages[0], transform_calls=calls),))
    assert places(twice)["decode"].sample_bytes == pytest.approx(2 * DECODED)


def test_what_is_random_stays_so() -> None:
    found = places(run_of())
    assert [place.is_random for place in found.values()] == [False, True, True]


def test_what_was_not_compared_is_not_known() -> None:
    """Unless something before it is random."""
    assert {place.is_random for place in places(run_of(varies={})).values()} == {None}
    found = places(run_of(varies={"decode": 1.0}))
    assert {place.is_random for place in found.values()} == {True}


def test_later_epochs_lack_what_is_replaced() -> None:
    """Decoding is 60% of 40 ms, and the dataset's own code 15%; then the step is the limit."""
    found = places(run_of())
    assert 1.7 < found["decode"].speedup.value < 2.1
    assert found["decode"].replaced == ("decode",)
    assert found[WHOLE_SAMPLE].speedup.value >= found["decode"].speedup.value
    assert found[WHOLE_SAMPLE].replaced == ("decode", "crop", "label")


def test_reading_large_samples_takes_long() -> None:
    """Four of 100 MB take as long as decoding them."""
    sizes = {name: (b and b * 100, a and a * 100) for name, (b, a) in SIZES.items()}
    assert places(run_of(sizes))["decode"].speedup.value < 1


def test_only_what_fits_pays() -> None:
    """And only what is known to fit."""
    run = run_of()
    assert places(run, 5 * GB)["decode"].pays
    for memory in (3 * GB, None):
        assert not places(run, memory)["decode"].pays
        assert best_place(list(places(run, memory).values())) is None
    unknown = places(run_of(loader={"batch_size": 4}))
    assert all(place.total_bytes is place.fits is None for place in unknown.values())


def test_without_the_size_of_samples_there_are_no_places() -> None:
    assert not places(run_of({"decode": SIZES["decode"]}))
    assert not places(looked_into(workers=1, fetch=40.0))


def test_a_run_without_stages_has_none() -> None:
    assert Case(replace(run_of(), stages=())).cache_places == ()


def test_what_to_do_has_the_place_that_pays() -> None:
    """As an action on data, on top of those before it."""
    case = Case(run_of())
    actions = plan_for(case, diagnosis_of(case)).actions
    (action,) = (action for action in actions if action.change.code is Advice.CACHE_SAMPLES)
    assert action.target is Target.DATA
    assert action_in_short(action) == "cache after decode"
    assert action.speedup is not None
    assert action.speedup.value > 1.05


@pytest.mark.parametrize(
    ("varies", "memory"),
    [({}, 64 * GB), (RANDOM_CROP, 1 * GB), ({**RANDOM_CROP, "decode": 1.0}, 64 * GB)],
    ids=["not known", "does not fit", "random"],
)
def test_nothing_else_is_advised(varies: dict[str, float], memory: float) -> None:
    case = Case(run_of(varies=varies, memory=memory))
    codes = [action.change.code for action in plan_for(case, diagnosis_of(case)).actions]
    assert Advice.CACHE_SAMPLES not in codes


def test_a_report_has_the_places() -> None:
    """Of the machine of the run."""
    (report,) = Report.of([run_of()]).runs
    assert [place.fits for place in report.cache_places] == [True] * 3


def test_a_planned_machine_has_them_with_its_own_memory() -> None:
    """What later epochs gain is of its devices: fast ones gain more."""
    slow, fast = (
        plan(run_of(), machine=Machine(1, 4, memory_bytes=3 * GB), step_ns=ms * 1e6)
        for ms in (200, 2)
    )
    assert [place.fits for place in slow.cache_places] == [False, True, True]
    assert slow.cache_places[0].speedup.value < 1.05
    assert fast.cache_places[0].speedup.value > 1.3


def test_the_table_says_what_is_known() -> None:
    lines = cache_table(list(places(run_of()).values())).lines(80)
    assert lines[0].split("  ")[0] == "where to cache"
    assert lines[1].startswith("after decode      4.00 GB")
    assert " no " in lines[1]
    assert " yes " in lines[2]
    assert lines[3].startswith("of whole samples")
    unknown = cache_table(list(places(run_of(varies={}), None).values())).lines(90)
    assert unknown[1].count("not measured") == 2


def test_the_advice_says_where_it_pays_or_what_to_measure() -> None:
    said = cache_advice(list(places(run_of()).values()))
    assert said.startswith("A cache after decode pays: 4.00 GB for the whole set, predicted ")
    assert "--probe" in cache_advice(list(places(run_of(varies={})).values()))
    assert "No cache is known to pay" in cache_advice(list(places(run_of(), 1 * MB).values()))
