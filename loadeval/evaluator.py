"""LoaderEvaluator: the object that a user wraps a loader with."""

from __future__ import annotations

import time
import warnings
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loadeval.data.dali import metrics_of, span_of, summary_of, write_metrics
from loadeval.errors import LoadevalWarning, UsageError
from loadeval.probes import NAMES, probes_named
from loadeval.runtime.adapter import IterableAdapter, check_is_loader, length_of
from loadeval.runtime.background.metrics_thread import Probes
from loadeval.runtime.measurement import Measurement, free_name, place_among_ranks
from loadeval.runtime.registry import adapter_for
from loadeval.runtime.settings import (
    DEFAULT_CACHE_BYTES,
    DEFAULT_PROBE_INTERVAL_S,
    EvaluatorSettings,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from typing_extensions import Self

    from loadeval.core.replay import BatchCache
    from loadeval.data.run import Run
    from loadeval.estimate.gap import Gap
    from loadeval.report.report import Report
    from loadeval.track import Tracking

OWN_ATTRIBUTES = frozenset({"_loader", "_measurement", "_closer", "_assigned"})
"""A LoaderEvaluator stores these attributes itself."""


class LoaderProxy:
    """Reads, sets and deletes attributes of `_loader`, except its own.

    Its own are the attributes of its class, and those named in OWN_ATTRIBUTES.
    """

    _loader: Any
    _measurement: Measurement

    def __bool__(self) -> bool:
        return bool(self._loader)

    def __getattr__(self, name: str) -> Any:
        if _is_dunder(name) or name in OWN_ATTRIBUTES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name == "dataset":
            with self._measurement.guard:
                self._measurement.adapter.dataset_was_read()
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN_ATTRIBUTES or _is_dunder(name) or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            setattr(self._loader, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._loader, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self._loader)})


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class DALICompatible(LoaderProxy):
    """Settings and results under the names that DALI's LoaderEvaluator gives them.

    All can be set, as there. A result that was set is what is read until the next epoch begins.
    """

    _assigned: dict[str, Any]

    if TYPE_CHECKING:

        def _restart(
            self, settings: EvaluatorSettings, loader: Any = None, cache: BatchCache | None = None
        ) -> None: ...

    def recorded(self) -> Run:
        """Everything measured so far, in all epochs, read from the log if there is one."""
        return self._measurement.recorder.run()

    @property
    def dataloader(self) -> Any:
        """The wrapped loader. Setting another one starts a new run."""
        return self._loader

    @dataloader.setter
    def dataloader(self, loader: Any) -> None:
        if type(adapter_for(loader)) is IterableAdapter:
            check_is_loader(loader)
        if loader is not self._loader:
            self._restart(self._measurement.settings, loader)

    @property
    def mode(self) -> str:
        """The mode, "log", "replay" or "alternate". Setting another mode starts a new run."""
        return self._measurement.settings.mode

    @mode.setter
    def mode(self, mode: Any) -> None:
        if mode != self.mode:
            self._restart(replace(self._measurement.settings, mode=mode))

    @property
    def num_cached_batches(self) -> int:
        """How many batches replay was asked to keep. Setting another number starts a new replay."""
        return self._measurement.settings.num_cached_batches

    @num_cached_batches.setter
    def num_cached_batches(self, batches: int) -> None:
        settings = replace(self._measurement.settings, num_cached_batches=batches)
        if self.mode == "replay" and batches != self.num_cached_batches:
            self._restart(settings)
        self._measurement.settings = settings

    @property
    def metrics_file(self) -> str | os.PathLike[str] | None:
        """Where `save_metrics()` writes."""
        return self._measurement.settings.metrics_file

    @metrics_file.setter
    def metrics_file(self, path: str | os.PathLike[str] | None) -> None:
        self._measurement.settings = replace(self._measurement.settings, metrics_file=path)

    @property
    def batch_times(self) -> list[float]:
        """The waits of all batches of all epochs, in seconds. Setting it to [] starts a new run."""
        waits = self._assigned.get("batch_times") or self.get_metrics().get("batch_times", [])
        return list(waits)

    @batch_times.setter
    def batch_times(self, times: Iterable[float]) -> None:
        waits = list(times)
        if waits:
            self._assigned["batch_times"] = waits
        else:
            self._restart(self._measurement.settings, cache=self._measurement.cache)

    @property
    def start_time(self) -> float | None:
        """When the first batch was requested, in seconds since 1970; None before that."""
        if "start_time" not in self._assigned:
            return span_of(self.recorded())[0]
        time_s: float | None = self._assigned["start_time"]
        return time_s

    @start_time.setter
    def start_time(self, time_s: float | None) -> None:
        self._assigned["start_time"] = time_s

    @property
    def end_time(self) -> float | None:
        """When the last epoch ended, in seconds since 1970; None before that."""
        if "end_time" not in self._assigned:
            return span_of(self.recorded())[1]
        time_s: float | None = self._assigned["end_time"]
        return time_s

    @end_time.setter
    def end_time(self, time_s: float | None) -> None:
        self._assigned["end_time"] = time_s

    @property
    def cached_batches(self) -> list[Any]:
        """The batches that replay keeps; empty in the other modes.

        Setting it in `replay` mode starts a new run, which replays those batches.
        """
        cache = self._measurement.cache
        batches: list[Any] = self._assigned.get("cached_batches", cache.batches if cache else [])
        return batches

    @cached_batches.setter
    def cached_batches(self, batches: Iterable[Any]) -> None:
        kept = list(batches)
        if self.mode != "replay":
            self._assigned["cached_batches"] = kept
            return
        if not kept:
            raise UsageError(
                "cached_batches is empty; expected batches to replay; set mode='log' to serve the "
                "loader's own"
            )
        from loadeval.core.replay import fill  # noqa: PLC0415 - this mode alone

        settings, counter = self._measurement.settings, self._measurement.counter
        cache = fill(adapter_for(kept), kept, counter, len(kept), settings.max_cache_bytes)
        self._restart(settings, cache=cache)

    @property
    def cache_ready(self) -> bool:
        """Whether replay has its batches."""
        is_ready: bool = self._assigned.get("cache_ready", self._measurement.cache is not None)
        return is_ready

    @cache_ready.setter
    def cache_ready(self, is_ready: bool) -> None:
        self._assigned["cache_ready"] = is_ready

    def get_metrics(self) -> dict[str, Any]:
        """The metrics of DALI's class over all epochs, times in seconds; {} before the first batch.

        Keys: mode, total_batches, total_time, avg_batch_time, min_batch_time, max_batch_time,
        batch_times (the waits), cached_batches, cache_ready.
        """
        return metrics_of(self.recorded())

    def save_metrics(self, filename: str | os.PathLike[str] | None = None) -> None:
        """Write `get_metrics()` and the whole run as JSON, which `read_run` reads.

        Without a filename, here or in `metrics_file`, it only warns.
        """
        path = filename if filename is not None else self.metrics_file
        if path is None:
            warnings.warn(
                "the metrics were not saved: no filename; pass one to save_metrics(), or set "
                "metrics_file=",
                LoadevalWarning,
                stacklevel=2,
            )
            return
        write_metrics(self.recorded(), self._measurement.recorder.lines(), path)

    def print_summary(self) -> None:
        """Print the wrapped loader and `get_metrics()` in a few lines."""
        dataset = getattr(self._loader, "dataset", None)
        length = None if dataset is None else length_of(dataset)
        print(summary_of(self.recorded(), length))  # noqa: T201 - what the method is for


