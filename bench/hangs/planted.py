"""Programs in which a hang is planted, and what `loadeval run` is to say of each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
LOADEVAL = ("-m", "loadeval")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
ABORTED = 5
LONGEST_S = 120.0
HANG_AFTER_S = 3


@dataclass(frozen=True)
class Planted:
    """A program of the zoo, and patterns that its lines on stderr match, in this order.

    A healthy one goes on to its end.
    """

    name: str
    said: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    python: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """It as a user would start it."""
        return (sys.executable, *self.python, "-m", "bench.zoo.hangs", self.name, *self.arguments)

    @property
    def is_healthy(self) -> bool:
        return not self.said


WORKER = r"no batch for \d+ s: worker \d \(process \d+\)"
HANGS = (
    Planted(
        "stuck_socket",
        (
            f"{WORKER} is stuck in a call that is not answered",
            r"sample +9, in batch 4 of the epoch",
            r"line +hangs.py:\d+ Remote.__getitem__",
            r"call +recvfrom of socket:\[\d+\] connected to 127.0.0.1:\d+",
            r"behind it +worker 1 done, waiting",
        ),
    ),
    Planted(
        "stuck_fifo",
        (
            f"{WORKER} is stuck in a call that is not answered",
            r"sample +9, in batch 4 of the epoch",
            r"line +hangs.py:\d+ Files.__getitem__",
            r"call +openat of .*9.bin",
        ),
    ),
    Planted(
        "forked_lock",
        (
            f"{WORKER} waits for a lock that was held when it was forked",
            r"line +hangs.py:\d+ Logged.__getitem__",
            r"in +logging/__init__.py:\d+ Handler.acquire",
        ),
    ),
    Planted(
        "forked_thread",
        (
            f"{WORKER} waits for a thread that it does not have",
            r"line +hangs.py:\d+ Threaded.__getitem__",
        ),
    ),
    Planted(
        "full_pipe",
        (
            f"{WORKER} cannot put more into a pipe or a queue: it is full",
            r"line +hangs.py:\d+ Reported.__getitem__",
            r"call +write of pipe",
            r"other end +process \d+, stopped",
        ),
    ),
    Planted(
        "full_queue",
        (
            f"{WORKER} cannot put more into a pipe or a queue: it is full",
            r"line +hangs.py:\d+ Counted.__getitem__",
            r"in +queues.py:\d+ Queue.put",
        ),
    ),
    Planted(
        "killed_pool",
        (
            "a process that loads is gone, and its batch never comes",
            r"line +hangs.py:\d+ Pooled.__iter__",
        ),
    ),
    Planted(
        "killed_process",
        (
            "a process that loads is gone, and its batch never comes",
            r"line +hangs.py:\d+ Queued.__iter__",
            r"killed by +SIGKILL \(process \d+\)",
        ),
    ),
    Planted(
        "uneven_ranks",
        (
            "rank 0: no batch for .* training waits for other ranks in all_reduce",
            r"rank 0 +11 batches; all_reduce",
            r"rank 1 +10 batches; monitored_barrier",
        ),
        python=TORCHRUN,
    ),
    Planted(
        "endless_init",
        (f"{WORKER} has not finished starting", r"line +hangs.py:\d+ prepare"),
    ),
    Planted(
        "endless_import",
        (
            r"no batch for \d+ s: process \d+ has not finished starting",
            r"line +hangs.py:\d+ <module>",
        ),
    ),
)
HEALTHY = (
    Planted("slow", arguments=("sleep", "2")),
    Planted("slow", arguments=("receive", "2")),
    Planted("slow", arguments=("compute", "2")),
    Planted("slow", arguments=("sleep", "0")),
)


@dataclass(frozen=True)
class Ended:
    """How a program under `loadeval run --abort-on-hang` ended, what was said, and in how long."""

    code: int | None
    err: str
    took_s: float
    stacks: int

    def is_as(self, planted: Planted) -> bool:
        """Whether that is what is to be said of `planted`."""
        if planted.is_healthy:
            return self.code == 0
        pattern = ".*".join(f"(?:{part})" for part in planted.said)
        said = " ".join(self.err.split())  # sentences go on in further lines
        is_named = re.search(pattern, said) is not None
        return is_named and self.code == ABORTED and self.stacks > 0


def run(planted: Planted) -> Ended:
    """Run it, as a user would; nothing of it is left afterwards."""
    with TemporaryDirectory() as folder:
        logs = Path(folder) / "logs"
        command = [
            *(sys.executable, *LOADEVAL, "run", "--output", str(logs)),
            *("--hang-after", str(HANG_AFTER_S), "--abort-on-hang", "--", *planted.command),
        ]
        began_s = time.monotonic()
        code = None
        with subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                _, err = process.communicate(timeout=LONGEST_S)
                code = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                _, err = process.communicate()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        stacks = len(list(logs.glob("hang-*.txt")))
        return Ended(code, err, time.monotonic() - began_s, stacks)


def environment() -> dict[str, str]:
    """One in which programs find loadeval, and are no ranks of another job."""
    own = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}}
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    return {**own, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
