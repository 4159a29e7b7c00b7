"""What was measured on a device, a JSON line each, written as it comes."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("results.jsonl")
"""The measurements of the last run on a device, which docs/gpu.md shows."""
RESULTS = "LOADEVAL_GPU_RESULTS"
"""The variable that names the file to append to."""
ERROR = "errors of tests"
"""Stands for a claim where a test raised something, and measured nothing more."""


@dataclass(frozen=True)
class Result:
    """One measurement for a claim; `case` says of what.

    `interval` is a 95% CI, where there is one. `held` is None where it could not be measured, and
    `measured` then says why.
    """

    claim: str
    case: str
    expected: str
    measured: str
    held: bool | None
    interval: tuple[float, float] | None = None
    device: str = ""
    driver: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""

    def line(self) -> str:
        """The result as JSON."""
        return json.dumps(asdict(self))


def read(path: Path) -> list[Result]:
    """The results in `path`, in order; none where there is no file.

    A line that a stop has cut off is left out.
    """
    if not path.exists():
        return []
    results = []
    for line in path.read_text().splitlines():
        try:
            values: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        interval = values.pop("interval", None)
        results.append(Result(**values, interval=None if interval is None else tuple(interval)))
    return results


def append(path: Path, result: Result) -> None:
    """Write `result`, and print it, at once."""
    with path.open("a") as file:
        file.write(result.line() + "\n")
    outcome = {True: "held", False: "DID NOT HOLD", None: "not measured"}[result.held]
    interval = "" if result.interval is None else " [{:.3g}, {:.3g}]".format(*result.interval)
    print(
        f"{outcome}: {result.claim} ({result.case}): expected {result.expected}, "
        f"measured {result.measured}{interval}",
        flush=True,
    )


@cache
def where() -> dict[str, Any]:
    """The device, its driver, the versions and the date."""
    import torch

    from bench.gpu.device import driver_version

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("numpy", "nvidia-ml-py", "transformers", "lightning", "accelerate", "timm"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "",
        "driver": driver_version(),
        "versions": versions,
        "date": time.strftime("%Y-%m-%d"),
    }
