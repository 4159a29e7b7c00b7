"""`loadeval demo`: train on real images, with real and ideal loading in turn."""

from __future__ import annotations

import time
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from loadeval.cli.compare import SCREEN_LINES
from loadeval.cli.console import ctrl_c_exits, errors_printed
from loadeval.demo.folder import DemoFolder
from loadeval.errors import LoadevalError
from loadeval.report import text
from loadeval.report.report import report_of
from loadeval.words import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import TaskID

    from loadeval.demo.run import DemoResult

NEEDED = {"torch", "PIL", "matplotlib"}
COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
)
REDRAW_S = 0.2


class DemoDevice(str, Enum):
    """What the demo trains on."""

    CPU = "cpu"
    CUDA = "cuda"


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder for images, run log and figure.")
    ] = Path("loadeval-demo"),
    device: Annotated[DemoDevice, typer.Option(help="What to train on.")] = DemoDevice.CPU,
) -> None:
    """Train on JPEGs, with real and ideal loading in turn.

    Takes under a minute on two CPU cores. Needs torch, Pillow and matplotlib: pip install
    "loadeval[demo]".
    """
    with ctrl_c_exits(), errors_printed():
        run_demo = _imported(device)
        replaced = DemoFolder(output).prepare()
        if replaced:
            names = ", ".join(path.name for path in replaced)
            typer.echo(f"Replacing {names} of an earlier demo.\n")
        with Progress(*COLUMNS, auto_refresh=False) as progress:
            result = run_demo(output, ProgressBars(progress))
        accuracy = f"{result.accuracy:.0%} of the images correctly"
        typer.echo(f"\nIn its last epoch the network classified {accuracy}.\n")
        report = report_of([result.run_log])
        text.show(report.sections(report.commands()), height=SCREEN_LINES)
        typer.echo(f"\nFigure written to {printable(result.figure)}")


def _imported(device: DemoDevice) -> Callable[[Path, ProgressBars], DemoResult]:
    try:
        from loadeval.demo.run import check_device, run_demo  # noqa: PLC0415 - imports torch
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        raise LoadevalError(
            f"the demo needs torch, Pillow and matplotlib, and {error.name} is not installed; "
            'install them with: pip install "loadeval[demo]"'
        ) from error
    check_device(device.value)
    return partial(run_demo, device=device.value)


class ProgressBars:
    """One bar for each stage, drawn now and then by whoever reports progress.

    No thread draws them: it would take time from the training that is measured, and would be
    alive while the loader forks its workers.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.tasks: dict[str, TaskID] = {}
        self.drawn_s = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Note that `done` of `total` of `stage` is done."""
        if stage not in self.tasks:
            self.tasks[stage] = self.progress.add_task(stage, total=total)
        self.progress.update(self.tasks[stage], completed=done)
        now_s = time.monotonic()
        if done == total or now_s - self.drawn_s > REDRAW_S:
            self.progress.refresh()
            self.drawn_s = now_s
