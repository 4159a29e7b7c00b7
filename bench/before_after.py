"""What loadeval said of the recorded runs before a redesign, beside what it says of them now.

Both are given each recorded run by `compare --json` and `whatif --json`. What the earlier one says
is put under the keys of today, and figures that both have are compared. Prints those that differ,
and where one says something and the other nothing. Exit status 1 where the earlier one reads a run
and this one does not.
"""

import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.judge import JudgeError, environment, printed
from bench.tables import parser_of
from tests.recordings import RECORDED, laid_out

BEFORE = "dcf92e7"
"""The last commit before the redesign."""
COMMANDS = ("compare", "whatif")
ALIKE = 1e-9
NOTHING = 1e-12
OF_GAP = {
    **{f"{name}_ns": name for name in ("real", "ideal", "real_wait", "ideal_wait", "loader_only")},
    **{f"{name}_ns": name for name in ("lost", "waiting", "contention", "gpu_idle")},
    "epoch_starts_ns": "starts",
    "iteration_ns": "real",
    "wait_ns": "real_wait",
    "step_ns": "real_step",
}
"""What figures of the gap were called, also those of a run that logged."""
AS_NUMBERS = ("gpu_idle", "samples_per_batch", "pairs", "real_batches", "ideal_batches")
"""Figures that have no interval."""
NAMED_BY = ("rule", "name", "subject", "stage", "num_workers", "place", "probe", "index", "worker")
"""Items of a list that have one of these are known by it, wherever they stand."""


def tree_before(folder: Path) -> str:
    """Where Python finds loadeval as it was; it has the libraries of this one."""
    archive = folder / "before.zip"
    printed("git", "archive", "--output", str(archive), BEFORE)
    shutil.unpack_archive(archive, folder)
    return os.pathsep.join((str(folder), str(folder / "adapters")))


def said(path: str, name: str) -> dict[str, Any]:
    """What each command says of the run `name`, its JSON or its error, with this PYTHONPATH."""
    outcomes: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        runs = laid_out(name, Path(folder))
        for command in COMMANDS:
            words = (sys.executable, "-m", "loadeval", command, *runs, "--json")
            try:
                outcomes[command] = json.loads(printed(*words, cwd=Path(folder), PYTHONPATH=path))
            except JudgeError as error:
                outcomes[command] = str(error)
    return outcomes


def as_now(before: dict[str, Any]) -> dict[str, Any]:
    """What was said before under the keys that it has now, as far as it has any."""
    if "predicted" in before:
        settings = ("num_workers", "prefetch_factor", "in_order", "cpus", "batch_size")
        curve = [
            {**each, "settings": {name: each.pop(name) for name in settings}}
            for each in before["predicted"]
        ]
        return {**before, "predicted": curve}
    if "backends" in before:
        return {"backends": {each["name"]: result_as_now(each) for each in before["backends"]}}
    result = result_as_now(before)
    if "baseline" in before:
        return {"now": result, "before_after": before["baseline"]}
    return {"result": result, "job": before["job"]} if "job" in before else result


def result_as_now(before: dict[str, Any]) -> dict[str, Any]:
    """The same of one run, or of real and ideal loading."""
    gap = {}
    for name, value in {**before.get("summary", {}), **before}.items():
        known = OF_GAP.get(name, name)
        is_number = isinstance(value, int | float) and known not in AS_NUMBERS
        gap[known] = {"value": value} if is_number else value
    parts = {name: before.get(name) for name in ("stages", "operators", "threads", "readings")}
    # Of one run that did not alternate there was no list.
    parts = {name: part[0] if isinstance(part, list) else part for name, part in parts.items()}
    findings = [
        {"rule": each["rule"], "cost": each["cost_share"]}
        for each in before.get("diagnosis", {}).get("findings", ())
    ]
    return {
        **parts,
        "gap": gap,
        "metrics": parts["readings"],
        "diagnosis": {"findings": findings},
    }


def figures(content: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Each number, with its keys."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from figures(value, f"{path}.{key}" if path else key)
    elif isinstance(content, list):
        names = list(map(name_of, content))
        are_names = None not in names and len(set(names)) == len(names)
        for place, value in enumerate(content):
            yield from figures(value, f"{path}[{names[place] if are_names else place}]")
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield path, content


def name_of(item: Any) -> str | None:
    """What an item of a list is known by."""
    if not isinstance(item, dict):
        return None
    item = {**item, **(item["settings"] if isinstance(item.get("settings"), dict) else {})}
    names = [str(item[key]) for key in NAMED_BY if isinstance(item.get(key), str | int)]
    return ", ".join(names) or None


def compared(name: str, before: Any, now: Any) -> tuple[int, list[str]]:
    """How many figures both have; and a line for each that differs."""
    if isinstance(before, str) or isinstance(now, str):
        shown = (each if isinstance(each, str) else "it is read" for each in (before, now))
        return 0, [] if before == now else [f"{name}: {', now '.join(shown)}"]
    earlier, later = dict(figures(as_now(before))), dict(figures(now))
    both = [path for path in earlier if path in later]
    lines = [
        f"{name} {path}: {earlier[path]:.12g}, now {later[path]:.12g}"
        for path in both
        if not math.isclose(earlier[path], later[path], rel_tol=ALIKE, abs_tol=NOTHING)
    ]
    return len(both), lines


def main() -> int:
    names = parser_of(__doc__, RECORDED).parse_args().only or list(RECORDED)
    with TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as threads:
        paths = tree_before(Path(folder)), environment()["PYTHONPATH"]
        before, now = (list(threads.map(partial(said, path), names)) for path in paths)
    count, differing, lost = 0, 0, []
    for name, earlier, later in zip(names, before, now, strict=True):
        for command in COMMANDS:
            alike, lines = compared(f"{command} {name}", earlier[command], later[command])
            count += alike
            differing += len(lines)
            print("".join(f"{line}\n" for line in lines), end="")
            if isinstance(later[command], str) and not isinstance(earlier[command], str):
                lost.append(f"{command} {name}")
    print(f"\n{count:,} figures of {len(names)} runs that both have; {differing:,} lines differ")
    if lost:
        print(f"read before, and not now: {', '.join(lost)}")
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
