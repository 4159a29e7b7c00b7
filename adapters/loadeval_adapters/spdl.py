"""spdl.dataloader and spdl.pipeline: SPDL's data loaders, pipelines and pipeline builders."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from spdl.dataloader import CacheDataLoader, DataLoader, PyTorchDataLoader
from spdl.pipeline import Pipeline, PipelineBuilder, TaskStatsHook
from spdl.pipeline.config import get_default_hook_class
from spdl.pipeline.defs import (
    AggregateConfig,
    Collate,
    DisaggregateConfig,
    MergeConfig,
    PathVariantsConfig,
    PipeConfig,
    PipelineConfig,
    SinkConfig,
    SourceConfig,
)

from loadeval import IterableAdapter, LoaderInfo, LoadevalWarning, UsageError, Watch
from loadeval_adapters.notes import NotTimed
from loadeval_adapters.spdl_stages import SPDLStages, looked_into, until_the_end

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loadeval import LoaderStages
    from loadeval_adapters.spdl_stages import WatchedEpoch

QUEUE = 2
"""Items in the queue behind each stage but the sink."""
ONCE = (
    "this spdl Pipeline has been run, and can be run only once; pass its PipelineBuilder, "
    "or a function that returns a new pipeline, such as lambda: builder.build(num_threads=8)"
)
IN_ANOTHER_PROCESS = (
    "the stages of this SPDL pipeline are not timed: it runs in another process; the readings have "
    "the CPU use of the threads of this one"
)
OF_THREADS = {"num_workers": "num_threads", "prefetch_depth": "buffer_size"}
OF_PROCESSES = {
    "num_workers": "num_workers",
    "prefetch_depth": "prefetch_factor",
    "concurrency": "num_workers",
}
"""SPDL's names of settings, by loadeval's."""
ITERATORS = (Iterator, AsyncIterator)
_begun: WeakSet[Any] = WeakSet()


class ListAdapter(IterableAdapter):
    """The adapter of loaders whose batches may be lists of samples, which no aggregator joined."""

    distributions = ("spdl-core",)
    _lists_samples = False
    _stages: SPDLStages | None = None

    def _epoch_that_begins(self) -> WatchedEpoch | None:
        return None if self._stages is None else self._stages.epoch()

    def samples(self, batch: Any) -> int | None:
        """The length of a list of samples; any other batch is counted as usual."""
        if self._lists_samples and isinstance(batch, list):
            return len(batch)
        return super().samples(batch)


class SPDLAdapter(ListAdapter):
    """Knows the threads or processes of SPDL's data loaders, and their queues.

    Each epoch builds a pipeline, which is stopped when the epoch ends or is closed. Items that
    fail in it are dropped, and are no batches. SPDL logs an error for each; how many they were
    cannot be known, except for a PyTorchDataLoader, which drops whole batches: at the end of the
    epoch a LoadevalWarning tells how many its length has and the epoch had not.

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
    setting_names = OF_THREADS

    def epoch(self, loader: Any) -> Iterator[Any]:
        """A new pipeline's batches."""
        length, watch = super().describe(loader).length, self._epoch_that_begins()
        batches = super().epoch(loader)
        if watch is not None:
            batches = looked_into(loader, _building(loader), watch)
        if isinstance(loader, PyTorchDataLoader) and length is not None:
            return _counted(batches, length)
        return batches

    def stages(self, loader: Any) -> LoaderStages | None:
        """The stages of the pipelines it builds; stages in processes as they are seen from here."""
        if hasattr(_building(loader), "_get_pipeline"):
            self._stages = SPDLStages()
        return self._stages

    def describe(self, loader: Any) -> LoaderInfo:
        """Workers, queues, batch size, and the length of those that have one.

        `prefetch_depth` counts the batches that are ready when nobody takes any, at most: those
        in the buffer, and those in and between the stages, samples included.
        """
        info = super().describe(loader)
        if isinstance(loader, CacheDataLoader):
            if isinstance(loader.dl, (CacheDataLoader, DataLoader, PyTorchDataLoader)):
                info = replace(self.describe(loader.dl), backend=info.backend)
            return replace(info, length=loader.stop_after)
        threads, processes = _private(loader, "_num_threads"), _private(loader, "_num_workers")
        workers = threads or processes
        if workers is None or _private(loader, "_buffer_size") is None:
            return info
        stages = Stages.of_builder(_builder(loader, workers))
        info = replace(info, workers=workers, prefetch_depth=stages.depth)
        if processes is None:
            self._lists_samples = stages.end_in_lists
            names = {**self.setting_names, "concurrency": "num_threads"}
            return replace(info, batch_size=stages.batch_size, setting_names=names)
        context = _private(loader, "_mp_ctx")
        return replace(
            info,
            batch_size=_private(loader, "_sampler.batch_size"),
            start_method=None if context is None else context.get_start_method(),
            persistent_workers=False,
            setting_names=OF_PROCESSES,
        )

    def tunable(self, loader: Any) -> Mapping[str, Any]:
        """Threads and buffer; workers and `prefetch_factor` of a PyTorchDataLoader.

        Nothing of a subclass with a constructor of its own, and where the source is an iterator,
        which has only one epoch. Of a CacheDataLoader those of the loader that is cached.
        """
        if type(loader) is CacheDataLoader:
            return self.tunable(loader.dl)
        given = _arguments(loader)
        if not given or isinstance(given.get("src"), ITERATORS):
            return {}
        if "num_threads" in given:
            return {name: given[name] for name in ("num_threads", "buffer_size")}
        workers = given["num_workers"]
        return {"num_workers": workers, "prefetch_factor": given["buffer_size"] // workers}

    def reconfigured(self, loader: Any, settings: Mapping[str, Any]) -> Any:
        """Another loader of the same source or dataset, sampler and functions."""
        present = self.tunable(loader)
        if not present or not settings.keys() <= present.keys():
            return super().reconfigured(loader, settings)
        if isinstance(loader, CacheDataLoader):
            inside = self.reconfigured(loader.dl, settings)
            sizes = (loader.num_caches, loader.return_caches_after, loader.stop_after)
            return CacheDataLoader(inside, *sizes)
        chosen = _arguments(loader) | dict(settings)
        if settings and "prefetch_factor" in present:
            ahead = chosen.pop("prefetch_factor", present["prefetch_factor"])
            chosen["buffer_size"] = ahead * chosen["num_workers"]
        return type(loader)(**chosen)


def _arguments(loader: Any) -> dict[str, Any]:
    """Arguments of a loader like `loader`; empty if they are not known."""
    constructor: Any = next(kind for kind in type(loader).__mro__ if "__init__" in vars(kind))
    if constructor not in {DataLoader, PyTorchDataLoader}:
        return {}
    # SPDL keeps each argument as the attribute of its name, nearly all with an underscore.
    kept = {name.removeprefix("_"): argument for name, argument in vars(loader).items()}
    names = list(inspect.signature(constructor.__init__).parameters)[1:]
    return {name: kept[name] for name in names} if kept.keys() >= set(names) else {}


def _building(loader: Any) -> Any:
    """The loader that builds the pipelines of `loader`: itself, or the one that is cached."""
    while isinstance(loader, CacheDataLoader):
        loader = loader.dl
    return loader


def _counted(batches: Iterator[Any], length: int) -> Iterator[Any]:
    served = 0
    for batch in batches:
        served += 1
        yield batch
    if served < length:
        warnings.warn(
            f"SPDL served {served} of {length} batches in this epoch: it drops batches in which a "
            "sample fails, and logs the errors",
            LoadevalWarning,
            stacklevel=2,
        )


def _builder(loader: Any, workers: int) -> Any:
    """A builder with the same stages as `loader`, which do nothing."""
    order = _private(loader, "_output_order") or "input"
    builder: Any = PipelineBuilder().add_source([])
    for stage in ("_preprocessor", "_fetch_fn", "_batch_size", "_aggregator", "_transfer_fn"):
        chosen = _private(loader, stage)
        if not chosen:
            continue
        if stage == "_batch_size":
            builder.aggregate(chosen)
        elif stage == "_transfer_fn":
            builder.pipe(_same, output_order=order)
        else:
            builder.pipe(_same, concurrency=workers, output_order=order)
    return builder.add_sink(_private(loader, "_buffer_size"))


def _same(item: Any) -> Any:
    return item


class SPDLPipelineAdapter(ListAdapter):
    """Runs a Pipeline for one epoch, and builds a new one for each epoch of a PipelineBuilder.

    A Pipeline is stopped when its epoch ends, is broken off or released, unless the user has
    started it: then only `release` stops it. One with a continuous source has many epochs, runs
    on between them, and continues an epoch that was broken off.

    A builder does not tell its number of threads: it gets one for each item that its stages
    work on at once, with a warning that says so.

    SPDL drops items that fail, logs an error for each, and they are no batches. For a builder a
    LoadevalWarning at the end of the epoch tells how many they were, except those in subprocesses.
    For a Pipeline that the user has built it cannot be known.
    """

    watch = Watch(classes={"spdl.pipeline._pipeline": ("Pipeline",)}, inside=("spdl",))
    setting_names = OF_THREADS
    _has_threads_with_warning = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The pipeline's items. Raises UsageError for a Pipeline that was run before."""
        watch = self._epoch_that_begins()
        if isinstance(loader, PipelineBuilder):
            return _built_and_run(loader, watch)
        if not isinstance(loader, Pipeline):  # what runs one in a subprocess, say
            return iter(loader)
        continuous = Stages.of_pipeline(loader).continuous
        is_stopped = _private(loader, "_impl._event_loop.is_stop_requested")
        if loader in _begun or (is_stopped is not None and is_stopped()):
            raise UsageError(ONCE)
        if not continuous:
            return _run(loader, watch)
        if watch is None:
            return iter(loader)
        watch.look_into(loader)
        return until_the_end(iter(loader), watch)

    def stages(self, loader: Any) -> LoaderStages | None:
        """The stages of each pipeline, unless it runs in another process, or was started."""
        if not isinstance(loader, (Pipeline, PipelineBuilder)):
            return NotTimed(IN_ANOTHER_PROCESS)
        self._stages = SPDLStages()
        return self._stages

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, batch size and queues, as long as a pipeline has not ended.

        `prefetch_depth` counts the batches that are ready when nobody takes any, at most: those
        in the sink's buffer, and those in and between all stages, samples included.
        """
        info = super().describe(loader)
        if isinstance(loader, PipelineBuilder):
            stages = Stages.of_builder(loader)
            threads = _threads(loader, stages)
            if not isinstance(loader, ThreadedBuilder):
                self._warn_of_threads(threads)
        elif isinstance(loader, Pipeline):
            stages = Stages.of_pipeline(loader)
            threads = _private(loader, "_impl._event_loop._executor._max_workers")
        else:
            return info
        self._lists_samples = self._lists_samples or stages.end_in_lists
        return replace(
            info, workers=threads, prefetch_depth=stages.depth, batch_size=stages.batch_size
        )

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop the pipeline, whoever has started it."""
        super().release(loader, epoch)
        if isinstance(loader, Pipeline):
            loader.stop()

    def tunable(self, loader: Any) -> Mapping[str, Any]:
        """Threads and buffer of a builder; nothing of a Pipeline, which can be run only once.

        Nothing either of a builder whose source is an iterator, or with stages other than
        functions, `aggregate` to a number of items and `disaggregate`: two pipelines of it may
        share what changes when they run. Nor of a subclass, which may build differently.
        """
        if type(loader) not in {PipelineBuilder, ThreadedBuilder}:
            return {}
        stages = Stages.of_builder(loader)
        source, *pipes, sink = stages.configs
        is_once = isinstance(getattr(source, "source", None), ITERATORS)
        if is_once or not isinstance(source, SourceConfig) or not all(map(_is_own, pipes)):
            return {}
        return {"num_threads": _threads(loader, stages), "buffer_size": sink.buffer_size}

    def reconfigured(self, loader: Any, settings: Mapping[str, Any]) -> Any:
        """A ThreadedBuilder of the same source and functions."""
        present = self.tunable(loader)
        if not present or not settings.keys() <= present.keys():
            return super().reconfigured(loader, settings)
        chosen = {**present, **settings}
        source, *pipes, _ = Stages.of_builder(loader).configs
        sink: Any = SinkConfig(chosen["buffer_size"])
        config = PipelineConfig(source, [_unshared(pipe) for pipe in pipes], sink)
        return ThreadedBuilder(config, chosen["num_threads"])

    def _warn_of_threads(self, threads: int) -> None:
        if not self._has_threads_with_warning:
            self._has_threads_with_warning = True
            warnings.warn(
                "a PipelineBuilder does not tell with how many threads to build it: it gets "
                f"{threads}, one for each item that its stages work on at once; to choose another "
                "number, pass a function that returns a pipeline",
                LoadevalWarning,
                stacklevel=6,  # where the LoaderEvaluator is made
            )


class ThreadedBuilder(PipelineBuilder[Any, Any]):
    """Builds the pipeline of `config`, which loadeval runs with `num_threads` threads."""

    def __init__(self, config: Any, num_threads: int) -> None:
        super().__init__()
        self._config = config
        self.num_threads = num_threads

    def get_config(self) -> Any:
        """What `build` builds."""
        return self._config


def _threads(builder: Any, stages: Stages) -> int:
    return builder.num_threads if isinstance(builder, ThreadedBuilder) else stages.threads


def _is_own(config: Any) -> bool:
    if isinstance(config, AggregateConfig):
        return type(config.op) is Collate
    return isinstance(config, (PipeConfig, DisaggregateConfig))


def _unshared(config: Any) -> Any:
    """`config` with its own aggregation, since a shared one would mix up two pipelines' batches."""
    is_aggregation = isinstance(config, AggregateConfig)
    return replace(config, op=Collate(config.op.n)) if is_aggregation else config


def _run(pipeline: Any, watch: WatchedEpoch | None) -> Iterator[Any]:
    _begun.add(pipeline)
    if watch is not None:
        watch.look_into(pipeline)
    batches = pipeline if watch is None else until_the_end(pipeline, watch)
    try:
        pipeline.start()
    except RuntimeError:  # the user has started it, and will stop it
        yield from batches
    else:
        try:
            yield from batches
        finally:
            pipeline.stop()


def _built_and_run(builder: Any, watch: WatchedEpoch | None) -> Iterator[Any]:
    stages = Stages.of_builder(builder)
    stages.forget_leftovers()
    failures = FailureCount()
    threads = _threads(builder, stages)
    pipeline = builder.build(num_threads=threads, task_hook_factory=failures.hooks)
    yield from _run(pipeline, watch)
    failures.tell()


@dataclass(frozen=True, slots=True)
class Stages:
    """The configurations of a pipeline's stages, from source to sink; empty if not known."""

    configs: list[Any]

    @classmethod
    def of_builder(cls, builder: Any) -> Stages:
        """What `builder` would build. Raises what its `get_config` raises."""
        config = builder.get_config()
        return cls([config.src, *config.pipes, config.sink])

    @classmethod
    def of_pipeline(cls, pipeline: Any) -> Stages:
        """What `pipeline` was built of, as long as it has not ended."""
        task = _private(pipeline, "_impl._event_loop._coro")
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
        """How many batches are ready at most, when nobody takes any."""
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
        all_args = [config._args for config in _all(self.configs) if isinstance(config, PipeConfig)]  # noqa: SLF001 - SPDL has them only there
        return max(1, sum(args.concurrency for args in all_args if args.executor is None))

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
                f"{failed} items failed in this epoch, and SPDL dropped them, so batches are "
                "smaller or missing. SPDL logs the errors; max_failures= stops a pipeline instead",
                LoadevalWarning,
                stacklevel=2,
            )


def _private(owner: Any, path: str) -> Any:
    """A private attribute of SPDL; None in a version that keeps it elsewhere."""
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
    """The chains of stages inside a stage."""
    if isinstance(config, MergeConfig):
        return [[pipeline.src, *pipeline.pipes] for pipeline in config.pipeline_configs]
    return [list(path) for path in config.paths] if isinstance(config, PathVariantsConfig) else []


def _ready(configs: Iterable[Any]) -> int:
    """How many items of the last stage a chain of stages holds, with its queues."""
    ready, size = 0, 1
    for config in configs:
        if isinstance(config, AggregateConfig):
            size = getattr(config.op, "n", None) or 1
            ready = ceil(ready / size)
        elif isinstance(config, DisaggregateConfig):
            ready, size = (ready + 1) * size, 1
        ready += sum(QUEUE + _ready(inner) for inner in _inside(config)) + QUEUE
        ready += _held_by(config._args, config._type) if isinstance(config, PipeConfig) else 1  # noqa: SLF001 - it has no public name
    return ready


def _held_by(args: Any, kind: Any) -> int:
    """How many finished items a stage holds when the queue behind it is full."""
    return int(args.concurrency + 2 * (kind.name == "OrderedPipe"))
