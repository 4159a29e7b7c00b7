"""Which control group limits a process most, by files as the system writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadeval.probes.limits import Cgroup, cpuset_cpus, groups, tightest

GIGABYTE = 2**30


def write(folder: Path, **files: str) -> Path:
    """Files in a folder; a double underscore in a name stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def in_group(root: Path, path: str, controllers: str = "") -> Path:
    """A machine at `root` whose process is in the group `path`; with controllers of version 1."""
    write(root / "proc" / "self", cgroup=f"4:{controllers or 'name=systemd'}:{path}\n0::{path}\n")
    return root


def tightest_cpu(root: Path) -> Cgroup | None:
    return tightest(groups("cpu", root=root), lambda group: group.quota_cores)


def tightest_memory(root: Path) -> Cgroup | None:
    return tightest(groups("memory", root=root), lambda group: group.memory_limit_bytes)


@pytest.mark.parametrize(
    ("files", "v1", "cores"),
    [
        ({"cpu__max": "250000 100000\n"}, False, 2.5),
        ({"cpu__cfs_quota_us": "400000\n", "cpu__cfs_period_us": "100000\n"}, True, 4),
    ],
    ids=["version 2", "version 1"],
)
def test_a_quota(tmp_path: Path, files: dict[str, str], v1: bool, cores: float) -> None:
    write(tmp_path / "sys/fs/cgroup" / ("cpu" if v1 else "") / "job", **files)
    group = tightest_cpu(in_group(tmp_path, "/job", "cpu,cpuacct" if v1 else ""))
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
    write(tmp_path / "sys/fs/cgroup", **files)
    write(tmp_path / "sys/fs/cgroup/job")
    assert cpuset_cpus(groups("cpuset", root=in_group(tmp_path, "/job"))) == cpus


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
    write(tmp_path / "sys/fs/cgroup", **files)
    assert tightest_cpu(in_group(tmp_path, "/")) is None


def test_the_tightest_of_several(tmp_path: Path) -> None:
    """A group further out may allow less than one further in."""
    pod = tmp_path / "sys/fs/cgroup/pod"
    write(pod, cpu__max="100000 100000\n", memory__max=f"{4 * GIGABYTE}\n")
    write(pod / "container", cpu__max="800000 100000\n", memory__max=f"{GIGABYTE}\n")
    root = in_group(tmp_path, "/pod/container")
    assert tightest_cpu(root) == Cgroup(pod)
    assert tightest_memory(root) == Cgroup(pod / "container")


@pytest.mark.parametrize("path", ["/docker/1f", "/../../job"])
def test_a_container_that_sees_its_group_as_the_root(path: str, tmp_path: Path) -> None:
    """It is told its full path, which is not there."""
    write(tmp_path / "sys/fs/cgroup", cpu__max="100000 100000\n")
    assert tightest_cpu(in_group(tmp_path, path)) == Cgroup(tmp_path / "sys/fs/cgroup")


def test_no_control_groups(tmp_path: Path) -> None:
    """As on a system without /proc."""
    assert groups("cpu", root=tmp_path) == []
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


def test_a_group_that_counts_no_periods(tmp_path: Path) -> None:
    """Its CPU may be limited by one further out."""
    write(tmp_path, cpu__stat="usage_usec 5\n")
    assert Cgroup(tmp_path).throttled_periods is None


def test_the_groups_of_another_process(tmp_path: Path) -> None:
    write(in_group(tmp_path, "/job") / "proc/7", cgroup="0::/other\n")
    found = groups("memory", 7, tmp_path)
    assert [group.folder.name for group in found] == ["other", "cgroup"]
