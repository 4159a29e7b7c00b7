"""Predictions of other settings, from runs whose every time is given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadeval.analysis.predict.change import GROWTH
from loadeval.analysis.predict.cpus import Spinning
from loadeval.analysis.predict.faster import FasterError
from loadeval.analysis.predict.first_workers import HAND_OVER_NS
from loadeval.analysis.predict.prediction import Assumption, Limit, Prediction, Shortage
from loadeval.analysis.predict.recorded import SCALES, Recorded, recorded_of
from loadeval.analysis.predict.whatif import GROWTH_STEP, MOST_STEPS, LoaderModel, spread, whatif
from loadeval.data.lines import Readings
from loadeval.errors import UsageError
from tests.runs.given import cores_read, run_of
from tests.runs.looked_into import COUNT, code, logged, looked_into
from tests.runs.staged import BATCH_BYTES, MS, PREFETCH, SAMPLES, staged, without_stages
from tests.runs.tables import readings_lines, replace, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import Enum

    from loadeval.analysis.predict.prediction import Range
    from loadeval.data.run import Run

STAGED = staged()
COMPUTING = looked_into(fetch=200)
BLOCKED = looked_into(fetch=600, blocked=0.9)
CPUS = 8
"""Of the machine that these ran on."""
STEP_MS = 20.0


def blocked_in(kernel: str, **given: Any) -> Run:
    """Workers that are blocked three quarters of fetching, as the kernel names it."""
    seen = code({"data.py:1 f": 25}, {f"data.py:1 f > {kernel}": 75})
    return looked_into(**{"fetch": 60, "blocked": 0.75, "seen": seen, **given})


def iteration_ms(run: Run | Sequence[Run], **changed: Any) -> float:
    return whatif(run, **changed).iteration_ns.value / MS


def speedup(run: Run | Sequence[Run], **changed: Any) -> float:
    return whatif(run, **changed).speedup.value


def assumed(prediction: Prediction) -> list[Enum]:
    return [assumption.code for assumption in prediction.assumptions]


def relative(estimated: Range) -> tuple[float, float]:
    return estimated.low / estimated.value, estimated.high / estimated.value


@pytest.mark.parametrize("run", [STAGED, COMPUTING, BLOCKED, looked_into(fetch=30, workers=0)])
def test_the_same_setting_gives_what_was_measured(run: Run) -> None:
    """The range is no wider than that of the measurement."""
    recorded = Recorded.of(run)
    prediction = whatif(run)
    assert prediction.speedup.value == pytest.approx(1)
    assert prediction.iteration_ns.value == pytest.approx(recorded.measured_ns)
    assert prediction.throughput.value == pytest.approx(recorded.rate.value)
    assert recorded.rate.low is not None
    assert recorded.rate.high is not None
    half = (recorded.rate.high - recorded.rate.low) / 2 / recorded.rate.value
    assert prediction.throughput.high / prediction.throughput.value == pytest.approx(1 + half)
    assert prediction.throughput.value / prediction.throughput.low == pytest.approx(1 + half)


def test_the_same_setting_named_is_the_same() -> None:
    """Every setting that the run had, and no part made faster."""
    setting = {"num_workers": 2, "prefetch_factor": PREFETCH, "in_order": True, "cpus": 4.0}
    assert whatif(STAGED, **setting) == whatif(STAGED)  # type: ignore[arg-type]
    assert whatif(STAGED, faster={}, batch_size=SAMPLES) == whatif(STAGED)


def test_a_prediction_tells_its_settings() -> None:
    """It has those that are changed, and the others as they were."""
    prediction = whatif(STAGED, num_workers=3, faster={"ToTensor": 2.0})
    assert (prediction.num_workers, prediction.prefetch_factor, prediction.in_order) == (
        3,
        PREFETCH,
        True,
    )
    assert (prediction.cpus, prediction.batch_size, prediction.faster) == (
        4,
        SAMPLES,
        {"ToTensor": 2.0},
    )
    prediction = whatif(STAGED, prefetch_factor=2, cpus=7, in_order=False, batch_size=8)
    assert (prediction.num_workers, prediction.prefetch_factor, prediction.in_order) == (
        2,
        2,
        False,
    )
    assert (prediction.cpus, prediction.batch_size, prediction.faster) == (7, 8, {})
    assert prediction.unit == "images"


def test_a_prediction_agrees_with_itself() -> None:
    """The throughput, the iteration and the speedup are one figure."""
    base, prediction = whatif(STAGED), whatif(STAGED, num_workers=3)
    assert prediction.throughput.value / base.throughput.value == pytest.approx(
        prediction.speedup.value
    )
    assert base.iteration_ns.value / prediction.iteration_ns.value == pytest.approx(
        prediction.speedup.value
    )
    assert relative(prediction.throughput) == pytest.approx(relative(prediction.speedup))
    assert (
        prediction.iteration_ns.low < prediction.iteration_ns.value < prediction.iteration_ns.high
    )


def test_workers_that_compute_scale_until_the_cpus_end() -> None:
    """Less what CPUs in use slow each other."""
    times_ms = [iteration_ms(COMPUTING, num_workers=count) for count in (2, 4, 8, 16)]
    assert times_ms[0] / times_ms[1] == pytest.approx(2, rel=0.1)
    assert 1.4 < times_ms[1] / times_ms[2] < 2
    assert times_ms[3] == pytest.approx(times_ms[2], rel=0.05)


@pytest.mark.parametrize(
    ("step", "process", "least", "most"),
    [(20, (0.05, 0.25), 1.8, 1.9), (60, (0.65, 1.0), 1.1, 1.2)],
)
def test_a_second_worker_on_two_cpus(
    step: int, process: tuple[float, float], least: float, most: float
) -> None:
    """It has nearly a CPU of its own where training waits for a device, and else shares one."""
    run = looked_into(fetch=100, workers=1, step=step)
    run = replace(run, header=replace(run.header, environment={"cpus_usable": 2, "cpus": 2}))
    assert least < speedup(cores_read(run, process=process, workers=1.0), num_workers=2) < most


def test_less_is_known_of_what_is_further_away() -> None:
    """The range grows with the distance from what was measured."""
    ranges = [whatif(BLOCKED, num_workers=count).speedup for count in (2, 4, 8, 16)]
    widths = [speedup_range.high / speedup_range.low for speedup_range in ranges]
    assert widths == sorted(widths)


def test_time_that_is_blocked_scales_beyond_the_cpus() -> None:
    """Such time needs no CPU."""
    sleeping = blocked_in("hrtimer_nanosleep", fetch=600, blocked=0.9)
    prediction = whatif(sleeping, num_workers=4 * CPUS)
    assert prediction.speedup.value > 1.5 * CPUS
    assert Assumption.BLOCKED_IN_PARALLEL in assumed(prediction)


def test_blocked_time_of_which_nothing_is_known_may_be_of_a_server() -> None:
    """It is taken to scale, and the range tells that it may not."""
    prediction = whatif(BLOCKED, num_workers=4 * CPUS)
    assert prediction.speedup.value > 1.5 * CPUS
    assert prediction.speedup.low < 1.2
    assert Assumption.STORAGE_NOT_KNOWN in assumed(prediction)


@pytest.mark.parametrize("workers", [3, 4, 8])
def test_a_lock_does_not_scale(workers: int) -> None:
    """All workers together pass it no faster than now."""
    prediction = whatif(blocked_in("futex_wait_queue"), num_workers=workers)
    assert prediction.speedup.value == pytest.approx(1, abs=0.03)  # eight leave training no CPU
    assert Assumption.LOCK_LIMITS in assumed(prediction)


def test_a_lock_of_fewer_workers_is_waited_for_less() -> None:
    """One alone has what two shared."""
    run = blocked_in("futex_wait_queue")
    assert speedup(run, num_workers=1) > 0.9 > speedup(blocked_in("x"), num_workers=1)


def test_a_disk_that_several_workers_wait_for_may_give_no_more() -> None:
    """It is busy all the time by then; at best all workers read at a time."""
    prediction = whatif(blocked_in("folio_wait_bit_common"), num_workers=4)
    assert prediction.speedup.value == pytest.approx(1, abs=0.01)
    assert prediction.limit is Limit.STORAGE
    assert prediction.speedup.high > 1.4
    assert Assumption.STORAGE_NOT_KNOWN in assumed(prediction)
    assert whatif(blocked_in("hrtimer_nanosleep"), num_workers=4).speedup.low > 1.2


def test_what_is_blocked_for_a_short_time_is_not_asked_about() -> None:
    """Under a fifth of fetching, a lock or a disk changes little."""
    run = blocked_in("futex_wait_queue", blocked=0.19)
    assert not {Assumption.LOCK_LIMITS, Assumption.BLOCKED_IN_PARALLEL} & set(
        assumed(whatif(run, num_workers=4))
    )


def test_blocked_in_the_training_process() -> None:
    """Without workers nobody shares a lock yet."""
    prediction = whatif(blocked_in("futex_wait_queue", workers=0), num_workers=2)
    assert prediction.speedup.value > 1.5


def test_the_step_limits() -> None:
    """The number of workers does not matter."""
    run = looked_into(fetch=60, blocked=0.9)
    prediction = whatif(run, num_workers=16)
    assert prediction.limit is Limit.STEP
    assert prediction.iteration_ns.value == pytest.approx(STEP_MS * MS, rel=0.05)


@pytest.mark.parametrize(
    ("run", "changed", "limit"),
    [
        (looked_into(fetch=10), {}, Limit.STEP),
        (COMPUTING, {}, Limit.WORKERS),
        (looked_into(fetch=30, workers=0), {}, Limit.WORKERS),
        (COMPUTING, {"num_workers": 16}, Limit.CPUS),
        (looked_into(fetch=10, index=30), {}, Limit.TRAINING_PROCESS),
        (looked_into(fetch=40, receive=30), {"num_workers": 4}, Limit.TRAINING_PROCESS),
        (looked_into(fetch=40, receive=15, workers=1), {"prefetch_factor": 1}, Limit.PREFETCH),
    ],
)
def test_what_a_loader_is_held_up_by(run: Run, changed: dict[str, Any], limit: Limit) -> None:
    """What must change for it to become faster."""
    assert whatif(run, **changed).limit is limit


def test_cpus_are_the_limit_only_where_more_of_them_help_most() -> None:
    """Other programs use them too: more workers take a larger part, which helps less."""
    model = LoaderModel.of(with_other_programs(4.0))
    prediction = model.predict(num_workers=4)
    assert prediction.limit is Limit.CPUS
    more = model.predict(num_workers=8).throughput.value
    assert (
        prediction.throughput.value < more < model.predict(num_workers=4, cpus=64).throughput.value
    )


def test_a_transform_twice_as_fast() -> None:
    """That is four fifths of 200 ms: 120 of them are left."""
    run = looked_into(fetch=200, transforms={"blur": 0.8})
    assert speedup(run, faster={"blur": 2.0}) == pytest.approx(200 / 120, rel=0.05)
    assert speedup(run, faster={"blur": math.inf}) == pytest.approx(100 / 20.5, rel=0.1)
    assert speedup(run, faster={"blur": 0.5}) == pytest.approx(200 / 360, rel=0.05)


def test_collate_twice_as_fast() -> None:
    """Collating is half of the time here; fetching is the other half."""
    run = looked_into(fetch=100, collate=100)
    assert speedup(run, faster={"collate": 2.0}) == pytest.approx(4 / 3, rel=0.05)
    assert speedup(run, faster={"fetch": 2.0}) == pytest.approx(4 / 3, rel=0.05)
    assert speedup(run, faster={"fetch": 2.0, "collate": 2.0}) == pytest.approx(2, rel=0.03)


def test_a_function_of_the_dataset() -> None:
    """It is given by name; workers were seen in it three quarters of the time."""
    run = looked_into(fetch=200, seen=code({"data.py:1 decode": 75, "data.py:9 crop": 25}))
    assert speedup(run, faster={"decode": 2.0}) == pytest.approx(1 / 0.625, rel=0.05)


NAMED = looked_into(
    fetch=200,
    seen=code(
        {
            "data.py:1 Jpegs.augment > Image.resize": 40,
            "data.py:2 Jpegs.augment > Image.crop": 20,
            "data.py:9 Masks.crop": 20,
            "torch/storage.py:414 _StorageBase._new_shared": 15,
            "_utils/collate.py:275 collate_tensor_fn": 5,
        }
    ),
)


@pytest.mark.parametrize(
    ("given", "full", "left"),
    [
        ("Jpegs.augment", "Jpegs.augment", 0.7),
        ("augment", "Jpegs.augment", 0.7),
        ("Image.resize", "Image.resize", 0.8),
        ("resize", "Image.resize", 0.8),
        ("_new_shared", "_StorageBase._new_shared", 0.925),
    ],
)
def test_the_end_of_a_name_will_do(given: str, full: str, left: float) -> None:
    """Of what the user wrote, and of what that calls; the prediction has the whole name."""
    prediction = whatif(NAMED, faster={given: 2.0})
    assert prediction.faster == {full: 2.0}
    assert prediction.speedup.value == pytest.approx(1 / left, rel=0.03)


def test_an_end_of_several_names() -> None:
    """All of them are told."""
    with pytest.raises(FasterError) as caught:
        whatif(NAMED, faster={"crop": 2.0})
    assert str(caught.value) == (
        "faster has 'crop', which may be 'Image.crop' or 'Masks.crop'; name one of them in full"
    )


@pytest.mark.parametrize("name", ["rop", "AUGMENT", ""])
def test_names_that_nobody_could_make_faster_are_not_offered(name: str) -> None:
    """What torch does by itself; part of a word is no name."""
    with pytest.raises(FasterError) as caught:
        whatif(NAMED, faster={name: 2.0})
    expected = "'Jpegs.augment', 'Image.resize', 'Masks.crop', 'fetch', 'collate', 'indices', "
    assert str(caught.value) == (
        f"faster has {name!r}, of which the run knows nothing; expected one of {expected}"
        "'hand-over', 'pin', 'step'"
    )


def test_a_part_that_is_named_twice() -> None:
    """It is named in full once."""
    with pytest.raises(FasterError, match=r"'Jpegs.augment' twice; expected each part once"):
        whatif(NAMED, faster={"augment": 2.0, "Jpegs.augment": 3.0})


@pytest.mark.parametrize(
    ("part", "given", "expected_ms"),
    [
        ("indices", {"fetch": 10, "index": 30}, 20 + 15),
        ("hand-over", {"fetch": 10, "receive": 30}, 20 + 15),
        ("pin", {"fetch": 10, "pin": 80}, 40),
        ("step", {"fetch": 10, "index": 30}, 10 + 30),
    ],
)
def test_a_part_twice_as_fast(part: str, given: dict[str, Any], expected_ms: float) -> None:
    """What the training process does for each batch."""
    assert iteration_ms(looked_into(**given), faster={part: 2.0}) == pytest.approx(
        expected_ms, rel=0.05
    )


def test_a_name_that_the_run_does_not_know() -> None:
    """The error tells the names that it knows, each once."""
    with pytest.raises(UsageError, match="of which the run knows nothing") as caught:
        whatif(STAGED, faster={"flip": 2.0})
    for name in ("GaussianBlur", "__getitem__", "collate", "hand-over", "step"):
        assert str(caught.value).count(f"'{name}'") == 1


@pytest.mark.parametrize("size", [SAMPLES // 2, 2 * SAMPLES, 100 * SAMPLES])
def test_another_batch_size(size: int) -> None:
    """Each sample takes what it took: a batch of twice as many twice as long."""
    prediction = whatif(STAGED, batch_size=size)
    assert prediction.batch_size == size
    per_sample_ns = prediction.iteration_ns.value / size
    base = whatif(STAGED)
    assert base.iteration_ns.value / SAMPLES / per_sample_ns == pytest.approx(
        prediction.speedup.value
    )
    assert prediction.speedup.value == pytest.approx(1, abs=0.1)
    assert assumed(prediction) == [Assumption.STEP_PER_SAMPLE]


def test_larger_batches_are_handed_over_less_often() -> None:
    """A gain where that is what takes the time."""
    run = looked_into(fetch=10, receive=30, samples=4)
    run = replace(run, header=replace(run.header, loader=replace(run.header.loader, batch_size=4)))
    assert speedup(run, batch_size=8) == pytest.approx(2 * 50 / (2 * 20 + 30), rel=0.03)


def test_single_samples_are_handed_over_one_by_one() -> None:
    """That takes longer than loading them."""
    assert speedup(STAGED, batch_size=1) < 0.5


def test_a_batch_size_that_the_run_does_not_tell() -> None:
    """Nothing can be compared with it."""
    with pytest.raises(UsageError, match="does not tell its batch size; leave batch_size out"):
        whatif(COMPUTING, batch_size=8)


def test_the_batch_size_that_was_seen_counts() -> None:
    """This is so where the loader does not tell its own."""
    loader = replace(STAGED.header.loader, batch_size=None)
    run = replace(STAGED, header=replace(STAGED.header, loader=loader))
    assert speedup(run, batch_size=2 * SAMPLES) == speedup(STAGED, batch_size=2 * SAMPLES)


def test_out_of_order() -> None:
    """A slow batch now and then no longer holds the others back."""
    fetch = np.where(np.arange(COUNT) % 16 < 1, 300.0, 20.0)
    fetch = np.roll(fetch, 5) + np.where(np.arange(COUNT) % 16 == 10, 280.0, 0.0)
    run = looked_into(fetch=fetch, workers=4)
    assert speedup(run, in_order=False) > 1.05
    assert whatif(run, in_order=False).in_order is False


def test_a_deeper_queue() -> None:
    """Hides what one batch in sixteen takes longer."""
    fetch = np.where(np.arange(COUNT) % 16 == 5, 150.0, 10.0)
    run = looked_into(fetch=fetch, prefetch=1)
    assert speedup(run, prefetch_factor=8) > 1.05


def test_the_first_workers() -> None:
    """They load while training runs; handing batches over is what it usually takes."""
    run = looked_into(fetch=30, workers=0)
    assert iteration_ms(run, num_workers=2) == pytest.approx(STEP_MS, rel=0.12)
    prediction = whatif(run, num_workers=1)
    assert prediction.iteration_ns.value == pytest.approx(30 * MS, rel=0.1)
    assert prediction.prefetch_factor == 2
    (remark,) = (
        assumption
        for assumption in prediction.assumptions
        if assumption.code is Assumption.HAND_OVER_USUAL
    )
    assert remark.values == {"hand_over_ns": HAND_OVER_NS}


def test_no_workers() -> None:
    """Training does everything itself, one after the other."""
    prediction = whatif(COMPUTING, num_workers=0)
    assert prediction.iteration_ns.value == pytest.approx((200 + 20) * MS, rel=0.1)
    assert prediction.limit is Limit.WORKERS


def with_memory(run: Run, **bytes_: float) -> Run:
    """The run with readings of its workers' memory."""
    readings = readings_lines(cores_read(run, process=1.0))
    time_ns = readings[0].time_ns
    values = {name: np.full(len(time_ns), value) for name, value in bytes_.items()}
    return replace(run, readings=(*readings, Readings("host", "workers", time_ns, values)))


