"""LoaderEvaluator: stands in for a loader, and measures every epoch that is read of it."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from datetime import datetime, timezone
from functools import partial
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.adapter import (
    Adapter,
    adapter_for,
    is_iterable,
    length_of,
    makes_loaders,
    overrides_of,
)
from loadeval.core.alternate import Alternation, log_side_effects
from loadeval.core.annotate import annotation_for
from loadeval.core.batch import REGIONS
from loadeval.core.counting import Counter, Structure
from loadeval.core.loop import EpochPlan, RealEpoch, Serving, served
from loadeval.core.recorder import Recorder
from loadeval.core.replay import BatchCache, ReplayEpoch, fill
from loadeval.core.schedule import Schedule
from loadeval.core.threads import pause_at_exit
from loadeval.data.dali import metrics_of, span_of, summary_of, write_metrics
from loadeval.data.environment import describe_environment
from loadeval.data.lines import CacheInfo, Header
from loadeval.data.run import Run
from loadeval.errors import AskingTheLoader, LoadevalError, UsageError, of_the_loader, warn
from loadeval.probes import NAMES, probes_named
from loadeval.probes.threads import StepProbe
from loadeval.settings import (
    DEFAULT_CACHE_BYTES,
    DEFAULT_PROBE_INTERVAL_S,
    IN_HEADER,
    File,
    Settings,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from loadeval.estimate.gap import Gap
    from loadeval.report.report import Report

Make = Callable[[], Iterator[Any]]
"""Makes the iterator of an epoch."""


class Measurement:
    """One run: measures epochs of a loader, and records them.

    It does not hold the loader: where that is freed, the run may end. What fails in loadeval trips
    `guard`: from then on training gets the loader's own epochs, or those of the kept batches.

    Args:
        loader: what to measure; a callable is called now, and for each epoch but the first.
        settings: how.
        cache: the batches to replay, where they are known; else those that `loader` gives first.
        adapter: how to use the loader; by default the registered one.
        schedule: the blocks of an alternating run; by default those that the settings ask for.
        facts: the settings that the log tells; by default those of LoaderEvaluator.
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
        file = settings.log_file
        if file is not None and not settings.overwrite and Path(file).is_file():
            settings = replace(settings, log_file=free_name(file))
            warn(
                f"{file} exists already; the log of this run is {settings.log_file}. With "
                "overwrite=True it replaces the earlier one"
            )
        self.settings = settings
        given, self._made, self._first = loader, None, None
        if makes_loaders(given):
            self._made = self._first = loader = given()
        self.adapter = adapter = adapter or adapter_for(loader)
        self.counter = Counter(adapter, settings.samples)
        self._annotation = annotation_for(settings.annotate)
        probes = probes_named(settings.probes, threads=settings.looks_inside)
        self._step = StepProbe(Serving.__next__.__code__)
        if settings.mode == "alternate" and settings.looks_inside and probes and schedule is None:
            probes = [self._step, *probes]  # before others, which take some ms
        place = {} if facts else place_among_ranks()  # by which ranks are told from backends
        tracking = None
        if settings.track is not None and not place.get("rank"):
            from loadeval.track import Tracking  # noqa: PLC0415 - few runs need it

            tracking = Tracking(settings.track)
        info, kept = replace(adapter.describe(loader), overrides=overrides_of(loader)), None
        if settings.mode == "replay":
            most = settings.num_cached_batches, settings.max_cache_bytes
            if cache is None:
                cache, self._first = fill(adapter, loader, self.counter, *most), None
            kept = CacheInfo(len(cache))
        self.cache = cache
        file = None if settings.redact else settings.log_file
        asked = ((name, getattr(settings, name)) for name in IN_HEADER)
        usual_warmup = (info.prefetch_depth or 0) + 1 + (settings.mode == "replay")
        header = Header(
            run_id=uuid.uuid4().hex,
            name=settings.name or Path(file or type(given).__name__).stem,
            mode=settings.mode,
            created=datetime.now(timezone.utc).isoformat(),
            unit=settings.unit,
            warmup=usual_warmup if settings.warmup is None else settings.warmup,
            loader=info,
            settings=facts or {name: "inf" if each == math.inf else each for name, each in asked},
            environment={**describe_environment(adapter.distributions), **place},
            cache=kept,
        )
        stages = partial(adapter.stages, loader)
        self.recorder = Recorder(settings, header, probes, stages, tracking)
        self.guard = self.recorder.guard
        self.alternation: Alternation | None = None
        if settings.mode == "alternate":
            schedule = schedule or Schedule(
                seed=settings.seed,
                pairs=settings.pairs,
                batches=settings.batches,
                prefetch_depth=info.prefetch_depth or 0,
                length=info.length,
            )
            can_pause = self.recorder.stages.can_pause or self.recorder.metrics.can_pause
            schedule.has_instruments = not schedule.counted and can_pause
            self.alternation = Alternation(
                schedule, adapter, self.counter, info, settings, self.recorder
            )

    def epoch(self, loader: Any, owner: object, make: Make | None = None) -> Iterator[Any]:
        """An epoch of `loader`, measured while the run goes on.

        `make` makes its iterator, by default the run's adapter does. The epoch holds `owner`.
        Raises what the loader raises when it is asked for its iterator.
        """
        adapter, source = self.adapter if make is None else adapter_for(loader), None
        settings, clock, alternation = self.settings, self.settings.clock, self.alternation
        # How many of the loader's own batches are still to be measured.
        real = settings.batches or math.inf if self.cache is None else settings.replay_after
        if 0 < real < math.inf:
            with self.guard:
                self.recorder.drain()  # of another epoch, which may be half read
        left = real - self.recorder.batches
        if alternation is not None:
            left = 0 if alternation.schedule.is_over else math.inf
        with self.guard:
            if left > 0 and not self.recorder.closed:
                if alternation is not None:
                    place = place_among_ranks()  # a group of processes may have begun since
                    alternation.schedule.fixed |= bool(place)
                    if not (place.get("rank") or alternation.schedule.counted):
                        log_side_effects()
                    alternation.look(alternation.schedule.looks_next())
                    self._step.thread = threading.get_ident()
                self.recorder.copies.measure()  # now nothing is timed
                began_ns = clock()
                made = self._loader_of_an_epoch(loader)
                opened_ns = clock() - began_ns
                begin = partial(self.recorder.begin_epoch, self.recorder.stages.begin(made))
                began_ns = clock()
                source = _opened(make or partial(adapter.epoch, made))
                opened_ns += clock() - began_ns
                if alternation is not None:
                    plan: EpochPlan = alternation.epoch(source, opened_ns)
                else:
                    most = min(left, self._length_of(made, adapter))
                    then = partial(self._after, most, made, adapter, source, owner)
                    plan = RealEpoch(source, clock, opened_ns, most, then)
                given = clock, owner, self.guard, self._annotation
                counting_for = partial(Structure, self.counter)
                return served(Serving(plan, begin, counting_for, *given), source)
        if source is not None:
            return source
        with self.guard:
            # What fails in loadeval ends no replay; a user who closes it gets the loader back.
            replays = self.guard.has_tripped or not self.recorder.closed
            if self.cache is not None and left <= 0 and replays:
                length = self._length_of(self.loader_of(loader), adapter)
                return self._replayed(self.cache, length, owner)
            self.recorder.stop_stages()
            return _opened(make or partial(adapter.epoch, self._loader_of_an_epoch(loader)))
        if make is not None:  # of a loader in place, whose iter() would come back here
            return make()
        return iter(loader if is_iterable(loader) else loader())

    def loader_of(self, given: Any) -> Any:
        """The loader that `given` has made last; `given` itself where it is one."""
        return given if self._made is None else self._made

    def _loader_of_an_epoch(self, given: Any) -> Any:
        """The loader that `given` makes for the next epoch; `given` itself where it is one."""
        if not makes_loaders(given):
            return given
        made, self._first = self._first, None
        if made is None:
            with AskingTheLoader():
                made = given()
        self._made = made
        return made

    def _length_of(self, loader: Any, adapter: Adapter) -> float:
        """How many batches an epoch of replay has; `loader` may be shorter than the first one."""
        if self.cache is None:
            return math.inf
        known = self.settings.epoch_batches or adapter.describe(loader).length
        return known or len(self.cache)

    def _after(
        self, real: float, loader: Any, adapter: Adapter, source: Iterator[Any], owner: object
    ) -> Iterator[Any] | None:
        """What follows the `real` batches of `source` that are measured; None ends the epoch."""
        if self.cache is None:
            self.recorder.stop_stages()
            return source
        left = self._length_of(loader, adapter) - real
        with AskingTheLoader(may_fail=True):
            adapter.release(loader, source)
        return self._replayed(self.cache, left, owner) if left > 0 else None

    def _replayed(self, cache: BatchCache, batches: float, owner: object) -> Iterator[Any]:
        """So many batches of `cache`, measured while the run goes on."""
        with self.guard:
            if not self.recorder.closed:
                recorder = self.recorder
                plan = ReplayEpoch(cache, batches, recorder.note)
                given = self.settings.clock, owner, self.guard, self._annotation
                serving = Serving(plan, recorder.begin_epoch, lambda _: plan, *given)
                return served(serving, iter(()))
        return cache.unmeasured(batches)

    def end_soon(self) -> None:
        """Begin no more pairs of blocks; ranks go on, which begin and end them together."""
        if self.alternation is not None:
            self.alternation.schedule.is_enough |= not self.alternation.schedule.fixed

    def close(self) -> None:
        """End the run, once, and save its metrics where that was asked for.

        In a forked child, whose run it is not, nothing happens.
        """
        if self.recorder.in_forked_child:
            return
        with self.guard:
            self.recorder.close()
            REGIONS.release()
            path = self.settings.metrics_file
            try:
                if path is not None and self.recorder.batches and not Path(path).exists():
                    write_metrics(self.recorder.run(), self.recorder.lines(), path)
            except (OSError, LoadevalError) as error:
                warn(f"the metrics could not be saved: {error}")
            pause_at_exit()


