"""The attributes and methods of the LoaderEvaluator that comes with NVIDIA DALI."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.runlog.metrics import metrics_of, span_of, summary_of, write_metrics
from loadeval.runtime.adapter import length_of

if TYPE_CHECKING:
    import os

    from loadeval.runtime.measurement import Measurement
    from loadeval.runtime.settings import Settings


class DALINames:
    """What a measurement was made with, and its figures, under the names of DALI's class."""

    _loader: Any
    _measurement: Measurement

    def _measure_anew(self, settings: Settings) -> None:
        """Begin another run, with other settings; see LoaderEvaluator."""
        raise NotImplementedError

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
        started_s, _ = span_of(self._measurement.recording.run())
        return started_s

    @property
    def end_time(self) -> float | None:
        """When the last epoch was at its end, in seconds since 1970; None before that."""
        _, ended_s = span_of(self._measurement.recording.run())
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
        return metrics_of(self._measurement.recording.run())

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
        write_metrics(self._measurement.recording.run(), path)

    def print_summary(self) -> None:
        """Print the wrapped loader and the figures of `get_metrics()`, in a few lines."""
        dataset = getattr(self._loader, "dataset", None)
        length = None if dataset is None else length_of(dataset)
        text = summary_of(self._measurement.recording.run(), length)
        print(text)  # noqa: T201 - what the method is for
