"""Who uses the CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.metrics import THREADS
from loadeval.analysis.predict.allowed_cpus import AllowedCpus, SetBy
from loadeval.analysis.predict.cpus import CpuUse
from loadeval.analysis.predict.scheduling import Affinity
from loadeval.data.lines import Readings
from tests.runs.given import cores_read
from tests.runs.staged import MS, staged
from tests.runs.tables import readings_lines, replace

if TYPE_CHECKING:
    from loadeval.data.run import Run

NOTHING_READ = staged()
NEARLY = 0.1
"""Readings at the end of a block are partly of the other arm."""


def of(run: Run = NOTHING_READ, environment: dict[str, Any] | None = None, **cores: Any) -> CpuUse:
    """The use of a run that may use four of eight CPUs, unless the environment says otherwise."""
    known = {"cpus_usable": 4, "cpus": 8} if environment is None else environment
    run = replace(run, header=replace(run.header, environment=known))
    return CpuUse.of(cores_read(run, **cores) if cores else run)


def windows(run: Run, *cpu_ns: int | None, elapsed_ns: int = 100) -> Run:
    """The run with windows of the real arm in which workers had so much CPU time."""
    window = next(window for window in run.windows if window.arm == "real")
    read = (replace(window, elapsed_ns=elapsed_ns, workers_cpu_ns=spent_ns) for spent_ns in cpu_ns)
    ideal = replace(window, arm="ideal", workers_cpu_ns=10**9)
    return replace(run, windows=(*read, ideal))


def test_nothing_was_read() -> None:
    """Then only the CPUs are known, and nobody competes."""
    use = of()
    assert (use.usable, use.every) == (4, 8)
    assert (use.own, use.others, use.busy, use.left, use.computing) == (None,) * 5
    assert use.competing == 0


@pytest.mark.parametrize("usable", [0, -1, None, "4"])
def test_cpus_that_are_not_known(usable: object) -> None:
    """What is no number of CPUs is none."""
    use = of(environment={"cpus_usable": usable, "cpus": usable}, process=1.0)
    assert use.usable is None
    assert use.left is None


def test_what_training_and_its_workers_use() -> None:
    """Both, in each arm by itself."""
    use = of(process=(1.0, 0.5), workers=(2.0, 0.25))
    assert use.own == pytest.approx(3.0)
    assert use.own_in("ideal") == pytest.approx(0.75, abs=NEARLY)


def test_training_alone_was_read() -> None:
    """Runs without workers are like this."""
    assert of(process=1.5).own == pytest.approx(1.5)


def test_what_others_use() -> None:
    """All of the machine that is not training's, in each arm by itself."""
    use = of(process=1.0, workers=2.0, machine=(5.0, 4.0))
    assert use.others == pytest.approx(2.0)
    assert use.others_in("ideal") == pytest.approx(1.0, abs=NEARLY)


@pytest.mark.parametrize("cores", [{"machine": 5.0}, {"workers": (2.0, float("nan"))}])
def test_others_are_not_known_without_both(cores: dict[str, Any]) -> None:
    """What training uses, and what all use."""
    use = of(**cores) if "machine" in cores else CpuUse.of(_without_machine(**cores))
    assert use.others is None
    assert use.left is None


def _without_machine(**cores: Any) -> Run:
    run = cores_read(NOTHING_READ, **cores)
    return replace(
        run,
        readings=tuple(reading for reading in readings_lines(run) if reading.subject != "machine"),
    )


@pytest.mark.parametrize(
    ("environment", "competing"),
    [
        ({"cpus_usable": 4, "cpus": 8}, 1.0),  # four of their five elsewhere
        ({"cpus_usable": 4, "cpus": 16}, 0.0),
        ({"cpus_usable": 4, "cpus": 2}, 5.0),  # no such machine
        ({"cpus_usable": 4}, 5.0),
        ({"cpus": 8}, 5.0),
    ],
)
def test_others_use_first_what_training_may_not(
    environment: dict[str, Any], competing: float
) -> None:
    """Less is then said to be taken from it rather than more."""
    use = of(environment=environment, process=1.0, workers=1.0, machine=7.0)
    assert use.competing == pytest.approx(competing)


def test_busy_cpus() -> None:
    """Training's, its workers' and those that others take from them."""
    assert of(process=1.0, workers=1.0, machine=7.0).busy == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("process", "left"),
    [
        (1.0, 2.0),
        ((3.0, 1.5), 1.5),  # the step is what it is with ideal loading
        ((1.0, float("nan")), 2.0),  # which was not read
        (4.0, 0.0),
    ],
)
def test_cpus_that_are_left(process: Any, left: float) -> None:
    """Of four CPUs those are left that neither the step nor others take."""
    real = process[0] if isinstance(process, tuple) else process
    use = of(process=process, workers=1.0, machine=real + 1.0 + 5.0)
    assert use.left == pytest.approx(left, abs=NEARLY)


