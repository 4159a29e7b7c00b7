"""Runs a command exactly as given, so that the Pythons it starts measure their loaders."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, NoReturn

import psutil

from loadeval.data.folder import ProcessRecord, processes_in
from loadeval.data.redaction import share_salt
from loadeval.errors import LoadevalError, UsageError
from loadeval.launch import loadeval_inject
from loadeval.launch.settings import SETTINGS, RunSettings, adapters
from loadeval.live import FollowedRun
from loadeval.words import printable

ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
POLL_S = 0.5
GRACE_S = 15.0
"""How long a program has to end after SIGINT, before SIGTERM."""
IsEnough = Callable[[Sequence[ProcessRecord]], bool]
"""Asked of what the processes of a command have recorded: whether it is to be ended."""


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    `code` is the return code of subprocess; `was_stopped` tells whether we sent a signal that ends
    the command, after enough batches, and `was_aborted` whether we did because it hung.
    `was_interrupted` tells whether we got a Ctrl-C meanwhile, or another signal that ends programs.
    """

    code: int
    was_stopped: bool
    was_aborted: bool = False
    was_interrupted: bool = False


def name_of(command: Sequence[str]) -> str:
    """What to call the run of `command`: its script or module, else its program."""
    for before, word in zip(["", *command], command, strict=False):
        if word.endswith(".py"):
            return Path(word).stem
        if before == "-m":
            return word
    return Path(command[0]).stem


def run(  # noqa: C901 - what may happen while it runs, in order
    command: Sequence[str],
    settings: RunSettings,
    folder: Path,
    is_enough: IsEnough | None = None,
    is_hanging: Callable[[], bool] = bool,
    output: IO[bytes] | None = None,
) -> Ended:
    """Run `command`, whose logs go to `folder`, to its end.

    Or until `is_enough`, which is asked often, returns True: then it gets SIGINT, and SIGTERM where
    it has not ended GRACE_S later. Once `is_hanging`, which is asked often, returns True, it and
    all processes below it get SIGTERM, and SIGKILL where they have not ended after that time.

    It has our terminal, stdin, stdout and stderr, or writes to `output`, and gets the signals that
    we get, but for a terminal's Ctrl-C, which the terminal sends to it too. Raises UsageError if it
    cannot be started.
    """
    if settings.options.get("redact"):
        share_salt()
    received: list[int] = []
    inject = str(Path(loadeval_inject.__file__).with_name("inject"))
    own = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (inject, os.environ.get("PYTHONPATH")))),
        loadeval_inject.FOLDER: str(folder),
        loadeval_inject.ADAPTERS: ",".join(map("=".join, adapters().items())),
        SETTINGS: json.dumps(asdict(settings)),
    }
    try:
        child = subprocess.Popen(command, env=own, stdout=output, stderr=output)  # noqa: S603 - what the user asked for
    except OSError as error:
        raise UsageError(
            f"cannot run {command[0]}: {error.strerror or error}; expected a program, or a script "
            "whose first line names one that is there"
        ) from error

    def pass_on(number: int, _: object) -> None:
        received.append(number)
        if number not in {signal.SIGINT, signal.SIGQUIT} or not _is_in_foreground():
            child.send_signal(number)

    # What we ignore, as under nohup, the child ignores too.
    before = {
        number: signal.signal(number, pass_on)
        for number in FORWARDED
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    process, was_stopped, due_s = psutil.Process(child.pid), False, math.inf
    hung, stopped = list[psutil.Process](), list[psutil.Process]()
    try:
        while True:
            # Without a timeout, a signal that comes just before the wait is passed on only after.
            with suppress(subprocess.TimeoutExpired):
                code = child.wait(POLL_S)
                _signal(hung, signal.SIGKILL)  # a stuck worker outlives its parent
                return Ended(code, was_stopped, bool(hung), not ENDING.isdisjoint(received))
            if time.monotonic() >= due_s:
                due_s = math.inf
                _signal(_with_all_below(process), signal.SIGKILL if hung else signal.SIGTERM)
            elif not hung and is_hanging():
                due_s, hung = time.monotonic() + GRACE_S, _with_all_below(process)
                _signal(hung, signal.SIGTERM)
            if is_enough is None or stopped:
                continue
            recorded, has_enough = list[ProcessRecord](), False
            with suppress(OSError, LoadevalError):  # the program may remove or damage its logs
                recorded = processes_in(folder)
                has_enough = is_enough(recorded)
            if not has_enough:
                continue
            with suppress(OSError):  # a full disk takes none
                (folder / loadeval_inject.ENDED_MARK).touch()
            # A launcher gets no signal: it would kill its ranks. What is not below the command gets
            # none, whatever a file says.
            pids = {record.pid for record in recorded if not record.ended}
            stopped = [each for each in _with_all_below(process) if each.pid in pids] or [process]
            due_s, was_stopped = time.monotonic() + GRACE_S, _signal(stopped, signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_like(code: int) -> NoReturn:
    """End this process as the command ended: with its exit code, or by the signal that ended it."""
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):  # the reader is gone: Python would fail once more, with its code
        if code >= 0:
            os._exit(code)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core dump is the program's
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    raise SystemExit(code)


def why_nothing(folder: Path, code: int) -> str:
    """Why `folder` has no log of a command that ended with `code`, and what to do about it."""
    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    why = f"until the command ended with {how}, no data loader that loadeval knows served a batch"
    if not code:
        why += (
            "; wrap what it iterates: loadeval.LoaderEvaluator(iterable). If it sets PYTHONPATH, "
            "write PYTHONPATH=.:$PYTHONPATH"
        )
    if not (folder / loadeval_inject.PYTHON_MARK).exists():
        why = (
            "the command started no Python that can be measured: options -E, -I and -S, an empty "
            "environment and PYTHONPATH=. keep loadeval out; leave them out, write "
            "PYTHONPATH=.:$PYTHONPATH, or call loadeval.install() in the program"
        )
    hint = ". Is loadeval installed in the Python of the program, and is the folder writable?"
    for mark, more in ((loadeval_inject.FAILED_MARK, hint), (loadeval_inject.REFUSED_MARK, "")):
        with suppress(OSError):
            text = (folder / mark).read_text(encoding="utf-8", errors="replace")
            if text := text.partition("\n")[0]:  # a full disk takes none
                why = text + more
    return printable(f"Nothing was measured: {why}")


def remove_marks(folder: Path) -> None:
    """Remove the marks, and the folder if nothing else is in it; as far as that can be done."""
    with suppress(OSError):
        for mark in loadeval_inject.MARKS:
            (folder / mark).unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()


def _is_in_foreground() -> bool:
    with suppress(OSError), Path(os.ctermid()).open("rb", buffering=0) as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False


def _with_all_below(command: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [command, *command.children(recursive=True)]
    return [command]


def _signal(processes: Iterable[psutil.Process], number: int) -> bool:
    """Send a signal to each; whether one could be sent."""
    is_sent = False
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(number)
            is_sent = True
    return is_sent


class ServedBatches:
    """Whether the training loader of a rank has served `batches`."""

    def __init__(self, folder: Path, batches: int) -> None:
        self._folder, self._batches = folder, batches
        self._ranks: dict[str, FollowedRun] = {}

    def __call__(self, recorded: Sequence[ProcessRecord]) -> bool:
        """Asked of the processes that iterate loaders."""
        for log in [record.main.log for record in recorded if record.main is not None]:
            rank = self._ranks.setdefault(log, FollowedRun(self._folder / log))
            with suppress(OSError, LoadevalError):  # the program may remove or damage its log
                if rank.read() and rank.run.batches >= self._batches:
                    return True
        return False
