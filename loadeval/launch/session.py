"""Measures every loader that this process iterates: the training one, and the others apart."""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import sys
import threading
import time
import warnings
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from loadeval.errors import LoadevalWarning, UsageError
from loadeval.in_place import samplers_of
from loadeval.launch.batches import DatasetBatches, rows_of
from loadeval.launch.folder import claimed_name, with_roles
from loadeval.launch.inject.loadeval_inject import FOLDER, MODULES, failed
from loadeval.launch.measured import MeasuredLoader, are_gradients_on
from loadeval.runlog.processes import REPLAYED, ProcessRecord
from loadeval.runlog.redaction import placeholder
from loadeval.runlog.writer import REMOVED, why
from loadeval.runtime.adapter import length_of
from loadeval.runtime.log_queue import STALLED_S, is_news, patience_s, tell_once
from loadeval.runtime.log_queue import THREAD as LOG
from loadeval.runtime.measurement import place_among_ranks
from loadeval.runtime.registry import OWN, registered
from loadeval.runtime.threads import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from loadeval.launch.measured import Read
    from loadeval.runlog.model import Mode

    Iter = Callable[[Any], Iterator[Any]]

SETTINGS = "LOADEVAL_RUN_SETTINGS"
"""The variable with the Settings, as JSON."""
SAVE_INTERVAL_S = 1.0
"""How old the count of optimizer steps in a process's file may become."""
NOT_SAVED = "{path}, which says what was measured, is not up to date ({why})"


