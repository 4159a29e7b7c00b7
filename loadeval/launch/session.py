"""Measures every loader that this process iterates: the training loader, and others separately."""

from __future__ import annotations

import atexit
import functools
import os
import socket
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from loadeval.adapter import length_of
from loadeval.core.threads import LOG_THREAD as LOG
from loadeval.core.threads import STALLED_S, is_news, patience_s, pause_at_exit, warn_once, within
from loadeval.data.folder import ProcessRecord
from loadeval.data.log import REMOVED, why
from loadeval.data.redaction import SALT, host_placeholder, run_salt, share_salt
from loadeval.errors import LoadevalWarning, UsageError, warn
from loadeval.evaluator import place_among_ranks
from loadeval.launch.folder import claimed_name, with_roles
from loadeval.launch.loadeval_inject import ENOUGH_MARK, failed
from loadeval.launch.measured import MeasuredLoader, Read, are_gradients_on, dataset_of
from loadeval.launch.one_loader import samplers_of
from loadeval.launch.refused import note_refused
from loadeval.launch.settings import RunSettings, override

Iter = Callable[[Any], Iterator[Any]]

SAVE_INTERVAL_S = 1.0
"""How old the count of optimizer steps in a process's file may become."""
NOT_TRACKED = (
    "the package {track} is not installed where the program runs, so this run is not tracked; "
    "install it with: pip install {track}"
)
NOT_SAVED = "{path}, which says what was measured, is not up to date ({why})"


