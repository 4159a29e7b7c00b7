"""One measurement of one loader: its adapter, what it keeps, and what it has recorded."""

from __future__ import annotations

import math
import os
import sys
import warnings
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.data.dali import write_metrics
from loadeval.data.environment import describe_environment
from loadeval.data.lines import CacheInfo
from loadeval.errors import LoadevalError, LoadevalWarning, warn
from loadeval.runtime.adapter import (
    IterableAdapter,
    begun,
    check_is_loader,
    is_iterable,
    overrides_of,
)
from loadeval.runtime.background.metrics_thread import NO_PROBES
from loadeval.runtime.background.threads import pause_at_exit
from loadeval.runtime.batches.copies import REGIONS
from loadeval.runtime.guard import AskingTheLoader
from loadeval.runtime.recording.new_recorder import new_recorder
from loadeval.runtime.registry import adapter_for
from loadeval.runtime.serving.annotate import annotation_for
from loadeval.runtime.serving.counting import Counter
from loadeval.runtime.serving.epoch_iterators import SharedEpoch, is_shared
from loadeval.runtime.serving.loop import RealEpoch, served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.data.lines import LoaderInfo
    from loadeval.runtime.adapter import Adapter
    from loadeval.runtime.alternation.schedule import Schedule
    from loadeval.runtime.background.metrics_thread import Probes
    from loadeval.runtime.recording.recorder import Recorder
    from loadeval.runtime.replay.cache import BatchCache
    from loadeval.runtime.serving.loop import EpochPlan
    from loadeval.runtime.settings import EvaluatorSettings


IN_HEADER = (
    *("num_cached_batches", "max_cache_bytes", "epoch_batches", "replay_after"),
    *("pairs", "batches", "seed", "annotate", "stages"),
)
"""A run's header tells these settings."""
CLOSED = (
    "this LoaderEvaluator is closed, so this epoch is not measured; create a new one, or close it "
    "later"
)


