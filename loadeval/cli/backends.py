"""`loadeval backends`: which backend loads a folder fastest, alone and under a training step."""

from __future__ import annotations

import json
import os
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer

from loadeval.analysis.choice import Kind, recorded_step
from loadeval.backends import catalogue
from loadeval.backends.code import Work, code_of
from loadeval.backends.data import find_data
from loadeval.backends.kinds import KINDS
from loadeval.cli.console import (
    AsJson,
    ctrl_c_exits,
    errors_printed,
    named,
    print_json,
    print_lines,
    say,
    screen_width,
)
from loadeval.cli.outputs import check_writable, is_page, say_written
from loadeval.errors import UsageError
from loadeval.report.figure.figure import FORMATS
from loadeval.report.formatting import printable
from loadeval.report.page.page import write_page
from loadeval.report.terminal.choice import choice_lines
from loadeval.report.wording.choice import CODE_TITLE
from loadeval.runlog.log_file.reader import read_run

if TYPE_CHECKING:
    from loadeval.analysis.choice import BackendChoice, RecordedStep
    from loadeval.backends.choose import Step
    from loadeval.backends.data import Data

FOLDER = (
    "A folder with JPEG or PNG files, in subfolders for their classes or not; with WebDataset "
    "shards of images; or with WAV or FLAC files; or with texts, as TXT or JSONL files; or with "
    "videos, as MP4 files."
)
TRANSFORM = (
    "What is done with each image, in this order: resize 256 (the shorter side) or resize "
    "224x224, crop 224, flip, normalize imagenet; with commas between them. Without it: resize "
    "256, crop 224. With recordings: mono, resample 16000, crop 3s. With texts: tokenize "
    "bert-base-uncased, or a tokenizer.json, length 128. With videos: frames 16, every 2, and what "
    "is done with images."
)
DECODE = (
    "A function of yours that takes a path and returns an image as an array or a tensor: "
    "module:function. It is measured too, and the others are compared with it."
)
STEP = "The training step, called with each batch, such as images and classes: module:step."
LIKE = "A run of yours: its step with ideal loading is imitated, and its batch size used."
CODE = "Print the code of this backend for this folder, and measure nothing."
ONLY = "Measure this backend; may be given several times. Without it all that are installed."
OUTPUT = (
    "Write a page, backends.html, a figure, backends.png (or SVG or PDF), JSON, backends.json, or "
    "the code of the fastest, loader.py. May be given several times."
)
BATCH_SIZE = 32
JSON, PYTHON = ".json", ".py"


