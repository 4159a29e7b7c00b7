"""What of a machine is in order for loading data, and what is to be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis import doctor_gpu as gpu
from loadeval.analysis import doctor_host as host

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.doctor_check import Check, Plan
    from loadeval.probes.machine import Machine

CHECKS: tuple[Callable[[Machine, Plan], Check], ...] = (
    host.cpus,
    host.threads,
    host.workers,
    host.shared_memory,
    host.open_files,
    host.start_method,
    gpu.driver,
    gpu.nvml,
    gpu.gpm,
    gpu.dali,
    host.page_cache,
)


def checkup(machine: Machine, plan: Plan) -> tuple[Check, ...]:
    """Every check, in the order in which they are told."""
    return tuple(check(machine, plan) for check in CHECKS)