class Measurement:
    """Serves and records epochs of a loader, in any mode.

    `cache` has the batches of an earlier measurement, so that a copy need not read them again.
    `probes` are read while epochs are served, and `tracking`, a Tracking, gets what is recorded.
    What only one mode needs is imported in that mode.
    """

    _schedule: Schedule

    def __init__(
        self,
        loader: Any,
        settings: EvaluatorSettings,
        cache: BatchCache | None = None,
        probes: Probes = NO_PROBES,
        tracking: Any = None,
    ) -> None:
        self.settings = settings
        self.annotation = annotation_for(settings.annotate)
        self.adapter: Adapter = adapter_for(loader)
        if type(self.adapter) is IterableAdapter:
            check_is_loader(loader)
        info = replace(self.adapter.describe(loader), overrides=overrides_of(loader))
        self.counter = Counter(self.adapter, settings.samples)
        began = settings.clock()
        if cache is None and settings.mode == "replay":
            from loadeval.runtime.replay.cache import fill  # noqa: PLC0415 - this mode alone

            wanted, allowed = settings.num_cached_batches, settings.max_cache_bytes
            cache = fill(self.adapter, loader, self.counter, wanted, allowed)
        self.cache = cache
        fill_ns = settings.clock() - began
        self.epoch_batches = math.inf if cache is None else self._epoch_batches(info, cache)
        self.recorder = self._recorder(loader, info, fill_ns, probes, tracking)
        self.guard = self.recorder.guard
        self.alternation = None
        if settings.mode == "alternate":
            from loadeval.runtime.alternation.alternate import Alternation  # noqa: PLC0415 - this mode alone
            from loadeval.runtime.alternation.schedule import Schedule  # noqa: PLC0415 - this mode alone

            self._schedule = Schedule(
                seed=settings.seed,
                pairs=settings.pairs,
                batches=settings.batches,
                prefetch_depth=info.prefetch_depth or 0,
                length=info.length,
            )
            self._schedule.has_instruments = self.recorder.has_instruments
            self.alternation = Alternation(
                self._schedule, self.adapter, self.counter, info, settings, self.recorder
            )

    def epoch(self, loader: Any, owner: object, adapter: Adapter | None = None) -> Iterator[Any]:
        """One epoch, timed unless the measurement has ended; it keeps `owner` alive.

        Pass `adapter` if `loader` is not the loader that this was made for.
        """
        adapter = self.adapter if adapter is None else adapter
        opened: list[Iterator[Any]] = []
        try:
            if not self.guard.has_tripped:
                return self._epoch(loader, owner, adapter, opened)
        except Exception as error:
            if isinstance(error, LoadevalError) or not self.guard.ends(error):
                raise
        return opened[0] if opened else self._bare(loader, adapter)

    def _bare(self, loader: Any, adapter: Adapter) -> Iterator[Any]:
        """An epoch in which loadeval has no part; in replay mode the kept batches."""
        if self.cache is not None and not self._left():
            return self.cache.unmeasured(self.epoch_batches)
        try:
            return _opened(adapter, loader)
        except Exception as error:
            # Where loaders are measured in place, iter() would come back here.
            if not self.guard.ends(error) or "epoch" in vars(adapter):
                raise
        return iter(loader if is_iterable(loader) else loader())

    def _epoch(
        self, loader: Any, owner: object, adapter: Adapter, opened: list[Iterator[Any]]
    ) -> Iterator[Any]:
        """A measured epoch; if this fails, `opened` has the loader's iterator if there was one."""
        if self.recorder.closed:
            warn(CLOSED, stacklevel=4)
            return _opened(adapter, loader)
        clock, shared = self.settings.clock, is_shared()
        left = self._left()
        if self.cache is not None and not left:
            return self._replayed(self.cache, self._batches_of(adapter, loader), owner, shared)
        if not left:
            self.recorder.stop_stages()
            return _opened(adapter, loader)
        if self.alternation is not None:
            self.alternation.look(self._schedule.looks_next())
        number_callback = self.recorder.begin_stages(loader)
        began = clock()
        source = _opened(adapter, loader)
        opened.append(source)
        opened_ns = clock() - began
        plan: EpochPlan
        if self.cache is not None:
            plan = self._real_first(self.cache, adapter, loader, source, opened_ns, owner, shared)
        elif self.alternation is None:
            plan = RealEpoch(source, clock, opened_ns, left, partial(self._unrecorded, source))
        else:
            place = place_among_ranks()  # a framework may start torch.distributed after an epoch
            if place:
                self._schedule.fixed = True
            if not place.get("rank"):  # one of a job's ranks says it
                self.alternation.log_side_effects()
            plan = self.alternation.epoch(source, opened_ns)
        begin = partial(self.recorder.begin_epoch, number_callback)
        count, annotate = self.counter.best_for, None
        if self.annotation is not None:
            annotate = partial(self.annotation.spans, alternates=self.alternation is not None)
        return served(
            plan,
            source,
            begin,
            count,
            clock,
            owner,
            annotate=annotate,
            guard=self.guard,
            shared=shared,
        )

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

    def _replayed(
        self, cache: BatchCache, batches: float, owner: object, shared: bool
    ) -> Iterator[Any]:
        from loadeval.runtime.replay.loop import replayed  # noqa: PLC0415 - this mode alone

        recorder, clock = self.recorder, self.settings.clock
        begin, note = recorder.begin_epoch, recorder.note
        epoch: Any = replayed(cache, batches, begin, clock, note, owner, self.guard)
        if self.annotation is not None:
            epoch = self.annotation.epoch(epoch, "ideal")
        return SharedEpoch.shared([epoch], epoch, lambda: None) if shared else epoch

    def _real_first(
        self,
        cache: BatchCache,
        adapter: Adapter,
        loader: Any,
        source: Iterator[Any],
        opened_ns: int,
        owner: object,
        shared: bool,
    ) -> RealEpoch:
        """The real batches before the replay, and then the rest of their epoch, replayed."""
        batches = self._batches_of(adapter, loader)
        most = min(self._left(), batches)

        def then() -> Iterator[Any] | None:
            with AskingTheLoader(may_fail=True):
                adapter.release(loader, source)
            left = batches - most
            if left <= 0:
                return None
            with self.guard:
                return self._replayed(cache, left, owner, shared)
            return cache.unmeasured(left)

        return RealEpoch(source, self.settings.clock, opened_ns, most, then)

    def _unrecorded(self, source: Iterator[Any]) -> Iterator[Any]:
        """The rest of an epoch, of which the loader is not looked into either."""
        self.recorder.stop_stages()
        return begun(source)

    def _left(self) -> float:
        """How many batches of the loader itself are still to be measured."""
        if self.alternation is not None:
            return 0 if self._schedule.is_over else math.inf
        limit = self.settings.replay_after if self.cache is not None else self.settings.batches
        if not limit:
            return 0 if limit == 0 else math.inf
        self.recorder.drain()
        return max(limit - self.recorder.batches, 0)

    def end_soon(self) -> None:
        """Begin no new pair of blocks. Ranks go on, which begin and end them together."""
        if self.alternation is not None and not self._schedule.fixed:
            self._schedule.is_enough = True

    def close(self) -> None:
        """End the recording; save the metrics if a file was named and is not there yet."""
        with self.guard:
            self.recorder.close()
            if self.annotation is not None:
                self.annotation.close()
            REGIONS.release()
            self._save_metrics()
            pause_at_exit()

    def _save_metrics(self) -> None:
        path, is_measured = (
            self.settings.metrics_file,
            self.recorder.closed and self.recorder.batches,
        )
        if path is None or not is_measured or Path(path).exists():
            return
        try:
            write_metrics(self.recorder.run(), self.recorder.lines(), path)
        except (OSError, LoadevalError) as error:  # it cannot be written, or the log not be read
            warn(f"the metrics could not be saved to {path}: {error}", stacklevel=3)

    def _batches_of(self, adapter: Adapter, loader: Any) -> float:
        # A framework may have rebuilt `loader` with only this rank's part of the batches.
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
                f"the loader has no length, so a replayed epoch has only the {len(cache)} kept "
                "batches; pass epoch_batches=, a number or math.inf, for longer epochs",
                LoadevalWarning,
                stacklevel=5,  # where the LoaderEvaluator is made
            )
        return len(cache)

    def _recorder(
        self,
        loader: Any,
        info: LoaderInfo,
        fill_ns: int,
        probes: Probes,
        tracking: Any,
    ) -> Recorder:
        settings, cache = self.settings, self.cache
        file = None if settings.redact else settings.log_file
        file_name = None if file is None else Path(file).stem
        facts = {option: getattr(settings, option) for option in IN_HEADER}
        if settings.epoch_batches == math.inf:
            facts["epoch_batches"] = "inf"
        return new_recorder(
            settings,
            info,
            name=settings.name or file_name or type(loader).__name__,
            facts=facts,
            environment={
                **describe_environment(getattr(self.adapter, "distributions", ())),
                **place_among_ranks(),
            },
            probes=probes,
            cache=None if cache is None else CacheInfo(len(cache), cache.nbytes, fill_ns),
            stages=partial(self.adapter.stages, loader),
            tracking=tracking,
        )


def _opened(adapter: Adapter, loader: Any) -> Iterator[Any]:
    with AskingTheLoader(may_fail=True):
        return adapter.epoch(loader)


def free_name(path: str | os.PathLike[str]) -> Path:
    """`path`, or if it exists the first of `run-1.jsonl`, `run-2.jsonl`, … that does not."""
    path = Path(path)
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(1))
    return path if not path.exists() else next(p for p in numbered if not p.exists())


def place_among_ranks() -> dict[str, int]:
    """`rank` and `world_size` of this process; empty if it trains alone.

    From torch.distributed, or from RANK and WORLD_SIZE as launchers set them. Without RANK, only
    `world_size`.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        place = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
    else:
        variables = {"rank": os.environ.get("RANK"), "world_size": os.environ.get("WORLD_SIZE")}
        place = {name: int(text) for name, text in variables.items() if text and text.isdecimal()}
    return place if place.get("world_size", 1) > 1 else {}
