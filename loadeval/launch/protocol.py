"""The bottleneck protocol: one command run several times, each in a folder of its own."""

from __future__ import annotations

import signal
import socket
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from loadeval.errors import UsageError
from loadeval.launch.command import (
    BatchCounter,
    CannotStartError,
    remove_marks,
    run,
    why_nothing,
)
from loadeval.launch.opened_files import data_files
from loadeval.launch.settings import RunSettings
from loadeval.probes.page_cache import drop, files_below
from loadeval.runlog.run_folder.processes import processes_in
from loadeval.runlog.run_folder.protocol_steps import FOLDERS, Dropped, NotRun, Step, StepResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loadeval.runlog.model import Mode

MODES: dict[Step, Mode] = {Step.REPLAY: "replay", Step.ALTERNATE: "alternate"}
"""Other steps use mode "log"."""
NSYS = ("profile", "--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none")
"""CPU samples and context switches make a step slower, and need rights that containers lack."""
PROFILE = "profile"
NSYS_GRACE_S = 600.0
"""How long nsys has, after the command was ended, to write its report."""
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


@dataclass(frozen=True, slots=True)
class ProtocolPlan:
    """What to run, and for how many batches.

    `stop_after` None runs all of them; `warm_up` 0 leaves the warm-up out. `nsys` is the path of
    the program, None if it is not run. With `cold` the command is run once with its files out of
    the page cache: those in `data`, or else those that it opened before. `settings` are those of
    all steps, but for folder, mode and batches.
    """

    command: list[str]
    folder: Path
    stop_after: int | None
    warm_up: int
    nsys: str | None = None
    settings: RunSettings = field(default_factory=lambda: RunSettings(""))
    cold: bool = False
    data: Sequence[Path] = ()

    @property
    def steps(self) -> list[Step]:
        """The steps that run the command."""
        left_out = {Step.DOCTOR}
        if not self.warm_up:
            left_out.add(Step.WARM_UP)
        if self.nsys is None:
            left_out.add(Step.NSYS)
        if not self.cold:
            left_out.add(Step.COLD)
        return [step for step in Step if step not in left_out]

    def batches(self, step: Step) -> int | None:
        """After this number of batches the command is ended; None where it is not."""
        return self.warm_up if step is Step.WARM_UP else self.stop_after


def run_steps(
    plan: ProtocolPlan, begin: Callable[[Step], object], end: Callable[[StepResult], object]
) -> list[StepResult]:
    """Run the command for each step, in turn, calling `begin` before it and `end` after it.

    After a signal that ends us, or a first step that measured nothing, the others are left out.
    Raises CannotStartError if the command cannot be started, OSError if there is no room for logs.
    """
    results: list[StepResult] = []
    left_out: NotRun | None = None
    with _signals_noted() as noted, TemporaryDirectory() as notes:
        if plan.cold and not plan.data:
            plan = replace(plan, settings=replace(plan.settings, notes_opened=notes))
        for step in plan.steps:
            if left_out is not None:
                results.append(StepResult(step, left_out))
                continue
            begin(step)
            try:
                result = _run_step(plan, step)
            except CannotStartError as error:
                if not results:
                    raise
                result = StepResult(step, code=error.code)
            except KeyboardInterrupt:
                result = StepResult(step, signal=signal.SIGINT)
            ending = [number for number in noted() if number in ENDING]
            if ending:
                result = replace(result, signal=ending[0])
            if result.signal is not None:
                left_out = NotRun.INTERRUPTED
            elif result.nothing is not None and not results:
                left_out = NotRun.NO_LOADER
            results.append(result)
            end(result)
    return results


def _run_step(plan: ProtocolPlan, step: Step) -> StepResult:
    dropped = None
    if step is Step.COLD:
        try:
            dropped = _dropped(plan)
        except UsageError as error:
            return StepResult(step, NotRun.NOT_COLD, why_not_cold=str(error))
    folder = plan.folder / FOLDERS[step]
    folder.mkdir(exist_ok=True)
    mode, stop_after = MODES.get(step, "log"), plan.batches(step)
    most = stop_after if mode == "alternate" else None
    settings = replace(plan.settings, folder=str(folder), mode=mode, batches=most)
    command, grace_s = plan.command, None
    if step is Step.NSYS and plan.nsys is not None:
        command = [plan.nsys, *NSYS, f"--output={folder / PROFILE}", *command]
        grace_s = NSYS_GRACE_S
    try:
        ended = run(command, settings, stop_after, grace_s)
        batches = _batches(folder, replayed=step is Step.REPLAY)
        nothing = None if batches else why_nothing(folder)
    finally:
        remove_marks(folder)
    profiles = (
        sorted(path.name for path in folder.glob(f"{PROFILE}.*")) if step is Step.NSYS else []
    )
    profile = f"{folder.name}/{profiles[0]}" if profiles else None
    return StepResult(
        step,
        code=ended.code,
        was_stopped=ended.was_stopped,
        batches=batches,
        nothing=nothing,
        profile=profile,
        dropped=dropped,
    )


def _dropped(plan: ProtocolPlan) -> Dropped:
    """Drop the files of the data set from the page cache. Raises UsageError."""
    notes = plan.settings.notes_opened
    files = files_below(plan.data) if notes is None else data_files(Path(notes))
    if not files:
        raise UsageError(
            "Python code of the command opened no file to read it; name the folder of the data set "
            "with --data"
        )
    return drop(files)


def _batches(folder: Path, *, replayed: bool) -> int:
    processes = processes_in(folder, replayed=replayed)
    logs = [folder / process.main.log for process in processes if process.main is not None]
    return max((BatchCounter(log).batches() for log in logs), default=0)


@contextmanager
def _signals_noted() -> Iterator[Callable[[], bytes]]:
    """A function that returns the numbers of the signals that came since its last call.

    While a command runs, signals are passed on to it, and nobody else sees them.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)

        def noted() -> bytes:
            try:
                return ours.recv(4096)
            except BlockingIOError:
                return b""

        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield noted
        finally:
            signal.set_wakeup_fd(before)