def backends(  # noqa: PLR0913 - the options of the command
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help=FOLDER)],
    *,
    transform: Annotated[
        str | None, typer.Option("--transform", metavar="TEXT", help=TRANSFORM)
    ] = None,
    step: Annotated[str | None, typer.Option("--step", metavar="MODULE:NAME", help=STEP)] = None,
    like: Annotated[Path | None, typer.Option("--like", metavar="RUN", help=LIKE)] = None,
    decode: Annotated[
        str | None, typer.Option("--decode", metavar="MODULE:NAME", help=DECODE)
    ] = None,
    code: Annotated[str | None, typer.Option("--code", metavar="NAME", help=CODE)] = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help=ONLY)] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Samples in a batch.", show_default="32")
    ] = None,
    output: Annotated[
        list[Path] | None, typer.Option("--output", "-o", metavar="FILE", help=OUTPUT)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure which backend loads the files of a folder fastest, and print its code.

    Writes a loader for each backend that is installed, checks that all load the same, and
    measures them in turns: each by itself on one CPU to all, and under a training step if there is
    one.
    """
    if step is not None and like is not None:
        raise typer.BadParameter("--step and --like both name a training step; give one of them")
    with ctrl_c_exits(), errors_printed():
        files = output or []
        for path in files:  # before it is measured for minutes
            check_writable(path, JSON, PYTHON)
        data = find_data(folder)
        transform = KINDS[data.kind].transforms if transform is None else transform
        recorded = None if like is None else _recorded(like)
        size = batch_size or (None if recorded is None else recorded.batch_size) or BATCH_SIZE
        work = _work(data, transform, size, decode)
        candidates = _candidates(data.kind, decode)
        if code is not None:
            typer.echo(code_of(_known(candidates, code), work), nl=False)
            return
        chosen = [_known(candidates, name) for name in only] if only else candidates
        chosen = sorted({*chosen, _known(candidates, work.reference)}, key=candidates.index)
        from loadeval.backends.choose import Budget, Chooser  # noqa: PLC0415 - starts processes

        with Chooser(data, work, chosen, _progress, Budget()) as chooser:
            choice = chooser.choose(transform, _step(step, recorded))
        best = None
        if choice.fastest is not None:
            best = code_of(_known(candidates, choice.fastest.name), work)
        for path in files:
            _write(choice, best, path)
    if as_json:
        from loadeval.report.choice import choice_as_dict  # noqa: PLC0415 - with what draws

        print_json(choice_as_dict(choice, best))
        return
    _print(choice, best, files)


def _print(choice: BackendChoice, code: str | None, files: list[Path]) -> None:
    print_lines([printable(line) for line in choice_lines(choice, screen_width())])
    if code is not None and choice.fastest is not None:
        typer.echo(f"\n{CODE_TITLE.format(name=choice.fastest.name)}\n\n{code}", nl=False)
    for path in files:
        say_written(path)


def _progress(text: str) -> None:
    say(f"loadeval: {text}")


def _work(data: Data, transform: str, batch_size: int, decode: str | None) -> Work:
    transforms = KINDS[data.kind].parse(transform)
    if decode is not None:
        if data.kind is not Kind.IMAGES:
            raise UsageError(
                f"--decode is for image files, and {data.folder} has {data.kind.value}; leave it "
                "out"
            )
        named(decode)
    workers = len(os.sched_getaffinity(0))
    return Work(
        folder=data.folder,
        transforms=transforms,
        batch_size=batch_size,
        workers=workers,
        own=decode or "",
        kind=data.kind,
        suffixes=data.suffixes,
        label=data.label,
        field=data.field,
    )


def _candidates(kind: Kind, decode: str | None) -> list[catalogue.WrittenBackend]:
    own = catalogue.WrittenBackend(catalogue.OWN, "own", ("torch",), "torch")
    return [*([own] if decode else []), *KINDS[kind].backends]


def _known(candidates: list[catalogue.WrittenBackend], name: str) -> catalogue.WrittenBackend:
    for candidate in candidates:
        if candidate.name == name:
            return candidate
    known = ", ".join(candidate.name for candidate in candidates)
    raise UsageError(f"there is no backend {printable(name)!r}; expected one of {known}")


def _recorded(path: Path) -> RecordedStep:
    recorded = recorded_step(read_run(path))
    if recorded is None:
        raise UsageError(f"{path} has no training step that was measured; give another run")
    return recorded


def _step(place: str | None, recorded: RecordedStep | None) -> Step | None:
    from loadeval.backends.choose import Step, imitated  # noqa: PLC0415 - starts processes

    if recorded is not None:
        return imitated(recorded)
    if place is None:
        return None
    call = named(place)
    if not callable(call):
        raise UsageError(f"--step is {printable(place)}, which cannot be called with a batch")
    return Step(call)


def _write(choice: BackendChoice, code: str | None, path: Path) -> None:
    from loadeval.report.choice import (  # noqa: PLC0415 - draws
        choice_as_dict,
        save_choice_figure,
    )

    suffix = path.suffix.lower()
    if is_page(path):
        from loadeval.report.page.choice import choice_page  # noqa: PLC0415 - writes a page

        write_page(choice_page(choice, code), path)
        return
    if suffix in FORMATS:
        save_choice_figure(choice, path)
        return
    text = f"{json.dumps(choice_as_dict(choice, code), indent=2)}\n" if suffix == JSON else code
    try:
        path.write_text(text or "", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
