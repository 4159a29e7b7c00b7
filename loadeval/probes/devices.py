"""Which GPUs, or parts of one, this process computes on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pynvml  # type: ignore[import-untyped]  # it ships no type information
from pynvml import NVMLError

from loadeval.errors import ProbeError

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERED_BY_SPEED = (
    "it is not known which GPUs CUDA_VISIBLE_DEVICES={visible!r} stands for: the GPUs here differ, "
    "and CUDA numbers them by their speed; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or give their UUIDs"
)


@dataclass(frozen=True, slots=True)
class GPU:
    """A whole GPU; `index` is NVML's, which counts in the order of the PCI bus."""

    index: int
    handle: Any
    name: str
    uuid: str


@dataclass(frozen=True, slots=True)
class Device:
    """What CUDA computes on: a GPU, or one of the instances into which MIG has divided it."""

    subject: str
    handle: Any
    uuid: str
    gpu: GPU
    gpu_instance: int | None = None


def used_devices() -> list[Device]:
    """The devices on which this process has a context; all that it may use where none is known.

    None is known before CUDA begins, and in a container whose process ids are its own.
    Raises ProbeError when there is no device, or it is not known which ones may be used.
    """
    devices = _all_devices()
    used = [device for device in devices if _has_our_context(device)]
    return used or _visible(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _all_devices() -> list[Device]:
    try:
        count = pynvml.nvmlDeviceGetCount()
    except NVMLError as error:
        raise ProbeError(f"the GPUs cannot be counted: {error}") from None
    refusals: list[str] = []
    devices = [device for index in range(count) for device in _devices_at(index, refusals)]
    if not devices:
        raise ProbeError("; ".join(refusals) or "no NVIDIA GPU found")
    return devices


def _devices_at(index: int, refusals: list[str]) -> list[Device]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
        return list(_devices_of(GPU(index, handle, name, uuid)))
    except NVMLError as error:  # lost, or of another container; the others may be ours
        refusals.append(f"GPU {index} cannot be asked: {error}")
        return []


def _devices_of(gpu: GPU) -> Iterator[Device]:
    if not _is_divided(gpu):
        yield Device(f"GPU {gpu.index} ({gpu.name})", gpu.handle, gpu.uuid, gpu)
        return
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)):
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, number)
        except pynvml.NVMLError_NotFound:
            continue
        yield Device(
            f"GPU {gpu.index} MIG {number} ({pynvml.nvmlDeviceGetName(handle)})",
            handle,
            pynvml.nvmlDeviceGetUUID(handle),
            gpu,
            pynvml.nvmlDeviceGetGpuInstanceId(handle),
        )


def _is_divided(gpu: GPU) -> bool:
    try:
        mode, _ = pynvml.nvmlDeviceGetMigMode(gpu.handle)
    except pynvml.NVMLError_NotSupported:
        return False
    return bool(mode == pynvml.NVML_DEVICE_MIG_ENABLE)


def _has_our_context(device: Device) -> bool:
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(device.handle)
    except NVMLError:
        return False
    return any(process.pid == os.getpid() for process in processes)


def _visible(devices: list[Device], visible: str | None) -> list[Device]:
    """Those that CUDA_VISIBLE_DEVICES names; as CUDA does, up to an entry that names none."""
    if visible is None:
        return devices
    found: dict[str, Device] = {}
    for entry in visible.split(","):
        named = _named(devices, entry.strip(), visible)
        if not named:
            break
        found |= {device.uuid: device for device in named}
    if not found:
        value = repr(visible) if visible else "empty"
        raise ProbeError(f"no GPU is visible: CUDA_VISIBLE_DEVICES is {value}")
    return list(found.values())


def _named(devices: list[Device], entry: str, visible: str) -> list[Device]:
    if entry.isdecimal():
        by_bus = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        if not by_bus and len({device.gpu.name for device in devices}) > 1:
            raise ProbeError(NUMBERED_BY_SPEED.format(visible=visible))
        return [device for device in devices if device.gpu.index == int(entry)]
    uuids = {uuid for device in devices for uuid in (device.uuid, device.gpu.uuid)}
    matching = [uuid for uuid in uuids if uuid.startswith(entry)]
    if len(matching) != 1:
        return []
    return [device for device in devices if matching[0] in (device.uuid, device.gpu.uuid)]
