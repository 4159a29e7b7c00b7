# ruff: noqa: SLF001 - SPDL tells of its pipelines' stages, queues and threads nowhere else
"""SPDL: its data loaders and pipelines, and what each of their stages does.

Hooks and counters are attached to a pipeline that is built and not started, so that what the
user chose stays as it is: task hooks, queue classes, SPDL's defaults. This reaches into SPDL 0.8;
in a version that has these things elsewhere nothing is attached, and a note says so.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from functools import partial
from math import ceil
from operator import add, attrgetter
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from spdl.dataloader import CacheDataLoader
from spdl.pipeline import Pipeline
from spdl.pipeline.defs import AggregateConfig, Collate, PipeConfig, SourceConfig

from loadeval import (
    IterableAdapter,
    LoaderInfo,
    LoaderStages,
    OperatorTimes,
    StageNote,
    UsageError,
    Watch,
)
from loadeval_adapters.notes import NotTimed

QUEUE = 2
"""Items in the queue behind each stage but the sink."""
ONCE = (
    "this spdl Pipeline has been run, and can be run only once; pass a function that returns a new "
    "pipeline, such as lambda: builder.build(num_threads=8)"
)
IN_ANOTHER_PROCESS = (
    "the stages of this SPDL pipeline are not timed: it runs in another process; the readings have "
    "the CPU use of the threads of this one"
)
BEGUN_BEFORE = (
    "the stages of this SPDL pipeline are not timed: it was started before loadeval could look "
    "into it; leave it to loadeval to start it, or pass a function that builds a new one"
)
OF_THREADS = {"num_workers": "num_threads", "prefetch_depth": "buffer_size"}
OF_PROCESSES = {
    "num_workers": "num_workers",
    "prefetch_depth": "prefetch_factor",
    "concurrency": "num_workers",
}
"""SPDL's names of settings, by loadeval's."""
_begun: WeakSet[Any] = WeakSet()
_task: ContextVar[Task | None] = ContextVar("loadeval_task", default=None)


class Task:
    """One task of a stage: SPDL enters it when the task begins, and leaves it when it ended.

    Work that it submits to the pipeline's threads is timed apart from waiting for a thread.
    """

    __slots__ = ("_began_ns", "_stage", "cpu_ns", "run_ns", "runs")

    def __init__(self, stage: StageClock) -> None:
        self._stage = stage
        self.runs = self.run_ns = self.cpu_ns = 0

    async def __aenter__(self) -> None:
        self._began_ns = time.perf_counter_ns()
        _task.set(self)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _task.set(None)
        if kind is not StopAsyncIteration:  # a generator raises it when it has no more items
            stage, now_ns = self._stage, time.perf_counter_ns()
            done = (1, self.runs > 0, now_ns - self._began_ns, self.run_ns, self.cpu_ns)
            stage.active_ns = now_ns
            # Assigned in one step, because another thread reads it.
            stage.done = tuple(map(add, stage.done, done))

    def run(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `work`, in a thread, and note what it took."""
        began_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        try:
            return work(*args, **kwargs)
        finally:
            self.cpu_ns += time.thread_time_ns() - cpu_ns
            self.run_ns += time.perf_counter_ns() - began_ns
            self.runs += 1


