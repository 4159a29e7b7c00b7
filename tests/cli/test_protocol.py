"""`loadeval protocol`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.doctor import CheckStatus, DoctorCode, MachineCheck
from loadeval.analysis.remark import Remark
from loadeval.cli import protocol as cli
from loadeval.launch import protocol as steps
from loadeval.launch.command import CannotStartError, Ended
from loadeval.runlog.run_folder.processes import LoaderRecord, ProcessRecord
from tests.cli.commands import runner
from tests.launch.conftest import LOADEVAL, PROGRAM, environment
from tests.runs.measured import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.launch.settings import RunSettings


ENDLESS = PROGRAM.with_name("endless.py")
protocol = runner("protocol")


@dataclass
class Command:
    """Stands for a command: what it was run with, and its code in each folder and mode."""

    codes: dict[str, int] = field(default_factory=dict)
    waits_ms: dict[str, int] = field(default_factory=dict)
    batches: int = 200
    before: Callable[[str], object] = lambda _: None
    seen: list[tuple[str, str, int | None, int | None]] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)
    words: list[list[str]] = field(default_factory=list)

    def __call__(
        self, words: list[str], settings: RunSettings, stop_after: int | None, _: float | None
    ) -> Ended:
        folder = Path(settings.folder)
        self.seen.append((folder.name, settings.mode, stop_after, settings.batches))
        self.words.append(words)
        self.settings.append(dict(settings.settings))
        self.before(settings.mode)
        if self.batches:
            name = f"rank0{settings.suffix}"
            log = folder / f"{name}.jsonl"
            wait_ms = self.waits_ms.get(folder.name, self.waits_ms.get(settings.mode, 30))
            record(log, settings.mode, batches=self.batches, wait_ms=wait_ms)
            loader = LoaderRecord(log.name, "training", settings.mode, "x", None, True, 1, 1)
            ProcessRecord(name, 0, 1, socket.gethostname(), True, (loader,)).save(folder)
        code = self.codes.get(settings.mode, 0)
        return Ended(code, was_stopped=stop_after is not None and not code)


@pytest.fixture(name="command")
def _command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """What is run in place of any command; a machine without nsys, where nothing is to change."""
    stands_in = Command()
    monkeypatch.setattr(steps, "run", stands_in)
    monkeypatch.setattr(cli, "checkup", lambda *_: ())
    monkeypatch.setenv("PATH", "/nowhere")
    return stands_in


def text_of(page: Path) -> str:
    return " ".join(page.read_text("utf-8").split())


def test_every_step_is_made(command: Command, tmp_path: Path) -> None:
    """Each is told on stderr; at the end come a screen and a page."""
    code, out, err = protocol("--output", tmp_path / "logs", "--", "python", "train.py", "--fast")
    assert (code, out) == (0, "")
    assert command.seen == [
        ("warm-up", "log", 50, None),
        ("real", "log", 300, None),
        ("real", "replay", 300, None),
        ("alternate", "alternate", 300, 300),
    ]
    assert command.words == [["python", "train.py", "--fast"]] * 4
    for number, name in enumerate(["doctor", "warm-up", "real", "replay", "alternate"], 1):
        assert f"step {number} of 5, {name}: " in err
    assert "Highly input-bound: training would be 4.00x as fast" in " ".join(err.split())
    page = tmp_path / "logs" / "report.html"
    assert f"page           {page}" in err
    assert page.exists()


def test_how_many_batches_is_a_choice(command: Command, tmp_path: Path) -> None:
    """None is all, and no warm-up."""
    options = ("--stop-after", 0, "--warm-up", 0, "--output", tmp_path / "logs")
    code, _, err = protocol(*options, "--", "train")
    assert code == 0
    assert [call[2:] for call in command.seen] == [(None, None)] * 3
    assert "step 2 of 4, real: the command as it is, to its end" in err
    page = text_of(tmp_path / "logs" / "report.html")
    assert "loadeval protocol --stop-after 0 --warm-up 0 -- train" in page


def test_every_step_runs_with_other_settings(command: Command, tmp_path: Path) -> None:
    """As `loadeval run --set` runs the command; the page has them in its command line."""
    options = ("--set", "num_workers=4", "--set", "pin_memory=True", "--output", tmp_path / "logs")
    assert protocol(*options, "--", "train")[0] == 0
    assert command.settings == [{"num_workers": 4, "pin_memory": True}] * 4
    assert "--set num_workers=4 --set pin_memory=True -- train" in text_of(
        tmp_path / "logs" / "report.html"
    )


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> Path:
    """A folder with a file that can be dropped from the page cache, wherever the tests run."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(bytes(5000))
    return folder


