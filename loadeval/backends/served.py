"""A backend in a process of its own: what it loads, and how fast it is by itself.

Libraries do not get into each other's way there, its memory is its own, and where it ends the
process, it ends no other backend.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import re
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import psutil

from loadeval.errors import in_words, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection
    from types import ModuleType

    import numpy.typing as npt


PATIENCE_S = 60.0
"""A backend that says nothing for so long is given up."""
MOST_STARTS = 10
"""A backend whose process ended so many times is given up."""
QUEUED = 2
"""Batches for each worker that pass before the clock starts: queues are then as full as later."""
LONGEST_ERROR = 300
WARNING = re.compile(r"^.+:\d+: (\w+Warning: .+)$", re.MULTILINE)
"""What Python prints of a warning."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of some samples: an array of all of them in their order, or why there is none.

    `ended` tells that they ended the process. `warned` are the warnings of Python meanwhile.
    """

    samples: npt.NDArray[Any] | None
    error: str | None = None
    ended: bool = False
    warned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Alone:
    """Samples per second of a loader that nobody trains with, and the memory that it took."""

    samples_per_s: float | None
    memory_bytes: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NotImported:
    """Why the code of a backend does not import."""

    error: str


class ServedBackend:
    """The process that runs the loader whose code is in `path`; close it in the end.

    Where it ends, another one is started for the next request, some times. `lost` is why no request
    is answered any more: its code does not import, or its process hangs or always ends. `warned`
    are the warnings of all that was loaded.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts = 0
        self.lost: str | None = None
        self.warned: dict[str, None] = {}
        self._ended = False
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        usual = multiprocessing.get_all_start_methods()[0]
        self._process = context.Process(target=serve, args=(theirs, str(self._path), usual))
        self._process.start()
        theirs.close()
        self._starts += 1

    def load(self, samples: Sequence[Any]) -> Loaded:
        """Load `samples`."""
        answer = self._ask("load", list(samples))
        if isinstance(answer, Loaded):
            self.warned |= dict.fromkeys(answer.warned)
            return answer
        return Loaded(None, str(answer), ended=self._ended)

    def alone(self, samples: Sequence[Any], cpus: Sequence[int], seconds: float) -> Alone:
        """Load `samples` on `cpus` for `seconds`, with a worker for each."""
        answer = self._ask("alone", list(samples), list(cpus), seconds)
        return answer if isinstance(answer, Alone) else Alone(None, error=str(answer))

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._connection.close()
        self._process.join(1.0)
        self._end()

    def _ask(self, *request: Any) -> Any:
        """The answer, or why there is none."""
        if self.lost is not None:
            return self.lost
        if not self._process.is_alive():
            self._connection.close()
            self._start()
        self._ended = False
        try:
            self._connection.send(request)
            if self._connection.poll(PATIENCE_S):
                answer = self._connection.recv()
                if isinstance(answer, NotImported):
                    self.lost = answer.error
                    return self.lost
                return answer
            ended = self.lost = f"it said nothing for {PATIENCE_S:.0f} s"
        except (EOFError, OSError):
            self._process.join(5.0)
            self._ended = True
            ended = f"it ended its process, with exit code {self._process.exitcode}"
            self.lost = ended if self._starts == MOST_STARTS else None
        self._end()
        return ended

    def _end(self) -> None:
        if self._process.is_alive():
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    process.kill()
            self._process.kill()
            self._process.join()


def serve(connection: Connection, path: str, start_method: str) -> None:
    """Answer requests until the other side closes. Nothing is printed; warnings are answered.

    Workers start by `start_method`: a process that was spawned would spawn its own.
    """
    multiprocessing.set_start_method(start_method, force=True)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    module: ModuleType | None = None
    with (
        tempfile.TemporaryFile("a+b") as printed,
        suppress(EOFError, OSError, KeyboardInterrupt),
    ):
        while True:
            what, *arguments = connection.recv()
            if module is None:
                try:
                    module = module_of(Path(path))
                except Exception as error:  # noqa: BLE001 - a library may raise anything, and is told
                    connection.send(NotImported(shortly(error)))
                    continue
            try:
                printed.truncate(0)
                os.dup2(printed.fileno() if what == "load" else silent, 2)
                if what == "load":
                    loaded = load(module, *arguments)
                    answer: Any = replace(loaded, warned=warnings_in(printed))
                else:
                    answer = alone(module, *arguments)
            except Exception as error:  # noqa: BLE001 - a backend may raise anything, and is told
                answer = shortly(error)
                # Else the loader that failed lives until garbage is collected, which ends its
                # queues before its workers: torch waits 5 s for these.
                traceback.clear_frames(error.__traceback__)
            connection.send(answer)


