"""Workers are advised as far as CPUs are free for them, and no cause is named that is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.runlog.model import LoaderInfo, Readings, Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.rules.finding import Finding
    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]
    Find = Callable[..., Finding]

MS = 1_000_000
TRAINING = (0.5, 1.0)
"""CPUs of a training process that computes in its steps alone, half of the real arm's time."""


@pytest.fixture
def too_slow(alternating: MakeRun) -> MakeRun:
    """A run in which the loader must become twice as fast, on so many CPUs."""

    def make(cpus: int | None = 8, **loader: Any) -> Run:
        environment = {"cpus_usable": cpus, "host": "there"}
        return alternating(wait=50, alone=100, environment=environment, **loader)

    return make


@pytest.mark.parametrize(
    ("cpus", "advice"),
    [
        (8, "Raise num_workers from 2 to 4 and measure, or make decoding and transforms cheaper: "),
        (4, "Raise num_workers from 2 to 3 and measure, and make decoding and transforms cheaper:"),
        (3, "More workers will not help: the workers compute on 1.9 CPUs, keeping up takes 3.8 CP"),
    ],
)
def test_workers_that_compute(
    too_slow: MakeRun, with_cores: MakeRun, finding: Find, cpus: int, advice: str
) -> None:
    """They are given the CPUs that the training's steps leave, and no more are advised."""
    run = with_cores(too_slow(cpus), process=TRAINING, workers=(1.9, 0.0))
    found = finding("capacity", run)
    assert found.advice.startswith(advice)
    left = f"training and others leave {cpus - 1} CPUs of {cpus}"
    assert left in found.advice
    assert found.confidence == "measured"
    computing, free = found.evidence[-2:]
    assert (computing.name, free.name) == (
        "CPUs that the workers compute on",
        "CPUs left for workers",
    )
    assert [computing.value, free.value] == pytest.approx([1.9, cpus - 1])


def test_others_leave_fewer_cpus(too_slow: MakeRun, with_cores: MakeRun, finding: Find) -> None:
    """What other programs use is not free."""
    run = with_cores(too_slow(8), process=TRAINING, workers=(1.9, 0.0), machine=(7.1, 5.7))
    assert "leave 2.3 CPUs of 8" in finding("capacity", run).advice
    assert finding("capacity", run).advice.startswith("More workers will not help")


def test_others_on_cpus_that_training_may_not_use(
    too_slow: MakeRun, with_cores: MakeRun, finding: Find
) -> None:
    """They take nothing from it."""
    run = too_slow(8)
    environment = {**run.header.environment, "cpus": 64}
    run = replace(run, header=replace(run.header, environment=environment))
    run = with_cores(run, process=TRAINING, workers=(1.9, 0.0), machine=(52.4, 51.0))
    assert "leave 7 CPUs of 8" in finding("capacity", run).advice


def test_eight_workers_on_three_busy_cpus(
    too_slow: MakeRun, with_cores: MakeRun, finding: Find
) -> None:
    """Each has under half a CPU, and waits for no file: there is no CPU left for more of them."""
    run = with_cores(too_slow(3, workers=8), process=TRAINING, workers=(2.4, 0.0))
    found = finding("capacity", run)
    assert found.advice == (
        "More workers will not help: the 3 CPUs are all busy. Make decoding and transforms "
        "cheaper, or give the training more CPUs."
    )
    assert found.confidence == "measured"


def test_cpus_that_others_keep_busy(too_slow: MakeRun, with_cores: MakeRun, finding: Find) -> None:
    """That is said, for without them it might be another cause."""
    run = with_cores(too_slow(4), process=TRAINING, workers=(0.6, 0.0), machine=(3.8, 3.8))
    found = finding("capacity", run)
    assert found.advice.startswith(
        "More workers will not help: the 4 CPUs are all busy, 2.7 in use by other programs."
    )
    assert found.advice.endswith("Or measure again while nothing else runs.")
    assert found.confidence == "possible"


