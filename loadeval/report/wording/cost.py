"""Sentences about what loading costs, in device-hours and money."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.cost import PricedTime
from loadeval.report.formatting import NOT_MEASURED, counted, estimated, number

if TYPE_CHECKING:
    from loadeval.analysis.cost import Cost

BASES = {
    PricedTime.LOST: "Lost to data loading in a day of training",
    PricedTime.WAITED: "Waited for batches in a day of training, contention not included",
}
ONE_DEVICE = "the log names no other ranks"


def cost_sentence(cost: Cost) -> str:
    """What is lost in a day, and on how many devices."""
    devices = counted(cost.devices, "device", "devices")
    if not cost.devices_known:
        devices = f"{devices}: {ONE_DEVICE}"
    if cost.device_hours is None:
        return f"{BASES[cost.basis]}: {NOT_MEASURED} ({devices})."
    return (
        f"{BASES[cost.basis]}: {estimated(cost.device_hours, number)} device-hours, "
        f"{estimated(cost.per_day, number)} at {cost.price:g} for each ({devices})."
    )
