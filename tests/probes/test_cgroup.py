"""Which control group limits a process most, by files as the system writes them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

from loadeval.probes.cgroup import Cgroup, cpuset_cpus, groups, tightest_cpu, tightest_memory
from loadeval.probes.host import MachineLoad

if TYPE_CHECKING:
    from pathlib import Path

GIGABYTE = 2**30


def write(folder: Path, **files: str) -> Path:
    """Files in a folder; a double underscore in a name stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def proc_of(tmp_path: Path, path: str, *, root: str = "/", v1: bool = False) -> Path:
    """A /proc whose process is in the group `path`, of a hierarchy mounted at tmp_path / "sys"."""
    kind, options = ("cgroup", "rw,cpu,memory") if v1 else ("cgroup2", "rw")
    mount = f"34 31 0:27 {root} {tmp_path / 'sys'} rw,nosuid shared:9 - {kind} none {options}\n"
    group = f"4:cpu,memory:{path}\n0::/\n" if v1 else f"0::{path}\n"
    other = "22 1 8:1 / / rw - ext4 /dev/root rw\n"
    write(tmp_path / "proc" / "self", cgroup=group, mountinfo=other + mount)
    return tmp_path / "proc"


@pytest.mark.parametrize(
    ("files", "v1", "cores"),
    [
        ({"cpu__max": "250000 100000\n"}, False, 2.5),
        ({"cpu__cfs_quota_us": "400000\n", "cpu__cfs_period_us": "100000\n"}, True, 4),
    ],
    ids=["version 2", "version 1"],
)
def test_a_quota(tmp_path: Path, files: dict[str, str], v1: bool, cores: float) -> None:
    write(tmp_path / "sys" / "job", **files)
    group = tightest_cpu(proc_of(tmp_path, "/job", v1=v1))
    assert group is not None
    assert group.quota_cores == cores


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpuset__cpus__effective": "0-3,8\n"}, 5),
        ({"cpuset__effective_cpus": "2\n"}, 1),
        ({"cpuset__cpus": "\n"}, None),
    ],
    ids=["version 2", "version 1", "not told"],
)
def test_the_cpus_that_a_group_allows(
    tmp_path: Path, files: dict[str, str], cpus: int | None
) -> None:
    """By the innermost group that says it."""
    write(tmp_path / "sys", **files)
    write(tmp_path / "sys" / "job")
    assert cpuset_cpus(groups("cpuset", proc_of(tmp_path, "/job"))) == cpus


@pytest.mark.parametrize(
    "files",
    [
        {"cpu__max": "max 100000\n"},
        {"cpu__cfs_quota_us": "-1\n", "cpu__cfs_period_us": "100000\n"},
        {},
    ],
    ids=["version 2", "version 1", "no files"],
)
def test_no_quota(tmp_path: Path, files: dict[str, str]) -> None:
    """No limit is None, not a number of CPUs."""
    write(tmp_path / "sys", **files)
    assert Cgroup(tmp_path / "sys").quota_cores is None
    assert tightest_cpu(proc_of(tmp_path, "/")) is None


def test_the_tightest_of_several(tmp_path: Path) -> None:
    """A group further out may allow less than one further in."""
    write(tmp_path / "sys" / "pod", cpu__max="100000 100000\n", memory__max=f"{4 * GIGABYTE}\n")
    inner = {"cpu__max": "800000 100000\n", "memory__max": f"{GIGABYTE}\n"}
    write(tmp_path / "sys" / "pod" / "container", **inner)
    proc = proc_of(tmp_path, "/pod/container")
    assert tightest_cpu(proc) == Cgroup(tmp_path / "sys" / "pod")
    assert tightest_memory(proc) == Cgroup(tmp_path / "sys" / "pod" / "container")


def test_a_container_that_sees_its_group_as_the_root(tmp_path: Path) -> None:
    """It is told its full path, of which only the end is mounted."""
    write(tmp_path / "sys", cpu__max="100000 100000\n")
    for root in ("/docker/1f", "/"):
        proc = proc_of(tmp_path, "/docker/1f", root=root)
        assert tightest_cpu(proc) == Cgroup(tmp_path / "sys")


def test_a_group_outside_what_is_mounted(tmp_path: Path) -> None:
    """What is mounted is taken, since nothing else can be read."""
    proc = proc_of(tmp_path, "/docker/1f", root="/docker/1")
    assert groups("cpu", proc) == [Cgroup(tmp_path / "sys")]


def test_no_control_groups(tmp_path: Path) -> None:
    """As on a system without /proc."""
    assert groups("cpu", tmp_path) == []
    assert tightest_memory(tmp_path) is None


def test_used_memory_leaves_cached_files_out(tmp_path: Path) -> None:
    """The system drops those when memory is short."""
    stat = "anon 100\nactive_file 30\ninactive_file 20\n"
    v2 = write(tmp_path / "2", memory__current="150\n", memory__stat=stat)
    stat = "cache 90\ntotal_active_file 30\ntotal_inactive_file 20\n"
    v1 = write(tmp_path / "1", memory__usage_in_bytes="150\n", memory__stat=stat)
    assert Cgroup(v2).memory_used_bytes == Cgroup(v1).memory_used_bytes == 100
    assert Cgroup(tmp_path).memory_used_bytes is None


