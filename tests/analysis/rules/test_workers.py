"""Workers are advised as far as CPUs are free for them, and no cause is named that is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.finding import Advice, Rule
from loadeval.data.lines import LoaderInfo, Readings, Window
from loadeval.report.wording.findings import describe
from tests.analysis.rules.conftest import advised, finding_of, numbers
from tests.runs.given import MS, alternating, cores_read, make_run
from tests.runs.tables import readings_lines, replace

if TYPE_CHECKING:
    from loadeval.analysis.rules.finding import Finding
    from loadeval.data.run import Run

TRAINING = (0.5, 1.0)
"""CPUs of a training process that computes in its steps alone, half of the real arm's time."""
COMPUTING = (1.9, 0.0)
"""Of two workers, that compute nothing while ideal batches are served."""


def too_slow(cpus: int | None = 8, **loader: Any) -> Run:
    """A run in which the loader must become twice as fast, on so many CPUs."""
    environment = {"cpus_usable": cpus, "host": "there"}
    return alternating(wait=50, alone=100, environment=environment, **loader)


def capacity(cpus: int | None = 8, count: int = 2, **cores: Any) -> Finding:
    """What is found of such a run with `count` workers, whose CPUs were read."""
    cores = {"process": TRAINING, **cores}
    return finding_of(Rule.CAPACITY, cores_read(too_slow(cpus, workers=count), **cores))


def proposed(finding: Finding) -> list[Any]:
    """The numbers of workers that it advises."""
    values = [change.values for change in finding.changes]
    return [setting["proposed"] for setting in values if "proposed" in setting]


@pytest.mark.parametrize(
    ("cpus", "codes", "workers"),
    [
        (8, [Advice.RAISE, Advice.CPUS_NEEDED, Advice.CHEAPER_INSTEAD], [4]),
        (4, [Advice.RAISE, Advice.CPUS_NEEDED, Advice.CHEAPER_ALSO], [3]),
        (3, [Advice.NO_MORE_WORKERS, Advice.CPUS_NEEDED, Advice.CHEAPER_OR_CPUS], []),
    ],
)
def test_workers_that_compute(cpus: int, codes: list[Advice], workers: list[int]) -> None:
    """They are given the CPUs that the training's steps leave, and no more are advised."""
    finding = capacity(cpus, workers=COMPUTING)
    assert (advised(finding), proposed(finding)) == (codes, workers)
    assert numbers(finding)[Advice.CPUS_NEEDED] == pytest.approx(
        {"used": 1.9, "needed": 3.8, "left": cpus - 1, "cpus": cpus}
    )
    assert finding.confidence == "measured"
    assert {fact.name: fact.value for fact in finding.evidence[-2:]} == pytest.approx(
        {"CPUs used by the workers": 1.9, "CPUs left for workers": cpus - 1}
    )


def test_workers_have_to_keep_up_with_the_steady_pace() -> None:
    """However slowly epochs start, which more of them would not change."""
    run = alternating(wait=50, alone=100, first=800, length=8)
    finding = finding_of(Rule.CAPACITY, cores_read(run, process=TRAINING, workers=COMPUTING))
    assert numbers(finding)[Advice.CPUS_NEEDED]["needed"] == pytest.approx(3.8)


def test_others_leave_fewer_cpus() -> None:
    """What other programs use is not free."""
    finding = capacity(8, workers=COMPUTING, machine=(7.1, 5.7))
    assert advised(finding)[0] is Advice.NO_MORE_WORKERS
    assert numbers(finding)[Advice.CPUS_NEEDED]["left"] == pytest.approx(2.3)


def test_others_on_cpus_that_training_may_not_use() -> None:
    """They take nothing from it."""
    run = too_slow(8)
    environment = {**run.header.environment, "cpus": 64}
    run = replace(run, header=replace(run.header, environment=environment))
    run = cores_read(run, process=TRAINING, workers=COMPUTING, machine=(52.4, 51.0))
    assert numbers(finding_of(Rule.CAPACITY, run))[Advice.CPUS_NEEDED]["left"] == pytest.approx(7)


