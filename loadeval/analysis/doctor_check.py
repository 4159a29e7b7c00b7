"""What a check of a machine tells, and the loader that the machine is judged for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from loadeval.probes.machine import DataSize, Machine

Status = Literal["ok", "change", "not measured"]

PREFETCH = 2
BATCH_BYTES = 32_000_000
UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `text` says what was found, and what to change."""

    name: str
    status: Status
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The loader that the machine is judged for.

    `workers` is None where as many as there are CPUs are assumed, and `data` where the size of
    the data set was not given.
    """

    workers: int | None = None
    prefetch: int = PREFETCH
    batch_bytes: int = BATCH_BYTES
    data: DataSize | None = None


def cores_of(machine: Machine) -> float:
    """How many CPUs' worth of time there is."""
    quota = math.inf if machine.quota_cores is None else machine.quota_cores
    return min(machine.cpus_usable, quota)


def workers_of(machine: Machine, plan: Plan) -> int:
    """How many workers are meant: one for each CPU, where that was not said."""
    return whole(cores_of(machine)) if plan.workers is None else plan.workers


def whole(cores: float) -> int:
    """The CPUs that can be given away whole, and 1 at least."""
    return max(1, math.floor(cores))


def counted(count: int, one: str) -> str:
    """`count` things: 1 worker, 2 workers."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def size(nbytes: int) -> str:
    """`nbytes` to three digits in the unit that suits."""
    for unit, many in UNITS:
        if nbytes >= many:
            return f"{nbytes / many:.3g} {unit}"
    return f"{nbytes} bytes"
