"""CPUs, memory and the GPU: what loading takes from training, or others from both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.memory import GrowthAdvice, GrowthReason
from loadeval.analysis.rules.finding import Advice, Rule, Unknown
from loadeval.data.lines import LoaderInfo, Readings
from tests.analysis.rules.conftest import NOTHING, advised, finding_of, numbers, outcome
from tests.runs.given import alternating, cores_read, level, make_run
from tests.runs.looked_into import looked_into
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.data.run import Run


GB = 1e9
EVERY_NS = 5_000_000_000
HOUR = 720
SLOWER: dict[str, Any] = {"real": 80, "ideal": 60}
FOUR = {"cpus_usable": 4}


def reading(**cores: float) -> list[Readings]:
    """The CPUs in use by each subject."""
    return [level("host", subject, "cpu_cores", value) for subject, value in cores.items()]


def grown(gb_per_hour: float, **loader: Any) -> Run:
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


def idle_while_waiting(gpu_idle_ns: int = 30, samples: int = 4, **loader: Any) -> Run:
    """Waits of 30 ns in which the GPU was idle for so long."""
    run = make_run([30] * 40, loader=LoaderInfo("torch.x", **loader), samples=samples)
    column = np.full(len(run.steps), gpu_idle_ns)
    return replace(run, steps=replace(run.steps, gpu_idle_ns=column))


def test_slower_steps() -> None:
    """What they cost is told, with its interval."""
    finding = finding_of(Rule.CONTENTION, alternating(**SLOWER))
    assert finding.cost_share == pytest.approx(0.25)
    assert finding.problem.values == {"slower_ns": pytest.approx(20e6)}
    assert finding.evidence[0].low == pytest.approx(20e6)
    assert [fact.name for fact in finding.evidence] == ["slower step", "CPUs available"]
    unknown = finding_of(Rule.CONTENTION, alternating(**SLOWER, environment={"host": "there"}))
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
    loader: dict[str, Any], cores: dict[str, float], codes: list[Advice]
) -> None:
    """The advice goes by the workers there are, and the CPUs that are left."""
    run = alternating(**SLOWER, **loader, readings=reading(**cores), environment=FOUR)
    finding = finding_of(Rule.CONTENTION, run)
    assert advised(finding) == codes
    if "workers" in cores:
        assert [fact.value for fact in finding.evidence[1:]] == [pytest.approx(3.7), 4]
    left = numbers(finding).get(Advice.CPUS_FREE)
    assert left is None or left == {"cpus_left": 2.5}


@pytest.mark.parametrize("times", [{"real": 52, "ideal": 50}, {"real": 60, "noise": 30}])
def test_steps_that_are_hardly_slower(times: dict[str, Any]) -> None:
    """They cost under 5% of the time, or are slower by no more than chance."""
    assert outcome(Rule.CONTENTION, alternating(**times)) == NOTHING


def test_a_log_has_no_other_steps() -> None:
    """No step was measured without loading."""
    assert outcome(Rule.CONTENTION, make_run([0] * 40)) is Unknown.NO_IDEAL


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        ({"process": 1.0, "workers": 1.0, "machine": 2.6}, "found"),
        ({"process": 1.0, "workers": 1.0, "machine": 2.4}, NOTHING),
        ({"machine": 3.0}, Unknown.CPU_TIME_NOT_READ),
        ({}, Unknown.CPU_TIME_NOT_READ),
    ],
)
def test_other_programs(cores: dict[str, float], expected: Unknown | str) -> None:
    """Half a CPU that is neither training's nor its workers' is told."""
    assert outcome(Rule.SHARED_MACHINE, alternating(readings=reading(**cores))) == expected


def test_other_programs_where_the_cpus_are_not_known() -> None:
    """What they used is told all the same."""
    run = alternating(readings=reading(process=1.0, machine=3.0), environment={"host": "there"})
    finding = finding_of(Rule.SHARED_MACHINE, run)
    assert finding.problem.values == {"others_cpus": pytest.approx(2)}
    assert len(finding.evidence) == 1


def test_more_workers_than_cpus() -> None:
    """They are told with the CPUs available; as many as CPUs are not too many."""
    finding = finding_of(Rule.OVERSUBSCRIPTION, alternating(workers=9))
    assert numbers(finding) == {
        Advice.LOWER: {"setting": "num_workers", "present": 9, "proposed": 8}
    }
    assert (finding.severity, finding.cost_share, finding.confidence) == ("low", None, "possible")
    assert outcome(Rule.OVERSUBSCRIPTION, alternating(workers=8)) == NOTHING


@pytest.mark.parametrize(("computing", "expected"), [(3.9, NOTHING), (4.1, "found")])
def test_more_workers_than_cpus_that_hardly_compute(computing: float, expected: str) -> None:
    """They do no harm while they use less than half of the CPUs."""
    run = cores_read(alternating(workers=9), workers=computing, process=1.0)
    assert outcome(Rule.OVERSUBSCRIPTION, run) == expected


def test_too_many_workers_on_busy_cpus() -> None:
    """Eight on three CPUs have under half a CPU each, for there is no more: they are told."""
    run = alternating(workers=8, environment={"cpus_usable": 3})
    finding = finding_of(Rule.OVERSUBSCRIPTION, cores_read(run, workers=2.4, process=0.5))
    assert advised(finding) == [Advice.CPUS_BUSY, Advice.LOWER]
    assert finding.confidence == "likely"
    assert finding.evidence[-1].value == pytest.approx(2.9)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"workers": None}, Unknown.WORKERS_UNKNOWN),
        ({"environment": {"host": "x"}}, Unknown.CPUS_UNKNOWN),
    ],
)
def test_too_many_for_what_is_not_known(facts: dict[str, Any], reason: Unknown) -> None:
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
    rule: Rule, start_method: str | None, code: GrowthAdvice, gb_per_hour: float, severity: str
) -> None:
    """The rate has its interval; the growth is severe where a day would fill the machine."""
    finding = finding_of(rule, grown(gb_per_hour, start_method=start_method))
    assert finding.problem.values["share_per_hour"] == pytest.approx(gb_per_hour / 100)
    rate, limit = finding.evidence
    assert [rate.value, rate.low, limit.value] == pytest.approx(
        [gb_per_hour * GB, gb_per_hour * GB, 100 * GB]
    )
    assert (finding.severity, finding.cost_share, advised(finding)) == (severity, None, [code])


def test_memory_that_hardly_grows() -> None:
    """Nothing is said under a hundredth of the memory in an hour, or without readings."""
    assert outcome(Rule.PROCESS_MEMORY, grown(0.9)) == NOTHING
    assert outcome(Rule.PROCESS_MEMORY, make_run([0] * 40)) is GrowthReason.NO_READINGS


@pytest.mark.parametrize(("samples", "evidence"), [(4, [40, 12]), (-1, [40])])
def test_batches_that_are_not_pinned(samples: int, evidence: list[int]) -> None:
    """A CUDA device cannot copy them during the step; their size is told where it is known."""
    run = idle_while_waiting(samples=samples, pinned=False, device="cpu")
    finding = finding_of(Rule.UNPINNED_MEMORY, run)
    assert numbers(finding) == {
        Advice.PIN_MEMORY: {"setting": "pin_memory", "present": False, "proposed": True}
    }
    assert [fact.value for fact in finding.evidence] == evidence


@pytest.mark.parametrize(
    ("pinned", "device", "expected"),
    [
        (True, "cpu", NOTHING),
        (False, "cuda:0", NOTHING),
        (False, "gpu", NOTHING),
        (False, None, "found"),
        (None, None, Unknown.PINNING_UNKNOWN),
    ],
)
def test_batches_that_need_no_pinning(
    pinned: bool | None, device: str | None, expected: Unknown | str
) -> None:
    """They are pinned, or on the device already."""
    run = idle_while_waiting(pinned=pinned, device=device)
    assert outcome(Rule.UNPINNED_MEMORY, run) == expected


def test_waits_hidden_by_gpu_work() -> None:
    """They cost nothing, where the GPU was idle for less than half of them."""
    finding = finding_of(Rule.HIDDEN_WAITS, idle_while_waiting(14))
    assert finding.cost_share == 0.0
    assert finding.problem.values == {"wait_ns": 30, "gpu_idle_ns": 14}
    assert outcome(Rule.HIDDEN_WAITS, idle_while_waiting(15)) == NOTHING
    for rule in (Rule.UNPINNED_MEMORY, Rule.HIDDEN_WAITS):
        assert outcome(rule, make_run([30] * 40)) is Unknown.NO_CUDA


def kernel_busy(percent: float) -> Readings:
    """Readings of a GPU's own counters."""
    reading = level("gpu", "GPU 0", "kernel_busy_percent", percent)
    return replace(reading, values={**reading.values, "sm_busy_percent": np.zeros(2000)})


