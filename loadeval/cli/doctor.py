"""`loadeval doctor`: is this machine set up well for loading data?"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from loadeval.adapter import registered
from loadeval.cli import console
from loadeval.data.folder import logs_in
from loadeval.data.log import read_run
from loadeval.doctor import checkup
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


def installed_loaders() -> list[str]:
    """The packages with loaders that an adapter knows, of those that are installed."""
    packages = {
        # The other parts of NVIDIA's namespace are CUDA's libraries.
        ".".join(prefix.split(".")[: 2 if prefix.startswith("nvidia.") else 1])
        for prefix in registered()
    }
    return sorted(filter(_is_there, packages))


def _is_there(package: str) -> bool:
    """Whether it is installed. Nothing is imported, not even a namespace."""
    name, _, part = package.partition(".")
    spec = find_spec(name)
    folders = [] if spec is None else spec.submodule_search_locations or []
    return spec is not None and (not part or any(Path(each, part).is_dir() for each in folders))
