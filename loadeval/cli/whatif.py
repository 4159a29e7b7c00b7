"""`loadeval whatif`: throughput under other settings, predicted from runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadeval.analysis.predict.faster import FasterError
from loadeval.analysis.predict.whatif import LoaderModel
from loadeval.cli.console import (
    AsJson,
    errors_printed,
    print_json,
    print_lines,
    read_each_once,
    run_or_job,
    screen_width,
)
from loadeval.data.folder import logs_in
from loadeval.data.run import Run
from loadeval.errors import UsageError
from loadeval.report.figure.curve_figure import plot_worker_curve
from loadeval.report.figure.figure import figure_path
from loadeval.report.formatting import printable
from loadeval.report.json import whatif_as_dict
from loadeval.report.terminal.whatif import curve_lines, prediction_lines
from loadeval.report.wording.ranks import PREDICTED_OF_RANK

if TYPE_CHECKING:
    from collections.abc import Sequence

RUNS = (
    "A run of mode alternate. Or several of one loader with different num_workers, which make "
    "predictions more exact; the last is the present one. Of a folder with the logs of a job's "
    "ranks, the rank that the others wait for most."
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
        model = LoaderModel.of(read_each_once(list(map(slowest_log, runs))))
        asked = any(value is not None for value in settings.values())
        try:
            prediction = model.predict(**settings) if asked else None
        except FasterError as error:
            raise UsageError(f"--{error}") from None
        curve = model.curve()
        if figure is not None:
            plot_worker_curve(curve, figure, prediction)
    if as_json:
        print_json(whatif_as_dict(curve, prediction))
        return
    if prediction is None:
        print_lines(curve_lines(curve, screen_width()))
    else:
        _, measured = curve.measured[-1]
        print_lines(prediction_lines(measured, model.predict(), prediction, screen_width()))
    if figure is not None:
        typer.echo(f"\nFigure written to {printable(figure)}")


def slowest_log(path: Path) -> Path:
    """The log at `path`; in a folder that of the rank that was last most often, said on stderr."""
    if not path.is_dir():
        return path
    logs = logs_in(path)
    job = run_or_job(logs, path)
    if isinstance(job, Run):
        return logs[0]
    typer.echo(PREDICTED_OF_RANK.format(rank=job.shown), err=True)
    return next(Path(rank.path) for rank in job.ranks if rank.rank == job.shown and rank.path)


def _factors(given: Sequence[str]) -> dict[str, float]:
    factors = {}
    for text in given:
        name, _, times = text.rpartition("=")
        try:
            factor = float(times)
        except ValueError:
            factor = 0.0
        if not name or not 0 < factor < math.inf:
            raise typer.BadParameter(
                f"--faster is {printable(text)}; expected a transform or a part of loading, and "
                "how many times as fast it becomes, such as GaussianBlur=4"
            )
        factors[name] = factor
    return factors
