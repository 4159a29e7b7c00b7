"""Who uses the CPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.cpus import CpuUse
from loadeval.analysis.metrics import THREADS
from loadeval.runlog.model import Readings
from tests.analysis.rules.conftest import cores_read
from tests.staged import MS, staged

if TYPE_CHECKING:
    from loadeval.runlog.model import Run

NOTHING_READ = staged()
NEARLY = 0.1
"""Readings at the end of a block are partly of the other arm."""


def of(run: Run = NOTHING_READ, environment: dict[str, Any] | None = None, **cores: Any) -> CpuUse:
    """On four of eight CPUs, unless told otherwise."""
    found = {"cpus_usable": 4, "cpus": 8} if environment is None else environment
    run = replace(run, header=replace(run.header, environment=found))
    return CpuUse.of(cores_read(run, **cores) if cores else run)


def windows(run: Run, *cpu_ns: int | None, elapsed_ns: int = 100) -> Run:
    """With windows of the real arm in which workers had so much CPU time."""
    window = next(one for one in run.windows if one.arm == "real")
    found = (replace(window, elapsed_ns=elapsed_ns, workers_cpu_ns=one) for one in cpu_ns)
    ideal = replace(window, arm="ideal", workers_cpu_ns=10**9)
    return replace(run, windows=(*found, ideal))


def test_nothing_was_read() -> None:
    """Then only the CPUs are known, and nobody competes."""
    found = of()
    assert (found.usable, found.every) == (4, 8)
    assert (found.own, found.others, found.busy, found.left, found.computing) == (None,) * 5
    assert found.competing == 0


@pytest.mark.parametrize("usable", [0, -1, None, "4"])
def test_cpus_that_are_not_known(usable: object) -> None:
    """What is no number of CPUs is none."""
    found = of(environment={"cpus_usable": usable, "cpus": usable}, process=1.0)
    assert found.usable is None
    assert found.left is None


def test_what_training_and_its_workers_use() -> None:
    """Both, in each arm by itself."""
    found = of(process=(1.0, 0.5), workers=(2.0, 0.25))
    assert found.own == pytest.approx(3.0)
    assert found.own_in("ideal") == pytest.approx(0.75, abs=NEARLY)


def test_training_alone_was_read() -> None:
    """As without workers."""
    assert of(process=1.5).own == pytest.approx(1.5)


def test_what_others_use() -> None:
    """All of the machine that is not training's, in each arm by itself."""
    found = of(process=1.0, workers=2.0, machine=(5.0, 4.0))
    assert found.others == pytest.approx(2.0)
    assert found.others_in("ideal") == pytest.approx(1.0, abs=NEARLY)


@pytest.mark.parametrize("cores", [{"machine": 5.0}, {"workers": (2.0, float("nan"))}])
def test_others_are_not_known_without_both(cores: dict[str, Any]) -> None:
    """What training uses, and what all use."""
    found = of(**cores) if "machine" in cores else CpuUse.of(_without_machine(**cores))
    assert found.others is None
    assert found.left is None


def _without_machine(**cores: Any) -> Run:
    run = cores_read(NOTHING_READ, **cores)
    return replace(run, readings=tuple(one for one in run.readings if one.subject != "machine"))


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
    """So that less is said to be taken from it rather than more."""
    found = of(environment=environment, process=1.0, workers=1.0, machine=7.0)
    assert found.competing == pytest.approx(competing)


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
    """Of four, without those of the step and the one that others take."""
    real = process[0] if isinstance(process, tuple) else process
    found = of(process=process, workers=1.0, machine=real + 1.0 + 5.0)
    assert found.left == pytest.approx(left, abs=NEARLY)


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
    found = of(windows(NOTHING_READ, *spent_ns), process=1.0, workers=(2.0, 0.0))
    assert found.computing == pytest.approx(computing)


def test_windows_of_no_length() -> None:
    """Tell nothing."""
    assert of(windows(NOTHING_READ, 50, elapsed_ns=0)).computing is None


def test_threads_are_no_processes() -> None:
    """The probe of threads may name one of them "workers"."""
    time_ns = np.arange(2000, dtype=np.int64) * 10 * MS
    threads = Readings(THREADS, "workers", time_ns, {"cpu_cores": np.full(2000, 3.0)})
    assert CpuUse.of(replace(NOTHING_READ, readings=(threads,))).workers is None


def test_the_first_of_two_readings_counts() -> None:
    """As for all other figures."""
    first, second = (cores_read(NOTHING_READ, process=value).readings[0] for value in (1.0, 2.0))
    assert CpuUse.of(replace(NOTHING_READ, readings=(first, second))).own == pytest.approx(1.0)
