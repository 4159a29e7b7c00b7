"""Running a command, in this process, by programs that need no framework."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadeval import LoadevalWarning, read_run
from loadeval.data.folder import LoaderRecord, ProcessRecord, processes_in
from loadeval.launch import command
from loadeval.launch.command import (
    CannotStartError,
    end_like,
    name_of,
    why_nothing,
)
from loadeval.launch.folder import new_folder
from loadeval.launch.settings import RunSettings

PYTHON = sys.executable
SERVING = """
import os, signal, sys, time
from pathlib import Path
from loadeval import LoaderEvaluator
from loadeval.launch.session import started_ms
from loadeval.data.folder import LoaderRecord, ProcessRecord
folder = Path(os.environ["LOADEVAL_RUN"])
if {ignores}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
ProcessRecord("rank1", 1, 2**22 + 1, "host", False, (
    LoaderRecord("later.jsonl", "training", "log", "x", None, True, 0, 0),), 1).save(folder)
pid, started = {claims} or (os.getpid(), started_ms())
ProcessRecord("rank0", 0, pid, "host", False, (
    LoaderRecord("rank0.jsonl", "training", "log", "x", None, True, 1, 0),), started).save(folder)
try:
    for number in LoaderEvaluator(range(10**9), probes=(), log_file=folder / "rank0.jsonl"):
        time.sleep(0.001)
except KeyboardInterrupt:
    sys.exit(11)
"""


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python train.py --epochs 1", "train"),
        ("torchrun --nproc-per-node 4 src/train.py", "train"),
        ("python -m mypackage.train", "mypackage.train"),
        ("python -m torch.distributed.run -m mypackage.train x", "mypackage.train"),
        ("accelerate launch train.py", "train"),
        ("./scripts/go.sh", "go"),
        ("python -c pass", "python"),
    ],
)
def test_the_name_of_a_run(words: str, name: str) -> None:
    assert name_of(words.split()) == name


@pytest.mark.parametrize("own", [None, "/a:/b"])
def test_our_folder_comes_first_on_the_path(own: str | None) -> None:
    """What was on the path before stays there."""
    before = {} if own is None else {"PYTHONPATH": own}
    path = command.environment(RunSettings("/logs", "log"), before)["PYTHONPATH"]
    first, *others = path.split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").exists()
    assert ":".join(others) == (own or "")


@pytest.mark.parametrize(("ignores", "code"), [(False, 11), (True, -signal.SIGTERM)])
def test_it_is_stopped_after_enough_batches(
    ignores: bool, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGINT ends it, or SIGTERM where that does not help; who asked is told once, before that."""
    monkeypatch.setattr(command, "POLL_S", 0.05)
    monkeypatch.setattr(command, "GRACE_S", 0.2 if ignores else 60.0)
    told: list[bool] = []

    def is_running() -> bool:
        (record, *_) = processes_in(tmp_path)
        return psutil.Process(record.pid).status() != psutil.STATUS_ZOMBIE

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, sys.path)))
    ended = command.run(
        [PYTHON, "-c", SERVING.format(ignores=ignores, claims=None)],
        RunSettings(str(tmp_path)),
        stop_after=5,
        before_end=lambda: told.append(is_running()),
    )
    assert (ended.code, ended.was_stopped, told) == (code, True, [True])


@pytest.mark.parametrize("of_what", ["another program", "an earlier process with its number"])
def test_a_process_that_is_not_the_commands_gets_no_signal(
    of_what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the files say; the command gets it."""
    monkeypatch.setattr(command, "POLL_S", 0.05)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, sys.path)))
    with subprocess.Popen([PYTHON, "-c", "input()"], stdin=subprocess.PIPE) as foreign:
        started = psutil.Process(foreign.pid).create_time() * 1000
        claims = {
            "another program": (foreign.pid, int(started)),
            "an earlier process with its number": (foreign.pid, 1),
        }[of_what]
        program = SERVING.format(ignores=False, claims=claims)
        ended = command.run([PYTHON, "-c", program], RunSettings(str(tmp_path)), stop_after=5)
        assert (ended.code, ended.was_stopped) == (11, True)
        foreign.communicate(b"\n")
    assert foreign.returncode == 0


UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]


def test_a_program_with_process_numbers_of_its_own_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes itself for process 1, which is another one outside; `unshare` ignores signals."""
    monkeypatch.setattr(command, "POLL_S", 0.05)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, sys.path)))
    if (
        shutil.which("unshare") is None
        or subprocess.run([*UNSHARE, "true"], check=False).returncode
    ):
        pytest.skip("no namespace can be made here")
    program = SERVING.format(ignores=False, claims=None)
    ended = command.run([*UNSHARE, PYTHON, "-c", program], RunSettings(str(tmp_path)), stop_after=5)
    assert (ended.code, ended.was_stopped) == (11, True)


def test_a_program_that_takes_no_signal_from_us_is_not_said_to_have_been_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on to its end; a warning names the process."""
    monkeypatch.setattr(command, "POLL_S", 0.05)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, sys.path)))
    go_on = tmp_path / "go on"

    def refuses(process: psutil.Process, _: int) -> None:
        go_on.touch()
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "send_signal", refuses)
    program = SERVING.format(ignores=False, claims=None).replace(
        "time.sleep(0.001)", f"time.sleep(0.001)\n        if Path({str(go_on)!r}).exists(): break"
    )
    with pytest.warns(LoadevalWarning, match=r"no permission to send SIGINT to process \d+, which"):
        ended = command.run([PYTHON, "-c", program], RunSettings(str(tmp_path)), stop_after=5)
    assert (ended.code, ended.was_stopped) == (0, False)


RANKS = """
import os, subprocess, sys, time
from pathlib import Path
if "RANK" not in os.environ:
    command = [sys.executable, "-c", sys.argv[1], sys.argv[1]]
    ranks = [subprocess.Popen(command, env=os.environ | {{"RANK": str(rank), "WORLD_SIZE": "2"}})
        for rank in range(2)]
    sys.exit(sum(rank.wait() for rank in ranks))
