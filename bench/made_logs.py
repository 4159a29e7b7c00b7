"""Lines of logs of trainings that never were, as docs/run-log.md describes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    Line = dict[str, Any]

NOT_KNOWN = (
    *("prefetch_depth", "batch_size", "pinned", "device", "length", "start_method", "dataset"),
    *("persistent_workers", "ready_batches", "sampler", "worker_init", "in_order", "made_by"),
)
"""What the headers do not tell of a loader."""


def header(
    name: str,
    mode: str = "log",
    backend: str = "a.Loader",
    created: str = "2026-11-21T10:00:00+00:00",
    environment: Mapping[str, Any] | None = None,
) -> Line:
    """The first line: a loader with eight workers."""
    loader = {"backend": backend, "adapter": "", "workers": 8, **dict.fromkeys(NOT_KNOWN)}
    return {
        "type": "header",
        "format": "loadeval-run",
        "version": 1,
        "run_id": name,
        "name": name,
        "mode": mode,
        "created": created,
        "unit": "images",
        "warmup": 1,
        "loader": loader,
        "settings": {},
        "environment": environment or {},
        "cache": None,
    }


def block(
    columns: Mapping[str, npt.NDArray[np.int64]],
    epoch: int,
    arm: str = "real",
    pair: int | None = None,
) -> Line:
    """Batches, of which `columns` has the rows."""
    lists = {name: rows.tolist() for name, rows in columns.items()}
    return {"type": "block", "epoch": epoch, "arm": arm, "pair": pair, **lists}


def epoch_end(epoch: int, request_ns: int, wait_ns: int) -> Line:
    """How an epoch ended: the loader had no more batches."""
    times = {"request_ns": request_ns, "wait_ns": wait_ns}
    return {"type": "epoch", "epoch": epoch, "cause": "exhausted", **times, "error": None}


def write_log(path: Path, lines: Iterable[Line]) -> None:
    """Write the lines, and one that says that the run ended by itself."""
    batches = 0
    with path.open("w", encoding="ascii") as file:
        for line in lines:
            batches += len(line.get("wait_ns", ())) if line["type"] == "block" else 0
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
        file.write(json.dumps({"type": "end", "batches": batches}) + "\n")
