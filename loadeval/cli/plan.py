"""`loadeval plan`: what the next machine needs to feed its devices, from one run."""

from __future__ import annotations

import math
import re
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated

import typer

from loadeval.analysis.machine import MLPERF_STEPS, Machine, batch_size_of, mlperf_step_ns
from loadeval.analysis.machine import plan as plan_machine
from loadeval.cli.console import AsJson, errors_printed, print_json, print_lines, screen_width
from loadeval.cli.outputs import check_writable, is_page, say_written
from loadeval.cli.whatif import slowest_log
from loadeval.errors import UsageError
from loadeval.probes.machine import read_machine
from loadeval.report.figure.machine_figure import plot_machine
from loadeval.report.formatting import printable
from loadeval.report.json import machine_as_dict
from loadeval.report.page.machine import machine_page
from loadeval.report.page.page import write_page
from loadeval.report.terminal.machine import machine_lines
from loadeval.runlog.log_file.reader import read_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.runlog.model import Run

RUN = "A run whose loader was looked into, of mode alternate, or recorded with stages=True."
DEVICES = "How many devices share the machine; each has a training process of its own."
STEP = (
    "What a device takes for a batch, as 224ms; or a step that MLPerf Storage publishes: "
    f"{', '.join(MLPERF_STEPS)}. By default the run's own, with ideal loading."
)
BATCH_SIZE = "Samples in a batch; by default those of the run."
CPUS = "CPUs of the machine; by default those of this one."
MEMORY = "Its memory, as 512GB; by default that of this machine."
READ = "What its storage gives, as 2GB/s. By default not known."
DATA_BYTES = "The size of the data set, as 150GB."
OUTPUT = (
    "Write a page with all of it, plan.html, or draw utilisation against CPUs, as PNG, SVG or PDF "
    "by the extension: plan.png. May be given several times."
)
SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
DURATIONS = {"us": 1e3, "ms": 1e6, "s": 1e9}


def plan(  # noqa: PLR0913 - an option for each fact
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    *,
    devices: Annotated[int, typer.Option(min=1, help=DEVICES)] = 1,
    step: Annotated[str | None, typer.Option(metavar="TIME|NAME", help=STEP)] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help=BATCH_SIZE)] = None,
    cpus: Annotated[float | None, typer.Option(help=CPUS)] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help=MEMORY)] = None,
    read: Annotated[str | None, typer.Option(metavar="SIZE/s", help=READ)] = None,
    data_bytes: Annotated[str | None, typer.Option(metavar="SIZE", help=DATA_BYTES)] = None,
    output: Annotated[
        list[Path] | None, typer.Option("--output", "-o", metavar="FILE", help=OUTPUT)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan a machine: the CPUs, memory and bandwidth that feeding its devices takes.

    Predicted from one recorded run, and set against this machine, or one that the options describe.
    Nothing is measured.
    """
    files = output or []
    with errors_printed():
        for path in files:
            check_writable(path)
        recorded = read_run(slowest_log(run))
        found = plan_machine(
            recorded,
            machine=_machine(devices, cpus, memory, read),
            step_ns=None if step is None else _step_ns(step, recorded, batch_size),
            batch_size=batch_size,
            data_bytes=None if data_bytes is None else _size("--data-bytes", data_bytes),
        )
        for path in files:
            if is_page(path):
                write_page(machine_page(found, run.name), path)
            else:
                plot_machine(found, path)
    if as_json:
        print_json(machine_as_dict(found))
        return
    print_lines(machine_lines(found, screen_width()))
    for path in files:
        say_written(path)


def _machine(devices: int, cpus: float | None, memory: str | None, read: str | None) -> Machine:
    """This machine, with what the options say in place of its own."""
    here = read_machine()
    there = float(here.cpus_usable) if cpus is None else cpus
    own = cpus is None
    return Machine(
        devices,
        there,
        _size("--memory", memory) if memory is not None else (here.memory_bytes if own else None),
        here.shm_bytes if own else None,
        None if read is None else _size("--read", read.removesuffix("/s")),
    )


def _step_ns(text: str, run: Run, batch_size: int | None) -> float:
    """A step from an option: a time, or the name of one that is published."""
    if text in MLPERF_STEPS:
        size = batch_size or batch_size_of(run)
        if not size:
            raise UsageError(f"--step {text} needs the samples in a batch; pass --batch-size too")
        return mlperf_step_ns(text, size)
    value = _amount(text, DURATIONS)
    if value is None:
        raise UsageError(
            f"--step is {printable(text)}; expected a time such as 224ms or 1.2s, or one of "
            f"{', '.join(MLPERF_STEPS)}"
        )
    return value


def _size(option: str, text: str) -> float:
    """Bytes from an option."""
    value = _amount(re.sub(r"i?[bB]$", "", text), SIZES)
    if value is None:
        raise UsageError(f"{option} is {printable(text)}; expected a size such as 512GB")
    return value


def _amount(text: str, units: Mapping[str, float]) -> float | None:
    """A number above 0 with one of these units; None where the text is none."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)", text.strip(), re.IGNORECASE)
    if match is None or match[2].lower() not in units:
        return None
    value = float(match[1]) * units[match[2].lower()]
    return value if 0 < value < math.inf else None
