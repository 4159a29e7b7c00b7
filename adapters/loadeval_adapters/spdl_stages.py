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

    What it submits to the pipeline's threads meanwhile is told from waiting for one of them.
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
        if kind is not StopAsyncIteration:  # by which a generator says that it has no more
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
    """A hook of one stage, and what it was called for. Counted by the pipeline's event loop."""

    def __init__(self, order: int, node: Any, *, timed: bool) -> None:
        self.order = order
        self.name = str(node.info.stage_name)
        self._timed = timed
        self._concurrency = getattr(getattr(node.cfg, "_args", None), "concurrency", 1)
        queue = node.output_queue
        self._queue = getattr(queue, "_async_queue", queue)  # the sink's has another around it
        self._counts = self._told = Counts()
        self.active_ns = 0

    def task_hook(self, input_item: Any = None) -> Task:  # noqa: ARG002 - SPDL passes it
        """SPDL asks for it before each task."""
        return Task(self)

    def ended(self, task: Task, task_ns: int, now_ns: int) -> None:
        """A task has ended; `active_ns` is when the last did."""
        found = self._counts
        self.active_ns = now_ns
        # One assignment, for another thread reads it.
        self._counts = Counts(
            found.tasks + 1,
            found.threaded + (task.runs > 0),
            found.task_ns + task_ns,
            found.run_ns + task.run_ns,
            found.cpu_ns + task.cpu_ns,
        )

    def since_last(self, epoch: int, now_ns: int, elapsed_ns: int) -> OperatorTimes:
        """What it did in the `elapsed_ns` since the last call."""
        told, found = self._told, self._counts
        queue = self._of_queue(now_ns)
        self._told = found = found._replace(**queue)
        tasks, items = found.tasks - told.tasks, found.queue_items - told.queue_items
        in_threads = self._timed and found.threaded - told.threaded == tasks
        occupied_ns = elapsed_ns - (found.queue_empty_ns - told.queue_empty_ns)
        blocked_ns = found.queue_blocked_ns - told.queue_blocked_ns
        return OperatorTimes(
            epoch=epoch,
            operator=self.name,
            order=self.order,
            time_ns=now_ns,
            elapsed_ns=elapsed_ns,
            tasks=tasks if self._timed else items,
            task_ns=found.task_ns - told.task_ns if self._timed else None,
            run_ns=found.run_ns - told.run_ns if in_threads else None,
            cpu_ns=found.cpu_ns - told.cpu_ns if in_threads else None,
            concurrency=self._concurrency,
            queue_items=items if queue else None,
            queue_occupied_ns=min(max(occupied_ns, 0), elapsed_ns) if queue else None,
            queue_blocked_ns=max(blocked_ns, 0) if queue else None,
        )

    def _of_queue(self, now_ns: int) -> dict[str, int]:
        """What its queue has counted; nothing where the queue is the user's."""
        queue = self._queue
        if not hasattr(queue, "_empty_duration"):
            return {}
        at_s = time.monotonic() - (time.perf_counter_ns() - now_ns) / 1e9
        if not queue._empty_t0:  # noqa: SLF001 - it has no public name; it is about to start
            return {}
        puts, since_s = queue._putc, queue._empty_duration(at_s)  # noqa: SLF001 - as above
        return {
            "queue_items": puts.num_items,
            "queue_empty_ns": int(since_s * 1e9),
            "queue_blocked_ns": int(puts.ave_time * puts.num_items * 1e9),
        }


class WatchedPipeline:
    """The stages of a pipeline that was not started; raises where SPDL has them elsewhere."""

    def __init__(self, pipeline: Any) -> None:
        loop = pipeline._impl._event_loop  # noqa: SLF001 - SPDL tells of its stages nowhere else
        nodes = [node for node in _nodes(loop._coro) if hasattr(node, "output_queue")]  # noqa: SLF001 - as above
        found = [(node, _hook_cells(node._coro)) for node in nodes]  # noqa: SLF001 - as above
        self._clocks = [
            StageClock(order, node, timed=bool(cells)) for order, (node, cells) in enumerate(found)
        ]
        for clock, (_, cells) in zip(self._clocks, found, strict=True):
            for cell in cells:  # the list that is in it may be the user's, for several stages
                cell.cell_contents = [*cell.cell_contents, clock]
        _time_threads(loop._executor)  # noqa: SLF001 - as above
        self.restart()

    def restart(self) -> None:
        """From now on time counts."""
        self._last_ns = time.perf_counter_ns()

    def since_last(self, epoch: int, *, over: bool) -> list[OperatorTimes]:
        """What each stage did since the last call; of one that is `over` up to its last task."""
        now_ns = time.perf_counter_ns()
        if over:
            now_ns = max(self._last_ns, *(clock.active_ns for clock in self._clocks))
        elapsed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        return [clock.since_last(epoch, now_ns, elapsed_ns) for clock in self._clocks]


class WatchedEpoch:
    """One epoch of a loader, which may run a pipeline; its number is told sooner or later."""

    def __init__(self, stages: SPDLStages) -> None:
        self.over = False
        self._stages = stages
        self._number: int | None = None
        self._pipeline: WatchedPipeline | None = None

    def known(self, number: int) -> None:
        """The epoch has this number."""
        self._number = number

    def look_into(self, pipeline: Any) -> None:
        """Time the stages of `pipeline`, which is about to start."""
        self._pipeline = self._stages.watched(pipeline)
        if self._pipeline is not None:
            self._pipeline.restart()
            self._stages.live.append(self)

    def end(self) -> None:
        """The epoch is over."""
        self.over = True
        self._stages.take_last(self)

    def take(self) -> list[OperatorTimes]:
        """What its stages did since the last call, once its number is known."""
        if self._number is None or self._pipeline is None:
            return []
        found = self._pipeline.since_last(self._number, over=self.over)
        return found if any(one.tasks for one in found) else []


