"""What tells whose machine and files a run is of becomes placeholders; nothing else changes."""

from __future__ import annotations

import getpass
import os
import platform
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.inside.stages import stages_of
from loadeval.runlog import redaction
from loadeval.runlog.model import EpochEnd, Event, Header, LoaderInfo, Readings
from loadeval.runlog.redaction import SALT, host_placeholder, is_hidden, share_salt
from loadeval.runlog.stages import CodeSamples
from tests.runs.given import make_header
from tests.runs.staged import staged

if TYPE_CHECKING:
    from loadeval.runlog.log_file.codec import Line
    from loadeval.runlog.model import EventKind

MISSING = "[Errno 2] No such file or directory: '/data/patient-7.dcm'"


placeholder = partial(redaction.placeholder, salt="a salt")
redacted = partial(redaction.redacted, salt="a salt")


@pytest.fixture(autouse=True)
def _alice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "node7")
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    monkeypatch.setattr(os, "environ", {})


def message(text: str, kind: EventKind = "note") -> str:
    line = redacted(Event(5, text, kind))
    assert isinstance(line, Event)
    assert (line.time_ns, line.kind) == (5, kind)
    return line.message


def test_the_same_text_has_the_same_placeholder() -> None:
    """Another text, or another salt, has another one."""
    assert placeholder("host", "node7") == "host-83b493ec2607cef4"
    assert placeholder("host", "node8") != placeholder("host", "node7")
    assert redaction.placeholder("host", "node7", "b salt") != placeholder("host", "node7")
    assert placeholder("path", "\udcff") != placeholder("path", "\udcfe")  # a name in no encoding


@pytest.mark.parametrize("name", ["node-0a1b2c3d", "node-0a1b2c3d4e5f6789", "host-7"])
def test_a_name_that_looks_like_a_placeholder_is_replaced(name: str) -> None:
    header = redacted(make_header(environment={"host": name}))
    assert isinstance(header, Header)
    assert header.environment["host"] == placeholder("host", name) != name


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


def test_a_header_names_no_host() -> None:
    """All else in it stays."""
    header = make_header(environment={"host": "node7", "pid": 5})
    expected = make_header(environment={"host": placeholder("host", "node7"), "pid": 5})
    assert redacted(header) == expected


def test_the_line_that_made_a_loader_keeps_its_number() -> None:
    """Its file is left out, blanks and all."""
    loader = LoaderInfo("a.Loader", made_at="/home/alice/my scans/train.py:48")
    header = redacted(make_header(loader=loader, environment={}))
    assert isinstance(header, Header)
    path, _, line = str(header.loader.made_at).rpartition(":")
    assert (path, line) == (placeholder("path", "/home/alice/my scans/train.py"), "48")


@pytest.mark.parametrize("environment", [{}, {"host": None}])
def test_an_unknown_host_stays_unknown(environment: dict[str, Any]) -> None:
    header = make_header(environment=environment)
    assert redacted(header) is header


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, None),
        ("TimeoutError: ", "TimeoutError: "),
        ("TimeoutError", "TimeoutError"),
        (f"OSError: {MISSING}", f"OSError: {placeholder('text', MISSING)}"),
        ("cannot read: x", placeholder("text", "cannot read: x")),
    ],
)
def test_an_exception_keeps_its_name_alone(error: str | None, expected: str | None) -> None:
    """Whatever its text is about."""
    line = redacted(EpochEnd(3, "failed", 7, 8, error))
    assert line == EpochEnd(3, "failed", 7, 8, expected)


def test_an_exception_that_was_read_on_keeps_its_name_alone() -> None:
    """The sentence around it stays."""
    sentence = "epoch 3: the loader raised {}, and was read on"
    text = message(sentence.format(f"timeout: {MISSING}"), "error read on")
    assert text == sentence.format(f"timeout: {placeholder('text', MISSING)}")
    assert message("read /data/x", "error read on") == f"read {placeholder('path', '/data/x')}"


def test_the_error_of_a_backend_that_failed_keeps_its_name_alone() -> None:
    """It is the loader's."""
    text = message(f"OSError: {MISSING}", "failed backend")
    assert text == f"OSError: {placeholder('text', MISSING)}"


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
    ],
)
def test_a_note_names_neither_file_nor_user(text: str, gone: str) -> None:
    """What is left of it can still be read."""
    cleaned = message(text)
    assert cleaned in {
        text.replace(gone, placeholder(k, gone)) for k in ("text", "path", "host", "user")
    }


@pytest.mark.parametrize(
    "text",
    [
        "worker 1 (pid 5150) died (killed by signal 9) while loading sample 7 of batch 3",
        "the workers are threads: what they do is not timed",
        "the loader's workers had started before it was looked into, so torch's own",
        "alicenode7 is another word",
    ],
)
def test_a_note_about_no_file_stays(text: str) -> None:
    assert message(text) == text


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


def test_why_a_probe_has_nothing_names_no_file() -> None:
    """The readings that there are stay."""
    values = {"cpu_cores": np.array([0.5])}
    line = Readings("host", "process", np.array([1]), values, "cannot read /proc/stat")
    copy = redacted(line)
    assert isinstance(copy, Readings)
    assert copy.missing == f"cannot read {placeholder('path', '/proc/stat')}"
    assert copy.values is values
    complete = Readings("host", "process", np.array([1]), values)
    assert redacted(complete) is complete


def test_lines_of_code_name_no_file_but_torchs() -> None:
    """Line, function and what it calls stay: advice needs them."""
    torchs, own = "_utils/fetch.py:52 fetch > read", "demo/scans.py:31 Scans.__getitem__ > read"
    copy = redacted(CodeSamples(0, {torchs: 3, own: 4}, {"demo/scans.py:9": 2}, {own: 1}))
    hidden = placeholder("path", "demo/scans.py")
    running = {torchs: 3, f"{hidden}:31 Scans.__getitem__ > read": 4}
    calls = {f"{hidden}:31 Scans.__getitem__ > read": 1}
    assert copy == CodeSamples(0, running, {f"{hidden}:9": 2}, calls)


def test_what_is_found_in_code_is_the_same() -> None:
    """Functions and their shares do not depend on how files are called."""
    run = staged()
    lines: list[Line] = [*run.code]
    code = tuple(line for line in map(redacted, lines) if isinstance(line, CodeSamples))
    both = [stages_of(source) for source in (run, replace(run, code=code))]
    before, after = (
        [(place.function, place.share) for place in each.code] for each in both if each
    )
    assert after == before
    assert len(before) > 2
