"""What feeding devices takes, from runs in which no clock runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from loadeval import Machine, MachinePlan, Need, Run, UsageError, plan, read_run
from loadeval.analysis.machine import (
    LEAST_LIFT,
    MLPERF_STEPS,
    Basis,
    Lift,
    NotKnown,
    batch_size_of,
    mlperf_step_ns,
)
from loadeval.analysis.predict.prediction import Limit
from tests.runs import DEMO
from tests.runs.given import level
from tests.runs.staged import staged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval import Demand

MS = 1_000_000
GB = 1e9


@pytest.fixture(scope="module", autouse=True)
def _short_replays() -> Iterator[None]:
    """Facts of relations, for which few batches do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loadeval.analysis.predict.costs.MOST_BATCHES", 64)
        yield


@pytest.fixture(name="run", scope="module")
def _run() -> Run:
    """Two workers that each take 20 ms for a batch of 32 samples, and a step of 8 ms."""
    return staged()


def planned(run: Run, devices: int = 1, cpus: float = 4, **options: Any) -> MachinePlan:
    there = {name: options.pop(name) for name in list(options) if name in Machine.__slots__}
    return plan(run, machine=Machine(devices, cpus, **there), **options)


def demand(plan: MachinePlan, need: Need) -> Demand:
    return next(each for each in plan.demands if each.need is need)


def test_needs_are_of_devices_that_always_compute(run: Run) -> None:
    """Four devices of 8 ms for 32 samples: 16,000 samples a second, and 2.5 CPUs each to fetch."""
    of_four = planned(run, devices=4, cpus=64)
    samples = demand(of_four, Need.SAMPLES)
    assert samples.amount is not None
    assert samples.amount.value == pytest.approx(4 * 32 / (of_four.step_ns / 1e9))
    assert samples.for_device == pytest.approx(samples.amount.value / 4)
    cpus = demand(of_four, Need.CPUS)
    parts = [demand(of_four, need) for need in (Need.FETCH_CPUS, Need.PICKLE_CPUS)]
    assert cpus.amount is not None
    assert cpus.amount.value == pytest.approx(
        sum(part.amount.value for part in parts if part.amount)
    )
    assert cpus.amount.low < cpus.amount.value < cpus.amount.high
    assert cpus.there == 64


def test_more_cpus_make_devices_busier_until_the_step_is_the_limit(run: Run) -> None:
    busy = [planned(run, cpus=cpus).utilisation.value for cpus in (1, 2, 4, 16)]
    assert busy == pytest.approx(sorted(busy), rel=0.01)
    assert busy[0] < 0.5
    assert busy[-1] > 0.75
    assert planned(run, cpus=1).limit is Limit.CPUS
    assert planned(run, cpus=16).limit in {Limit.STEP, Limit.TRAINING_PROCESS}


def test_devices_share_the_cpus(run: Run) -> None:
    """Four on four CPUs are as busy as one on one."""
    four, one = planned(run, devices=4, cpus=4), planned(run, devices=1, cpus=1)
    assert four.utilisation.value == pytest.approx(one.utilisation.value, rel=0.1)
    assert four.num_workers == one.num_workers


def test_a_faster_device_is_less_busy(run: Run) -> None:
    """Its own step takes no CPU from loading."""
    slow, fast = (planned(run, step_ns=ms * MS).utilisation.value for ms in (80, 2))
    assert fast < 0.5
    assert slow > 0.9


def test_a_batch_of_twice_the_samples_takes_twice_the_step(run: Run) -> None:
    one, two = planned(run), planned(run, batch_size=64)
    assert two.step_ns == pytest.approx(2 * one.step_ns)
    assert two.batch_size == 64
    assert two.utilisation.value == pytest.approx(one.utilisation.value, rel=0.1)


def test_published_steps_are_of_a_sample() -> None:
    """0.224 s for 400 images, so 17.92 ms for 32."""
    assert mlperf_step_ns("resnet50-h100", 32) == pytest.approx(17.92 * MS)
    assert all(seconds < 1 and samples for seconds, samples in MLPERF_STEPS.values())


def test_storage_holds_up_the_first_epoch_alone_where_the_data_stay_in_memory() -> None:
    """Where they do not, and where nobody said how large they are, all epochs."""
    run = with_memory(read_run(DEMO))
    step: dict[str, Any] = {"step_ns": 200 * MS, "cpus": 16, "read_bytes_per_s": 5e6}
    fits = planned(run, **step, memory_bytes=64 * GB, data_bytes=1 * GB)
    assert fits.first_epoch.value < 0.5
    assert fits.utilisation.value > 0.9
    assert fits.limit is not Limit.STORAGE
    later = demand(fits, Need.READ_LATER)
    assert later.amount is not None
    assert (later.amount.value, later.basis) == (0, Basis.FITS)
    others: list[dict[str, Any]] = [{}, {"data_bytes": 200 * GB}]
    for unlike in others:
        not_there = planned(run, **step, **unlike, memory_bytes=64 * GB)
        assert not_there.utilisation == not_there.first_epoch
        assert not_there.limit is Limit.STORAGE
        assert (
            demand(not_there, Need.READ_LATER).amount == demand(not_there, Need.READ_FIRST).amount
        )


def with_memory(run: Run) -> Run:
    """The run, of which the memory of its processes was read."""
    process = level("host", "process", "rss_bytes", GB)
    workers = level("host", "workers", "alive_workers", 2.0)
    pss = level("host", "workers", "pss_bytes", GB).values
    return replace(
        run,
        readings=(*run.readings, process, replace(workers, values={**workers.values, **pss})),
    )


