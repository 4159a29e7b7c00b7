"""Looks after trainings from outside, by the logs that they write: where no batch comes, and why.

Nothing is added to a training. Its logs are followed as `loadeval watch` does, and only once it got
no batch for long are its processes looked at, twice.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import psutil
from rich.console import Console

from loadeval.attach.hang import Hang, hang_of, hang_of_job, headline, rows, stacks_text
from loadeval.attach.marks import declared_marks
from loadeval.data.run import SECOND_NS
from loadeval.errors import LoadevalError
from loadeval.live import FollowedRun, LiveRun
from loadeval.probes.looks import Look, look_at
from loadeval.report.blocks import Facts, Section, Text
from loadeval.report.text import lines

TIMES_LONGEST_WAIT = 10
LEAST_NS = 30 * SECOND_NS
"""By default a training may hang that got no batch for 10 times its longest wait, and for 30 s."""
INTERVAL_S = 1.0
"""The logs are read no more often."""
SHORTEST_S, LONGEST_S = 1.0, 5.0
"""Two looks, between which a hang does not move, are a tenth of the limit apart, within these."""
AGAIN = 3
"""Where it is no hang yet, the next look follows after a third of the limit."""


class Found(NamedTuple):
    """What was found where no batch came.

    `hang` is what all wait for, and `ranks` has one for each process that was looked at. `path` has
    all stacks; None where they could not be written.
    """

    hang: Hang
    ranks: tuple[Hang, ...]
    path: Path | None

    def section(self) -> Section:
        """It in words, with the path as it is shortest from where we are."""
        path = self.path
        with suppress(ValueError, OSError):  # the folder that we are in may be gone
            path = path and path.relative_to(Path.cwd())
        known = [
            (f"  {label}", text)
            for label, text in rows(self.hang, self.ranks, None if path is None else str(path))
        ]
        return Section("", [Text(f"loadeval: {headline(self.hang)}"), Facts(known)])


class Silence(NamedTuple):
    """How long a process that trains got no batch from any of its loaders, by their logs.

    From `limit_ns` on that may be a hang.
    """

    pid: int
    rank: int | None
    world_size: int
    batches: int
    silent_ns: int
    limit_ns: float


class HangWatch:
    """Looks after the trainings that write the log at `path`, or the logs in that folder.

    They may hang once they got no batch for `hang_after_s`, by default TIMES_LONGEST_WAIT times as
    long as ever before, and LEAST_NS at least; 0 is never. With `redact` there is no file of
    stacks. The last arguments are for tests.
    """

    def __init__(
        self,
        path: Path,
        hang_after_s: float | None = None,
        *,
        redact: bool = False,
        now_s: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        look_at: Callable[[int], Look | None] = look_at,
    ) -> None:
        self._path, self._hang_after_s, self._redact = path, hang_after_s, redact
        self._now_s, self._sleep, self._look_at = now_s, sleep, look_at
        self._logs: dict[Path, FollowedRun] = {}
        self._host = socket.gethostname()
        self._due_s = math.inf if hang_after_s == 0 else 0.0
        self._said: dict[int, tuple[int, bool]] = {}  # of processes: batches, and whether it hung

    def poll(self, say: Callable[[str], object]) -> bool:
        """Look, if that is due, and say what was found; whether it is a hang. Does not raise."""
        try:
            found = self.look()
            if found is not None:
                for line in lines([found.section()], Console(stderr=True).width):
                    say(line.plain)
        except Exception as error:  # what looks after a program may not end it
            logging.getLogger("loadeval").debug("hangs are not looked for", exc_info=error)
            self._due_s = math.inf
            return False
        return found is not None and found.hang.is_hang

    def look(self) -> Found | None:
        """What was found, once in each silence; once more where it becomes a hang.

        Call it often: it does something only when that is due, and takes some seconds where no
        batch comes. Raises OSError where the folder cannot be read.
        """
        now_s = self._now_s()
        if now_s < self._due_s:
            return None
        self._due_s = now_s + INTERVAL_S
        silences = self._silences(now_s)
        unsaid = [
            each
            for each in silences.values()
            if each.silent_ns >= each.limit_ns and self._said.get(each.pid) != (each.batches, True)
        ]
        if not unsaid:
            return None
        limit_s = min(each.limit_ns for each in unsaid) / SECOND_NS
        first = {pid: self._look_at(pid) for pid in silences}
        self._sleep(min(max(limit_s / 10, SHORTEST_S), LONGEST_S))
        now_s = self._now_s()
        self._due_s = now_s + max(limit_s / AGAIN, SHORTEST_S)
        later = self._silences(now_s)
        hangs: dict[int, Hang] = {}
        stacks: list[Look] = []
        for pid, each in silences.items():
            before, now, after = first[pid], later.get(pid), self._look_at(pid)
            if before and after and now and now.batches == each.batches:
                hang = hang_of([before, after], declared_marks(), now.silent_ns)
                hangs[pid] = replace(hang, rank=each.rank, batches=each.batches)
                stacks.append(after)
        if any(each.pid not in hangs for each in unsaid):
            return None  # it has ended, or got a batch meanwhile
        ranks = tuple(hangs.values())
        hang = hang_of_job(ranks, max(each.world_size for each in silences.values()), self._over())
        was_said = all(self._said.get(each.pid, (-1,))[0] == each.batches for each in unsaid)
        if hang.cause == "step" or (was_said and not hang.is_hang):
            return None
        for pid in hangs:
            batches = silences[pid].batches
            self._said[pid] = batches, hang.is_hang or self._said.get(pid) == (batches, True)
        return Found(hang, ranks, self._written(ranks, stacks))

    def _over(self) -> dict[int, int]:
        """The batches of each rank that is within no epoch, whether its process goes on or not.

        Not of one that others are epochs ahead of: it may write a checkpoint.
        """
        runs = [followed.run for followed in self._logs.values()]
        served = [(run.environment.get("rank"), run) for run in runs if run.batches]
        goes_on = {rank for rank, run in served if run.is_open}
        epochs, batches = Counter[int](), Counter[int]()
        for rank, run in served:
            if isinstance(rank, int):
                epochs[rank] += 1 + (run.epoch or 0)
                batches[rank] += run.batches
        most = max(epochs.values(), default=0)
        return {
            rank: n for rank, n in batches.items() if rank not in goes_on and epochs[rank] == most
        }

    def _silences(self, now_s: float) -> dict[int, Silence]:
        """Those of the processes of this machine that go on."""
        loaders: dict[int, list[tuple[int, LiveRun]]] = defaultdict(list)
        for path in sorted(self._path.glob("*.jsonl")) if self._path.is_dir() else [self._path]:
            followed = self._logs.setdefault(path, FollowedRun(path))
            is_there = False
            with suppress(LoadevalError):  # it may be damaged, or another file
                is_there = followed.read()
            silent_ns = followed.run.silent_ns(followed.quiet_ns(now_s))
            pid, host = (followed.run.environment.get(name) for name in ("pid", "host"))
            if not is_there or silent_ns is None or not isinstance(pid, int):
                continue
            if psutil.pid_exists(pid) and (host == self._host or _has_open(pid, path)):
                loaders[pid].append((silent_ns, followed.run))
        silences = {}
        for pid, each in loaders.items():
            runs = [run for _, run in each]
            longest_ns = TIMES_LONGEST_WAIT * max(run.longest_wait_ns for run in runs)
            after_s, known = self._hang_after_s, runs[0].environment
            silences[pid] = Silence(
                pid,
                known.get("rank"),
                known.get("world_size", 1),
                batches=sum(run.batches for run in runs),
                silent_ns=min(silent_ns for silent_ns, _ in each),
                limit_ns=max(longest_ns, LEAST_NS) if after_s is None else after_s * SECOND_NS,
            )
        return silences

    def _written(self, ranks: Sequence[Hang], looks: Sequence[Look]) -> Path | None:
        """The new file with all stacks, beside the logs; None where there is none."""
        if self._redact:
            return None
        folder = self._path if self._path.is_dir() else self._path.parent
        paths = (folder / f"hang-{number}.txt" for number in count(1))
        path = next(path for path in paths if not path.exists())
        with suppress(OSError):
            path.write_text(stacks_text(ranks, looks), encoding="utf-8", errors="backslashreplace")
            return path
        return None


def _has_open(pid: int, path: Path) -> bool:
    """Whether that process of this machine has the file at `path` open."""
    with suppress(psutil.Error):
        return any(file.path == str(path.resolve()) for file in psutil.Process(pid).open_files())
    return False
