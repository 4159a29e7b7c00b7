"""Recorded runs: README.md says what each is of, and what is found in it."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from loadeval import Run, RunLogError, diagnose, read_run

FOLDER = Path(__file__).parent
TABLE = FOLDER / "README.md"
HANGS = FOLDER / "hangs"
HANG = re.compile(r"^\| `(\w+)` \| ([^|]+) \|$", re.MULTILINE)
ROW = re.compile(r"^\| `([^`]+)` \| (.+) \| (.+) \|$", re.MULTILINE)


def rows_of(text: str) -> dict[str, tuple[str, str]]:
    """The program of each recording, and what is found in it, as the table has them."""
    return {name: (program, found) for name, program, found in ROW.findall(text)}


def logs_of(name: str, folder: Path) -> list[Path]:
    """The logs of a recording, unpacked into `folder`: one, or those of a folder by name."""
    packed = sorted((FOLDER / name).glob("*.jsonl.gz")) or [FOLDER / f"{name}.jsonl.gz"]
    logs = []
    for path in packed:
        logs.append(folder / path.name.removesuffix(".gz"))
        logs[-1].write_bytes(gzip.decompress(path.read_bytes()))
    return logs


def found_in(name: str, folder: Path) -> str:
    """What is found in a recording, as the table has it; its logs are unpacked into `folder`."""
    logs = logs_of(name, folder)
    try:
        runs = {log.stem: read_run(log) for log in logs}
    except RunLogError:
        return "not read"
    if runs.keys() == {"log", "replay"}:
        return _found(runs["log"], runs["replay"])
    if len(runs) == 1:
        return _found(*runs.values())
    if runs.keys() == {"rank0", "rank0-validation"}:
        return _found(runs["rank0"], validation=runs["rank0-validation"])
    return "; ".join(f"{log}: {_found(run)}" for log, run in runs.items())


def _found(real: Run, ideal: Run | None = None, **others: Run) -> str:
    found = [finding.rule for finding in diagnose(real, ideal, **others).findings]
    return ", ".join(found) or "nothing"


def hang_rows() -> dict[str, str]:
    """Of each planted hang, why no batch comes and where."""
    return dict(HANG.findall(TABLE.read_text(encoding="utf-8")))
