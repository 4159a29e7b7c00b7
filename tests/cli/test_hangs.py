"""What `loadeval run` and `loadeval watch` say where no batch comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from loadeval.attach.hang import Hang
from loadeval.cli import hangs
from loadeval.cli.hangs import HangTeller
from loadeval.launch.hangs import Found

STUCK = Hang("io", 34_000_000_000, 100, "is stuck in a call", pid=7, worker=0)


def teller(monkeypatch: pytest.MonkeyPatch, look: Callable[[], Found | None]) -> HangTeller:
    monkeypatch.setattr(hangs, "HangWatch", lambda *_, **__: SimpleNamespace(look=look))
    return HangTeller(Path.cwd())


def test_what_was_found_is_said_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the file of stacks as it is seen from here."""
    monkeypatch.chdir(tmp_path)
    found = iter([None, Found(STUCK, (STUCK,), tmp_path / "hang-1.txt")])
    tells = teller(monkeypatch, lambda: next(found))
    assert [tells.poll(), tells.poll()] == [False, True]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("loadeval: no batch for 34 s: worker 0 (process 7) is stuck in a call")
    assert err.endswith("stacks  hang-1.txt\n")


def test_a_failure_of_ours_is_silent_and_the_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may not end the program that is looked after."""
    calls = []

    def fail() -> None:
        calls.append(1)
        raise OSError(5, "Input/output error")

    tells = teller(monkeypatch, fail)
    assert [tells.poll(), tells.poll(), len(calls)] == [False, False, 1]
    assert capsys.readouterr() == ("", "")