@pytest.mark.parametrize("name", ["pss_bytes", "anonymous_bytes", "rss_bytes"])
def test_memory(name: str) -> None:
    """Of each worker what it was, and of the queue with the batch that training has."""
    run = with_memory(STAGED, **{name: 3e6, "alive_workers": 2.0})
    prediction = whatif(run, num_workers=4, prefetch_factor=3)
    queued = (4 * 3 + 1) * BATCH_BYTES
    assert prediction.memory_bytes == pytest.approx(4 * 1.5e6 + queued)
    assert whatif(run, batch_size=2 * SAMPLES, num_workers=4).memory_bytes == pytest.approx(
        4 * 1.5e6 + (4 * PREFETCH + 1) * 2 * BATCH_BYTES
    )


@pytest.mark.parametrize("read", [{}, {"pss_bytes": 3e6}, {"pss_bytes": 3e6, "alive_workers": 0.0}])
def test_memory_that_is_not_known(read: dict[str, float]) -> None:
    """What workers take is known of none, or of how many is not."""
    assert whatif(with_memory(STAGED, **read), num_workers=4).memory_bytes is None


def test_memory_of_batches_of_unknown_size() -> None:
    """Then nothing is said."""
    run = with_memory(COMPUTING, pss_bytes=3e6, alive_workers=2.0)
    assert whatif(run).memory_bytes is None
    assert whatif(run).shared_memory_bytes is None


