"""The recorded runs, each under its name, laid out in a folder where no path of theirs differs.

A run is a log, NAME.jsonl or NAME.jsonl.gz in `tests/runs` or `tests/recorded`. Or it is a folder
NAME in `tests/recorded`. One of a job's ranks, or of `loadeval run`, has files named after ranks,
and is given to commands as a folder. Any other is of logs that commands get together, in the order
of their names: real and ideal loading, a run before and after a change, backends.
"""

from __future__ import annotations

import gzip
from pathlib import Path

HERE = Path(__file__).parent
RUN = "run"
"""What the only log, or the folder, is called where it is laid out."""
TOGETHER = {"backends": ("blur", "dali", "spdl")}
"""Logs of `tests/runs` that are compared."""


def _names(path: Path) -> tuple[str, str]:
    stem, _, rest = path.name.partition(".")
    return stem, f"{stem}.{rest.removesuffix('.gz')}"


def _files_of_runs() -> dict[str, list[Path]]:
    logs: dict[str, list[Path]] = {}
    for path in sorted((*HERE.glob("runs/*"), *HERE.glob("recorded/*"))):
        if ".jsonl" in path.suffixes:
            logs[_names(path)[0]] = [path]
        elif path.parent.name == "recorded" and any(path.glob("*.jsonl.gz")):
            logs[path.name] = sorted(path.iterdir())
    for name, of_runs in TOGETHER.items():
        logs[name] = [path for of_run in of_runs for path in logs[of_run]]
    return logs


RECORDED = _files_of_runs()
"""The files of each run, by its name."""


def laid_out(name: str, folder: Path) -> list[str]:
    """Write the files of the run `name` into `folder`; returns what commands get there."""
    files = RECORDED[name]
    is_folder = any(path.name.startswith("rank") for path in files)
    if is_folder:
        (folder / RUN).mkdir()
    given = []
    for path in files:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        file = f"{RUN}.jsonl" if len(files) == 1 else _names(path)[1]
        (folder / RUN / file if is_folder else folder / file).write_bytes(content)
        given.append(file)
    return [RUN] if is_folder else given
