"""`loadeval adapters`."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from functools import cache
from importlib import metadata
from typing import Any

import pytest

from loadeval.cli import adapters as command
from loadeval.runtime.registry import Registration, registrations
from tests.cli.commands import COMMAND, in_a_terminal, runner

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


listed = cache(run)
registered = cache(registrations)
"""Every installed distribution is looked at: once."""


def test_each_adapter_has_a_line() -> None:
    """The headings are followed by a line for each adapter, in the order of modules."""
    code, out, err = listed()
    assert (code, err) == (0, "")
    headings, *lines = out.splitlines()
    assert headings.split("  ")[0] == "module"
    assert [line.split()[0] for line in lines] == [
        registration.module for registration in registered()
    ]


def test_a_line_tells_class_distribution_and_framework() -> None:
    """Each with its version."""
    (line,) = (line for line in listed()[1].splitlines() if line.startswith("torch.utils.data "))
    assert line.split() == [
        "torch.utils.data",
        "loadeval_adapters.pytorch:PyTorchAdapter",
        *("loadeval", metadata.version("loadeval")),
        *("torch", metadata.version("torch")),
    ]


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({}, ["theirs.adapters:Theirs", "theirs 3.0", "not installed"]),
        (
            {"installed": True, "distribution": None},
            ["theirs.adapters:Theirs", "unknown", "installed, version unknown"],
        ),
        ({"adapter": "\x1b[2J"}, [r"\x1b[2J", "theirs 3.0", "not installed"]),
    ],
)
def test_what_is_absent_unknown_or_hostile(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], cells: list[str]
) -> None:
    """An adapter is listed all the same, and escapes of a third party's entry point are text."""
    registration = dataclasses.replace(ABSENT, **changes)
    monkeypatch.setattr(command, "registrations", lambda: [registration])
    _, line = run()[1].splitlines()
    assert re.split(" {2,}", line) == ["framework.loaders", *cells]


def test_json_is_a_list_of_the_dataclasses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fields of Registration are the keys."""
    monkeypatch.setattr(command, "registrations", registered)
    code, out, err = run("--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == [dataclasses.asdict(registration) for registration in registered()]


def test_nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headings alone, and an empty list."""
    monkeypatch.setattr(command, "registrations", list)
    assert run() == (0, "module  adapter  registered by  framework\n", "")
    assert json.loads(run("--json")[1]) == []


@pytest.mark.check
def test_the_installed_command_into_a_pipe() -> None:
    """Plain text, no line broken however long."""
    done = subprocess.run([COMMAND, "adapters"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout == listed()[1]
    assert "\x1b" not in done.stdout


@pytest.mark.check
def test_the_installed_command_in_a_terminal() -> None:
    """A table as wide as the terminal, with headings in bold."""
    shown = in_a_terminal("adapters", columns=60)
    headings, *lines = shown.splitlines()
    assert headings.startswith("\x1b[1mmodule")
    assert len(lines) > len(registered())
    assert max(map(len, lines)) <= 60
