"""The recorded runs, each under its name, laid out in a folder where no path of theirs differs.

A run is a log NAME.jsonl.gz, or a folder NAME. A folder of a job's ranks, or of `loadeval run`, is
given to commands as a folder. Any other is of logs that commands get together, in the order of
their names: real and ideal loading. So are runs before and after a change, and backends.
"""

from __future__ import annotations

import gzip
from pathlib import Path

HERE = Path(__file__).parent
RUN = "run"
"""What the only log, or the folder, is called where it is laid out."""
TOGETHER = {
    "before-and-after": ("slow-transform", "slow-transform-healthy"),
    "backends": ("before-blur", "before-dali", "before-spdl"),
}
"""Logs that are compared, each of which is a run by itself too."""


def _name(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def _files_of_runs() -> dict[str, list[Path]]:
    packed = [path for place in ("runs", "recorded") for path in HERE.glob(f"{place}/*.jsonl.gz")]
    logs = {_name(path): [path] for path in packed}
    for path in HERE.glob("recorded/*/*.jsonl.gz"):
        logs.setdefault(path.parent.name, []).append(path)
        logs[path.parent.name].sort()
    for name, of_runs in TOGETHER.items():
        logs[name] = [path for of_run in of_runs for path in logs[of_run]]
    return {name: logs[name] for name in sorted(logs)}


RECORDED = _files_of_runs()
"""The files of each run, by its name."""


def laid_out(name: str, folder: Path) -> list[str]:
    """Write the files of the run `name` into `folder`; returns what commands get there."""
    files = RECORDED[name]
    is_folder = any(path.name.startswith("rank") for path in files)
    place = folder / RUN if is_folder else folder
    place.mkdir(exist_ok=True)
    given = [f"{RUN if len(files) == 1 else _name(path)}.jsonl" for path in files]
    for path, log in zip(files, given, strict=True):
        (place / log).write_bytes(gzip.decompress(path.read_bytes()))
    return [RUN] if is_folder else given