def _opened(make: Make) -> Iterator[Any]:
    try:
        with AskingTheLoader(may_fail=True):
            return make()
    except LoadevalError as error:  # it tells the user what to do
        of_the_loader(error)
        raise


def place_among_ranks() -> dict[str, int]:
    """The `rank` and `world_size` of this process; empty where it trains alone.

    As torch.distributed knows them, or launchers set them in RANK and WORLD_SIZE, of which one may
    be missing.
    """
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    names = ("rank", "world_size")
    if getattr(distributed, "is_initialized", bool)():
        place = {name: getattr(distributed, f"get_{name}")() for name in names}
    else:
        variables = ((name, os.environ.get(name.upper(), "")) for name in names)
        place = {name: int(number) for name, number in variables if number.isdecimal()}
    return place if place.get("world_size", 1) > 1 else {}


def free_name(path: File, first: int = 1) -> Path:
    """A file beside `path` that is not there: of run.jsonl it is run-1.jsonl, or run-2.jsonl."""
    path = Path(path)
    names = (path.with_stem(f"{path.stem}-{number}") for number in count(first))
    return next(name for name in names if not name.exists())


DALIS: dict[str, Callable[[LoaderEvaluator], Any]] = {
    "dataloader": attrgetter("_loader"),
    "mode": attrgetter("_measurement.settings.mode"),
    "num_cached_batches": attrgetter("_measurement.settings.num_cached_batches"),
    "metrics_file": attrgetter("_measurement.settings.metrics_file"),
    "batch_times": lambda self: self.get_metrics().get("batch_times", []),
    "start_time": lambda self: span_of(self.recorded())[0],
    "end_time": lambda self: span_of(self.recorded())[1],
    "cached_batches": lambda self: getattr(self._measurement.cache, "batches", []),
    "cache_ready": lambda self: self._measurement.cache is not None,
}
"""The attributes of DALI's class, and how each is read."""


