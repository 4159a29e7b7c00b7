"""The steps of the bottleneck protocol, with programs that need no framework."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.launch import command, protocol
from loadeval.launch.command import CannotStartError, Ended
from loadeval.launch.protocol import NSYS_GRACE_S, ProtocolPlan, run_steps
from loadeval.launch.settings import RunSettings
from loadeval.runlog.run_folder.processes import NothingMeasured
from loadeval.runlog.run_folder.protocol_steps import NotRun, Step, StepResult
from tests.launch.test_command import SERVING as ENDLESS

if TYPE_CHECKING:
    from collections.abc import Sequence

PYTHON = sys.executable
SERVING = """
import json, os, signal, socket, sys
from pathlib import Path
from loadeval import LoaderEvaluator
from loadeval.runlog.run_folder.processes import LoaderRecord, ProcessRecord
folder = Path(os.environ["LOADEVAL_RUN"])
mode = json.loads(os.environ["LOADEVAL_RUN_SETTINGS"])["mode"]
name = "rank0-replay" if mode == "replay" else "rank0"
log = name + ".jsonl"
for _ in LoaderEvaluator(range(20), mode, 2, probes=(), log_file=folder / log):
    pass
ProcessRecord(name, 0, os.getpid(), socket.gethostname(), True, (
    LoaderRecord(log, "training", mode, "x", None, True, 1, 0),)).save(folder)
if mode == "{mode}":
    {then}
"""
NSYS_STUB = """#!/bin/sh
for word; do
    shift
    case "$word" in
        --output=*) echo {written} > "${{word#--output=}}.nsys-rep" ;;
        profile|--*) ;;
        *) exec "$word" "$@" ;;
    esac
