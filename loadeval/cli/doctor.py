"""`loadeval doctor`: is this machine set up well for loading data?"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from loadeval.cli import console
from loadeval.data.folder import logs_in
from loadeval.data.log import read_run
from loadeval.doctor import checkup, installed_loaders
from loadeval.probes.machine import read_machine
from loadeval.report.as_json import as_json
from loadeval.words import printable

RUN = "A run whose loader is to fit this machine: its workers and its batches."
STYLES = {"ok": "green", "change": "bold red", "not measured": "dim"}


def doctor(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help=RUN)] = None,
    json: console.AsJson = False,
) -> None:
    """Check whether this machine is set up well for loading data.

    CPUs, threads, shared memory, open files, disk, the NVIDIA driver, and which loaders are
    installed. Exits with 1 when something is to be changed.
    """
    with console.errors_printed():
        log = logs_in(run)[0] if run is not None and run.is_dir() else run
        loaded = None if log is None else read_run(log)
    machine = read_machine()
    free_bytes = shutil.disk_usage(Path.cwd()).free
    checks = checkup(machine, loaded, free_bytes, installed_loaders())
    in_order = all(check.status != "change" for check in checks)
    if json:
        console.print_json(as_json({"ok": in_order, "checks": checks, "machine": machine}))
    else:
        table, terminal = Table.grid("", "", "", padding=(0, 2, 0, 0)), console.new_console()
        for check in checks:
            says = printable(check.says if check.do is None else f"{check.says}: {check.do}")
            if terminal.is_terminal:
                table.add_row(
                    Text(check.status, STYLES[check.status], no_wrap=True), check.name, says
                )
            else:  # a line for each, however long
                typer.echo(f"{check.status:14}{check.name:15}{says}")
        if terminal.is_terminal:
            terminal.print(table)
    if not in_order:
        raise typer.Exit(console.FAILED)