def test_memory_without_workers() -> None:
    """Only the batch that training has."""
    prediction = whatif(STAGED, num_workers=0)
    assert (prediction.memory_bytes, prediction.shared_memory_bytes) == (BATCH_BYTES, 0)


@pytest.mark.parametrize(
    ("pickled", "shared"),
    [(BATCH_BYTES // 2, 0.0), (BATCH_BYTES // 2 - 1, (2 * PREFETCH + 1) * BATCH_BYTES)],
)
def test_shared_memory(pickled: int, shared: float) -> None:
    """What goes through the pipe lies in none of it."""
    stages = tuple(
        replace(times, pickled_bytes=np.full(len(times), pickled)) for times in rows_of(STAGED)
    )
    assert whatif(replace(STAGED, stages=stages)).shared_memory_bytes == shared


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_memory_does_not_depend_on_who_else_shares_it(workers: int) -> None:
    """Each has 5 MB of its own, and 30 MB of its parent's, which all divide among them."""
    pss = workers * (5e6 + 30e6 / (workers + 1) + 2e6)
    read = {"alive_workers": float(workers), "pss_bytes": pss, "pss_file_bytes": workers * 2e6}
    run = with_memory(STAGED, **read, anonymous_bytes=workers * 35e6)
    prediction = whatif(run, num_workers=3)
    assert prediction.memory_bytes == pytest.approx(3 * 5e6 + (3 * PREFETCH + 1) * BATCH_BYTES)


def test_memory_is_of_the_run_that_tells_most() -> None:
    """RSS counts what is shared: a run with PSS is believed, though it is not the present one."""
    told = with_memory(STAGED, pss_bytes=10e6, alive_workers=2.0)
    untold = with_memory(STAGED, rss_bytes=800e6, alive_workers=2.0)
    for runs in ([told, untold], [untold, told]):
        prediction = whatif(runs, num_workers=3)
        assert prediction.memory_bytes == pytest.approx(3 * 5e6 + (3 * PREFETCH + 1) * BATCH_BYTES)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, []),
        ({"memory_bytes": 20e6, "shm_free_bytes": 20e6}, [Shortage.MEMORY]),
        ({"memory_bytes": 30e6, "shm_free_bytes": 4e3}, [Shortage.SHARED_MEMORY]),
        ({"memory_bytes": None, "shm_free_bytes": None}, []),
    ],
)
def test_what_a_machine_has_too_little_of(
    environment: dict[str, Any], expected: list[Shortage]
) -> None:
    """With 20 workers; where it is not known, nothing is said."""
    stages = tuple(
        replace(times, pickled_bytes=np.zeros(len(times), int)) for times in rows_of(STAGED)
    )
    run = with_memory(replace(STAGED, stages=stages), pss_bytes=2e6, alive_workers=2.0)
    run = replace(run, header=replace(run.header, environment=environment))
    prediction = whatif(run, num_workers=20)
    assert prediction.memory_bytes is not None
    assert [shortage.code for shortage in prediction.shortages] == expected
    assert whatif(run).shortages == ()
    for shortage in prediction.shortages:
        needed = {
            Shortage.MEMORY: prediction.memory_bytes,
            Shortage.SHARED_MEMORY: prediction.shared_memory_bytes,
        }[Shortage(shortage.code)]
        assert shortage.values["needed_bytes"] == needed