class Measured:
    """What measures, and is asked for what it has measured so far."""

    def recorded(self) -> Run:
        """Everything measured so far."""
        raise NotImplementedError

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
        """Stop measuring."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LoaderEvaluator(Measured):
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
        probes: the system metrics to record: "gpu", "host", or objects of a subclass of
            `loadeval.probes.Probe`; () records none. With `stages` also the threads of this
            process.
        probe_interval_s: seconds between two readings of the system metrics.
        annotate: "nvtx" or "torch" marks waits and steps as named ranges, such as
            `loadeval.wait real`, for Nsight Systems or torch's profiler (docs/export.md).
        stages: whether to time what happens inside the loader: fetch, transforms, collate,
            transfer (docs/inside-the-loader.md); by default in `alternate` mode alone, there in
            every third pair of blocks, which does not count, and at the starts of some epochs.
        track: "mlflow", "wandb" or "tensorboard" passes throughput and waits on to that tracker
            every 10 seconds, and the lost share of an alternating run at the end
            (docs/howto/dashboards.md). A function is called, on another thread, with the batches
            so far and a dict of the scalars. In distributed training only rank 0 tracks.
        redact: whether the log has placeholders for paths, host and user names, and the texts of
            exceptions (SECURITY.md).
        overwrite: whether `log_file` replaces an existing file; else the log gets a name with a
            number.
        dataloader: another name for `loader`, which DALI's LoaderEvaluator uses.
        clock: a clock in nanoseconds, for tests.

    Attributes of DALI's class, to read and, but for `mode` and `num_cached_batches`, to set.
    Setting `dataloader` or `batch_times = []` begins a new run; another result is read as it was
    set until the next epoch begins.

    Attributes:
        dataloader: the wrapped loader.
        mode: "log", "replay" or "alternate".
        num_cached_batches: how many batches replay was asked to keep.
        metrics_file: where `save_metrics()` writes.
        batch_times: the waits of all batches of all epochs, in seconds.
        start_time: when the first batch was requested, in seconds since 1970; None before that.
        end_time: when the last epoch ended, in seconds since 1970; None before that.
        cached_batches: the batches that replay keeps; empty in the other modes.
        cache_ready: whether replay has its batches.

    Raises:
        UsageError: an argument is not valid (a ValueError).
        CacheError: replay got no batch, or the batches take more than `max_cache_bytes`.
        RunLogError: `log_file` cannot be written.
    """

    dataloader: Any
    mode: str
    num_cached_batches: int
    metrics_file: str | os.PathLike[str] | None
    batch_times: list[float]
    start_time: float | None
    end_time: float | None
    cached_batches: list[Any]
    cache_ready: bool
    _loader: Any
    _measurement: Measurement
    _assigned: dict[str, Any]
    _closer: Any = None

    def __init__(  # noqa: PLR0913 - the first four by place, as DALI's class takes them
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
            raise UsageError(
                f"loader is {loader!r} and dataloader {dataloader!r}; expected one loader: an "
                "iterable, or a callable that returns one"
            )
        settings = Settings(**{field.name: given[field.name] for field in fields(Settings)})
        self._begin(dataloader if loader is None else loader, settings)

    def _begin(self, loader: Any, settings: Settings, cache: BatchCache | None = None) -> None:
        """Begin the first run, or the next one."""
        measurement = Measurement(loader, settings, cache)
        if self._closer is not None:  # of the run before
            self._closer()
        closer = weakref.finalize(self, measurement.close)
        vars(self).update(_loader=loader, _measurement=measurement, _assigned={}, _closer=closer)

    def _begin_beside(
        self, loader: Any, settings: Settings, cache: BatchCache | None = None
    ) -> None:
        """Begin a run beside another one: its log is a file of its own."""
        file = None if settings.log_file is None else free_name(settings.log_file)
        settings = replace(settings, log_file=file, overwrite=False)
        self._begin(loader, settings, cache)

    def __iter__(self) -> Iterator[Any]:
        measurement, refusal = self._measurement, None
        with measurement.guard:
            loader = measurement.loader_of(self._loader)
            refusal = measurement.adapter.refusal(loader, measurement.settings.mode)
        if refusal is not None:
            raise UsageError(refusal)
        self._assigned.clear()
        return measurement.epoch(self._loader, self)

    def __len__(self) -> int:
        batches = self._measurement.settings.epoch_batches
        if batches == math.inf:
            raise TypeError("an epoch without end has no length")
        return len(self._loader) if batches is None else int(batches)

    def __bool__(self) -> bool:
        return bool(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_loader" not in vars(self):  # copy and pickle ask it
            raise AttributeError(name)
        if name in self._assigned:
            return self._assigned[name]
        return DALIS[name](self) if name in DALIS else getattr(self._loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name):
            super().__setattr__(name, value)
            return
        if name not in DALIS:
            setattr(self._loader, name, value)
            return
        run, settings = self._measurement, self._measurement.settings
        if name == "metrics_file":
            run.settings = replace(settings, metrics_file=value)
        elif name == "dataloader" and value is not self._loader:
            self._begin_beside(value, settings)
        elif name == "batch_times" and not value:
            self._begin_beside(self._loader, settings, run.cache)
        elif hasattr(settings, name):
            raise AttributeError(f"{name} cannot be set; make another LoaderEvaluator with it")
        else:
            self._assigned[name] = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._loader!r}, mode={self.mode!r})"

    def __getstate__(self) -> tuple[Any, Settings]:
        return self._loader, replace(self._measurement.settings, track=None)

    def __setstate__(self, state: tuple[Any, Settings]) -> None:
        self._begin_beside(*state)

    def close(self) -> None:
        """Stop measuring; finish the log, and the metrics file if there is to be one.

        Runs automatically when the evaluator is garbage-collected or Python exits; calling it
        twice is fine. Afterwards the loader itself serves all batches, unmeasured.
        """
        with self._measurement.guard:
            self._closer()

    def recorded(self) -> Run:
        """Everything measured so far, in all epochs, read from the log if there is one."""
        return self._measurement.recorder.run()

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
        path = self.metrics_file if filename is None else filename
        if path is None:
            warn("no filename was given, so no metrics are saved; pass one, or metrics_file=")
        else:
            write_metrics(self.recorded(), self._measurement.recorder.lines(), path)

    def print_summary(self) -> None:
        """Print the wrapped loader and `get_metrics()` in a few lines."""
        size = length_of(getattr(self._loader, "dataset", None))
        print(summary_of(self.recorded(), size))  # noqa: T201 - it is what was asked for
