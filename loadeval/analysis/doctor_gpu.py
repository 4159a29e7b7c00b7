"""Checks of NVIDIA's driver, and of what needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.doctor_check import Check
from loadeval.probes.machine import DALI, NVML

if TYPE_CHECKING:
    from loadeval.analysis.doctor_check import Plan
    from loadeval.probes.machine import Machine


def driver(machine: Machine, _: Plan) -> Check:
    """NVIDIA's driver and its GPUs."""
    found = machine.driver
    if found.missing is not None:
        return Check("NVIDIA driver", "change" if found.broken else "not measured", found.missing)
    names = [f"{found.gpus.count(name)} x {name}" for name in dict.fromkeys(found.gpus)]
    cuda = "" if found.cuda is None else ", CUDA up to {}.{}".format(*found.cuda)
    return Check("NVIDIA driver", "ok", f"{found.version}{cuda}: {', '.join(names) or 'no GPU'}")


def nvml(machine: Machine, _: Plan) -> Check:
    """The binding by which the driver is asked."""
    found = f"{NVML} {machine.packages.get(NVML, 'of unknown version')}"
    if machine.driver.missing is not None:
        return Check("NVML", "not measured", f"{found}, and no driver that answers")
    return Check("NVML", "ok", found)


def gpm(machine: Machine, _: Plan) -> Check:
    """The performance counters of the GPUs."""
    support = machine.driver.gpm
    if not support:
        return Check("GPM", "not measured", machine.driver.missing or "no GPU")
    if all(support):
        return Check("GPM", "ok", "the GPU's own counters can be read")
    if None in support:
        return Check("GPM", "not measured", "the driver does not tell whether it has it")
    return Check(
        "GPM", "ok", "not on each GPU, as before Hopper: utilisation is read more coarsely"
    )


def dali(machine: Machine, _: Plan) -> Check:
    """DALI, and whether the driver can run it."""
    found = {name: version for name, version in machine.packages.items() if name.startswith(DALI)}
    if not found:
        return Check("DALI", "ok", "not installed: only pipelines of DALI need it")
    told = ", ".join(f"{name} {version}" for name, version in found.items())
    needed = min(int(name.removeprefix(DALI)) // 10 for name in found)
    cuda = machine.driver.cuda
    if cuda is not None and needed > cuda[0]:
        return Check(
            "DALI",
            "change",
            f"{told} is for CUDA {needed}, and the driver runs CUDA up to {cuda[0]}.{cuda[1]}: "
            f"install {DALI}{cuda[0]}0, or a newer driver",
        )
    return Check("DALI", "ok", told)