def grown(workers: int, growth: float) -> Run:
    """A run whose batches take more CPU time the more workers compute at a time."""
    return looked_into(fetch=200 * (1 + growth * (workers - 1)), step=2.0, workers=workers)


@pytest.mark.parametrize("growth", [0.0, 0.1, 0.3])
def test_several_runs_show_how_cpu_time_grows(growth: float) -> None:
    """The growth that explains them all, and what else they do follows from it."""
    model = LoaderModel.of([grown(workers, growth) for workers in (1, 2, 6)])
    least, usual, most = model.growth
    assert usual == pytest.approx(growth, abs=0.03)
    assert 0 <= least <= usual < most
    expected_ms = 200 * (1 + growth * 3) / 4
    predicted_ms = model.predict(num_workers=4).iteration_ns.value / MS
    assert predicted_ms == pytest.approx(expected_ms, rel=0.1)


@pytest.mark.parametrize("growth", [0.1, GROWTH[1]])
def test_growth_that_was_measured_is_not_assumed(growth: float) -> None:
    """It is not assumed even where it is what it usually is."""
    runs = [grown(workers, growth) for workers in (2, 6)]
    assert Assumption.CPU_TIME_GROWS not in assumed(whatif(runs, num_workers=8))


@pytest.mark.parametrize("workers", [(2,), (2, 2), (0, 2)])
def test_growth_that_runs_do_not_show(workers: tuple[int, ...]) -> None:
    """One number of workers, beside none at all, tells nothing of it."""
    runs = [looked_into(fetch=60, workers=count) for count in workers]
    assert LoaderModel.of(runs).growth == GROWTH


