"""`loadeval doctor`: is this machine set up well for loading data?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from loadeval.cli.console import FAILED, AsJson, errors_printed, new_console, print_json
from loadeval.data.folder import logs_in
from loadeval.data.log import read_run
from loadeval.doctor import checkup
from loadeval.probes.machine import read_machine
from loadeval.report.as_json import as_json
from loadeval.words import printable

RUN = "A run whose loader is to fit this machine: its settings, its batches and its memory."
STYLES = {"ok": "green", "change": "bold red", "not measured": "dim"}


def doctor(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help=RUN)] = None,
    json: AsJson = False,
) -> None:
    """Check whether this machine is set up well for loading data.

    CPUs, threads, shared memory, limits, the NVIDIA driver; with a run also whether its workers
    fit into memory. Exits with 1 when something is to be changed.
    """
    with errors_printed():
        log = logs_in(run)[0] if run is not None and run.is_dir() else run
        loaded = None if log is None else read_run(log)
    machine = read_machine()
    checks = checkup(machine, loaded)
    in_order = all(check.status != "change" for check in checks)
    if json:
        print_json(as_json({"ok": in_order, "checks": checks, "machine": machine}))
    else:
        rows = []
        for check in checks:
            says = check.says if check.do is None else f"{check.says}: {check.do}"
            rows.append((check.status, check.name, printable(says)))
        console = new_console()
        if console.is_terminal:
            table = Table.grid("", "", "", padding=(0, 2, 0, 0))
            for status, *others in rows:
                table.add_row(Text(status, STYLES[status], no_wrap=True), *others)
            console.print(table)
        else:  # a line for each, however long
            typer.echo("\n".join("{:14}{:15}{}".format(*row) for row in rows))
    if not in_order:
        raise typer.Exit(FAILED)
