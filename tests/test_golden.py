"""Whole outputs of the recorded runs, compared with the files in tests/golden.

`make golden` writes these files anew and prints what changed, which is to be read line by line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import runner
from tests.conftest import GOLDEN
from tests.recordings import RECORDED, laid_out
from tests.whole_outputs import text_of_page, trimmed

Golden = Callable[[str, Any], None]


QUICK = {
    *("alternated", "backends", "before-and-after", "before-dali", "damaged", "epoch-boundaries"),
    *("log-and-replay", "log-zero-workers", "ranks", "slow-operator", "slow-transform"),
    "unpinned-memory",
}
"""Runs whose outputs `make test` compares; `make check` does that with those of all runs."""
NOT_OF_RUNS = {"logs"}
"""Folders of other tests."""


def printed(command: str, *arguments: str) -> str:
    """All that a command prints, and its exit code if that is not 0."""
    code, out, err = runner(command)(*arguments)
    return trimmed(f"{out}{err}{f'exit code {code}' if code else ''}")


def told(command: str, runs: Sequence[str]) -> Any:
    """The JSON that a command prints; where it has none, what it says instead."""
    code, out, err = runner(command)(*runs, "--json")
    said = {"exit code": code, "stderr": err}
    return said if code else {**json.loads(out), **({"stderr": err} if err else {})}


def page(runs: Sequence[str]) -> str:
    """The text of the page; where there is none, what the command says instead."""
    said = printed("report", *runs, "--output", "page.html")
    path = Path("page.html")
    return text_of_page(path.read_text(encoding="utf-8")) if path.exists() else said


OUTPUTS: dict[str, Callable[[Sequence[str]], Any]] = {
    "screen.txt": lambda runs: printed("compare", *runs),
    "full.txt": lambda runs: printed("compare", *runs, "--full"),
    "compare.json": lambda runs: told("compare", runs),
    "whatif.json": lambda runs: told("whatif", runs[-1:]),
    "page.txt": page,
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.check) for name in RECORDED],
)
def test_what_is_said_of_a_recorded_run(
    name: str, output: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = laid_out(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    golden(f"{name}/{output}", OUTPUTS[output](runs))


def test_every_output_is_of_a_run() -> None:
    """A run that goes takes its files with it."""
    assert {path.name for path in GOLDEN.iterdir() if path.is_dir()} == {*RECORDED, *NOT_OF_RUNS}