def test_runs_with_and_without_workers() -> None:
    """Growth is that of those with some."""
    runs = [looked_into(fetch=200, workers=0), grown(2, 0.1), grown(6, 0.1)]
    growth = LoaderModel.of(runs).growth[1]
    assert growth == pytest.approx(0.1, abs=0.03)
    assert growth <= GROWTH_STEP * MOST_STEPS


def test_the_nearest_run_is_predicted_from() -> None:
    """Each of these gives its own throughput; speedups are over the last."""
    runs = [grown(1, 0.1), grown(6, 0.1)]
    for run, workers in zip(runs, (1, 6), strict=True):
        assert iteration_ms(runs, num_workers=workers) == pytest.approx(iteration_ms(run), rel=0.01)
    assert speedup(runs) == pytest.approx(1, rel=0.01)
    assert speedup(runs, num_workers=1) == pytest.approx(
        iteration_ms(runs[1]) / iteration_ms(runs[0]), rel=0.01
    )


def test_a_curve() -> None:
    """It goes from no worker to twice the CPUs, beside what was measured."""
    runs = [staged(workers=workers, epochs=1, batches=130) for workers in (1, 2)]
    curve = LoaderModel.of(runs).curve()
    assert [count for count, _ in curve.measured] == [1, 2]
    assert [point.num_workers for point in curve.predicted] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert (curve.unit, curve.cpus, curve.others_cpus) == ("images", 4, 0)


