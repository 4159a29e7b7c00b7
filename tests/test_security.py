"""What SECURITY.md says of files, permissions and the network is so."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadeval import LoaderEvaluator, LoadevalWarning
from tests.cli.commands import runner
from tests.launch.conftest import LOADEVAL, PROGRAM, environment, ran
from tests.runs.measured import record

ROOT = Path(__file__).parents[1]
WATCHING = """
import os, socket, sys

LOCAL = {socket.AF_UNIX, getattr(socket, "AF_NETLINK", socket.AF_UNIX)}

def watch(event, arguments):
    is_local = event == "socket.__new__" and arguments[1] in LOCAL
    if event in NETWORK and not is_local:
        with open(os.environ["SEEN"], "a") as file:
            file.write(f"{event} {arguments[1:]}\\n")

NETWORK = {"socket.__new__", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"}
sys.addaudithook(watch)
"""


@pytest.fixture(params=[0o022, 0o077], name="umask")
def _umask(request: pytest.FixtureRequest) -> Iterator[int]:
    umask: int = request.param
    before = os.umask(umask)
    yield umask
    os.umask(before)


def modes_in(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_have_the_permissions_of_the_umask(tmp_path: Path, umask: int) -> None:
    """Logs, metrics, pages, figures and exports; none can be executed."""
    log = record(tmp_path / "run.jsonl", "alternate", batches=120)
    record(tmp_path / "log.jsonl", metrics_file=tmp_path / "metrics.json")
    assert runner("report")(log)[0] == 0
    assert runner("compare")(log, "-o", tmp_path / "figure.png")[0] == 0
    for form in ("chrome", "csv"):
        assert runner("export")(log, "-f", form)[0] == 0
    modes = modes_in(tmp_path)
    assert len(modes) >= 8
    assert set(modes.values()) == {0o666 & ~umask}


def launched(folder: Path, mode: str, *variables: str) -> None:
    """`loadeval run` of a program that has a home, and a folder for temporary files."""
    for name in ("home", "tmp", "work"):
        (folder / name).mkdir()
    places = (f"HOME={folder / 'home'}", f"TMPDIR={folder / 'tmp'}")
    command = (sys.executable, *LOADEVAL, "run", "--mode", mode, "--", "python", PROGRAM)
    done = ran(folder / "work", "env", *places, *variables, *command)
    assert done.returncode == 0, done.stderr


def test_a_run_writes_into_its_folder_alone(tmp_path: Path, umask: int) -> None:
    """Nothing is left in the home directory, nor among temporary files."""
    launched(tmp_path, "log")
    modes = modes_in(tmp_path)
    assert {Path(name).parts[:2] for name in modes} == {("work", "loadeval-runs")}
    assert {Path(name).name for name in modes} == {
        "rank0.jsonl",
        "rank0-validation.jsonl",
        "rank0.json",
    }
    assert set(modes.values()) == {0o666 & ~umask}
    (folder,) = (tmp_path / "work" / "loadeval-runs").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777 & ~umask


def test_nothing_is_sent(tmp_path: Path) -> None:
    """No process of a run makes a network socket or asks for an address, nor does its report."""
    (tmp_path / "sitecustomize.py").write_text(WATCHING)
    seen = tmp_path / "seen"
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    watched = (f"PYTHONPATH={path}", f"SEEN={seen}")
    (tmp_path / "run").mkdir()
    launched(tmp_path / "run", "alternate", *watched)
    (folder,) = (tmp_path / "run" / "work" / "loadeval-runs").iterdir()
    done = ran(tmp_path, "env", *watched, sys.executable, *LOADEVAL, "report", folder)
    assert done.returncode == 0, done.stderr
    assert not seen.exists()
    asking = "import socket; socket.socket().close(); socket.getaddrinfo('localhost', 80)"
    ran(tmp_path, "env", *watched, "python", "-c", asking)
    lines = seen.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["socket.__new__", "socket.getaddrinfo"]


def test_a_log_that_is_there_is_not_replaced_through_a_link(tmp_path: Path) -> None:
    """A link under the name of a log leads nowhere, unless overwriting was asked for."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run.jsonl").symlink_to(victim)
    with pytest.warns(LoadevalWarning, match=r"run\.jsonl exists already"):
        LoaderEvaluator([1], log_file=tmp_path / "run.jsonl")
    assert victim.read_text() == "precious"


def test_the_citation_is_of_this_version() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    citation = (ROOT / "CITATION.cff").read_text()
    for name in ("version", "license"):
        stated = re.findall(rf'^{name} = "(.*)"$', project, re.MULTILINE)
        assert stated == re.findall(rf"^{name}: (.*)$", citation, re.MULTILINE)
    assert "name: The loadeval developers" in citation
