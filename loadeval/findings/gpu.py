"""What the GPU tells: idle with ideal loading too, hidden waits, memory that is not pinned."""

from __future__ import annotations

from loadeval.data.columns import UNKNOWN
from loadeval.estimate.metrics import quantities
from loadeval.findings import GPU_BUSY_PERCENT, MATTERS, MOSTLY, TRIFLE
from loadeval.findings.engine import Context, Do, Finding, Set, Skip, rule
from loadeval.inside.operators import step_lines
from loadeval.words import duration, share


@rule("unpinned memory", source="PyTorch's documentation of pinned memory and non_blocking copies")
def unpinned_memory(c: Context) -> Finding | None:
    """Batches lie in memory that the GPU cannot read by itself.

    Shown by CUDA in use, and a loader that does not pin.
    Excluded by batches that are on the device already.
    """
    if not (c.run.steps.gpu_idle_ns != UNKNOWN).any():
        raise Skip("there is no CUDA device")
    if c.loader.pinned is None:
        raise Skip("whether batches are pinned is not known")
    if c.loader.pinned or str(c.loader.device or "cpu").startswith(("cuda", "gpu")):
        return None
    name = c.setting("pin_memory") or "pin_memory"
    because = "and copy with .to(device, non_blocking=True), which nothing then waits for"
    return Finding(
        "Batches are copied to the GPU from memory that is not pinned.",
        [Set(name, False, True, because)],
        sure=False,
    )


@rule("hidden waits", source="CUDA events recorded around each wait")
def hidden_waits(c: Context) -> Finding | None:
    """Training waits, and its GPU has work meanwhile.

    Shown by a GPU that was idle for under half of the waiting.
    Excluded by waiting for under 1% of the time.
    """
    steps = c.batches.take(c.batches.gpu_idle_ns != UNKNOWN)
    if not len(steps):
        raise Skip("there is no CUDA device")
    wait_ns, idle_ns = float(steps.wait_ns.mean()), float(steps.gpu_idle_ns.mean())
    matters = wait_ns > TRIFLE * (wait_ns + float(steps.step_ns.mean()))
    if not matters or idle_ns >= MOSTLY * wait_ns:
        return None
    return Finding(
        f"Training waits {duration(wait_ns)} for a batch, but the GPU is idle for only "
        f"{duration(idle_ns)} of it: it has work from the step before.",
        [Do("leave the loader as it is", "these waits cost nothing")],
    )


@rule("idle GPU", source="NVML's utilization (any kernel running) in the ideal arm")
def idle_gpu(c: Context) -> Finding | None:
    """Loading is not the limit, and the GPU is idle all the same.

    Shown by kernels that run for under 70% of the time with ideal loading.
    Excluded by 5% of the time that may be lost to loading.
    """
    c.needs_ideal()
    busy = [
        (each.ideal.mean, each.subject)
        for each in quantities(c.run, c.ideal)
        if each.name == "kernel_busy_percent" and each.ideal is not None
    ]
    if not busy:
        raise Skip("no GPU was read")
    least, gpu = min(busy)
    speedup = c.gap.steady_speedup
    if speedup is None or 1 - 1 / speedup.bounds[1] >= MATTERS or least >= GPU_BUSY_PERCENT:
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