def test_a_curve_of_a_loader_without_workers() -> None:
    """None is a point of it too."""
    curve = LoaderModel.of(staged(workers=0, epochs=1, batches=130)).curve()
    assert curve.predicted[0].num_workers == 0


def test_counts_are_spread() -> None:
    """Each, and then some 20% apart; the last is there."""
    assert spread(1, 12) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]
    assert spread(3, 3) == [3]


def with_other_programs(others: float) -> Run:
    """Four workers on four CPUs, of which others use some."""
    run = looked_into(fetch=200, workers=4)
    run = replace(run, header=replace(run.header, environment={"cpus_usable": 4, "cpus": 4}))
    return cores_read(run, process=0.2, workers=3.8, machine=4.0 + others)


def test_cpus_that_others_use_are_shared() -> None:
    """More workers take a larger part of them; with CPUs of its own there are no others."""
    run = with_other_programs(4.0)
    assert LoaderModel.of(run).curve().others_cpus == pytest.approx(4)
    alone, beside = (
        speedup(staged_run, num_workers=8) for staged_run in (with_other_programs(0.0), run)
    )
    assert beside > alone + 0.1
    assert speedup(run, cpus=4) > 1.3


def test_where_cpus_were_read_waiting_for_one_is_replayed() -> None:
    """The wait is not added to what a batch takes."""
    run = cores_read(looked_into(fetch=60, run_queue=0.4), process=0.7, workers=1.0)
    assert Recorded.of(run).present(0.0).costs.run_queue_ns.sum() == 0
    unread = Recorded.of(looked_into(fetch=60, run_queue=0.4))
    assert unread.present(0.0).costs.run_queue_ns.sum() > 0


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        ({}, 1.0),
        ({"workers": 1.0}, 1.0),
        ({"process": (1.5, 3.0)}, 3.0),
        ({"process": (float("nan"), 3.0)}, 3.0),
        ({"process": (2.0, float("nan"))}, 3.0),
    ],
)
def test_cpus_of_the_step(cores: dict[str, Any], expected: float) -> None:
    """With ideal loading, or what the process uses beside receiving; else one."""
    run = cores_read(STAGED, **cores) if cores else STAGED
    step_cpus = Recorded.of(run).costs.step_cpus
    assert step_cpus == pytest.approx(expected, abs=0.4)