def test_eight_workers_on_three_busy_cpus() -> None:
    """Each has under half a CPU, and waits for no file: there is no CPU left for more of them."""
    finding = capacity(3, 8, workers=(2.4, 0.0))
    assert advised(finding) == [Advice.NO_MORE_WORKERS, Advice.CPUS_BUSY, Advice.CHEAPER_OR_CPUS]
    assert numbers(finding)[Advice.CPUS_BUSY] == {"cpus": 3}
    assert finding.confidence == "measured"


def test_cpus_that_others_keep_busy() -> None:
    """That is said, for without them it might be another cause."""
    finding = capacity(4, workers=(0.6, 0.0), machine=(3.8, 3.8))
    assert numbers(finding)[Advice.CPUS_BUSY] == pytest.approx({"cpus": 4, "others_cpus": 2.7})
    assert advised(finding)[-1] is Advice.MEASURE_QUIET
    assert finding.confidence == "possible"
    assert "Other programs use 2.7 CPUs." in describe(finding)


def test_workers_that_wait_while_others_keep_the_cpus_busy() -> None:
    """Two that sleep may gain from company on CPUs that are busy: nothing says that they do not."""
    finding = capacity(4, workers=(0.1, 0.0), machine=(3.8, 3.8))
    assert advised(finding) == [
        Advice.WORKERS_MOSTLY_WAIT,
        Advice.CPUS_BUSY,
        Advice.RAISE,
    ]
    assert (proposed(finding), finding.confidence) == ([4], "possible")


@pytest.mark.parametrize(
    ("computing", "codes"),
    [
        (1.1, [Advice.NO_MORE_WORKERS, Advice.CPUS_BUSY, Advice.CHEAPER_OR_CPUS]),
        (0.9, [Advice.WORKERS_MOSTLY_WAIT, Advice.CPUS_BUSY, Advice.RAISE]),
    ],
)
def test_more_workers_than_busy_cpus(computing: float, codes: list[Advice]) -> None:
    """Eight on four CPUs could have half of one each: under a quarter of all four they wait."""
    finding = capacity(4, 8, process=(2.8, 1.0), workers=(computing, 0.0))
    assert advised(finding) == codes


def test_a_limit_on_cpu_time() -> None:
    """A control group that holds training back leaves no CPU, however many there are."""
    run = cores_read(too_slow(8), process=TRAINING, workers=COMPUTING)
    throttled = {"cgroup_throttled_share": np.full(2000, 0.3)}
    machine = Readings("host", "machine", readings_lines(run)[0].time_ns, throttled)
    finding = finding_of(Rule.CAPACITY, replace(run, readings=(*readings_lines(run), machine)))
    assert numbers(finding)[Advice.CPU_TIME_LIMITED] == pytest.approx({"throttled_share": 0.3})


@pytest.mark.parametrize(
    ("cpus", "count", "cores", "tried"),
    [
        (8, 9, {"workers": (0.2, 0.0)}, 18),
        (8, 2, {"workers": 0.0}, 4),  # they compute nothing, which is not divided by
        (4, 8, {"process": (0.9, 1.8), "workers": (1.6, 0.0)}, 11),  # few CPUs are left
    ],
)
def test_workers_that_wait(cpus: int, count: int, cores: dict[str, Any], tried: int) -> None:
    """What they wait for is not known: one step is advised, of twice as many at most."""
    finding = capacity(cpus, count, **cores)
    assert advised(finding) == [Advice.WORKERS_MOSTLY_WAIT, Advice.RAISE]
    assert (proposed(finding), finding.confidence) == ([tried], "possible")


def test_workers_that_wait_are_doubled_at_most() -> None:
    """It does not matter how much faster the loader must become."""
    run = cores_read(alternating(wait=450, alone=500), process=(0.1, 1.0), workers=(0.1, 0.0))
    assert proposed(finding_of(Rule.CAPACITY, run)) == [4]


def test_training_that_computes_to_receive_a_batch() -> None:
    """Where that takes half of what the loader does for a batch, more workers would not help."""
    finding = capacity(8, process=(1.0, 1.0), workers=(1.0, 0.0))
    assert advised(finding) == [Advice.NO_MORE_WORKERS, Advice.RECEIVING_LIMITS]
    times = {"receiving_ns": 50e6, "loader_only_ns": 100e6}
    assert numbers(finding)[Advice.RECEIVING_LIMITS] == pytest.approx(times)
    assert finding.confidence == "likely"
    assert finding.evidence[-1].value == pytest.approx(50e6)


