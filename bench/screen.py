"""What a screen takes: the files and functions of loadeval that it runs through, and how long.

    python -m bench.screen RUN

A function counts once, however often it is called; what runs at an import does not count.
"""

import contextlib
import io
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import loadeval
from loadeval.cli.main import app  # what a command runs through is inside

ROOT = Path(loadeval.__file__).parent
IS_FUNCTION = 1
"""The flag CO_OPTIMIZED of a code object: modules and bodies of classes lack it."""


def functions_of(*words: str) -> Counter[str]:
    """How many functions of each file a command runs through."""
    seen = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and code.co_flags & IS_FUNCTION and ROOT in path.parents:
            seen.add((str(path.relative_to(ROOT)), code.co_name, code.co_firstlineno))

    with contextlib.redirect_stdout(io.StringIO()):
        app([*words], standalone_mode=False)  # imports
        sys.setprofile(note)
        app([*words], standalone_mode=False)
        sys.setprofile(None)
    return Counter(file for file, name, _ in seen if not name.startswith("<"))


def median_s(*words: str) -> float:
    """How long a command takes, Python's start included."""
    command, taken_s = [Path(sys.executable).with_name("loadeval"), *words], []
    for _ in range(5):
        began_s = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken_s.append(time.perf_counter() - began_s)
    return statistics.median(taken_s)


def main(run: str) -> None:
    found = functions_of("compare", run)
    print(f"compare runs through {found.total()} functions in {len(found)} files")
    print(f"compare takes {median_s('compare', run):.2f} s")
    page = str(Path(run).with_suffix(".html"))
    print(f"report takes {median_s('report', run, '--output', page):.2f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
