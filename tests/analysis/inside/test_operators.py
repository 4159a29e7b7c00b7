"""Which operator is the bottleneck, and which threads are busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import OperatorTimes, Readings
from loadeval.analysis.estimate.metrics import Metrics
from loadeval.analysis.inside.operators import LockWait, OperatorLimit, operators_of, threads_of
from loadeval.analysis.report import Report
from loadeval.data.lines import LoaderInfo
from loadeval.data.log import read_run
from tests.runs import DALI, SPDL
from tests.runs.given import MS, block, run_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.data.lines import Arm
    from loadeval.data.run import Run

SECOND_NS = 1_000_000_000


def by_turns(
    operators: Sequence[OperatorTimes] = (),
    readings: Sequence[Readings] = (),
    *,
    arms: Sequence[Arm] = ("real", "ideal"),
    mode: Any = "alternate",
    **loader: Any,
) -> Run:
    """A second of each arm in turn."""
    return run_of(
        (
            block(
                *(arm, 50 * MS, 50 * MS, 10),
                request_ns=place * SECOND_NS,
                pair=place // 2 if mode == "alternate" else None,
            )
            for place, arm in enumerate(arms)
        ),
        mode=mode,
        warmup=0,
        loader=LoaderInfo(**{"backend": "spdl.pipeline", "workers": 4, **loader}),
        operators=tuple(operators),
        readings=tuple(readings),
    )


def line(name: str, order: int, **known: Any) -> OperatorTimes:
    """What an operator did in two seconds, 20 tasks."""
    chosen = {"epoch": 0, "time_ns": 2 * SECOND_NS, "elapsed_ns": 2 * SECOND_NS, "tasks": 20}
    return OperatorTimes(operator=name, order=order, **{**chosen, **known})


def sink(rested_ns: int = 0) -> OperatorTimes:
    return line("sink", 9, queue_blocked_ns=rested_ns)


def test_a_loader_that_was_not_looked_into_has_no_report() -> None:
    assert operators_of(by_turns()) is None


def test_tasks_are_means_over_all_lines() -> None:
    """The wait for a thread is in a task, and not in what it does for a batch."""
    half = {"elapsed_ns": SECOND_NS, "concurrency": 2}
    report = operators_of(
        by_turns(
            [
                line(
                    "decode",
                    1,
                    **half,
                    time_ns=SECOND_NS,
                    task_ns=800 * MS,
                    run_ns=400 * MS,
                    cpu_ns=100 * MS,
                ),
                line("decode", 1, **half, task_ns=400 * MS, run_ns=200 * MS, cpu_ns=300 * MS),
            ],
            arms=["real", "real"],
        )
    )
    assert report is not None
    (operator,) = report.operators
    assert (operator.name, operator.order, operator.tasks_per_batch) == ("decode", 1, 2)
    assert (operator.task_ns, operator.run_ns, operator.cpu_ns) == (30 * MS, 15 * MS, 10 * MS)
    assert operator.batch_ns == 30 * MS
    assert operator.work_share == pytest.approx(600 / (2000 * 2))


def test_the_time_in_which_a_pipeline_rests_does_not_count() -> None:
    """Its last queue is full. Where nobody tells, the ideal blocks do not count."""
    decode = line("decode", 1, task_ns=SECOND_NS, run_ns=SECOND_NS, concurrency=1)
    resting = operators_of(by_turns([sink(SECOND_NS // 2), decode]))
    unknown = operators_of(by_turns([decode]))
    assert resting is not None
    assert unknown is not None
    assert (resting.loading_ns, unknown.loading_ns) == (1.5 * SECOND_NS, SECOND_NS)
    assert resting.operators[0].busy_share == pytest.approx(2 / 3)
    assert unknown.operators[0].busy_share == 1


def test_the_busiest_operator_is_the_bottleneck() -> None:
    report = operators_of(
        by_turns(
            [
                line("read", 0, task_ns=200 * MS, run_ns=200 * MS, concurrency=1),
                line("decode", 1, task_ns=3600 * MS, run_ns=3500 * MS, concurrency=2),
                sink(),
            ]
        )
    )
    assert report is not None
    assert report.bottleneck is report.operators[1]
    assert (report.limit, report.bottleneck.busy_share) == (OperatorLimit.BUSY, 0.875)


def test_busy_threads_hold_up_the_costliest_operator() -> None:
    """Each of the operators may do more at once than there are threads."""
    report = operators_of(
        by_turns(
            [
                line("read", 0, task_ns=3000 * MS, run_ns=1000 * MS, concurrency=8),
                line("decode", 1, task_ns=9000 * MS, run_ns=2800 * MS, concurrency=8),
                sink(),
            ],
            workers=2,
        )
    )
    assert report is not None
    assert report.threads_share == pytest.approx(3800 / 4000)
    assert report.limit is OperatorLimit.THREADS_BUSY
    assert report.bottleneck is report.operators[1]


@pytest.mark.parametrize("loader", [{"workers": None}, {"start_method": "fork"}])
def test_processes_have_no_threads_that_are_busy(loader: dict[str, Any]) -> None:
    decode = line("decode", 1, task_ns=9000 * MS, run_ns=2800 * MS, concurrency=8)
    report = operators_of(by_turns([decode], **loader))
    assert report is not None
    assert report.threads_share is None


def queues(*shares: float | None) -> list[OperatorTimes]:
    """A source and operators, none busy, with what their queues hold for that share."""
    return [
        line(
            f"operator {place}",
            place,
            task_ns=100 * MS if place else None,
            concurrency=1,
            queue_occupied_ns=None if share is None else int(share * 2 * SECOND_NS),
        )
        for place, share in enumerate(shares)
    ]


@pytest.mark.parametrize(
    ("shares", "bottleneck"),
    [
        ((0.9, 0.9, 0.1, 0.1), "operator 2"),
        ((0.1, 0.1, 0.1), "operator 0"),
        ((0.9, 0.5, 0.1), None),
        ((0.9, 0.9, 0.9), None),
        ((None, None), None),
    ],
)
def test_an_operator_with_work_that_starves_the_next_is_the_bottleneck(
    shares: tuple[float | None, ...], bottleneck: str | None
) -> None:
    """A source has work at all times."""
    report = operators_of(by_turns(queues(*shares)))
    assert report is not None
    assert (report.bottleneck and report.bottleneck.name) == bottleneck
    assert report.limit is (OperatorLimit.QUEUES if bottleneck else None)


def test_a_line_about_no_time_has_no_share() -> None:
    report = operators_of(
        by_turns([line("decode", 0, task_ns=MS, run_ns=MS, concurrency=1, elapsed_ns=0, tasks=0)])
    )
    assert report is not None
    (operator,) = report.operators
    assert (operator.task_ns, operator.busy_share, operator.queue_share, operator.batch_ns) == (
        None,
    ) * 4
    assert (report.bottleneck, report.threads_share) == (None, None)


def readings(subject: str, every_ms: int = 100, **values: Sequence[float]) -> Readings:
    """Readings that begin after `every_ms`."""
    length = len(next(iter(values.values())))
    time_ns = np.arange(1, length + 1, dtype=np.int64) * every_ms * MS
    columns = {name: np.array(column, np.float64) for name, column in values.items()}
    return Readings("threads", subject, time_ns, columns)


def test_threads_are_told_in_both_arms_the_busiest_first() -> None:
    report = threads_of(
        by_turns(
            readings=[
                readings("decode", cpu_cores=[2.0] * 10 + [0.5] * 10, threads=[3.0] * 20),
                readings("busy", cpu_cores=[3.0] * 10 + [0.0] * 10, run_queue_cores=[0.25] * 20),
            ]
        )
    )
    assert report is not None
    busy, decode = report.threads
    assert (busy.name, decode.name, decode.threads, busy.threads) == ("busy", "decode", 3, 0)
    assert decode.cpu_cores == {"real": 2, "ideal": 0.5}
    assert busy.run_queue_cores == {"real": 0.25, "ideal": 0.25}
    assert decode.run_queue_cores == {"real": None, "ideal": None}
    assert report.missing is None


def test_the_lock_is_told_by_the_moment_at_which_it_was_tried() -> None:
    """One that was tried while the arm changed counts for neither, nor an unknown one."""
    waits = [5 * MS] * 10 + [5 * MS] + [0.1 * MS] * 8 + [float("nan")]
    thread_report = threads_of(
        by_turns(readings=[readings("python lock", 100, lock_wait_ns=waits)])
    )
    assert thread_report is not None
    assert thread_report.threads == ()
    real, ideal = thread_report.lock_wait["real"], thread_report.lock_wait["ideal"]
    assert real == LockWait(10, 5 * MS)
    assert ideal is not None
    assert ideal.readings == 9


def test_the_ideal_arm_may_be_another_run() -> None:
    real = by_turns(readings=[readings("decode", cpu_cores=[2.0] * 9)], arms=["real"], mode="log")
    ideal = by_turns(readings=[readings("x", cpu_cores=[1.0] * 9)], arms=["ideal"], mode="replay")
    report = threads_of(real, ideal)
    assert report is not None
    assert [thread.name for thread in report.threads] == ["decode", "x"]
    assert report.lock_wait == {"real": None, "ideal": None}


def test_where_no_thread_was_read_it_says_why() -> None:
    none = Readings("threads", "", np.empty(0, np.int64), {}, "no /proc")
    report = threads_of(by_turns(readings=[none]))
    assert report is not None
    assert (report.threads, report.missing) == ((), "no /proc")
    assert threads_of(by_turns()) is None


def test_threads_are_in_no_table_of_system_metrics() -> None:
    none = Readings("threads", "", np.empty(0, np.int64), {}, "no /proc")
    metrics = Metrics.of(by_turns(readings=[readings("decode", cpu_cores=[2.0] * 20), none]))
    assert (metrics.quantities, metrics.missing) == ((), ())


# In reports


def test_a_run_and_its_comparison_have_the_operators() -> None:
    """They give no reason why there are no stages."""
    report = Report.of([read_run(SPDL)])
    (run_report,) = report.runs
    assert run_report.operators is not None
    assert (run_report.stages, run_report.no_stages) == (None, None)
    assert report.comparison is not None
    assert report.comparison.operators == run_report.operators
    assert run_report.threads is not None


def test_each_backend_has_its_own() -> None:
    backends = Report.of([read_run(SPDL), read_run(DALI)]).backends
    assert backends is not None
    spdl, dali = backends.backends
    assert spdl.operators is not None
    assert dali.operators is None
    assert spdl.threads is not None
    assert dali.threads is not None


def test_of_two_runs_the_real_one_has_the_threads_of_both() -> None:
    real = by_turns(readings=[readings("decode", cpu_cores=[2.0] * 9)], arms=["real"], mode="log")
    ideal = by_turns(
        readings=[readings("decode", cpu_cores=[0.5] * 9)], arms=["ideal"], mode="replay"
    )
    of_real, other = Report.of([real, ideal]).runs
    assert of_real.threads is not None
    assert of_real.threads.threads[0].cpu_cores == {"real": 2, "ideal": 0.5}
    assert other.threads is None