@dataclass(frozen=True, slots=True)
class Settings:
    """What `loadeval run` tells the processes of its command, by their environment.

    `mode` is that of the training loader; others are logged. `batches` is as in LoaderEvaluator.
    """

    folder: str
    mode: Mode = "log"
    batches: int | None = None
    redact: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Raises KeyError or ValueError where there are none."""
        return cls(environment[FOLDER], **json.loads(environment.get(SETTINGS, "{}")))

    def environment(self) -> dict[str, str]:
        """The variables that say so."""
        options = {name: value for name, value in asdict(self).items() if name != "folder"}
        return {
            FOLDER: self.folder,
            SETTINGS: json.dumps(options),
            MODULES: os.pathsep.join(other_modules()),
        }

    @property
    def suffix(self) -> str:
        """Ends the names of all files."""
        return REPLAYED if self.mode == "replay" else ""


def other_modules() -> list[str]:
    """The modules that other packages have registered adapters for."""
    return [name for name in registered() if name not in OWN]


class Session:
    """The loaders of this process.

    Only the beginning of an epoch is looked at: no batch costs more than in a LoaderEvaluator.
    """

    _name: str
    _rank: int
    _unhook: Callable[[], None]
    _unwrap: Callable[[], None]

    def __init__(self, settings: Settings) -> None:
        self.folder = Path(settings.folder)
        self.loaders: list[MeasuredLoader] = []
        self._settings = settings
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._trained: MeasuredLoader | None = None
        self._with_gradients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._without_gradients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._saved_s = 0.0
        self._saving = threading.Lock()
        self._has_ended = False
        self._has_stepped = False

    def epoch(self, loader: Any, original: Iter) -> Iterator[Any] | None:
        """A measured epoch of `loader`, or None; `original` is the `__iter__` that was replaced.

        What `original` raises passes through; nothing else is raised.
        """
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
        if hasattr(self, "_unhook"):
            self._unhook()
            self._unwrap()
        if self.loaders:
            for one in self.loaders:
                one.measurement.close()
            self.save(ended=True)

    def _start(self) -> None:
        """The first loader is iterated: by now the process knows its rank."""
        self._rank = _rank(os.environ)
        self._name = claimed_name(self.folder, self._rank, self._settings.suffix)
        # One that a program turns into an error would end it.
        warnings.filterwarnings("default", category=LoadevalWarning)
        self._unhook = _on_optimizer_step(self.stepped)
        self._unwrap = _on_save(self.saved)
        atexit.register(self.close)

    def save(self, *, ended: bool = False) -> None:
        """Write what is known of the loaders to this process's file; a forked child has none."""
        if os.getpid() != self._pid:
            return
        self._saved_s = time.monotonic()
        if ended or not self._saving.locked():
            work = partial(self._write, self._record(ended=ended))
            within(patience_s(self.folder) if ended else STALLED_S, LOG, work)

    def _write(self, record: ProcessRecord) -> None:
        """On a thread: a file system may stall."""
        with self._saving:
            if self._has_ended:  # this one comes late
                return
            self._has_ended = record.ended
            try:
                record.save(self.folder)
            except OSError as error:
                tell_once(self.folder / f"{record.name}.json", NOT_SAVED, _reason(error))

    @property
    def main_log(self) -> Path | None:
        """The training loader's log; None before any loader was iterated."""
        main = self._record(ended=True).main if self.loaders else None
        return None if main is None else self.folder / main.log

    def _record(self, *, ended: bool) -> ProcessRecord:
        loaders = with_roles(tuple(one.record() for one in self.loaders))
        host = socket.gethostname()
        host = placeholder("host", host) if self._settings.redact else host
        return ProcessRecord(self._name, self._rank, self._pid, host, ended, loaders)

    def _measured(self, loader: Any) -> MeasuredLoader:
        """The one that `loader` belongs to: itself, or one of its kind that is not being read."""
        found = self._known(loader)
        if found is not None:
            return found
        has_gradients = self.has_gradients(loader)
        if not hasattr(self, "_name"):
            self._start()
        mode = self._mode_of(loader) if has_gradients else "log"
        log = self._free_log("" if has_gradients else "-validation")
        options: dict[str, Any] = {"name": Path(log).stem, "redact": self._settings.redact}
        if mode == "alternate":
            options["batches"] = self._settings.batches
        if mode == "log":
            options["stages"] = True
        if isinstance(loader, DatasetBatches):
            options["samples"] = rows_of
        kind, _ = _kind_of(loader)
        measured = MeasuredLoader(loader, mode, self.folder / log, kind, self, options)
        self.loaders.append(measured)
        self.save()
        return measured

    def _known(self, loader: Any) -> MeasuredLoader | None:
        has_gradients = self.has_gradients(loader)
        kind, is_rebuilt = _kind_of(loader)
        for one in self.loaders:
            if one.has_gradients != has_gradients or one.kind != kind:
                continue
            # Lightning begins an epoch before it has dropped the one before.
            if one.reads(loader) or (not one.is_read and (is_rebuilt or one.is_of(loader))):
                return one
        return None

    def _mode_of(self, loader: Any) -> Mode:
        mode = self._settings.mode
        if mode == "alternate" and (
            hasattr(loader, "load_state_dict")  # its state would run ahead of the training
            or any(one.is_read for one in self.loaders if one.mode == mode)
        ):
            return "log"
        return mode

    def _free_log(self, role: str) -> str:
        stem = self._name.removesuffix(self._settings.suffix) + role
        taken = {one.log.name for one in self.loaders}
        number = 1
        while True:
            name = f"{stem}{'' if number == 1 else f'-{number}'}{self._settings.suffix}.jsonl"
            if name not in taken and not (self.folder / name).exists():
                return name
            number += 1

    def has_gradients(self, loader: Any) -> bool:
        """Whether an epoch of `loader` that is asked for now is likely read with gradients on.

        Frameworks ask for an iterator with gradients on, and turn them off for each batch: so of
        a loader that was only ever read without them.
        """
        return are_gradients_on() and not any(one is loader for one in self._without_gradients)

    def began(self, measured: MeasuredLoader, read: Read) -> MeasuredLoader:
        """The first batch of an epoch is asked for; where it is to be noted.

        Its iterator may have been asked for with gradients on, and its batches without.
        """
        if os.getpid() != self._pid:  # a thread of the parent may have held the lock
            return measured
        has_gradients, loader = are_gradients_on(), read.loader
        with suppress(TypeError):  # it takes no weak reference
            self._note_gradients(read, has_gradients=has_gradients)
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

    def _note_gradients(self, read: Read, *, has_gradients: bool) -> None:
        loader, with_gradients = read.loader, self._with_gradients
        if has_gradients:
            with_gradients.add(loader)
            self._without_gradients.discard(loader)
        elif read.had_gradients and not any(one is loader for one in with_gradients):
            self._without_gradients.add(loader)

    def _moved(self, measured: MeasuredLoader, loader: Any) -> MeasuredLoader:
        """Where an epoch is to be noted that is read otherwise than it was asked for."""
        is_first = not measured.epochs
        if measured.mode == "replay" and not is_first:  # it has batches of its own
            return measured
        found = None if measured.mode == "replay" else self._known(loader)
        if found is None and is_first and measured.mode != "alternate":  # only training does
            measured.has_gradients = not measured.has_gradients
            return measured
        try:
            found = found or self._measured(loader)
        except Exception as error:  # noqa: BLE001 - the program goes on
            failed(error)
            return measured
        if is_first and measured.drop():
            self.loaders.remove(measured)
        return found

    def saved(self) -> None:
        """A checkpoint is written."""
        self._note_within_step("torch.save was called")

    def _note_within_step(self, what: str, of: MeasuredLoader | None = None) -> None:
        """Tell the loaders whose batch is trained on that this is no part of the step."""
        if os.getpid() != self._pid:
            return
        for one in self.loaders:
            if one is not of and one.has_gradients and one.epochs and one.is_read:
                one.measurement.recorder.note(what, "within a step")

    def stepped(self, *_: Any) -> None:
        """An optimizer made a step: on a batch of what is being read, or was read to its end."""
        read = [one for one in self.loaders if one.has_gradients and one.is_read]
        if not read and self._trained is not None:
            read = [self._trained]
        self._has_stepped = True
        for one in read:
            one.optimizer_steps += 1
        if time.monotonic() - self._saved_s > SAVE_INTERVAL_S:
            self.save()


