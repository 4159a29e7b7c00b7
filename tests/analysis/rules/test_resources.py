"""CPUs, memory and the GPU: what loading takes from training, or others from both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.memory import GrowthAdvice, GrowthReason
from loadeval.analysis.rules.finding import Advice, Rule, Unknown
from loadeval.runlog.model import LoaderInfo, Readings
from tests.analysis.rules.conftest import NOTHING, advised, finding, numbers, outcome
from tests.analysis.rules.looked_into import looked_into

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run
    from tests.analysis.rules.conftest import MakeRun

    Level = Callable[..., Readings]

GB = 1e9
EVERY_NS = 5_000_000_000
HOUR = 720
SLOWER = {"real": 80, "ideal": 60}
FOUR = {"cpus_usable": 4}


@pytest.fixture
def reading(level: Level) -> Callable[..., list[Readings]]:
    """The CPUs in use by each subject."""

    def make(**cores: float) -> list[Readings]:
        return [level("host", subject, "cpu_cores", value) for subject, value in cores.items()]

    return make


def grown(make_run: MakeRun, gb_per_hour: float, **loader: Any) -> Run:
    """A run of an hour, in which the memory of process and workers grows, on 100 GB."""
    time_ns = np.arange(HOUR, dtype=np.int64) * EVERY_NS
    used: Any = 8 * GB + gb_per_hour * GB * np.arange(HOUR) / HOUR
    return replace(
        make_run([0] * 40, loader=LoaderInfo("torch.x", **loader)),
        readings=(
            Readings("host", "process", time_ns, {"anonymous_bytes": used}),
            Readings("host", "workers", time_ns, {"pss_bytes": used}),
            Readings("host", "machine", time_ns, {"memory_limit_bytes": np.full(HOUR, 100 * GB)}),
        ),
    )


def idle_while_waiting(
    make_run: MakeRun, gpu_idle_ns: int = 30, samples: int = 4, **loader: Any
) -> Run:
    """Waits of 30 ns in which the GPU was idle for so long."""
    run = make_run([30] * 40, loader=LoaderInfo("torch.x", **loader), samples=samples)
    column = np.full(len(run.steps), gpu_idle_ns)
    return replace(run, steps=replace(run.steps, gpu_idle_ns=column))


def test_slower_steps(alternating: MakeRun) -> None:
    """What they cost is told, with its interval."""
    found = finding(Rule.CONTENTION, alternating(**SLOWER))
    assert found.cost_share == pytest.approx(0.25)
    assert found.problem.values == {"slower_ns": pytest.approx(20e6)}
    assert found.evidence[0].low == pytest.approx(20e6)
    assert [fact.name for fact in found.evidence] == ["slower step", "CPUs available"]
    unknown = finding(Rule.CONTENTION, alternating(**SLOWER, environment={"host": "there"}))
    assert [fact.name for fact in unknown.evidence] == ["slower step"]


@pytest.mark.parametrize(
    ("loader", "cores", "codes"),
    [
        ({}, {}, [Advice.LOWER_WORKERS]),
        ({"workers": 1}, {}, [Advice.LIGHTER_LOADING]),
        ({"workers": None}, {}, [Advice.LIGHTER_LOADING]),
        ({"alone": 70}, {}, [Advice.LIGHTER_LOADING]),  # too slow already
        ({"workers": 0}, {}, [Advice.LOADING_EVICTS_CACHES, Advice.TRY_WORKERS]),
        ({}, {"process": 1.5}, [Advice.LOWER_WORKERS, Advice.CPUS_FREE]),
        (
            {},
            {"process": 1.9, "workers": 1.8},
            [Advice.CPUS_BUSY, Advice.LOWER_WORKERS, Advice.CHEAPER_ON_DEVICE],
        ),
        (  # others keep them busy
            {"workers": 1},
            {"process": 1.5, "machine": 3.9},
            [Advice.CPUS_BUSY, Advice.CHEAPER_ON_DEVICE],
        ),
    ],
)
def test_what_makes_loading_lighter(
    alternating: MakeRun,
    reading: Callable[..., list[Readings]],
    loader: dict[str, Any],
    cores: dict[str, float],
    codes: list[Advice],
) -> None:
    """By the workers there are, and the CPUs that are left."""
    run = alternating(**SLOWER, **loader, readings=reading(**cores), environment=FOUR)
    found = finding(Rule.CONTENTION, run)
    assert advised(found) == codes
    if "workers" in cores:
        assert [fact.value for fact in found.evidence[1:]] == [pytest.approx(3.7), 4]
    left = numbers(found).get(Advice.CPUS_FREE)
    assert left is None or left == {"cpus_left": 2.5}


@pytest.mark.parametrize("times", [{"real": 52, "ideal": 50}, {"real": 60, "noise": 30}])
def test_steps_that_are_hardly_slower(alternating: MakeRun, times: dict[str, float]) -> None:
    """Under 5% of the time, or by no more than chance."""
    assert outcome(Rule.CONTENTION, alternating(**times)) == NOTHING


def test_a_log_has_no_other_steps(make_run: MakeRun) -> None:
    """No step was measured without loading."""
    assert outcome(Rule.CONTENTION, make_run([0] * 40)) is Unknown.NO_IDEAL


@pytest.mark.parametrize(
    ("cores", "told"),
    [
        ({"process": 1.0, "workers": 1.0, "machine": 2.6}, "found"),
        ({"process": 1.0, "workers": 1.0, "machine": 2.4}, NOTHING),
        ({"machine": 3.0}, Unknown.CPU_TIME_NOT_READ),
        ({}, Unknown.CPU_TIME_NOT_READ),
    ],
)
def test_other_programs(
    alternating: MakeRun,
    reading: Callable[..., list[Readings]],
    cores: dict[str, float],
    told: Unknown | str,
) -> None:
    """Half a CPU that is neither training's nor its workers' is told."""
    assert outcome(Rule.SHARED_MACHINE, alternating(readings=reading(**cores))) == told


def test_other_programs_where_the_cpus_are_not_known(
    alternating: MakeRun, reading: Callable[..., list[Readings]]
) -> None:
    """What they used is told all the same."""
    run = alternating(readings=reading(process=1.0, machine=3.0), environment={"host": "there"})
    found = finding(Rule.SHARED_MACHINE, run)
    assert found.problem.values == {"others_cpus": pytest.approx(2)}
    assert len(found.evidence) == 1


def test_more_workers_than_cpus(alternating: MakeRun) -> None:
    """They are told with the CPUs available; as many as CPUs are not too many."""
    found = finding(Rule.OVERSUBSCRIPTION, alternating(workers=9))
    assert numbers(found) == {Advice.LOWER: {"setting": "num_workers", "present": 9, "proposed": 8}}
    assert (found.severity, found.cost_share, found.confidence) == ("low", None, "possible")
    assert outcome(Rule.OVERSUBSCRIPTION, alternating(workers=8)) == NOTHING


@pytest.mark.parametrize(("computing", "told"), [(3.9, NOTHING), (4.1, "found")])
def test_more_workers_than_cpus_that_hardly_compute(
    alternating: MakeRun, with_cores: MakeRun, computing: float, told: str
) -> None:
    """They do no harm while they use less than half of the CPUs."""
    run = with_cores(alternating(workers=9), workers=computing, process=1.0)
    assert outcome(Rule.OVERSUBSCRIPTION, run) == told


def test_too_many_workers_on_busy_cpus(alternating: MakeRun, with_cores: MakeRun) -> None:
    """Eight on three CPUs have under half a CPU each, for there is no more: they are told."""
    run = alternating(workers=8, environment={"cpus_usable": 3})
    found = finding(Rule.OVERSUBSCRIPTION, with_cores(run, workers=2.4, process=0.5))
    assert advised(found) == [Advice.CPUS_BUSY, Advice.LOWER]
    assert found.confidence == "likely"
    assert found.evidence[-1].value == pytest.approx(2.9)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"workers": None}, Unknown.WORKERS_UNKNOWN),
        ({"environment": {"host": "x"}}, Unknown.CPUS_UNKNOWN),
    ],
)
def test_too_many_for_what_is_not_known(
    alternating: MakeRun, facts: dict[str, Any], reason: Unknown
) -> None:
    """Neither workers nor CPUs are guessed."""
    assert outcome(Rule.OVERSUBSCRIPTION, alternating(**facts)) is reason


@pytest.mark.parametrize(("gb_per_hour", "severity"), [(2, "moderate"), (5, "high")])
@pytest.mark.parametrize(
    ("rule", "start_method", "code"),
    [
        (Rule.PROCESS_MEMORY, None, GrowthAdvice.DROP_KEPT_TENSORS),
        (Rule.WORKER_MEMORY, None, GrowthAdvice.AVOID_COPY_ON_WRITE),
        (Rule.WORKER_MEMORY, "fork", GrowthAdvice.AVOID_COPY_ON_WRITE),
        (Rule.WORKER_MEMORY, "spawn", GrowthAdvice.BOUND_WORKER_CACHES),
    ],
)
def test_memory_that_grows(
    make_run: MakeRun,
    rule: Rule,
    start_method: str | None,
    code: GrowthAdvice,
    gb_per_hour: float,
    severity: str,
) -> None:
    """By how much is told with its interval; it is severe where a day would fill the machine."""
    found = finding(rule, grown(make_run, gb_per_hour, start_method=start_method))
    assert found.problem.values["share_per_hour"] == pytest.approx(gb_per_hour / 100)
    rate, limit = found.evidence
    assert [rate.value, rate.low, limit.value] == pytest.approx(
        [gb_per_hour * GB, gb_per_hour * GB, 100 * GB]
    )
    assert (found.severity, found.cost_share, advised(found)) == (severity, None, [code])


def test_memory_that_hardly_grows(make_run: MakeRun) -> None:
    """Under a hundredth of what there is in an hour nothing is said, nor without readings."""
    assert outcome(Rule.PROCESS_MEMORY, grown(make_run, 0.9)) == NOTHING
    assert outcome(Rule.PROCESS_MEMORY, make_run([0] * 40)) is GrowthReason.NO_READINGS


@pytest.mark.parametrize(("samples", "evidence"), [(4, [40, 12]), (-1, [40])])
def test_batches_that_are_not_pinned(make_run: MakeRun, samples: int, evidence: list[int]) -> None:
    """A CUDA device cannot copy them during the step; their size is told where it is known."""
    run = idle_while_waiting(make_run, samples=samples, pinned=False, device="cpu")
    found = finding(Rule.UNPINNED_MEMORY, run)
    assert numbers(found) == {
        Advice.PIN_MEMORY: {"setting": "pin_memory", "present": False, "proposed": True}
    }
    assert [fact.value for fact in found.evidence] == evidence


@pytest.mark.parametrize(
    ("pinned", "device", "told"),
    [
        (True, "cpu", NOTHING),
        (False, "cuda:0", NOTHING),
        (False, "gpu", NOTHING),
        (False, None, "found"),
        (None, None, Unknown.PINNING_UNKNOWN),
    ],
)
def test_batches_that_need_no_pinning(
    make_run: MakeRun, pinned: bool | None, device: str | None, told: Unknown | str
) -> None:
    """They are pinned, or on the device already."""
    run = idle_while_waiting(make_run, pinned=pinned, device=device)
    assert outcome(Rule.UNPINNED_MEMORY, run) == told


def test_waits_hidden_by_gpu_work(make_run: MakeRun) -> None:
    """They cost nothing, where the GPU was idle for less than half of them."""
    found = finding(Rule.HIDDEN_WAITS, idle_while_waiting(make_run, 14))
    assert found.cost_share == 0.0
    assert found.problem.values == {"wait_ns": 30, "gpu_idle_ns": 14}
    assert outcome(Rule.HIDDEN_WAITS, idle_while_waiting(make_run, 15)) == NOTHING
    for rule in (Rule.UNPINNED_MEMORY, Rule.HIDDEN_WAITS):
        assert outcome(rule, make_run([30] * 40)) is Unknown.NO_CUDA


def kernel_busy(level: Level, percent: float) -> Readings:
    """By a GPU's own counters."""
    found = level("gpu", "GPU 0", "kernel_busy_percent", percent)
    return replace(found, values={**found.values, "sm_busy_percent": np.zeros(2000)})


