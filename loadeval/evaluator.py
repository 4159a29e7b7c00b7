"""LoaderEvaluator: the object that a user wraps a loader with."""

from __future__ import annotations

import time
import warnings
import weakref
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning, UsageError
from loadeval.probes import NAMES, probes_named
from loadeval.runlog.writer import metrics_of, span_of, summary_of, write_metrics
from loadeval.runtime.adapter import length_of
from loadeval.runtime.measurement import Measurement, free_name
from loadeval.runtime.metrics_thread import Probes
from loadeval.runtime.settings import DEFAULT_CACHE_BYTES, DEFAULT_PROBE_INTERVAL_S, Settings

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from typing_extensions import Self

    from loadeval.analysis.headroom import Headroom
    from loadeval.runlog.model import Run
    from loadeval.runtime.alternate import Enough
    from loadeval.runtime.replay import BatchCache

OWN = frozenset({"_loader", "_measurement", "_closer"})
"""What a LoaderEvaluator keeps in itself."""


class LoaderProxy:
    """Has every attribute of `_loader`, to read and to write, beside its own.

    Its own are those that its class has, and those named OWN.
    """

    _loader: Any
    _measurement: Measurement

    def __bool__(self) -> bool:
        return bool(self._loader)

    def __getattr__(self, name: str) -> Any:
        if _is_special(name) or name in OWN:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name == "dataset":
            self._measurement.adapter.dataset_was_read()
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN or _is_special(name) or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            setattr(self._loader, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._loader, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self._loader)})


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class DALINames:
    """What a measurement was made with, and its figures, under the names of DALI's class."""

    _loader: Any
    _measurement: Measurement

    if TYPE_CHECKING:

        def _measure_anew(self, settings: Settings) -> None: ...

    @property
    def dataloader(self) -> Any:
        """The wrapped loader."""
        return self._loader

    @property
    def mode(self) -> str:
        """Which mode it has, "log", "replay" or "alternate"; another one begins a new run."""
        return self._measurement.settings.mode

    @mode.setter
    def mode(self, mode: Any) -> None:
        if mode != self.mode:
            self._measure_anew(replace(self._measurement.settings, mode=mode))

    @property
    def num_cached_batches(self) -> int:
        """How many batches replay was asked to keep; another number begins a new replay."""
        return self._measurement.settings.num_cached_batches

    @num_cached_batches.setter
    def num_cached_batches(self, batches: int) -> None:
        settings = replace(self._measurement.settings, num_cached_batches=batches)
        if self.mode == "replay" and batches != self.num_cached_batches:
            self._measure_anew(settings)
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
        """The waits of all epochs, in seconds."""
        found: list[float] = self.get_metrics().get("batch_times", [])
        return found

    @property
    def start_time(self) -> float | None:
        """When the first batch was asked for, in seconds since 1970; None before that."""
        started_s, _ = span_of(self._measurement.recorder.run())
        return started_s

    @property
    def end_time(self) -> float | None:
        """When the last epoch was at its end, in seconds since 1970; None before that."""
        _, ended_s = span_of(self._measurement.recorder.run())
        return ended_s

    @property
    def cached_batches(self) -> list[Any]:
        """The kept batches; none in log mode."""
        return [] if self._measurement.cache is None else self._measurement.cache.batches

    @property
    def cache_ready(self) -> bool:
        """Whether batches are kept."""
        return self._measurement.cache is not None

    def get_metrics(self) -> dict[str, Any]:
        """The figures of DALI's class, times in seconds, over all epochs; {} before any batch.

        Keys: mode, total_batches, total_time, avg_batch_time, min_batch_time, max_batch_time,
        batch_times (the waits), cached_batches, cache_ready.
        """
        return metrics_of(self._measurement.recorder.run())

    def save_metrics(self, filename: str | os.PathLike[str] | None = None) -> None:
        """Write `get_metrics()`, and the whole run beside it, as JSON that `read_run` reads.

        Without a filename here or in `metrics_file` nothing is written, with a warning.
        """
        path = filename if filename is not None else self.metrics_file
        if path is None:
            warnings.warn(
                "the metrics were not saved: no filename was given, here or as metrics_file=",
                LoadevalWarning,
                stacklevel=2,
            )
            return
        write_metrics(self._measurement.recorder.run(), path)

    def print_summary(self) -> None:
        """Print the wrapped loader and the figures of `get_metrics()`, in a few lines."""
        dataset = getattr(self._loader, "dataset", None)
        length = None if dataset is None else length_of(dataset)
        text = summary_of(self._measurement.recorder.run(), length)
        print(text)  # noqa: T201 - what the method is for


