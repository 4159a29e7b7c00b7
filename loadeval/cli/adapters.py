"""`loadeval adapters`: which loaders have an adapter, and which of their frameworks are here."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from loadeval.cli.console import print_report
from loadeval.report.formatting import printable
from loadeval.runtime.registry import registrations

if TYPE_CHECKING:
    from loadeval.runtime.registry import Registration

Row = tuple[str, ...]
HEADINGS: Row = ("module", "adapter", "registered by", "framework")
GAP = 2
"""Columns of characters between two columns of the table."""


def adapters(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a list of JSON objects instead.")
    ] = False,
) -> None:
    """List the registered adapters and their frameworks.

    An adapter serves loaders whose class lives in its module or below; of several the one with
    the longest module name. Any other loader is served as an iterable. Nothing is imported.
    """
    found = registrations()
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(one) for one in found], indent=2))
    elif Console().is_terminal:
        print_report(_table([_row(one) for one in found]))
    else:
        typer.echo("\n".join(_lines([HEADINGS, *map(_row, found)])))


def _row(one: Registration) -> Row:
    by = _versioned(one.distribution, one.distribution_version) or "unknown"
    framework = _versioned(one.framework, one.framework_version) or "installed, version unknown"
    told = framework if one.installed else "not installed"
    return tuple(map(printable, (one.module, one.adapter, by, told)))


def _versioned(name: str | None, version: str | None) -> str | None:
    return None if name is None else f"{name} {version}"


def _table(rows: list[Row]) -> Table:
    """For a terminal: as wide as it is, what is too long folded."""
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _lines(rows: list[Row]) -> list[str]:
    """For a file or another program: a line for each adapter, however long."""
    widths = [max(map(len, column)) + GAP for column in zip(*rows, strict=True)]
    padded = (map(str.ljust, row, widths) for row in rows)
    return ["".join(row).rstrip() for row in padded]