class LoaderEvaluator(DALICompatible):
    """Wraps a data loader, and times every batch of the training loop that iterates it.

    `log` mode serves the loader's batches unchanged. `replay` mode reads
    `num_cached_batches` batches when it is created, stops the loader's workers, and serves
    these batches over and over, as if loading were free. `alternate` mode measures both in one
    run: blocks of real loading and blocks of prefetched batches, in random order. It serves
    every batch once, but with workers most come a few places earlier, and some up to two blocks
    later; without workers a dataset and a training step that share a random generator draw
    different numbers than without loadeval. `headroom()` returns the result of an alternating run.

    `len()` and all other attributes are the loader's. A copy or an unpickled evaluator measures
    separately, and writes its log to a file next to the original's.

    Args:
        loader: any iterable, or a callable that returns an iterator and is called each epoch.
        mode: "log", "replay" or "alternate".
        num_cached_batches: how many batches replay keeps.
        metrics_file: where `save_metrics()` writes. `close()` writes it too, if the file does
            not exist yet.
        log_file: a run log, written during the run (docs/run-log.md). Without one the run stays
            in memory, at most 40 bytes per batch; stages take some 200 more.
        warmup: batches at the start of each epoch that are not part of the steady state; by
            default the loader's prefetch depth + 1, and one more in `replay` mode.
        samples: a callable that returns a batch's number of samples; by default the first
            dimension of its first array.
        unit: what reports call the samples, such as "images".
        max_cache_bytes: the most memory that kept or prefetched batches may take. Replay raises
            CacheError beyond it; an ideal block gets shorter. Of batches on a GPU an ideal block
            takes no more than half of its free memory either.
        name: what reports call the run; by default the log file's name.
        replay_after: in `replay` mode, how many real batches to serve and measure first.
        epoch_batches: in `replay` mode, the batches in an epoch, or math.inf; by default the
            loader's length, or each kept batch once if the loader has no length.
        pairs: in `alternate` mode, how many pairs of blocks to count; by default as many as
            training has batches for.
        batches: measure no more after this many batches; in `alternate` mode, start no new pair
            then. The loader itself serves the rest, unmeasured and without overhead.
        seed: seeds the random order of blocks.
        probes: the system metrics to record: "gpu", "host", or objects with the methods of
            `loadeval.runtime.background.metrics_thread.Probe`; () records none. With `stages`
            also the threads of this process.
        probe_interval_s: seconds between two readings of the system metrics.
        annotate: "nvtx" or "torch" marks waits and steps as named ranges, such as
            `loadeval.wait real`, for Nsight Systems or torch's profiler (docs/export.md).
        stages: whether to time what happens inside the loader: fetch, transforms, collate,
            hand-over (docs/inside-the-loader.md); by default in `alternate` mode alone, there in
            every third pair of blocks, which does not count, and at the starts of some epochs.
        track: "mlflow", "wandb" or "tensorboard" passes throughput and waits on to that tracker
            every 10 seconds, and the lost share of an alternating run at the end
            (docs/howto/dashboards.md). A function is called, on another thread, with the batches
            so far and a dict of the scalars. In distributed training only rank 0 tracks.
        redact: whether the log has placeholders for paths, host and user names, and the texts of
            exceptions (SECURITY.md).
        overwrite: whether `log_file` may replace an existing file.
        dataloader: another name for `loader`, which DALI's LoaderEvaluator uses.
        clock: a clock in nanoseconds, for tests.

    Raises:
        UsageError: an argument is not valid (a ValueError).
        CacheError: replay got no batch, or the batches take more than `max_cache_bytes`.
        RunLogError: `log_file` exists, or cannot be written.
    """

    def __init__(  # noqa: PLR0913 - options, nearly all by keyword
        self,
        loader: Any = None,
        mode: str = "log",
        num_cached_batches: int = 20,
        metrics_file: str | os.PathLike[str] | None = None,
        *,
        log_file: str | os.PathLike[str] | None = None,
        warmup: int | None = None,
        samples: Callable[[Any], int | None] | None = None,
        unit: str = "samples",
        max_cache_bytes: int = DEFAULT_CACHE_BYTES,
        name: str | None = None,
        epoch_batches: float | None = None,
        replay_after: int = 0,
        pairs: int | None = None,
        batches: int | None = None,
        seed: int = 0,
        probes: Iterable[Any] = NAMES,
        probe_interval_s: float = DEFAULT_PROBE_INTERVAL_S,
        annotate: str | None = None,
        stages: bool | None = None,
        track: str | Callable[[int, dict[str, float]], object] | None = None,
        redact: bool = False,
        overwrite: bool = False,
        dataloader: Any = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        if (loader is None) is (dataloader is None):
            raise UsageError("expected one loader: LoaderEvaluator(loader)")
        settings = EvaluatorSettings(
            mode=mode,  # type: ignore[arg-type]  # checked there
            num_cached_batches=num_cached_batches,
            metrics_file=metrics_file,
            log_file=log_file,
            warmup=warmup,
            samples=samples,
            unit=unit,
            max_cache_bytes=max_cache_bytes,
            name=name,
            epoch_batches=epoch_batches,
            replay_after=replay_after,
            overwrite=overwrite,
            pairs=pairs,
            batches=batches,
            seed=seed,
            probes=tuple(probes),
            probe_interval_s=probe_interval_s,
            annotate=annotate,  # type: ignore[arg-type]  # checked there
            stages=stages,
            redact=redact,
            track=track,  # type: ignore[arg-type]  # checked there
            clock=clock,
        )
        self._wrap(dataloader if loader is None else loader, settings)

    def _wrap(
        self, loader: Any, settings: EvaluatorSettings, cache: BatchCache | None = None
    ) -> None:
        self._loader, self._assigned = loader, {}
        chosen = probes_named(settings.probes, threads=settings.looks_inside)
        probes = Probes(chosen, settings.probe_interval_s)
        self._measurement = Measurement(loader, settings, cache, probes, _tracking(settings))
        self._closer = weakref.finalize(self, self._measurement.close)

    def _restart(
        self, settings: EvaluatorSettings, loader: Any = None, cache: BatchCache | None = None
    ) -> None:
        settings = _with_free_log_file(settings)
        self._measurement.recorder.expects_batches = False
        self.close()
        self._wrap(self._loader if loader is None else loader, settings, cache)

    def __len__(self) -> int:
        return self._measurement.length(self._loader)

    def __iter__(self) -> Iterator[Any]:
        refusal = None
        with self._measurement.guard:
            refusal = self._measurement.adapter.refusal(self._loader, self.mode)
        if refusal is not None:
            raise UsageError(refusal)
        self._assigned.clear()
        return self._measurement.epoch(self._loader, self)

    def __repr__(self) -> str:
        return f"LoaderEvaluator({self._loader!r}, mode={self.mode!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        settings, cache = self._measurement.settings, self._measurement.cache
        settings = replace(settings, track=None)  # the tracker's run is of the original
        return _restored, (type(self), self._loader, settings, cache)

    def headroom(self) -> Gap:
        """How much faster training would be if loading were free; for `alternate` mode.

        In `log` mode it has what training waits, and no speed-up. `loadeval compare` compares a
        logged run with a replayed one.
        """
        from loadeval.estimate.gap import gap  # noqa: PLC0415 - training needs no analysis

        return gap(self.recorded())

    def report(self) -> Report:
        """All that is known so far: print it; `plot` draws it, `write_page` writes a page.

        Raises UsageError in `replay` mode.
        """
        from loadeval.report.report import report_of_runs  # noqa: PLC0415 - training needs no report

        return report_of_runs([self.recorded()])

    def close(self) -> None:
        """Stop measuring; finish the log, and the metrics file if there is to be one.

        Runs automatically when the evaluator is garbage-collected or Python exits; calling it
        twice is fine. Afterwards the loader itself serves all batches, unmeasured.
        """
        with self._measurement.guard:
            self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _with_free_log_file(settings: EvaluatorSettings) -> EvaluatorSettings:
    if settings.log_file is None:
        return settings
    return replace(settings, log_file=free_name(settings.log_file), overwrite=False)


def _tracking(settings: EvaluatorSettings) -> Tracking | None:
    """What passes the run on to a tracker; None where that was not asked for, or another rank does.

    Raises UsageError where the tracker's package is not installed.
    """
    if settings.track is None or place_among_ranks().get("rank"):
        return None
    from loadeval.track import Tracking  # noqa: PLC0415 - few runs are tracked

    return Tracking(settings.track)


def _restored(
    kind: type[LoaderEvaluator], loader: Any, settings: EvaluatorSettings, cache: BatchCache | None
) -> LoaderEvaluator:
    copy = kind.__new__(kind)
    copy._wrap(loader, _with_free_log_file(settings), cache)  # noqa: SLF001 - its own class
    copy._measurement.recorder.expects_batches = False  # noqa: SLF001 - who copies may not iterate
    return copy
