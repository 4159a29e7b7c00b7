"""What limits processes: control groups, of version 1 or 2, and the CPUs that they are bound to."""

from __future__ import annotations

import os
from pathlib import Path

from loadeval.probes.processes import amounts_in, content_of

ROOT = Path("/")
UNLIMITED_BYTES = 2**60
"""Version 1 writes a number beyond any memory for "no limit"."""
Limit = tuple[float, Path]
"""How much a control group allows, and the folder of its files."""


def groups(controller: str, pid: int | None = None) -> list[Path]:
    """The folders of the groups that a process is in for `controller`, the innermost first.

    This process, unless `pid` says another. A container may have its own group mounted as the root
    of all, yet be told its full path: what is not there has no limit.
    """
    mounted = ROOT / "sys/fs/cgroup"
    paths: dict[str, str] = {}
    for line in _text(ROOT / "proc" / str(pid or "self") / "cgroup").splitlines():
        _, names, path = line.split(":", 2)
        paths |= dict.fromkeys(names.split(","), path)
    if controller in paths:  # of version 1; version 2 has one path for all, without a name
        mounted /= controller
    parts = Path(paths.get(controller, paths.get("", "/"))).parts[1:]
    if ".." in parts:  # it is outside of what is mounted
        parts = ()
    return [mounted.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def quota(pid: int | None = None) -> Limit | None:
    """How many CPUs' worth of time a process may take by the tightest of its groups, and that."""
    limits = []
    for folder in groups("cpu", pid):
        most, period = [*_text(folder / "cpu.max").split(), "", ""][:2]
        if not most:
            most, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if most.isdigit() and period.isdigit() and int(period) > 0:
            limits.append((int(most) / int(period), folder))
    return min(limits, default=None)


def quota_cores(pid: int | None = None) -> float | None:
    """How many CPUs' worth of time a process may take; None where nothing limits that."""
    tightest = quota(pid)
    return None if tightest is None else tightest[0]


def memory_limit() -> Limit | None:
    """How many bytes of memory this process may take, by the tightest of its groups."""
    limits = []
    for folder in groups("memory"):
        most = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
        if most.isdigit() and int(most) < UNLIMITED_BYTES:
            limits.append((int(most), folder))
    return min(limits, default=None)


def memory_used(folder: Path) -> int | None:
    """How much a group takes, without cached files, which the system may drop."""
    counted = amounts_in(content_of(folder / "memory.stat"))
    for name, prefix in (("memory.current", ""), ("memory.usage_in_bytes", "total_")):
        used = _text(folder / name)
        if used.isdigit():
            cached = (counted.get(f"{prefix}{age}_file", 0) for age in ("active", "inactive"))
            return max(int(used) - sum(cached), 0)
    return None


def cpuset_cpus(pid: int | None = None) -> int | None:
    """How many CPUs the innermost group that says it allows; None where none does."""
    for folder in groups("cpuset", pid):
        cpus = _text(folder / "cpuset.cpus.effective") or _text(folder / "cpuset.effective_cpus")
        if cpus:
            spans = (span.partition("-") for span in cpus.split(","))  # such as 0-3,8
            return sum(int(last or first) - int(first) + 1 for first, _, last in spans)
    return None


def affinity_of(pid: int) -> frozenset[int]:
    """The CPUs that the process or thread `pid` may run on; none where that is not told."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:  # it is over
        return frozenset()


def _text(path: Path) -> str:
    return content_of(path).decode(errors="replace").strip()