def test_what_the_run_cannot_tell_is_asked_for(run: Run) -> None:
    """It is never taken to be nothing."""
    unknown = {each.need: each.why for each in planned(run).demands if each.amount is None}
    assert unknown[Need.PAGE_CACHE] is NotKnown.NO_DATA_BYTES
    assert unknown[Need.MEMORY] is NotKnown.NO_MEMORY_READ
    assert unknown[Need.FILES] is NotKnown.NO_FILES_COUNTED
    without = replace(
        run, stages=tuple(replace(s, read_bytes=s.read_bytes * 0 - 1) for s in run.stages)
    )
    assert demand(planned(without), Need.READ_FIRST).why is NotKnown.NO_BYTES_READ


def test_memory_is_of_all_processes() -> None:
    """Two devices take twice as much as one, and what is left is page cache."""
    run = with_memory(read_run(DEMO))
    one, two = (
        demand(planned(run, devices=count, cpus=2 * count, memory_bytes=64 * GB), Need.MEMORY)
        for count in (1, 2)
    )
    assert one.amount is not None
    assert two.amount is not None
    assert two.amount.value == pytest.approx(2 * one.amount.value)
    assert one.there == 64 * GB


def test_what_would_lift_it_is_predicted_each_by_itself(run: Run) -> None:
    """CPUs that are short, and the heaviest transform; nothing where devices are busy."""
    short = planned(run, cpus=1)
    lifts = {lifted.lift: lifted for lifted in short.lifts}
    assert lifts.keys() == {Lift.CPUS, Lift.FASTER}
    assert lifts[Lift.CPUS].amount > 1
    assert lifts[Lift.FASTER].part == "GaussianBlur"
    gains = [lifted.utilisation.value - short.utilisation.value for lifted in short.lifts]
    assert gains == sorted(gains, reverse=True)
    assert min(gains) >= LEAST_LIFT
    assert not planned(run, cpus=16, step_ns=500 * MS).lifts


def test_storage_is_lifted_by_bandwidth_or_by_memory() -> None:
    """By as much as the devices then need."""
    run = with_memory(read_run(DEMO))
    slow = planned(
        *(run,),
        step_ns=200 * MS,
        cpus=16,
        read_bytes_per_s=5e6,
        memory_bytes=8 * GB,
        data_bytes=100 * GB,
    )
    lifts = {lifted.lift: lifted for lifted in slow.lifts}
    assert lifts.keys() == {Lift.READ, Lift.MEMORY}
    assert lifts[Lift.MEMORY].amount > 100 * GB
    enough = planned(run, step_ns=200 * MS, cpus=16, read_bytes_per_s=lifts[Lift.READ].amount)
    assert enough.utilisation.value == pytest.approx(lifts[Lift.READ].utilisation.value, rel=0.01)


def test_the_machine_of_the_run_is_as_it_was_measured(run: Run) -> None:
    """Its range is that of one run to the next; another machine's is wider."""
    own = run.header.environment["cpus_usable"]
    here, there = planned(run, cpus=own), planned(run, cpus=own + 0.5)
    widths = [each.utilisation.high - each.utilisation.low for each in (here, there)]
    assert 0 < widths[0] <= widths[1]


def test_the_curve_has_the_machine(run: Run) -> None:
    """And more CPUs than a device needs."""
    shown = planned(run, devices=2, cpus=3)
    counts = [count for count, _ in shown.by_cpus]
    assert 1.5 in counts
    assert counts == sorted(counts)
    assert max(counts) > 2.5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"devices": 0}, "devices is 0; expected a whole number, 1 or more"),
        ({"cpus": 0}, "cpus is 0; expected a number above 0"),
        ({"memory_bytes": -1.0}, "memory_bytes is -1.0"),
        ({"read_bytes_per_s": float("nan")}, "read_bytes_per_s is nan"),
        ({"step_ns": float("inf")}, "step_ns is inf"),
        ({"data_bytes": 0}, "data_bytes is 0"),
    ],
)
def test_what_no_machine_has(options: dict[str, Any], said: str, run: Run) -> None:
    with pytest.raises(UsageError, match=said):
        planned(run, **options)


def test_a_run_without_a_batch_size() -> None:
    """Its samples are not known, and a batch size is no option."""
    run = staged()
    loader = replace(run.header.loader, batch_size=None)
    steps = replace(run.steps, samples=run.steps.samples * 0 - 1)
    unsized = replace(run, header=replace(run.header, loader=loader), steps=steps)
    assert batch_size_of(unsized) is None
    bare = planned(unsized)
    assert bare.batch_size is None
    assert demand(bare, Need.SAMPLES).why is NotKnown.NO_SAMPLES
    with pytest.raises(UsageError, match="does not tell its batch size"):
        planned(unsized, batch_size=8)


def test_a_run_without_workers_passes_nothing() -> None:
    """How much passing would take is not known."""
    run = staged(workers=0)
    assert demand(planned(run), Need.PICKLE_CPUS).why is NotKnown.NO_WORKERS


def test_a_run_that_names_no_part_is_lifted_by_cpus_alone(run: Run) -> None:
    """Nothing of its loading has a name that could become faster."""
    stages = tuple(replace(times, transform_ns={}, transform_calls={}) for times in run.stages)
    lifts = planned(replace(run, stages=stages, code=()), cpus=1).lifts
    assert [lifted.lift for lifted in lifts] == [Lift.CPUS]
