"""What is told of the stages of SPDL's pipelines."""

from __future__ import annotations

import gc
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from spdl.pipeline import TaskHook, run_pipeline_in_subprocess

from loadeval import LoaderEvaluator, OperatorTimes, Run
from loadeval.adapter import adapter_for
from loadeval.testing import same_batch
from tests.adapters.test_spdl import in_processes, threaded
from tests.spdl_pipelines import NEVER_RUN, builder, pipeline, source, spdl_threads

pytestmark = NEVER_RUN
DECODE, COLLATE = "decode", "collate"


def looked_into(loader: Any, epochs: int = 1, **options: Any) -> tuple[list[Any], Run]:
    """All batches, and the run."""
    with LoaderEvaluator(loader, stages=True, probes=(), **options) as evaluator:
        batches = [batch for _ in range(epochs) for batch in evaluator]
    return batches, evaluator.recorded()


def tasks(run: Run, epoch: int = 0) -> Counter[str]:
    """How many tasks of each operator ended in an epoch."""
    counts: Counter[str] = Counter()
    for times in run.operators:
        if times.epoch == epoch:
            counts[times.operator] += times.tasks
    return counts


def lines_of(run: Run, operator: str) -> list[OperatorTimes]:
    return [times for times in run.operators if times.operator == operator]


def total(run: Run, operator: str, field: str) -> int:
    return sum(getattr(times, field) or 0 for times in lines_of(run, operator))


def echo(item: Any) -> Any:
    return item


LOADERS: dict[str, Callable[[], Any]] = {"threads": threaded, "function": lambda: pipeline}


@pytest.mark.parametrize("make", LOADERS.values(), ids=list(LOADERS))
def test_every_task_is_counted_in_its_epoch(make: Callable[[], Any]) -> None:
    _, run = looked_into(make(), epochs=2)
    for epoch in range(2):
        counts = tasks(run, epoch)
        assert (counts[DECODE], counts[COLLATE]) == (40, 5)
    assert run.events == ()


def test_tasks_in_processes_are_seen_from_here() -> None:
    """Their own times are not known."""
    _, run = looked_into(in_processes(), epochs=2)
    assert tasks(run, 1)["_get_items"] == 5
    assert {times.run_ns for times in lines_of(run, "_get_items")} == {None}
    assert total(run, "_get_items", "task_ns") > 0


ALL = {**LOADERS, "pipeline": pipeline, "processes": in_processes}


@pytest.mark.parametrize("mode", ["log", "alternate"])
@pytest.mark.parametrize("make", ALL.values(), ids=list(ALL))
def test_the_batches_and_warnings_are_the_same(make: Callable[[], Any], mode: str) -> None:
    served = []
    for stages in (False, True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            evaluator = LoaderEvaluator(make(), mode=mode, stages=stages, probes=())
            adapter = evaluator._measurement.adapter
            kept = list(map(adapter.keep, evaluator))
        served.append(
            (kept, [str(warning.message) for warning in caught if warning.category is not Warning])
        )
    (plain, warned), (inside, warned_inside) = served
    assert len(plain) == len(inside) > 0
    assert all(map(same_batch, plain, inside))
    assert warned == warned_inside


def test_waiting_for_a_thread_is_told_from_working() -> None:
    """Two tasks at once share one thread: one of them waits."""
    made = source(range(12)).pipe(partial(_sleep, 0.004), concurrency=2).add_sink(2)
    _, run = looked_into(lambda: made.build(num_threads=1))
    (name,) = {times.operator for times in run.operators} - {"src", "sink"}
    task_ns, run_ns, cpu_ns = (total(run, name, field) for field in ("task_ns", "run_ns", "cpu_ns"))
    assert task_ns > 1.4 * run_ns
    assert run_ns >= 12 * 4_000_000 > cpu_ns


def _sleep(seconds: float, item: Any) -> Any:
    time.sleep(seconds)
    return item


def test_stages_are_told_in_their_order_with_their_queues() -> None:
    _, run = looked_into(pipeline())
    by_name = {times.operator: times for times in run.operators}
    ordered = sorted(by_name, key=lambda name: by_name[name].order)
    assert [name.split("(")[0] for name in ordered] == ["src", DECODE, "aggregate", COLLATE, "sink"]
    assert by_name[DECODE].concurrency == 2
    assert (by_name["src"].task_ns, by_name["sink"].task_ns) == (None, None)


class Counted(TaskHook):
    """A user's hook."""

    def __init__(self) -> None:
        self.called = 0

    @asynccontextmanager
    async def task_hook(self, input_item: Any = None) -> AsyncIterator[None]:  # noqa: ARG002 - SPDL's
        self.called += 1
        yield


def test_the_users_hooks_are_called_as_ever() -> None:
    """Their list, which several stages share, stays as it is."""
    shared: list[TaskHook] = [Counted()]
    made = builder()
    _, run = looked_into(lambda: made.build(num_threads=3, task_hook_factory=lambda _: shared))
    plain: list[TaskHook] = [Counted()]
    looked_into(lambda: made.build(num_threads=3, task_hook_factory=lambda _: plain))
    assert len(shared) == 1
    assert shared[0].called == plain[0].called  # type: ignore[attr-defined]
    assert tasks(run)[DECODE] == 40


def test_an_epoch_that_is_broken_off_ends() -> None:
    loader = threaded()
    evaluator = LoaderEvaluator(loader, stages=True, probes=())
    for _ in evaluator:
        break
    gc.collect()
    assert len(list(evaluator)) == 5
    assert tasks(evaluator.recorded(), 1)[DECODE] == 40
    assert evaluator.recorded().events == ()
    assert spdl_threads() == []


def test_an_epoch_whose_batches_are_asked_for_late_has_its_own_tasks() -> None:
    with LoaderEvaluator(pipeline, stages=True, probes=()) as evaluator:
        first, second = iter(evaluator), iter(evaluator)
        assert (len(list(first)), len(list(second))) == (5, 5)
    run = evaluator.recorded()
    assert [tasks(run, epoch)[DECODE] for epoch in range(2)] == [40, 40]


def test_nothing_is_left_on_a_loader() -> None:
    loader = threaded()
    before = dict(vars(loader))
    evaluator = LoaderEvaluator(loader, stages=True, probes=())
    iter(evaluator)
    for _ in evaluator:
        assert vars(loader) == before
    assert vars(loader) == before


def test_a_pipeline_that_was_started_is_not_timed() -> None:
    loader = pipeline()
    with loader.auto_stop():
        batches, run = looked_into(loader)
    assert len(batches) == 5
    assert run.operators == ()
    (event,) = run.events
    assert event.kind == "stages missing"
    assert "was started before loadeval could look into it" in event.message


def test_a_pipeline_of_another_process_is_not_timed() -> None:
    loader = run_pipeline_in_subprocess(source(range(4)).add_sink(2).get_config(), num_threads=1)
    assert adapter_for(loader).stages(loader) is None


def test_another_version_of_spdl_is_said_to_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadeval_adapters.spdl._nodes", lambda _: 1 / 0)
    batches, run = looked_into(threaded(), epochs=2)
    assert len(batches) == 10
    (event,) = run.events
    assert event.message == (
        "the stages of this SPDL pipeline are not timed: ZeroDivisionError: division by zero"
    )
