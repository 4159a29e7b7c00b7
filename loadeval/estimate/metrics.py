"""What probes read while each arm was served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.data.columns import UNKNOWN, Column, Values
from loadeval.data.run import ARMS, Run
from loadeval.estimate.once import once_per_run
from loadeval.estimate.steady import steady

if TYPE_CHECKING:
    from loadeval.data.lines import Arm

MOSTLY = 0.9
"""An arm must have this share of the time that a reading is about."""
OVER_NS = {"kernel_busy_percent": 1_000_000_000, "power_watts": 1_000_000_000}
"""How long before it is read a mean of a GPU's driver may begin."""

Quantity = tuple[str, str, str]
"""A probe, a subject of it, and what was read, whose name ends in its unit."""


@once_per_run
def readings_by_arm(run: Run) -> dict[Quantity, dict[Arm, Values]]:
    """Every quantity that was read while batches that count were served, in order, by arm.

    A reading is a mean since the one before it, or over some time that a GPU's driver chooses. It
    counts for an arm that was served nearly all of that time.
    """
    served = {arm: _served(run, arm) for arm in ARMS}
    levels: dict[Quantity, dict[Arm, Values]] = {}
    for (probe, subject), table in run.readings.items():
        for name in table.names:
            if name == "time_ns":
                continue
            known = table.take(~np.isnan(table[name]))
            # Since Hopper a GPU's own counters count since the reading before.
            by_driver = probe == "gpu" and not (
                name == "kernel_busy_percent" and "sm_busy_percent" in table
            )
            least_ns = OVER_NS.get(name, 0) if by_driver else 0
            time_ns = known.time_ns
            since_ns = np.minimum(np.append(time_ns[:1], time_ns[:-1]), time_ns - least_ns)
            for arm, (begin_ns, end_ns) in served.items():
                within_ns = _before(time_ns, begin_ns, end_ns) - _before(since_ns, begin_ns, end_ns)
                chosen = known[name][within_ns >= MOSTLY * np.maximum(time_ns - since_ns, 1)]
                chosen.setflags(write=False)
                if len(chosen):
                    levels.setdefault((probe, subject, name), {})[arm] = chosen
    return levels


def _served(run: Run, arm: Arm) -> tuple[Column, Column]:
    """When batches of `arm` that count were served: from and to, in the order of time."""
    rows = steady(run, arm) & (run.steps.request_ns != UNKNOWN)
    steps = run.steps.take(rows)
    order = np.argsort(steps.request_ns, kind="stable")
    return steps.request_ns[order], (steps.request_ns + steps.wait_ns + steps.step_ns)[order]


def _before(time_ns: Column, begin_ns: Column, end_ns: Column) -> Column:
    """For how long an arm was served before each time."""
    count = np.searchsorted(begin_ns, time_ns, side="right")
    served_ns = np.append(0, np.cumsum(end_ns - begin_ns))[count]
    still_to_come_ns = np.append(0, end_ns)[count] - time_ns
    return served_ns - np.where(count > 0, np.maximum(still_to_come_ns, 0), 0)
