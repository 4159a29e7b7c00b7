"""`loadeval attach`: look at a training that runs already, without touching it."""

from __future__ import annotations

import linecache
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Annotated

import typer

from loadeval.attach.hang import NOT_LOADING, hang_of
from loadeval.attach.marks import Training, declared_marks, trainings_of
from loadeval.attach.observe import Attached, attached, sections, with_hang
from loadeval.cli import console
from loadeval.errors import UsageError
from loadeval.probes.looks import look_at, observe
from loadeval.report.as_json import as_json
from loadeval.report.text import show

EPILOG = "Exit codes: 0 done; 1 no such process, no training or no stacks; 2 wrong usage."
PID = "The training, a worker, or its launcher."


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
    waits = None if seen.wait_share is None else seen.wait_share.value
    last = look_at(training.pid) if first and not seen.ended and waits in {0, 1} else None
    if first is None or last is None:
        return seen
    silent_ns = round(1e9 * (last.time_s - first.time_s))
    hang = hang_of([first, last], marks, silent_ns)
    return seen if waits == 0 and hang.cause not in NOT_LOADING else with_hang(seen, hang)
