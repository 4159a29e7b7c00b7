"""`loadeval attach`: look at a training that runs already, without touching it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Annotated

import typer

from loadeval.attach.findings import attached, sections, with_hang
from loadeval.attach.hang import judged
from loadeval.attach.job import Finder, Training
from loadeval.attach.marks import declared_marks
from loadeval.attach.observe import Attached
from loadeval.cli import console
from loadeval.probes.looks import look_at
from loadeval.probes.observing import Observer, source_lines
from loadeval.report.as_json import as_json as plain
from loadeval.report.text import show

PID = "Any process of the training: itself, one of its workers, or what launched it."


def attach(
    pid: Annotated[int | None, typer.Argument(metavar="[PID]", min=1, help=PID)] = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=86_400, metavar="SECONDS", help="How long to look.")
    ] = 20.0,
    every_training: Annotated[
        bool, typer.Option("--all", help="Every training of this user on this machine.")
    ] = False,
    as_json: console.AsJson = False,
) -> None:
    """Look at a training that runs already, without a restart.

    How much of the time it waits for batches and in which line, what its workers do, and what
    limits them. Stacks are read by py-spy, which may need sudo; all else by /proc.
    """
    if (pid is None) != every_training:
        raise typer.BadParameter("give the number of one process, or --all")
    finder = Finder(declared_marks())
    with console.errors_printed():
        trainings = finder.every_training() if pid is None else [finder.training_of(pid)]
        seen = look_at_each(trainings, seconds)
        if as_json:
            console.print_json({"trainings": plain(seen)})
            return
        for number, training in enumerate(seen):
            if number:
                typer.echo()
            show(sections(training))


def look_at_each(trainings: Sequence[Training], seconds: float) -> list[Attached]:
    """What is seen of each, which are observed at the same time.

    One that ended before it was looked at is left out, unless there is no other.
    """
    observers = [Observer(training.pid, seconds, training.workers) for training in trainings]
    with ThreadPoolExecutor(len(observers)) as pool:
        looks = list(map(pool.submit, [_seen] * len(observers), trainings, observers))
        try:
            wait(looks)
        except BaseException:
            for observer in observers:
                observer.stop()
            raise
    return [look.result() for look in looks if look.exception() is None or len(looks) == 1]


def _seen(training: Training, observer: Observer) -> Attached:
    """A training, and where it waited all the time what for, by a look before and one after."""
    first = look_at(training.pid)
    observation, marks = observer.observe(), declared_marks()
    read = [process.stacks for process in (observation.training, *observation.workers)]
    threads = [thread for stacks in read if stacks is not None for thread in stacks.threads]
    stacks = [stack for thread in threads for stack in thread.stacks]
    sources = source_lines(training.pid, marks.files(stacks))
    seen = attached(training, observation, marks, sources)
    if first is None or seen.ended or seen.wait_share is None or seen.wait_share.value < 1:
        return seen
    last = look_at(training.pid)
    if last is None:
        return seen
    silent_ns = round(1e9 * (last.time_s - first.time_s))
    return with_hang(seen, judged([first, last], marks, silent_ns)[0])
