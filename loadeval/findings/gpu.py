"""What the GPU tells: copies to it, hidden waits, idle with ideal loading too."""

from __future__ import annotations

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import SECOND_NS
from loadeval.estimate.metrics import quantities
from loadeval.findings import GPU_BUSY_PERCENT, MATTERS, MOSTLY, TRIFLE
from loadeval.findings.engine import NO_IDEAL, Context, Do, Finding, Set, Skip, rule
from loadeval.inside.code import step_lines
from loadeval.model.costs import Change
from loadeval.words import duration, share, size

READ = (
    *("pinned_bytes_per_s", "pageable_bytes_per_s"),
    *("host_bytes", "pinned_bytes", "float32_bytes"),
)
"""What is read of how a batch gets to the GPU."""
NO_DEVICE = "there is no CUDA device"


@rule("copies", source="bandwidth of copies, measured once; CUDA events; NVML's PCIe bytes", of=())
def copies(c: Context) -> Finding | None:
    """Copying batches to the GPU takes much of each step, with ideal loading too.

    Shown by the time that a batch's bytes take at the measured bandwidth of its kind of memory,
    pinned or not: 5% of the time or more. If ideal loading was not measured, the GPU's idle time in
    waits is subtracted. If the bandwidth was not measured, by a loader that does not pin.
    Excluded by batches that are on the GPU already, and by PCIe traffic of half of their bytes or
    less.
    """
    steps = c.batches.take(c.batches.gpu_step_ns != UNKNOWN)
    if not len(steps):
        raise Skip(NO_DEVICE)
    table = c.run.readings.get(("copies", "batch"), Columns({}))
    read = [float(table[name][0]) for name in READ if len(table) and name in table]
    if len(read) < len(READ) or not np.isfinite(read).all() or min(read[:2]) <= 0:
        if c.loader.pinned is not False or str(c.loader.device).startswith(("cuda", "gpu")):
            raise Skip("how fast batches are copied was not measured")
        says = "Batches are copied to the GPU from memory that is not pinned."
        return Finding(says, [_pin(c)], sure=False)
    pinned_per_s, pageable_per_s, nbytes, pinned_bytes, float32_bytes = read
    is_pinned = pinned_bytes >= MOSTLY * nbytes
    pinned_ns = nbytes / pinned_per_s * SECOND_NS
    copy_ns = pinned_ns if is_pinned else nbytes / pageable_per_s * SECOND_NS
    wait_ns, idle_ns = steps.wait_ns.mean(), steps.gpu_idle_ns.mean()
    batch_ns = idle_ns + steps.gpu_step_ns.mean()
    # What a step no longer takes, training may wait longer for its next batch.
    hidden_ns = 0.0 if c.loads_on_request else idle_ns
    cost = max(copy_ns - hidden_ns, 0.0) / batch_ns
    if c.model is not None:
        cost = c.gained(_shorter_steps(copy_ns))
    sent, metrics = nbytes / batch_ns * SECOND_NS, quantities(c.run, c.ideal)
    levels = [each.real for each in metrics if each.name == "pcie_receive_bytes_per_s"]
    received = sum(level.mean for level in levels if level) if any(levels) else None
    if cost < MATTERS or (received is not None and received <= MOSTLY * sent):
        return None
    do: list[Do] = []
    if not is_pinned:
        do.append(_pin(c, pinned_ns, copy_ns - pinned_ns))
    # Where all that was queued is done when a wait begins, each step waits for the GPU.
    elif wait_ns > MATTERS * batch_ns and wait_ns - idle_ns < TRIFLE * batch_ns:
        because = "each step waits for the GPU, as where a copy, .item() or print asks it"
        do.append(Do("copy with .to(device, non_blocking=True)", because))
    if float32_bytes >= MOSTLY * nbytes:
        because = "a quarter of the bytes, where files have them so; scale and normalise there"
        change = _shorter_steps(0.75 * pinned_ns)
        do.append(Do("send pixels as uint8, convert them on the GPU", because, change=change))
    elif not do:
        because, change = "beside kernels of this one, as prefetchers do", _shorter_steps(copy_ns)
        do.append(Do("copy the next batch on a stream of its own", because, change=change))
    return Finding(
        f"Copying a batch to the GPU takes {duration(copy_ns)} or more of {duration(batch_ns)}: "
        f"{size(nbytes)}, in memory that is {'' if is_pinned else 'not '}pinned.",
        do,
        {
            "copy, ns": copy_ns,
            "copy from pinned memory, ns": pinned_ns,
            "wait for a batch, ns": wait_ns,
            "no work of the training's stream in it, ns": idle_ns,
            "batches a second, bytes": sent,
            "over PCIe to the GPU a second, bytes": received,
        },
        sure=received is not None and not is_pinned,  # else there may be no copy, or beside kernels
        cost=cost,
    )


