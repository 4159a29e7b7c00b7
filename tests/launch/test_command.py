"""Running a command, in this process, by programs that need no framework."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from loadeval.data.folder import ProcessRecord, new_folder
from loadeval.errors import UsageError
from loadeval.launch import command, loadeval_inject
from loadeval.launch.command import ServedBatches, end_like, name_of, why_nothing
from loadeval.launch.settings import RunSettings

PYTHON = sys.executable
SERVING = """
import os, signal, sys, time
from pathlib import Path
from loadeval import LoaderEvaluator
from loadeval.data.folder import LoaderRecord, ProcessRecord
folder = Path(os.environ["LOADEVAL_RUN"])
if {ignores}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
ProcessRecord("rank1", 1, 2**22 + 1, False, (
    LoaderRecord("later.jsonl", "training", True, 0, 0),)).save(folder)
ProcessRecord("rank0", 0, {pid} or os.getpid(), False, (
    LoaderRecord("rank0.jsonl", "training", True, 1, 0),)).save(folder)
try:
    for number in LoaderEvaluator(range(10**9), probes=(), log_file=folder / "rank0.jsonl"):
        time.sleep(0.001)
except KeyboardInterrupt:
    sys.exit(11)
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is looked at often, and finds loadeval."""
    monkeypatch.setattr(command, "POLL_S", 0.05)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, sys.path)))


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("torchrun --nproc-per-node 4 src/train.py --epochs 1", "train"),
        ("python -m mypackage.train x", "mypackage.train"),
        ("accelerate launch train.py", "train"),
        ("./scripts/go.sh", "go"),
        ("python -c pass", "python"),
    ],
)
def test_the_name_of_a_run(words: str, name: str) -> None:
    assert name_of(words.split()) == name


@pytest.mark.parametrize(
    ("ignores", "code", "mark"),
    [(False, 11, ".ended"), (True, -signal.SIGTERM, ".ended"), (False, 11, "none/of.these")],
    ids=["by SIGINT", "by SIGTERM", "on a full disk"],
)
def test_it_is_stopped_after_enough_batches(
    ignores: bool, code: int, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGINT ends it, or SIGTERM where that does not help; it is not asked again."""
    monkeypatch.setattr(command, "GRACE_S", 0.2 if ignores else 60.0)
    monkeypatch.setattr(loadeval_inject, "ENDED_MARK", mark)
    served, enough = ServedBatches(tmp_path, 5), list[bool]()

    def is_enough(recorded: Sequence[ProcessRecord]) -> bool:
        enough.append(served(recorded))
        return enough[-1]

    program = SERVING.format(ignores=ignores, pid=None)
    ended = command.run([PYTHON, "-c", program], RunSettings(), tmp_path, is_enough)
    assert (ended.code, ended.was_stopped, enough.count(True)) == (code, True, 1)


def test_a_process_that_is_not_the_commands_gets_no_signal(tmp_path: Path) -> None:
    """Whatever the files say; the command gets it."""
    with subprocess.Popen([PYTHON, "-c", "input()"], stdin=subprocess.PIPE) as foreign:
        program = SERVING.format(ignores=False, pid=foreign.pid)
        is_enough = ServedBatches(tmp_path, 5)
        ended = command.run([PYTHON, "-c", program], RunSettings(), tmp_path, is_enough)
        assert (ended.code, ended.was_stopped) == (11, True)
        foreign.communicate(b"\n")
    assert foreign.returncode == 0


def test_what_cannot_be_started_is_one_error(tmp_path: Path) -> None:
    """Such as a script for an interpreter that is not there."""
    program = tmp_path / "program"
    program.write_text("#!/no/such/python\n")
    program.chmod(0o755)
    with pytest.raises(UsageError, match=r"cannot run .*: No such file .* script whose first line"):
        command.run([str(program)], RunSettings(), tmp_path)


NO_LOADER = "no data loader that loadeval knows served a batch"


@pytest.mark.parametrize(
    ("marks", "code", "why"),
    [
        ([], 3, "the command started no Python that can be measured"),
        ([".python"], 2, f"until the command ended with exit code 2, {NO_LOADER}$"),
        ([".python"], -2, f"until the command ended with signal 2, {NO_LOADER}$"),
        ([".python"], 0, f"until the command ended with exit code 0, {NO_LOADER}; wrap what"),
        ([".python", ".failed"], 0, f"until the command ended with exit code 0, {NO_LOADER}; wrap"),
    ],
)
def test_why_nothing_was_measured(marks: list[str], code: int, why: str, tmp_path: Path) -> None:
    """Who failed early needs no wrapper; on a full disk a mark has no text."""
    for mark in marks:
        (tmp_path / mark).touch()
    assert re.match(f"Nothing was measured: {why}", why_nothing(tmp_path, code))


ENDLESS = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(600)
"""


@pytest.mark.check
def test_a_program_that_hangs_is_ended_with_all_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGKILL where SIGTERM does not help; nothing of it is left."""
    started = tmp_path / "started"

    def is_hanging() -> bool:
        return started.exists() and bool(started.read_text())

    monkeypatch.setattr(command, "GRACE_S", 0.2)
    words = [PYTHON, "-c", ENDLESS, str(started)]
    ended = command.run(words, RunSettings(), tmp_path / "logs", is_hanging=is_hanging)
    assert (ended.code, ended.was_aborted) == (-signal.SIGKILL, True)
    with suppress(psutil.NoSuchProcess):
        _, left = psutil.wait_procs([psutil.Process(int(started.read_text()))], timeout=5)
        assert all(each.status() == psutil.STATUS_ZOMBIE for each in left)


def test_output_that_cannot_be_flushed_does_not_change_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python would try again when it ends, and end with 120."""
    codes: list[int] = []

    def gone() -> None:
        raise BrokenPipeError

    monkeypatch.setattr(sys.stdout, "flush", gone)
    monkeypatch.setattr(os, "_exit", codes.append)
    with pytest.raises(SystemExit, match="5"):
        end_like(5)
    assert codes == [5]


def test_where_no_folder_can_be_made_the_logs_are_with_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("loadeval.data.folder.PARENT", tmp_path / "file" / "loadeval-runs")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = new_folder("train", "now")
    assert folder.name == "train-now"
    assert folder.parent.name.startswith("loadeval-runs-")
    assert folder.parent.parent == tmp_path


def test_the_name_of_a_folder_is_no_longer_than_that_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell's command is one word, and ends with the name of a script perhaps."""
    monkeypatch.chdir(tmp_path)
    line = "; ".join(["python prepare.py --folder data", *["sleep 1"] * 100, "python train.py"])
    folder = new_folder(name_of(["sh", "-c", line]), "now")
    assert folder.parent == tmp_path / "loadeval-runs"
    assert folder.name.endswith("-now")
