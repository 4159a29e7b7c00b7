"""`loadeval attach`: look at a training that runs already, without touching it."""

from __future__ import annotations

import linecache
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Annotated

import typer

from loadeval.attach.hang import hang_of
from loadeval.attach.marks import Training, declared_marks, trainings_of
from loadeval.attach.observe import Attached, attached, sections, with_hang
from loadeval.cli import console
from loadeval.errors import UsageError
from loadeval.probes.looks import look_at, observe
from loadeval.report.as_json import as_json
from loadeval.report.text import show

EPILOG = "Exit codes: 0 done; 1 no such process, no training or no stacks; 2 wrong usage."
PID = "Any process of the training: itself, one of its workers, or what launched it."


def attach(
    pid: Annotated[int, typer.Argument(metavar="PID", min=1, help=PID)],
    seconds: Annotated[
        float, typer.Option(min=1, max=86_400, metavar="SECONDS", help="How long to look.")
    ] = 20.0,
    all_trainings: Annotated[
        bool, typer.Option("--all", help="Every training that the process has launched.")
    ] = False,
    json: console.AsJson = False,
) -> None:
    """Look at a training that runs already, without a restart.

    How much of the time it waits for batches and in which line, what its workers do, and what
    limits them. Stacks are read by py-spy, which may need sudo; all else by /proc.
    """
    trainings = trainings_of(pid, declared_marks())
    if len(trainings) > 1 and not all_trainings:
        numbers = ", ".join(str(training.pid) for training in trainings)
        raise UsageError(
            f"process {pid} has {len(trainings)} trainings; give the number of one "
            f"({numbers}), or --all"
        )
    seen = look_at_each(trainings, seconds)
    if json:
        console.print_json({"trainings": as_json(seen)})
    else:
        show([section for training in seen for section in sections(training)])
    if not any(training.moments for training in seen):
        raise typer.Exit(console.FAILED)


def look_at_each(trainings: Sequence[Training], seconds: float) -> list[Attached]:
    """What is seen of each, which are observed at the same time."""
    stopped = threading.Event()
    with ThreadPoolExecutor(len(trainings)) as pool:
        looks = [pool.submit(_seen, training, seconds, stopped) for training in trainings]
        try:
            wait(looks)
        except BaseException:
            stopped.set()
            raise
    return [look.result() for look in looks]


def _seen(training: Training, seconds: float, stopped: threading.Event) -> Attached:
    """A training, and where it waited all the time what for, by a look before and one after."""
    first, marks = look_at(training.pid), declared_marks()
    observation = observe(training.pid, training.workers, seconds, stopped)

    def line_of(file: str, line: int) -> str:
        """As the training sees the file, which may be in a container."""
        return linecache.getline(f"/proc/{training.pid}/root{file}", line)

    seen = attached(training, observation, marks, line_of)
    if first is None or seen.ended or seen.wait_share is None or seen.wait_share.value < 1:
        return seen
    last = look_at(training.pid)
    if last is None:
        return seen
    silent_ns = round(1e9 * (last.time_s - first.time_s))
    return with_hang(seen, hang_of([first, last], marks, silent_ns))