from loadeval import LoaderEvaluator
from loadeval.launch.session import started_ms
from loadeval.data.folder import LoaderRecord, ProcessRecord
folder, rank = Path(os.environ["LOADEVAL_RUN"]), int(os.environ["RANK"])
while rank and not (folder / "rank0.jsonl").exists():
    time.sleep(0.01)
time.sleep({late_s} * rank)
try:
    loader = LoaderEvaluator(range(10**9), probes=(), log_file=folder / f"rank{{rank}}.jsonl")
    record = LoaderRecord(f"rank{{rank}}.jsonl", "training", "log", "x", None, True, 1, 0)
    me = os.getpid(), "host", False
    ProcessRecord(f"rank{{rank}}", rank, *me, (record,), started_ms()).save(folder)
    for number in loader:
        time.sleep(0.001)
except KeyboardInterrupt:
    sys.exit(11)
"""


@pytest.mark.check
@pytest.mark.parametrize(("waits_s", "has_all"), [(60.0, True), (0.1, False)])
def test_a_rank_that_begins_late_is_waited_for_and_ended_too(
    waits_s: float, has_all: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGINT, as soon as it iterates, where it began too late."""
    monkeypatch.setattr(command, "POLL_S", 0.05)
    monkeypatch.setattr(command, "RANKS_S", waits_s)
    monkeypatch.setattr(command, "GRACE_S", 60.0)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, sys.path)))
    program = RANKS.format(late_s=2)
    ended = command.run([PYTHON, "-c", program, program], RunSettings(str(tmp_path)), stop_after=50)
    assert (ended.code, ended.was_stopped) == (22, True)
    assert (read_run(tmp_path / "rank1.jsonl").batches >= 50) is has_all


@pytest.mark.parametrize("how", ["missing", "not executable"])
def test_what_cannot_be_started(how: str, tmp_path: Path) -> None:
    """The code is a shell's."""
    program = tmp_path / "program"
    if how != "missing":
        program.write_text("x")
    with pytest.raises(CannotStartError, match="cannot run") as raised:
        command.run([str(program)], RunSettings(str(tmp_path)))
    assert raised.value.code == (127 if how == "missing" else 126)


def test_a_signal_that_comes_early_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept until somebody can get it: here it is there before Python's handlers are."""
    started = subprocess.Popen

    def later(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        os.kill(os.getpid(), signal.SIGUSR1)
        return started(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", later)
    code = "import time; time.sleep(60)"
    ended = command.run([PYTHON, "-c", code], RunSettings(str(tmp_path)))
    assert ended.code == -signal.SIGUSR1


def test_a_reason_that_could_not_be_written(tmp_path: Path) -> None:
    """The mark is there on a full disk, and empty."""
    (tmp_path / ".failed").touch()
    assert "could not write down why" in why_nothing(tmp_path)


@pytest.mark.parametrize(("code", "how"), [(-2, "signal 2"), (0, "exit code 0")])
def test_a_loader_that_served_nothing_was_iterated(code: int, how: str, tmp_path: Path) -> None:
    """Its first batch was waited for when Ctrl-C came, or it had none."""
    (tmp_path / ".python").touch()
    loader = LoaderRecord("rank0.jsonl", "training", "log", "x", None, True, 1, 0)
    ProcessRecord("rank0", 0, 1, "host", True, (loader,)).save(tmp_path)
    message = why_nothing(tmp_path, code)
    assert f"ended with {how} before the data loader that it iterated served a batch" in message


def test_a_python_that_was_kept_out_is_named_before_its_exit_code(tmp_path: Path) -> None:
    assert "the command started no Python" in why_nothing(tmp_path, 3)


ENDLESS = """
import signal, subprocess, sys, time
if {ignores}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(600)
"""


@pytest.mark.check
@pytest.mark.parametrize("ignores", [False, True])
def test_a_program_that_hangs_is_ended_with_all_below_it(
    ignores: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGTERM, or SIGKILL where that does not help; nothing of it is left."""
    monkeypatch.setattr(command, "POLL_S", 0.05)
    started = tmp_path / "started"

    def is_hanging() -> bool:
        return started.exists() and bool(started.read_text())

    words = [PYTHON, "-c", ENDLESS.format(ignores=ignores), str(started)]
    monkeypatch.setattr(command, "GRACE_S", 0.2 if ignores else 60.0)
    settings = RunSettings(str(tmp_path / "logs"))
    ended = command.run(words, settings, is_hanging=is_hanging)
    assert (-ended.code, ended.was_aborted) == (9 if ignores else 15, True)
    child = (
        psutil.Process(int(started.read_text()))
        if psutil.pid_exists(int(started.read_text()))
        else None
    )
    assert child is None or child.wait(10) is None or not child.is_running()


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
    monkeypatch.setattr("loadeval.launch.folder.PARENT", tmp_path / "file" / "loadeval-runs")
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
