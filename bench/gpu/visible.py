"""Which devices CUDA uses, and which the probe reads, for values of CUDA_VISIBLE_DEVICES.

    python -m bench.gpu.visible JSON

CUDA reads the variable once, when it begins. So each value of the list, null for none, has a fork
of this process, which has not asked the driver for anything. Each prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import torch

from loadeval.errors import ProbeError

# Which devices it reads in a fork shows in no output.
from loadeval.probes.gpu import GPUProbe, devices_used_by, used_devices


def read() -> dict[str, Any]:
    """The devices that the probe reads, and how it knows them, or why there are none."""
    probe = GPUProbe()
    try:
        probe.open()
    except ProbeError as error:
        return {"uuids": [], "subjects": [], "said": str(error)}
    by_process = bool(devices_used_by(os.getpid()))
    uuids = [device.uuid for device in used_devices()]
    subjects = list(probe.read())
    probe.close()
    return {"uuids": uuids, "subjects": subjects, "said": "by its process" if by_process else ""}


def used_by_cuda() -> list[torch.Tensor]:
    """A tensor on each device; torch's device_count asks NVML, and not CUDA."""
    count = torch._C._cuda_getDeviceCount()
    return [torch.zeros(1, device=f"cuda:{index}") for index in range(count)]


def look() -> dict[str, Any]:
    """What is read without a context and with one, and what CUDA uses, by their UUIDs."""
    without = read()
    held = used_by_cuda()
    uuids = [str(torch.cuda.get_device_properties(index).uuid) for index in range(len(held))]
    cuda = [f"GPU-{uuid.removeprefix('GPU-')}" for uuid in uuids]
    return {"cuda": cuda, "without": without, "with": read()}


def main() -> None:
    """Fork for each value."""
    values = json.loads(sys.argv[1])
    for value in values:
        if os.fork():
            continue
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if value is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = value
        try:
            seen = look()
        except BaseException:  # noqa: BLE001 - whatever it is belongs into the line
            seen = {"error": traceback.format_exc(limit=-3)}
        os.write(1, (json.dumps({"value": value, **seen}) + "\n").encode())
        os._exit(0)
    for _ in values:
        os.wait()


if __name__ == "__main__":
    main()
