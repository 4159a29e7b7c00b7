"""SPDL: its data loaders and pipelines, and what the operators of a pipeline do."""

from __future__ import annotations

import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import CellType, FunctionType
from typing import Any, ClassVar

from spdl.pipeline import Pipeline
from spdl.pipeline.defs import Collate

from loadeval import (
    IterableAdapter,
    LoaderInfo,
    LoaderStages,
    OperatorTimes,
    StageNote,
    UsageError,
    Watch,
)

QUEUE = 2
"""Items that SPDL's queue between two operators holds."""
IN_ORDER = 2
"""Items more that an operator holds which passes them on in order."""
HAS_RUN = (
    "this pipeline has been run, and it can be run only once; pass a function that returns a new "
    "pipeline, such as lambda: builder.build(num_threads=8)"
)
WAS_STARTED = (
    "it was started before loadeval could look into it; leave it to loadeval to start it, or pass "
    "a function that builds a new one"
)
OF_SPDL = ("contextlib", "spdl.pipeline")
"""Modules of the functions that an operator's coroutine is made of."""
Operations = Sequence[tuple[int, int]]
_served: weakref.WeakSet[Any] = weakref.WeakSet()
_current: ContextVar[Operator | None] = ContextVar("loadeval_operator", default=None)
"""The operator whose task runs in the pipeline's event loop."""