class StageClock:
    """A task hook of one stage, in the pipeline's event loop; and the counters of its queue.

    `done` has its tasks so far, those that ran in threads, and the time of tasks, of their work in
    threads, and of the CPU for that; `active_ns` is when the last one ended.
    """

    def __init__(self, order: int, node: Any) -> None:
        self.active_ns = 0
        self.done: tuple[int, ...] = (0, 0, 0, 0, 0)
        self._told: tuple[int, ...] = (0,) * 8
        self._order, self._name = order, str(node.info.stage_name)
        self._concurrency = getattr(getattr(node.cfg, "_args", None), "concurrency", 1)
        queue = node.output_queue
        self._queue = getattr(queue, "_async_queue", queue)  # the sink wraps its queue in another
        cells = _hook_cells(node._coro)
        self._timed = bool(cells)
        for cell in cells:  # its list may be the user's, for several stages
            cell.cell_contents = [*cell.cell_contents, self]

    def task_hook(self, input_item: Any = None) -> Task:  # noqa: ARG002 - SPDL passes it
        """Begin a task: SPDL calls it before each."""
        return Task(self)

    def since_last(self, epoch: int, now_ns: int, elapsed_ns: int) -> OperatorTimes:
        """What the stage did in the `elapsed_ns` since the last call."""
        counts = self._queue
        queue: tuple[int, ...] = ()
        # The user's own queue counts nothing, and one that is about to start has no time yet.
        if getattr(counts, "_empty_t0", 0):
            at_s = time.monotonic() - (time.perf_counter_ns() - now_ns) / 1e9
            blocked_s = counts._putc.ave_time * counts._putc.num_items
            empty_ns = int(counts._empty_duration(at_s) * 1e9)
            queue = (counts._putc.num_items, empty_ns, int(blocked_s * 1e9))
        now = (*self.done, *(queue or self._told[5:]))
        tasks, threaded, task_ns, run_ns, cpu_ns, items, empty_ns, blocked_ns = (
            present - before for present, before in zip(now, self._told, strict=True)
        )
        self._told = now
        in_threads = self._timed and threaded == tasks
        return OperatorTimes(
            epoch=epoch,
            operator=self._name,
            order=self._order,
            time_ns=now_ns,
            elapsed_ns=elapsed_ns,
            tasks=tasks if self._timed else items,
            task_ns=task_ns if self._timed else None,
            run_ns=run_ns if in_threads else None,
            cpu_ns=cpu_ns if in_threads else None,
            concurrency=self._concurrency,
            queue_items=items if queue else None,
            queue_occupied_ns=min(max(elapsed_ns - empty_ns, 0), elapsed_ns) if queue else None,
            queue_blocked_ns=max(blocked_ns, 0) if queue else None,
        )


