"""`loadeval tune`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from loadeval.errors import UsageError
from loadeval.tuning import tuner
from tests.cli.commands import runner

if TYPE_CHECKING:
    from pathlib import Path

run = runner("tune")
PROGRAM = """
import numpy as np
from loadeval.testing import FakeClock, ScriptedLoader

BATCHES = [np.zeros((4, 2))] * 40
CLOCK = FakeClock()

class Loaders:
    @staticmethod
    def make(num_threads=1, name="none"):
        assert name in ("none", "a b")
        return [np.zeros((4, 2))] * 40

def make_loader(num_threads=1):
    return BATCHES

def step(batch):
    sum(range(20_000))

def stopped(batch):
    raise KeyboardInterrupt

COUNT = iter(range(1000))

def stopped_later(batch):
    step(batch)
    if next(COUNT) == 60:
        raise KeyboardInterrupt

def wrong(num_threads):
    raise OSError("no data")
"""


@pytest.fixture(name="program", autouse=True)
def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the working folder."""
    (tmp_path / "program_to_tune.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "program_to_tune", raising=False)

    class Without:
        @classmethod
        def of(cls, _runs: object) -> Without:
            raise UsageError("nothing is known of the inside")

    monkeypatch.setattr(tuner, "LoaderModel", Without)


QUICK = ("--set", "num_threads=1", "--space", "num_threads=1,2", "--batches", 12)


def test_a_table_and_the_settings_as_code() -> None:
    code, out, err = run("program_to_tune:make_loader", "--step", "program_to_tune:step", *QUICK)
    assert (code, err) == (0, "")
    assert "2 settings tried, in turns" in out
    assert "\nSettings: num_threads=" in out


def test_json_and_names_within_names() -> None:
    code, out, _ = run(
        "program_to_tune:Loaders.make", *QUICK, "--set", "name=a b", "--trials", 1, "--json"
    )
    assert code == 0
    document = json.loads(out)
    assert document["settings"] == {"num_threads": 1, "name": "a b"}
    assert document["step"] is False


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing"], 2, "'nothing' names nothing; expected MODULE:NAME"),
        (["no_such_module:make"], 1, "there is no module 'no_such_module'"),
        (["program_to_tune:nothing"], 1, "module 'program_to_tune' has no 'nothing'"),
        (["program_to_tune:make_loader", "--set", "workers"], 2, "--set is 'workers'; expected"),
        (["program_to_tune:BATCHES"], 1, "cannot make this list again with other settings"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], code: int, message: str) -> None:
    exit_code, out, err = run(*arguments)
    assert (exit_code, out) == (code, "")
    assert message in " ".join(err.replace("│", " ").split())


def test_ctrl_c_before_anything_is_known() -> None:
    code, out, err = run("program_to_tune:make_loader", "--step", "program_to_tune:stopped", *QUICK)
    assert (code, out, err) == (130, "", "Interrupted.\n")


def test_a_page_is_written(tmp_path: Path) -> None:
    code, out, err = run("program_to_tune:make_loader", *QUICK, "--output", "tune.html")
    assert (code, err) == (0, "")
    assert out.endswith("\nPage written to tune.html\n")
    assert "<h1>" in (tmp_path / "tune.html").read_text(encoding="utf-8")


def test_a_figure_of_what_was_not_predicted_is_an_error() -> None:
    """After the table."""
    code, out, err = run("program_to_tune:make_loader", *QUICK, "--output", "tune.png")
    assert code == 1
    assert "\nSettings: " in out
    assert err.startswith("Error: cannot draw throughput against num_workers")


@pytest.mark.parametrize("name", ["tune.txt", "program.html"])
def test_where_nothing_can_be_written_nothing_is_measured(tmp_path: Path, name: str) -> None:
    (tmp_path / "program.html").write_text("mine")
    code, out, _ = run("program_to_tune:make_loader", *QUICK, "--output", name)
    assert (code, out) == (1, "")


def test_nothing_but_json_is_printed_beside_a_page(tmp_path: Path) -> None:
    _, out, _ = run("program_to_tune:make_loader", *QUICK, "--output", "tune.html", "--json")
    assert json.loads(out)["curve"] is None
    assert (tmp_path / "tune.html").exists()


def test_ctrl_c_later_prints_what_is_known() -> None:
    place = "program_to_tune:stopped_later"
    code, out, err = run("program_to_tune:make_loader", "--step", place, *QUICK)
    assert (code, err) == (130, "")
    assert "\nEnded early by Ctrl-C" in out