class SPDLAdapter(IterableAdapter):
    """SPDL's data loaders, which build a pipeline for each epoch and stop it at its end."""

    watch: ClassVar[Watch] = Watch(inside=("spdl",))
    setting_names: ClassVar[Mapping[str, str]] = {
        "num_workers": "num_threads",
        "prefetch_depth": "buffer_size",
    }
    distributions = ("spdl-core",)
    _gives_lists = False

    def samples(self, batch: Any) -> int | None:
        """The samples of `batch`; one that nothing has collated is a list of them."""
        return len(batch) if self._gives_lists else super().samples(batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads or processes, batches that get ready, and samples of a batch.

        A CacheDataLoader has the length at which it stops, and none if it never does.
        """
        info, has = super().describe(loader), vars(loader)
        if "stop_after" in has:
            return replace(info, length=has["stop_after"])
        in_processes = "_num_workers" in has
        workers = "num_workers" if in_processes else "num_threads"
        count, size = has.get(f"_{workers}"), has.get("_batch_size")
        if count is None or "_output_order" not in has:  # another version of SPDL
            return info
        in_order = IN_ORDER if has["_output_order"] == "input" else 0
        operations = [
            (holds, joins)
            for is_there, holds, joins in (
                (True, 1, 0),
                (in_processes or has["_preprocessor"], count + in_order, 0),
                (size, 1, size),
                (has.get("_aggregator"), count + in_order, 0),
                (has["_transfer_fn"], 1, 0),
            )
            if is_there
        ]
        self._gives_lists = operations[-1][1] > 0
        depth = "prefetch_factor" if in_processes else "buffer_size"
        info = replace(
            self._with_queues(info, operations, has["_buffer_size"]),
            workers=count,
            setting_names={"num_workers": workers, "prefetch_depth": depth, "concurrency": workers},
        )
        if not in_processes:
            return info
        return replace(
            info,
            batch_size=getattr(has["_sampler"], "batch_size", None),
            start_method=has["_mp_ctx"].get_start_method(),
            persistent_workers=False,
        )

    def _with_queues(self, info: LoaderInfo, operations: Operations, buffer: int) -> LoaderInfo:
        """How many batches get ready while nobody takes any, and how many samples each has.

        `operations` have how many items each holds, and joins (0: passes on), source first.
        """
        batches, samples = Fraction(buffer + 1), 1  # the sink holds one that has no room
        for holds, joins in reversed(operations):
            batches += Fraction(holds + QUEUE, samples)
            samples *= joins or 1
        size = next((joins for _, joins in reversed(operations) if joins), None)
        return replace(info, prefetch_depth=math.ceil(batches), batch_size=size)

    def stages(self, loader: Any) -> LoaderStages | None:
        """What times the operators of a pipeline of this process; None of another one."""
        is_here = isinstance(loader, Pipeline) or hasattr(loader, "_get_pipeline")
        return OperatorStages() if is_here else None

    def tunable(self, loader: Any) -> Mapping[str, Any]:
        """The threads and the buffer of a DataLoader."""
        has = vars(loader)
        names = ("num_threads", "buffer_size")
        return {name: has[f"_{name}"] for name in names} if "_num_threads" in has else {}

    def change(self, loader: Any, settings: Mapping[str, Any]) -> None:
        """The next epoch's pipeline is built with other threads, or another buffer."""
        vars(loader).update({f"_{name}": value for name, value in settings.items()})


class SPDLPipelineAdapter(SPDLAdapter):
    """A Pipeline by itself, which has one epoch, and pipelines that run in another process.

    It is stopped when its epoch ends or is broken off, unless the program has started it. One with
    a continuous source has many epochs, runs on between them, and goes on with one that was broken
    off. Released, each is stopped.
    """

    def epoch(self, loader: Any) -> Iterator[Any]:
        """All batches of a pipeline that has not run yet; raises UsageError for one that has."""
        if not isinstance(loader, Pipeline):
            return super().epoch(loader)
        loop = _loop(loader)
        if loader in _served or (loop is not None and loop.is_stop_requested()):
            raise UsageError(HAS_RUN)
        is_continuous = any(getattr(node.cfg, "continuous", False) for node in _nodes(loader))
        return iter(loader) if is_continuous else self._only_epoch(loader)

    def _only_epoch(self, pipeline: Any) -> Iterator[Any]:
        _served.add(pipeline)
        try:
            pipeline.start()
        except RuntimeError:  # the program has started it, and will stop it
            yield from pipeline
            return
        try:
            yield from pipeline
        finally:
            pipeline.stop()

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop the pipeline, whoever has started it."""
        super().release(loader, epoch)
        if isinstance(loader, Pipeline):
            loader.stop()

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, batches that get ready, and samples of a batch, as far as its operators tell."""
        info = IterableAdapter.describe(self, loader)
        if not isinstance(loader, Pipeline):
            return info
        executor = getattr(_loop(loader), "_executor", None)
        info = replace(info, workers=getattr(executor, "_max_workers", None))
        operations, nodes = [], _nodes(loader)
        if nodes:  # an aggregator of the user's may give anything
            self._gives_lists = isinstance(getattr(nodes[-2].cfg, "op", None), Collate)
        for node in nodes[:-1]:
            kind, joins = type(node.cfg).__name__, getattr(getattr(node.cfg, "op", None), "n", 0)
            if kind not in {"SourceConfig", "PipeConfig"} and not joins:
                return info  # it branches, or how many items make one is not known
            is_ordered = kind == "PipeConfig" and node.cfg._type.name == "OrderedPipe"  # noqa: SLF001 - nothing public tells
            operations.append(((node.info.concurrency or 1) + IN_ORDER * is_ordered, joins))
        if not operations:  # it has ended
            return info
        return self._with_queues(info, operations, nodes[-1].cfg.buffer_size)


def _loop(pipeline: Any) -> Any:
    """What runs `pipeline`, for nothing public tells of it; None in another version of SPDL."""
    return getattr(getattr(pipeline, "_impl", None), "_event_loop", None)


def _nodes(pipeline: Any) -> list[Any]:
    """SPDL's descriptions of the operators of `pipeline`, source first; none once it has ended."""
    found: dict[int, Any] = {}

    def visit(node: Any) -> None:
        for earlier in node.upstream:
            visit(earlier)
        if hasattr(node, "output_queue"):  # else it has several
            found.setdefault(id(node), node)

    frame = getattr(getattr(_loop(pipeline), "_coro", None), "cr_frame", None)
    if frame is not None:
        visit(frame.f_locals["node"])
    return list(found.values())


class OperatorStages:
    """Times the operators of pipelines; see LoaderStages.

    A pipeline is looked into before it starts: when the first batch is asked for, or when a data
    loader has built it.
    """

    def __init__(self) -> None:
        self._timed: list[TimedPipeline] = []
        self._found: list[OperatorTimes | StageNote] = []

    def begin(self, loader: Any) -> Callable[[int], object]:
        """See LoaderStages."""
        return partial(self._known, loader)

    def _known(self, loader: Any, epoch: int) -> None:
        while "dl" in vars(loader):  # of a CacheDataLoader
            loader = loader.dl

        def get_pipeline() -> Any:
            vars(loader).pop("_get_pipeline", None)
            built = loader._get_pipeline()  # noqa: SLF001 - nothing public has its pipeline
            self._time(built[-1] if isinstance(built, tuple) else built, epoch)
            return built

        if isinstance(loader, Pipeline):
            self._time(loader, epoch)
        else:
            loader._get_pipeline = get_pipeline  # noqa: SLF001 - the same

    def _time(self, pipeline: Any, epoch: int) -> None:
        try:
            loop = _loop(pipeline)
            for timed in self._timed:
                if timed.loop() is loop:
                    self._found += timed.read()
                    timed.epoch = epoch  # for its source is continuous
                    return
            if loop.is_started():
                self._say(WAS_STARTED)
            else:
                self._timed.append(TimedPipeline(pipeline, epoch))
        except Exception as error:  # noqa: BLE001 - another version of SPDL: its loader goes on
            self._say(f"{type(error).__name__}: {error}")

    def _say(self, why: str) -> None:
        self._found.append(StageNote(f"the stages of this SPDL pipeline are not timed: {why}"))

    def take(self) -> Sequence[OperatorTimes | StageNote]:
        """See LoaderStages."""
        found, self._found = self._found, []
        for timed in list(self._timed):
            found += timed.read()
            if timed.is_over:
                self._timed.remove(timed)
        return found

    def close(self) -> None:
        """See LoaderStages; a pipeline that runs keeps its clocks until it ends."""


class TimedPipeline:
    """The operators of a pipeline that has not started yet, and how far their times were read."""

    def __init__(self, pipeline: Any, epoch: int) -> None:
        self.epoch, self.is_over = epoch, False
        loop = _loop(pipeline)
        self.loop = weakref.ref(loop)
        self._since_ns = time.perf_counter_ns()
        self._operators = [Operator(node) for node in _nodes(pipeline)]
        submit = loop._executor.submit  # noqa: SLF001 - nothing public has the pipeline's threads

        def timed_submit(work: Any, /, *args: Any, **kwargs: Any) -> Any:
            operator = _current.get()
            run = work if operator is None else partial(operator.run, work)
            return submit(run, *args, **kwargs)

        loop._executor.submit = timed_submit  # noqa: SLF001 - the same

    def read(self) -> list[OperatorTimes]:
        """What each operator did since the last call; once all is over, until it was."""
        loop = self.loop()
        self.is_over = loop is None or loop.is_task_completed()
        sums = [each for operator in self._operators for each in operator.sums]
        if not self.is_over:
            for each in sums:
                each.add()
        since_ns, self._since_ns = self._since_ns, max(each.at_ns for each in sums)
        if self._since_ns <= since_ns:
            return []
        elapsed_ns = self._since_ns - since_ns
        return [
            operator.times(self.epoch, order, self._since_ns, elapsed_ns)
            for order, operator in enumerate(self._operators)
        ]


class Sum:
    """A number, counted as `most` where it is more, summed over time; and a count beside it."""

    def __init__(self, most: float = math.inf) -> None:
        self.at_ns = time.perf_counter_ns()
        self._number = self._total_ns = self._count = 0
        self._most = most
        self._lock = threading.Lock()

    def add(self, by: int = 0, count: int = 0) -> None:
        """Add to the number now, and to the count."""
        with self._lock:
            now_ns = time.perf_counter_ns()
            self._total_ns += int(min(self._number, self._most)) * (now_ns - self.at_ns)
            self.at_ns = now_ns
            self._number += by
            self._count += count

    def take(self) -> tuple[int, int]:
        """The sum, in nanoseconds, and the count since the last call."""
        with self._lock:
            taken = self._total_ns, self._count
            self._total_ns = self._count = 0
        return taken


class Operator:
    """Times one operator, through the closures of its coroutine, which has not started yet.

    It is a hook of each of its tasks besides the program's, whose list stays as it is. In the
    queue behind it, what comes and goes is counted.
    """

    def __init__(self, node: Any) -> None:
        self._name, self._concurrency = str(node.info.stage_name), node.info.concurrency or 1
        self._working, self._running, self._blocked = Sum(), Sum(), Sum()
        self._held = Sum(most=1)
        self.sums = self._working, self._running, self._blocked, self._held
        self._has_run = False
        cells = _cells(node.coro.cr_frame.f_locals.get("func"))
        hooks = cells.get("task_hooks") or cells.get("hooks")
        self._has_tasks = hooks is not None
        if hooks is not None:
            hooks.cell_contents = [*hooks.cell_contents, self]
        items = node.output_queue
        items = getattr(items, "_async_queue", items)  # behind what training reads from
        is_sync = isinstance(items._queue, queue.Queue)  # noqa: SLF001 - nothing public tells what comes and goes
        store = items._queue if is_sync else items  # noqa: SLF001 - the same
        put, come, go = items.put, store._put, store._get  # noqa: SLF001 - the same

        async def timed_put(item: Any) -> None:
            self._blocked.add(1)
            try:
                await put(item)
            finally:
                self._blocked.add(-1)

        def comes(item: Any) -> None:
            come(item)
            self._held.add(1, 1)

        def goes() -> Any:
            self._held.add(-1)
            return go()

        items.put, store._put, store._get = timed_put, comes, goes  # noqa: SLF001 - the same

    def task_hook(self, input_item: Any = None) -> Operator:  # noqa: ARG002 - SPDL passes it
        """SPDL's TaskHook: what is entered and left by each task."""
        return self

    async def __aenter__(self) -> None:
        self._working.add(1)
        _current.set(self)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._working.add(-1, kind is not StopAsyncIteration)  # a generator that has nothing more

    def run(self, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call `work`, of one of its tasks, in a thread of the pipeline's."""
        self._has_run = True
        self._running.add(1)
        cpu_ns = time.thread_time_ns()
        try:
            return work(*args, **kwargs)
        finally:
            self._running.add(-1, time.thread_time_ns() - cpu_ns)

    def times(self, epoch: int, order: int, now_ns: int, elapsed_ns: int) -> OperatorTimes:
        """What it did in the last `elapsed_ns`."""
        occupied_ns, items = self._held.take()
        task_ns, tasks = self._working.take() if self._has_tasks else (None, items)
        run_ns, cpu_ns = self._running.take() if self._has_run else (None, None)
        blocked_ns, _ = self._blocked.take()
        at_work = tasks, task_ns, run_ns, cpu_ns, self._concurrency
        return OperatorTimes(
            epoch, self._name, order, now_ns, elapsed_ns, *at_work, occupied_ns, blocked_ns
        )


def _cells(function: Any) -> dict[str, CellType]:
    """The variables that `function` of SPDL's uses, and its functions among them; else none."""
    module = getattr(function, "__module__", None) or ""
    if not isinstance(function, FunctionType) or not module.startswith(OF_SPDL):
        return {}
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for cell in list(cells.values()):
        cells = {**_cells(cell.cell_contents), **cells}
    return cells
