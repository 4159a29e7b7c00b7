"""`loadeval adapters`."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from importlib import metadata
from typing import TYPE_CHECKING

from loadeval.cli import adapters as command
from loadeval.runtime.registry import Registration, registrations
from tests.cli.commands import COMMAND, in_a_terminal, runner

if TYPE_CHECKING:
    import pytest

run = runner("adapters")
ABSENT = Registration(
    module="framework.loaders",
    adapter="theirs.adapters:Theirs",
    distribution="theirs",
    distribution_version="3.0",
    installed=False,
    framework=None,
    framework_version=None,
)


def row_of(monkeypatch: pytest.MonkeyPatch, one: Registration) -> list[str]:
    """The cells of the one line under the headings, where only `one` is registered."""
    monkeypatch.setattr(command, "registrations", lambda: [one])
    _, line = run()[1].splitlines()
    return re.split(" {2,}", line)


def test_each_adapter_has_a_line() -> None:
    """Under the headings, one line for each adapter, in the order of modules."""
    code, out, err = run()
    assert (code, err) == (0, "")
    headings, *lines = out.splitlines()
    assert headings.split("  ")[0] == "module"
    assert [line.split()[0] for line in lines] == [one.module for one in registrations()]


def test_a_line_tells_class_distribution_and_framework() -> None:
    """Each with its version."""
    (line,) = (line for line in run()[1].splitlines() if line.startswith("torch.utils.data "))
    assert line.split() == [
        "torch.utils.data",
        "loadeval_adapters.pytorch:PyTorchAdapter",
        *("loadeval", metadata.version("loadeval")),
        *("torch", metadata.version("torch")),
    ]


def test_a_framework_that_is_absent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its adapter is listed all the same."""
    assert row_of(monkeypatch, ABSENT) == [
        "framework.loaders",
        "theirs.adapters:Theirs",
        "theirs 3.0",
        "not installed",
    ]


def test_a_version_that_is_unknown_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is a distribution."""
    unknown = dataclasses.replace(ABSENT, installed=True, distribution=None)
    assert row_of(monkeypatch, unknown)[2:] == ["unknown", "installed, version unknown"]


def test_a_name_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape sequences of a third party's entry point are text."""
    steering = dataclasses.replace(ABSENT, adapter="\x1b[2J")
    assert row_of(monkeypatch, steering)[1] == r"\x1b[2J"


def test_json_is_a_list_of_the_dataclasses() -> None:
    """The fields of Registration are the keys."""
    code, out, err = run("--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == [dataclasses.asdict(one) for one in registrations()]


def test_nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headings alone, and an empty list."""
    monkeypatch.setattr(command, "registrations", list)
    assert run() == (0, "module  adapter  registered by  framework\n", "")
    assert json.loads(run("--json")[1]) == []


def test_the_installed_command_into_a_pipe() -> None:
    """Plain text, no line broken however long."""
    done = subprocess.run([COMMAND, "adapters"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout == run()[1]
    assert "\x1b" not in done.stdout


def test_the_installed_command_in_a_terminal() -> None:
    """A table as wide as the terminal, with headings in bold."""
    shown = in_a_terminal("adapters", columns=60)
    headings, *lines = shown.splitlines()
    assert headings.startswith("\x1b[1mmodule")
    assert len(lines) > len(registrations())
    assert max(map(len, lines)) <= 60