class WatchedEpoch:
    """One epoch of a loader, which may run a pipeline; its number becomes known at some point."""

    def __init__(self, stages: SPDLStages) -> None:
        self.stages = stages
        self.number: int | None = None
        self.is_over = False
        self.last_ns = time.perf_counter_ns()
        self.clocks: list[StageClock] = []

    def known(self, number: int) -> None:
        """Set the epoch's number."""
        self.number = number

    def until_the_end(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield `batches`; the epoch is over after the last of them."""
        try:
            yield from batches
        finally:
            self.is_over = True


class SPDLStages:
    """Times the stages of the pipelines that a loader runs: see LoaderStages."""

    def __init__(self) -> None:
        self.next: WatchedEpoch | None = None
        self._epochs: list[WatchedEpoch] = []
        self._notes: list[StageNote] = []
        self._told = 0
        self._clocks: WeakKeyDictionary[Any, list[StageClock]] = WeakKeyDictionary()

    def begin(self, loader: Any) -> Callable[[int], object]:  # noqa: ARG002 - the adapter has it
        """See LoaderStages."""
        self.next = WatchedEpoch(self)
        return self.next.known

    def look_into(self, pipeline: Any, epoch: WatchedEpoch) -> None:
        """Time the stages of `pipeline`, which is about to start; or note why that cannot be."""
        self._epochs.append(epoch)
        try:
            loop = pipeline._impl._event_loop
            if pipeline not in self._clocks and not loop.is_started():
                nodes = enumerate(_nodes(loop._coro))
                self._clocks[pipeline] = [StageClock(*each) for each in nodes]
                _time_threads(loop._executor)
            epoch.clocks = self._clocks.get(pipeline, [])
            why = "" if epoch.clocks else BEGUN_BEFORE
        except Exception as error:  # noqa: BLE001 - SPDL's next version may differ anywhere
            why = f"the stages of this SPDL pipeline are not timed: {type(error).__name__}: {error}"
        if why and StageNote(why) not in self._notes:
            self._notes.append(StageNote(why))
        epoch.last_ns = time.perf_counter_ns()

    def take(self) -> list[OperatorTimes | StageNote]:
        """See LoaderStages; of an epoch that is over, what was done up to its last task."""
        taken: list[OperatorTimes | StageNote] = []
        for epoch in list(self._epochs):
            is_over, now_ns = epoch.is_over, time.perf_counter_ns()
            if is_over:
                self._epochs.remove(epoch)
                now_ns = max(epoch.last_ns, *(clock.active_ns for clock in epoch.clocks), 0)
            if epoch.number is None:
                continue
            elapsed_ns, epoch.last_ns = now_ns - epoch.last_ns, now_ns
            times = [clock.since_last(epoch.number, now_ns, elapsed_ns) for clock in epoch.clocks]
            taken += times if any(stage.tasks for stage in times) else []
        untold, self._told = self._notes[self._told :], len(self._notes)
        return [*taken, *untold]

    def close(self) -> None:
        """No epoch is looked into from now on; one that runs goes on as it is."""
        self.next = None


def _nodes(coroutine: Any) -> list[Any]:
    """The nodes of a pipeline's stages that have a queue, its sources first."""
    todo = [inspect.getcoroutinelocals(coroutine)["node"]]
    nodes: dict[int, Any] = {}
    while todo:
        node = todo.pop()
        nodes.pop(id(node), None)  # farther upstream than where it was met before
        nodes[id(node)] = node
        todo += node.upstream
    return [node for node in list(nodes.values())[::-1] if hasattr(node, "output_queue")]


def _hook_cells(coroutine: Any) -> list[Any]:
    """The closure cells in which a stage that has not begun finds its list of hooks."""
    cells: list[Any] = []
    seen: set[int] = set()
    todo = list(inspect.getcoroutinelocals(coroutine).values())
    while todo:
        value = todo.pop()
        if not isinstance(value, FunctionType) or id(value) in seen:
            continue
        seen.add(id(value))
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # it is not filled yet
                continue
            if name in {"hooks", "task_hooks"} and isinstance(content, list) and cell not in cells:
                cells.append(cell)
            todo.append(content)
    return cells


def _time_threads(executor: Any) -> None:
    """Let each task note what its work takes in a thread of `executor`."""
    if type(executor) is not ThreadPoolExecutor or "submit" in vars(executor):
        return  # it runs other interpreters, or somebody replaced `submit`
    itself = ref(executor)  # a strong reference would keep it alive

    def submit(work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        task = _task.get()
        chosen = work if task is None else partial(task.run, work)
        return ThreadPoolExecutor.submit(itself(), chosen, *args, **kwargs)  # type: ignore[arg-type]  # it lives: it was called

    vars(executor)["submit"] = submit


class ListAdapter(IterableAdapter):
    """The adapter of loaders whose batches may be lists of samples, which no aggregator joined."""

    distributions = ("spdl-core",)
    setting_names = OF_THREADS
    _lists_samples = False
    _stages: SPDLStages | None = None

    def samples(self, batch: Any) -> int | None:
        """The length of a list of samples; any other batch is counted as usual."""
        is_list = self._lists_samples and isinstance(batch, list)
        return len(batch) if is_list else super().samples(batch)

    def _next_epoch(self) -> WatchedEpoch | None:
        """The epoch that begins now; None if nobody looks into it."""
        if self._stages is None:
            return None
        watched, self._stages.next = self._stages.next, None
        return watched


def _depth(stages: Iterable[tuple[int, int]], buffer: int) -> int:
    """How many batches are ready at most, when nobody takes any.

    `stages` have how many items they make one of, and how many finished ones each holds when the
    queue behind it is full; the sink has a `buffer`, and one in its hands.
    """
    ready = 0
    for group, held in stages:
        ready = ceil(ready / group) + held + QUEUE
    return ready + 1 + buffer


class SPDLAdapter(ListAdapter):
    """Knows the threads or processes of SPDL's data loaders, and their queues.

    Each epoch builds a pipeline, which is stopped when the epoch ends or is closed. Items that
    fail in it are dropped, and are no batches; SPDL logs an error for each.

    What a CacheDataLoader serves after `return_caches_after` batches was loaded before: it is
    measured as what it is, a loader that does next to nothing.
    """

    watch = Watch(
        classes={
            "spdl.dataloader._dataloader": ("DataLoader",),
            "spdl.dataloader._pytorch_dataloader": ("PyTorchDataLoader",),
            "spdl.dataloader._cache_dataloader": ("CacheDataLoader",),
        },
        inside=("spdl",),
    )

    def epoch(self, loader: Any) -> Iterator[Any]:
        """A new pipeline's batches."""
        batches, watched = super().epoch(loader), self._next_epoch()
        if watched is None:
            return batches

        def built() -> Any:
            vars(loader).pop("_get_pipeline", None)
            result = loader._get_pipeline()
            # A PyTorchDataLoader returns its processes, too; the pipeline is last.
            pipeline = result[-1] if isinstance(result, tuple) else result
            watched.stages.look_into(pipeline, watched)
            return result

        loader._get_pipeline = built  # until the first batch is asked for
        return watched.until_the_end(batches)

    def stages(self, loader: Any) -> LoaderStages | None:
        """The stages of the pipelines it builds; stages in processes as they are seen from here."""
        if not isinstance(loader, CacheDataLoader):
            self._stages = SPDLStages()
        return self._stages

    def describe(self, loader: Any) -> LoaderInfo:
        """Workers, queues, batch size, and the length of those that have one."""
        info, kept = super().describe(loader), vars(loader)
        if isinstance(loader, CacheDataLoader):
            return replace(info, length=loader.stop_after)
        workers = kept.get("_num_threads") or kept.get("_num_workers")
        if workers is None or "_buffer_size" not in kept:  # it is another version's
            return info
        ordered = 2 * (kept.get("_output_order") == "input")
        size = kept.get("_batch_size")
        chain = {
            "_preprocessor": (1, workers + ordered),
            "_fetch_fn": (1, workers + ordered),
            "_batch_size": (size, 1),
            "_aggregator": (1, workers + ordered),
            "_transfer_fn": (1, 1),
        }
        stages = [(1, 1), *(chain[stage] for stage in chain if kept.get(stage))]
        info = replace(info, workers=workers, prefetch_depth=_depth(stages, kept["_buffer_size"]))
        if "_num_threads" in kept:
            joined = kept.get("_aggregator") or kept.get("_transfer_fn")
            self._lists_samples = bool(size) and not joined
            names = {**OF_THREADS, "concurrency": "num_threads"}
            return replace(info, batch_size=size or None, setting_names=names)
        context = kept.get("_mp_ctx")
        return replace(
            info,
            batch_size=getattr(kept.get("_sampler"), "batch_size", None),
            start_method=None if context is None else context.get_start_method(),
            persistent_workers=False,
            setting_names=OF_PROCESSES,
        )

    def tunable(self, loader: Any) -> Mapping[str, Any]:
        """Threads and buffer of a DataLoader."""
        names = ("num_threads", "buffer_size") if "_num_threads" in vars(loader) else ()
        return {name: vars(loader)[f"_{name}"] for name in names}

    def reconfigured(self, loader: Any, settings: Mapping[str, Any]) -> Any:
        """A copy: a loader reads what it was made with when it builds an epoch's pipeline."""
        if not settings.keys() <= self.tunable(loader).keys() or "_num_threads" not in vars(loader):
            return super().reconfigured(loader, settings)
        again = copy(loader)
        vars(again).update({f"_{name}": value for name, value in settings.items()})
        return again


class SPDLPipelineAdapter(ListAdapter):
    """Runs a Pipeline, which has one epoch; wrap a function that builds one for several.

    A Pipeline is stopped when its epoch ends, is broken off or released, unless the user has
    started it: then only `release` stops it. One with a continuous source has many epochs, runs
    on between them, and continues an epoch that was broken off.

    SPDL drops items that fail, logs an error for each, and they are no batches.
    """

    watch = Watch(classes={"spdl.pipeline._pipeline": ("Pipeline",)}, inside=("spdl",))

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The pipeline's items. Raises UsageError for a Pipeline that was run before."""
        if not isinstance(loader, Pipeline):  # what runs one in a subprocess, say
            return iter(loader)
        is_stopped = _private(loader, "_impl._event_loop.is_stop_requested")
        if loader in _begun or (is_stopped is not None and is_stopped()):
            raise UsageError(ONCE)
        if getattr(next(iter(_configs(loader)), None), "continuous", False):
            return iter(_watched(loader, self._next_epoch()))
        return _run(loader, self._next_epoch())

    def stages(self, loader: Any) -> LoaderStages | None:
        """The stages of a pipeline, unless it runs in another process, or was started."""
        if not isinstance(loader, Pipeline):
            return NotTimed(IN_ANOTHER_PROCESS)
        self._stages = SPDLStages()
        return self._stages

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, batch size and queues, as long as a pipeline has not ended.

        The queues are unknown where several pipelines are merged, or items are taken apart.
        """
        info = super().describe(loader)
        if not isinstance(loader, Pipeline):
            return info
        info = replace(info, workers=_private(loader, "_impl._event_loop._executor._max_workers"))
        configs = _configs(loader)
        if not configs:
            return info
        *stages, sink = configs
        joins = [config for config in stages if isinstance(config, AggregateConfig)]
        self._lists_samples |= joins[-1:] == stages[-1:] and isinstance(stages[-1].op, Collate)
        held = [_group_and_held(config) for config in stages]
        is_known = all(held)
        return replace(
            info,
            batch_size=getattr(joins[-1].op, "n", None) if joins and is_known else None,
            prefetch_depth=_depth(filter(None, held), sink.buffer_size) if is_known else None,
        )

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop the pipeline, whoever has started it."""
        super().release(loader, epoch)
        if isinstance(loader, Pipeline):
            loader.stop()


def _watched(pipeline: Any, epoch: WatchedEpoch | None) -> Iterable[Any]:
    """The batches of an epoch of `pipeline`, which is looked into if somebody asks for that."""
    if epoch is None:
        return pipeline  # type: ignore[no-any-return]
    epoch.stages.look_into(pipeline, epoch)
    return epoch.until_the_end(pipeline)


def _run(pipeline: Any, epoch: WatchedEpoch | None) -> Iterator[Any]:
    _begun.add(pipeline)
    batches = _watched(pipeline, epoch)
    try:
        pipeline.start()
    except RuntimeError:  # the user has started it, and will stop it
        yield from batches
    else:
        try:
            yield from batches
        finally:
            pipeline.stop()


def _private(pipeline: Any, path: str) -> Any:
    """A private attribute of SPDL; None in a version that keeps it elsewhere."""
    try:
        return attrgetter(path)(pipeline)
    except AttributeError:
        return None


def _configs(pipeline: Any) -> list[Any]:
    """The configurations of a pipeline's stages, from source to sink; empty once it has ended."""
    task = _private(pipeline, "_impl._event_loop._coro")
    node = inspect.getcoroutinelocals(task).get("node") if inspect.iscoroutine(task) else None
    configs: list[Any] = []
    while node is not None:
        configs.insert(0, node.cfg)
        node = node.upstream[0] if len(node.upstream) == 1 else None
    return configs


def _group_and_held(config: Any) -> tuple[int, int] | None:
    """How many items a stage makes one of, and how many it holds; None if that is unknown."""
    if isinstance(config, PipeConfig):
        return 1, config._args.concurrency + 2 * (config._type.name == "OrderedPipe")
    if isinstance(config, AggregateConfig):
        return (config.op.n, 1) if hasattr(config.op, "n") else None
    return (1, 1) if isinstance(config, SourceConfig) else None
