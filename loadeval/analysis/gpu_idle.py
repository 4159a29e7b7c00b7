"""How long the GPU was idle, by its own clock, and which waits cost it nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.summary import steady
from loadeval.runlog.model import UNKNOWN

if TYPE_CHECKING:
    from loadeval.runlog.model import Arm, Run

MS_NS = 1e6
HIDDEN_SHARE = 0.5
"""Of the waits: when the GPU was idle for less of them, they tell little of what was lost."""
WORTH_SAYING = 0.01
"""Of the iterations: less waiting needs no explanation."""


def gpu_idle_ns(run: Run, arm: Arm) -> float | None:
    """How long the device had nothing to do, on average, in the wait for a batch that counts.

    None where no device's clock told that.
    """
    found = run.steps.gpu_idle_ns[steady(run, arm) & (run.steps.gpu_idle_ns != UNKNOWN)]
    return float(found.mean()) if len(found) else None


def hidden_waits(run: Run) -> str:
    """That most of the real waits cost nothing, for the device had work; "" where it is not so."""
    rows = steady(run, "real") & (run.steps.gpu_idle_ns != UNKNOWN)
    wait_ns, iteration_ns = run.steps.wait_ns[rows], (run.steps.wait_ns + run.steps.step_ns)[rows]
    gpu_idle_ns = int(run.steps.gpu_idle_ns[rows].sum())
    waited_ns = int(wait_ns.sum())
    if waited_ns <= WORTH_SAYING * iteration_ns.sum() or gpu_idle_ns >= HIDDEN_SHARE * waited_ns:
        return ""
    waited, starved = (total / len(wait_ns) / MS_NS for total in (waited_ns, gpu_idle_ns))
    return (
        f"Of the {waited:.3g} ms that training waited for a batch, the GPU was idle for "
        f"{starved:.3g} ms: waiting while it has work costs nothing."
    )
