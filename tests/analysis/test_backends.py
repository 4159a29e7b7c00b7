"""Backends side by side: results, differences, their order, and cautions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.backends import (
    BATCHES,
    BackendCaution,
    BackendReport,
    BackendResult,
    BackendState,
    Difference,
    MissingOfBackend,
    cautions_of,
    comparison_of,
    failed,
    of_one_comparison,
    ranked,
    unit_of,
    whole_epochs,
)
from loadeval.analysis.backends import result_of as result_of_measured
from loadeval.analysis.estimate.headroom import headroom
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.verdict import Objection
from loadeval.analysis.remark import Remark
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import Arm, Block, Event, LoaderInfo, Prefetch
from loadeval.errors import UsageError
from tests.analysis.numbers import codes
from tests.runs.given import MS, block, make_run, run_of
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.data.run import Run

IN_PROCESS = LoaderInfo("loader", workers=0)


def ten(arm: Arm, number: int | None, iteration_ms: float, samples: int) -> Block:
    """A block of ten batches."""
    return block(arm, 0, round(iteration_ms * MS), 10, pair=number, samples=samples)


def turns(
    real_ms: float = 20,
    *,
    rounds: int = 4,
    samples: int = 4,
    comparison: str | None = "one",
    loader: LoaderInfo = IN_PROCESS,
    unit: str = "images",
    events: tuple[Event, ...] = (),
) -> Run:
    """A backend's run: an uncounted block, then rounds, of an ideal pace of 10 ms."""
    blocks = [ten("real", None, 300, samples)]
    for number in range(rounds):
        blocks += [ten("real", number, real_ms, samples), ten("ideal", number, 10, samples)]
    settings: dict[str, Any] = {} if comparison is None else {"comparison": comparison}
    return run_of(
        blocks,
        name="turns",
        unit=unit,
        loader=loader,
        settings=settings,
        events=events,
        prefetches=tuple(Prefetch(number, 0, 10, 10, 100 * MS, 40) for number in range(rounds)),
    )


def result_of(name: str, run: Run, unit: str) -> BackendResult:
    return result_of_measured(name, run, unit)


def test_a_run_in_turns_tells_all_paces() -> None:
    """In samples per second, and its times as the headroom of the run has them."""
    run = turns()
    result, expected = result_of("torch", run, "images"), headroom(run)
    rates = (result.real, result.ideal, result.loader_only)
    assert [rate and rate.value for rate in rates] == pytest.approx([200, 400, 400])
    assert (result.name, result.run, result.error) == ("torch", run, None)
    for name in (
        "speedup",
        "lost_share",
        "real_ns",
        "ideal_ns",
        "loader_only_ns",
        "epoch_start_ns",
    ):
        assert getattr(result, name) == getattr(expected, name)
    assert (result.real_batches, result.ideal_batches) == (40, 40)
    assert (result.headroom, result.state) == (expected, BackendState.COMPARED)


def test_paces_can_be_in_batches() -> None:
    """The backends' samples cannot be compared then."""
    result = result_of("torch", turns(), BATCHES)
    rates = (result.real, result.ideal, result.loader_only)
    assert [rate and rate.value for rate in rates] == pytest.approx([50, 100, 100])


def test_without_a_whole_round_nothing_is_told() -> None:
    """Nothing is concluded."""
    result = result_of("torch", turns(rounds=0), BATCHES)
    assert result.real is result.ideal is result.loader_only is result.speedup is None
    assert result.verdict is not None
    assert result.verdict.objection is Objection.NOT_MEASURED


def test_a_loader_that_was_ready_has_no_epoch_start() -> None:
    """In turns its first batch is always there; a run by itself has other epochs."""
    ready = replace(IN_PROCESS, ready_batches=1)
    result = result_of("dali", turns(loader=ready), "images")
    assert result.epoch_start_ns is None
    assert Remark(MissingOfBackend.EPOCH_START) in result.not_measured
    alone = result_of("dali", turns(loader=ready, comparison=None), "images")
    assert Remark(MissingOfBackend.EPOCH_START) not in alone.not_measured


