"""Measures the loaders that this process iterates: all, training apart from others, or one."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any

from loadeval.adapter import begun, length_of
from loadeval.core import threads
from loadeval.data.folder import LoaderRecord, ProcessRecord, Role, claimed
from loadeval.data.log import LOST, why
from loadeval.errors import UsageError, warn
from loadeval.evaluator import Make, Measurement, free_name, place_among_ranks
from loadeval.launch.loadeval_inject import ENDED_MARK, ENOUGH_MARK, REFUSED_MARK, failed
from loadeval.launch.settings import RunSettings, override
from loadeval.launch.why_ended import note
from loadeval.probes import NAMES
from loadeval.settings import Settings

TORCH = "torch.utils.data"
WATCHED, STEPPED = "steps of optimizers are watched", "an optimizer made its first step"
SAVE_INTERVAL_S = 1.0
"""How old the count of optimizer steps in a process's file may become."""


class Read:
    """Lives as long as an epoch is read; keeps its loader."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader


class MeasuredLoader:
    """One loader, and others like it that were built in its place, with their run log.

    `kind` distinguishes them from other loaders of the process; `has_gradients` tells whether
    gradients are on when an epoch is asked for. `source` returns the dataset that was last read,
    or a loader that has none, as long as it exists.
    """

    def __init__(
        self, loader: Any, log: Path, options: dict[str, Any], *, has_gradients: bool
    ) -> None:
        settings = Settings(log_file=log, name=log.stem, probes=NAMES, stages=True, **options)
        self.measurement = Measurement(loader, settings)
        self.log, self.kind = log, _kind_of(loader)
        self.has_gradients = has_gradients
        self.optimizer_steps = self.epochs = 0
        self.follows_training = False
        self.source: Callable[[], Any] = lambda: None
        self._reads: weakref.WeakSet[Read] = weakref.WeakSet()

    @property
    def is_read(self) -> bool:
        """Whether an epoch has begun, and is neither exhausted nor dropped."""
        return bool(self._reads)

    @property
    def evaluates(self) -> bool:
        """Whether it was read after optimizer steps, and had none itself.

        With Trainer, Lightning and Ignite gradients may be on until there is a batch.
        """
        return self.follows_training and not self.optimizer_steps

    def may_be(self, loader: Any, source: Any, has_gradients: bool) -> bool:
        """Whether `loader` is this one, or takes its place: it reads the same, or this is gone."""
        if self.has_gradients != has_gradients or self.kind != _kind_of(loader):
            return False
        # Lightning begins an epoch before it has dropped the one before.
        if any(read.loader is loader for read in self._reads):
            return True
        was = self.source()
        # Accelerate keeps the streams of all evaluations, each of which Trainer makes anew.
        is_anew = not has_gradients and _is_of_torch(loader) and length_of(source) is None
        return not self.is_read and (was is None or was is source or is_anew)

    def epoch(self, loader: Any, make: Make) -> Iterator[Any]:
        """A measured epoch, of which `make` makes the loader's own iterator."""
        alternation = self.measurement.alternation
        if alternation is not None and self.evaluates:
            alternation.skips_next = True
        read = Read(loader)
        self._reads.add(read)
        self.source = _source_of(loader)
        return measured_epoch(self.measurement, loader, make, read)

    def record(self, *, are_steps: bool) -> LoaderRecord:
        """What is known about it; training had steps if any loader of the process had some."""
        role: Role = "validation" if self.evaluates else "other"
        if not self.has_gradients:
            role = "validation"
        elif self.optimizer_steps or not are_steps:
            role = "training"
        counts = self.has_gradients, self.epochs, self.optimizer_steps
        return LoaderRecord(self.log.name, role, *counts)


def measured_epoch(
    measurement: Measurement, loader: Any, make: Make, owner: object
) -> Iterator[Any]:
    """An epoch of `loader`, which is being asked for its iterator: iter() would come back here."""

    def made() -> Iterator[Any]:
        epoch = make()
        return begun(epoch) if epoch is loader else epoch

    return measurement.epoch(loader, owner, made)