def test_a_gpu_that_tells_of_a_second_is_not_known_in_short_blocks() -> None:
    """Its mean has the pauses between blocks, and the other arm."""
    coarse = level("gpu", "GPU 0", "kernel_busy_percent", 40.0)
    assert outcome(Rule.IDLE_GPU, alternating(readings=[coarse])) is Unknown.GPU_NOT_READ


def test_a_gpu_that_is_idle_all_the_same() -> None:
    """Under 70% busy with ideal loading; but not where loading is the limit."""
    busy, idle = (kernel_busy(value) for value in (70.0, 40.0))
    finding = finding_of(Rule.IDLE_GPU, alternating(readings=[idle]))
    assert finding.problem.values == {"gpu": "GPU 0", "idle_share": pytest.approx(0.6)}
    assert outcome(Rule.IDLE_GPU, alternating(readings=[busy])) == NOTHING
    assert outcome(Rule.IDLE_GPU, alternating(wait=50, readings=[idle])) == NOTHING
    assert outcome(Rule.IDLE_GPU, alternating()) is Unknown.GPU_NOT_READ
    assert outcome(Rule.IDLE_GPU, make_run([0] * 40)) is Unknown.NO_IDEAL


def test_a_gpu_that_is_idle_where_epochs_start_slowly() -> None:
    """Only what the steady part loses speaks against it, and is told."""
    idle = kernel_busy(40.0)
    finding = finding_of(Rule.IDLE_GPU, alternating(first=800, length=8, readings=[idle]))
    assert [(fact.name, fact.value) for fact in finding.evidence][1] == ("steady time lost", 0.0)


@pytest.mark.parametrize(
    ("fetch", "code"), [(10, Advice.LOWER_WORKERS), (76, Advice.LIGHTER_LOADING)]
)
def test_fewer_workers_where_they_would_do(fetch: float, code: Advice) -> None:
    """Of four that just keep up, each is needed."""
    run = looked_into(fetch=fetch, workers=4, real=26)
    assert advised(finding_of(Rule.CONTENTION, run)) == [code]


def test_contention_of_a_loader_that_is_too_slow() -> None:
    """It has no worker too many."""
    run = looked_into(fetch=100, workers=4, real=26)
    assert advised(finding_of(Rule.CONTENTION, run)) == [Advice.LIGHTER_LOADING]
