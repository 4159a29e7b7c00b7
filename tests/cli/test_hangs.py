"""What `loadeval run` and `loadeval watch` say where no batch comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadeval.attach.hang import Hang
from loadeval.cli import hangs
from loadeval.cli.hangs import HangTeller
from loadeval.launch.hangs import Found

STUCK = Hang("io", 34_000_000_000, 100, "is stuck in a call", pid=7, worker=0)


class FakeWatch:
    """Finds what it is told to."""

    found: Found | None = None

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def look(self) -> Found | None:
        return self.found


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangs, "HangWatch", FakeWatch)


def test_what_was_found_is_said_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the file of stacks as it is seen from here."""
    monkeypatch.chdir(tmp_path)
    teller = HangTeller(tmp_path)
    assert not teller.poll()
    found = Found(STUCK, (STUCK,), tmp_path / "hang-1.txt")
    monkeypatch.setattr(FakeWatch, "found", found)
    assert teller.poll()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("loadeval: no batch for 34 s: worker 0 (process 7) is stuck in a call")
    assert err.endswith("stacks  hang-1.txt\n")


def test_a_failure_of_ours_is_silent_and_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may not end the program that is looked after."""
    calls = []

    def fail(_: FakeWatch) -> None:
        calls.append(1)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(FakeWatch, "look", fail)
    teller = HangTeller(tmp_path, 3.0)
    assert [teller.poll(), teller.poll(), len(calls)] == [False, False, 1]
    assert capsys.readouterr() == ("", "")
