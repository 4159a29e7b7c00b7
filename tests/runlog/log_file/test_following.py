"""A log is read while it is written, each line once."""

from __future__ import annotations

import json
import os
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from loadeval.errors import RunLogError
from loadeval.runlog.log_file import reader
from loadeval.runlog.log_file.codec import encode
from loadeval.runlog.log_file.reader import Appended, Follower

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def read(follower: Follower) -> Appended:
    lines = follower.read()
    assert lines is not None
    return lines


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    """The path of the log that is followed, once it is written."""
    return tmp_path / "followed.jsonl"


def kinds(appended: Appended) -> list[str]:
    return [str(encode(line)["type"]) for line in appended.lines]


def once(names: list[str]) -> list[str]:
    """Each name once where it stands several times in a row: blocks that come together are one."""
    return [name for name, _ in groupby(names)]


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def test_a_log_that_is_not_there_is_none(log: Path, path: Path) -> None:
    follower = Follower(path)
    assert follower.read() is None
    path.write_bytes(b"")
    assert (read(follower).lines, read(follower).anew) == ([], True)
    path.unlink()
    assert follower.read() is None
    path.write_bytes(log.read_bytes())
    assert kinds(read(follower))[0] == "header"


def test_each_line_comes_once(log: Path, path: Path) -> None:
    content = log.read_bytes()
    follower = Follower(path)
    seen: list[str] = []
    for start in range(0, len(content), 7):
        append(path, content[start : start + 7])
        appended = read(follower)
        assert appended.anew is (not seen)
        seen += kinds(appended)
    assert once(seen) == once(kinds(read(Follower(log))))
    assert (seen[0], seen[-1]) == ("header", "end")
    assert read(follower).lines == []


def test_half_a_line_waits_for_its_end(log: Path, path: Path) -> None:
    header, rest = log.read_bytes().split(b"\n", 1)
    path.write_bytes(header + b"\n" + rest[:20])
    follower = Follower(path)
    assert kinds(read(follower)) == ["header"]
    assert kinds(read(follower)) == []
    append(path, rest[20:])
    assert kinds(read(follower))[-1] == "end"


def test_a_long_log_comes_in_parts(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says that there is more, but for the last one."""
    expected = [json.loads(line)["type"] for line in log.read_bytes().splitlines()]
    monkeypatch.setattr(reader, "PART_BYTES", 10)
    follower = Follower(log)
    parts = [read(follower) for _ in range(len(expected) + 1)]
    assert [kinds(part) for part in parts] == [*([kind] for kind in expected), []]
    assert [part.more for part in parts] == [True] * len(expected) + [False]
    assert [part.anew for part in parts] == [True] + [False] * len(expected)


def in_place(path: Path, content: bytes) -> None:
    path.write_bytes(content.replace(b'"run_id":"', b'"run_id":"f'))


def as_another_file(path: Path, content: bytes) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(content)
    other.replace(path)


def shorter(path: Path, content: bytes) -> None:
    path.write_bytes(content.split(b"\n", 1)[0] + b"\n")


@pytest.mark.parametrize("replaced", [in_place, as_another_file, shorter])
def test_a_log_that_is_replaced_is_begun_anew(
    log: Path, path: Path, replaced: Callable[[Path, bytes], None]
) -> None:
    """Though it may have the same length, or be the same file."""
    path.write_bytes(log.read_bytes())
    follower = Follower(path)
    read(follower)
    replaced(path, log.read_bytes())
    again = read(follower)
    assert (again.anew, kinds(again)[0]) == (True, "header")


def test_a_wrong_line_is_an_error_with_its_number(log: Path, path: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    follower = Follower(path)
    read(follower)
    append(path, b"garbage\n")
    with pytest.raises(RunLogError, match=r"followed.jsonl, line 3 is no line of a run log"):
        follower.read()


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RunLogError, match="Is a directory"):
        Follower(tmp_path).read()


def test_it_tells_when_the_file_was_written(log: Path) -> None:
    """The time is that of the file system's clock."""
    os.utime(log, (1_000, 2_000))
    assert read(Follower(log)).written_s == 2_000
