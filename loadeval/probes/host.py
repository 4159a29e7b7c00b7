"""The host: CPU, memory and reading of the training process, of its workers and of the machine."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from loadeval.probes.machine_load import MachineLoad
from loadeval.probes.processes import Family, memory_of, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loadeval.probes.processes import Usage

T = TypeVar("T")
Quantities = dict[str, "float | None"]

RATES = {
    "cpu_cores": "cpu_s",
    "minor_faults_per_s": "minor_faults",
    "major_faults_per_s": "major_faults",
    "read_bytes_per_s": "read_bytes",
    "disk_read_bytes_per_s": "disk_read_bytes",
}
"""Which counter each rate is of."""
MEMORY_EVERY_S = 5.0
MOST_SHARE = 0.001
"""Of the time of one CPU that reading what is costly may take."""


class HostProbe:
    """Reads the subjects "process", "workers" and "machine".

    The workers are all that descend from the training process, and have no reading while there
    are none; `started_workers` counts those seen so far. Rates are means since the reading
    before, and sums over the processes that live at the end of it.

    What is costly is done no more often than it can afford: looking for new workers, every
    second or two on a small machine, and reading memory, every `memory_every_s` seconds at most.
    That is `pss_bytes`, in which what is shared counts once (`pss_file_bytes` of it are of mapped
    files), and `anonymous_bytes`, in which it counts for each; or `rss_bytes`, where the system
    tells no better.
    """

    name = "host"
    every = 20

    def __init__(self, memory_every_s: float = MEMORY_EVERY_S) -> None:
        self._memory_every_s = memory_every_s

    def open(self) -> None:
        """Begin; there is always something to read."""
        self._pid = os.getpid()
        self._family = Family(self._pid)
        self._family.look()
        self._rates = {"process": Rates(), "workers": Rates()}
        self._machine = MachineLoad()
        self._family_pace = Paced(0.0)
        self._memory_pace = Paced(self._memory_every_s)
        self._machine_pace = Paced(0.0)
        self._started: set[tuple[int, float]] = set()

    def read(self) -> Mapping[str, Mapping[str, float | None]]:
        """The quantities of each subject now."""
        self._family_pace.of(self._family.look)
        own = usage_of(self._pid)
        processes = {
            "process": {} if own is None else {self._pid: own},
            "workers": self._family.usages(),
        }
        found = {name: self._rates[name].since(usages) for name, usages in processes.items()}
        found["workers"] |= self._count(processes["workers"])
        memory = self._memory_pace.of(partial(_memory_of_each, processes)) or {}
        for name, quantities in memory.items():
            found[name] |= quantities
        machine = self._machine_pace.of(self._machine.read)
        told: dict[str, Quantities] = {name: found[name] for name in found if processes[name]}
        return told if machine is None else told | {"machine": machine}

    def close(self) -> None:
        """Nothing is held."""

    def _count(self, workers: dict[int, Usage]) -> Quantities:
        self._started |= {(pid, usage.started) for pid, usage in workers.items()}
        return {"alive_workers": len(workers), "started_workers": len(self._started)}


class Rates:
    """How fast the counters of processes grow."""

    def __init__(self) -> None:
        self._before: dict[int, Usage] | None = None
        self._before_s = 0.0

    def since(self, usages: dict[int, Usage]) -> Quantities:
        """The rates since the last time, by name; None at the first, and of what is not known."""
        before, before_s = self._before, self._before_s
        self._before, self._before_s = usages, time.perf_counter()
        if before is None:
            return dict.fromkeys(RATES)
        elapsed_s = self._before_s - before_s
        grown = {name: _grown(usages, before, counter) for name, counter in RATES.items()}
        return {name: None if one is None else one / elapsed_s for name, one in grown.items()}


class Paced:
    """Does what is costly no more often than it can afford."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due_s = 0.0

    def of(self, work: Callable[[], T]) -> T | None:
        """What `work` returns, or None before it is due again."""
        now_s = time.perf_counter()
        if now_s < self._due_s:
            return None
        began_s = time.thread_time()
        found = work()
        cost_s = time.thread_time() - began_s
        self._due_s = now_s + max(self._every_s, cost_s / MOST_SHARE)
        return found


def _grown(now: dict[int, Usage], before: dict[int, Usage], counter: str) -> float | None:
    """By how much the counters of those that live now have grown, all together.

    One that was not there before has begun since, and its counter with it.
    """
    total = 0.0
    for pid, usage in now.items():
        value = getattr(usage, counter)
        earlier = before.get(pid)
        same = earlier is not None and earlier.started == usage.started
        start = getattr(earlier, counter) if same else 0
        if value is None or start is None:
            return None
        total += value - start
    return total


def _memory_of_each(processes: dict[str, dict[int, Usage]]) -> dict[str, Quantities]:
    return {name: _memory_of(usages) for name, usages in processes.items()}


def _memory_of(usages: dict[int, Usage]) -> Quantities:
    found = [memory for pid in usages if (memory := memory_of(pid)) is not None]
    if len(found) < len(usages):
        return {"rss_bytes": sum(usage.rss_bytes for usage in usages.values())}
    names = ("pss_bytes", "pss_file_bytes", "anonymous_bytes")
    return dict(zip(names, map(_sum, zip(*found, strict=True)), strict=True)) if found else {}


def _sum(parts: tuple[int | None, ...]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
