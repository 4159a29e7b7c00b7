"""`loadeval doctor`: is this machine set up well for loading data?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadeval.analysis.doctor import CheckStatus, LoaderPlan, checkup
from loadeval.analysis.run_memory import plan_of_run
from loadeval.cli.console import FAILED, AsJson, errors_printed, print_json, print_table
from loadeval.data.log import read_run
from loadeval.probes.machine import read_machine
from loadeval.report.wording.doctor import check_text

if TYPE_CHECKING:
    from loadeval.analysis.doctor import MachineCheck

RUN = "A run whose loader is to fit this machine: its settings, its batches and its memory."
STYLES = {
    CheckStatus.OK: "green",
    CheckStatus.CHANGE: "bold red",
    CheckStatus.NOT_MEASURED: "dim",
}


def doctor(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help=RUN)] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether this machine is set up well for loading data, and say what to change.

    CPUs, threads, shared memory, limits, the NVIDIA driver; with a run also whether its workers
    fit into memory. Exits with 1 when something is to be changed.
    """
    with errors_printed():
        plan = LoaderPlan() if run is None else plan_of_run(read_run(run))
    machine = read_machine()
    checks = checkup(machine, plan)
    in_order = all(check.status is not CheckStatus.CHANGE for check in checks)
    if as_json:
        as_dicts = list(map(_as_dict, checks))
        print_json({"ok": in_order, "checks": as_dicts, "machine": dataclasses.asdict(machine)})
    else:
        rows = [(check.status.value, check.name, check_text(check)) for check in checks]
        print_table(rows, styles=[STYLES[check.status] for check in checks])
    if not in_order:
        raise typer.Exit(FAILED)


def _as_dict(check: MachineCheck) -> dict[str, Any]:
    return {
        "name": check.name,
        "status": check.status.value,
        "text": check_text(check),
        "code": check.remark.code.value,
        "values": dict(check.remark.values),
    }
