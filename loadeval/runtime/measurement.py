"""One measurement of one loader: its adapter, what it keeps, and what it has recorded."""

from __future__ import annotations

import math
import uuid
import warnings
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.runlog.environment import describe_environment
from loadeval.runlog.metrics import write_metrics
from loadeval.runlog.model import CacheInfo, Header
from loadeval.runlog.reader import RunLog
from loadeval.runtime.adapter import IterableAdapter, check_is_loader
from loadeval.runtime.alternation import AlternatingEpoch, Alternation, tell_changes
from loadeval.runtime.annotate import annotation_for
from loadeval.runtime.cache import fill
from loadeval.runtime.counting import Counter
from loadeval.runtime.distributed import is_distributed, place_among_ranks
from loadeval.runtime.progress import Progress
from loadeval.runtime.pull import Puller
from loadeval.runtime.quiet import Background
from loadeval.runtime.recording import Recording
from loadeval.runtime.registry import adapter_for
from loadeval.runtime.sampler import NO_PROBES
from loadeval.runtime.schedule import block_for, segments
from loadeval.runtime.stage import WholeEpoch
from loadeval.runtime.timing import replayed, served

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from loadeval.runlog.model import LoaderInfo
    from loadeval.runtime.adapter import Adapter
    from loadeval.runtime.cache import BatchCache
    from loadeval.runtime.progress import Enough
    from loadeval.runtime.sampler import Probes
    from loadeval.runtime.settings import Settings
    from loadeval.runtime.stage import Plan

NOT_STOPPED_EARLY = (
    "precision= does not end this run early: in distributed training every rank has to switch "
    "at the same batch, which a measured precision cannot promise"
)


