"""What the stages of an SPDL pipeline tell: the batches they hold, their threads, their failures.

No adapter itself, and longer than one should be: it has what both adapters of SPDL need.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from spdl.pipeline import TaskStatsHook
from spdl.pipeline.config import get_default_hook_class
from spdl.pipeline.defs import (
    AggregateConfig,
    Collate,
    DisaggregateConfig,
    MergeConfig,
    PathVariantsConfig,
    PipeConfig,
)

from loadeval import LoadevalWarning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

QUEUE = 2
"""Items in the queue behind each stage but the sink."""


@dataclass(frozen=True, slots=True)
class Stages:
    """The configurations of a pipeline's stages, from source to sink; none where not known."""

    configs: list[Any]

    @classmethod
    def of_builder(cls, builder: Any) -> Stages:
        """What `builder` would build. Raises what its `get_config` raises."""
        config = builder.get_config()
        return cls([config.src, *config.pipes, config.sink])

    @classmethod
    def of_pipeline(cls, pipeline: Any) -> Stages:
        """What `pipeline` was built of, as long as it has not ended."""
        task = told(pipeline, "_impl._event_loop._coro")
        node = inspect.getcoroutinelocals(task).get("node") if inspect.iscoroutine(task) else None
        configs: list[Any] = []
        while node is not None:
            configs.insert(0, node.cfg)
            has_all = isinstance(node.cfg, MergeConfig)
            node = None if has_all or not node.upstream else node.upstream[0]
        return cls(configs)

    @property
    def continuous(self) -> bool:
        """Whether the pipeline goes on to another epoch when one ends."""
        return bool(self.configs) and getattr(self.configs[0], "continuous", False)

    @property
    def depth(self) -> int | None:
        """How many batches are ready when nobody takes any, at most."""
        if not self.configs:
            return None
        *stages, sink = self.configs
        return int(_ready(stages) + 1 + sink.buffer_size)

    @property
    def batch_size(self) -> int | None:
        """How many items the last aggregation collects."""
        for config in reversed(self.configs):
            if isinstance(config, AggregateConfig):
                return getattr(config.op, "n", None)
            if isinstance(config, DisaggregateConfig):
                return None
        return None

    @property
    def end_in_lists(self) -> bool:
        """Whether a batch is a list of items, as an aggregation makes it."""
        last = self.configs[-2] if self.configs else None
        return isinstance(last, AggregateConfig) and isinstance(last.op, Collate)

    @property
    def threads(self) -> int:
        """Threads for all items that stages without an executor of their own work on at once."""
        args = [one._args for one in _all(self.configs) if isinstance(one, PipeConfig)]  # noqa: SLF001 - the only place
        return max(1, sum(each.concurrency for each in args if each.executor is None))

    def forget_leftovers(self) -> None:
        """Empty the aggregations, which keep what an earlier epoch left, and share it."""
        for config in _all(self.configs):
            if isinstance(config, AggregateConfig):
                config.op.flush()


class FailureCount:
    """Counts the items that fail in a pipeline, by the hooks that SPDL has in it by default."""

    def __init__(self) -> None:
        self._hooks: list[TaskStatsHook] = []

    def hooks(self, stage: Any) -> list[Any]:
        """SPDL's `task_hook_factory`: its default hook, and one that counts if that does not."""
        kind: Any = get_default_hook_class()
        chosen = [] if kind is None else [kind(stage, interval=-1)]
        if not any(isinstance(hook, TaskStatsHook) for hook in chosen):
            chosen.append(TaskStatsHook(stage))
        self._hooks += [hook for hook in chosen if isinstance(hook, TaskStatsHook)]
        return chosen

    def tell(self) -> None:
        """Warn when there were any."""
        failed = sum(hook.num_tasks - hook.num_success for hook in self._hooks)
        if failed:
            warnings.warn(
                f"{failed} items failed in this epoch, and SPDL dropped them: batches are smaller "
                "or missing. Its log has the errors; max_failures= ends a pipeline at the first",
                LoadevalWarning,
                stacklevel=2,
            )


def told(owner: Any, path: str) -> Any:
    """An attribute that SPDL keeps to itself; None in a version that has it elsewhere."""
    try:
        return attrgetter(path)(owner)
    except AttributeError:
        return None


def _all(configs: Iterable[Any]) -> Iterator[Any]:
    for config in configs:
        yield config
        for inner in _inside(config):
            yield from _all(inner)


def _inside(config: Any) -> list[list[Any]]:
    """The chains of stages that are in one."""
    if isinstance(config, MergeConfig):
        return [[each.src, *each.pipes] for each in config.pipeline_configs]
    return [list(path) for path in config.paths] if isinstance(config, PathVariantsConfig) else []


def _ready(configs: Iterable[Any]) -> int:
    """Items that a chain of stages holds, with its queues, counted as its last one makes them."""
    ready, size = 0, 1
    for config in configs:
        if isinstance(config, AggregateConfig):
            size = getattr(config.op, "n", None) or 1
            ready = ceil(ready / size)
        elif isinstance(config, DisaggregateConfig):
            ready, size = (ready + 1) * size, 1
        ready += sum(QUEUE + _ready(inner) for inner in _inside(config)) + QUEUE
        ready += _held_by(config._args, config._type) if isinstance(config, PipeConfig) else 1  # noqa: SLF001 - as above
    return ready


def _held_by(args: Any, kind: Any) -> int:
    """Finished items that a stage holds when the queue behind it is full."""
    return int(args.concurrency + 2 * (kind.name == "OrderedPipe"))
