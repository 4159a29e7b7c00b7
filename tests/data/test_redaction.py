"""What tells whose machine and files a run is of becomes placeholders; nothing else changes."""

from __future__ import annotations

import getpass
import os
import platform
from functools import partial

import pytest

from loadeval.data import redaction
from loadeval.data.lines import CodeSamples, EpochEnd, Event, Line, LoaderInfo, Readings
from loadeval.data.redaction import SALT, run_salt, share_salt
from tests.builder import make_header

MISSING = "[Errno 2] No such file or directory: '/data/patient-7.dcm'"
placeholder = partial(redaction.placeholder, salt="a salt")
redacted = partial(redaction.redacted, salt="a salt")
SCANS = placeholder("path", "demo/scans.py")


@pytest.fixture(autouse=True)
def _alice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "node7")
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    monkeypatch.setattr(os, "environ", {})


def message(text: str) -> str:
    line = redacted(Event(5, text))
    assert isinstance(line, Event)
    assert line == Event(5, line.message)
    return line.message


def test_the_same_text_has_the_same_placeholder() -> None:
    assert placeholder("host", "node7") == "host-83b493ec2607cef4"
    assert placeholder("host", "node8") != placeholder("host", "node7")
    assert redaction.placeholder("host", "node7", "b salt") != placeholder("host", "node7")
    assert placeholder("path", "\udcff") != placeholder("path", "\udcfe")  # a name in no encoding


@pytest.mark.parametrize("variables", [{}, {"RANK": "5", "LOCAL_WORLD_SIZE": "4"}])
def test_a_salt_is_shared_with_what_is_started(variables: dict[str, str]) -> None:
    """Where nobody shares one, each run has its own."""
    os.environ.update(variables)
    assert run_salt() != run_salt()
    share_salt()
    shared = os.environ[SALT]
    assert run_salt() == run_salt() == shared
    share_salt()
    assert os.environ[SALT] == shared


def of_host(host: str) -> Line:
    return make_header(environment={"host": host, "pid": 5})


def made_at(place: str) -> Line:
    return make_header(loader=LoaderInfo("a.Loader", made_at=place), environment={})


def ended(error: str) -> Line:
    return EpochEnd(3, "failed", 7, 8, error)


def why(missing: str) -> Line:
    return Readings("host", "process", [1], {"cpu_cores": [0.5]}, missing)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (of_host("node7"), of_host(placeholder("host", "node7"))),
        (of_host("host-7"), of_host(placeholder("host", "host-7"))),  # it only looks like one
        (
            made_at("/data/run:3/secret/train.py:48"),
            made_at(f"{placeholder('path', '/data/run:3/secret/train.py')}:48"),
        ),
        (ended("TimeoutError"), ended("TimeoutError")),
        (ended(f"OSError: {MISSING}"), ended(f"OSError: {placeholder('text', MISSING)}")),
        (ended("cannot read: x"), ended(placeholder("text", "cannot read: x"))),
        (why("cannot read /proc/stat"), why(f"cannot read {placeholder('path', '/proc/stat')}")),
        (
            Event(5, f"OSError: {MISSING}", "failed backend"),
            Event(5, f"OSError: {placeholder('text', MISSING)}", "failed backend"),
        ),
        (  # advice needs lines, functions and what they call, and nobody changes torch's
            CodeSamples(0, {"_utils/fetch.py:52 fetch > read": 3, "demo/scans.py:9": 4}, {}),
            CodeSamples(0, {"_utils/fetch.py:52 fetch > read": 3, f"{SCANS}:9": 4}, {}),
        ),
        (
            CodeSamples(0, {}, {"demo/scans.py:9": 2}, {"demo/scans.py:31 Scans.get > read": 1}),
            CodeSamples(0, {}, {f"{SCANS}:9": 2}, {f"{SCANS}:31 Scans.get > read": 1}),
        ),
    ],
    ids=str,
)
def test_a_line_names_neither_host_nor_file(line: Line, expected: Line) -> None:
    """Of an exception its name stays; numbers and functions do too."""
    assert redacted(line) == expected


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("worker 1 is not looked into (KeyError: 'patient 7')", "'patient 7'"),
        ("the stages are not timed: struct.error: patient 7", "patient 7"),
        ("cannot read /home/alice/data: try again", "/home/alice/data:"),
        ('reads "patient 7" twice', '"patient 7"'),
        ("measured on node7 as ever", "node7"),
        ("measured for alice", "alice"),
        ("worker 1 (pid 5150) died (killed by signal 9) while loading sample 7 of batch 3", ""),
        ("alicenode7 is another word", ""),
    ],
)
def test_a_note_names_neither_file_nor_user(text: str, gone: str) -> None:
    kinds = ("text", "path", "host", "user")
    hidden = {text.replace(gone, placeholder(kind, gone)) for kind in kinds} if gone else {text}
    assert message(text) in hidden


def test_a_long_text_takes_no_time() -> None:
    """A second would be seen in a training: the time grows with the length, no faster."""
    for text in ("a" * 1_000_000, "'" * 1_000_000, "a." * 500_000, "A: " * 300_000):
        message(text)


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_user_without_a_name_is_none(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """A container may run under a bare number; nor need a machine have a name."""

    def nobody() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nobody)
    monkeypatch.setattr(platform, "node", str)
    assert message("measured for alice on node7") == "measured for alice on node7"
