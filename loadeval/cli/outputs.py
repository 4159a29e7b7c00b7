"""What --output names: a page, a figure or a text, by its extension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from loadeval.errors import UsageError
from loadeval.report.figure.figure import FORMATS, figure_path
from loadeval.report.formatting import printable
from loadeval.report.page.page import EXTENSION, check_replaceable

if TYPE_CHECKING:
    from pathlib import Path


def is_page(path: Path) -> bool:
    """Whether it is a page."""
    return path.suffix.lower() == EXTENSION


def check_writable(path: Path) -> None:
    """Raises UsageError for an extension that nothing is written in, or a page of others."""
    suffix, known = path.suffix.lower(), (EXTENSION, *FORMATS)
    if suffix not in known:
        raise UsageError(
            f"cannot write {path.name!r}: its extension is {path.suffix!r}, where "
            f"{', '.join(known[:-1])} or {known[-1]} was expected; try {path.stem}{EXTENSION}"
        )
    if is_page(path):
        check_replaceable(path)
    else:
        figure_path(path)


def say_written(path: Path) -> None:
    """Print what was written where."""
    what = "Page" if is_page(path) else "Figure"
    typer.echo(f"\n{what} written to {printable(path)}")