@pytest.mark.usefixtures("on_a_disk")
def test_a_run_with_cold_files_tells_storage_from_preparing(
    command: Command, data: Path, tmp_path: Path
) -> None:
    """It is made last, for all other runs are of files in the page cache."""
    command.waits_ms = {"replay": 0, "cold": 70}
    options = ("--cold", "--data", data, "--output", tmp_path / "logs")
    code, _, err = protocol(*options, "--", "train")
    assert code == 0
    assert command.seen[-1] == ("cold", "log", 300, None)
    assert "cold files     storage 50.0%, preparation 37.5%, neither 12.5% of 80.0 ms" in err
    page = text_of(tmp_path / "logs" / "report.html")
    assert "Most is lost to storage" in page
    assert "1 file (5.00 kB) dropped from the page cache." in page
    assert f"--cold --data {data} -- train" in page


def test_without_files_there_is_no_cold_run(command: Command, tmp_path: Path) -> None:
    """The program, which here opens none, is run for the other steps, and the page says why."""
    code, _, _ = protocol("--cold", "--output", tmp_path / "logs", "--", "train")
    assert code == 0
    assert command.seen[-1][0] == "alternate"
    assert "name the folder of the data set with --data" in text_of(
        tmp_path / "logs" / "report.html"
    )


@pytest.mark.usefixtures("on_a_disk")
def test_a_cold_run_of_few_batches(command: Command, data: Path, tmp_path: Path) -> None:
    """Nothing is said of storage but that, and how many are needed."""
    command.batches = 10
    options = ("--cold", "--data", data, "--output", tmp_path / "logs")
    assert protocol(*options, "--", "train")[0] == 0
    assert "each need 20 batches" in text_of(tmp_path / "logs" / "report.html")


@pytest.mark.usefixtures("on_a_disk")
def test_a_cold_run_that_measured_nothing(command: Command, data: Path, tmp_path: Path) -> None:
    def empty(_: str) -> None:
        command.batches = 0 if len(command.seen) == 5 else 200

    command.before = empty
    options = ("--cold", "--data", data, "--output", tmp_path / "logs")
    code, _, err = protocol(*options, "--", "train")
    assert code == 0
    assert "cold files" not in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--data", "."), "--data names the files of --cold"),
        (("--cold", "--data", "nowhere"), "nowhere is no folder or file; expected the folder"),
    ],
)
def test_cold_files_that_cannot_be(
    options: tuple[str, ...], said: str, command: Command, tmp_path: Path
) -> None:
    """Nothing is run."""
    code, _, err = protocol(*options, "--output", tmp_path / "logs", "--", "train")
    assert code
    assert said in " ".join(err.split())
    assert not command.seen


def test_settings_that_change_training_must_be_allowed(command: Command, tmp_path: Path) -> None:
    """Else nothing is run."""
    options = ("--set", "batch_size=8", "--output", tmp_path / "logs")
    code, _, err = protocol(*options, "--", "train")
    assert code
    assert "pass --allow-changes" in err
    assert not command.seen
    assert protocol("--allow-changes", *options, "--", "train")[0] == 0
    assert "--allow-changes -- train" in text_of(tmp_path / "logs" / "report.html")


