"""`loadeval attach`: look at a training that runs already, without touching it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from loadeval.analysis.attach.job import (
    ProcessKind,
    all_trainings,
    kinds_of,
    top_of,
    trainings_below,
)
from loadeval.analysis.attach.marks import lines_to_know, marks_of
from loadeval.analysis.attach.report import attached_report
from loadeval.cli.console import (
    AsJson,
    ctrl_c_exits,
    errors_printed,
    new_console,
    print_json,
    print_lines,
)
from loadeval.errors import UsageError
from loadeval.launch.hangs import hang_now
from loadeval.probes.jobs import descendants_of, job_around, python_processes, seen
from loadeval.probes.observing import Observer, source_lines
from loadeval.report.attach import attached_as_dict
from loadeval.report.formatting import printable
from loadeval.report.terminal.attach import attached_screen
from loadeval.report.terminal.hangs import hang_lines
from loadeval.runtime.registry import declared_in_stacks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.attach.job import Training
    from loadeval.analysis.attach.marks import Marks
    from loadeval.analysis.attach.report import AttachedReport
    from loadeval.analysis.hangs.hang import Hang
    from loadeval.probes.jobs import SeenProcess
    from loadeval.probes.observing import Observation

PID = "Any process of the training: itself, one of its workers, or what launched it."
SECONDS = "How long to look."
ALL = "Every training of this user on this machine."
SHORTEST_S, LONGEST_S = 1, 86_400
MOST_NAMED = 10


def attach(
    pid: Annotated[int | None, typer.Argument(metavar="[PID]", min=1, help=PID)] = None,
    seconds: Annotated[
        float, typer.Option(min=SHORTEST_S, max=LONGEST_S, metavar="SECONDS", help=SECONDS)
    ] = 20.0,
    every_training: Annotated[bool, typer.Option("--all", help=ALL)] = False,
    as_json: AsJson = False,
) -> None:
    """Look at a training that runs already: nothing is restarted, edited or injected.

    How much of the time it waits for batches and in which line, what its workers do, and what
    limits them. Stacks are read by py-spy, which may need sudo; all else by /proc.
    """
    if (pid is None) != every_training:
        raise typer.BadParameter("give the number of one process, or --all")
    marks = marks_of(*declared_in_stacks())
    with errors_printed(), ctrl_c_exits():
        looks = Looks(seconds, marks)
        trainings = looks.all_trainings() if pid is None else (looks.training_of(pid),)
        reports = looks.at(trainings)
        if as_json:
            print_json(
                {
                    "trainings": [
                        attached_as_dict(report, _hang(report, marks)) for report in reports
                    ]
                }
            )
            return
        for number, report in enumerate(reports):
            if number:
                typer.echo()
            width = new_console().width
            if (hang := _hang(report, marks)) is not None:
                print_lines([*hang_lines(hang, width), ""])
            print_lines(attached_screen(report, width))


class Looks:
    """Looks at trainings; processes that were seen to load before are not read again."""

    def __init__(self, seconds: float, marks: Marks) -> None:
        self._seconds, self._marks = seconds, marks
        self._known: dict[int, SeenProcess] = {}

    def all_trainings(self) -> tuple[Training, ...]:
        """Those of this user. Raises UsageError where there are none."""
        trainings = all_trainings(self._settled(python_processes()), self._marks)
        if not trainings:
            raise UsageError(
                "no training of this user was found: none of its Python processes has workers of "
                "a loader or has loaded a framework; give the number of one"
            )
        return trainings

    def training_of(self, pid: int) -> Training:
        """The training of the job that process `pid` is of.

        Raises UsageError where there is none, or several.
        """
        processes = job_around(pid)
        if pid not in processes:
            raise UsageError(
                f"there is no process {pid}; expected the number of one that runs, as ps shows it"
            )
        top = top_of(pid, processes, self._marks)
        if top != pid:
            processes = job_around(top)
        trainings = trainings_below(top, self._settled(processes), self._marks)
        if not trainings:
            command = printable(" ".join(processes[top].command or ("unknown",)))
            raise UsageError(
                f"process {pid} ({command}) runs no Python program, and has started none that runs"
            )
        if len(trainings) > 1:
            numbers = ", ".join(str(training.pid) for training in trainings[:MOST_NAMED])
            raise UsageError(
                f"process {pid} has {len(trainings)} trainings; give the number of one "
                f"({numbers}), or --all"
            )
        return trainings[0]

    def at(self, trainings: Sequence[Training]) -> list[AttachedReport]:
        """A report of each, which are observed at the same time."""
        observers = [
            Observer(training.pid, self._seconds, partial(self._workers_of, training.pid))
            for training in trainings
        ]
        with ThreadPoolExecutor(len(observers)) as pool:
            looks = [pool.submit(observer.observe) for observer in observers]
            try:
                wait(looks)
            except BaseException:
                for observer in observers:
                    observer.stop()
                raise
        observed = zip(trainings, looks, strict=True)
        # One that ended before it was looked at is left out, unless there is no other.
        return [
            _report(training, look.result(), self._marks)
            for training, look in observed
            if look.exception() is None or len(looks) == 1
        ]

    def _workers_of(self, pid: int) -> Sequence[int]:
        """The workers that training `pid` has now."""
        present = {pid, *descendants_of(pid)}
        known = {number: self._known[number] for number in present & self._known.keys()}
        processes = self._settled(known | seen(present - known.keys()))
        trainings = trainings_below(pid, processes, self._marks) if pid in processes else ()
        return next((training.workers for training in trainings if training.pid == pid), ())

    def _settled(self, processes: dict[int, SeenProcess]) -> dict[int, SeenProcess]:
        """The same processes; workers are kept, for one that starts now does not show as one."""
        kinds = kinds_of(processes, self._marks)
        workers = {pid for pid, kind in kinds.items() if kind is ProcessKind.WORKER}
        parents = {processes[pid].parent for pid in workers} & processes.keys()
        self._known.update((pid, processes[pid]) for pid in workers | parents if pid is not None)
        return processes


def _hang(report: AttachedReport, marks: Marks) -> Hang | None:
    """Why a training that waited at each moment gets no batch; None where it may yet."""
    if report.ended or report.wait is None or report.wait.value < 1:
        return None
    hang = hang_now(report.training.pid, report.elapsed_ns, marks)
    return hang if hang is not None and hang.is_hang else None


def _report(training: Training, observation: Observation, marks: Marks) -> AttachedReport:
    stacks = [
        stack
        for process in (observation.training, *observation.workers)
        for samples in process.samples
        for thread in samples.threads
        for stack in thread.stacks
    ]
    sources = source_lines(training.pid, lines_to_know(stacks, marks))
    return attached_report(training, observation, marks, sources)
