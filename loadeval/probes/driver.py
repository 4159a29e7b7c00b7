"""NVIDIA's driver and the GPUs that it shows."""

from __future__ import annotations

from dataclasses import dataclass

import pynvml  # type: ignore[import-untyped]  # it ships no type information

NO_DRIVER = "no NVIDIA driver found"
MISMATCH = (
    "the driver in the kernel and its library are of different versions, as after an update: "
    "restart the machine, or load the driver anew"
)


@dataclass(frozen=True, slots=True)
class Driver:
    """What the driver says of itself and its GPUs.

    `missing` says why there is nothing, and `broken` that something must be done about it.
    `cuda` is the newest CUDA that it runs, as (major, minor); `gpm` tells of each GPU whether
    its performance counters can be read. None is not known.
    """

    version: str | None = None
    cuda: tuple[int, int] | None = None
    gpus: tuple[str, ...] = ()
    gpm: tuple[bool | None, ...] = ()
    missing: str | None = None
    broken: bool = False


def driver() -> Driver:
    """The driver of this machine, if there is one; never raises."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            return Driver(missing=MISMATCH, broken=True)
        absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        return Driver(missing=NO_DRIVER if error.value in absent else str(error))
    try:
        return _described()
    except pynvml.NVMLError as error:
        return Driver(missing=str(error))
    finally:
        pynvml.nvmlShutdown()


def _described() -> Driver:
    handles = [
        pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
    ]
    number = pynvml.nvmlSystemGetCudaDriverVersion()  # 12040 is 12.4
    return Driver(
        version=pynvml.nvmlSystemGetDriverVersion(),
        cuda=(number // 1000, number % 1000 // 10),
        gpus=tuple(map(pynvml.nvmlDeviceGetName, handles)),
        gpm=tuple(map(_has_gpm, handles)),
    )


def _has_gpm(handle: object) -> bool | None:
    try:
        return bool(pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    except pynvml.NVMLError as error:
        absent = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return False if error.value in absent else None