def test_a_log_run_has_a_real_pace_alone() -> None:
    """What else a comparison tells was not measured, and it says why."""
    result = result_of("torch", make_run([10] * 100, epochs=[50, 50]), "images")
    assert result.real is not None
    assert result.real.value == pytest.approx(4e7)
    assert result.ideal is result.loader_only is result.speedup is None
    assert (result.real_ns, result.epoch_start_ns, result.real_batches) == (100, 10, 100)
    assert (result.state, result.verdict) == (BackendState.NOT_COMPARED, None)
    assert codes(result.not_measured) == [MissingOfBackend.IDEAL]


def test_a_log_run_without_batches_has_no_pace() -> None:
    """It says so."""
    result = result_of("torch", make_run([]), BATCHES)
    assert result.real is None
    assert result.epoch_start_ns is None
    assert codes(result.not_measured) == [MissingOfBackend.THROUGHPUT, MissingOfBackend.IDEAL]


def test_a_run_that_replayed_is_an_error() -> None:
    """It tells nothing of a loader."""
    with pytest.raises(UsageError, match="the ideal run was recorded with mode='replay'"):
        result_of("the ideal run", make_run([1], mode="replay"), BATCHES)


def test_a_run_that_notes_a_failure_has_failed() -> None:
    """With the error, and without figures; other events are none."""
    note = Event(1, "OSError: gone", "failed backend")
    other = Event(0, "the backend failed: OSError: gone")
    result = result_of("torch", turns(events=(other, note)), "images")
    assert (result.state, result.error) == (BackendState.FAILED, "OSError: gone")
    assert result.real is None
    assert result_of("torch", turns(events=(other,)), "images").error is None


def test_samples_are_the_unit_where_all_know_theirs() -> None:
    """They have one name; else batches are. Runs in which nothing counts have no say."""
    known, empty = turns(), turns(rounds=0)
    assert unit_of([known, empty]) == "images"
    assert unit_of([known, turns(samples=UNKNOWN)]) == BATCHES
    assert unit_of([known, turns(unit="videos")]) == BATCHES
    assert unit_of([empty]) == unit_of([]) == BATCHES


def test_the_fastest_is_first() -> None:
    """Then the others, what was not measured, and what failed."""
    slow, fast = (result_of(name, turns(ms), "images") for name, ms in (("slow", 40), ("fast", 20)))
    results = [failed("broken", "OSError"), BackendResult("none"), slow, fast]
    assert [result.name for result in ranked(results)] == ["fast", "slow", "none", "broken"]


def test_differences_are_between_every_two() -> None:
    """The fastest first; what was not measured, or failed, is in none."""
    paces = {"slow": 40.0, "fast": 20.0, "middle": 30.0}
    measured = [(name, turns(ms), None) for name, ms in paces.items()]
    report = BackendReport.of_backends(
        [*measured, ("none", turns(rounds=0), None), ("broken", None, "OSError")]
    )
    assert [backend.name for backend in report.backends] == [*paces, "none", "broken"]
    differences = report.differences
    names = [(difference.one, difference.other) for difference in differences]
    assert names == [("fast", "middle"), ("fast", "slow"), ("middle", "slow")]
    assert [difference.ratio.value for difference in differences] == pytest.approx([1.5, 2, 4 / 3])


def test_a_difference_is_shown_when_its_interval_leaves_1_out() -> None:
    """Without an interval nothing is shown."""
    cases = [((1.1, 1.3), True), ((0.5, 0.9), True), ((0.9, 1.4), False), ((None, None), False)]
    for (low, high), shown in cases:
        assert Difference("a", "b", Estimate(1.2, low, high)).shown is shown