def test_workers_that_wait_while_others_keep_the_cpus_busy(
    too_slow: MakeRun, with_cores: MakeRun, finding: Find
) -> None:
    """Two that sleep may gain from company on CPUs that are busy: nothing says that they do not."""
    run = with_cores(too_slow(4), process=TRAINING, workers=(0.1, 0.0), machine=(3.8, 3.8))
    found = finding("capacity", run)
    assert "wait otherwise: for a CPU, since the 4 CPUs are all busy, 3.2" in found.advice
    assert "Try num_workers=4 and measure" in found.advice
    assert found.confidence == "possible"


def test_cpus_are_left_where_it_was_read_who_uses_them(
    too_slow: MakeRun, with_cores: MakeRun, finding: Find
) -> None:
    """Without readings of the machine nobody knows."""
    run = with_cores(too_slow(8), process=TRAINING, workers=(1.9, 0.0))
    run = replace(run, readings=run.readings[:2])
    assert finding("capacity", run).advice.startswith("Not known why: how many CPUs")


def test_a_single_cpu(too_slow: MakeRun, with_cores: MakeRun, finding: Find) -> None:
    """It is told as one."""
    run = with_cores(too_slow(1), process=TRAINING, workers=(0.5, 0.0))
    assert "the one CPU is busy" in finding("capacity", run).advice


def test_a_limit_on_cpu_time(too_slow: MakeRun, with_cores: MakeRun, finding: Find) -> None:
    """A control group that holds training back leaves no CPU, however many there are."""
    run = with_cores(too_slow(8), process=TRAINING, workers=(1.9, 0.0))
    throttled = {"cgroup_throttled_share": np.full(2000, 0.3)}
    machine = Readings("host", "machine", run.readings[0].time_ns, throttled)
    run = replace(run, readings=(*run.readings, machine))
    assert "a control group's limit on CPU time" in finding("capacity", run).advice


def test_workers_that_wait(too_slow: MakeRun, with_cores: MakeRun, finding: Find) -> None:
    """What they wait for is not known, and one step is advised, not what files would need."""
    run = with_cores(too_slow(8, workers=9), process=TRAINING, workers=(0.2, 0.0))
    found = finding("capacity", run)
    assert found.advice.startswith("Not known why: the 9 workers compute on 0.2 CPUs all together")
    for cause in ("storage or a network", "a lock", "passed on"):
        assert cause in found.advice
    assert "Try num_workers=18 and measure" in found.advice
    assert found.confidence == "possible"


def test_workers_that_wait_are_doubled_at_most(
    alternating: MakeRun, with_cores: MakeRun, finding: Find
) -> None:
    """However much faster the loader must become."""
    run = with_cores(alternating(wait=450, alone=500), process=(0.1, 1.0), workers=(0.1, 0.0))
    assert "Try num_workers=4 and measure" in finding("capacity", run).advice


def test_workers_that_wait_where_few_cpus_are_left(
    too_slow: MakeRun, with_cores: MakeRun, finding: Find
) -> None:
    """A step is no larger than these allow."""
    run = with_cores(too_slow(4, workers=8), process=(0.9, 1.8), workers=(1.6, 0.0))
    assert "Try num_workers=11 and measure" in finding("capacity", run).advice


def test_training_that_computes_to_take_a_batch(
    too_slow: MakeRun, with_cores: MakeRun, finding: Find
) -> None:
    """Where that takes half of what the loader does for a batch, more workers would not help."""
    run = with_cores(too_slow(8), process=(1.0, 1.0), workers=(1.0, 0.0))
    found = finding("capacity", run)
    assert found.advice.startswith("More workers will not help: to receive, unpickle and pin a")
    assert "computes for 50 of the 100 ms that the loader alone takes" in found.advice
    assert found.confidence == "likely"
    assert found.evidence[-1].value == pytest.approx(50e6)


def test_workers_that_compute_are_no_more_than_cpus(
    too_slow: MakeRun, with_cores: MakeRun, finding: Find
) -> None:
    """Though each leaves a fifth of a CPU."""
    run = with_cores(too_slow(4, workers=3), process=0.0, workers=(2.4, 0.0))
    assert finding("capacity", run).advice.startswith("Raise num_workers from 3 to 4 and measure")


