"""Nothing written with `redact` names the user, the machine, or the files of the data."""

from __future__ import annotations

import getpass
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import LoaderEvaluator, Run, read_run
from loadeval.data.redaction import SALT, placeholder
from tests.cli.commands import runner
from tests.launch.conftest import ran
from tests.launch.installing import install, uninstall

USER, HOST, FILE, ARGUMENT = "alice-quincy", "node-quincy.cluster", "scan-quincy", "token-quincy"
NEEDLES = ("quincy", "unpublished_scans", "a salt")
PROGRAM = Path(__file__).with_name("redacted_program.py")


@pytest.fixture(autouse=True)
def _alice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: HOST)
    monkeypatch.setattr(socket, "gethostname", lambda: HOST)
    monkeypatch.setattr(getpass, "getuser", lambda: USER)
    monkeypatch.setenv(SALT, "a salt")


def tell_tales(folder: Path) -> dict[str, list[str]]:
    """Which files, by name or by content, hold which needles."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    by_path = {
        str(path): [
            needle
            for needle in NEEDLES
            if needle.encode() in str(path.relative_to(folder)).encode() + path.read_bytes()
        ]
        for path in files
    }
    return {path: needles for path, needles in by_path.items() if needles}


class Failing:
    """A loader that raises over a file, and can be read on."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __init__(self) -> None:
        self.served = 0

    def __next__(self) -> Any:
        self.served += 1
        if self.served % 3 == 0:
            raise FileNotFoundError(2, "no such file", f"/home/{USER}/{FILE}.npy")
        if self.served == 12:
            raise StopIteration
        return np.zeros(4)


def measured(**options: Any) -> Run:
    """A run in which the loader raises, is read on, and in the end is given up."""
    with LoaderEvaluator(Failing(), probes=(), **options) as evaluator:
        batches = iter(evaluator)
        for _ in range(2):
            next(batches)
        with pytest.raises(FileNotFoundError):
            next(batches)
        next(batches)
        evaluator._measurement.recorder.note(f"cannot read /home/{USER}/{FILE}.npy on {HOST}")
        next(batches)
        with pytest.raises(FileNotFoundError):
            next(batches)
        del batches
        return evaluator.recorded()


def test_a_run_says_what_happened_and_to_whom_not(tmp_path: Path) -> None:
    """In its log, in memory, and in the metrics file; a name that is given stays."""
    log, metrics = tmp_path / "log.jsonl", tmp_path / "metrics.json"
    run = measured(redact=True, log_file=log, metrics_file=metrics, name="baseline")
    assert f"{run.ends[-1].error}".startswith("FileNotFoundError: text-")
    assert run.header.name == "baseline"
    assert run.header.environment["host"] == placeholder("host", HOST, "a salt")
    assert not [needle for needle in NEEDLES if needle in f"{run.header}{run.events}{run.ends}"]
    assert read_run(log).batches == read_run(metrics).batches == 4
    assert tell_tales(tmp_path) == {}


RANKS = """
import os, subprocess, sys
if len(sys.argv) > 1:
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    list(DataLoader(TensorDataset(torch.zeros(8, 1)), 4))
else:
    for rank in "01":
        variables = {**os.environ, "RANK": rank, "WORLD_SIZE": "2"}
        subprocess.run([sys.executable, __file__, rank], env=variables, check=True)
"""


@pytest.mark.check
def test_ranks_of_one_launcher_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of another launch have other placeholders."""
    monkeypatch.delenv(SALT)
    (tmp_path / "ranks.py").write_text(RANKS)
    hosts = []
    for folder in ("one", "other"):
        ran(tmp_path, "run", "--redact", "-o", folder, "--", "python", "ranks.py")
        logs = [read_run(tmp_path / folder / f"rank{rank}.jsonl") for rank in range(2)]
        hosts.append({str(run.header.environment["host"]) for run in logs})
    assert [len(names) for names in hosts] == [1, 1]
    assert hosts[0] != hosts[1]


@pytest.mark.parametrize("redact", [True, False])
def test_an_installed_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, redact: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["unpublished_scans.py", ARGUMENT])
    folder = install(redact=redact)
    list(DataLoader(TensorDataset(torch.zeros(8, 1)), 4))
    uninstall()
    assert read_run(folder / "rank0.jsonl").header.name == "rank0"
    assert (tell_tales(tmp_path) == {}) is redact


@pytest.mark.check
def test_a_program_that_nobody_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs and page of `loadeval run --redact`, and what it says at the end; data is at home."""
    home = tmp_path / "home" / USER
    home.mkdir(parents=True)
    shutil.copy(PROGRAM, home / "unpublished_scans.py")
    for name, value in {"HOME": str(home), "USER": USER, "LOGNAME": USER}.items():
        monkeypatch.setenv(name, value)
    command = ("python", home / "unpublished_scans.py", "--token", ARGUMENT)
    done = ran(tmp_path, "run", "--redact", "--mode", "alternate", "--", *command)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "loadeval-runs").iterdir()
    assert not [needle for needle in NEEDLES if needle in done.stderr]
    code, out, err = runner("report")(folder)
    assert (code, err) == (0, ""), out
    run = read_run(folder / "rank0.jsonl")
    assert run.code
    assert run.stages
    assert tell_tales(tmp_path / "loadeval-runs") == {}