def test_no_memory_limit(tmp_path: Path) -> None:
    """Version 2 says so in a word, version 1 by a number that no memory reaches."""
    v1 = write(tmp_path / "1", memory__limit_in_bytes="9223372036854771712\n")
    v2 = write(tmp_path / "2", memory__max="max\n")
    assert Cgroup(v1).memory_limit_bytes is None
    assert Cgroup(v2).memory_limit_bytes is None


def test_the_share_of_periods_that_were_throttled(tmp_path: Path) -> None:
    """Those since the reading before; not known where there was none in between."""
    stat = "nr_periods 100\nnr_throttled 10\n"
    files = {"cpu__max": "100000 100000\n", "cpu__stat": stat}
    folder = write(tmp_path / "sys", **files)
    load = MachineLoad(proc_of(tmp_path, "/"))
    assert load.read()["cgroup_throttled_share"] is None
    assert load.read()["cgroup_throttled_share"] is None
    write(folder, cpu__stat="nr_periods 120\nnr_throttled 15\n")
    assert load.read()["cgroup_throttled_share"] == 0.25


def test_a_group_that_counts_no_periods(tmp_path: Path) -> None:
    """Its CPU may be limited by one further out."""
    write(tmp_path, cpu__stat="usage_usec 5\n")
    assert Cgroup(tmp_path).periods is None


def test_the_memory_that_a_group_leaves(tmp_path: Path) -> None:
    """Its limit and what is left of it, where the machine has more."""
    files = {"memory__max": "1000000\n", "memory__current": "400000\n", "memory__stat": ""}
    write(tmp_path / "sys", **files)
    load = MachineLoad(proc_of(tmp_path, "/")).read()
    assert load["memory_limit_bytes"] == 1_000_000
    assert load["memory_available_bytes"] == 600_000


def test_a_limit_beyond_the_machine(tmp_path: Path) -> None:
    """The memory of the machine is the limit then."""
    write(tmp_path / "sys", memory__max=f"{2**59}\n", memory__current="0\n")
    load = MachineLoad(proc_of(tmp_path, "/")).read()
    assert load["memory_limit_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Times(NamedTuple):
    """What a system counts of all CPUs."""

    user: float
    idle: float


class TimesOfGuest(NamedTuple):
    """The same of a virtual machine."""

    user: float
    idle: float
    steal: float


def test_stolen_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other virtual machines take; not known of systems that do not count it."""
    counted: list[Times | TimesOfGuest] = [TimesOfGuest(5.0, 5.0, 1.0), TimesOfGuest(5.0, 5.0, 2.0)]
    counted.append(Times(5.0, 5.0))  # as on macOS
    monkeypatch.setattr("psutil.cpu_times", lambda: counted.pop(0))
    load = MachineLoad()
    assert load.read()["stolen_cores"] is None
    stolen = load.read()
    assert (stolen["stolen_cores"] or 0) > 0
    assert stolen["cpu_cores"] == 0
    assert load.read()["stolen_cores"] is None


def test_the_clock_of_the_cpus_in_use(tmp_path: Path) -> None:
    """That of the fastest of them; not known where the machine does not tell it of any."""
    for cpu, khz in enumerate(("2400000", "3100000", "3900000", "<unknown>")):
        write(tmp_path / f"cpu{cpu}" / "cpufreq", scaling_cur_freq=f"{khz}\n")
    load = MachineLoad(cpus=tmp_path)
    assert load.read({0, 1})["cpu_clock_hz"] == 3.1e9
    assert load.read({None, 3, 7})["cpu_clock_hz"] is None
    assert load.read()["cpu_clock_hz"] is None


def test_bytes_received(tmp_path: Path) -> None:
    """Of all interfaces, since the last time; not known where the system does not count them."""
    head = "Inter-|   Receive     |  Transmit\n face |bytes packets |bytes packets\n"
    assert MachineLoad(tmp_path).read()["received_bytes_per_s"] is None
    load = MachineLoad(tmp_path)
    for lo, eth in ((5, 100), (6, 300)):
        write(tmp_path / "net", dev=f"{head}    lo: {lo} 1 {lo} 1\n  eth0: {eth} 9 7 7\n")
        read = load.read()["received_bytes_per_s"]
    assert (read or 0) > 0


def test_thermal_throttling(tmp_path: Path) -> None:
    """Events of all CPUs; not known where the machine does not count them."""
    assert MachineLoad(cpus=tmp_path).read()["thermal_throttles_per_s"] is None
    files = {"core_throttle_count": "3\n", "core_throttle_max_time_ms": "900\n"}
    folder = write(tmp_path / "cpu0" / "thermal_throttle", **files)
    load = MachineLoad(cpus=tmp_path)
    assert load.read()["thermal_throttles_per_s"] is None
    assert load.read()["thermal_throttles_per_s"] == 0
    write(folder, core_throttle_count="5\n")
    assert (load.read()["thermal_throttles_per_s"] or 0) > 0
    (folder / "core_throttle_count").unlink()
    assert load.read()["thermal_throttles_per_s"] is None


def test_the_groups_of_another_process(tmp_path: Path) -> None:
    proc = proc_of(tmp_path, "/job")
    write(proc / "7", cgroup="0::/other\n")
    assert [group.folder.name for group in groups("memory", proc, pid=7)] == ["other", "sys"]
