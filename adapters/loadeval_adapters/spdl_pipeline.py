"""spdl.pipeline: a Pipeline, which runs once, and a PipelineBuilder, which makes one an epoch."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from spdl.pipeline import Pipeline, PipelineBuilder

from loadeval import IterableAdapter, LoaderInfo, LoadevalWarning, UsageError
from loadeval_adapters.spdl_stages import FailureCount, Stages, told

if TYPE_CHECKING:
    from collections.abc import Iterator

ONCE = (
    "this spdl Pipeline has been run, and can be run only once; pass its PipelineBuilder, or a "
    "function that returns a new pipeline, such as lambda: builder.build(num_threads=8)"
)
_begun: WeakSet[Any] = WeakSet()


class SPDLPipelineAdapter(IterableAdapter):
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

    _lists_samples = False
    _has_told_threads = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The pipeline's items. Raises UsageError for a Pipeline that was run before."""
        if isinstance(loader, PipelineBuilder):
            return _built_and_run(loader)
        if not isinstance(loader, Pipeline):  # what runs one in a subprocess, say
            return iter(loader)
        continuous = Stages.of_pipeline(loader).continuous
        is_stopped = told(loader, "_impl._event_loop.is_stop_requested")
        if loader in _begun or (is_stopped is not None and is_stopped()):
            raise UsageError(ONCE)
        return iter(loader) if continuous else _run(loader)

    def samples(self, batch: Any) -> int | None:
        """The length of a list that an aggregation made; else as any batch's."""
        if self._lists_samples and isinstance(batch, list):
            return len(batch)
        return super().samples(batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, batch size and queues, as long as a pipeline has not ended.

        `prefetch_depth` counts the batches that are ready when nobody takes any, at most: those
        in the sink's buffer, and those in and between all stages, samples included.
        """
        info = super().describe(loader)
        if isinstance(loader, PipelineBuilder):
            stages = Stages.of_builder(loader)
            threads = self._told_threads(stages.threads)
        elif isinstance(loader, Pipeline):
            stages = Stages.of_pipeline(loader)
            threads = told(loader, "_impl._event_loop._executor._max_workers")
        else:
            return info
        self._lists_samples = self._lists_samples or stages.end_in_lists
        info = replace(info, prefetch_depth=stages.depth, batch_size=stages.batch_size)
        return replace(info, workers=threads)

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop the pipeline, whoever has started it."""
        super().release(loader, epoch)
        if isinstance(loader, Pipeline):
            loader.stop()

    def _told_threads(self, threads: int) -> int:
        if not self._has_told_threads:
            self._has_told_threads = True
            warnings.warn(
                "a PipelineBuilder does not tell with how many threads it is built: it gets "
                f"{threads}, one for each item in work; pass a function that returns a pipeline "
                "to choose another number",
                LoadevalWarning,
                stacklevel=6,  # where the LoaderEvaluator is made
            )
        return threads


def _run(pipeline: Any) -> Iterator[Any]:
    _begun.add(pipeline)
    try:
        pipeline.start()
    except RuntimeError:  # the user has started it, and will stop it
        yield from pipeline
    else:
        try:
            yield from pipeline
        finally:
            pipeline.stop()


def _built_and_run(builder: Any) -> Iterator[Any]:
    stages = Stages.of_builder(builder)
    stages.forget_leftovers()
    failures = FailureCount()
    yield from _run(builder.build(num_threads=stages.threads, task_hook_factory=failures.hooks))
    failures.tell()