def _pin(c: Context, pinned_ns: float | None = None, saved_ns: float = 0.0) -> Do:
    """To pin batches, which are then copied in that time, so much less than now."""
    change = None if pinned_ns is None else _shorter_steps(saved_ns)
    if c.loader.pinned:
        because = "pin_memory=True pins only tensors, collections of them, and what has that method"
        return Do("give batches a method pin_memory()", because, change=change)
    taken = "nothing then waits for it" if pinned_ns is None else f"{duration(pinned_ns)} or more"
    because = f"and copy with .to(device, non_blocking=True): {taken}"
    return Set(c.setting("pin_memory") or "pin_memory", False, True, because, change)


def _shorter_steps(ns: float) -> Change:
    """Steps take so much less."""

    def applied(costs: Columns) -> Columns:
        left = (1 - ns / np.maximum(costs.step_ns, 1)).clip(0)
        return costs.replace(step_ns=costs.step_ns * left, step_cpu_ns=costs.step_cpu_ns * left)

    return Change(costs=applied)


@rule("hidden waits", source="CUDA events recorded around each wait")
def hidden_waits(c: Context) -> Finding | None:
    """Training waits, and its GPU has work meanwhile.

    Shown by a CUDA stream of training that had no work for under half of the waiting.
    Excluded by waiting for under 1% of the time.
    """
    steps = c.batches.take(c.batches.gpu_idle_ns != UNKNOWN)
    if not len(steps):
        raise Skip(NO_DEVICE)
    wait_ns, idle_ns = steps.wait_ns.mean(), steps.gpu_idle_ns.mean()
    matters = wait_ns > TRIFLE * (wait_ns + steps.step_ns.mean())
    if not matters or idle_ns >= MOSTLY * wait_ns:
        return None
    return Finding(
        f"Training waits {duration(wait_ns)} for a batch, but its CUDA stream has no work for only "
        f"{duration(idle_ns)} of it: the GPU still computes the step before.",
        [Do("leave the loader as it is", "these waits cost nothing")],
    )


@rule("idle GPU", source="NVML's utilization (any kernel running) in the ideal arm")
def idle_gpu(c: Context) -> Finding | None:
    """Loading is not the limit, and the GPU is idle all the same.

    Shown by kernels that run for under 70% of the time with ideal loading.
    Excluded by 5% of the time that may be lost to loading.
    """
    speedup = c.gap.steady_speedup
    if speedup is None:
        raise Skip(NO_IDEAL)
    busy = [
        (each.ideal.mean, each.subject)
        for each in quantities(c.run, c.ideal)
        if each.name == "kernel_busy_percent" and each.ideal is not None
    ]
    if not busy:
        raise Skip("no GPU was read")
    least, gpu = min(busy)
    if 1 - 1 / speedup.bounds[1] >= MATTERS or least >= GPU_BUSY_PERCENT:
        return None
    lines = step_lines(c.run).place  # the longest comes first
    because = (
        "torch.profiler or Nsight Systems shows whether it is small kernels, which larger batches, "
        "torch.compile and CUDA graphs help, or .item() and print in each step"
    )
    return Finding(
        f"Loading is not the limit: even with ideal loading {gpu} is idle "
        f"{share(1 - least / 100)} of the time.",
        [Do("profile the step, not the loader", because, next(iter(lines.tolist()), None))],
    )
