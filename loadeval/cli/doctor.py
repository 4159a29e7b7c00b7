"""`loadeval doctor`: is this machine set up well for loading data?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from loadeval.adapter import registered
from loadeval.cli import console
from loadeval.data.log import read_run
from loadeval.doctor import checkup, read_machine
from loadeval.report.as_json import as_json
from loadeval.report.blocks import Section, Table
from loadeval.report.text import show

EPILOG = "Exit codes: 0 nothing to change; 1 something to change, or failed; 2 wrong usage."
RUN = "A run whose loader is to fit this machine."


def doctor(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help=RUN)] = None,
    json: console.AsJson = False,
) -> None:
    """Check whether this machine is set up well for loading data.

    CPUs, threads, shared memory, open files, disk, the NVIDIA driver, and which loaders are
    installed.
    """
    loaded = None if run is None else read_run(console.log_at(run))
    machine = read_machine()
    checks = list(checkup(machine, loaded, installed_loaders()))
    in_order = all(check.status != "change" for check in checks)
    if json:
        console.print_json(as_json({"ok": in_order, "checks": checks, "machine": machine}))
    else:
        rows = [
            (f"{check.status:12}", check.name, ": ".join(filter(None, (check.says, check.do))))
            for check in checks
        ]
        show([Section("", [Table((), rows)])])
    if not in_order:
        raise typer.Exit(console.FAILED)


def installed_loaders() -> list[str]:
    """The packages with loaders that an adapter knows, of those that are installed."""
    # The other parts of NVIDIA's namespace are CUDA's libraries.
    packages = {
        ".".join(prefix.split(".")[: 2 if prefix.startswith("nvidia.") else 1])
        for prefix in registered()
    }
    return sorted(
        name
        for name in packages
        if any(Path(folder, *name.split(".")).is_dir() for folder in sys.path)
    )
