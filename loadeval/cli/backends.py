"""`loadeval backends`: which library loads a folder of JPEGs fastest under a training step."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from loadeval.analysis.backends import ranked
from loadeval.backends import (
    MOST_JPEGS,
    PIXELS_DIFFER,
    RECIPES,
    REFERENCE,
    compare_recipes,
    computing_step,
    jpegs_in,
    recipe_code,
)
from loadeval.cli.console import (
    AsJson,
    ctrl_c_exits,
    errors_printed,
    print_json,
    print_lines,
    say,
    screen_width,
)
from loadeval.errors import UsageError
from loadeval.report.figure.figure import figure_path
from loadeval.report.formatting import printable
from loadeval.report.tables import wrapped
from loadeval.report.terminal.screen import backends_screen

FOLDER = "A folder of JPEGs, with a subfolder for each class."
STEP = "What a training step takes for a batch, such as 20ms: it computes for so long on one CPU."
ONLY = "Measure this recipe; may be given several times. Without it all that are installed."
CODE = "Print the file of the fastest on stdout, and all else on stderr."
OUTPUT = "Draw real and ideal throughput too, as PNG, SVG or PDF by the extension: backends.png."


def backends(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help=FOLDER)],
    *,
    step: Annotated[str, typer.Option("--step", metavar="TIME", help=STEP)] = "20ms",
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a batch.")] = 32,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help=ONLY)] = None,
    code: Annotated[bool, typer.Option("--code", help=CODE)] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FIGURE", help=OUTPUT)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure which library loads a folder of JPEGs fastest under a training step.

    Runs recipes for Pillow, OpenCV, simplejpeg, DALI and SPDL in turns, each as it is, alone, and
    as if it were free, and compares their pixels. All resize the shorter side to 256 and take the
    middle 224 x 224.
    """
    with ctrl_c_exits(), errors_printed():
        step_s = _seconds(step)
        for name in only or []:
            if name not in RECIPES:
                known = ", ".join(RECIPES)
                raise UsageError(f"there is no recipe {printable(name)!r}; expected one of {known}")
        figure = None if output is None else figure_path(output)
        paths, workers = jpegs_in(folder), len(os.sched_getaffinity(0))
        comparison, pixels, left_out = compare_recipes(
            paths,
            only or list(RECIPES),
            computing_step(step_s),
            batch_size=batch_size,
            workers=workers,
            say=lambda text: say(f"loadeval: {text}"),
        )
        if figure is not None:
            comparison.plot(figure)
    fastest = next((each.name for each in ranked(comparison.backends) if each.real), None)
    best = None if fastest is None else recipe_code(fastest)
    if as_json:
        print_json(
            {
                "fastest": fastest,
                "comparison": comparison.as_dict(),
                "pixels_differ": pixels,
                "left_out": left_out,
                "code": best,
            }
        )
        return
    count = f"{min(len(paths), MOST_JPEGS)} of {len(paths):,}"
    how = f"in batches of {batch_size} by {workers} workers"
    sentences = [
        f"{count} JPEGs in {folder}, again and again, {how}.",
        f"The step computes for {step} on one CPU.",
    ]
    differ = [f"{name} {mean:.1f}" for name, mean in pixels.items() if name != REFERENCE]
    if differ:
        by = ", ".join(differ)
        sentences.append(f"Pixels differ from {REFERENCE}'s, of 255 levels on average, by: {by}.")
    far = [name for name, mean in pixels.items() if mean > PIXELS_DIFFER]
    if far:
        more_than = f"more than {PIXELS_DIFFER:g}, so training sees other pixels"
        sentences.append(f"{', '.join(far)}: {more_than}.")
    width = screen_width()
    more = [("everything", f"loadeval backends {shlex.quote(str(folder))} --json")]
    lines = [
        line for sentence in [*sentences, *left_out] for line in wrapped(printable(sentence), width)
    ]
    lines = [*backends_screen(comparison, more, width), "", *lines]
    if figure is not None:
        lines.append(f"Figure written to {printable(figure)}")
    if code:
        for line in lines:
            say(line)
        typer.echo(best or "", nl=False)
    else:
        print_lines(lines)


def _seconds(step: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", step)
    if match is None or not float(match[1]):
        raise UsageError(f"--step is {printable(step)!r}; expected a time such as 20ms or 0.2s")
    return float(match[1]) / (1000 if match[2] == "ms" else 1)
