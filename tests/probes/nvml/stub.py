"""A driver's library of our own, which the real nvidia-ml-py asks in the driver's place."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("stub.c")
NAME = "libnvidia-ml.so.1"
"""What nvidia-ml-py looks for."""


def compiled(folder: Path) -> Path:
    """The library, compiled into `folder`."""
    path = folder / NAME
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", SOURCE, "-o", path], check=True)  # noqa: S607 - whichever compiler there is
    return path


class DeviceFields(ctypes.Structure):
    """`device` of stub.c."""

    _fields_ = (
        ("name", ctypes.c_char * 96),
        ("uuid", ctypes.c_char * 96),
        *((name, ctypes.c_uint) for name in ("mig_mode", "gpm", "pid", "kernel_busy")),
        *((name, ctypes.c_uint) for name in ("power_mw", "sm_mhz", "receive_kb", "transmit_kb")),
        *((name, ctypes.c_ulonglong) for name in ("memory_used", "reasons")),
        ("counted", ctypes.c_double * 512),
    )


class Failure(ctypes.Structure):
    """`failure` of stub.c."""

    _fields_ = (("function", ctypes.c_char * 64), ("device", ctypes.c_int), ("code", ctypes.c_int))


class Call(ctypes.Structure):
    """`call` of stub.c."""

    _fields_ = (("function", ctypes.c_char * 64), ("device", ctypes.c_int))


class Driver:
    """What the stub's driver has and does; by default it has no GPU, and nothing fails."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.devices = (DeviceFields * 16).in_dll(library, "devices")
        ctypes.memset(self.devices, 0, ctypes.sizeof(self.devices))
        for name in ("device_count", "failure_count", "call_count", "starts", "live_samples"):
            self._set(name, 0)

    def add(self, name: str = "NVIDIA A100-SXM4-80GB", uuid: str = "", **fields: Any) -> Any:
        """A further GPU: its fields, to be changed."""
        number = self.get("device_count")
        device = self.devices[number]
        device.name, device.uuid = name.encode(), (uuid or f"GPU-{number}abc").encode()
        for field, value in fields.items():
            setattr(device, field, value)
        self._set("device_count", number + 1)
        return device

    def fail(self, function: str, code: int, device: int = -1) -> None:
        """Let `function`, "*" for all, return `code` when asked of `device`, -1 for any."""
        count = self.get("failure_count")
        failures = (Failure * 64).in_dll(self.library, "failures")
        failures[count] = Failure(function.encode(), device, code)
        self._set("failure_count", count + 1)

    @property
    def gpus(self) -> int:
        """How many devices it has."""
        return self.get("device_count")

    def heal(self) -> None:
        """Nothing fails any more."""
        self._set("failure_count", 0)

    def calls(self, function: str) -> list[int]:
        """The devices that `function` was asked of, in order."""
        calls = (Call * 4096).in_dll(self.library, "calls")
        made = calls[: self.get("call_count")]
        return [call.device for call in made if call.function == function.encode()]

    def get(self, name: str) -> int:
        """The stub's variable `name`."""
        return ctypes.c_int.in_dll(self.library, name).value

    def _set(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self.library, name).value = value
