"""What tells whose machine and files a run is of becomes placeholders; nothing else changes."""

from __future__ import annotations

import getpass
import os
import platform
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

import pytest

from loadeval.data import redaction
from loadeval.data.lines import CodeSamples, EpochEnd, Event, LoaderInfo, Readings
from loadeval.data.redaction import SALT, host_placeholder, is_hidden, share_salt
from tests.runs.given import make_header

if TYPE_CHECKING:
    from loadeval.data.lines import EventKind, Line

MISSING = "[Errno 2] No such file or directory: '/data/patient-7.dcm'"
placeholder = partial(redaction.placeholder, salt="a salt")
redacted = partial(redaction.redacted, salt="a salt")
SCANS = placeholder("path", "demo/scans.py")


@pytest.fixture(autouse=True)
def _alice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "node7")
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    monkeypatch.setattr(os, "environ", {})


def message(text: str, kind: EventKind = "note") -> str:
    line = redacted(Event(5, text, kind))
    assert isinstance(line, Event)
    assert line == Event(5, line.message, kind)
    return line.message


def test_the_same_text_has_the_same_placeholder() -> None:
    """Another text, or another salt, has another one."""
    assert placeholder("host", "node7") == "host-83b493ec2607cef4"
    assert placeholder("host", "node8") != placeholder("host", "node7")
    assert redaction.placeholder("host", "node7", "b salt") != placeholder("host", "node7")
    assert placeholder("path", "\udcff") != placeholder("path", "\udcfe")  # a name in no encoding


def test_a_list_of_names_does_not_undo_it() -> None:
    """Nor where the old, short hash is tried."""
    hidden = placeholder("host", "node7")
    tried = [
        blake2b(b"node7", digest_size=size, key=key).hexdigest()
        for size in (4, 8)
        for key in (b"", b"node7", b"LOADEVAL_SALT")
    ]
    assert len(hidden.removeprefix("host-")) == 16
    assert not [digest for digest in tried if hidden.endswith(digest)]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RANK": "5", "LOCAL_WORLD_SIZE": "4"}, "host-1"),
        ({"RANK": "5", "GROUP_RANK": "3"}, "host-3"),
        ({"SLURM_PROCID": "5", "SLURM_NODEID": "2", "GROUP_RANK": "0"}, "host-2"),
        ({"RANK": "5"}, placeholder("host", "node7")),
        ({"RANK": "5", "LOCAL_WORLD_SIZE": "0"}, placeholder("host", "node7")),
        ({"GROUP_RANK": "3", SALT: "a salt"}, placeholder("host", "node7")),
    ],
    ids=str,
)
def test_hosts_of_ranks_without_a_common_salt_are_numbered(
    variables: dict[str, str], expected: str
) -> None:
    os.environ.update(variables)
    assert host_placeholder("node7", "a salt") == expected
    assert is_hidden(expected)
    assert not is_hidden("node7")
    assert message("measured on node7") == f"measured on {expected}"


def test_one_of_several_ranks_shares_no_salt() -> None:
    """The others would have another one."""
    os.environ["GROUP_RANK"] = "0"
    assert not share_salt()
    assert SALT not in os.environ


def of_host(host: str | None) -> Line:
    return make_header(environment={"host": host, "pid": 5})


def made_at(place: str) -> Line:
    return make_header(loader=LoaderInfo("a.Loader", made_at=place), environment={})


def ended(error: str | None) -> Line:
    return EpochEnd(3, "failed", 7, 8, error)


def why(missing: str | None) -> Line:
    return Readings("host", "process", [1], {"cpu_cores": [0.5]}, missing)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (of_host("node7"), of_host(placeholder("host", "node7"))),
        (of_host("node-0a1b2c3d"), of_host(placeholder("host", "node-0a1b2c3d"))),
        (of_host("host-7"), of_host(placeholder("host", "host-7"))),  # it only looks like one
        (of_host(None), of_host(None)),
        (made_at("my scans/a.py:48"), made_at(f"{placeholder('path', 'my scans/a.py')}:48")),
        (ended(None), ended(None)),
        (ended("TimeoutError: "), ended("TimeoutError: ")),
        (ended("TimeoutError"), ended("TimeoutError")),
        (ended(f"OSError: {MISSING}"), ended(f"OSError: {placeholder('text', MISSING)}")),
        (ended("cannot read: x"), ended(placeholder("text", "cannot read: x"))),
        (why("cannot read /proc/stat"), why(f"cannot read {placeholder('path', '/proc/stat')}")),
        (why(None), why(None)),
        (
            Event(5, f"OSError: {MISSING}", "failed backend"),
            Event(5, f"OSError: {placeholder('text', MISSING)}", "failed backend"),
        ),
        (
            Event(5, f"epoch 3: the loader raised E: {MISSING}, and was read on", "error read on"),
            Event(
                5,
                f"epoch 3: the loader raised E: {placeholder('text', MISSING)}, and was read on",
                "error read on",
            ),
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
        ("cannot read C:\\Users\\alice\\x.bin", "C:\\Users\\alice\\x.bin"),
        ("reads s3://bucket/scans/7, slowly", "s3://bucket/scans/7"),
        ("reads ../scans of today", "../scans"),
        ("reads ~/scans", "~/scans"),
        ('reads "patient 7" twice', '"patient 7"'),
        ("measured on node7 as ever", "node7"),
        ("measured for alice", "alice"),
        ("worker 1 (pid 5150) died (killed by signal 9) while loading sample 7 of batch 3", ""),
        ("the workers are threads: what they do is not timed", ""),
        ("the loader's workers had started before it was looked into, so torch's own", ""),
        ("alicenode7 is another word", ""),
    ],
)
def test_a_note_names_neither_file_nor_user(text: str, gone: str) -> None:
    """What is left of it can still be read."""
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
