"""Measure what loadeval says on a GPU, each row in a process of its own, and write docs/gpu.md.

Results are written as they come, so a run that is stopped keeps what it has; a row that crashes or
takes too long does not end the others. Without a GPU every row is skipped, and the page stays as
it is. Exits with 1 where something did not hold.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pynvml  # type: ignore[import-untyped]  # it ships no type information
import torch

from bench.gpu.results import Result, page, read
from bench.gpu.rows import ROWS, Row
from bench.judge import ROOT
from bench.tables import parser_of

PAGE = ROOT / "docs" / "gpu.md"
FILE = Path(__file__).with_name("results.jsonl")
"""The measurements of the last run on a device, which the page shows."""
ORDER = (*range(1, 9), 10, 9, 11, 12, 13)
"""What matters most comes first, for there may be no time for the rest."""


def described() -> str:
    try:
        pynvml.nvmlInit()
        driver = str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        driver = "of unknown version"
    name, day = torch.cuda.get_device_name(0), time.strftime("%Y-%m-%d")
    return f"one {name} with driver {driver}, torch {torch.__version__}, on {day}"


def note(result: Result, path: Path) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(result.line() + "\n")
    print(result, flush=True)


def measure(row: Row, path: Path) -> None:
    on = described()
    with TemporaryDirectory() as folder:
        try:
            for result in row.measure(Path(folder)):
                note(replace(result, row=row.number, on=on), path)
        except Exception as error:
            note(Result("the row", "no error", repr(error), False, row.number, on), path)
            raise


def run(row: Row, limit_s: float, path: Path) -> None:
    """Measure one row in a process; note what went wrong with it."""
    command = [sys.executable, "-u", "-m", "bench.gpu.run", "--results", str(path.resolve())]
    command += ["--inside", str(row.number)]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as child:
        problem = f"stopped after {limit_s:.0f} s"
        with suppress(subprocess.TimeoutExpired):
            code = child.wait(limit_s)
            problem = f"ended by {signal.Signals(-code).name}" if code < 0 else ""
        with suppress(ProcessLookupError):  # whatever the row has started
            os.killpg(child.pid, signal.SIGKILL)
    if problem:
        note(Result("the row", "its end", problem, held=False, row=row.number), path)


def main(arguments: Sequence[str] | None = None) -> int:
    known = {str(row.number): row for row in ROWS}
    parser = parser_of(__doc__, known)
    parser.add_argument("--results", type=Path, help="append measurements to this file")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no row after that")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside is not None:
        measure(known[options.inside], options.results)
        return 0
    chosen = [known[number] for number in options.only or map(str, ORDER)]
    began_s = time.monotonic()
    with TemporaryDirectory() as folder:
        path = options.results or Path(folder) / "results.jsonl"
        path.unlink(missing_ok=True)
        if not torch.cuda.is_available():
            why = f"torch {torch.__version__} finds no CUDA device"
            for row in chosen:
                note(Result(row.case, row.shows, f"skipped: {why}", None, row.number), path)
            return 0
        for row in chosen:
            left_s = options.minutes * 60 - (time.monotonic() - began_s)
            if left_s < 1:
                note(Result("the row", row.shows, "no time is left", None, row.number), path)
            else:
                run(row, min(2.0 * row.seconds, left_s), path)
        results = read(path)
    FILE.write_text("".join(f"{result.line()}\n" for result in results), encoding="utf-8")
    table = [(row.number, row.case, row.shows) for row in ROWS]
    PAGE.write_text(page(table, results), encoding="utf-8")
    missed = [result for result in results if result.held is False]
    elapsed_s = time.monotonic() - began_s
    print(f"\n{len(results)} measurements in {elapsed_s:.0f} s, {len(missed)} did not hold")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