class Measurement:
    """Serves epochs of a loader, real or replayed or both in turn, and records them.

    `cache` holds what an earlier measurement kept, for a copy that shall not read again.
    `enough` tells an alternating run when to stop, see Progress. `probes` are read meanwhile.
    """

    def __init__(
        self,
        loader: Any,
        settings: Settings,
        cache: BatchCache | None = None,
        enough: Enough | None = None,
        probes: Probes = NO_PROBES,
    ) -> None:
        self.settings = settings
        self.annotation = annotation_for(settings.annotate)
        self.adapter: Adapter = adapter_for(loader)
        if type(self.adapter) is IterableAdapter:
            check_is_loader(loader)
        info = self.adapter.describe(loader)
        self.counter = Counter(self.adapter, settings.samples)
        began = settings.clock()
        if cache is None and settings.mode == "replay":
            wanted, allowed = settings.num_cached_batches, settings.max_cache_bytes
            cache = fill(self.adapter, loader, self.counter, wanted, allowed)
        self.cache = cache
        fill_ns = settings.clock() - began
        self._real_left = settings.replay_after
        self._real: WholeEpoch | None = None
        self._has_told = False
        self.epoch_batches = math.inf if cache is None else self._epoch_batches(info, cache)
        header = self._header(loader, info, fill_ns)
        log = None
        if settings.log_file is not None:
            log = RunLog(settings.log_file, header, overwrite=settings.overwrite)
        self.recording = Recording(header, log, settings.clock, probes)
        self.alternation = None
        if settings.mode == "alternate":
            self.alternation = self._alternation(info, enough)

    def epoch(self, loader: Any, owner: object, adapter: Adapter | None = None) -> Iterator[Any]:
        """One epoch, timed, unless the measurement has ended. `owner` outlives it.

        Give the `adapter` for `loader` if it is not the loader that is measured.
        """
        adapter = self.adapter if adapter is None else adapter
        if self.recording.closed:
            warnings.warn(
                "this LoaderEvaluator is closed: the loader is served unmeasured. Make another "
                "one, or close it later, to measure this epoch",
                LoadevalWarning,
                stacklevel=3,
            )
            return adapter.epoch(loader)
        if self.alternation is not None and self.alternation.progress.segment is None:
            return adapter.epoch(loader)
        clock, recording = self.settings.clock, self.recording
        begin = recording.begin_epoch
        if self.cache is not None and not self._left_real():
            return self._replayed(self.cache, self._batches_of(adapter, loader), owner)
        began = clock()
        source = adapter.epoch(loader)
        opened_ns = clock() - began
        plan: Plan
        if self.cache is not None:
            plan = self._real_first(self.cache, adapter, loader, source, opened_ns, owner)
        elif self.alternation is None:
            plan = WholeEpoch(source, clock, opened_ns)
        else:
            self._stop_with_all_ranks(self.alternation.progress)
            if not self._has_told:
                self._has_told = True
                tell_changes(recording.header.loader)
            plan = AlternatingEpoch(self.alternation, source, opened_ns)
        if self.annotation is not None:
            plan = self.annotation.plan(plan, alternates=self.alternation is not None)
        return served(plan, source, begin, self.counter.best_for, clock, owner)

    def length(self, loader: Any) -> int:
        """How many batches an epoch has. Raises what `len(loader)` raises where it has no length.

        TypeError for a replay without end.
        """
        batches = self.settings.epoch_batches
        if self.cache is None or batches is None:
            return len(loader)
        if batches == math.inf:
            raise TypeError("a replay with epoch_batches=math.inf has no length")
        return int(batches)

    def _replayed(self, cache: BatchCache, batches: float, owner: object) -> Iterator[Any]:
        recording, clock = self.recording, self.settings.clock
        epoch = replayed(cache, batches, recording.begin_epoch, clock, recording.note, owner)
        return epoch if self.annotation is None else self.annotation.epoch(epoch, "ideal")

    def _real_first(
        self,
        cache: BatchCache,
        adapter: Adapter,
        loader: Any,
        source: Iterator[Any],
        opened_ns: int,
        owner: object,
    ) -> Plan:
        """The real batches that come before a replay, and the rest of their epoch replayed."""
        batches = self._batches_of(adapter, loader)
        most = min(self._left_real(), batches)

        def then() -> Iterator[Any] | None:
            adapter.release(loader, source)
            return self._replayed(cache, batches - most, owner) if most < batches else None

        self._real = WholeEpoch(source, self.settings.clock, opened_ns, most, then)
        return self._real

    def _left_real(self) -> int:
        """How many real batches are left to be served before the replay."""
        real, self._real = self._real, None
        self._real_left -= 0 if real is None else real.served
        return self._real_left

    def _alternation(self, info: LoaderInfo, enough: Enough | None) -> Alternation:
        settings = self.settings
        depth = info.prefetch_depth or 0
        schedule = segments(settings.seed, settings.pairs, depth, block_for(depth))
        clock = settings.clock
        return Alternation(
            Progress(schedule, settings.batches, enough),
            Puller(self.adapter, self.counter, clock, info, settings.max_cache_bytes),
            None if info.workers == 0 else Background(),
            self.adapter.fence,
            clock,
            self.recording,
        )

    def _stop_with_all_ranks(self, progress: Progress) -> None:
        # Asked for each epoch: a framework may join the ranks after this was made.
        if progress.enough is not None and is_distributed():
            progress.enough = None
            self.recording.note(NOT_STOPPED_EARLY)

    def close(self) -> None:
        """End the recording; save the metrics if a file was named and is not there yet."""
        self.recording.close()
        if self.annotation is not None:
            self.annotation.close()
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

    def _batches_of(self, adapter: Adapter, loader: Any) -> float:
        # A framework may have built `loader` anew, with a part of the batches for each process.
        if self.settings.epoch_batches is not None:
            return self.epoch_batches
        return adapter.describe(loader).length or self.epoch_batches

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
                stacklevel=5,  # where the LoaderEvaluator is made
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
                "replay_after": settings.replay_after,
                "pairs": settings.pairs,
                "batches": settings.batches,
                "precision": settings.precision,
                "seed": settings.seed,
                "annotate": settings.annotate,
            },
            environment={**describe_environment(), **place_among_ranks()},
            cache=None if cache is None else CacheInfo(len(cache), cache.nbytes, fill_ns),
            every=settings.every,
        )


def free_name(path: str | os.PathLike[str]) -> Path:
    """`path`, or when there is such a file the first of `run-1.jsonl`, `run-2.jsonl` … free."""
    path = Path(path)
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(1))
    return path if not path.exists() else next(p for p in numbered if not p.exists())
