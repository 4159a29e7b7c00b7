"""What it takes to print a screen: how many files and functions it runs through, and how long.

    python -m bench.screen RUN

A function counts once, however often it is called; what runs at an import does not.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import loadeval
from loadeval.cli.main import app

if TYPE_CHECKING:
    from types import FrameType

ROOT = Path(loadeval.__file__).parent
IS_FUNCTION = 1
"""The flag CO_OPTIMIZED of a code object: modules and bodies of classes lack it."""
TIMES = 5


def functions_of(*words: str) -> set[tuple[str, str, int]]:
    """The functions of loadeval that a command runs through: file, name and first line."""
    seen = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_flags & IS_FUNCTION
            and ROOT in Path(code.co_filename).parents
        ):
            seen.add((code.co_filename, code.co_name, code.co_firstlineno))

    with contextlib.redirect_stdout(io.StringIO()):
        app([*words], standalone_mode=False)  # imports
        sys.setprofile(note)
        with contextlib.suppress(SystemExit):
            app([*words], standalone_mode=False)
        sys.setprofile(None)
    return {each for each in seen if each[1] not in {"<lambda>", "<listcomp>", "<genexpr>"}}


def median_s(*words: str) -> float:
    """How long a command takes, Python's start included."""
    command, taken_s = [Path(sys.executable).with_name("loadeval"), *words], []
    for _ in range(TIMES):
        began_s = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken_s.append(time.perf_counter() - began_s)
    return statistics.median(taken_s)


def main(run: str) -> None:
    """Print it for a run."""
    found = functions_of("compare", run)
    files = {file for file, _, _ in found}
    print(f"compare runs through {len(found)} functions in {len(files)} files")
    page = str(Path(run).with_suffix(".html"))
    print(f"compare takes {median_s('compare', run):.2f} s")
    print(f"report takes {median_s('report', run, '--output', page):.2f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
