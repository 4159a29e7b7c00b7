"""`loadeval demo`: train on real images, and alternate real and ideal loading."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from loadeval.cli.console import SCREEN_LINES, say
from loadeval.data.log import read_run
from loadeval.errors import LoadevalError, UsageError
from loadeval.estimate.before_after import before_after
from loadeval.findings.engine import diagnose
from loadeval.report import text
from loadeval.report.blocks import Times
from loadeval.report.report import report_of
from loadeval.words import printable

AFTER = "Make the first change, and tell what it brought."


def demo(
    after: Annotated[bool, typer.Option("--after", help=AFTER)] = False,
    device: Annotated[str, typer.Option(metavar="<cpu|cuda>", help="What to train on.")] = "cpu",
    output: Annotated[Path, typer.Option("--output", "-o", help="For images and logs.")] = Path(
        "loadeval-demo"
    ),
) -> None:
    """Train on JPEGs, and alternate real and ideal loading.

    Takes under a minute on two CPU cores. Needs torch, Pillow and matplotlib.
    """
    if device not in {"cpu", "cuda"}:
        raise typer.BadParameter(f"--device is {device!r}; expected cpu or cuda")
    before, now = output / "run.jsonl", output / "after.jsonl"
    if before.exists() and not (output / "photographs").exists():
        raise UsageError(
            f"{before} already exists, and no demo wrote it; give --output another folder"
        )
    if not after:
        _train(before, device)
        report = report_of([before])
        text.show(report.screen(report.commands()), height=SCREEN_LINES)
        typer.echo(f"Figure written to {printable(report.plot(output / 'comparison.png'))}")
        typer.echo(f"The first change, made and measured: loadeval demo --after -o {output}")
        return
    if not before.exists():
        raise UsageError(f"there is no {before}; run `loadeval demo -o {output}` first")
    first = next(iter(diagnose(read_run(before)).actions), None)
    if first is None or first.setting is None:
        raise UsageError(
            f"the first change that {before} advises is no setting: see loadeval compare"
        )
    _train(now, device, **{first.setting: first.proposed})
    measured = before_after(read_run(before), read_run(now)).judged
    typer.echo(
        f"{first.says}: predicted {Times(first.speedup)}, measured {Times(measured)}.\n"
        f"More: loadeval compare {printable(before)} {printable(now)}"
    )


def _train(log: Path, device: str, **settings: Any) -> None:
    """Train with settings of the DataLoader, and write the run log."""
    try:
        from loadeval.demo.run import run_demo  # noqa: PLC0415 - imports torch
    except ModuleNotFoundError as error:
        raise LoadevalError(
            f"the demo needs torch, Pillow and matplotlib, and {error.name} is not installed; "
            "install them with: pip install torch pillow matplotlib"
        ) from error
    say("loadeval: training, which takes under a minute")
    run_demo(log, device=device, **settings)
