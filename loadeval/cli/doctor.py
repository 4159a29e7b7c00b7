"""`loadeval doctor`: is this machine set up well for loading data?"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadeval.analysis.doctor import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_PREFETCH,
    CheckStatus,
    LoaderPlan,
    checkup,
)
from loadeval.analysis.run_memory import plan_of_run
from loadeval.cli.console import FAILED, AsJson, errors_printed, print_json, print_table
from loadeval.errors import UsageError
from loadeval.probes.machine import DataSize, read_machine, size_of
from loadeval.report.formatting import printable
from loadeval.report.wording.doctor import check_text
from loadeval.runlog.log_file.reader import read_run

if TYPE_CHECKING:
    from loadeval.analysis.doctor import MachineCheck

RUN = "A run whose loader is to fit this machine: its settings, its batches and its memory."
PREFETCH = f"Batches that each worker prefetches; by default the run's, or {DEFAULT_PREFETCH}."
BATCH_BYTES = (
    f"Size of a batch: 32MB, 1.5GiB; by default the run's, or {DEFAULT_BATCH_BYTES // 10**6}MB."
)
STYLES = {
    CheckStatus.OK: "green",
    CheckStatus.CHANGE: "bold red",
    CheckStatus.NOT_MEASURED: "dim",
}
FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
SIZE = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt]?i?)b?", re.IGNORECASE)


def doctor(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help=RUN)] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Workers of the loader; by default the run's, or one per CPU."),
    ] = None,
    prefetch: Annotated[int | None, typer.Option(min=1, help=PREFETCH)] = None,
    batch_bytes: Annotated[str | None, typer.Option(metavar="SIZE", help=BATCH_BYTES)] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="PATH", help="File or folder of the data set.")
    ] = None,
    data_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of the data set instead: 140GB.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether this machine is set up well for loading data, and say what to change.

    CPUs, threads, shared memory, limits, the NVIDIA driver, room in the page cache; with a run also
    whether its workers fit into memory. Exits with 1 when something is to be changed.
    """
    given: dict[str, Any] = {
        "workers": workers,
        "prefetch": prefetch,
        "batch_bytes": None if batch_bytes is None else _bytes(batch_bytes, "--batch-bytes"),
        "data": _data(data, data_bytes),
    }
    with errors_printed():
        plan = LoaderPlan() if run is None else plan_of_run(read_run(run))
    plan = dataclasses.replace(plan, **{k: v for k, v in given.items() if v is not None})
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


def _data(path: Path | None, size: str | None) -> DataSize | None:
    if path is not None and size is not None:
        raise typer.BadParameter("both --data and --data-bytes were given, where one is enough")
    if size is not None:
        return DataSize(_bytes(size, "--data-bytes"))
    try:
        return None if path is None else size_of(path)
    except UsageError as error:
        raise typer.BadParameter(printable(error)) from None


def _bytes(text: str, option: str) -> int:
    match = SIZE.fullmatch(text.strip())
    factor = match and (FACTORS | BINARY).get(match[2].lower())
    if not match or not factor:
        raise typer.BadParameter(
            f"{option} is {printable(text)!r}; expected a size such as 32MB, 1.5GiB or 4000000"
        )
    return round(float(match[1]) * factor)


def _as_dict(check: MachineCheck) -> dict[str, Any]:
    return {
        "name": check.name,
        "status": check.status.value,
        "text": check_text(check),
        "code": check.remark.code.value,
        "values": dict(check.remark.values),
    }
