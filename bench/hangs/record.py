"""Record what is seen of each planted hang, for tests that need no process: tests/recorded/hangs.

    python -m bench.hangs.record [NAME...]

Each file has, of each training process of a program that hangs: two looks at it and at what it
started, and what `attach` observes in some seconds.
"""

import gzip
import json
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from bench.hangs.run import SAID, command
from bench.judge import ROOT, environment
from loadeval.attach.hang import hang_of
from loadeval.attach.marks import declared_marks
from loadeval.probes.looks import look_at, observe

FOLDER = ROOT / "tests" / "recorded" / "hangs"
OBSERVED_S = 3.0
LONGEST_S = 60.0
MARKS = declared_marks()
NAMES = {
    str(Path(psutil.__file__).parents[1]): "/venv/lib/python3.11/site-packages",
    sys.prefix: "/venv",
    sys.base_prefix: "/usr",
    str(ROOT): "/home/me/project",
}
"""What a recording calls the paths of this machine."""


def recorded(planted: str) -> list[dict[str, Any]]:
    """Start the program, wait until it hangs, and look at each process of it that trains."""
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen(command(planted), env=environment(), cwd=ROOT, **quiet)
    until_s = time.monotonic() + LONGEST_S
    try:
        trainings = [process]
        while "ranks" in planted and len(trainings) < 2:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{planted} starts no ranks")
            time.sleep(0.5)
            children = psutil.Process(process.pid).children()
            trainings = [child for child in children if planted in child.cmdline()]
        return [seen(training.pid) for training in trainings]
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()


def seen(pid: int) -> dict[str, Any]:
    """What is seen of a training process, once it hangs."""
    until_s = time.monotonic() + LONGEST_S
    before = None
    while True:
        first = look_at(pid)
        time.sleep(1.0)
        last = look_at(pid)
        assert first is not None
        assert last is not None
        hang = hang_of([first, last], MARKS, 10**10)
        if hang.is_hang and before == (hang.cause, hang.line):  # and not in the middle of imports
            break
        before = hang.cause, hang.line
        if time.monotonic() > until_s:
            raise TimeoutError(f"{pid} does not hang: {hang}")
    below = [process.pid for process in last.others]
    return {
        "pid": pid,
        "looks": [asdict(first), asdict(last)],
        "observation": asdict(observe(pid, below, OBSERVED_S, threading.Event())),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True, parents=True)
    for name in sys.argv[1:] or SAID:
        text = json.dumps(recorded(name), default=sorted, separators=(",", ":"))
        for path, other in NAMES.items():
            text = text.replace(path, other)
        file = FOLDER / f"{name}.json.gz"
        file.write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"{name}: {file.stat().st_size:,} bytes", flush=True)