class Session:
    """The loaders of this process.

    Only the beginning of an epoch is looked at: no batch costs more than in a LoaderEvaluator.
    `of_command` tells that the process is of `loadeval run`, not one that called `install()`.
    """

    _name: str
    _rank: int

    def __init__(self, settings: RunSettings, *, of_command: bool = False) -> None:
        self.folder = Path(settings.folder)
        self.loaders: list[MeasuredLoader] = []
        self._settings, self.of_command = settings, of_command
        self._gave_salt = settings.redact and share_salt()
        self._salt = run_salt()
        self._pid, self._started_ms = os.getpid(), started_ms()
        self._lock = threading.RLock()
        self._trained: MeasuredLoader | None = None
        self._with_gradients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._without_gradients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._undo = ExitStack()  # of what is patched for it
        self._saved_s = 0.0
        self._saving = threading.Lock()
        self._has_ended = False
        self._has_stepped = False
        self._track = settings.track

    def epoch(
        self, loader: Any, original: Iter, *, evaluates: bool = False
    ) -> Iterator[Any] | None:
        """A measured epoch of `loader`, or None; `original` is the `__iter__` that was replaced.

        `evaluates` tells that it is of an evaluation, though gradients may be on. What `original`
        raises passes through, and UsageError where the loader does not take the settings that it
        is to have; nothing else is raised.
        """
        try:
            with self._lock:
                trains = self.has_gradients(loader) and not evaluates
                override(loader, self._settings, trains=trains)
        except UsageError as error:
            note_refused(self.folder, error, in_one_line=self.of_command)
            raise
        try:
            with self._lock:
                measured = self._measured(loader)
        except Exception as error:  # noqa: BLE001 - the program goes on
            cause = error.__cause__
            if not isinstance(cause, OSError) or is_news(self.folder, _reason(cause)):
                failed(error)
            return None
        return measured.epoch(loader, original)

    def close(self) -> None:
        """Finish the logs. In a forked child, whose logs they are not, nothing happens."""
        if os.getpid() != self._pid:
            return
        atexit.unregister(self.close)
        if self._gave_salt:
            os.environ.pop(SALT, None)
        self._undo.close()
        if self.loaders:
            for loader in self.loaders:
                loader.measurement.close()
            self.save(ended=True)
            pause_at_exit()

    def _start(self) -> None:
        """Called when the first loader is iterated: by then the process knows its rank."""
        self._rank = _rank(os.environ)
        self._name = claimed_name(self.folder, self._rank)
        # A program that turns warnings into errors would end at one of ours.
        warnings.filterwarnings("default", category=LoadevalWarning)
        optimizer = sys.modules.get("torch.optim.optimizer")
        if optimizer is not None:
            self._undo.callback(optimizer.register_optimizer_step_post_hook(self.stepped).remove)
        self._undo.callback(_on_save(partial(self._note_within_step, "torch.save was called")))
        atexit.register(self.close)

    def save(self, *, ended: bool = False) -> None:
        """Write what is known about the loaders to this process's file; a forked child has none."""
        if os.getpid() != self._pid:
            return
        self._saved_s = time.monotonic()
        if ended or not self._saving.locked():
            work = partial(self._write, self._record(ended=ended))
            within(patience_s(self.folder) if ended else STALLED_S, LOG, work)

    def _write(self, record: ProcessRecord) -> None:
        """Runs on a thread, since a file system may stall."""
        with self._saving:
            if self._has_ended:  # this one comes late
                return
            self._has_ended = record.ended
            try:
                record.save(self.folder)
            except OSError as error:
                warn_once(self.folder / f"{record.name}.json", NOT_SAVED, _reason(error))

    @property
    def main(self) -> MeasuredLoader | None:
        """The training loader; None before any loader was iterated."""
        main = self._record(ended=True).main if self.loaders else None
        logs = {loader.log.name: loader for loader in self.loaders}
        return None if main is None else logs[main.log]

    def _record(self, *, ended: bool) -> ProcessRecord:
        datasets = {loader.log.name for loader in self.loaders if loader.is_dataset}
        loaders = with_roles((loader.record() for loader in self.loaders), datasets)
        host = socket.gethostname()
        host = host_placeholder(host, self._salt) if self._settings.redact else host
        return ProcessRecord(
            self._name, self._rank, self._pid, host, ended, loaders, self._started_ms
        )

    def _measured(self, loader: Any) -> MeasuredLoader:
        """The measured loader for `loader`: its own, or one whose place it takes."""
        known = self._known(loader)
        if known is not None:
            return known
        has_gradients = self.has_gradients(loader)
        if not hasattr(self, "_name"):
            self._start()
        mode = self._settings.mode if has_gradients else "log"
        alternates = any(each.is_read for each in self.loaders if each.mode == "alternate")
        # With a state, it would run ahead of the training.
        if mode == "alternate" and (alternates or hasattr(loader, "load_state_dict")):
            mode = "log"
        log = self._free_log("" if has_gradients else "-validation")
        options: dict[str, Any] = {"name": Path(log).stem, "redact": self._settings.redact}
        if mode == self._settings.mode != "replay":
            options["batches"] = self._settings.batches
        if has_gradients and mode != "replay":
            options["track"] = self._tracker_once()
        if mode == "log":
            options["stages"] = True
        kind, _ = _kind_of(loader)
        measured = MeasuredLoader(
            loader,
            mode,
            self.folder / log,
            kind,
            options,
            self.began,
            has_gradients=has_gradients,
        )
        self.loaders.append(measured)
        self.save()
        return measured

    def _tracker_once(self) -> str | None:
        """The tracker to pass the first training loader on to; None where it is not installed."""
        track, self._track = self._track, None
        if track is not None and find_spec(track) is None:
            warn(NOT_TRACKED.format(track=track))
            return None
        return track

    def _known(self, loader: Any) -> MeasuredLoader | None:
        has_gradients = self.has_gradients(loader)
        kind, is_rebuilt = _kind_of(loader)
        alike = [
            measured
            for measured in self.loaders
            if measured.has_gradients == has_gradients and measured.kind == kind
            # Lightning begins an epoch before it has dropped the one before.
            if measured.reads(loader)
            or (not measured.is_read and (is_rebuilt or measured.is_of(loader)))
        ]
        dataset = dataset_of(loader)
        for measured in alike:
            if measured.reads(loader) or (
                dataset is not None and _is_same(measured.dataset(), dataset)
            ):
                return measured
        # Accelerate keeps the streams of all evaluations, each of which Trainer makes anew.
        is_anew = not has_gradients and length_of(dataset) is None
        return next((one for one in alike if is_anew or one.dataset() is None), None)

    def _free_log(self, role: str) -> str:
        stem = self._name + role
        taken = {loader.log.name for loader in self.loaders}
        names = (f"{stem}{'' if number == 1 else f'-{number}'}.jsonl" for number in count(1))
        return next(
            name for name in names if name not in taken and not (self.folder / name).exists()
        )

    def has_gradients(self, loader: Any) -> bool:
        """Whether an epoch of `loader` that is asked for now is likely read with gradients on.

        Frameworks request an iterator with gradients on, and turn them off for each batch. So a
        loader that was only ever read without gradients is expected to be again.
        """
        return are_gradients_on() and not any(known is loader for known in self._without_gradients)

    def began(self, measured: MeasuredLoader, read: Read) -> MeasuredLoader:
        """Called when an epoch's first batch is requested; returns where the epoch is recorded.

        The iterator may have been requested with gradients on, and its batches without.
        """
        if os.getpid() != self._pid:  # a thread of the parent may have held the lock
            return measured
        has_gradients, loader = are_gradients_on(), read.loader
        with suppress(TypeError):  # it takes no weak reference
            if has_gradients:
                self._with_gradients.add(loader)
                self._without_gradients.discard(loader)
            elif read.had_gradients and not any(one is loader for one in self._with_gradients):
                self._without_gradients.add(loader)
        with self._lock:
            if has_gradients != measured.has_gradients:
                measured = self._moved(measured, loader)
            self._note_within_step(f"{measured.log.name} was read", measured)
            measured.epochs += 1
            measured.follows_training |= self._has_stepped
            if has_gradients:
                self._trained = measured
            self.save()
        return measured

    def _moved(self, measured: MeasuredLoader, loader: Any) -> MeasuredLoader:
        """Where to record an epoch if gradients are not on, or off, as when it was requested."""
        is_first = not measured.epochs
        if measured.mode == "replay" and not is_first:  # it has batches of its own
            return measured
        destination = None if measured.mode == "replay" else self._known(loader)
        # Only training alternates.
        if destination is None and is_first and measured.mode != "alternate":
            measured.has_gradients = not measured.has_gradients
            return measured
        try:
            destination = destination or self._measured(loader)
        except Exception as error:  # noqa: BLE001 - the program goes on
            failed(error)
            return measured
        if is_first and measured.drop():
            self.loaders.remove(measured)
        return destination

    def _note_within_step(self, event: str, excluded: MeasuredLoader | None = None) -> None:
        """Note `event` for each loader whose batch is being trained on, except `excluded`."""
        if os.getpid() != self._pid:
            return
        for loader in self.loaders:
            if loader is not excluded and loader.has_gradients and loader.epochs and loader.is_read:
                loader.measurement.recorder.note(event, "within a step")

    def stepped(self, *_: Any) -> None:
        """An optimizer made a step, on a batch of a loader that is or was being read."""
        stepping = [loader for loader in self.loaders if loader.has_gradients and loader.is_read]
        if not stepping and self._trained is not None:
            stepping = [self._trained]
        self._has_stepped = True
        for loader in stepping:
            loader.optimizer_steps += 1
        if time.monotonic() - self._saved_s > SAVE_INTERVAL_S:
            self.save()
            if (self.folder / ENOUGH_MARK).exists():
                for loader in stepping:
                    loader.measurement.end_soon()


