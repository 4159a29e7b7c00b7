"""The limits that control groups, of version 1 or 2, set to processes."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PROC = Path("/proc")
UNLIMITED_BYTES = 2**60
"""Version 1 writes a number beyond any memory for "no limit"."""
V1, V2 = "cgroup", "cgroup2"


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One control group; None is "no limit", or not known."""

    folder: Path

    @property
    def quota_cores(self) -> float | None:
        """How many CPUs' worth of time its processes may take."""
        quota, period = [*_text(self.folder / "cpu.max").split(), "", ""][:2]
        if not quota:
            quota, period = (
                _text(self.folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
            )
        limited = quota.isdigit() and period.isdigit() and int(period) > 0
        return int(quota) / int(period) if limited else None

    @property
    def periods(self) -> tuple[int, int] | None:
        """The number of periods in which its processes were held back, and of all periods."""
        counts = _table(self.folder / "cpu.stat")
        if "nr_throttled" not in counts or "nr_periods" not in counts:
            return None
        return counts["nr_throttled"], counts["nr_periods"]

    @property
    def memory_limit_bytes(self) -> int | None:
        """How much memory its processes may take."""
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _text(self.folder / name).strip()
            if text.isdigit() and int(text) < UNLIMITED_BYTES:
                return int(text)
        return None

    @property
    def memory_used_bytes(self) -> int | None:
        """How much they take, without cached files, which the system may drop."""
        for name, prefix in (("memory.current", ""), ("memory.usage_in_bytes", "total_")):
            text = _text(self.folder / name).strip()
            if text.isdigit():
                stat = _table(self.folder / "memory.stat")
                cached = (stat.get(f"{prefix}{age}_file", 0) for age in ("active", "inactive"))
                return max(int(text) - sum(cached), 0)
        return None


def tightest_cpu(proc: Path = PROC, pid: int | None = None) -> Cgroup | None:
    """The group that limits the CPU time of a process most; None where none does.

    Of this process, unless `pid` says another.
    """
    return _tightest("cpu", attrgetter("quota_cores"), proc, pid)


def tightest_memory(proc: Path = PROC) -> Cgroup | None:
    """The group that limits this process' memory most; None where none does."""
    return _tightest("memory", attrgetter("memory_limit_bytes"), proc)


def cpuset_cpus(groups_outwards: Iterable[Cgroup]) -> int | None:
    """How many CPUs of the machine the first of these that says it allows; None where none does."""
    texts = (
        _text(group.folder / name).strip()
        for group in groups_outwards
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus")
    )
    text = next(filter(None, texts), None)
    if text is None:
        return None
    spans = (span.partition("-") for span in text.split(","))  # such as 0-3,8
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans)


def _tightest(
    controller: str, limit_of: Callable[[Cgroup], Any], proc: Path, pid: int | None = None
) -> Cgroup | None:
    limits = [(limit_of(group), group) for group in groups(controller, proc, pid)]
    limited = [pair for pair in limits if pair[0] is not None]
    return min(limited, key=itemgetter(0))[1] if limited else None


def groups(controller: str, proc: Path = PROC, pid: int | None = None) -> list[Cgroup]:
    """The groups that a process is in for `controller`, from the innermost outwards.

    This process, unless `pid` says another.
    """
    paths = _paths(proc, pid)
    for kind, name in ((V1, controller), (V2, "")):
        for mounted, root, point, options in _mounts(proc):
            if mounted == kind and name in paths and (kind == V2 or controller in options):
                return _upwards(paths[name], root, Path(point))
    return []


def _paths(proc: Path, pid: int | None) -> dict[str, str]:
    """The path of a process' group by controller; version 2 has one path, under ""."""
    lines = _text(proc / ("self" if pid is None else str(pid)) / "cgroup").splitlines()
    parts = [line.split(":", 2) for line in lines]
    return {name: path for _, names, path in parts for name in names.split(",")}


def _mounts(proc: Path) -> list[tuple[str, str, str, list[str]]]:
    """Each mounted hierarchy: its kind, which path of it is mounted, where, and its options."""
    mounts = []
    for line in _text(proc / "self" / "mountinfo").splitlines():
        where, _, what = line.partition(" - ")
        kind, *_, options = what.split() or [""]
        if kind in (V1, V2):
            root, point = where.split()[3:5]
            mounts.append((kind, root, point, options.split(",")))
    return mounts


def _upwards(path: str, root: str, point: Path) -> list[Cgroup]:
    # A container may have its own group mounted as the root of all, yet be told its full path.
    inside = path == root or path.startswith(f"{root.rstrip('/')}/")
    names = [name for name in path[len(root) :].split("/") if name] if inside else []
    return [Cgroup(point.joinpath(*names[:count])) for count in range(len(names), -1, -1)]


def _table(path: Path) -> dict[str, int]:
    fields = (line.partition(" ") for line in _text(path).splitlines())
    return {name: int(amount) for name, _, amount in fields if amount}


def _text(path: Path) -> str:
    """What stands in a file; nothing where there is none, or it may not be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
