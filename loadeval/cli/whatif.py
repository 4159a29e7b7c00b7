"""`loadeval whatif`: throughput under other settings, predicted from runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadeval.analysis.faster import FasterError
from loadeval.analysis.whatif import LoaderModel
from loadeval.cli.console import (
    AsJson,
    errors_printed,
    print_json,
    print_lines,
    read_each_once,
    screen_width,
    told_together,
)
from loadeval.errors import UsageError
from loadeval.report.curve_figure import plot_worker_curve
from loadeval.report.figure import figure_path
from loadeval.report.formatting import printable
from loadeval.report.json import whatif_as_dict
from loadeval.report.whatif import curve_lines, prediction_lines
from loadeval.report.wording.ranks import PREDICTED_OF_RANK
from loadeval.runlog.folder import is_folder, logs_in
from loadeval.runlog.model import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

RUNS = (
    "A run whose loader was looked into, of mode alternate, or recorded with stages=True. Or "
    "several of one loader with different num_workers, which make predictions more exact; the last "
    "is the present one. Of a folder with the logs of a job's ranks, the rank that the others wait "
    "for most."
)
FASTER = (
    "Make a transform or function so many times as fast: GaussianBlur=4. Or a part of loading: "
    "fetch, collate, indices, hand-over, pin; or the training step. May be given several times."
)
CPUS = "CPUs that training and its workers share, without other programs."
OUTPUT = (
    "Draw throughput against num_workers too, and the settings that are given as a point: as PNG, "
    "SVG or PDF by the extension, such as whatif.png."
)


def whatif(  # noqa: PLR0913 - an option for each setting
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=RUNS)],
    *,
    num_workers: Annotated[int | None, typer.Option(min=0, help="Worker processes.")] = None,
    prefetch_factor: Annotated[
        int | None, typer.Option(min=1, help="Batches prefetched for each worker.")
    ] = None,
    cpus: Annotated[float | None, typer.Option(help=CPUS)] = None,
    in_order: Annotated[
        bool | None,
        typer.Option("--in-order/--out-of-order", help="Whether batches keep their order."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Samples in a batch.")] = None,
    faster: Annotated[list[str] | None, typer.Option(metavar="NAME=TIMES", help=FASTER)] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FIGURE", help=OUTPUT)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the throughput of training under other settings of its loader.

    Without options, for each number of workers; with some, for these settings. Nothing is
    measured: the batches of the run are replayed by the rules of PyTorch's DataLoader.
    """
    if cpus is not None and not (0 < cpus < math.inf):
        raise typer.BadParameter(f"--cpus is {cpus:g}; expected a number above 0")
    settings: dict[str, Any] = {
        "num_workers": num_workers,
        "prefetch_factor": prefetch_factor,
        "cpus": cpus,
        "in_order": in_order,
        "batch_size": batch_size,
        "faster": _factors(faster or ()) or None,
    }
    with errors_printed():
        figure = None if output is None else figure_path(output)
        model = LoaderModel.of(read_each_once(list(map(_slowest, runs))))
        asked = any(value is not None for value in settings.values())
        try:
            found = model.predict(**settings) if asked else None
        except FasterError as error:
            raise UsageError(f"--{error}") from None
        curve = model.curve()
        if figure is not None:
            plot_worker_curve(curve, figure, found)
    if as_json:
        print_json(whatif_as_dict(curve, found))
        return
    if found is None:
        print_lines(curve_lines(curve, screen_width()))
    else:
        _, measured = curve.measured[-1]
        print_lines(prediction_lines(measured, model.predict(), found, screen_width()))
    if figure is not None:
        typer.echo(f"\nFigure written to {printable(figure)}")


def _slowest(path: Path) -> Path:
    """Of a folder the log of the rank that was last most often, which is said on stderr."""
    if not is_folder(path):
        return path
    logs = logs_in(path)
    found = told_together(logs, path)
    if isinstance(found, Run):
        return logs[0]
    typer.echo(PREDICTED_OF_RANK.format(rank=found.shown), err=True)
    return next(Path(one.path) for one in found.ranks if one.rank == found.shown and one.path)


def _factors(given: Sequence[str]) -> dict[str, float]:
    found = {}
    for one in given:
        name, _, times = one.rpartition("=")
        try:
            factor = float(times)
        except ValueError:
            factor = 0.0
        if not name or not 0 < factor < math.inf:
            raise typer.BadParameter(
                f"--faster is {printable(one)}; expected a transform or a part of loading, and how "
                "many times as fast it becomes, such as GaussianBlur=4"
            )
        found[name] = factor
    return found