class LoaderEvaluator(DALINames, LoaderProxy):
    """Stands in for a data loader in a training loop, and times every batch.

    In `log` mode it serves the loader as it is. In `replay` mode it keeps
    `num_cached_batches` batches while it is made, stops the loader's workers, and serves the
    kept batches again and again, as if loading were free. In `alternate` mode it does both in
    one run: blocks of real loading, and blocks of batches that it prefetched, in random
    order; every batch is served once. With workers some come a few places earlier or later than by
    itself; without, a dataset and a training step that draw from one random generator draw other
    numbers. `headroom()` has the result.

    It has the loader's length, and every attribute of it, to read and to write, beside its
    own. A copy, or a pickle, measures on its own, and logs beside the original's file.

    Args:
        loader: any iterable, or a callable that returns an iterator (each epoch calls it).
        mode: "log", "replay" or "alternate".
        num_cached_batches: how many batches replay keeps.
        metrics_file: where `save_metrics()` writes; also written by `close()` when it does
            not exist by then.
        log_file: a run log, written while the run goes on (docs/run-log.md). Without one the
            run is held in memory, at most 40 bytes a batch.
        warmup: batches at the start of each epoch that the steady part leaves out; by default
            the loader's prefetch depth + 1, and one more in replay.
        samples: a callable from a batch to its number of samples; by default the first
            dimension of the first array in it.
        unit: what the samples are called in reports: images, videos.
        max_cache_bytes: more than this is not kept for replay (CacheError).
        name: what the run is called in reports; by default the log file's name.
        replay_after: how many batches of the loader itself `replay` serves, and measures, before
            the kept ones.
        epoch_batches: batches in a replayed epoch, or math.inf; by default the loader's
            length, or the kept batches once when it has none.
        pairs: how many pairs of blocks `alternate` measures; by default as many as there are.
        batches: after how many batches `alternate` begins no new pair. What is served after
            the last pair is served by the loader itself, unmeasured and at no cost.
        precision: `alternate` ends once half of the interval is narrower than this share of the
            speed-up, 0.05 say; not in distributed training, where all ranks must agree.
        seed: of the order of the blocks.
        probes: what is read of the machine beside the batches: "gpu", "host", or objects with the
            methods of `loadeval.runtime.metrics_thread.Probe`; () for nothing.
        probe_interval_s: seconds between two readings.
        annotate: "nvtx" or "torch": waits and steps are named ranges, `loadeval.wait real` say,
            which Nsight Systems or torch's profiler shows (docs/export.md).
        every: for runs of months: N keeps the detail of one batch in N, and exact totals of all
            (docs/run-log.md). In `log` mode alone.
        overwrite: whether `log_file` may replace a file.
        dataloader: another name for `loader`, as in DALI's class of the same name.
        clock: a clock in nanoseconds, for tests.

    Raises:
        UsageError: an argument cannot be used (a ValueError).
        CacheError: no batch could be kept, or they are larger than `max_cache_bytes`.
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
        precision: float | None = None,
        seed: int = 0,
        probes: Iterable[Any] = NAMES,
        probe_interval_s: float = DEFAULT_PROBE_INTERVAL_S,
        annotate: str | None = None,
        every: int = 1,
        overwrite: bool = False,
        dataloader: Any = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        if (loader is None) is (dataloader is None):
            raise UsageError("expected one loader to wrap, as the first argument")
        settings = Settings(
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
            precision=precision,
            seed=seed,
            probes=tuple(probes),
            probe_interval_s=probe_interval_s,
            annotate=annotate,  # type: ignore[arg-type]  # checked there
            every=every,
            clock=clock,
        )
        self._wrap(dataloader if loader is None else loader, settings)

    def _wrap(self, loader: Any, settings: Settings, cache: BatchCache | None = None) -> None:
        self._loader = loader
        probes = Probes(probes_named(settings.probes), settings.probe_interval_s)
        self._measurement = Measurement(loader, settings, cache, _enough(settings), probes)
        self._closer = weakref.finalize(self, self._measurement.close)

    def _measure_anew(self, settings: Settings) -> None:
        if settings.log_file is not None:
            settings = replace(settings, log_file=free_name(settings.log_file), overwrite=False)
        self._measurement.recorder.expects_batches = False
        self.close()
        self._wrap(self._loader, settings)

    def __len__(self) -> int:
        return self._measurement.length(self._loader)

    def __iter__(self) -> Iterator[Any]:
        refusal = self._measurement.adapter.refusal(self._loader, self.mode)
        if refusal is not None:
            raise UsageError(refusal)
        return self._measurement.epoch(self._loader, self)

    def __repr__(self) -> str:
        return f"LoaderEvaluator({self._loader!r}, mode={self.mode!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        settings, cache = self._measurement.settings, self._measurement.cache
        return _restored, (type(self), self._loader, settings, cache)

    def recorded(self) -> Run:
        """Everything measured so far, of all epochs; read from the log where there is one."""
        return self._measurement.recorder.run()

    def headroom(self) -> Headroom:
        """How much faster training would be if loading were free, measured in `alternate` mode.

        Raises UsageError in another mode: use `compare`, on two runs.
        """
        from loadeval.analysis.headroom import headroom  # noqa: PLC0415 - training needs no analysis

        return headroom(self.recorded())

    def close(self) -> None:
        """End the measurement: complete the log, and the metrics file if one was named.

        Called by itself at the latest when the interpreter exits. May be called again. What
        is iterated afterwards is served by the loader itself, unmeasured.
        """
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


def _enough(settings: Settings) -> Enough | None:
    """What ends an alternating run once its speed-up is known as precisely as was asked for."""
    if settings.precision is None:
        return None
    from loadeval.analysis.intervals import is_precise  # noqa: PLC0415 - training needs no analysis

    return partial(is_precise, settings.precision)


def _restored(
    kind: type[LoaderEvaluator], loader: Any, settings: Settings, cache: BatchCache | None
) -> LoaderEvaluator:
    if settings.log_file is not None:
        settings = replace(settings, log_file=free_name(settings.log_file), overwrite=False)
    copy = kind.__new__(kind)
    copy._wrap(loader, settings, cache)  # noqa: SLF001 - its own class
    copy._measurement.recorder.expects_batches = False  # noqa: SLF001 - who copies may not iterate
    return copy
