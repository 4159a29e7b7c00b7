"""What each stage of an SPDL pipeline does, by hooks of its tasks and the counters of its queues.

Hooks and counters are attached to a pipeline that is built and not started, so that what the
user chose stays as it is: task hooks, queue classes, SPDL's defaults. This reaches into SPDL 0.8;
in a version that has these things elsewhere nothing is attached, and a note says so.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from loadeval import OperatorTimes, StageNote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HOOKS = ("hooks", "task_hooks")
"""What SPDL calls a stage's list of hooks."""
BEGUN_BEFORE = (
    "the stages of this SPDL pipeline are not timed: it was started before loadeval could look "
    "into it; pass its PipelineBuilder, or leave it to loadeval to start it"
)
NOT_FOUND = "the stages of this SPDL pipeline are not timed: {error}"
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
            now_ns = time.perf_counter_ns()
            self._stage.ended(self, now_ns - self._began_ns, now_ns)

    def run(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `work`, in a thread, and note what it took."""
        began_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        try:
            return work(*args, **kwargs)
        finally:
            self.cpu_ns += time.thread_time_ns() - cpu_ns
            self.run_ns += time.perf_counter_ns() - began_ns
            self.runs += 1


class Counts(NamedTuple):
    """What a stage has done so far; `threaded` tasks ran in the pipeline's threads."""

    tasks: int = 0
    threaded: int = 0
    task_ns: int = 0
    run_ns: int = 0
    cpu_ns: int = 0
    queue_items: int = 0
    queue_empty_ns: int = 0
    queue_blocked_ns: int = 0


class StageClock:
    """A hook of one stage that counts its tasks, in the pipeline's event loop."""

    def __init__(self, order: int, node: Any, *, timed: bool) -> None:
        self.order = order
        self.name = str(node.info.stage_name)
        self._timed = timed
        self._concurrency = getattr(getattr(node.cfg, "_args", None), "concurrency", 1)
        queue = node.output_queue
        self._queue = getattr(queue, "_async_queue", queue)  # the sink wraps its queue in another
        self._counts = self._reported = Counts()
        self.active_ns = 0

    def task_hook(self, input_item: Any = None) -> Task:  # noqa: ARG002 - SPDL passes it
        """Begin a task: SPDL calls it before each."""
        return Task(self)

    def ended(self, task: Task, task_ns: int, now_ns: int) -> None:
        """Count a task that has ended; `active_ns` is when the last one did."""
        counts = self._counts
        self.active_ns = now_ns
        # Assigned in one step, because another thread reads it.
        self._counts = Counts(
            counts.tasks + 1,
            counts.threaded + (task.runs > 0),
            counts.task_ns + task_ns,
            counts.run_ns + task.run_ns,
            counts.cpu_ns + task.cpu_ns,
        )

    def since_last(self, epoch: int, now_ns: int, elapsed_ns: int) -> OperatorTimes:
        """What the stage did in the `elapsed_ns` since the last call."""
        before, counts = self._reported, self._counts
        queue = self._of_queue(now_ns)
        self._reported = counts = counts._replace(**queue)
        tasks, items = counts.tasks - before.tasks, counts.queue_items - before.queue_items
        in_threads = self._timed and counts.threaded - before.threaded == tasks
        occupied_ns = elapsed_ns - (counts.queue_empty_ns - before.queue_empty_ns)
        blocked_ns = counts.queue_blocked_ns - before.queue_blocked_ns
        return OperatorTimes(
            epoch=epoch,
            operator=self.name,
            order=self.order,
            time_ns=now_ns,
            elapsed_ns=elapsed_ns,
            tasks=tasks if self._timed else items,
            task_ns=counts.task_ns - before.task_ns if self._timed else None,
            run_ns=counts.run_ns - before.run_ns if in_threads else None,
            cpu_ns=counts.cpu_ns - before.cpu_ns if in_threads else None,
            concurrency=self._concurrency,
            queue_items=items if queue else None,
            queue_occupied_ns=min(max(occupied_ns, 0), elapsed_ns) if queue else None,
            queue_blocked_ns=max(blocked_ns, 0) if queue else None,
        )

    def _of_queue(self, now_ns: int) -> dict[str, int]:
        """What the stage's queue has counted; empty if the queue is the user's."""
        queue = self._queue
        if not hasattr(queue, "_empty_duration"):
            return {}
        at_s = time.monotonic() - (time.perf_counter_ns() - now_ns) / 1e9
        if not queue._empty_t0:  # noqa: SLF001 - it has no public name; it is about to start
            return {}
        puts, since_s = queue._putc, queue._empty_duration(at_s)  # noqa: SLF001 - it has no public name
        return {
            "queue_items": puts.num_items,
            "queue_empty_ns": int(since_s * 1e9),
            "queue_blocked_ns": int(puts.ave_time * puts.num_items * 1e9),
        }


class WatchedPipeline:
    """The stages of a pipeline that was not started; raises if SPDL keeps them elsewhere."""

    def __init__(self, pipeline: Any) -> None:
        loop = pipeline._impl._event_loop  # noqa: SLF001 - SPDL tells of its stages nowhere else
        nodes = [node for node in _nodes(loop._coro) if hasattr(node, "output_queue")]  # noqa: SLF001 - it has no public name
        nodes_and_cells = [(node, _hook_cells(node._coro)) for node in nodes]  # noqa: SLF001 - it has no public name
        self._clocks = [
            StageClock(order, node, timed=bool(cells))
            for order, (node, cells) in enumerate(nodes_and_cells)
        ]
        for clock, (_, cells) in zip(self._clocks, nodes_and_cells, strict=True):
            for cell in cells:  # its list may be the user's, for several stages
                cell.cell_contents = [*cell.cell_contents, clock]
        _time_threads(loop._executor)  # noqa: SLF001 - it has no public name
        self.restart()

    def restart(self) -> None:
        """Count time from now on."""
        self._last_ns = time.perf_counter_ns()

    def since_last(self, epoch: int, *, over: bool) -> list[OperatorTimes]:
        """What each stage did since the last call; if the epoch is `over`, up to its last task."""
        now_ns = time.perf_counter_ns()
        if over:
            now_ns = max(self._last_ns, *(clock.active_ns for clock in self._clocks))
        elapsed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        return [clock.since_last(epoch, now_ns, elapsed_ns) for clock in self._clocks]


class WatchedEpoch:
    """One epoch of a loader, which may run a pipeline; its number becomes known at some point."""

    def __init__(self, stages: SPDLStages) -> None:
        self.over = False
        self._stages = stages
        self._number: int | None = None
        self._pipeline: WatchedPipeline | None = None

    def known(self, number: int) -> None:
        """Set the epoch's number."""
        self._number = number

    def look_into(self, pipeline: Any) -> None:
        """Time the stages of `pipeline`, which is about to start."""
        self._pipeline = self._stages.watched(pipeline)
        if self._pipeline is not None:
            self._pipeline.restart()
            self._stages.live.append(self)

    def end(self) -> None:
        """End the epoch."""
        self.over = True
        self._stages.take_last(self)

    def take(self) -> list[OperatorTimes]:
        """What its stages did since the last call, once its number is known."""
        if self._number is None or self._pipeline is None:
            return []
        times = self._pipeline.since_last(self._number, over=self.over)
        return times if any(stage.tasks for stage in times) else []


class SPDLStages:
    """Times the stages of the pipelines that a loader runs: see LoaderStages."""

    def __init__(self) -> None:
        self.live: list[WatchedEpoch] = []
        self._next: WatchedEpoch | None = None
        self._pending: deque[OperatorTimes | StageNote] = deque()
        self._noted = False
        self._taking = threading.Lock()
        self._watched: WeakKeyDictionary[Any, WatchedPipeline] = WeakKeyDictionary()

    def begin(self, loader: Any) -> Callable[[int], object]:  # noqa: ARG002 - the adapter has it
        """See LoaderStages."""
        self._next = WatchedEpoch(self)
        return self._next.known

    def epoch(self) -> WatchedEpoch | None:
        """The epoch that `begin` announced; None if nobody looks into this one."""
        epoch, self._next = self._next, None
        return epoch

    def watched(self, pipeline: Any) -> WatchedPipeline | None:
        """Look into `pipeline`; None, and a note, if that is not possible."""
        watched = self._watched.get(pipeline)
        if watched is not None:  # it was looked into before, or has several epochs
            return watched
        try:
            if pipeline._impl._event_loop.is_started():  # noqa: SLF001 - it has no public name
                self.note(BEGUN_BEFORE)
                return None
            watched = self._watched[pipeline] = WatchedPipeline(pipeline)
        except Exception as error:  # noqa: BLE001 - SPDL's next version may differ anywhere
            self.note(NOT_FOUND.format(error=f"{type(error).__name__}: {error}"))
        return watched

    def note(self, message: str) -> None:
        """Tell why stages are not timed, once."""
        if not self._noted:
            self._noted = True
            self._pending.append(StageNote(message))

    def take(self) -> list[OperatorTimes | StageNote]:
        """See LoaderStages."""
        with self._taking:
            for epoch in list(self.live):
                over = epoch.over
                self._pending += epoch.take()
                if over:
                    self.live.remove(epoch)
        return [self._pending.popleft() for _ in range(len(self._pending))]

    def take_last(self, epoch: WatchedEpoch) -> None:
        """Take what `epoch` did up to its end, now, so that no later time counts."""
        # The garbage collector may end an epoch in the middle of `take`, which then does it.
        if self._taking.acquire(blocking=False):
            try:
                if epoch in self.live:
                    self._pending += epoch.take()
                    self.live.remove(epoch)
            finally:
                self._taking.release()

    def close(self) -> None:
        """No epoch is looked into from now on; one that runs goes on as it is."""
        self._next = None


def until_the_end(batches: Iterable[Any], epoch: WatchedEpoch) -> Iterator[Any]:
    """Yield `batches`; `epoch` is over after the last of them."""
    try:
        yield from batches
    finally:
        epoch.end()


def looked_into(loader: Any, builds: Any, epoch: WatchedEpoch) -> Iterator[Any]:
    """The batches of `loader`, whose pipeline is built by `builds`: `loader`, or one inside it.

    The `_get_pipeline` of `builds` is replaced until the first batch is there.
    """
    return until_the_end(_with_first_built(loader, builds, epoch), epoch)


def _with_first_built(loader: Any, builds: Any, epoch: WatchedEpoch) -> Iterator[Any]:
    build = builds._get_pipeline  # noqa: SLF001 - it has no public name

    def built() -> Any:
        result = build()
        # A PyTorchDataLoader returns its processes, too; the pipeline is last.
        epoch.look_into(result[-1] if isinstance(result, tuple) else result)
        return result

    batches = iter(loader)
    builds._get_pipeline = built  # noqa: SLF001 - it has no public name
    try:
        first = next(batches, batches)
    finally:
        vars(builds).pop("_get_pipeline", None)
    if first is not batches:
        yield first
        yield from batches


def _nodes(coroutine: Any) -> list[Any]:
    """The nodes of a pipeline's stages, its sources first."""
    todo = [inspect.getcoroutinelocals(coroutine)["node"]]
    nodes: dict[int, Any] = {}
    while todo:
        node = todo.pop()
        nodes.pop(id(node), None)  # farther upstream than where it was met before
        nodes[id(node)] = node
        todo += node.upstream
    return list(nodes.values())[::-1]


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
            if name in HOOKS and isinstance(content, list) and cell not in cells:
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
