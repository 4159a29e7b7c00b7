"""`loadeval diagnose`: is it data loading, how much would it give, and what to change."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from loadeval.cli import run
from loadeval.cli.console import LOOK_SHARE, Command, say, shown_path
from loadeval.data.folder import ProcessRecord
from loadeval.data.log import read_run
from loadeval.errors import LoadevalError
from loadeval.estimate.gap import gap
from loadeval.estimate.steady import passed_over
from loadeval.findings.run import rising_steps
from loadeval.launch.command import ServedBatches
from loadeval.launch.loadeval_inject import ENOUGH_MARK
from loadeval.launch.settings import RunSettings, settings_in

EPILOG = (
    "Exit code: the command's own; 0 where loadeval ended it, 1 where nothing was measured, 126 or "
    "127 where it could not be started."
)
BATCHES = "Measure N batches, precise or not."
GO_ON = "Let the program run on after that, unmeasured."
PAIRS = 8
HALF_WIDTH = 0.05
"""Of the share of the time lost: an interval under five points either way."""
LONGEST_S = 120.0
"""Since the first batch."""
LOOK_EVERY_S = 2.0


def diagnose(
    command: Command,
    batches: Annotated[int | None, typer.Option(metavar="N", min=1, help=BATCHES)] = None,
    go_on: Annotated[bool, typer.Option("--go-on", help=GO_ON)] = False,
    settings: run.Set = None,
    allow_changes: run.AllowChanges = False,
    output: run.Output = None,
) -> None:
    """Measure a program for a short while, and say what to change.

    Alternates real and ideal loading until eight pairs are measured and the time lost is known
    within five points, or until two minutes after the first batch. Then the program is ended, as
    Ctrl-C does. loadeval prints on stderr only.
    """
    options = {"mode": "alternate", "batches": batches}
    of_run = RunSettings(options, settings_in(settings or ()), allow_changes)
    folder = run.folder_for(command, of_run, output)
    is_enough = ServedBatches(folder, batches) if batches else Enough(folder)

    def goes_on(recorded: Sequence[ProcessRecord]) -> bool:
        if not (folder / ENOUGH_MARK).exists() and is_enough(recorded):
            (folder / ENOUGH_MARK).touch()
            place = shlex.quote(shown_path(folder))
            say(
                "loadeval: enough was measured, and the program goes on unmeasured; what was found "
                f"is said at its end, or now by: loadeval compare {place}"
            )
        return False

    run.measure(command, of_run, folder, goes_on if go_on else is_enough, must_measure=True)


class Enough:
    """Whether the loader of the first rank was measured for long enough.

    Not while its steps grow: what grows in them is seen once it is long.
    """

    def __init__(self, folder: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._now_s = folder, now_s
        self._began_s: float | None = None
        self._next_s = 0.0

    def __call__(self, recorded: Sequence[ProcessRecord]) -> bool:
        """Asked of the processes that iterate loaders."""
        main = recorded[0].main if recorded else None
        began_s = self._now_s()
        if main is None or began_s < self._next_s:
            return False
        try:
            logged = read_run(self._folder / main.log)
        except LoadevalError:
            return False
        if self._began_s is None and logged.batches:
            self._began_s = began_s
        measured = gap(logged)
        self._next_s = began_s + max(LOOK_EVERY_S, LOOK_SHARE * (self._now_s() - began_s))
        pairs, (low, high) = measured.pairs or 0, (0.0, 2.0)
        if measured.lost_share is not None and measured.lost_share.low is not None:
            low, high = measured.lost_share.bounds
        is_exact = pairs >= PAIRS and (high - low) / 2 < HALF_WIDTH
        trains = passed_over(logged) != logged.batches
        if is_exact and trains and not rising_steps(logged)[2]:
            return True
        return self._began_s is not None and began_s - self._began_s >= LONGEST_S