def test_the_folder_is_named_after_the_command(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert protocol("--", "python", "train.py")[0] == 0
    assert len(command.seen) == 4
    (folder,) = (tmp_path / "loadeval-runs").iterdir()
    assert folder.name.startswith("train-")
    assert (folder / "report.html").exists()


def test_measurements_are_not_overwritten(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    code, _, err = protocol("--output", tmp_path, "--", "train")
    assert code == 1
    assert "is not empty" in err
    assert not command.seen


def test_a_step_that_fails_is_told(command: Command, tmp_path: Path) -> None:
    """The others are made all the same, and the exit code is not 0."""
    command.codes = {"replay": 3}
    code, _, err = protocol("--output", tmp_path / "logs", "--", "train")
    assert code == 1
    assert "loadeval: replay failed: the command exited with 3" in err
    assert command.seen[-1][0] == "alternate"


def test_a_command_without_a_loader(command: Command, tmp_path: Path) -> None:
    """What nothing could be measured of is no success, and has a page."""
    command.batches = 0
    code, _, err = protocol("--output", tmp_path / "logs", "--", "train")
    assert code == 1
    assert "Nothing was measured: the command started no Python" in " ".join(err.split())
    assert (tmp_path / "logs" / "report.html").exists()


@pytest.mark.parametrize("log", ["rank0.jsonl", "rank0-replay.jsonl"])
def test_logs_that_cannot_be_read(log: str, command: Command, tmp_path: Path) -> None:
    """The other way to measure is believed, and the page says why."""

    def spoil(mode: str) -> None:
        if mode == "alternate":
            (tmp_path / "logs" / "real" / log).write_text("no log\n")

    command.before = spoil
    code, _, err = protocol("--output", tmp_path / "logs", "--", "train")
    assert code == 0
    assert "training would be 4.00x as fast" in " ".join(err.split())
    assert "is no line of a run log" in text_of(tmp_path / "logs" / "report.html")


def test_a_page_that_cannot_be_written(command: Command, tmp_path: Path) -> None:
    """One error, and the logs stay."""
    page = tmp_path / "logs" / "report.html"
    command.before = lambda _: page.write_text("my thesis")
    code, _, err = protocol("--output", tmp_path / "logs", "--", "train")
    assert code == 1
    assert "Error: " in err
    assert page.read_text() == "my thesis"
    assert (tmp_path / "logs" / "real" / "rank0.jsonl").exists()


def test_a_command_that_cannot_be_started(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is a shell's, and no folder is left."""

    def run(*_: Any) -> Ended:
        raise CannotStartError("train", FileNotFoundError(2, "No such file or directory"))

    monkeypatch.setattr(steps, "run", run)
    code, _, err = protocol("--output", tmp_path / "logs", "--", "train")
    assert code == 127
    assert "Error: cannot run train: No such file or directory" in err
    assert not (tmp_path / "logs").exists()
    assert not command.seen


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_what_is_known(
    number: signal.Signals,
    expected: int,
    command: Command,
    tmp_path: Path,
) -> None:
    """There is a page of what was measured until then."""

    def interrupt(mode: str) -> None:
        if mode == "replay":
            before = signal.signal(number, lambda *_: None)
            os.kill(os.getpid(), number)
            signal.signal(number, before)

    command.before = interrupt
    code, _, err = protocol("--output", tmp_path / "logs", "--", "train")
    assert code == expected
    assert f"interrupted by {number.name}" in err
    assert (tmp_path / "logs" / "report.html").exists()


def test_ctrl_c_before_anything_was_run(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "read_machine", interrupted)
    code, _, err = protocol("--output", tmp_path / "logs", "--", "train")
    assert code == 130
    assert err.endswith("Interrupted.\n")
    assert not command.seen


def test_what_is_to_be_changed_is_told_at_once(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remark = Remark(DoctorCode.NO_SHARED_MEMORY)
    check = MachineCheck("shared memory", CheckStatus.CHANGE, remark)
    fine = MachineCheck("CPUs", CheckStatus.OK, Remark(DoctorCode.NO_GPU))
    monkeypatch.setattr(cli, "checkup", lambda *_: (check, fine))
    code, _, err = protocol("--output", tmp_path / "logs", "--", "train")
    assert code == 0
    assert len(command.seen) == 4
    before, after = err.split("step 2 of 5")
    assert "loadeval: shared memory: none" in before
    assert "CPUs" not in before
    assert "to change: shared memory" in after


def test_nsys_that_is_not_installed(command: Command, tmp_path: Path) -> None:
    """One line, and all else is measured."""
    code, _, err = protocol("--nsys", "--output", tmp_path / "logs", "--", "train")
    assert code == 0
    assert len(command.seen) == 4
    assert err.count("nsys: not measured: nsys is not installed\n") == 1


def test_nsys_runs_the_command_once_more(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the options that matter, into the folder; where its report is stands at the end."""
    nsys = tmp_path / "nsys"
    nsys.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / "logs"

    def profile(_: str) -> None:
        if command.seen[-1][0] == "nsys":
            (folder / "nsys" / "profile.nsys-rep").touch()

    command.before = profile
    code, _, err = protocol("--nsys", "--output", folder, "--", "train", "--fast")
    assert code == 0
    assert "step 6 of 6, nsys: " in err
    assert command.words[-1] == [
        *(str(nsys), "profile", "--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none"),
        *(f"--output={folder}/nsys/profile", "train", "--fast"),
    ]
    assert f"nsys           {folder}/nsys/profile.nsys-rep" in err
    assert "loadeval protocol --stop-after 300 --warm-up 50 --nsys -- train" in text_of(
        folder / "report.html"
    )


def run_really(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *LOADEVAL, "protocol", "--output", folder, *words]
    return subprocess.run(
        list(map(str, command)),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


@pytest.mark.check
def test_a_real_training(tmp_path: Path) -> None:
    """It is ended in each step, and its own output is as it is."""
    options = ("--warm-up", 20, "--stop-after", 200)
    done = run_really(tmp_path / "logs", *options, "--", sys.executable, ENDLESS, 10**6, 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("stopped ") == 4
    assert "input-bound: training would be" in " ".join(done.stderr.split())
    assert "inside the loader" in done.stderr
    page = text_of(tmp_path / "logs" / "report.html")
    assert "Inside the loader" in page
    assert "in two separate runs" in page


@pytest.mark.check
def test_a_real_training_that_fails_when_it_replays(tmp_path: Path) -> None:
    """It sees that the same batches come again and again."""
    program = tmp_path / "train.py"
    program.write_text(
        "import sys, torch\nfrom torch.utils.data import DataLoader\n"
        "seen = set()\n"
        "for batch in DataLoader(torch.arange(400), 2):\n"
        "    if int(batch[0]) in seen: sys.exit(7)\n"
        "    seen.add(int(batch[0]))\n"
    )
    done = run_really(tmp_path / "logs", "--stop-after", 0, "--", sys.executable, program)
    assert done.returncode == 1
    assert "replay failed: the command exited with 7" in done.stderr
    assert "warm-up failed" not in done.stderr
    assert "alternate failed" not in done.stderr


@pytest.mark.check
def test_a_real_command_without_a_loader(tmp_path: Path) -> None:
    done = run_really(tmp_path / "logs", "--", sys.executable, "-c", "print('mine')")
    assert (done.returncode, done.stdout) == (1, "mine\n")
    assert "iterated no data loader" in " ".join(done.stderr.split())
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["report.html"]


@pytest.mark.check
def test_ctrl_c_in_a_terminal_ends_it(tmp_path: Path) -> None:
    """The program ends by itself, as it does by Ctrl-C; what it served until then is told."""
    script = (
        "import os, pty, sys, time\nlog = sys.argv.pop()\npid, terminal = pty.fork()\n"
        "if not pid: os.execvpe(sys.argv[1], sys.argv[1:], os.environ)\n"
        "text = b''\n"
        "while True:\n"
        "  try: part = os.read(terminal, 1000)\n"
        "  except OSError: break\n"
        "  text += part\n"
        "  if b'step 3 of 5' not in part: continue\n"
        "  while not os.path.exists(log) or os.path.getsize(log) < 10_000: time.sleep(0.1)\n"
        "  os.write(terminal, b'\\x03')\n"
        "print(text.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    command = [sys.executable, *LOADEVAL, "protocol", "--output", str(tmp_path / "logs")]
    options = ["--warm-up", "5", "--stop-after", "0", "--"]
    program = [sys.executable, str(ENDLESS), str(10**6), "0"]
    log = str(tmp_path / "logs" / "real" / "rank0.jsonl")
    done = subprocess.run(
        [sys.executable, "-c", script, *command, *options, *program, log],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert done.stdout.endswith(" 130\n")
    assert done.stdout.count("stopped ") == 2
    assert "step 4 of 5" not in done.stdout
    assert "interrupted by SIGINT" in done.stdout
    assert "Training waited for batches" in done.stdout


@pytest.mark.check
def test_the_ranks_of_a_job(tmp_path: Path) -> None:
    """Each step is of all ranks, which are told as one job."""
    torchrun = Path(sys.executable).with_name("torchrun")
    job = (torchrun, "--standalone", "--nproc-per-node=2", ENDLESS, 10**6, 0)
    done = run_really(tmp_path / "logs", "--warm-up", 0, "--stop-after", 100, "--", *job)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("stopped") == 6
    assert "2 ranks on 1 node" in done.stderr, done.stderr
    assert "separate runs  " in done.stderr