def warnings_in(printed: IO[bytes]) -> tuple[str, ...]:
    """The warnings of Python in what was printed, each once."""
    printed.seek(0)
    warnings = WARNING.findall(printed.read().decode(errors="replace"))
    return tuple(dict.fromkeys(warning[:LONGEST_ERROR] for warning in warnings))


def module_of(path: Path) -> ModuleType:
    """The module in the file `path`; workers that do not fork import it by its name too."""
    sys.path.insert(0, str(path.parent))
    return importlib.import_module(path.stem)


def shortly(error: BaseException) -> str:
    """The error, in one line that is not long; of a worker's or of DALI's what was the cause."""
    # An error that torch made anew of its text may not say it: it is what it was made of.
    text = text_of(error) or next(iter(map(str, error.args)), "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("Caught "):  # torch puts the traceback of a worker there
        return lines[-1][:LONGEST_ERROR]
    _, _, cause = text.partition("\nencountered:\n")  # DALI says before that where it was called
    words = f"{type(error).__name__}: {' '.join(cause.split())}" if cause else in_words(error)
    return words[:LONGEST_ERROR]


def load(module: ModuleType, samples: Sequence[Any]) -> Loaded:
    """Load `samples` in their order, with one worker."""
    with opened(module.make_loader(samples, workers=1, shuffle=False)) as batches:
        arrays = [np.asarray(batch.cpu()) for batch, _ in batches]
    return Loaded(np.concatenate(arrays) if arrays else np.empty(0))


def alone(module: ModuleType, samples: Sequence[Any], cpus: Sequence[int], seconds: float) -> Alone:
    """Load for `seconds` on `cpus`, from when the queues are full, with a worker for each."""
    bind_to(cpus)
    before_bytes, workers = memory_bytes(), len(cpus)
    with opened(module.make_loader(samples, workers=workers, shuffle=False)) as batches:
        count, arrived = 0, 0
        began_s = ended_s = time.perf_counter()
        for images, _ in batches:
            arrived += 1
            now_s = time.perf_counter()
            if arrived < QUEUED * workers:
                continue
            if arrived == QUEUED * workers:
                began_s = ended_s = now_s
                continue
            count += len(images)
            # Workers take turns, so only whole turns are of equal length.
            if not arrived % workers:
                ended_s, counted = now_s, count
                if now_s - began_s > seconds:
                    break
        now_bytes = memory_bytes()
    gc.collect()
    if ended_s == began_s:
        return Alone(None, error="its epoch is too short to be measured")
    taken = None if None in (before_bytes, now_bytes) else (now_bytes or 0) - (before_bytes or 0)
    return Alone(counted / (ended_s - began_s), None if taken is None else max(taken, 0))


@contextmanager
def opened(loader: Any) -> Iterator[Iterator[Any]]:
    """An epoch of `loader`, which is stopped in the end."""
    with ExitStack() as stack:
        if hasattr(loader, "auto_stop"):  # an SPDL pipeline
            stack.enter_context(loader.auto_stop())
        batches = iter(loader)
        yield batches
        del batches, loader


def bind_to(cpus: Sequence[int]) -> None:
    """Let all threads of this process, and what they start, run on `cpus` alone."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(int(task.name), cpus)


def memory_bytes() -> int | None:
    """The memory of this process and its children, what they share counted once."""
    total = 0
    own = psutil.Process()
    try:
        for process in [own, *own.children(recursive=True)]:
            total += process.memory_full_info().pss
    except (psutil.Error, AttributeError):
        return None
    return total
