"""The attributes and methods of the LoaderEvaluator that comes with NVIDIA DALI."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.measure.adapter import length_of
from loadeval.record.metrics import metrics_of, summary_of, write_metrics

if TYPE_CHECKING:
    import os

    from loadeval.measure.measurement import Measurement


class DALINames:
    """What a measurement was made with, and its figures, under the names of DALI's class."""

    _loader: Any
    _measurement: Measurement

    @property
    def dataloader(self) -> Any:
        """The wrapped loader."""
        return self._loader

    @property
    def mode(self) -> str:
        """Which mode it has, "log", "replay" or "alternate"."""
        return self._measurement.settings.mode

    @property
    def num_cached_batches(self) -> int:
        """How many batches replay was asked to keep."""
        return self._measurement.settings.num_cached_batches

    @property
    def metrics_file(self) -> str | os.PathLike[str] | None:
        """Where `save_metrics()` writes."""
        return self._measurement.settings.metrics_file

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
