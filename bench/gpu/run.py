"""Measure what loadeval claims on a GPU, each part in a process of its own, and write docs/gpu.md.

    python -m bench.gpu.run [--results FILE] [--page FILE] [--minutes 9] [PART...]

Results are written as they come, so a run that is stopped keeps what it has; a part that crashes or
takes too long does not end the others. Without a GPU nothing is measured, and the page tells what
the last run on one measured. Exits with 1 where a claim did not hold.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.gpu import results
from bench.gpu.claims import PARTS
from bench.gpu.page import page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.gpu.claims import Part

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gpu.md"
QUIET = ("-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "filterwarnings=default")
NOTHING_RUN = 5
"""pytest's exit code where it found no test."""


def run(part: Part, limit_s: float, environment: dict[str, str]) -> str:
    """Run `part`; what went wrong with it, or nothing."""
    tests = [
        str(ROOT / "bench" / "gpu" / part.file),
        *(["-k", part.keyword] if part.keyword else []),
    ]
    command = [sys.executable, "-u", "-m", "pytest", *QUIET, *tests]
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as child:
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"stopped after {limit_s:.0f} s"
        finally:
            _kill(child)
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return "" if code in {0, 1, NOTHING_RUN} else f"pytest ended with {code}"


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End whatever the part has started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts; 1 where a claim did not hold or a part went wrong."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: see below
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, help="append measurements to this file")
    parser.add_argument("--page", type=Path, default=None, help="write the page there")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no part that may not end")
    parser.add_argument("parts", nargs="*", help="files of bench/gpu; by default all")
    options = parser.parse_args(arguments)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        measured = options.results or Path(folder) / "results.jsonl"
        environment = {**os.environ, results.RESULTS: str(measured.resolve())}
        wrong = []
        for part in PARTS:
            if options.parts and not any(wanted in part.file for wanted in options.parts):
                continue
            left_s = options.minutes * 60 - (time.monotonic() - began_s)
            name = " ".join(filter(None, (part.file, part.keyword)))
            print(f"\n{name}: {time.monotonic() - began_s:.0f} s since the beginning", flush=True)
            limit_s = min(part.limit_s, left_s)
            try:
                problem = "no time is left" if left_s < 1 else run(part, limit_s, environment)
            except KeyboardInterrupt:
                wrong += [f"{name}: interrupted"]
                break
            wrong += [f"{name}: {problem}"] if problem else []
        new = results.read(measured)
    if new:
        results.FILE.write_text("".join(result.line() + "\n" for result in new))
    (options.page or PAGE).write_text(page(results.read(results.FILE)))
    failed = [
        f"{result.claim} ({result.case}): {result.measured}, not {result.expected}"
        for result in new
        if result.held is False
    ]
    elapsed_s = time.monotonic() - began_s
    print(f"\n{len(new)} measurements in {elapsed_s:.0f} s, {len(failed)} did not hold")
    print("".join(f"  {line}\n" for line in [*failed, *wrong]), end="")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
