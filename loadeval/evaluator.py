"""LoaderEvaluator, the object that a user wraps a loader with, and the Measurement in it."""

from __future__ import annotations

import math
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.adapter import adapter_for, is_iterable, length_of, overrides_of
from loadeval.core.annotate import annotation_for
from loadeval.core.batch import REGIONS
from loadeval.core.counting import Counter
from loadeval.core.loop import RealEpoch, Serving, served
from loadeval.core.recorder import Count, OpenEpoch, Recorder
from loadeval.core.threads import Probes, pause_at_exit
from loadeval.data.dali import metrics_of, span_of, summary_of, write_metrics
from loadeval.data.environment import describe_environment
from loadeval.data.lines import CacheInfo, LoaderInfo
from loadeval.errors import AskingTheLoader, LoadevalError, UsageError, warn
from loadeval.probes import NAMES, probes_named
from loadeval.settings import DEFAULT_CACHE_BYTES, DEFAULT_PROBE_INTERVAL_S, Settings

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from loadeval.adapter import Adapter
    from loadeval.core.alternate import Alternation
    from loadeval.core.loop import EpochPlan
    from loadeval.core.replay import BatchCache
    from loadeval.core.rounds import Schedule
    from loadeval.data.run import Run
    from loadeval.estimate.gap import Gap
    from loadeval.report.report import Report
    from loadeval.track import Tracking

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
    One of several backends comes with its `adapter`, the `schedule` of its rounds, and `facts` for
    the run's header. What only one mode needs is imported in that mode.
    """

    def __init__(
        self,
        loader: Any,
        settings: Settings,
        cache: BatchCache | None = None,
        *,
        adapter: Adapter | None = None,
        schedule: Schedule | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        self.settings = settings
        self.annotation = annotation_for(settings.annotate)
        if self.annotation is not None:
            self.annotation.switches = settings.mode == "alternate"
        self.adapter = adapter or adapter_for(loader)
        info = replace(self.adapter.describe(loader), overrides=overrides_of(loader))
        self.counter = Counter(self.adapter, settings.samples)
        began = settings.clock()
        if cache is None and settings.mode == "replay":
            from loadeval.core.replay import fill  # noqa: PLC0415 - this mode alone

            wanted, allowed = settings.num_cached_batches, settings.max_cache_bytes
            cache = fill(self.adapter, loader, self.counter, wanted, allowed)
        self.cache = cache
        fill_ns = settings.clock() - began
        self.epoch_batches = settings.epoch_batches or info.length or math.inf
        if cache is not None and not (settings.epoch_batches or info.length):
            self.epoch_batches = len(cache)
            if not cache.exhausted:
                warn(
                    f"the loader has no length, so a replayed epoch has only the {len(cache)} kept "
                    "batches; pass epoch_batches=, a number or math.inf, for longer epochs"
                )
        self.recorder = self._recorder(loader, info, fill_ns, facts)
        self.guard = self.recorder.guard
        self.alternation: Alternation | None = None
        if settings.mode == "alternate":
            from loadeval.core.alternate import Alternation  # noqa: PLC0415 - this mode alone
            from loadeval.core.rounds import Schedule  # noqa: PLC0415 - this mode alone

            if schedule is None:
                schedule = Schedule(
                    seed=settings.seed,
                    pairs=settings.pairs,
                    batches=settings.batches,
                    prefetch_depth=info.prefetch_depth or 0,
                    length=info.length,
                )
                schedule.has_instruments = self.recorder.has_instruments
            self.alternation = Alternation(
                schedule, self.adapter, self.counter, info, settings, self.recorder
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
            if not self.recorder.is_of_parent:
                warn(CLOSED)
            return _opened(adapter, loader)
        clock, left = self.settings.clock, self._left()
        if self.cache is not None and not left:
            return self._replayed(self.cache, self._batches_of(adapter, loader), owner)
        if not left:
            self.recorder.stop_stages()
            return _opened(adapter, loader)
        if self.alternation is not None:
            self.alternation.look(self.alternation.schedule.looks_next())
        begin = partial(self.recorder.begin_epoch, self.recorder.begin_stages(loader))
        began = clock()
        source = _opened(adapter, loader)
        opened.append(source)
        opened_ns = clock() - began
        plan: EpochPlan
        if self.cache is not None:
            batches = self._batches_of(adapter, loader)
            most = min(left, batches)
            release = partial(adapter.release, loader, source)
            then = partial(self._after_real, self.cache, release, batches - most, owner)
            plan = RealEpoch(source, clock, opened_ns, most, then)
        elif self.alternation is None:
            plan = RealEpoch(source, clock, opened_ns, left, partial(self._unrecorded, source))
        else:
            place = place_among_ranks()  # a framework may start torch.distributed after an epoch
            if place:
                self.alternation.schedule.fixed = True
            if not place.get("rank"):  # one of a job's ranks says it
                self.alternation.log_side_effects()
            plan = self.alternation.epoch(source, opened_ns)
        return self._served(plan, begin, self.counter.best_for, owner, source)

    def _served(
        self,
        plan: EpochPlan,
        begin: Callable[[], OpenEpoch],
        count_by: Callable[[Any], Callable[[Any], Count] | None],
        owner: object,
        source: Iterator[Any],
    ) -> Iterator[Any]:
        clock, guard = self.settings.clock, self.guard
        return served(Serving(plan, begin, count_by, clock, owner, guard, self.annotation), source)

    def _replayed(self, cache: BatchCache, batches: float, owner: object) -> Iterator[Any]:
        from loadeval.core.replay import ReplayEpoch  # noqa: PLC0415 - this mode alone

        def begin() -> OpenEpoch:
            epoch = self.recorder.begin_epoch()
            epoch.gpu_idle = None  # replay leaves a device nothing to wait for
            return epoch

        plan = ReplayEpoch(cache, batches, self.recorder.note)
        return self._served(plan, begin, plan.counter_for, owner, iter(()))

    def _after_real(
        self, cache: BatchCache, release: Callable[[], object], left: float, owner: object
    ) -> Iterator[Any] | None:
        """The rest of an epoch, replayed, after the real batches before the replay."""
        with AskingTheLoader(may_fail=True):
            release()
        if left <= 0:
            return None
        with self.guard:
            return self._replayed(cache, left, owner)
        return cache.unmeasured(left)

    def _unrecorded(self, source: Iterator[Any]) -> Iterator[Any]:
        """The rest of an epoch, of which the loader is not looked into either."""
        self.recorder.stop_stages()
        return source

    def _batches_of(self, adapter: Adapter, loader: Any) -> float:
        """How many batches a replayed epoch has."""
        # A framework may have rebuilt `loader` with only this rank's part of the batches.
        known = self.settings.epoch_batches or adapter.describe(loader).length
        return known or self.epoch_batches

    def _left(self) -> float:
        """How many batches of the loader itself are still to be measured."""
        if self.alternation is not None:
            return 0 if self.alternation.schedule.is_over else math.inf
        limit = self.settings.replay_after if self.cache is not None else self.settings.batches
        if not limit:
            return 0 if limit == 0 else math.inf
        self.recorder.drain()
        return max(limit - self.recorder.batches, 0)

    def end_soon(self) -> None:
        """Begin no new pair of blocks. Ranks go on, which begin and end them together."""
        if self.alternation is not None and not self.alternation.schedule.fixed:
            self.alternation.schedule.is_enough = True

    def close(self) -> None:
        """End the recording; save the metrics if a file was named and is not there yet.

        In a forked child, whose run it is not, nothing happens.
        """
        if self.recorder.is_of_parent:
            return
        with self.guard:
            self.recorder.close()
            if self.annotation is not None:
                self.annotation.close()
            REGIONS.release()
            path = self.settings.metrics_file
            is_measured = self.recorder.closed and self.recorder.batches
            if path is not None and is_measured and not Path(path).exists():
                try:
                    self.save_metrics(path)
                except (OSError, LoadevalError) as error:  # such as a log that cannot be read
                    warn(f"the metrics could not be saved to {path}: {error}")
            pause_at_exit()

    def save_metrics(self, path: str | os.PathLike[str]) -> None:
        """Write the metrics, and with them the run."""
        write_metrics(self.recorder.run(), self.recorder.lines(), path)

    def _recorder(
        self, loader: Any, info: LoaderInfo, fill_ns: int, facts: dict[str, Any] | None
    ) -> Recorder:
        settings, cache = self.settings, self.cache
        file = None if settings.redact else settings.log_file
        file_name = None if file is None else Path(file).stem
        place = {} if facts else place_among_ranks()  # ranks are told from backends by it
        if facts is None:
            facts = {option: getattr(settings, option) for option in IN_HEADER}
            if settings.epoch_batches == math.inf:
                facts["epoch_batches"] = "inf"
        tracking: Tracking | None = None
        if settings.track is not None and not place.get("rank"):
            from loadeval.track import Tracking  # noqa: PLC0415 - few runs are tracked

            tracking = Tracking(settings.track)
        chosen = probes_named(settings.probes, threads=settings.looks_inside)
        return Recorder(
            settings,
            info,
            name=settings.name or file_name or type(loader).__name__,
            facts=facts,
            environment={**describe_environment(self.adapter.distributions), **place},
            probes=Probes(chosen, settings.probe_interval_s),
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


OWN_ATTRIBUTES = frozenset({"_loader", "_measurement", "_closer", "_assigned"})
"""A LoaderEvaluator stores these attributes itself; all others are read and set in its loader."""


class LoaderEvaluator:
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
            `loadeval.core.threads.Probe`; () records none. With `stages`
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
        given = locals()
        if (loader is None) is (dataloader is None):
            raise UsageError("expected one loader: LoaderEvaluator(loader)")
        settings = Settings(**{each.name: given[each.name] for each in fields(Settings)})
        self._wrap(dataloader if loader is None else loader, settings)

    def _wrap(self, loader: Any, settings: Settings, cache: BatchCache | None = None) -> None:
        self._loader = loader
        self._assigned: dict[str, Any] = {}
        self._measurement = Measurement(loader, settings, cache)
        self._closer = weakref.finalize(self, self._measurement.close)

    def __len__(self) -> int:
        batches = self._measurement.settings.epoch_batches
        if self._measurement.cache is None or batches is None:
            return len(self._loader)
        if batches == math.inf:
            raise TypeError("a replay with epoch_batches=math.inf has no length")
        return int(batches)

    def __bool__(self) -> bool:
        return bool(self._loader)

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
        settings = replace(settings, track=None)  # whose run is the original's
        return _restored, (type(self), self._loader, settings, cache)

    def __getattr__(self, name: str) -> Any:
        if _is_dunder(name) or name in OWN_ATTRIBUTES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
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

    def recorded(self) -> Run:
        """Everything measured so far, in all epochs, read from the log if there is one."""
        return self._measurement.recorder.run()

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

    # Settings and results under the names that DALI's LoaderEvaluator gives them. They can be set,
    # as there; a result that was set is read until the next epoch begins.

    def _restart(self, loader: Any = None, cache: BatchCache | None = None, **changed: Any) -> None:
        """Begin a new run of `loader`, by default the wrapped one, with the settings changed."""
        settings = _beside(replace(self._measurement.settings, **changed))
        self._measurement.recorder.expects_batches = False
        self.close()
        self._wrap(self._loader if loader is None else loader, settings, cache)

    @property
    def dataloader(self) -> Any:
        """The wrapped loader. Setting another one begins a new run."""
        return self._loader

    @dataloader.setter
    def dataloader(self, loader: Any) -> None:
        if loader is not self._loader:
            adapter_for(loader)  # what is no loader is refused before the run ends
            self._restart(loader)

    @property
    def mode(self) -> str:
        """The mode, "log", "replay" or "alternate". Setting another mode begins a new run."""
        return self._measurement.settings.mode

    @mode.setter
    def mode(self, mode: str) -> None:
        if mode != self.mode:
            self._restart(mode=mode)

    @property
    def num_cached_batches(self) -> int:
        """How many batches replay was asked to keep. Setting another number begins a new replay."""
        return self._measurement.settings.num_cached_batches

    @num_cached_batches.setter
    def num_cached_batches(self, batches: int) -> None:
        if self.mode == "replay" and batches != self.num_cached_batches:
            self._restart(num_cached_batches=batches)
        settings = self._measurement.settings
        self._measurement.settings = replace(settings, num_cached_batches=batches)

    @property
    def metrics_file(self) -> str | os.PathLike[str] | None:
        """Where `save_metrics()` writes."""
        return self._measurement.settings.metrics_file

    @metrics_file.setter
    def metrics_file(self, path: str | os.PathLike[str] | None) -> None:
        self._measurement.settings = replace(self._measurement.settings, metrics_file=path)

    @property
    def batch_times(self) -> list[float]:
        """The waits of all batches of all epochs, in seconds. Setting it to [] begins a new run."""
        times: list[float] | None = self._assigned.get("batch_times")
        return list(times or self.get_metrics().get("batch_times", ()))

    @batch_times.setter
    def batch_times(self, times: Iterable[float]) -> None:
        assigned = list(times)
        if assigned:
            self._assigned["batch_times"] = assigned
        else:
            self._restart(cache=self._measurement.cache)

    @property
    def start_time(self) -> float | None:
        """When the first batch was requested, in seconds since 1970; None before that."""
        time_s: float | None = self._assigned.get("start_time", span_of(self.recorded())[0])
        return time_s

    @start_time.setter
    def start_time(self, time_s: float | None) -> None:
        self._assigned["start_time"] = time_s

    @property
    def end_time(self) -> float | None:
        """When the last epoch ended, in seconds since 1970; None before that."""
        time_s: float | None = self._assigned.get("end_time", span_of(self.recorded())[1])
        return time_s

    @end_time.setter
    def end_time(self, time_s: float | None) -> None:
        self._assigned["end_time"] = time_s

    @property
    def cached_batches(self) -> list[Any]:
        """The batches that replay keeps; empty in the other modes.

        Setting it in `replay` mode begins a new run, which replays those batches.
        """
        cache = self._measurement.cache
        batches: list[Any] = self._assigned.get("cached_batches", cache.batches if cache else [])
        return batches

    @cached_batches.setter
    def cached_batches(self, batches: Iterable[Any]) -> None:
        kept, measurement = list(batches), self._measurement
        if self.mode != "replay":
            self._assigned["cached_batches"] = kept
            return
        if not kept:
            raise UsageError(
                "cached_batches is empty; expected batches to replay; set mode='log' to serve the "
                "loader's own"
            )
        from loadeval.core.replay import fill  # noqa: PLC0415 - this mode alone

        allowed = measurement.settings.max_cache_bytes
        self._restart(cache=fill(adapter_for(kept), kept, measurement.counter, len(kept), allowed))

    @property
    def cache_ready(self) -> bool:
        """Whether replay has its batches."""
        ready: bool = self._assigned.get("cache_ready", self._measurement.cache is not None)
        return ready

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
            warn(
                "the metrics were not saved: no filename; pass one to save_metrics(), or set "
                "metrics_file="
            )
            return
        self._measurement.save_metrics(path)

    def print_summary(self) -> None:
        """Print the wrapped loader and `get_metrics()` in a few lines."""
        dataset = getattr(self._loader, "dataset", None)
        length = None if dataset is None else length_of(dataset)
        print(summary_of(self.recorded(), length))  # noqa: T201 - what the method is for


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _beside(settings: Settings) -> Settings:
    """`settings` of a further run, whose log stands beside the first."""
    if settings.log_file is None:
        return settings
    return replace(settings, log_file=free_name(settings.log_file), overwrite=False)


def _restored(
    kind: type[LoaderEvaluator], loader: Any, settings: Settings, cache: BatchCache | None
) -> LoaderEvaluator:
    copy = kind.__new__(kind)
    copy._wrap(loader, _beside(settings), cache)  # noqa: SLF001 - its own class
    copy._measurement.recorder.expects_batches = False  # noqa: SLF001 - who copies may not iterate
    return copy