def test_what_runs_of_one_comparison_have_in_common() -> None:
    """Its name, in their settings; a run by itself has none."""
    assert comparison_of(turns()) == "one"
    assert comparison_of(turns(comparison=None)) is None
    assert of_one_comparison([turns(), turns()])
    assert not of_one_comparison([turns(), turns(comparison="other")])
    assert not of_one_comparison([turns(comparison=None)] * 2)


RATE = Estimate(100.0, 90.0, 110.0)


def results(*runs: Run, together: bool = True, **more: Any) -> list[BackendResult]:
    """Backends a, b and so on."""
    settings = {"comparison": "one"} if together else {}
    in_turns = [replace(run, header=replace(run.header, settings=settings)) for run in runs]
    return [BackendResult("abc"[i], real=RATE, run=run, **more) for i, run in enumerate(in_turns)]


def test_what_makes_backends_less_comparable() -> None:
    """Unequal work first; drift between separate runs is in no interval; machines where known."""
    hosts: list[dict[str, Any]] = [{"host": "b", "cpus_usable": 2}, {"host": "a"}, {}]
    run, *on_hosts = make_run([1]), *(make_run([1], environment=host) for host in hosts)
    separate, both = Remark(BackendCaution.SEPARATE_RUNS), {"fact": "host", "values": "a, b"}
    machines = Remark(BackendCaution.DIFFERENT_MACHINES, both)
    for compared, expected in (
        ([], []),
        (results(run, run), []),
        (results(run, run, together=False), [separate]),
        (results(run, together=False), []),
        (results(*on_hosts[:2]), [machines]),
        (results(on_hosts[0], on_hosts[2]), []),
        (results(*[run] * 3), [Remark(BackendCaution.MANY_DIFFERENCES, {"count": 3})]),
    ):
        assert cautions_of(compared, "images") == expected
    unequal = cautions_of(results(run, run), BATCHES, ["b: other", "c: too"])
    assert codes(unequal) == [BackendCaution.UNEQUAL_WORK, BackendCaution.BY_BATCH]
    assert unequal[0].values == {"differences": "b: other; c: too"}
    assert cautions_of([], BATCHES) == []


def test_epochs_count_from_the_end_of_another_one() -> None:
    """Only then is it sure that they were served from their beginning."""
    run = make_run([1] * 12, epochs=[2, 5, 5], samples=4)
    assert whole_epochs(run, "images") == {20}
    assert whole_epochs(run, BATCHES) == {5}
    broken = replace(run, ends=(replace(run.ends[0], cause="broken off"), *run.ends[1:]))
    assert whole_epochs(replace(broken, ends=broken.ends[:2]), BATCHES) == set()


def test_epochs_of_unknown_samples_are_not_counted() -> None:
    """Their batches are."""
    run = make_run([1] * 4, epochs=[2, 2], samples=[4, 4, 4, -1])
    assert whole_epochs(run, "images") == set()
    assert whole_epochs(run, BATCHES) == {2}


@pytest.mark.parametrize(
    ("sizes", "expects_caution"),
    [
        ([(12,), (1_200,)], True),
        ([(12,), (16, 20)], True),
        ([(12, 1_200), (1_200,)], False),
        ([(12,), ()], False),
    ],
)
def test_unequal_epochs_are_told(sizes: list[tuple[int, ...]], expects_caution: bool) -> None:
    """Where each backend has its own size; not where one is common, or only one is known."""
    both = results(make_run([1]), make_run([1]))
    of_sizes = [replace(result, epoch_sizes=size) for result, size in zip(both, sizes, strict=True)]
    expected = [Remark(BackendCaution.UNEQUAL_EPOCHS, {"unit": "images"})]
    assert cautions_of(of_sizes, "images") == (expected if expects_caution else [])


def test_a_backend_tells_the_sizes_of_its_epochs() -> None:
    """In samples, in order."""
    run = make_run([1] * 12, epochs=[2, 6, 4], samples=4)
    assert result_of("a", run, "images").epoch_sizes == (16, 24)
