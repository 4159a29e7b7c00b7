"""How the page came about: the command that made it, and the files that it is of."""

from __future__ import annotations

import shlex
from importlib import metadata
from typing import TYPE_CHECKING

from loadeval.report.formatting import LONGEST_NAME, counted, shortened
from loadeval.report.html.blocks import Code, Section, Table, Text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadeval.report.html.subject import Subject

HEAD = ("file", "run", "mode", "id", "batches", "complete")


def reproduce(subject: Subject, files: Sequence[Path], output: Path) -> Section:
    """Commands for a shell, and which runs the files hold."""
    quoted = [shlex.quote(str(path)) for path in files]
    told = "show" if subject.comparison is None and subject.backends is None else "compare"
    commands = (
        shlex.join(["loadeval", "report", *map(str, files), "-o", str(output)]),
        " ".join(["loadeval", told, *quoted]),
    )
    rows = tuple(
        (
            shortened(path.name, LONGEST_NAME),
            shortened(run.header.name, LONGEST_NAME),
            run.header.mode,
            shortened(run.header.run_id, LONGEST_NAME),
            f"{len(run.steps):,}",
            "yes" if run.closed else "no",
        )
        for path, run in zip(files, subject.runs, strict=True)
    )
    made = (
        f"This page was made by loadeval {metadata.version('loadeval')} from "
        f"{counted(len(files), 'file', 'files')}, by the first of these commands; the second one "
        "tells the same in a terminal."
    )
    files_table = Table("The files", HEAD, rows)
    return Section("reproduce", "Reproduce", (Text((made,)), Code(commands), files_table))