def test_a_gpu_that_tells_of_a_second_is_not_known_in_short_blocks(
    alternating: MakeRun, level: Level
) -> None:
    """Its mean has the pauses between blocks, and the other arm."""
    coarse = level("gpu", "GPU 0", "kernel_busy_percent", 40.0)
    assert outcome(Rule.IDLE_GPU, alternating(readings=[coarse])) is Unknown.GPU_NOT_READ


def test_a_gpu_that_is_idle_all_the_same(
    alternating: MakeRun, make_run: MakeRun, level: Level
) -> None:
    """Under 70% busy with ideal loading; but not where loading is the limit."""
    busy, idle = (kernel_busy(level, value) for value in (70.0, 40.0))
    found = finding(Rule.IDLE_GPU, alternating(readings=[idle]))
    assert found.problem.values == {"gpu": "GPU 0", "idle_share": pytest.approx(0.6)}
    assert outcome(Rule.IDLE_GPU, alternating(readings=[busy])) == NOTHING
    assert outcome(Rule.IDLE_GPU, alternating(wait=50, readings=[idle])) == NOTHING
    assert outcome(Rule.IDLE_GPU, alternating()) is Unknown.GPU_NOT_READ
    assert outcome(Rule.IDLE_GPU, make_run([0] * 40)) is Unknown.NO_IDEAL


def test_a_gpu_that_is_idle_where_epochs_start_slowly(alternating: MakeRun, level: Level) -> None:
    """Only what the steady part loses speaks against it, and is told."""
    idle = kernel_busy(level, 40.0)
    found = finding(Rule.IDLE_GPU, alternating(first=800, length=8, readings=[idle]))
    assert [(fact.name, fact.value) for fact in found.evidence][1] == ("steady time lost", 0.0)


@pytest.mark.parametrize(
    ("fetch", "code"), [(10, Advice.LOWER_WORKERS), (76, Advice.LIGHTER_LOADING)]
)
def test_fewer_workers_where_they_would_do(
    alternating: MakeRun, fetch: float, code: Advice
) -> None:
    """Of four that just keep up, each is needed."""
    run = looked_into(alternating, fetch=fetch, workers=4, real=26)
    assert advised(finding(Rule.CONTENTION, run)) == [code]


def test_contention_of_a_loader_that_is_too_slow(alternating: MakeRun) -> None:
    """It has no worker too many."""
    run = looked_into(alternating, fetch=100, workers=4, real=26)
    assert advised(finding(Rule.CONTENTION, run)) == [Advice.LIGHTER_LOADING]