class Session:
    """The loaders of this process.

    Only the beginning of an epoch is looked at: no batch costs more than in a LoaderEvaluator.
    `of_command` tells that the process is of `loadeval run`, not one that called `install()`.
    """

    def __init__(self, settings: RunSettings, folder: Path, *, of_command: bool = False) -> None:
        self.folder = folder
        self.loaders: list[MeasuredLoader] = []
        self.of_command = of_command
        self._settings = settings
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._name, self._rank = "", 0
        self._options = dict(settings.options)
        self._trained: MeasuredLoader | None = None
        self._has_stepped = False
        self._saved_s = 0.0
        self._saving = threading.Lock()
        self._is_enough = False
        self._stop_counting_steps: Callable[[], None] = lambda: None

    @property
    def measurement(self) -> Measurement | None:
        """What measures the training loader; None before any loader was iterated."""
        trains_most = attrgetter("optimizer_steps", "has_gradients")
        main = max(self.loaders, key=trains_most, default=None)
        return None if main is None else main.measurement

    def epoch(self, loader: Any, make: Make, *, evaluates: bool = False) -> Iterator[Any] | None:
        """A measured epoch of `loader`, whose own iterator `make` makes; None if that fails.

        `evaluates` tells that it is of an evaluation, though gradients may be on. What `make`
        raises passes through, and UsageError where the loader does not take the settings that it
        is to have; nothing else is raised.
        """
        torch = sys.modules.get("torch")
        has_gradients = not evaluates and (torch is None or torch.is_grad_enabled())
        try:
            with self._lock:
                override(loader, self._settings, trains=has_gradients)
        except UsageError as error:
            with suppress(OSError):
                (self.folder / REFUSED_MARK).write_text(f"{error}\n", encoding="utf-8")
            raise
        try:
            with self._lock:
                measured = self._known(loader, has_gradients) or self._added(loader, has_gradients)
                for other in self.loaders:
                    if other is not measured and other.has_gradients and other.is_read:
                        event = f"{measured.log.name} was read"
                        other.measurement.recorder.note(event, "within a step")
                measured.epochs += 1
                measured.follows_training |= self._has_stepped
                if has_gradients:
                    self._trained = measured
                self.save()
        except Exception as error:  # noqa: BLE001 - the program goes on
            cause = error.__cause__
            if not isinstance(cause, OSError) or threads.is_news(self.folder, _reason(cause)):
                failed(error)
            return None
        return measured.epoch(loader, make)

    def _known(self, loader: Any, has_gradients: bool) -> MeasuredLoader | None:
        """The measured loader that `loader` is, or else whose place it takes."""
        source = _source_of(loader)()
        alike = (each for each in self.loaders if each.may_be(loader, source, has_gradients))
        return max(alike, key=lambda measured: measured.source() is not None, default=None)

    def _added(self, loader: Any, has_gradients: bool) -> MeasuredLoader:
        """A new measured loader. The process knows its rank once its first loader is iterated."""
        if not self._name:
            self._rank = _rank()
            self._name = claimed(
                f"rank{self._rank}",
                lambda name: (self.folder / f"{name}.json").touch(exist_ok=False),
                before_number="-run",
            )
            optimizer = sys.modules.get("torch.optim.optimizer")
            if optimizer is not None:
                hook = optimizer.register_optimizer_step_post_hook(self.stepped)
                self._stop_counting_steps = hook.remove
            atexit.register(self.close)
            if self.of_command and sys.excepthook is sys.__excepthook__:
                sys.excepthook = self._show_what_ends_it
        track = self._options.pop("track", None) if has_gradients else None
        options = {**self._options, "track": track}
        others = (each.measurement.alternation for each in self.loaders if each.is_read)
        # With a state, it would run ahead of the training.
        may_alternate = has_gradients and not hasattr(loader, "load_state_dict")
        if options["mode"] == "alternate" and (any(others) or not may_alternate):
            options |= {"mode": "log", "batches": None}
        log = self.folder / f"{self._name}{'' if has_gradients else '-validation'}.jsonl"
        if log.exists():
            log = free_name(log, 2)
        measured = MeasuredLoader(loader, log, options, has_gradients=has_gradients)
        self.loaders.append(measured)
        optimizer = sys.modules.get("torch.optim.optimizer")
        if has_gradients and optimizer is not None and _is_made(optimizer.Optimizer):
            measured.measurement.recorder.note(WATCHED, "optimizer")
        return measured

    def stepped(self, *_: Any) -> None:
        """An optimizer made a step, on a batch of a loader that is or was being read."""
        stepping = [loader for loader in self.loaders if loader.has_gradients and loader.is_read]
        if not stepping and self._trained is not None:
            stepping = [self._trained]
        self._has_stepped = True
        for loader in stepping:
            if not loader.optimizer_steps:
                loader.measurement.recorder.note(STEPPED, "optimizer")
            loader.optimizer_steps += 1
        if time.monotonic() - self._saved_s > SAVE_INTERVAL_S:
            self.save()
            if self._is_enough:
                for loader in stepping:
                    loader.measurement.end_soon()

    def _show_what_ends_it(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Leave out the traceback of the Ctrl-C by which loadeval ends the program, as it said."""
        if kind is not KeyboardInterrupt or not (self.folder / ENDED_MARK).exists():
            sys.__excepthook__(kind, error, trace)

    def close(self) -> None:
        """Finish the logs. In a forked child, whose logs they are not, nothing happens."""
        if os.getpid() != self._pid:
            return
        error = getattr(sys, "last_value", None)  # which nothing has caught, and ends the program
        if self.of_command and error is not None:
            with suppress(Exception):  # it ends as it would have ended
                note(self.folder, error)
        atexit.unregister(self.close)
        self._stop_counting_steps()
        if self.loaders:
            for loader in self.loaders:
                loader.measurement.close()
            self.save(ended=True)
            threads.pause_at_exit()

    def save(self, *, ended: bool = False) -> None:
        """Write what is known about the loaders to this process's file; a forked child has none."""
        if os.getpid() != self._pid or (self._saving.locked() and not ended):
            return
        are_steps = any(loader.optimizer_steps for loader in self.loaders)
        loaders = tuple(loader.record(are_steps=are_steps) for loader in self.loaders)
        record = ProcessRecord(self._name, self._rank, self._pid, ended, loaders)
        self._saved_s = time.monotonic()
        path = self.folder / f"{self._name}.json"
        limit_s = threads.patience_s(self.folder) if ended else threads.STALLED_S

        def write() -> None:
            with self._saving:
                try:
                    record.save(self.folder)
                    self._is_enough = (self.folder / ENOUGH_MARK).exists()
                except OSError as error:
                    reason = _reason(error)
                    if threads.is_news(self.folder, reason):
                        warn(f"{path}, which says what was measured, is not up to date ({reason})")

        # On a thread, since a file system may stall.
        threads.within(limit_s, threads.LOG_THREAD, write)


class OneLoader:
    """Measures one DataLoader where it is, and those that a framework builds from it.

    Ends, and calls `ended`, once everything has been garbage-collected from which such a loader
    could be built. `loader` returns the loader while it exists.
    """

    def __init__(
        self, loader: Any, measurement: Measurement, ended: Callable[[OneLoader], None]
    ) -> None:
        self.loader, self.measurement, self._ended = _reference(loader), measurement, ended
        self._is_over = False
        dataset = dataset_of(loader)
        self._dataset, self._samplers = _reference(dataset), [*map(_reference, samplers_of(loader))]
        is_stream = isinstance(dataset, sys.modules[TORCH].IterableDataset)
        self._finalizers: list[Any] = []
        for part in (loader, dataset) if is_stream else (loader, *samplers_of(loader)):
            with suppress(TypeError):  # it takes no weak reference
                self._finalizers.append(weakref.finalize(part, self._part_is_gone))

    def _part_is_gone(self) -> None:
        if not any(finalizer.alive for finalizer in self._finalizers):
            self.end()

    def end(self) -> None:
        """Finish the log."""
        if not self._is_over:
            self._is_over = True
            for finalizer in self._finalizers:
                finalizer.detach()
            self._ended(self)
            self.measurement.close()

    def epoch(self, loader: Any, make: Make) -> Iterator[Any]:
        """A measured epoch of `loader`, whose own iterator `make` makes."""
        # The consumer may hold nothing but the iterator.
        return measured_epoch(self.measurement, loader, make, (self.loader(), loader))

    def serves(self, loader: Any) -> bool:
        """Whether an epoch that `loader` begins now is an epoch of this one.

        A loader that a framework builds from it has the same dataset, and draws from its batch
        sampler, which no validation loader does. Where the framework splits the samples for ranks,
        or reads a stream, it does not; but an epoch without gradients is not training.
        """
        if loader is self.loader():
            return True
        with suppress(Exception):  # another loader's error must not stop its training
            dataset, torch_data = dataset_of(loader), sys.modules[TORCH]
            if dataset is self._dataset():
                own, used = [sampler() for sampler in self._samplers], samplers_of(loader)
                if any(sampler is own[0] for sampler in used):
                    return True
                is_split = any(isinstance(each, torch_data.DistributedSampler) for each in used)
                is_same = any(one is another for one in own for another in used)
                is_stream = isinstance(dataset, torch_data.IterableDataset)
                trains: bool = sys.modules["torch"].is_grad_enabled()
                return trains and (is_same or is_stream or is_split)
        return False


def samplers_of(loader: Any) -> list[Any]:
    """The sampler that `loader` draws its batches from, and the samplers inside that one."""
    samplers: list[Any] = [loader.sampler if loader.batch_sampler is None else loader.batch_sampler]
    for sampler in samplers:
        for name in ("batch_sampler", "sampler"):
            inner = getattr(sampler, name, None)
            if hasattr(type(inner), "__iter__") and all(inner is not known for known in samplers):
                samplers.append(inner)
    return samplers


def dataset_of(loader: Any) -> Any:
    """The dataset of a loader of torch's, without what Accelerate wraps it in to shard it."""
    dataset = loader.dataset
    while type(dataset).__module__.startswith("accelerate."):
        dataset = dataset.dataset
    return dataset


def _is_of_torch(loader: Any) -> bool:
    torch_data = sys.modules.get(TORCH)
    return torch_data is not None and isinstance(loader, torch_data.DataLoader)


def _kind_of(loader: Any) -> tuple[Any, ...]:
    """What stays the same when a loader is built again, by a framework or for each epoch."""
    if not _is_of_torch(loader):
        return (type(loader), length_of(loader))
    dataset = loader.dataset
    is_stream = isinstance(dataset, sys.modules[TORCH].IterableDataset)
    samples = None if is_stream else length_of(dataset)
    sampler = type(samplers_of(loader)[-1])  # Accelerate puts others around it
    return (type(loader), type(dataset), samples, sampler, loader.batch_size)


def _source_of(loader: Any) -> Callable[[], Any]:
    """Returns the dataset of a loader of torch's while it exists, else the loader itself."""
    with suppress(TypeError):  # one such as a list takes no weak reference
        return weakref.ref(dataset_of(loader) if _is_of_torch(loader) else loader)
    with suppress(TypeError):
        return weakref.ref(loader)
    return lambda: None


def _rank() -> int:
    """The rank of this process; 0 where it has none, or one that is no number."""
    rank = place_among_ranks().get("rank")
    if rank is None:
        variable = os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or ""
        rank = int(variable) if variable.isdecimal() else 0
    return rank


def _reason(error: OSError) -> str:
    """Why a file in the folder of the run is not written."""
    return LOST if isinstance(error, FileNotFoundError) else why(error)


def _reference(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _is_made(kind: Any) -> bool:
    """Whether there was an optimizer of this class, or one below it: torch then hooks its step."""
    return getattr(kind.step, "hooked", False) or any(map(_is_made, kind.__subclasses__()))
