"""`loadeval backends`: which library loads a folder of JPEGs fastest."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from loadeval.backends import RECIPES, REFERENCE, compare_recipes, computing_step, recipe_code
from loadeval.cli import console
from loadeval.data.environment import cpus_usable
from loadeval.errors import UsageError
from loadeval.report.blocks import Section, Text
from loadeval.report.text import show
from loadeval.words import counted

MOST_JPEGS = 128
"""So few stay in memory, so that what storage costs is not measured."""
JPEG = {".jpg", ".jpeg"}
PIXELS_DIFFER = 2
"""Decoding by another library alone makes less, of 255 levels; a smaller size makes more."""

FOLDER = "JPEGs, in a subfolder for each class."
TRANSFORM = "Sizes of an image."
STEP = "A step computes so long, on one CPU."
ONLY = "Measure this recipe alone, or these."
CODE = "Print the file of the fastest on stdout."


def backends(  # noqa: C901, PLR0913 - an option for each setting, and one way through
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help=FOLDER, exists=True, file_okay=False)
    ],
    *,
    transform: Annotated[
        str, typer.Option(metavar="TEXT", help=TRANSFORM)
    ] = "resize 256, crop 224",
    step: Annotated[str, typer.Option(metavar="TIME", help=STEP)] = "20ms",
    batch_size: Annotated[int, typer.Option(metavar="N", min=1, help="Images in a batch.")] = 32,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help=ONLY)] = None,
    code: Annotated[bool, typer.Option("--code", help=CODE)] = False,
    output: console.Figure = None,
    json: console.AsJson = False,
) -> None:
    """Measure which library loads a folder of JPEGs fastest.

    Alternates recipes for Pillow, OpenCV, simplejpeg, DALI and SPDL, each under the step, alone,
    and with batches in memory, and compares their pixels.
    """
    time = re.fullmatch(r"(\d+(?:\.\d+)?)(m?)s", step)
    if time is None or not float(time[1]):
        raise UsageError(f"--step is {step!r}; expected a time such as 20ms or 0.2s")
    sizes = re.fullmatch(r"resize (\d+), crop (\d+)", transform)
    resized, cropped = map(int, sizes.groups()) if sizes else (0, 0)
    if not 0 < cropped <= resized:
        raise UsageError(
            f"--transform is {transform!r}; expected two sizes, of which the second is no "
            "larger, such as 'resize 256, crop 224'"
        )
    names = only or list(RECIPES)
    for name in names:
        if name not in RECIPES:
            known = ", ".join(RECIPES)
            raise UsageError(f"there is no recipe {name!r}; expected one of {known}")
    if output is not None:
        from loadeval.report.charts import check_extension  # noqa: PLC0415 - with matplotlib

        check_extension(output)
    jpegs = sorted(str(path) for path in folder.rglob("*") if path.suffix.lower() in JPEG)
    if not jpegs:
        raise UsageError(
            f"{folder} has no JPEGs; expected a folder with a subfolder of .jpg files for each "
            "class, as torchvision's ImageFolder reads"
        )
    chosen, workers = jpegs[:: math.ceil(len(jpegs) / MOST_JPEGS)], cpus_usable() or 1
    console.say(f"loadeval: comparing the pixels and the speed of {', '.join(names)}")
    report, pixels_differ, left_out = compare_recipes(
        chosen,
        names,
        computing_step(float(time[1]) / (1000 if time[2] else 1)),
        batch_size=batch_size,
        workers=workers,
        resized=resized,
        cropped=cropped,
    )
    if output is not None:
        report.plot(output)
    fastest = report.fastest
    if json:
        console.print_json(
            {
                "fastest": fastest,
                "comparison": report.as_json(),
                "pixels_differ": pixels_differ,
                "left_out": left_out,
            }
        )
        return
    says = [
        f"{len(chosen)} of {len(jpegs)} JPEGs in {folder}, again and again.",
        f"Batches of {batch_size}, by {counted(workers, 'worker')}; the step computes for {step}.",
    ]
    for name, levels in pixels_differ.items():
        others = ", so training sees other pixels" * (levels > PIXELS_DIFFER)
        if name != REFERENCE:
            says.append(f"{name}: {levels:.1f} of 255 levels from {REFERENCE}'s pixels{others}.")
    says += left_out
    if output is not None:
        says.append(f"Figure written to {output}")
    show([*report.screen(), Section("", [*map(Text, says)])], file=sys.stderr if code else None)
    if code and fastest:
        typer.echo(recipe_code(fastest, resized, cropped), nl=False)
