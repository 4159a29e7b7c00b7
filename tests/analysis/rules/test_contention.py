"""Steps that are slower while the loader works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.rules.finding import Finding
    from loadeval.runlog.model import Readings, Run

    MakeRun = Callable[..., Run]
    Find = Callable[..., Finding]
    Ask = Callable[..., tuple[str, str]]

NOTHING = ("nothing found", "")
CORES = (("process", 1.0), ("machine", 3.0))


def test_slower_steps_without_waits(alternating: MakeRun, finding: Find) -> None:
    """What they cost is told, with its interval."""
    found = finding("contention", alternating(real=80, ideal=60))
    assert found.cost_share == pytest.approx(0.25)
    assert found.sentence.startswith("A step takes 20 ms longer while batches are loaded: loading")
    assert found.evidence[0].low == pytest.approx(20e6)
    assert [fact.name for fact in found.evidence] == ["slower step", "CPUs there are"]
    assert found.advice.startswith("Try a smaller num_workers, fewer threads in each worker, and")
    assert "are left" not in found.advice


def test_all_cpus_are_busy(
    alternating: MakeRun, finding: Find, level: Callable[..., Readings]
) -> None:
    """Where training and workers use what there is, fewer workers would not be enough."""
    readings = [
        level("host", subject, "cpu_cores", cores)
        for subject, cores in (("process", 1.9), ("workers", 1.8))
    ]
    run = alternating(real=80, ideal=60, readings=readings, environment={"cpus_usable": 4})
    found = finding("contention", run)
    assert found.advice.startswith("The 4 CPUs are all busy: make decoding and transforms cheaper")
    assert [fact.value for fact in found.evidence[1:]] == [pytest.approx(3.7), 4]


def test_cpus_are_left(alternating: MakeRun, finding: Find, level: Callable[..., Readings]) -> None:
    """Then it is something else that both want."""
    readings = [level("host", "process", "cpu_cores", 1.5)]
    run = alternating(real=80, ideal=60, readings=readings, environment={"cpus_usable": 4})
    assert "2.5 CPUs are left, so it may be memory bandwidth" in finding("contention", run).advice


def test_cpus_that_are_not_known(alternating: MakeRun, finding: Find) -> None:
    """Nothing is said of them."""
    found = finding("contention", alternating(real=80, ideal=60, environment={"host": "there"}))
    assert [fact.name for fact in found.evidence] == ["slower step"]


@pytest.mark.parametrize("times", [{"real": 52, "ideal": 50}, {"real": 60, "noise": 30}])
def test_steps_that_are_hardly_slower(
    alternating: MakeRun, outcome: Ask, times: dict[str, float]
) -> None:
    """Under 5% of the time, or by no more than chance."""
    assert outcome("contention", alternating(**times)) == NOTHING


def test_without_workers_none_are_taken_away(alternating: MakeRun, finding: Find) -> None:
    """Loading in the training process disturbs the step in another way."""
    found = finding("contention", alternating(real=80, ideal=60, workers=0))
    assert found.advice.endswith("try a worker.")


def test_the_cpus_in_use_are_those_of_all_programs(
    alternating: MakeRun, finding: Find, level: Callable[..., Readings]
) -> None:
    """What others use is not left."""
    readings = [
        level("host", "process", "cpu_cores", 1.5),
        level("host", "machine", "cpu_cores", 3.9),
    ]
    run = alternating(real=80, ideal=60, readings=readings, environment={"cpus_usable": 4})
    assert finding("contention", run).advice.startswith("The 4 CPUs are all busy")


@pytest.mark.parametrize(("machine", "told"), [(2.6, "found"), (2.4, "nothing found")])
def test_other_programs(
    alternating: MakeRun,
    outcome: Ask,
    level: Callable[..., Readings],
    machine: float,
    told: str,
) -> None:
    """Half a CPU that is neither training's nor its workers' is told."""
    readings = [
        level("host", subject, "cpu_cores", cores)
        for subject, cores in (("process", 1.0), ("workers", 1.0), ("machine", machine))
    ]
    assert outcome("other programs", alternating(readings=readings)) == (told, "")


def test_other_programs_where_the_cpus_are_not_known(
    alternating: MakeRun, finding: Find, level: Callable[..., Readings]
) -> None:
    """What they used is told all the same."""
    readings = [level("host", subject, "cpu_cores", cores) for subject, cores in CORES]
    run = alternating(readings=readings, environment={"host": "there"})
    found = finding("other programs", run)
    assert found.sentence.startswith("Other programs used 2 CPUs")
    assert len(found.evidence) == 1


def test_other_programs_that_were_not_read(
    alternating: MakeRun, outcome: Ask, level: Callable[..., Readings]
) -> None:
    """Neither without readings nor without training's own is it known."""
    for readings in ([], [level("host", "machine", "cpu_cores", 3.0)]):
        assert outcome("other programs", alternating(readings=readings))[0] == "not measured"


def test_a_log_has_no_other_steps(make_run: MakeRun, outcome: Ask) -> None:
    """Nothing was served for free, so no step was measured without loading."""
    assert outcome("contention", make_run([0] * 40))[0] == "not measured"