done
"""


@pytest.fixture(autouse=True)
def _programs_find_loadeval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, sys.path)))
    monkeypatch.setattr(command, "POLL_S", 0.02)


def serving(mode: str = "", then: str = "pass") -> list[str]:
    """A program that serves some batches, and in one mode does something else afterwards."""
    return [PYTHON, "-c", SERVING.format(mode=mode, then=then)]


def results_of(
    folder: Path, program: Sequence[str], **options: Any
) -> tuple[dict[Step, StepResult], list[Step]]:
    """How each step ended, and which were begun."""
    options = {"stop_after": None, "warm_up": 5, **options}
    begun: list[Step] = []
    ended: list[StepResult] = []
    results = run_steps(ProtocolPlan(list(program), folder, **options), begun.append, ended.append)
    assert [result.step for result in ended] == begun
    return {result.step: result for result in results}, begun


def test_the_command_is_run_for_each_step(tmp_path: Path) -> None:
    """The replay goes beside the real run, as where `loadeval run --replay` ran both."""
    results, begun = results_of(tmp_path, serving())
    assert begun == [Step.WARM_UP, Step.REAL, Step.REPLAY, Step.ALTERNATE]
    assert {result.code for result in results.values()} == {0}
    assert [results[step].batches for step in begun] == [20, 20, 20, 20]
    assert not any(result.failed for result in results.values())
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.jsonl")} == {
        "warm-up/rank0.jsonl",
        "real/rank0.jsonl",
        "real/rank0-replay.jsonl",
        "alternate/rank0.jsonl",
    }


def test_the_warm_up_can_be_left_out(tmp_path: Path) -> None:
    _, begun = results_of(tmp_path, serving(), warm_up=0)
    assert begun[0] is Step.REAL


def test_batches_of_a_step(tmp_path: Path) -> None:
    """The warm-up has a number of its own."""
    plan = ProtocolPlan(["x"], tmp_path, 300, 5)
    assert [plan.batches(step) for step in (Step.WARM_UP, Step.REAL)] == [5, 300]


def test_a_step_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    results, begun = results_of(tmp_path, serving("replay", "sys.exit(3)"))
    assert [step for step, result in results.items() if result.failed] == [Step.REPLAY]
    assert results[Step.REPLAY].code == 3
    assert begun[-1] is Step.ALTERNATE


def test_without_a_loader_the_other_steps_are_left_out(tmp_path: Path) -> None:
    results, begun = results_of(tmp_path, [PYTHON, "-c", ""])
    assert begun == [Step.WARM_UP]
    assert results[Step.WARM_UP].nothing == (NothingMeasured.NO_LOADER, "")
    assert results[Step.ALTERNATE].not_run is NotRun.NO_LOADER
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_protocol(number: signal.Signals, tmp_path: Path) -> None:
    """Even one that the program survives: here its parent, which is us, gets it."""
    then = (
        f"signal.signal({int(number)}, signal.SIG_IGN); os.kill(os.getppid(), {int(number)}); "
        "import time; time.sleep(0.2)"
    )
    results, begun = results_of(tmp_path, serving("log", then), warm_up=0)
    assert begun == [Step.REAL]
    assert results[Step.REAL].signal == number
    assert results[Step.REAL].batches == 20
    assert results[Step.REPLAY].not_run is NotRun.INTERRUPTED


def test_another_signal_does_not(tmp_path: Path) -> None:
    then = (
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN); os.kill(os.getppid(), signal.SIGUSR1); "
        "import time; time.sleep(0.2)"
    )
    _, begun = results_of(tmp_path, serving("alternate", then))
    assert begun[-1] is Step.ALTERNATE


def test_ctrl_c_between_two_runs_ends_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("loadeval.launch.protocol.run", interrupted)
    results, _ = results_of(tmp_path, serving())
    assert results[Step.WARM_UP].signal == signal.SIGINT
    assert results[Step.REAL].not_run is NotRun.INTERRUPTED


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    """Nothing is left of it."""
    with pytest.raises(CannotStartError, match="cannot run"):
        results_of(tmp_path, [str(tmp_path / "nothing")])
    assert not list(tmp_path.iterdir())


def nsys_stub(tmp_path: Path, text: str) -> str:
    path = tmp_path / "bin" / "nsys"
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_nsys_runs_the_command_once_more(tmp_path: Path) -> None:
    """Its report is told; the program under it is measured, so that it can be ended."""
    nsys = nsys_stub(tmp_path, NSYS_STUB.format(written="profiled"))
    folder = tmp_path / "logs"
    folder.mkdir()
    results, begun = results_of(folder, serving(), nsys=nsys)
    assert begun[-1] is Step.NSYS
    assert results[Step.NSYS].profile == "nsys/profile.nsys-rep"
    assert results[Step.NSYS].batches == 20
    assert (folder / "nsys" / "profile.nsys-rep").read_text() == "profiled\n"


def test_nsys_that_writes_nothing(tmp_path: Path) -> None:
    nsys = nsys_stub(tmp_path, "#!/bin/sh\nexit 4\n")
    folder = tmp_path / "logs"
    folder.mkdir()
    results, _ = results_of(folder, serving(), nsys=nsys)
    assert (results[Step.NSYS].code, results[Step.NSYS].profile) == (4, None)


def test_nsys_that_cannot_be_started(tmp_path: Path) -> None:
    """The other steps were made."""
    folder = tmp_path / "logs"
    folder.mkdir()
    results, _ = results_of(folder, serving(), nsys=str(tmp_path / "nsys"))
    assert results[Step.NSYS].failed
    assert results[Step.ALTERNATE].batches == 20


def test_nsys_has_its_time_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on after the program that it ran has been ended."""
    given_s: dict[str, float | None] = {}

    def run(_: object, settings: RunSettings, __: object, grace_s: float | None) -> Ended:
        given_s[Path(settings.folder).name] = grace_s
        return Ended(0, was_stopped=True)

    monkeypatch.setattr(protocol, "run", run)
    monkeypatch.setattr(protocol, "_batches", lambda *_, **__: 5)
    results_of(tmp_path, ["x"], nsys="nsys")
    assert given_s.pop("nsys") == NSYS_GRACE_S > command.GRACE_S
    assert set(given_s.values()) == {None}


def test_how_long_a_program_has_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not end by SIGINT."""
    monkeypatch.setattr(command, "GRACE_S", 1000.0)
    program = [PYTHON, "-c", ENDLESS.format(ignores=True)]
    ended = command.run(program, RunSettings(str(tmp_path)), stop_after=5, grace_s=0.2)
    assert (ended.code, ended.was_stopped) == (-signal.SIGTERM, True)
