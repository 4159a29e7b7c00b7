"""One measurement of one loader: its adapter, what it keeps, and what it has recorded."""

from __future__ import annotations

import math
import uuid
import warnings
from datetime import datetime, timezone
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.measure.cache import fill
from loadeval.measure.counting import Counter
from loadeval.measure.recording import Recording
from loadeval.measure.registry import adapter_for
from loadeval.measure.timing import logged, replayed
from loadeval.record.environment import describe_environment
from loadeval.record.metrics import write_metrics
from loadeval.record.model import CacheInfo, Header
from loadeval.record.runlog import RunLog

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from loadeval.measure.adapter import Adapter
    from loadeval.measure.cache import BatchCache
    from loadeval.measure.settings import Settings
    from loadeval.record.model import LoaderInfo


class Measurement:
    """Serves epochs of a loader, real or replayed, and records them.

    `cache` holds what an earlier measurement kept, for a copy that shall not read again.
    """

    def __init__(self, loader: Any, settings: Settings, cache: BatchCache | None = None) -> None:
        self.settings = settings
        self.adapter: Adapter = adapter_for(loader)
        info = self.adapter.describe(loader)
        self.counter = Counter(self.adapter, settings.samples)
        began = settings.clock()
        if cache is None and settings.mode == "replay":
            wanted, allowed = settings.num_cached_batches, settings.max_cache_bytes
            cache = fill(self.adapter, loader, self.counter, wanted, allowed)
        self.cache = cache
        fill_ns = settings.clock() - began
        self.epoch_batches = math.inf if cache is None else self._epoch_batches(info, cache)
        header = self._header(loader, info, fill_ns)
        log = None
        if settings.log_file is not None:
            log = RunLog(settings.log_file, header, overwrite=settings.overwrite)
        self.recording = Recording(header, log, settings.clock)

    def epoch(self, loader: Any, owner: object) -> Iterator[Any]:
        """One epoch, timed; real, or replayed when batches are kept. `owner` outlives it."""
        if self.recording.closed:
            warnings.warn(
                "this LoaderEvaluator is closed: the loader is served unmeasured. Make another "
                "one, or close it later, to measure this epoch",
                LoadevalWarning,
                stacklevel=3,
            )
            return self.adapter.epoch(loader)
        clock, recording = self.settings.clock, self.recording
        if self.cache is not None:
            begin = partial(recording.begin_epoch, "ideal")
            return replayed(self.cache, self.epoch_batches, begin, clock, recording.note, owner)
        began = clock()
        epoch = self.adapter.epoch(loader)
        opened_ns = clock() - began
        begin = partial(recording.begin_epoch, "real")
        return logged(epoch, begin, self.counter.best_for, clock, opened_ns, owner)

    def close(self) -> None:
        """End the recording; save the metrics if a file was named and is not there yet."""
        self.recording.close()
        path = self.settings.metrics_file
        if path is None or not self.recording.closed or not self.recording.batches:
            return
        if not Path(path).exists():
            try:
                write_metrics(self.recording.run(), path)
            except OSError as error:
                warnings.warn(
                    f"the metrics could not be saved to {path}: {error}",
                    LoadevalWarning,
                    stacklevel=2,
                )

    def _epoch_batches(self, info: LoaderInfo, cache: BatchCache) -> float:
        if self.settings.epoch_batches is not None:
            return self.settings.epoch_batches
        if info.length is not None:
            return info.length
        if not cache.exhausted:
            warnings.warn(
                "the loader has no length, so a replayed epoch has only the "
                f"{len(cache)} batches that are kept; pass epoch_batches=, a number of batches "
                "or math.inf, to replay longer epochs",
                LoadevalWarning,
                stacklevel=2,
            )
        return len(cache)

    def _header(self, loader: Any, info: LoaderInfo, fill_ns: int) -> Header:
        settings, cache = self.settings, self.cache
        file_name = None if settings.log_file is None else Path(settings.log_file).stem
        epoch_batches = "inf" if settings.epoch_batches == math.inf else settings.epoch_batches
        return Header(
            run_id=uuid.uuid4().hex,
            name=settings.name or file_name or type(loader).__name__,
            mode=settings.mode,
            created=datetime.now(timezone.utc).isoformat(),
            unit=settings.unit,
            warmup=settings.warmup_for(info.prefetch_depth),
            loader=info,
            settings={
                "num_cached_batches": settings.num_cached_batches,
                "max_cache_bytes": settings.max_cache_bytes,
                "epoch_batches": epoch_batches,
            },
            environment=describe_environment(),
            cache=None if cache is None else CacheInfo(len(cache), cache.nbytes, fill_ns),
        )


def free_name(path: str | os.PathLike[str]) -> Path:
    """`path`, or when there is such a file the first of `run-1.jsonl`, `run-2.jsonl` … free."""
    path = Path(path)
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(1))
    return path if not path.exists() else next(p for p in numbered if not p.exists())