def test_cpus_of_a_step_in_a_log() -> None:
    """What the process uses beside receiving is of its steps, which are a part of the time."""
    recorded = recorded_of(cores_read(logged(fetch=60), process=1.0), None)
    assert recorded is not None
    assert recorded.costs.step_cpus == pytest.approx(1.5, abs=0.1)


def test_cpus_that_are_not_known() -> None:
    """As many as are wanted are assumed, and this is said."""
    environment: dict[str, Any] = {}
    run = replace(COMPUTING, header=replace(COMPUTING.header, environment=environment))
    prediction = whatif(run, num_workers=8)
    assert prediction.cpus is None
    assert Assumption.CPUS_NOT_READ in assumed(prediction)
    assert Assumption.CPUS_NOT_READ not in assumed(whatif(run, num_workers=8, cpus=8))


def test_what_is_taken_for_granted_of_growth() -> None:
    """The range of it, where more workers compute than did."""
    values_of = {
        assumption.code: assumption.values
        for assumption in whatif(COMPUTING, num_workers=4).assumptions
    }
    assert values_of[Assumption.CPU_TIME_GROWS] == {"least": GROWTH[0], "most": GROWTH[2]}
    assert Assumption.CPU_TIME_GROWS not in assumed(whatif(COMPUTING, num_workers=1))


def test_a_disk_that_one_worker_reads_half_of_the_time_gives_two_of_them_twice_as_much() -> None:
    """At best both read at a time, and at worst one after the other, while the other computes."""
    run = blocked_in("folio_wait_bit_common", workers=1, fetch=100, blocked=0.5)
    found = whatif(run, num_workers=2).speedup
    assert found.value == pytest.approx(2, rel=0.05)
    run = blocked_in("folio_wait_bit_common", workers=1, fetch=100, blocked=0.8)
    found = whatif(run, num_workers=2).speedup
    assert found.value == pytest.approx(100 / 80, rel=0.03)
    assert found.low < 1.25
    assert found.high > 1.9


def test_all_that_is_assumed_of_the_present_settings_is_measured() -> None:
    assert whatif(STAGED).assumptions == ()


@pytest.mark.parametrize("mode", ["log", "replay"])
def test_nothing_is_predicted_from_a_run_without_real_and_ideal_batches(mode: str) -> None:
    """The error names the command that records what is needed."""
    run = replace(STAGED, header=replace(STAGED.header, mode=mode))
    with pytest.raises(UsageError) as raised:
        whatif(run, num_workers=2)
    assert str(raised.value) == (
        f"staged was recorded with mode={mode!r}, which does not measure the training step without "
        "loading, so nothing can be predicted from it; record one that does: loadeval run "
        "--mode alternate -- COMMAND"
    )


def slowed(run: Run, times: int) -> Run:
    """Steady waits that are longer than the stages tell."""
    steps = run.steps
    longer = replace(steps, wait_ns=steps.wait_ns * times)
    return replace(run, steps=longer)


def test_a_run_that_the_replay_is_unlike() -> None:
    """More than fetching in more of the time explains: that is said, with what it comes to."""
    prediction = whatif(slowed(COMPUTING, 4))
    (remark,) = (
        assumption
        for assumption in prediction.assumptions
        if assumption.code is Assumption.UNLIKE_REPLAY
    )
    assert float(str(remark.values["ratio"])) == pytest.approx(SCALES[1] * 100 / 340, rel=0.1)