@pytest.mark.parametrize(
    ("cpus", "advice"),
    [
        (8, "Try num_workers=4 and measure: it helps only as far as CPUs are free."),
        (3, "Try num_workers=3 and measure: it helps only as far as CPUs are free."),
        (2, "There are no more CPUs than workers: make decoding and transforms cheaper."),
        (None, "Try num_workers=4 and measure: it helps only as far as CPUs are free."),
    ],
)
def test_cpus_that_were_not_read(
    too_slow: MakeRun, finding: Find, cpus: int | None, advice: str
) -> None:
    """That is said, and one step is advised."""
    found = finding("capacity", too_slow(cpus))
    assert found.advice.startswith("Not known why: how many CPUs the workers use, and how many are")
    assert advice in found.advice
    assert found.confidence == "possible"


def test_a_loader_of_which_no_workers_are_known(too_slow: MakeRun, finding: Find) -> None:
    """It is told in words, and no number."""
    found = finding("capacity", too_slow(8, workers=None))
    assert found.advice.startswith("Give it more workers or threads, as far as CPUs are free")
    assert found.confidence == "possible"


def test_cpu_time_between_readings(too_slow: MakeRun, with_cores: MakeRun, finding: Find) -> None:
    """Workers' CPU time over the blocks themselves is better than readings, and is taken."""
    windows = [Window(pair, 0, "real", 800 * MS, 1520 * MS) for pair in range(10)]
    windows += [Window(pair, 0, "ideal", 400 * MS, 0) for pair in range(10)]
    run = replace(with_cores(too_slow(8), process=TRAINING), windows=tuple(windows))
    assert "the workers compute on 1.9 CPUs" in finding("capacity", run).advice


def test_workers_without_cpu_time_may_be_threads(
    too_slow: MakeRun, with_cores: MakeRun, finding: Find
) -> None:
    """Windows that have none of child processes tell nothing of them."""
    windows = tuple(Window(pair, 0, "real", 800 * MS, 0) for pair in range(10))
    run = replace(with_cores(too_slow(8), process=TRAINING), windows=windows)
    assert finding("capacity", run).advice.startswith("Not known why: how many CPUs the workers")


def test_workers_that_compute_nothing(
    too_slow: MakeRun, with_cores: MakeRun, finding: Find
) -> None:
    """They are doubled, and not divided by."""
    run = with_cores(too_slow(8), process=TRAINING, workers=0.0)
    assert "Try num_workers=4 and measure" in finding("capacity", run).advice


@pytest.mark.parametrize(
    ("training", "advice"),
    [
        (1.0, "Raise num_workers from 0 to 3 and measure."),
        (6.0, "Raise num_workers from 0 to 2 and measure, and make decoding and transforms chea"),
        (7.8, "Raise num_workers from 0 to 1 and measure: no CPU is left for a worker, so it ga"),
    ],
)
def test_first_workers(
    alternating: MakeRun, with_cores: MakeRun, finding: Find, training: float, advice: str
) -> None:
    """As many as would keep up, but no more than the steps leave CPUs for."""
    run = with_cores(alternating(wait=150, real=50, ideal=50, workers=0), process=(1.0, training))
    assert finding("zero workers", run).advice.startswith(advice)


@pytest.mark.parametrize(
    ("cpus", "step", "number"), [(8, 100, 3), (3, 100, 2), (1, 100, 1), (None, 100, 1), (8, 0, 1)]
)
def test_first_workers_where_nothing_was_read(
    make_run: MakeRun, finding: Find, cpus: int | None, step: int, number: int
) -> None:
    """One CPU is kept for the steps, and it is said that the others must be free."""
    info = LoaderInfo("torch.utils.data.DataLoader", workers=0)
    run = make_run([250] * 40, step, loader=info, environment={"cpus_usable": cpus})
    assert finding("zero workers", run).advice == (
        f"Raise num_workers from 0 to {number}, as far as CPUs are free, and measure."
    )
