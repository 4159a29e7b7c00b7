"""What a model predicts of runs whose every time is given."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from loadeval import read_run
from loadeval.data.columns import Columns
from loadeval.data.run import Run
from loadeval.errors import UsageError
from loadeval.model.costs import Change, start_ns
from loadeval.model.model import Model
from loadeval.report.whatif import whatif
from tests.builder import MS, cores_read
from tests.recorded import logs_of
from tests.runs.looked_into import code, looked_into
from tests.runs.tables import replace

FOUR = {"cpus_usable": 4, "cpus": 4}
COMPUTING = looked_into(fetch=200, environment=FOUR)
SIZES = {
    name: np.full(COMPUTING.batches, size) for name, size in (("samples", 32), ("nbytes", 128))
}
SIZED = replace(COMPUTING, steps=COMPUTING.steps.replace(**SIZES))


def workers(count: int) -> Change:
    return Change({"num_workers": count})


def speedup(run: Run, **changed: Any) -> float:
    return whatif(run, **changed).speedup.value


def blocked_in(kernel: str, **given: Any) -> Run:
    """Workers that are blocked three quarters of fetching, as the kernel names it."""
    seen = code({"data.py:1 f": 25}, {f"data.py:1 f > {kernel}": 75})
    return looked_into(**{"fetch": 60, "blocked": 0.75, "seen": seen, **given})


def test_as_it_is_nothing_is_gained() -> None:
    """Neither without a change nor with the settings that the run had."""
    for found in (
        whatif(SIZED),
        whatif(SIZED, num_workers=2, prefetch_factor=2, in_order=True, batch_size=32),
    ):
        assert (found.speedup.value, found.speedup.low, found.speedup.high) == (1, 1, 1)
        assert found.assumptions == []


def test_workers_that_compute_scale_until_the_cpus_end() -> None:
    """Four CPUs give twice of two, and no more."""
    model = Model.of(COMPUTING)
    assert model.simulate(workers(4)).value == pytest.approx(1.9, rel=0.1)
    assert model.simulate(workers(8)).value == pytest.approx(1.7, rel=0.1)
    assert model.simulate(workers(1)).value == pytest.approx(0.5, rel=0.1)
    assert model.best_workers() == 4


def test_the_range_holds_the_value_and_grows_with_the_distance() -> None:
    model = Model.of(looked_into(fetch=600, blocked=0.9, environment=FOUR))
    found = [model.simulate(workers(count)) for count in (1, 3, 6, 12)]
    for each in found:
        low, high = each.bounds
        assert low < each.value < high
    widths = [each.bounds[1] / each.bounds[0] for each in found[1:]]
    assert widths == sorted(widths)


@pytest.mark.parametrize(
    ("step", "process", "least", "most"),
    [(20, (0.05, 0.25), 1.75, 1.95), (60, (0.65, 1.0), 1.05, 1.25)],
)
def test_a_second_worker_on_two_cpus(
    step: int, process: tuple[float, float], least: float, most: float
) -> None:
    """It has a CPU of its own where training waits for a device, and else shares one."""
    environment = {"cpus_usable": 2, "cpus": 2}
    run = looked_into(fetch=100, workers=1, step=step, environment=environment)
    assert least < speedup(cores_read(run, process=process, workers=1.0), num_workers=2) < most


def test_a_step_that_workers_made_longer_tells_how_much_cpus_slow_each_other() -> None:
    """So that more workers gain less."""
    steps = [looked_into(fetch=80, step=20, real=real, environment=FOUR) for real in (20, 24)]
    quiet, contended = (speedup(cores_read(run, process=1.0), num_workers=4) for run in steps)
    assert contended < 0.95 * quiet


def test_threads_of_a_step_that_wait_for_each_other_lose_by_workers() -> None:
    """On two CPUs: a first one makes it longer, as far as is known; the run shows how far."""
    two = {"cpus_usable": 2, "cpus": 2}
    runs = [
        looked_into(fetch=27, step=3.5, real=real, workers=count, environment=two)
        for count, real in ((0, 3.5), (1, 30), (1, 7))
    ]
    none, slowed, fair = (cores_read(run, process=2.0, workers=1.0) for run in runs)
    assert speedup(none, num_workers=1) < 0.9
    assert speedup(slowed, num_workers=2) < 1.45
    assert speedup(fair, num_workers=2) > 1.55


def test_changes_add_up() -> None:
    """A blur that takes four fifths of 200 ms becomes twice as fast, and workers more."""
    model = Model.of(looked_into(fetch=200, transforms={"blur": 0.8}, environment=FOUR))
    faster, more = Change(costs={"blur": 2.0}), workers(3)
    assert model.simulate(faster).value == pytest.approx(200 / 120, rel=0.05)
    both = model.simulate(faster + more).value
    assert both == model.simulate(more + faster).value
    assert both == pytest.approx(1.5 * 200 / 120, rel=0.08)
    twice = faster + Change(costs=lambda costs: costs.replace(step_ns=costs.step_ns / 2))
    assert model.simulate(twice).value >= model.simulate(faster).value


def test_a_lock_does_not_scale() -> None:
    """All workers together pass it no faster than now, and one alone waits less."""
    run = blocked_in("futex_wait_queue")
    found = whatif(run, num_workers=4)
    assert found.speedup.value == pytest.approx(1, abs=0.03)
    assert found.assumptions[0].startswith("Workers wait for a lock for 75.0% of fetching.")
    assert speedup(run, num_workers=1) > 0.9


def test_a_disk_may_give_no_more_and_a_server_may() -> None:
    """The range covers both, and what is likely is its value."""
    disk, server = (
        whatif(blocked_in(kernel), num_workers=4)
        for kernel in ("folio_wait_bit_common", "sk_wait_data")
    )
    assert disk.speedup.value == pytest.approx(1, abs=0.05)
    assert disk.limit == "the storage"
    assert server.speedup.value > 1.4
    for found in (disk, server):
        low, high = found.speedup.bounds
        assert low < 1.05
        assert high > 1.4
        assert "it is not known whether that takes longer" in found.assumptions[0]
    assert (whatif(blocked_in("hrtimer_nanosleep"), num_workers=4).speedup.low or 0) > 1.2


@pytest.mark.parametrize(
    ("given", "changed", "limit"),
    [
        ({"fetch": 10}, {}, "the training step"),
        ({"fetch": 200}, {}, "the workers"),
        ({"fetch": 30, "workers": 0}, {}, "loading in the training process"),
        ({"fetch": 200}, {"num_workers": 8}, "the CPUs"),
        ({"fetch": 10, "index": 30}, {}, "the training process"),
        ({"fetch": 40, "receive": 15, "workers": 1}, {"prefetch_factor": 1}, "prefetching"),
    ],
)
def test_what_holds_training_up(given: dict[str, Any], changed: dict[str, Any], limit: str) -> None:
    assert whatif(looked_into(environment=FOUR, **given), **changed).limit == limit


def test_first_workers_load_in_the_background() -> None:
    """They begin anew in each epoch, unless they live on."""
    model = Model.of(looked_into(workers=0, fetch=30))
    started, lives_on = (model.simulate(change) for change in (workers(2), model.with_workers(2)))
    assert 1.5 < started.value < lives_on.value
    found = whatif(looked_into(workers=0, fetch=30), num_workers=2)
    assert any(each.startswith("Workers start, ") for each in found.assumptions)


def test_workers_that_come_to_live_on_start_in_an_epoch_that_does_not_count() -> None:
    """Its two epochs began with 2.3 s of starting them. The lower end counts one of these."""
    with TemporaryDirectory() as folder:
        (log,) = logs_of("spawned", Path(folder))
        model = Model.of(read_run(log))
    found = model.simulate(Change({"persistent_workers": True}))
    assert model.gap.speedup is not None
    assert 0.9 * model.gap.speedup.value < found.value < model.gap.speedup.value
    assert 1.4 < found.bounds[0] < 2


def test_what_the_simulation_leaves_out_may_stay_or_go() -> None:
    """Steps take 45 ms beside loading of 10, and not 20: the range has both, and that is said."""
    two = {"cpus_usable": 2, "cpus": 2}
    run = looked_into(fetch=10, step=20, real=45, transforms={"blur": 0.8}, environment=two)
    found = whatif(cores_read(run, process=1.0, workers=1.0), faster={"blur": 2.0})
    low, high = found.speedup.bounds
    assert low < 1 < found.speedup.value < high
    assert high > 1.3
    assert found.assumptions[-1] == (
        "Of the run as it is, the simulation takes 0.49x the time that was measured. The range "
        "covers that the rest stays as it is, and that it goes with what loading computes."
    )


def test_batches_of_twice_as_many_samples_take_twice_as_long() -> None:
    found = whatif(SIZED, batch_size=64)
    assert found.speedup.value == pytest.approx(1, abs=0.1)
    assert "The training step takes the same time for a sample as in the run." in found.assumptions


def test_in_larger_batches_slow_samples_are_spread() -> None:
    """They hold up fewer batches, where steps hide what is left; a slow worker stays slow."""
    slow = np.where(np.arange(100) % 8 == 4, 200.0, 5.0)
    scattered = looked_into(fetch=slow, step=20, loader={"batch_size": 4})
    assert speedup(scattered, batch_size=16) > 1.1
    of_one = looked_into(fetch=[5.0, 60.0] * 50, step=20, loader={"batch_size": 4})
    assert speedup(of_one, batch_size=8) == pytest.approx(1, abs=0.05)


def test_a_fork_copies_the_page_tables_of_the_training_process() -> None:
    run = looked_into(workers=0, fetch=30)
    memory = Columns({"time_ns": np.array([1]), "anonymous_bytes": np.array([4e9])})
    large = replace(run, readings={("host", "process"): memory})
    assert (start_ns(run, 2), start_ns(large, 2)) == ((40 * MS, 0), (140 * MS, 0))


def test_cpus_that_are_given_are_shared_with_no_others() -> None:
    run = cores_read(COMPUTING, process=0.2, workers=1.8, machine=3.9)
    assert whatif(run).settings["others_cpus"] > 1
    found = whatif(run, cpus=4)
    assert found.settings["others_cpus"] == 0
    assert found.speedup.value > 1


def test_a_curve_goes_on_until_workers_are_enough() -> None:
    """Those that sleep are more than twice the CPUs."""
    two = {"cpus_usable": 2, "cpus": 2}
    model = Model.of(blocked_in("hrtimer_nanosleep", fetch=200, blocked=0.95, environment=two))
    assert model.best_workers() > 8
    assert model.worker_counts()[-1] == model.best_workers()


def test_memory_that_is_not_there_is_told() -> None:
    memory = {"pss_bytes": 2e6, "pss_file_bytes": 0.0, "anonymous_bytes": 4e6, "alive_workers": 2.0}
    run = replace(
        SIZED,
        stages=SIZED.stages.replace(pickled_bytes=np.zeros(len(SIZED.stages), int)),
        readings={
            ("host", "workers"): Columns({}).replace(
                time_ns=np.arange(3), **{name: np.full(3, value) for name, value in memory.items()}
            ),
            ("host", "machine"): Columns({"time_ns": [1], "memory_limit_bytes": [10e6]}),
        },
        header=replace(SIZED.header, environment={"shm_free_bytes": 4e3}),
    )
    found = whatif(run, num_workers=20)
    queued = (20 * 2 + 1) * 128
    assert found.memory_bytes == 20 * 0.5e6 + queued
    assert found.shared_memory_bytes == queued
    assert found.shortages == [
        "That takes 10.0 MB of memory, and the machine of the run has 10.0 MB.",
        "That takes 5.25 kB of /dev/shm, and 4.00 kB of it were free when the run began.",
    ]


def test_runs_that_nothing_can_be_predicted_from() -> None:
    with pytest.raises(UsageError, match="run does not tell what happens inside the loader"):
        whatif(replace(SIZED, stages=SIZED.stages.take(slice(0))))
    with pytest.raises(UsageError, match="run has too few batches that count, so nothing can be"):
        whatif(replace(SIZED, stages=SIZED.stages.take(slice(1))))


def test_parts_that_become_faster() -> None:
    """The end of a name will do."""
    seen = code(
        {
            "data.py:1 Jpegs.augment > Image.resize": 60,
            "data.py:9 Masks.crop > Image.crop": 20,
            "torch/storage.py:414 _StorageBase._new_shared": 20,
        }
    )
    run = looked_into(fetch=100, collate=100, seen=seen, environment=FOUR)
    assert speedup(run, faster={"collate": 2.0}) == pytest.approx(4 / 3, rel=0.05)
    assert speedup(run, faster={"fetch": 2.0, "collate": 2.0}) == pytest.approx(2, rel=0.05)
    assert whatif(run, faster={"resize": 2.0}).faster == {"Image.resize": 2.0}
    with pytest.raises(UsageError, match="'crop', which names no part, or several; expected "):
        whatif(run, faster={"crop": 2.0})
    run = looked_into(fetch=10, index=30)
    assert speedup(run, faster={"indices": 2.0}) == pytest.approx(50 / 35, rel=0.05)
    assert speedup(run, faster={"step": 2.0}) == pytest.approx(50 / 40, rel=0.05)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_workers": -1}, "num_workers is -1; expected 0 or more"),
        ({"cpus": math.nan}, "cpus is nan; expected 0.01 or more"),
        ({"faster": {"step": 0}}, "faster has 0 for 'step'; expected how many times as fast"),
    ],
)
def test_values_that_no_loader_can_have(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        whatif(SIZED, **changed)
    assert str(caught.value).startswith(message)
