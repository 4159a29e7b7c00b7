"""What each operator of a Ray dataset does while it is iterated, by Ray's own statistics.

Ray counts what operators do by block, in whichever process they run, and what its iterator does by
batch, in this process. Ray 2.60 reports both at any time, for the current or the last execution.
For a shard that `streaming_split` made, the actor that coordinates the shards reports them.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray.data.dataset import MaterializedDataset

from loadeval import OperatorTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ITERATOR = {
    "get blocks": "get_time",
    "make batches": "next_time",
    "format": "format_time",
    "collate": "collate_time",
    "finalize": "finalize_batch_time",
}
"""What the iterator does for each batch, in the training process, and where Ray counts it."""
EVERY_NS = 1_000_000_000
"""How often Ray is asked; one reading takes 0.4 to 1.5 ms."""
LONGEST_S = 1.0
"""How long to wait for the last statistics of a shard, which come from another process."""


class Seen(NamedTuple):
    """What an operator has done in one execution, or since Ray counts; `of` says in which."""

    of: object
    tasks: int
    task_ns: int
    cpu_ns: int | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Where to ask for the statistics of one loader: its dataset's, or its shard's."""

    iterator: Any

    def ask(self) -> Any:
        """A summary, or a reference to what a summary can be made from."""
        dataset = getattr(self.iterator, "_base_dataset", None)
        if dataset is not None:
            # The public one leaves out what the iterator did, once an epoch is over.
            summary = getattr(dataset, "_get_stats_summary", dataset.get_stats_summary)
            return summary()
        return self.iterator._coord_actor.stats.remote()  # noqa: SLF001 - it has no public name

    def answered(self, asked: Any, *, wait: bool) -> dict[str, Seen] | None:
        """The statistics in `asked`, by operator; None if they are not there yet."""
        if isinstance(asked, ray.ObjectRef):
            if not ray.wait([asked], timeout=LONGEST_S if wait else 0)[0]:
                return None
            asked = ray.get(asked).to_summary()
            own: Any = self.iterator._iter_stats.to_summary().iter_stats  # noqa: SLF001 - it has no public name
            return _of_operators(asked) | _of_iterator(own, None)
        dataset, own = self.iterator._base_dataset, asked.iter_stats  # noqa: SLF001 - it has no public name
        counts_on = isinstance(dataset, MaterializedDataset)
        return _of_operators(asked) | _of_iterator(
            own, None if counts_on else own.initialize_time.get()
        )


class RayStages:
    """Times the operators of the dataset that a loader iterates: see LoaderStages."""

    def __init__(self, iterator: Any) -> None:
        self._statistics = Statistics(iterator)
        self._epoch: int | None = None
        self._asked: Any = None
        self._reported: dict[str, Seen] = {}
        self._over = True
        self._last_ns = 0
        self._left: list[OperatorTimes] = []
        self._taking = threading.Lock()

    def begin(self, loader: Any) -> Callable[[int], object]:  # noqa: ARG002 - the dataset is known
        """See LoaderStages."""
        with self._taking:
            self._over = True  # so is the epoch before, which may have been broken off
            self._left += self._taken()
            self._reported = self._statistics.answered(self._statistics.ask(), wait=True) or {}
            self._epoch, self._over, self._asked = None, False, None
            self._last_ns = time.perf_counter_ns()
        return self._known

    def _known(self, epoch: int) -> None:
        self._epoch = epoch

    def until_the_end(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield `batches`; the epoch is over after the last of them."""
        try:
            yield from batches
        finally:
            self._over = True

    def take(self) -> list[OperatorTimes]:
        """See LoaderStages."""
        with self._taking:
            left, self._left = self._left, []
            return [*left, *self._taken()]

    def _taken(self) -> list[OperatorTimes]:
        epoch, over, now_ns = self._epoch, self._over, time.perf_counter_ns()
        if epoch is None or (not over and now_ns - self._last_ns < EVERY_NS):
            return []
        if over:
            self._epoch = None
        if over or self._asked is None:
            self._asked = self._statistics.ask()
        totals = self._statistics.answered(self._asked, wait=over)
        if totals is None:
            return []
        self._asked = None
        elapsed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        last, self._reported = self._reported, totals
        return [
            times
            for order, (name, seen) in enumerate(totals.items())
            if (times := _since(last.get(name), seen, epoch, (name, order), (now_ns, elapsed_ns)))
        ]

    def close(self) -> None:
        """Do nothing, for nothing was changed."""


def iterator_of(loader: Any) -> Any:
    """The iterator of the dataset that `loader` reads; None if Ray keeps it elsewhere."""
    todo, seen = [getattr(loader, "iterator_gen", None)], set()
    while todo:
        function = todo.pop()
        if not isinstance(function, FunctionType) or function in seen:
            continue
        seen.add(function)
        for cell in function.__closure__ or ():
            inside = cell.cell_contents
            if hasattr(inside, "_base_dataset") or hasattr(inside, "_coord_actor"):
                return inside
            todo += [inside, getattr(inside, "iterator_gen", None)]
    return None


def _of_operators(summary: Any) -> dict[str, Seen]:
    """What each operator has done, the source first."""
    seen: dict[str, Seen] = {}
    for parent in summary.parents:
        seen |= _of_operators(parent)
    for stats in summary.operators_stats:
        if stats.wall_time is None:  # it only passes blocks on
            continue
        wall, cpu = stats.wall_time.to_dict(), stats.cpu_time and stats.cpu_time.to_dict()
        cpu_ns = None if cpu is None else int(cpu["sum"] * 1e9)
        seen[stats.operator_name] = Seen(
            stats.earliest_start_time, wall["count"], int(wall["sum"] * 1e9), cpu_ns
        )
    return seen


def _of_iterator(summary: Any, execution: object) -> dict[str, Seen]:
    """What the iterator has done, in the order in which it does it."""
    taken_s = {name: getattr(summary, field).get() for name, field in ITERATOR.items()}
    return {
        name: Seen(execution, summary.batches_total, int(value * 1e9), None)
        for name, value in taken_s.items()
        if value
    }


def _since(
    reported: Seen | None,
    seen: Seen,
    epoch: int,
    operator: tuple[str, int],
    time_ns: tuple[int, int],
) -> OperatorTimes | None:
    """What was done since `reported`; None if nothing was."""
    before = reported if reported is not None and reported.of == seen.of else Seen(seen.of, 0, 0, 0)
    tasks, task_ns = seen.tasks - before.tasks, seen.task_ns - before.task_ns
    if tasks <= 0:
        return None
    cpu_ns = None if seen.cpu_ns is None else seen.cpu_ns - (before.cpu_ns or 0)
    return OperatorTimes(epoch, *operator, *time_ns, tasks, task_ns, task_ns, cpu_ns)
