"""The files that are mutated: logs of each mode, metrics files, files of processes, DALI's."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from loadeval.data.folder import LoaderRecord, ProcessRecord
from loadeval.data.lines import Event, GpuIdle, Padding, Readings, encode
from loadeval.data.log import read_run
from tests.runs import DALI, DEMO, SPDL
from tests.runs.given import MS, save_metrics, write_run
from tests.runs.measured import record
from tests.runs.ranks import runs_of, train

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.data.lines import Line

PROCESS = "rank0.json"
"""The name of a process's file."""
MANY = 6
"""So many lines of readings, code and stages are enough."""
OF_DALI = {
    "mode": "log",
    "total_batches": 4,
    "total_time": 1.0,
    "avg_batch_time": 0.075,
    "min_batch_time": 0.0,
    "max_batch_time": 0.1,
    "batch_times": [0.1, 0.1, 0.0, 0.1],
    "cached_batches": 2,
    "cache_ready": False,
}


def seeds() -> dict[str, bytes]:
    """Their contents, by file names that tell what they are."""
    with TemporaryDirectory() as folder:
        return {path.name: path.read_bytes() for path in _written(Path(folder))}


def _written(folder: Path) -> list[Path]:
    logs = [
        record(folder / "log.jsonl", epochs=3, batches=8, probes=()),
        record(folder / "replay.jsonl", "replay", epochs=2, batches=6, probes=()),
        record(folder / "alternate.jsonl", "alternate", epochs=2, batches=120, probes=()),
    ]
    for path in logs:
        path.write_bytes(_the_same_everywhere(path.read_bytes()))
    logs[0].write_bytes(_with_machine(logs[0].read_bytes()))
    for path in (DEMO, DALI, SPDL):
        logs.append(folder / f"real-{path.name}")
        logs[-1].write_bytes(_shortened(path.read_bytes()))
    files = list(logs)
    for path in logs[:3]:
        files.append(path.with_suffix(".json"))
        save_metrics(read_run(path), files[-1])
    for mode in ("log", "replay"):
        files.append(folder / f"dali-{mode}.json")
        files[-1].write_text(json.dumps({**OF_DALI, "mode": mode}), encoding="utf-8")
    loaders = [
        LoaderRecord("log.jsonl", "training", "log", "a.Loader", "Photographs", True, 2, 14),
        LoaderRecord("replay.jsonl", "validation", "log", "a.Loader", None, False, 1, 0),
    ]
    ProcessRecord("rank0", 0, 7, "node0", True, tuple(loaders)).save(folder)
    return [*files, folder / PROCESS, *job(folder)]


def job(folder: Path) -> list[Path]:
    """The logs of three ranks, of which the second makes the others wait."""
    waits_ns = np.full((3, 24), MS)
    waits_ns[1, ::4] += 30 * MS
    logs = []
    for rank, run in enumerate(runs_of(train(waits_ns), epochs=(12, 12))):
        logs.append(folder / f"rank{rank}.jsonl")
        write_run(run, logs[-1])
    return logs


def _the_same_everywhere(log: bytes) -> bytes:
    """The log with a header that does not tell when and where it was made."""
    header, rest = log.split(b"\n", 1)
    content = json.loads(header)
    content |= {"run_id": "1a2b", "created": "2026-11-21T10:00:00+00:00"}
    content["environment"] = {"host": "node0", "cpus_usable": 4, "packages": {"numpy": "2.0"}}
    return json.dumps(content, separators=(",", ":")).encode() + b"\n" + rest


def _with_machine(log: bytes) -> bytes:
    """The log with readings of the host and a GPU, an event, and how long the GPU idled."""
    header, rest = log.split(b"\n", 1)

    def level(probe: str, subject: str, **values: npt.NDArray[np.float64]) -> Readings:
        time_ns = [number * 100 * MS for number in range(1, 9)]
        columns = {name: column.tolist() for name, column in values.items()}
        return Readings(probe, subject, time_ns, columns)

    cpu = np.linspace(0.5, 1.5, 8)
    lines: list[Line] = [
        level("host", "process", cpu_cores=cpu, read_bytes_per_s=cpu * 1e6),
        level("host", "workers", cpu_cores=cpu, alive_workers=cpu + 1),
        level("gpu", "GPU 0", kernel_busy_percent=cpu * 50),
        level("threads", "python lock", lock_wait_ns=cpu * MS),
        Readings("gpu", "", [], {}, "no NVIDIA driver found"),
        GpuIdle(0, 0, [MS] * 8, [MS] * 8),
        Padding(0, [0, 3], [40, 80], [8, 9], [10, 20], [9, 19]),
        Event(150 * MS, "the step changes its batch"),
    ]
    return b"".join([header, b"\n", *map(encode, lines), rest])


def _shortened(log: bytes) -> bytes:
    """The log without most of the lines of which a run has many."""
    seen: Counter[bytes] = Counter()
    kept = []
    for line in log.splitlines(keepends=True):
        kind = line.split(b'"', 4)[3]
        seen[kind] += 1
        few = kind not in {b"readings", b"code", b"stages", b"operator", b"worker_start"}
        if few or seen[kind] <= MANY:
            kept.append(line)
    return b"".join(kept)