def allowed(
    process: float = 1.0, *, training: float = 2.0, workers: float = 2.0, **more: float
) -> AllowedCpus:
    """The CPUs that each may use in a run whose step uses `process` of them."""
    read = cores_read(NOTHING_READ, process=process, workers=0.5)
    values = {
        "process": {
            "allowed_cpus": training,
            "threads_allowed_cpus": more.get("threads", training),
        },
        "workers": {"allowed_cpus": workers, "shared_allowed_cpus": more.get("shared", workers)},
        "machine": {"allowed_cpus": more.get("machine", np.nan)},
    }
    readings = tuple(
        replace(
            reading,
            values={
                **reading.values,
                **{
                    name: np.full(len(reading.time_ns), value)
                    for name, value in values[subject].items()
                },
            },
        )
        for reading in readings_lines(read)
        for subject in [reading.subject]
    )
    cpus = CpuUse.of(replace(read, readings=readings)).allowed
    assert cpus is not None
    return cpus


def test_a_step_whose_threads_are_bound_each_by_itself() -> None:
    """It uses the CPUs of all of them, and the workers those of the main thread."""
    bound = {"training": 1, "workers": 1, "threads": 4}
    assert allowed(1.0, **bound).affinity == Affinity(training=1, workers=1, shared=1)
    assert allowed(3.8, **bound).affinity == Affinity(training=4, workers=1, shared=1)


@pytest.mark.parametrize(
    ("given", "set_by"),
    [
        ({"machine": 2}, None),
        ({"machine": 4}, SetBy.STARTER),
        ({"machine": 4, "threads": 4}, SetBy.PROCESS),
        ({"machine": 4, "workers": 1}, SetBy.WORKERS),
        ({"machine": 4, "training": 1, "workers": 1, "shared": 0}, SetBy.WORKERS),
        ({"machine": 4, "training": 1, "workers": 4, "shared": 1}, None),  # only training is bound
        ({}, None),  # whether there are more is not known
    ],
)
def test_what_keeps_workers_from_cpus(given: dict[str, float], set_by: SetBy | None) -> None:
    """By whose CPUs are fewer than whose."""
    assert allowed(**given).set_by is set_by


@pytest.mark.parametrize(
    ("given", "workers", "too_few"),
    [
        ({"machine": 4}, 1, False),
        ({"machine": 4}, 2, True),  # and training
        ({"machine": 4, "training": 4}, 2, False),  # which has others
        ({"machine": 4, "training": 4}, 3, True),
        ({"machine": 2}, 3, False),  # there are no more
    ],
)
def test_workers_that_are_kept_from_cpus(
    given: dict[str, float], workers: int, too_few: bool
) -> None:
    """They need one each, and training where it may use no other."""
    assert allowed(**given).are_kept_from(workers) == too_few


def test_cpus_that_may_be_used_are_those_of_both() -> None:
    """Of training and of its workers, whatever the process could use when it was wrapped."""
    read = cores_read(NOTHING_READ, process=1.0, workers=0.5)
    counts = {"process": 1, "workers": 3, "machine": 8}
    readings = tuple(
        replace(
            reading,
            values={
                **reading.values,
                "allowed_cpus": np.full(len(reading.time_ns), counts[reading.subject]),
                "shared_allowed_cpus": np.zeros(len(reading.time_ns)),
            },
        )
        for reading in readings_lines(read)
    )
    assert of(replace(read, readings=readings)).usable == 4


@pytest.mark.parametrize(
    ("spent_ns", "computing"),
    [
        ((50, 150), 1.0),  # by their own CPU time
        ((50, None), 2.0),  # else by readings
        ((0, 0), 2.0),  # workers may be threads
    ],
)
def test_what_workers_compute_on(spent_ns: tuple[int | None, ...], computing: float) -> None:
    """The real arm alone, by CPU time where that is known of all of it."""
    use = of(windows(NOTHING_READ, *spent_ns), process=1.0, workers=(2.0, 0.0))
    assert use.computing == pytest.approx(computing)


def test_windows_of_no_length() -> None:
    """Tell nothing."""
    assert of(windows(NOTHING_READ, 50, elapsed_ns=0)).computing is None


def test_threads_are_no_processes() -> None:
    """The probe of threads may name one of them "workers"."""
    time_ns = np.arange(2000, dtype=np.int64) * 10 * MS
    threads = Readings(THREADS, "workers", time_ns, {"cpu_cores": np.full(2000, 3.0)})
    assert CpuUse.of(replace(NOTHING_READ, readings=(threads,))).workers is None
