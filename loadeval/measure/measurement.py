"""One measurement of one loader: its adapter, what it keeps, and what it has recorded."""

from __future__ import annotations

import math
import os
import uuid
import warnings
from datetime import datetime, timezone
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.measure.cache import BatchCache, fill
from loadeval.measure.counting import Counter
from loadeval.measure.recording import Recording
from loadeval.measure.registry import adapter_for
from loadeval.measure.timing import timed
from loadeval.record.environment import describe_environment
from loadeval.record.metrics import write_metrics
from loadeval.record.model import CacheInfo, Header
from loadeval.record.runlog import RunLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.measure.adapter import Adapter
    from loadeval.measure.settings import Settings
    from loadeval.record.model import LoaderInfo


class Measurement:
    """Serves epochs of a loader, real or replayed, and records them.

    `trees` are batches kept by an earlier measurement, for a copy that shall not read again.
    """

    def __init__(self, loader: Any, settings: Settings, trees: list[Any] | None = None) -> None:
        self.settings = settings
        self.adapter: Adapter = adapter_for(loader)
        info = self.adapter.describe(loader)
        self.cache, cache_info = self._cached(loader, trees)
        self.length = None if self.cache is None else self._replayed_length(info, self.cache)
        header = self._header(loader, info, cache_info)
        log = None
        if settings.log_file is not None:
            log = RunLog(settings.log_file, header, overwrite=settings.overwrite)
        self.recording = Recording(
            header, log, settings.clock, Counter(self.adapter, settings.samples).best_for
        )

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
        clock = self.settings.clock
        if self.cache is not None:
            replay = self.cache.replay(self.length, self.recording.note)
            return timed(replay, partial(self.recording.begin_epoch, "ideal"), clock, 0, owner)
        opened = clock()
        epoch = self.adapter.epoch(loader)
        begin = partial(self.recording.begin_epoch, "real")
        return timed(epoch, begin, clock, clock() - opened, owner)

    def close(self) -> None:
        """End the recording; save the metrics if a file was named and is not there yet."""
        if self.recording.closed:
            return
        self.recording.close()
        path = self.settings.metrics_file
        if path is not None and self.recording.batches and not Path(path).exists():
            try:
                write_metrics(self.recording.run(), path)
            except OSError as error:
                warnings.warn(
                    f"the metrics could not be saved to {path}: {error}",
                    LoadevalWarning,
                    stacklevel=2,
                )

    def _cached(
        self, loader: Any, trees: list[Any] | None
    ) -> tuple[BatchCache | None, CacheInfo | None]:
        settings = self.settings
        if settings.mode != "replay":
            return None, None
        began = settings.clock()
        if trees is None:
            wanted = settings.num_cached_batches
            cache = fill(self.adapter, loader, wanted, settings.max_cache_bytes)
        else:
            cache = BatchCache(trees, exhausted=False)
        sizes = [self.adapter.nbytes(tree) for tree in cache.batches]
        nbytes = None if None in sizes else sum(size or 0 for size in sizes)
        return cache, CacheInfo(len(cache), nbytes, settings.clock() - began)

    def _replayed_length(self, info: LoaderInfo, cache: BatchCache) -> int | None:
        wanted = self.settings.epoch_batches
        if wanted is not None:
            return None if wanted == math.inf else int(wanted)
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

    def _header(self, loader: Any, info: LoaderInfo, cache: CacheInfo | None) -> Header:
        settings = self.settings
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
            cache=cache,
        )


def free_name(path: str | os.PathLike[str]) -> Path:
    """`path`, or when there is such a file the first of `run-1.jsonl`, `run-2.jsonl` … free."""
    path = Path(path)
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(1))
    return path if not path.exists() else next(p for p in numbered if not p.exists())
