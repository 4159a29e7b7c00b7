"""What every command shares: exit codes, printing and errors."""

from __future__ import annotations

import io
import json
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from loadeval.analysis.job.alignment import are_ranks
from loadeval.analysis.job.ranks import JobReport
from loadeval.data.folder import read_ranks, read_whole
from loadeval.data.log import read_run
from loadeval.errors import LoadevalError, UsageError
from loadeval.report.tables import NO_LIMIT, Table
from loadeval.words import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from loadeval.data.run import Run

REDACT = (
    "Put placeholders in place of paths, host and user names, names of runs and texts of "
    "exceptions."
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
COMMAND = "What to run, as you would without loadeval. Write -- before it."
Command = Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help=COMMAND)]
Redact = Annotated[bool, typer.Option("--redact", help=REDACT)]
FAILED = 1
ABOVE_LIMIT = 3
UNDECIDED = 4
INTERRUPTED = 130
"""A shell gives this code, 128 + SIGINT, to a process that Ctrl-C ended."""
EXIT_CODES = (
    "Exit codes: 0 done; 1 a file could not be read or written, or the runs cannot be compared; "
    "2 wrong usage. With a limit: 3 loss above it (whole 95% CI); 4 undecided."
)


def read_each_once(paths: Sequence[Path]) -> list[Run]:
    """The runs in these files. Raises UsageError where a file was given twice."""
    _check_different(paths)
    return [read_run(path) for path in paths]


def _check_different(paths: Sequence[Path]) -> None:
    if len({path.resolve() for path in paths}) < len(paths):
        names = ", ".join(map(str, paths))
        raise UsageError(f"{names}: the same file was given twice; expected different runs")


def run_or_job(logs: Sequence[Path], folder: Path) -> JobReport | Run:
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


def print_table(rows: Sequence[Sequence[str]], styles: Sequence[str]) -> None:
    """Print `rows`, the first column in `styles`: folded to the width of a terminal.

    For a file or another program each row is a line, however long.
    """
    printed = [list(map(printable, row)) for row in rows]
    table = Table("", (), printed, wraps=range(len(printed[0])), styles=styles)
    if Console().is_terminal:
        print_report(table)
    else:
        typer.echo("\n".join(table.lines(NO_LIMIT)))


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


def say(line: str) -> None:
    """Print `line` on stderr, if it can be: stdout may be a command's."""
    with suppress(OSError, ValueError):
        typer.echo(line, err=True)


def shown_path(path: Path) -> str:
    """`path` as it is shortest from where we are."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):  # the folder that we are in may be gone
        return str(path)


@contextmanager
def ctrl_c_exits() -> Iterator[None]:
    """Exit with INTERRUPTED where Ctrl-C ends what is done."""
    try:
        yield
    except KeyboardInterrupt:
        say("Interrupted.")
        raise typer.Exit(INTERRUPTED) from None


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
