"""`loadeval tune -- COMMAND`: what is said of what the program found."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.cli import tune_program
from loadeval.launch.command import CannotStartError, Ended
from loadeval.launch.tuned import RESULT
from tests.cli.commands import runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.launch.settings import RunSettings

run = runner("tune")
COMMAND = ("--", sys.executable, "train.py", "--epochs", "2")
SOURCE = "from torch.utils.data import DataLoader\n\nloader = DataLoader(data, num_workers=1)\n"
FOUND: dict[str, Any] = {
    "tuning": {"settings": {"num_workers": 4}},
    "lines": ["A table", "", "Settings: num_workers=4"],
    "changes": {"num_workers": 4},
    "made_at": "train.py:3",
}


@pytest.fixture(name="ran", autouse=True)
def _ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[RunSettings]]:
    """Lets the command find something, and end with a code, without being run."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SOURCE)

    def ran(found: Any, code: int = 0) -> list[RunSettings]:
        settings: list[RunSettings] = []

        def run_command(command: list[str], of_run: RunSettings) -> Ended:
            assert command == list(COMMAND[1:])
            settings.append(of_run)
            if found is not None:
                (Path(of_run.folder) / RESULT).write_text(json.dumps(found))
            return Ended(code, False)

        monkeypatch.setattr(tune_program, "run", run_command)
        return settings

    ran(FOUND)
    return ran


def test_the_table_and_the_change() -> None:
    """On stderr, as of `run`; the file stays as it is."""
    code, out, err = run(*COMMAND)
    assert (code, out) == (0, "")
    assert "A table\n\nSettings: num_workers=4\n" in err
    assert (
        "-loader = DataLoader(data, num_workers=1)\n+loader = DataLoader(data, num_workers=4)"
        in err
    )
    assert Path("train.py").read_text() == SOURCE


def test_the_change_may_be_written() -> None:
    """The file then has the settings."""
    code, _, err = run("--write", *COMMAND)
    assert code == 0
    assert "which is written" in err
    assert Path("train.py").read_text() == SOURCE.replace("=1", "=4")


def test_json_has_the_diff_and_the_place() -> None:
    """On stdout, what tune's JSON has, and the change."""
    _, out, _ = run("--json", *COMMAND)
    document = json.loads(out)
    assert document["settings"] == {"num_workers": 4}
    assert document["made_at"] == "train.py:3"
    assert document["diff"].startswith("--- a/train.py\n+++ b/train.py\n")


def test_a_call_that_is_not_literal_is_left_to_the_user(ran: Any) -> None:
    """The place and the arguments are said, and why there is no diff."""
    ran({**FOUND, "made_at": "train.py:1"})
    _, _, err = run(*COMMAND)
    assert "Change of the loader made at train.py:1: num_workers=4" in err
    assert "No diff: line 1 has no call of DataLoader" in err
    ran({**FOUND, "made_at": None})
    _, _, err = run(*COMMAND)
    assert "Change: num_workers=4\nNo diff: it is not known where" in err


def test_the_best_settings_need_no_change(ran: Any) -> None:
    """It says so."""
    ran({**FOUND, "changes": {}})
    _, _, err = run(*COMMAND)
    assert "there is nothing to change" in err


def test_why_nothing_was_tuned_is_said(ran: Any) -> None:
    """With the exit code of the command."""
    ran({"why_not": "the dataset is iterable-style"}, code=3)
    code, _, err = run(*COMMAND)
    assert code == 3
    assert "Not tuned: the dataset is iterable-style" in err
    ran(None, code=1)
    code, _, err = run(*COMMAND)
    assert code == 1
    assert "Not tuned: " in err


def test_the_options_reach_the_program(ran: Any) -> None:
    """What to choose from, how many batches and settings, and whether to end it."""
    settings = ran(FOUND, code=130)
    code, _, _ = run(
        *("--space", "num_workers=1,2", "--batches", 40, "--trials", 3, "--stop-after", "tuned"),
        *COMMAND,
    )
    assert code == 0
    options = settings[0].tune
    assert options is not None
    assert options.space == {"num_workers": [1, 2]}
    assert (options.batches, options.trials, options.stops) == (40, 3, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stop-after", "40", *COMMAND], "expected tuned"),
        (["--set", "num_workers=2", *COMMAND], "a command has its own step"),
        (["--write", "train:make"], "are for a command"),
    ],
)
def test_options_of_the_other_kind_are_refused(arguments: list[str], message: str) -> None:
    """Before anything runs."""
    code, _, err = run(*arguments)
    assert code == 2
    assert message in " ".join(err.replace("│", " ").split())


def test_a_command_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a shell's exit code, and no folder is left."""

    def run_command(*_: object) -> Ended:
        raise CannotStartError("python", FileNotFoundError(2, "No such file"))

    monkeypatch.setattr(tune_program, "run", run_command)
    code, _, err = run(*COMMAND)
    assert (code, err) == (127, "Error: cannot run python: No such file\n")
    assert not any(Path("loadeval-runs").iterdir())