def test_workers_that_compute_are_no_more_than_cpus() -> None:
    """Each leaves a fifth of a CPU, all the same."""
    assert proposed(capacity(4, 3, process=0.0, workers=(2.4, 0.0))) == [4]


@pytest.mark.parametrize(("cpus", "tried"), [(8, [4]), (3, [3]), (2, []), (None, [4])])
def test_cpus_that_were_not_read(cpus: int | None, tried: list[int]) -> None:
    """That is said, and one step is advised, where there are more CPUs than workers."""
    finding = finding_of(Rule.CAPACITY, too_slow(cpus))
    assert Advice.CPU_USE_NOT_READ in advised(finding)
    assert (proposed(finding), finding.confidence) == (tried, "possible")
    assert (Advice.CHEAPER_OR_CPUS in advised(finding)) is not bool(tried)


def test_a_machine_that_was_not_read() -> None:
    """Nobody knows what others leave."""
    run = cores_read(too_slow(8), process=TRAINING, workers=COMPUTING)
    finding = finding_of(Rule.CAPACITY, replace(run, readings=readings_lines(run)[:2]))
    assert Advice.CPU_USE_NOT_READ in advised(finding)


def test_a_loader_of_which_no_workers_are_known() -> None:
    """No number is told."""
    finding = finding_of(Rule.CAPACITY, too_slow(8, workers=None))
    assert advised(finding) == [Advice.ADD_WORKERS_OR_THREADS]
    assert finding.confidence == "possible"


@pytest.mark.parametrize(
    ("spent_ms", "code"), [(1520, Advice.CPUS_NEEDED), (0, Advice.CPU_USE_NOT_READ)]
)
def test_cpu_time_between_readings(spent_ms: int, code: Advice) -> None:
    """That of workers over the blocks is better than readings; none at all may mean threads."""
    windows = [Window(pair, 0, "real", 800 * MS, spent_ms * MS) for pair in range(10)]
    windows += [Window(pair, 0, "ideal", 400 * MS, 0) for pair in range(10)]
    run = replace(cores_read(too_slow(8), process=TRAINING), windows=tuple(windows))
    values = numbers(finding_of(Rule.CAPACITY, run))[code]
    assert values.get("used") == (pytest.approx(1.9) if spent_ms else None)


@pytest.mark.parametrize(
    ("training", "codes", "workers"),
    [
        (1.0, [Advice.TRY_WORKERS], [3]),
        (6.0, [Advice.TRY_WORKERS, Advice.WORKERS_NEEDED, Advice.CHEAPER_ALSO], [2]),
        (7.8, [Advice.TRY_WORKERS, Advice.NO_CPU_FOR_WORKER, Advice.CHEAPER_OR_CPUS], [1]),
    ],
)
def test_first_workers(training: float, codes: list[Advice], workers: list[int]) -> None:
    """As many as would keep up, but no more than the steps leave CPUs for."""
    run = cores_read(alternating(wait=150, real=50, ideal=50, workers=0), process=(1.0, training))
    finding = finding_of(Rule.ZERO_WORKERS, run)
    assert (advised(finding), proposed(finding)) == (codes, workers)


@pytest.mark.parametrize(
    ("cpus", "step", "number"), [(8, 100, 3), (3, 100, 2), (1, 100, 1), (None, 100, 1), (8, 0, 1)]
)
def test_first_workers_where_nothing_was_read(cpus: int | None, step: int, number: int) -> None:
    """One CPU is kept for the steps, and it is said that the others must be free."""
    info = LoaderInfo("torch.utils.data.DataLoader", workers=0)
    run = make_run([250] * 40, step, loader=info, environment={"cpus_usable": cpus})
    values = {"setting": "num_workers", "present": 0, "proposed": number}
    expected = {Advice.TRY_WORKERS: values, Advice.CPU_USE_NOT_READ: {}}
    assert numbers(finding_of(Rule.ZERO_WORKERS, run)) == expected
