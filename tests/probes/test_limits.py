"""Which control group limits a process most, by files as the system writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadeval.probes.limits import cpuset_cpus, groups, memory_limit, memory_used, quota

GIGABYTE = 2**30
pytestmark = pytest.mark.usefixtures("machine_of_files")


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


@pytest.mark.parametrize(
    ("files", "v1", "cores"),
    [
        ({"cpu__max": "250000 100000\n"}, False, 2.5),
        ({"cpu__cfs_quota_us": "400000\n", "cpu__cfs_period_us": "100000\n"}, True, 4),
    ],
    ids=["version 2", "version 1"],
)
def test_a_quota(tmp_path: Path, files: dict[str, str], v1: bool, cores: float) -> None:
    folder = write(tmp_path / "sys/fs/cgroup" / ("cpu" if v1 else "") / "job", **files)
    in_group(tmp_path, "/job", "cpu,cpuacct" if v1 else "")
    assert quota() == (cores, folder)


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
    in_group(tmp_path, "/job")
    assert cpuset_cpus() == cpus


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
    write(tmp_path / "sys/fs/cgroup", **files)
    in_group(tmp_path, "/")
    assert quota() is None


def test_the_tightest_of_several(tmp_path: Path) -> None:
    """A group further out may allow less than one further in."""
    pod = tmp_path / "sys/fs/cgroup/pod"
    write(pod, cpu__max="100000 100000\n", memory__max=f"{4 * GIGABYTE}\n")
    write(pod / "container", cpu__max="800000 100000\n", memory__max=f"{GIGABYTE}\n")
    in_group(tmp_path, "/pod/container")
    assert quota() == (1, pod)
    assert memory_limit() == (GIGABYTE, pod / "container")


@pytest.mark.parametrize("path", ["/docker/1f", "/../../job"])
def test_a_container_that_sees_its_group_as_the_root(path: str, tmp_path: Path) -> None:
    """It is told its full path, which is not there."""
    folder = write(tmp_path / "sys/fs/cgroup", cpu__max="100000 100000\n")
    in_group(tmp_path, path)
    assert quota() == (1, folder)


def test_used_memory_leaves_cached_files_out(tmp_path: Path) -> None:
    """The system drops those when memory is short."""
    stat = "anon 100\nactive_file 30\ninactive_file 20\n"
    v2 = write(tmp_path / "2", memory__current="150\n", memory__stat=stat)
    stat = "cache 90\ntotal_active_file 30\ntotal_inactive_file 20\n"
    v1 = write(tmp_path / "1", memory__usage_in_bytes="150\n", memory__stat=stat)
    assert memory_used(v2) == memory_used(v1) == 100
    assert memory_used(tmp_path) is None


@pytest.mark.parametrize(
    "files", [{"memory__max": "max\n"}, {"memory__limit_in_bytes": "9223372036854771712\n"}, {}]
)
def test_no_memory_limit(tmp_path: Path, files: dict[str, str]) -> None:
    """Version 2 says so in a word, version 1 by a number that no memory reaches."""
    write(tmp_path / "sys/fs/cgroup", **files)
    in_group(tmp_path, "/")
    assert memory_limit() is None


def test_the_groups_of_another_process(tmp_path: Path) -> None:
    write(in_group(tmp_path, "/job") / "proc/7", cgroup="0::/other\n")
    assert [folder.name for folder in groups("memory", 7)] == ["other", "cgroup"]
