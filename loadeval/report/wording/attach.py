"""What is known of a training that runs already, in words."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from loadeval.analysis.attach.marks import Activity
from loadeval.analysis.estimate.verdict import MODERATE_SHARE
from loadeval.probes.stacks import StackProblem
from loadeval.report.formatting import (
    NOT_MEASURED,
    code_place,
    counted,
    cpus,
    duration,
    estimated,
    number,
    printable,
    share,
    short_name,
    size,
    speedup,
)
from loadeval.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.attach.job import Training
    from loadeval.analysis.attach.report import AttachedReport
    from loadeval.analysis.attach.workers import BlockedIn, LineShare, LoadingShares
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.probes.observing import ObservedMachine
    from loadeval.report.tables import Rows

NO_STACKS = {
    StackProblem.NOT_INSTALLED: 'py-spy is not installed: pip install "loadeval[attach]"',
    StackProblem.NOT_PERMITTED: (
        "reading the stacks of another process is not permitted here: use sudo, start the "
        "container with --cap-add SYS_PTRACE, or set sysctl kernel.yama.ptrace_scope=0"
    ),
    StackProblem.GONE: "the process ended before its stack was read",
    StackProblem.NOT_PYTHON: "the process runs no Python program",
    StackProblem.UNSUPPORTED_PYTHON: "this py-spy does not know its Python: pip install -U py-spy",
    StackProblem.TIMEOUT: "py-spy did not answer in time",
    StackProblem.FAILED: "py-spy could not read its stacks",
}
STAGES = {
    Activity.ASKS: "wait for what to load",
    Activity.FETCHES: "fetch",
    Activity.COLLATES: "collate",
    Activity.SENDS: "send",
    Activity.LOADS: "other work",
}
OF_THEIR_TIME = "share of their time"
OF_LOADING = "share of loading"
PROCESSES_HEAD = ("process", "on a CPU", "waiting for a CPU")
NO_LOADER = "it was never seen in a loader that loadeval knows"
NOT_A_SPEEDUP = (
    "What training would gain is not measured: steps may take longer or less long without these "
    "waits, and a GPU may have work meanwhile. This measures it:"
)
MOST_PROCESSES = 9
"""So many processes are listed at most; of more workers, the others are counted."""


def headline(report: AttachedReport) -> str:
    """How long training waits, and what that bounds."""
    pid = report.training.pid
    if report.wait is None:
        return f"How long training process {pid} waits is {NOT_MEASURED}: {_why_unknown(report)}."
    waits = f"Training process {pid} waits for batches {estimated(report.wait, share)} of the time"
    if report.bound is None:
        return f"{waits}."
    bound = estimated(report.bound, speedup)
    if report.wait.value < MODERATE_SHARE:
        return f"{waits}: without it, at most {bound} as fast. Loading is not what limits it."
    return f"{waits}: without it, at most {bound} as fast."


def _why_unknown(report: AttachedReport) -> str:
    return NO_LOADER if report.problem is None else NO_STACKS[report.problem]


def about(report: AttachedReport) -> Rows:
    """What was looked at, and what training does, as labels and values."""
    moments = counted(report.moments, "moment", "moments")
    failed = f", {report.failed:,} more could not be read" if report.failed else ""
    ended = "; it has ended" if report.ended else ""
    rows = [
        ("command", command(report.training)),
        ("seen for", f"{duration(report.elapsed_ns)}, at {moments}{failed}{ended}"),
    ]
    if report.loader is not None:
        rows.append(("loader", report.loader))
    if report.thread is not None:
        rows.append(("read in thread", short_name(report.thread)))
    rows += [
        ("asks for batches in", f"{code_place(caller.place)}, {estimated(caller.share, share)}")
        for caller in report.callers
    ]
    parts = (("  loads itself", report.loads_itself), ("  epochs begin", report.starts))
    rows += [
        (label, f"{estimated(part, share)} of the time")
        for label, part in parts
        if part is not None and part.value
    ]
    return rows


def loading_tables(report: AttachedReport) -> list[Table]:
    """What loads: the stages and lines of workers, of threads, and of the training thread."""
    workers, threads = report.workers, report.threads
    tables = []
    if workers is not None:
        seen = workers.loading.count
        name = counted(seen, "worker", "workers")
        if seen < workers.count:
            name = f"{seen} of {workers.count} workers"
        tables += [
            _stages(name, workers.loading),
            _lines("lines of workers", workers.loading.lines),
        ]
    if threads is not None:
        tables += [
            _stages(counted(threads.count, "thread", "threads"), threads),
            _lines("lines of threads", threads.lines),
        ]
    tables.append(_lines("lines of training", report.own_lines))
    return [table for table in tables if table.rows]


def _stages(name: str, loading: LoadingShares) -> Table:
    stages = loading.stages.items()
    return _table(
        name, OF_THEIR_TIME, [(STAGES[stage], part) for stage, part in stages if part.value]
    )


def _lines(name: str, lines: Sequence[LineShare]) -> Table:
    return _table(name, OF_LOADING, [(line_in_words(seen), seen.share) for seen in lines])


def _table(name: str, head: str, rows: Sequence[tuple[str, Estimate]]) -> Table:
    cells = [(label, estimated(part, share)) for label, part in rows]
    return Table("", (name, head), cells, wraps=(0,))


def line_in_words(seen: LineShare) -> str:
    """A line, and behind it the function that it called."""
    place = code_place(seen.place)
    return f"{place} > {short_name(seen.leaf)}" if seen.leaf else place


def process_table(report: AttachedReport) -> Table:
    """Each process with its use of CPUs."""
    rows = [
        (
            f"{'worker' if row.is_worker else 'training'} {row.pid}",
            share(row.cpu),
            share(row.run_queue),
        )
        for row in report.processes[:MOST_PROCESSES]
    ]
    if len(report.processes) > MOST_PROCESSES:
        rows.append((f"and {len(report.processes) - MOST_PROCESSES:,} more workers", "", ""))
    return Table("", PROCESSES_HEAD, rows)


def kernel_rows(report: AttachedReport) -> Rows:
    """What the kernel tells of the workers and of the machine."""
    workers, rows = report.workers, list[tuple[str, str]]()
    if workers is not None:
        if workers.blocked is not None:
            rows.append(("workers blocked", f"{share(workers.blocked)} of loading"))
        if workers.blocked_in is not None:
            label = "workers sleep in" if workers.blocked is None else "  mostly in"
            rows.append((label, _blocked_in(workers.blocked_in)))
        rows += [
            (label, f"{size(rate)}/s")
            for label, rate in (
                ("workers read", workers.read_bytes_per_s),
                ("  from the disk", workers.disk_bytes_per_s),
            )
            if rate
        ]
    return [*rows, ("machine", _machine(report.machine)), *_gpus(report.machine)]


def _blocked_in(where: BlockedIn) -> str:
    parts = [where.kernel or "an unknown function of the kernel"]
    if where.call is not None:
        parts.append(f"system call {where.call}")
    if where.path is not None:
        parts.append(printable(where.path))
    return ", ".join(parts)


def _machine(machine: ObservedMachine) -> str:
    parts = [f"{cpus(machine.cpus)}"]
    if machine.quota_cores is not None:
        parts.append(f"{cpus(machine.quota_cores)} at a time (cgroup quota)")
    if machine.busy_cpus is not None:
        parts.append(f"{cpus(machine.busy_cpus)} in use")
    if machine.mean_runnable is not None:
        parts.append(f"{number(machine.mean_runnable)} threads running or runnable on average")
    return ", ".join(parts)


def _gpus(machine: ObservedMachine) -> Rows:
    return [
        (f"GPU {name}", f"busy {share(percent / 100)}") for name, percent in machine.gpus.items()
    ]


def cost(report: AttachedReport) -> str:
    """What observing took."""
    return (
        f"Looking took {share(report.cost)} of the CPUs' time; the training was not paused for it."
    )


def command(training: Training) -> str:
    """The command line of a training."""
    return printable(shlex.join(training.command)) if training.command else "not known"


def to_measure(training: Training) -> str:
    """The command that measures what is not seen from outside."""
    words = training.command or ("python", "train.py")
    return f"loadeval run --mode alternate -- {printable(shlex.join(words))}"
