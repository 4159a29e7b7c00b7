"""How busy the machine is, and what throttles it, by files as the system writes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from loadeval.probes.host import MachineLoad
from tests.probes.test_limits import in_group, write

pytestmark = pytest.mark.usefixtures("machine_of_files")


def with_group(root: Path, **files: str) -> None:
    """A machine whose process is in a group with these files."""
    write(root / "sys/fs/cgroup", **files)
    in_group(root, "/")


def test_the_share_of_periods_that_were_throttled(tmp_path: Path) -> None:
    """Those since the reading before; not known where there was none in between."""
    stat = "nr_periods 100\nnr_throttled 10\n"
    with_group(tmp_path, cpu__max="100000 100000\n", cpu__stat=stat)
    load = MachineLoad()
    assert "cgroup_throttled_share" not in load.read()
    assert "cgroup_throttled_share" not in load.read()
    with_group(tmp_path, cpu__stat="nr_periods 120\nnr_throttled 15\n")
    assert load.read()["cgroup_throttled_share"] == 0.25


def test_the_memory_that_a_group_leaves(tmp_path: Path) -> None:
    """Its limit and what is left of it, where the machine has more."""
    files = {"memory__max": "1000000\n", "memory__current": "400000\n", "memory__stat": ""}
    with_group(tmp_path, **files)
    load = MachineLoad().read()
    assert load["memory_limit_bytes"] == 1_000_000
    assert load["memory_available_bytes"] == 600_000


def test_a_limit_beyond_the_machine(tmp_path: Path) -> None:
    """The memory of the machine is the limit then."""
    with_group(tmp_path, memory__max=f"{2**59}\n", memory__current="0\n")
    load = MachineLoad().read()
    assert load["memory_limit_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Times(NamedTuple):
    """What a virtual machine counts of all CPUs."""

    user: float
    idle: float
    steal: float


def test_stolen_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = [Times(5.0, 5.0, 1.0), Times(5.0, 5.0, 2.0)]
    monkeypatch.setattr("psutil.cpu_times", lambda: counted.pop(0))
    load = MachineLoad()
    assert "stolen_cores" not in load.read()
    stolen = load.read()
    assert (stolen["stolen_cores"] or 0) > 0
    assert stolen["cpu_cores"] == 0


def test_bytes_received(tmp_path: Path) -> None:
    """Of all interfaces, however many, and from here; not known where nobody counts them."""
    head = "Inter-|   Receive     |  Transmit\n face |bytes packets |bytes packets\n"
    idle = "".join(f"veth{number}: 7 7 7 7\n" for number in range(5_000))
    load = MachineLoad()
    for _ in range(3):
        assert "received_bytes_per_s" not in load.read()
        write(tmp_path / "proc/net", dev=head)
    load = MachineLoad()
    for received in (100, 300):
        lo = f"  lo: {received} 1 5 1\n"
        write(tmp_path / "proc/net", dev=f"{head}{lo}{idle}  ib0: {3 * received} 9 7 7\n")
        read = load.read()
    assert (read["received_bytes_per_s"] or 0) > 0
    assert read["received_bytes_per_s"] == pytest.approx(4 * (read["loopback_bytes_per_s"] or 0))
