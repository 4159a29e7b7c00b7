"""`loadeval whatif`: throughput under other settings, predicted from a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from loadeval.cli.console import AsJson, Figure, log_at, print_json
from loadeval.data.log import read_run
from loadeval.model.model import Model
from loadeval.report.as_json import as_json
from loadeval.report.text import show
from loadeval.report.whatif import LEAST, plot_worker_curve, whatif_as_dict, whatif_sections
from loadeval.report.whatif import whatif as ask
from loadeval.words import printable

RUN = "The log, or the folder, of an alternating run."
FASTER = "Make a part faster: GaussianBlur=4."
CPUS = "CPUs that training may use."


def whatif(  # noqa: PLR0913 - an option for each setting
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    *,
    num_workers: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Worker processes.")
    ] = None,
    prefetch_factor: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Batches ready for each worker.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Samples in a batch.")
    ] = None,
    cpus: Annotated[
        float | None, typer.Option(metavar="N", min=0.01, max=10_000, help=CPUS)
    ] = None,
    in_order: Annotated[
        bool | None,
        typer.Option("--in-order/--out-of-order", help="Whether batches keep their order."),
    ] = None,
    faster: Annotated[list[str] | None, typer.Option(metavar="NAME=TIMES", help=FASTER)] = None,
    output: Figure = None,
    json: AsJson = False,
) -> None:
    """Predict throughput under other settings of the loader.

    Without options, for each number of workers; with some, for these settings. A part that becomes
    faster is a transform or function, or fetch, collate, indices, transfer, pin or step. Nothing is
    measured: the batches of the run are simulated by the rules of PyTorch's DataLoader.
    """
    options = {name: each for name, each in locals().items() if name in LEAST and each is not None}
    if faster:
        options["faster"] = _parts(faster)
    model, asked = Model.of(read_run(log_at(run))), None
    if options:
        asked = ask(model, **options)
    if output is not None:
        plot_worker_curve(model, output)
    if json:
        print_json(as_json(whatif_as_dict(model, asked)))
        return
    show(whatif_sections(model, asked))
    if output is not None:
        typer.echo(f"\nFigure written to {printable(output)}")


def _parts(given: Sequence[str]) -> dict[str, float]:
    """What becomes how many times as fast."""
    parts = {}
    for text in given:
        found = re.fullmatch(r"(.+)=(\d+\.?\d*|\.\d+)", text)
        if found is None or not float(found[2]):
            raise typer.BadParameter(
                f"--faster is {printable(text)}; expected a transform or a part of loading, and "
                "how many times as fast it becomes, such as GaussianBlur=4"
            )
        parts[found[1]] = float(found[2])
    return parts
