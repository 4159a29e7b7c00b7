"""What the device tells: batches it cannot copy quickly, waits that it does not feel, idleness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import NO_IDEAL, NotMeasured
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.headroom import hidden_waits
from loadeval.analysis.summary import gpu_idle_ns
from loadeval.analysis.verdict import MODERATE_SHARE, percent
from loadeval.runlog.model import UNKNOWN

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case

NO_DEVICE = NotMeasured("no device's clock was read: there was no CUDA device in use")
BUSY = "kernel_busy_percent"
IDLE_UNDER = 70.0
"""Percent of the time with free loading, under which the step itself keeps the device waiting."""


def unpinned(case: Case) -> Answer:
    """Batches lie in memory that the device cannot read by itself."""
    if not (case.real.steps.gpu_idle_ns != UNKNOWN).any():
        return NO_DEVICE
    pinned = case.loader.pinned
    if pinned is None:
        return NotMeasured("whether the loader pins its batches is not known")
    if pinned or str(case.loader.device or "cpu").startswith(("cuda", "gpu")):
        return None
    nbytes = case.summary.bytes_per_batch
    return Finding(
        rule="unpinned memory",
        severity="low",
        sentence="Batches go to a CUDA device from memory that is not pinned.",
        evidence=(
            Fact("batches that are not pinned", case.real.batches, "batches"),
            *(() if nbytes is None else (Fact("size of a batch", nbytes, "bytes"),)),
        ),
        advice=(
            "Pass pin_memory=True and copy with .to(device, non_blocking=True): the copy then "
            "goes on beside the step."
        ),
        confidence="possible",
        source="PyTorch's documentation of pinned memory and non_blocking copies",
    )


def waits_unfelt(case: Case) -> Answer:
    """Training waits, and its device has work meanwhile."""
    starved = gpu_idle_ns(case.real, "real")
    if starved is None:
        return NO_DEVICE
    told = hidden_waits(case.real)
    if not told:
        return None
    return Finding(
        rule="hidden wait",
        severity="low",
        sentence="Waits are hidden by GPU work: waiting while the GPU has work costs nothing.",
        evidence=(
            Fact("wait, mean", case.summary.wait_ns or 0.0, "ns"),
            Fact("GPU idle while waiting", starved, "ns"),
        ),
        advice="Leave the loader as it is on account of these waits: they cost nothing.",
        confidence="measured",
        source="CUDA events recorded around each wait",
        cost_share=0.0,
    )


def idle_device(case: Case) -> Answer:
    """Loading is not the limit, and the device is idle all the same."""
    found = case.headroom
    if found is None or found.lost_share is None:
        return NO_IDEAL
    levels = [
        (quantity.subject, quantity.ideal)
        for quantity in case.readings_named(BUSY)
        if quantity.ideal is not None
    ]
    if not levels:
        return NotMeasured("no GPU was read while batches were served for free")
    subject, level = min(levels, key=lambda one: one[1].mean)
    high = found.lost_share.value if found.lost_share.high is None else found.lost_share.high
    if high >= MODERATE_SHARE or level.mean >= IDLE_UNDER:
        return None
    return Finding(
        rule="look at the step",
        severity="moderate",
        sentence=(
            f"Loading is not the limit, and {subject} is idle for "
            f"{percent(1 - level.mean / 100)} of the time even when batches cost nothing."
        ),
        evidence=(
            Fact("any kernel ran, with free loading", level.mean / 100, "share"),
            Fact("time lost", found.lost_share.value, "share"),
        ),
        advice=(
            "Look at the training step: small kernels that are launched one by one (larger "
            "batches, torch.compile, CUDA graphs), .item() and print in each step, work on the CPU "
            "between steps. torch.profiler and Nsight Systems show which."
        ),
        confidence="likely",
        source="NVML's utilisation (any kernel ran) in the ideal arm",
    )
