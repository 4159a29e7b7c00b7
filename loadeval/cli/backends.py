"""`loadeval backends`: which library loads a folder of JPEGs fastest under a training step."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

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
from loadeval.cli.console import AsJson, Figure, errors_printed, print_json, say
from loadeval.errors import UsageError
from loadeval.report.blocks import Section, Text
from loadeval.report.text import show

FOLDER = "A folder of JPEGs, with a subfolder for each class."
TRANSFORM = "How long the shorter side becomes, and the side of the square taken from the middle."
STEP = "What a training step takes for a batch, such as 20ms: it computes for so long on one CPU."
ONLY = "Measure this recipe; may be given several times. Without it all that are installed."
CODE = "Print the file of the fastest on stdout, and all else on stderr."


def backends(  # noqa: PLR0913 - the command's options
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help=FOLDER)],
    *,
    transform: Annotated[
        str, typer.Option("--transform", metavar="TEXT", help=TRANSFORM)
    ] = "resize 256, crop 224",
    step: Annotated[str, typer.Option("--step", metavar="TIME", help=STEP)] = "20ms",
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a batch.")] = 32,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help=ONLY)] = None,
    code: Annotated[bool, typer.Option("--code", help=CODE)] = False,
    output: Figure = None,
    as_json: AsJson = False,
) -> None:
    """Measure which library loads a folder of JPEGs fastest.

    Runs recipes for Pillow, OpenCV, simplejpeg, DALI and SPDL in turns, each as it is, alone, and
    as if it were free, and compares their pixels.
    """
    with errors_printed():
        step_s, (resized, cropped) = _seconds(step), _sizes(transform)
        for name in only or []:
            if name not in RECIPES:
                known = ", ".join(RECIPES)
                raise UsageError(f"there is no recipe {name!r}; expected one of {known}")
        if output is not None:
            from loadeval.report.charts import check_extension  # noqa: PLC0415 - with matplotlib

            check_extension(output)
        paths, workers = jpegs_in(folder), len(os.sched_getaffinity(0))
        comparison, pixels, left_out = compare_recipes(
            paths,
            only or list(RECIPES),
            computing_step(step_s),
            batch_size=batch_size,
            workers=workers,
            resized=resized,
            cropped=cropped,
            say=lambda text: say(f"loadeval: {text}"),
        )
        if output is not None:
            comparison.plot(output)
    fastest = comparison.fastest
    best = None if fastest is None else recipe_code(fastest, resized, cropped)
    if as_json:
        print_json(
            {
                "fastest": fastest,
                "comparison": comparison.as_json(),
                "pixels_differ": pixels,
                "left_out": left_out,
                "code": best,
            }
        )
        return
    count = f"{min(len(paths), MOST_JPEGS)} of {len(paths):,} JPEGs in {folder}, again and again"
    sentences = [
        f"{count}, in batches of {batch_size} by {workers} workers.",
        f"The step computes for {step} on one CPU.",
    ]
    differ = ", ".join(f"{name} {by:.1f}" for name, by in pixels.items() if name != REFERENCE)
    if differ:
        sentences.append(
            f"Pixels differ from {REFERENCE}'s, of 255 levels on average, by: {differ}."
        )
    if far := ", ".join(name for name, by in pixels.items() if by > PIXELS_DIFFER):
        sentences.append(f"{far}: more than {PIXELS_DIFFER:g}, so training sees other pixels.")
    sentences += left_out
    if output is not None:
        sentences.append(f"Figure written to {output}")
    told = [section for section in comparison.sections() if section.priority]
    told.append(Section("", [Text(sentence) for sentence in sentences]))
    show(told, file=sys.stderr if code else sys.stdout)
    if code:
        typer.echo(best or "", nl=False)


def _seconds(step: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", step)
    if match is None or not float(match[1]):
        raise UsageError(f"--step is {step!r}; expected a time such as 20ms or 0.2s")
    return float(match[1]) / (1000 if match[2] == "ms" else 1)


def _sizes(transform: str) -> tuple[int, int]:
    """The shorter side, and that of the square."""
    match = re.fullmatch(r"\s*resize (\d+),\s*crop (\d+)\s*", transform)
    if match is None or not 0 < int(match[2]) <= int(match[1]):
        raise UsageError(
            f"--transform is {transform!r}; expected two sizes, of which the second is no larger, "
            "such as 'resize 256, crop 224'"
        )
    return int(match[1]), int(match[2])
