"""Runs and comparisons for the terminal: rich renderables, plain text where there is no terminal.

Every text that comes out of a run's file is a `Text` without markup, its control characters
escaped.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loadeval.report.facts import comparison_facts
from loadeval.report.folding import Paragraph
from loadeval.report.formatting import (
    LONGEST_NAME,
    counted,
    duration,
    printable,
    share,
    shortened,
    size,
    throughput,
)
from loadeval.report.readings import growth_in_words, readings_rows
from loadeval.report.wording import class_name, headline
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.summary import Summary
    from loadeval.report.facts import Rows
    from loadeval.runlog.model import Arm, Run

GAP = 2
"""Columns of characters between two columns of a table."""
LONGEST_FIGURE = 24
"""Characters of a value that ask for room; what is longer is folded."""
LONGEST_FACT = 120
"""Characters that are shown of what a file says of its loader."""


class RunsReport:
    """One column for each run, as many side by side as there is room for; their notes below.

    What was read of the machine is among the rows unless `readings` says no.
    """

    def __init__(self, runs: Sequence[tuple[Run, Summary]], *, readings: bool = True) -> None:
        read: Sequence[Rows] = [[] for _ in runs]
        if readings:
            read = readings_rows([(run, arm_of(run)) for run, _ in runs])
        self.columns = [
            [*figures(run, summary), *rows, *loader_facts(run)]
            for (run, summary), rows in zip(runs, read, strict=True)
        ]
        # Two arms of one run have the same notes.
        told = dict.fromkeys(line for run, _ in runs for line in notes(run))
        self.notes = list(told)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Tables that fit into the console's width, so that no figure is cut off."""
        labels = max((len(label) for rows in self.columns for label, _ in rows), default=0)
        column = max((_room(rows) for rows in self.columns), default=0)
        each = max(1, (options.max_width - labels) // (column + GAP))
        for start in range(0, len(self.columns), each):
            if start:
                yield Text()
            yield _side_by_side(self.columns[start : start + each])
        if self.notes:
            yield Text("\nNotes", style="bold")
            yield from (Padding(Paragraph(line), (0, 0, 0, GAP)) for line in self.notes)


def comparison_report(headroom: Headroom) -> RenderableType:
    """The finding as a heading, and under it its figures, reason, advice and caution."""
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in comparison_facts(headroom):
        grid.add_row(label, Paragraph(value))
    return Group(Paragraph(printable(headline(headroom)), "bold"), Text(), grid)


def figures(run: Run, summary: Summary) -> Rows:
    """What was measured, as labels and values."""
    header, waits = run.header, summary.waits
    unit = printable(shortened(header.unit, LONGEST_NAME))
    samples, ready = summary.samples_per_batch, bool(header.loader.ready_batches)
    first, later = summary.epoch_start_ns[: not ready], summary.epoch_start_ns[not ready :]
    return [
        ("run", printable(shortened(header.name, LONGEST_NAME))),
        ("mode", _mode(run)),
        ("throughput", throughput(summary, unit)),
        ("iteration, mean", duration(summary.iteration_ns)),
        ("step, mean", duration(summary.step_ns)),
        ("wait, mean", duration(waits.mean_ns if waits else None)),
        ("wait, p50", duration(waits.p50_ns if waits else None)),
        ("wait, p95", duration(waits.p95_ns if waits else None)),
        ("wait, p99", duration(waits.p99_ns if waits else None)),
        ("wait, max", duration(waits.max_ns if waits else None)),
        ("share waited", share(summary.wait_share)),
        ("first batch, first epoch", duration(next(iter(first), None))),
        ("first batch, later epochs", _between(later)),
        ("batches", f"{summary.batches:,}"),
        ("epochs", f"{summary.epochs:,}"),
        ("steady batches", f"{summary.steady_batches:,}"),
        ("left out per epoch", _left_out(run)),
        ("samples per batch", _average(samples)),
        ("bytes per batch", size(summary.bytes_per_batch)),
    ]


def loader_facts(run: Run) -> Rows:
    """What served the batches, and where, as labels and values."""
    loader, cache = run.header.loader, run.header.cache
    replayed = "none"
    if cache is not None:
        replayed = f"{_known(cache.batches)} ({size(cache.nbytes)})"
    return [
        ("loader", _known(class_name(loader))),
        ("workers", _known(loader.workers)),
        ("prefetch depth", _known(loader.prefetch_depth)),
        ("batch size", _known(loader.batch_size)),
        ("batches in an epoch", _known(loader.length)),
        ("ready when wrapped", _known(loader.ready_batches)),
        ("pinned", _known(loader.pinned)),
        ("device", _known(loader.device)),
        ("start method", _known(loader.start_method)),
        ("persistent workers", _known(loader.persistent_workers)),
        ("kept for replay", replayed),
        ("recorded", _moment(run.header.created)),
        ("host", _known(run.header.environment.get("host"))),
        ("usable CPUs", _known(run.header.environment.get("cpus_usable"))),
    ]


def notes(run: Run) -> list[str]:
    """What reading `run` brought up, what happened while it ran, and what went wrong in it."""
    name = shortened(run.header.name, LONGEST_NAME)
    lines = [f"{name}: {note}" for note in run.notes]
    lines += [f"{name}, at {duration(event.time_ns)}: {event.message}" for event in run.events]
    lines += [
        f"{name}, epoch {end.epoch} failed: {end.error}"
        for end in run.ends
        if end.cause == "failed"
    ]
    lines += [f"{name}: {growth}" for growth in growth_in_words(run)]
    return [printable(line) for line in lines]


def arm_of(run: Run) -> Arm:
    """The arm that the first batch of `run` is of."""
    return ARMS[run.steps.arm[0]] if len(run.steps) else "real"


def _mode(run: Run) -> str:
    mode = run.header.mode
    return f"{mode}, {arm_of(run)} arm" if mode == "alternate" and len(run.steps) else mode


def _left_out(run: Run) -> str:
    if run.header.mode == "alternate":
        return "epoch starts, warm-up"
    return counted(run.header.warmup, "batch", "batches")


def _known(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(shortened(str(value), LONGEST_FACT))


def _average(samples: float | None) -> str:
    return "unknown" if samples is None else f"{samples:,.1f}".removesuffix(".0")


def _moment(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return printable(created)
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}".rstrip()


def _between(epoch_start_ns: tuple[int, ...]) -> str:
    if not epoch_start_ns:
        return "none"
    least, most = duration(min(epoch_start_ns)), duration(max(epoch_start_ns))
    return least if least == most else f"{least} to {most}"


def _room(rows: Rows) -> int:
    return max(min(len(value), LONGEST_FIGURE) for _, value in rows)


def _side_by_side(columns: list[Rows]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    label = columns[0][0][0]
    table.add_column(label, no_wrap=True)
    for rows in columns:
        table.add_column(Text(rows[0][1], overflow="fold"), overflow="fold")
    for row, (name, _) in list(enumerate(columns[0]))[1:]:
        table.add_row(name, *(Paragraph(rows[row][1]) for rows in columns))
    return table