def test_fetching_is_scaled_until_the_replay_takes_what_was_measured() -> None:
    """This is done where it is not too far from that."""
    prediction = Recorded.of(slowed(COMPUTING, 1)).present(0.0)
    assert prediction.iteration_ns == pytest.approx(Recorded.of(COMPUTING).measured_ns, rel=0.01)
    run = looked_into(fetch=10, index=30)
    assert Recorded.of(slowed(run, 2)).present(0.0).costs.fetch_ns == pytest.approx(
        Recorded.of(run).costs.fetch_ns
    )  # something else limits it


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_workers": -1}, "num_workers is -1; expected a whole number, 0 or more"),
        ({"num_workers": 2.0}, "num_workers is 2.0; expected a whole number"),
        ({"num_workers": True}, "num_workers is True; expected a whole number"),
        ({"prefetch_factor": 0}, "prefetch_factor is 0; expected a whole number, 1 or more"),
        ({"batch_size": 0}, "batch_size is 0; expected a whole number, 1 or more"),
        ({"num_workers": 0, "prefetch_factor": 4}, "prefetch_factor is 4 and num_workers is 0"),
        ({"cpus": 0}, "cpus is 0; expected a number above 0"),
        ({"cpus": math.nan}, "cpus is nan; expected a number above 0"),
        ({"faster": {"step": "4"}}, "faster has '4' for 'step'; expected how many times"),
        ({"faster": {"step": True}}, "faster has True for 'step'"),
        ({"faster": {"step": math.nan}}, "faster has nan for 'step'"),
        ({"faster": {"step": 0}}, "faster has 0 for 'step'; expected how many times as fast"),
    ],
)
def test_values_that_no_loader_can_have(changed: dict[str, Any], message: str) -> None:
    """They are told, and what was expected."""
    with pytest.raises(UsageError) as caught:
        whatif(STAGED, **changed)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "no run was given; expected one at least"),
        (without_stages(STAGED), "staged does not tell what happens inside the loader"),
        (staged(epochs=1, batches=3), "staged has too few batches to predict from"),
        (replace(COMPUTING, steps=run_of().steps), "run has too few batches"),
        ([STAGED, without_stages(staged(name="other"))], "other does not tell"),
    ],
)
def test_runs_that_nothing_can_be_predicted_from(runs: Run | list[Run], message: str) -> None:
    """One sentence tells which, and why."""
    with pytest.raises(UsageError) as caught:
        whatif(runs)
    assert str(caught.value).startswith(message)
    assert ". " not in str(caught.value)


def test_a_run_without_the_costs_of_its_batches() -> None:
    """Each worker's first is none that counts."""
    stages = tuple(times.part(slice(2)) for times in rows_of(COMPUTING))
    with pytest.raises(UsageError, match="has too few batches"):
        whatif(replace(COMPUTING, stages=stages))


MODELS = {
    "computing": LoaderModel.of(COMPUTING),
    "blocked": LoaderModel.of(BLOCKED),
    "staged": LoaderModel.of(STAGED),
}
NAMES = st.sampled_from(sorted(MODELS))


@given(NAMES, st.integers(1, 24), st.floats(0.5, 16), st.floats(1, 4))
def test_more_cpus_are_never_slower(name: str, workers: int, cpus: float, times: float) -> None:
    """Whoever uses them."""
    model = MODELS[name]
    few, more = (
        model.predict(num_workers=workers, cpus=available) for available in (cpus, cpus * times)
    )
    assert more.throughput.value >= 0.97 * few.throughput.value


@given(NAMES, st.integers(0, 24), st.integers(1, 8), st.floats(0.5, 64), st.booleans())
def test_no_training_is_faster_than_its_steps(
    name: str, workers: int, prefetch_factor: int, cpus: float, in_order: bool
) -> None:
    """What the loader does makes no difference."""
    recorded = {"computing": COMPUTING, "blocked": BLOCKED, "staged": STAGED}[name]
    prediction = MODELS[name].predict(
        num_workers=workers,
        prefetch_factor=prefetch_factor if workers else None,
        cpus=cpus,
        in_order=in_order,
    )
    assert prediction.iteration_ns.value >= 0.97 * Recorded.of(recorded).costs.step_ns


@given(st.integers(1, 40), st.integers(1, 12))
def test_more_workers_that_are_blocked_are_never_slower(workers: int, more: int) -> None:
    """There are CPUs enough for what they compute."""
    few, many = (
        MODELS["blocked"].predict(num_workers=count, cpus=64) for count in (workers, workers + more)
    )
    assert many.throughput.value >= 0.97 * few.throughput.value


@given(NAMES, st.integers(0, 16), st.integers(1, 64))
def test_a_range_contains_its_value(name: str, workers: int, cpus: int) -> None:
    """This holds for all that is predicted."""
    prediction = MODELS[name].predict(num_workers=workers, cpus=cpus)
    for predicted in (prediction.iteration_ns, prediction.throughput, prediction.speedup):
        assert 0 < predicted.low <= predicted.value <= predicted.high


def test_a_step_that_spins_is_told() -> None:
    """It would not take as long with another number of workers."""
    recorded = Recorded.of(STAGED)
    model = LoaderModel([replace(recorded, spinning=Spinning(4, 2, 4, 2.0, 1.0))])
    codes = {assumption.code for assumption in model.predict(num_workers=3).assumptions}
    assert Assumption.STEP_SPINS in codes
    assert recorded.spinning is None
