"""`loadeval doctor`."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from loadeval.analysis.doctor import CHECKS
from loadeval.cli import doctor as command
from loadeval.probes.gpu import Driver
from loadeval.probes.machine import read_machine
from tests.cli.commands import COMMAND, in_a_terminal, runner

run = runner("doctor")
RUNS = Path(__file__).parents[1] / "runs"
IN_ORDER = replace(
    read_machine(),
    cpus=4,
    cpus_usable=4,
    quota_cores=None,
    threads=None,
    threads_from=None,
    shm_bytes=10**9,
    shm_free_bytes=10**9,
    open_files=65_536,
    memory_bytes=10**9,
    memory_available_bytes=10**9,
    driver=Driver("550.54.15", (13, 0), ("NVIDIA H100",), (True,)),
)


@pytest.fixture(autouse=True)
def _on_a_given_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "read_machine", lambda: IN_ORDER)


def test_a_machine_in_order() -> None:
    """A line for each check, and exit code 0."""
    code, out, err = run()
    assert (code, err) == (0, "")
    statuses = [re.split(" {2,}", line)[0] for line in out.splitlines()]
    assert len(statuses) == len(CHECKS)
    assert set(statuses) == {"ok"}


def test_something_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, and the line says what."""
    monkeypatch.setattr(command, "read_machine", lambda: replace(IN_ORDER, shm_free_bytes=10**8))
    code, out, err = run()
    assert (code, err) == (1, "")
    (line,) = (line for line in out.splitlines() if line.startswith("change"))
    assert "9 batches of 32.0 MB" in line
    assert line.endswith("or use fewer workers, less prefetch or smaller batches")
    code, out, _ = run("--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_a_run_is_judged_for_this_machine() -> None:
    """Its settings and sizes count, and what its workers take."""
    code, out, err = run(str(RUNS / "blur.jsonl"))
    assert (code, err) == (0, "")
    memory = out.splitlines()[-1]
    assert re.match("ok +memory +1.00 GB available of 1.00 GB; training with 185 MB, ", memory)
    assert "2 workers with" in memory
    assert "5 batches of 34.6 kB need" in memory


def test_a_run_that_cannot_be_read(tmp_path: Path) -> None:
    code, out, err = run(str(tmp_path / "missing.jsonl"))
    assert (code, out) == (1, "")
    assert "missing.jsonl" in err


def test_json() -> None:
    """The checks, the facts that they are of, and whether all is in order."""
    code, out, err = run("--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["ok"] is True
    assert [check["name"] for check in document["checks"]] == list(CHECKS)
    cpus = {"code": "cpus", "values": {"cpus_usable": 4, "cpus": 4}, "text": "4 of 4 usable"}
    assert document["checks"][0] == {"name": "CPUs", "status": "ok", **cpus}
    assert document["machine"]["driver"]["gpus"] == ["NVIDIA H100"]


def test_a_name_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape sequences of a driver are text."""
    steering = replace(IN_ORDER, driver=Driver("\x1b[2J"))
    monkeypatch.setattr(command, "read_machine", lambda: steering)
    assert r"\x1b[2J" in run()[1]


def test_the_installed_command_into_a_pipe() -> None:
    """It prints a plain line for each check, whatever is wrong with this machine."""
    done = subprocess.run([COMMAND, "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == len(CHECKS)
    assert "\x1b" not in done.stdout


def test_the_installed_command_in_a_terminal() -> None:
    """The output is as wide as the terminal, with the status in colour."""
    shown = in_a_terminal("doctor", columns=70)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert len(lines) > len(CHECKS)
    assert max(map(len, lines)) <= 70
    assert "\x1b[32m" in shown
