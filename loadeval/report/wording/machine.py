"""What a machine's devices need, and how busy it keeps them, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.machine import Basis, Lift, Need, NotKnown
from loadeval.analysis.predict.prediction import Limit
from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    cpus,
    duration,
    share,
    short_name,
    size,
)
from loadeval.report.wording.whatif import LIMITS, ranged

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.machine import Demand, Lifted, MachinePlan
    from loadeval.analysis.predict.prediction import Range

TITLE = "Plan"
NEEDS = {
    Need.SAMPLES: "samples/s",
    Need.CPUS: "CPUs for loading",
    Need.FETCH_CPUS: "  fetch and collate",
    Need.PICKLE_CPUS: "  pickle",
    Need.TRAINING_CPUS: "CPUs of training",
    Need.RECEIVE_CPUS: "  receive",
    Need.WORKERS: "workers, each",
    Need.MEMORY: "memory",
    Need.SHARED_MEMORY: "/dev/shm",  # noqa: S108 - the name of a row
    Need.PAGE_CACHE: "page cache",
    Need.READ_FIRST: "read, first epoch",
    Need.READ_LATER: "read, later epochs",
    Need.FILES: "files opened/s",
}
BASES = {
    Basis.STEP: "the step",
    Basis.CPU_TIME: "CPU time",
    Basis.PASSING: "passing",
    Basis.REPLAY: "replay",
    Basis.MEMORY_READ: "memory read",
    Basis.BATCH_SIZE: "queued batches",
    Basis.DATA_GIVEN: "as given",
    Basis.BYTES_READ: "bytes read",
    Basis.FITS: "fits in memory",
    Basis.FILES_COUNTED: "files counted",
}
UNKNOWN = {
    NotKnown.NO_BYTES_READ: "what workers read was not seen; record with workers, on Linux",
    NotKnown.NO_FILES_COUNTED: "no file was seen that Python code of workers opened",
    NotKnown.NO_MEMORY_READ: "memory was not read; record for longer, with the probes",
    NotKnown.NO_DATA_BYTES: "pass the size of the data set, as --data-bytes 150GB",
    NotKnown.NO_SAMPLES: "the samples in a batch are not known; record with samples=",
    NotKnown.NO_WORKERS: "the run had no workers",
}
IN_BYTES = {Need.MEMORY, Need.SHARED_MEMORY, Need.PAGE_CACHE}
BYTES_PER_S = {Need.READ_FIRST, Need.READ_LATER}
IN_CPUS = {
    Need.CPUS,
    Need.FETCH_CPUS,
    Need.PICKLE_CPUS,
    Need.TRAINING_CPUS,
    Need.RECEIVE_CPUS,
}
HEAD = ("", "needed", "each device", "there", "rests on")
LIFT_HEAD = ("what would lift it, by itself", "utilisation")
CPUS_HEAD = ("CPUs for each device", "utilisation")
NEEDS_CAPTION = "What devices that always compute need, and what there is"
LIFTS_CAPTION = "What would lift the utilisation, each by itself"
CURVE_CAPTION = "Utilisation against CPUs for each device"
FIGURE_CAPTION = (
    "Predicted accelerator utilisation, with the range that it is expected in, against the CPUs "
    "that there are for each device. The dotted line is at those of the machine."
)
MARK = "the machine"
KEEPS_UP = "loading keeps up with it"
HELD_UP = "it is held up by the {limit}"
UNLIMITED = (
    "Storage is assumed to be fast enough: {read} for devices that always compute. Its bandwidth "
    "is not known; pass it, as --read 2GB/s."
)
ALL_ONE_CAN = "Nothing here would lift it by 2 points."
RANGES = (
    "Needs are of devices that always compute. Utilisation is predicted, with the range that it is "
    "expected in: each device's batches are replayed on its share of the CPUs."
)


def headline(plan: MachinePlan) -> str:
    """How busy the devices are, and what keeps them from more."""
    machine = plan.machine
    devices = counted(machine.devices, "device", "devices")
    batch = "" if plan.batch_size is None else f" for {plan.batch_size:,} samples"
    text = (
        f"{devices} on {cpus(machine.cpus)}, with a step of {duration(plan.step_ns)}{batch}: busy "
        f"{ranged(plan.utilisation, share)} of the time (accelerator utilisation); "
    )
    is_step = plan.limit is Limit.STEP
    text += KEEPS_UP if is_step else HELD_UP.format(limit=LIMITS[plan.limit])
    if plan.first_epoch != plan.utilisation:
        text += f". In the first epoch: {ranged(plan.first_epoch, share)}"
    return text


def caution(plan: MachinePlan) -> str:
    """What is taken for granted of the storage; "" where nothing is."""
    read = plan.unlimited_read
    return "" if read is None else UNLIMITED.format(read=f"{size(read)}/s")


def keys(plan: MachinePlan) -> list[tuple[str, str, str]]:
    """The few figures to read first: label, value, and what belongs to it."""
    utilisations = [("accelerator utilisation", *_busy(plan.utilisation))]
    if plan.first_epoch != plan.utilisation:
        utilisations.append(("in the first epoch", *_busy(plan.first_epoch)))
    return [
        *utilisations,
        ("limit", LIMITS[plan.limit], ""),
        ("workers", f"{plan.num_workers}", "for each device"),
    ]


def _busy(utilisation: Range) -> tuple[str, str]:
    low, high = share(utilisation.low), share(utilisation.high)
    return share(utilisation.value), f"range [{low}, {high}]"


def demand_row(demand: Demand) -> tuple[str, ...]:
    """A need: its name, how much for all and for one device, what there is, what it rests on."""
    text, amount = _text(demand.need), demand.amount
    there = "" if demand.there is None else text(demand.there)
    if amount is None:
        return (NEEDS[demand.need], NOT_MEASURED, "", there, "")
    needed = text(amount.value) if amount.low == amount.high else ranged(amount, text)
    each = "" if demand.for_device is None else text(demand.for_device)
    return (NEEDS[demand.need], needed, each, there, BASES[demand.basis] if demand.basis else "")


def why_not_known(demand: Demand) -> str:
    """Why a need is not known, and what would tell it."""
    return f"{NEEDS[demand.need].strip()}: {UNKNOWN[demand.why]}" if demand.why else ""


def lift_row(lifted: Lifted) -> tuple[str, str]:
    """A change, and how busy devices would be with it."""
    how = {
        Lift.CPUS: cpus(lifted.amount),
        Lift.FASTER: f"{short_name(lifted.part)} {lifted.amount:g} times as fast",
        Lift.READ: f"storage that gives {size(lifted.amount)}/s",
        Lift.MEMORY: f"{size(lifted.amount)} of memory: the data set stays there",
    }[lifted.lift]
    return how, ranged(lifted.utilisation, share)


def _text(need: Need) -> Callable[[float], str]:
    if need in IN_BYTES:
        return size
    if need in BYTES_PER_S:
        return lambda per_s: f"{size(per_s)}/s"
    return _cpus if need in IN_CPUS else lambda value: f"{value:,.0f}"


def _cpus(count: float) -> str:
    return f"{count:.2f}" if count < 1 else f"{count:.1f}"