class SPDLStages:
    """Times the stages of the pipelines that a loader runs: see LoaderStages."""

    def __init__(self) -> None:
        self.live: list[WatchedEpoch] = []
        self._next: WatchedEpoch | None = None
        self._found: deque[OperatorTimes | StageNote] = deque()
        self._noted = False
        self._taking = threading.Lock()
        self._watched: WeakKeyDictionary[Any, WatchedPipeline] = WeakKeyDictionary()

    def begin(self, loader: Any) -> Callable[[int], object]:  # noqa: ARG002 - the adapter has it
        """See LoaderStages."""
        self._next = WatchedEpoch(self)
        return self._next.known

    def epoch(self) -> WatchedEpoch | None:
        """The epoch that begins, as `begin` has said; None where nobody looks into this one."""
        found, self._next = self._next, None
        return found

    def watched(self, pipeline: Any) -> WatchedPipeline | None:
        """`pipeline`, looked into; None, and a note, where that is not possible."""
        found = self._watched.get(pipeline)
        if found is not None:  # it was looked into before, or has several epochs
            return found
        try:
            if pipeline._impl._event_loop.is_started():  # noqa: SLF001 - it has no public name
                self.note(BEGUN_BEFORE)
                return None
            found = self._watched[pipeline] = WatchedPipeline(pipeline)
        except Exception as error:  # noqa: BLE001 - SPDL's next version may differ anywhere
            self.note(NOT_FOUND.format(error=f"{type(error).__name__}: {error}"))
        return found

    def note(self, message: str) -> None:
        """Tell why stages are not timed, once."""
        if not self._noted:
            self._noted = True
            self._found.append(StageNote(message))

    def take(self) -> list[OperatorTimes | StageNote]:
        """See LoaderStages."""
        with self._taking:
            for epoch in list(self.live):
                over = epoch.over
                self._found += epoch.take()
                if over:
                    self.live.remove(epoch)
        return [self._found.popleft() for _ in range(len(self._found))]

    def take_last(self, epoch: WatchedEpoch) -> None:
        """Take what `epoch` did up to its end, now, so that no later time counts."""
        # The garbage collector may end an epoch in the middle of `take`, which then does it.
        if self._taking.acquire(blocking=False):
            try:
                if epoch in self.live:
                    self._found += epoch.take()
                    self.live.remove(epoch)
            finally:
                self._taking.release()

    def close(self) -> None:
        """No epoch is looked into from now on; one that runs goes on as it is."""
        self._next = None


def until_the_end(batches: Iterable[Any], epoch: WatchedEpoch) -> Iterator[Any]:
    """`batches`; with the last of them `epoch` is over."""
    try:
        yield from batches
    finally:
        epoch.end()


def looked_into(loader: Any, builds: Any, epoch: WatchedEpoch) -> Iterator[Any]:
    """The batches of `loader`, for which `builds`, itself or one in it, builds a pipeline.

    Its `_get_pipeline` is replaced until the first batch is there.
    """
    return until_the_end(_with_first_built(loader, builds, epoch), epoch)


def _with_first_built(loader: Any, builds: Any, epoch: WatchedEpoch) -> Iterator[Any]:
    build = builds._get_pipeline  # noqa: SLF001 - it has no public name

    def built() -> Any:
        found = build()
        # That of a PyTorchDataLoader comes with its processes.
        epoch.look_into(found[-1] if isinstance(found, tuple) else found)
        return found

    batches = iter(loader)
    builds._get_pipeline = built  # noqa: SLF001 - as above
    try:
        first = next(batches, batches)
    finally:
        vars(builds).pop("_get_pipeline", None)
    if first is not batches:
        yield first
        yield from batches


def _nodes(coroutine: Any) -> list[Any]:
    """The nodes of a pipeline's stages, from its sources on."""
    todo = [inspect.getcoroutinelocals(coroutine)["node"]]
    found: dict[int, Any] = {}
    while todo:
        node = todo.pop()
        found.pop(id(node), None)  # farther upstream than where it was met before
        found[id(node)] = node
        todo += node.upstream
    return list(found.values())[::-1]


def _hook_cells(coroutine: Any) -> list[Any]:
    """Where the functions of a stage that did not begin find its list of hooks."""
    found: list[Any] = []
    seen: set[int] = set()
    todo = list(inspect.getcoroutinelocals(coroutine).values())
    while todo:
        one = todo.pop()
        if not isinstance(one, FunctionType) or id(one) in seen:
            continue
        seen.add(id(one))
        for name, cell in zip(one.__code__.co_freevars, one.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # it is not filled yet
                continue
            if name in HOOKS and isinstance(content, list) and cell not in found:
                found.append(cell)
            todo.append(content)
    return found


def _time_threads(executor: Any) -> None:
    """Let each task note what its work takes in a thread of `executor`."""
    if type(executor) is not ThreadPoolExecutor or "submit" in vars(executor):
        return  # another interpreter, or somebody else's
    itself = ref(executor)  # else it would keep itself alive

    def submit(work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        task = _task.get()
        chosen = work if task is None else partial(task.run, work)
        return ThreadPoolExecutor.submit(itself(), chosen, *args, **kwargs)  # type: ignore[arg-type]  # it lives: it was called

    vars(executor)["submit"] = submit