def started_ms() -> int | None:
    """When the system started this process, in milliseconds since 1970; None if unknown."""
    try:
        # /proc may be of another namespace, in which os.getpid() is some other process.
        pid = int(Path("/proc/self").readlink().name)
    except (OSError, ValueError):
        pid = os.getpid()
    try:
        return int(psutil.Process(pid).create_time() * 1000)
    except psutil.Error:
        return None


def _reason(error: OSError) -> str:
    """Why a file in the folder of the run is not written."""
    return REMOVED if isinstance(error, FileNotFoundError) else why(error)


def _kind_of(loader: Any) -> tuple[tuple[Any, ...], bool]:
    """What stays the same when a loader is built again, by a framework or for each epoch.

    And whether another loader of its kind takes its place while it is there. One over another
    dataset does so only once the dataset that was read is gone.
    """
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is None or not isinstance(loader, torch_data.DataLoader):
        # A dataset is known by its columns: its shuffle() makes another object with the same ones.
        columns = str(getattr(loader, "column_names", None))
        return (type(loader), length_of(loader), columns), False
    dataset, sampler = loader.dataset, samplers_of(loader)[-1]
    is_stream = isinstance(dataset, torch_data.IterableDataset)
    samples = None if is_stream else length_of(dataset)
    return (type(loader), type(dataset), samples, type(sampler), loader.batch_size), True


def _is_same(dataset: Any, other: Any) -> bool:
    """Whether these are one dataset, or alike by what Hugging Face's know themselves by."""
    fingerprint = getattr(dataset, "_fingerprint", None)
    return dataset is other or (
        isinstance(fingerprint, str) and fingerprint == getattr(other, "_fingerprint", None)
    )


def _rank(environment: Mapping[str, str]) -> int:
    rank = place_among_ranks().get("rank")
    if rank is not None:
        return rank
    variable = environment.get("RANK") or environment.get("SLURM_PROCID") or ""
    return int(variable) if variable.isdigit() else 0


def _on_save(noted: Callable[[], None]) -> Callable[[], None]:
    """Call `noted` before each torch.save, until the returned function is called."""
    torch: Any = sys.modules.get("torch")
    original = getattr(torch, "save", None)
    if original is None:
        return lambda: None

    @functools.wraps(original)
    def save(*arguments: Any, **options: Any) -> Any:
        noted()
        return original(*arguments, **options)

    def unwrap() -> None:
        if torch.save is save:  # else another tool has replaced it
            torch.save = original

    torch.save = save
    return unwrap