def _reason(error: OSError) -> str:
    """Why a file in the folder of the run is not written."""
    return REMOVED if isinstance(error, FileNotFoundError) else why(error)


def _kind_of(loader: Any) -> tuple[tuple[Any, ...], bool]:
    """What stays the same where a framework, or each epoch, builds a loader anew.

    And whether that tells it from all others of the program; else it must be the same, or gone.
    """
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is None or not isinstance(loader, torch_data.DataLoader):
        columns = str(
            getattr(loader, "column_names", None)
        )  # of a dataset, of which shuffle() makes another
        return (type(loader), length_of(loader), columns), False
    dataset, sampler = loader.dataset, samplers_of(loader)[-1]
    is_stream = isinstance(dataset, torch_data.IterableDataset)
    samples = None if is_stream else length_of(dataset)
    return (type(loader), type(dataset), samples, type(sampler), loader.batch_size), True


def _rank(environment: Mapping[str, str]) -> int:
    found = place_among_ranks().get("rank")
    if found is not None:
        return found
    told = environment.get("RANK") or environment.get("SLURM_PROCID") or ""
    return int(told) if told.isdigit() else 0


def _on_optimizer_step(hook: Callable[..., None]) -> Callable[[], None]:
    """Call `hook` after each step of any of torch's optimizers; what ends that."""
    optimizer = sys.modules.get("torch.optim.optimizer")
    if optimizer is None:
        return lambda: None
    return cast("Callable[[], None]", optimizer.register_optimizer_step_post_hook(hook).remove)


def _on_save(noted: Callable[[], None]) -> Callable[[], None]:
    """Call `noted` before each torch.save; what ends that."""
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


def check(settings: Settings) -> None:
    """Raises UsageError for options that do not go together."""
    if settings.batches is not None and settings.mode != "alternate":
        raise UsageError(
            f"batches={settings.batches} works only in mode 'alternate', and the mode is "
            f"{settings.mode!r}; pass mode='alternate', or omit batches"
        )
    if settings.mode not in {"log", "replay", "alternate"}:
        raise UsageError(f"mode is {settings.mode!r}; expected 'log', 'replay' or 'alternate'")
    if settings.batches is not None and settings.batches < 1:
        raise UsageError(f"batches is {settings.batches}; expected a whole number, 1 or more")
