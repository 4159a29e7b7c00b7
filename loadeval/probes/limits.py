"""What limits processes: control groups, of version 1 or 2, and the CPUs that they are bound to."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
UNLIMITED_BYTES = 2**60
"""Version 1 writes a number beyond any memory for "no limit"."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One control group; None is "no limit", or not known."""

    folder: Path

    @property
    def quota_cores(self) -> float | None:
        """How many CPUs' worth of time its processes may take."""
        quota, period = [*self._text("cpu.max").split(), "", ""][:2]
        if not quota:
            quota, period = self._text("cpu.cfs_quota_us"), self._text("cpu.cfs_period_us")
        is_limited = quota.isdigit() and period.isdigit() and int(period) > 0
        return int(quota) / int(period) if is_limited else None

    @property
    def throttled_periods(self) -> tuple[int, int] | None:
        """The number of periods in which its processes were held back, and of all periods."""
        counts = self.counts("cpu.stat")
        if "nr_throttled" not in counts or "nr_periods" not in counts:
            return None
        return counts["nr_throttled"], counts["nr_periods"]

    @property
    def memory_limit_bytes(self) -> int | None:
        """How much memory its processes may take."""
        text = self._text("memory.max") or self._text("memory.limit_in_bytes")
        return int(text) if text.isdigit() and int(text) < UNLIMITED_BYTES else None

    @property
    def memory_used_bytes(self) -> int | None:
        """How much they take, without cached files, which the system may drop."""
        counts = self.counts("memory.stat")
        for name, prefix in (("memory.current", ""), ("memory.usage_in_bytes", "total_")):
            text = self._text(name)
            if text.isdigit():
                cached = (counts.get(f"{prefix}{age}_file", 0) for age in ("active", "inactive"))
                return max(int(text) - sum(cached), 0)
        return None

    @property
    def cpus(self) -> int | None:
        """How many CPUs of the machine its processes may run on."""
        text = self._text("cpuset.cpus.effective") or self._text("cpuset.effective_cpus")
        if not text:
            return None
        spans = (span.partition("-") for span in text.split(","))  # such as 0-3,8
        return sum(int(last or first) - int(first) + 1 for first, _, last in spans)

    def counts(self, name: str) -> dict[str, int]:
        """The numbers in one of its files, by what they count."""
        fields = (line.split() for line in self._text(name).splitlines())
        return {words[0]: int(words[1]) for words in fields if len(words) > 1}

    def _text(self, name: str) -> str:
        try:
            return (self.folder / name).read_text().strip()
        except OSError:
            return ""


def groups(controller: str, pid: int | None = None, root: Path = ROOT) -> list[Cgroup]:
    """The groups that a process is in for `controller`, from the innermost outwards.

    This process, unless `pid` says another. A container may have its own group mounted as the root
    of all, yet be told its full path: what is not there has no limit.
    """
    mounted = root / "sys/fs/cgroup"
    try:
        told = (root / "proc" / str(pid or "self") / "cgroup").read_text().splitlines()
    except OSError:
        return []
    paths: dict[str, str] = {}
    for line in told:
        _, names, path = line.split(":", 2)
        paths |= dict.fromkeys(names.split(","), path)
    if controller in paths:  # of version 1; version 2 has one path for all, without a name
        mounted /= controller
    parts = Path(paths.get(controller, paths.get("", "/"))).parts[1:]
    if ".." in parts:  # it is outside of what is mounted
        parts = ()
    return [Cgroup(mounted.joinpath(*parts[:count])) for count in range(len(parts), -1, -1)]


def tightest(
    groups_outwards: list[Cgroup], limit_of: Callable[[Cgroup], float | None]
) -> Cgroup | None:
    """The group with the lowest limit; None where none limits."""
    limits = [(limit, group) for group in groups_outwards if (limit := limit_of(group)) is not None]
    return min(limits, key=lambda pair: pair[0])[1] if limits else None


def quota_cores(pid: int | None = None) -> float | None:
    """How many CPUs' worth of time a process may take, by the tightest of its groups."""
    group = tightest(groups("cpu", pid), lambda group: group.quota_cores)
    return None if group is None else group.quota_cores


def cpuset_cpus(groups_outwards: list[Cgroup]) -> int | None:
    """How many CPUs the innermost of these groups that says it allows; None where none does."""
    return next((group.cpus for group in groups_outwards if group.cpus is not None), None)


def affinity_of(pid: int) -> frozenset[int]:
    """The CPUs that the process or thread `pid` may run on; none where that is not told."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except (OSError, AttributeError):  # it is over; macOS and Windows have no such call
        return frozenset()
