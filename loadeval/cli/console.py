"""What every command shares: exit codes, printing and errors."""

from __future__ import annotations

import io
import json
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from loadeval.analysis.aligned_ranks import are_ranks
from loadeval.analysis.ranks import JobReport
from loadeval.analysis.report import Report
from loadeval.errors import LoadevalError, UsageError
from loadeval.report.formatting import printable
from loadeval.report.tables import GAP, NO_LIMIT, table_lines
from loadeval.runlog.folder import is_folder, logs_in, read_ranks, read_whole, replayed_logs
from loadeval.runlog.reader import read_run
from loadeval.runlog.redacted_copies import redacted_copies

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from loadeval.runlog.model import Run

REDACT = (
    "Put placeholders in place of paths, host and user names, names of runs and texts of "
    "exceptions."
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
FAILED = 1
LOST_TOO_MUCH = 3
CANNOT_TELL = 4
INTERRUPTED = 130
"""Of a process that Ctrl-C ended: 128 + SIGINT."""
EXIT_CODES = (
    "Exit codes: 0 done; 1 a file could not be read or written, or the runs cannot be compared; "
    "2 wrong usage. With a limit: 3 loss above it (whole 95% CI); 4 undecided."
)


def report_of(paths: Sequence[Path], *, compared: bool = False) -> Report:
    """What is said of these files, and of the ranks in these folders, each of which is one job.

    With `compared` as `Report.of` does. Raises UsageError where a file was given twice.
    """
    _check_different(paths)
    return _report([one for path in paths for one in _read(path)], compared=compared)


def report_of_training(ranks: Sequence[Path], replayed: Sequence[Path], folder: Path) -> Report:
    """What the logs in `folder` of the ranks of one training say, and of its second run.

    Raises UsageError where they are not of one job.
    """
    return _report([told_together(logs, folder) for logs in (ranks, replayed) if logs])


def _report(found: Sequence[JobReport | Run], *, compared: bool = False) -> Report:
    if len(found) == 1:
        return _by_itself(found[0], compared=compared)
    runs = [one.run if isinstance(one, JobReport) else one for one in found]
    return Report.of(runs, compared=compared)


def reports_of(paths: Sequence[Path]) -> list[Report]:
    """The same of each by itself: where a command was run again to replay, of both runs."""
    return [_by_itself(one) for path in paths for one in _read(path)]


def read_each_once(paths: Sequence[Path]) -> list[Run]:
    """The runs in these files. Raises UsageError where a file was given twice."""
    _check_different(paths)
    return [read_run(path) for path in paths]


def _check_different(paths: Sequence[Path]) -> None:
    if len({path.resolve() for path in paths}) < len(paths):
        names = ", ".join(map(str, paths))
        raise UsageError(f"{names}: the same file was given twice; expected different runs")


def _by_itself(found: JobReport | Run, *, compared: bool = False) -> Report:
    if isinstance(found, JobReport):
        return Report.of_job(found)
    return Report.of([found], compared=compared)


def _read(path: Path) -> list[JobReport | Run]:
    """A run, of a folder the run or the job, and what it replayed in a second run."""
    if not is_folder(path):
        return [read_run(path)]
    replayed = replayed_logs(path)
    return [told_together(logs, path) for logs in (logs_in(path), replayed) if logs]


def told_together(logs: Sequence[Path], folder: Path) -> JobReport | Run:
    """The run in the only log; or the job, of the logs of several ranks."""
    if len(logs) == 1:
        return read_run(logs[0])
    ranks = read_ranks(logs)
    if not are_ranks(ranks):
        raise UsageError(
            f"{folder} has {len(logs)} run logs, which are not of the ranks of one job; expected "
            "one for each rank; give those to look at by name"
        )
    return JobReport.of(ranks, read_whole, folder.name)


def readable(paths: Sequence[Path], *, redact: bool) -> AbstractContextManager[Sequence[Path]]:
    """The files to read: `paths`, or copies with placeholders that are removed at the end."""
    return redacted_copies(paths) if redact else nullcontext(paths)


def new_console() -> Console:
    """A console that prints text as it is."""
    return Console(highlight=False, markup=False, emoji=False)


def print_report(*reports: RenderableType) -> None:
    """Print `reports` with an empty line between them."""
    console = new_console()
    for number, report in enumerate(reports):
        if number:
            console.print()
        console.print(report)


def print_table(
    rows: Sequence[Sequence[str]], heading: Sequence[str] = (), styles: Sequence[str] = ()
) -> None:
    """Print `rows`, the first column in `styles`: folded to the width of a terminal.

    For a file or another program each row is a line, however long.
    """
    rows = [list(map(printable, row)) for row in rows]
    if not Console().is_terminal:
        typer.echo("\n".join(table_lines([*filter(None, [heading]), *rows], NO_LIMIT)))
        return
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    table.show_header = bool(heading)
    for name in heading or rows[0]:
        table.add_column(name, overflow="fold")
    for number, row in enumerate(rows):
        style = styles[number] if styles else ""
        table.add_row(Text(row[0], style), *map(Text, row[1:]))
    print_report(table)


def print_lines(lines: Sequence[str]) -> None:
    """Print `lines` as they are, the first in bold; a terminal folds what is longer than it."""
    first, *others = lines
    typer.secho(first, bold=True)
    for line in others:
        typer.echo(line)


def screen_width() -> int:
    """The columns of the terminal, or COLUMNS; 80 where neither is known."""
    return Console().width


def print_json(content: Any) -> None:
    """Print `content` as JSON."""
    typer.echo(json.dumps(content, indent=2))


@contextmanager
def errors_printed() -> Iterator[None]:
    """Print an error of loadeval's in one line on stderr, and exit with FAILED."""
    try:
        yield
    except LoadevalError as error:
        typer.echo(f"Error: {printable(error)}", err=True)
        raise typer.Exit(FAILED) from None


def escape_what_cannot_be_encoded() -> None:
    """Print a character that stdout's encoding does not have as its escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
