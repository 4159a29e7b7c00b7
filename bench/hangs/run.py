"""How often each planted hang is named, and no slow loader called one.

Each is a program of the zoo under `loadeval run --hang-after 3 --abort-on-hang`. Exit status 1
where one was not named.
"""

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

from bench.judge import COMMAND, environment
from bench.tables import parser_of

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
ABORTED = 5
LONGEST_S = 120.0
WORKER = r"no batch for \d+ s: worker \d \(process \d+\)"
GONE = "a process that loads is gone, and its batch never comes"
FULL = f"{WORKER} cannot put more into a pipe or a queue: it is full"
NOT_ANSWERED = f"{WORKER} is stuck in a call that is not answered"
OF_SAMPLE = r"sample +9, in batch 4 of the epoch"


def at(place: str, file: str = "hangs.py") -> str:
    return rf"{file}:\d+ {place}"


SAID: dict[str, tuple[str, ...]] = {
    "stuck_socket": (
        *(NOT_ANSWERED, OF_SAMPLE, at("stuck_socket.<locals>.ask")),
        r"call +recvfrom of socket:\[\d+\] connected to 127.0.0.1:\d+",
        r"behind it +worker 1 done, waiting",
    ),
    "stuck_fifo": (NOT_ANSWERED, OF_SAMPLE, at("at.<locals>.<lambda>"), r"call +openat of .*9.bin"),
    "forked_lock": (
        f"{WORKER} waits for a lock that was held when it was forked",
        *(at("forked_lock.<locals>.<lambda>"), at("Handler.acquire", "logging/__init__.py")),
    ),
    "forked_thread": (
        f"{WORKER} waits for a thread that it does not have",
        at("forked_thread.<locals>.<lambda>"),
    ),
    "full_pipe": (FULL, at("full_pipe.<locals>.<lambda>"), r"call +write of pipe"),
    "full_queue": (FULL, at("Numbers.__getitem__"), at("Queue.put", "queues.py")),
    "killed_pool": (GONE, at("Pooled.__iter__")),
    "killed_process": (GONE, at("Queued.__iter__"), r"killed by +SIGKILL \(process \d+\)"),
    "uneven_ranks": (
        "rank 0: no batch for .* training waits in all_reduce for a rank that has no more batches",
        "rank 1 had 10 batches, and this one 11",
        r"rank 0 +11 batches; all_reduce",
        r"rank 1 +10 batches; monitored_barrier",
    ),
    "rank_without_batches": (
        "rank 0: no batch for .* training waits in all_reduce for a rank that has no more batches",
        "rank 1 had 10 batches, and this one 11",
    ),
    "forked_loop": (
        f"{WORKER} waits for an event loop that runs in a thread which it does not have",
        at("Store.get"),
    ),
    "endless_init": (f"{WORKER} has not finished starting", at("prepare")),
    "endless_import": (
        r"no batch for \d+ s: process \d+ has not finished starting",
        at("<module>"),
    ),
}
"""Patterns that the lines on stderr match, in this order."""
ENDED = {
    "killed_worker": r"worker process \d+ was killed by SIGKILL, as the kernel does where memory",
    "crashed_worker": r"worker process \d+ died in compiled code \(Segmentation fault\)",
    "many_descriptors": r"ulimit -n is 64, and \d+ of the training process are shared memory of",
    "locked_dataset": r"Numbers.planted\['lock'\] \(lock\) cannot be",
}
"""Of programs that an error of the loader ends, with exit code 1."""
HEALTHY = ("slow sleep 2", "slow receive 2", "slow compute 2", "slow sleep 0")
"""Trainings that go on to their end."""


def command(planted: str) -> list[str]:
    """It as a user would start it."""
    launcher = TORCHRUN if "rank" in planted else ()
    return [sys.executable, *launcher, "-m", "bench.zoo.hangs", *planted.split()]


@dataclass(frozen=True)
class Ended:
    """How a program ended, what was said, in how long, and how many files of stacks there are."""

    code: int | None
    err: str
    took_s: float
    stacks: int

    def is_as(self, planted: str) -> bool:
        if planted in HEALTHY:
            return self.code == 0
        said = " ".join(self.err.split())  # sentences go on in further lines
        if planted in ENDED:
            return self.code == 1 and re.search(ENDED[planted], said) is not None
        pattern = ".*".join(f"(?:{part})" for part in SAID[planted])
        is_named = re.search(pattern, said) is not None
        return is_named and self.code == ABORTED and self.stacks > 0


def run(planted: str) -> Ended:
    """Run it, as a user would; nothing of it is left afterwards."""
    with TemporaryDirectory() as folder, Path(folder, "err").open("w+") as err:
        logs = Path(folder) / "logs"
        options = ("--output", str(logs), "--hang-after", "3", "--abort-on-hang", "--")
        began_s, code = time.monotonic(), None
        with subprocess.Popen(
            [*COMMAND, "run", *options, *command(planted)],
            env={**environment(), "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
            start_new_session=True,
        ) as process:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(LONGEST_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        err.seek(0)
        stacks = len(list(logs.glob("hang-*.txt")))
        return Ended(code, err.read(), time.monotonic() - began_s, stacks)


def main() -> int:
    parser = parser_of(__doc__, (*SAID, *ENDED, *HEALTHY))
    parser.add_argument("--times", type=int, default=20, metavar="N")
    options = parser.parse_args()
    missed = 0
    for planted in options.only or (*SAID, *ENDED, *HEALTHY):
        ends = [run(planted) for _ in range(options.times)]
        right = [end for end in ends if end.is_as(planted)]
        what = "not called a hang" if planted in HEALTHY else "named"
        longest_s = max(end.took_s for end in ends)
        print(f"{planted:20} {what} {len(right)} of {len(ends)} times; at most {longest_s:.0f} s")
        for end in ends:
            if end not in right:
                missed += 1
                print(f"  exit code {end.code}, {end.stacks} files of stacks:\n{end.err}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
