"""The kit that measures on a GPU, tried without one: what goes wrong in it, and its stand-in."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import torch

from bench.gpu import planted, results, run
from bench.gpu.claims import AS_CUDA, IDLE, IDLE_HIDDEN, PARTS, Part
from bench.gpu.device import STAND_IN
from bench.gpu.page import NEVER_MEASURED, page
from bench.gpu.results import ERROR, Result

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="module")
def signals() -> Iterator[None]:
    """What handled SIGTERM handles it afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


CLAIMS = list(dict.fromkeys(claim for part in PARTS for claim in part.claims))


def rows(text: str) -> dict[str, str]:
    """The outcome of each claim by its text, from the page's first table."""
    table = text.partition("|---|---|---|---|\n")[2].partition("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in table.strip().splitlines()]
    return {text: outcome for _, text, _, outcome in cells}


def result_of(claim: str, *, held: bool | None) -> Result:
    return Result(claim, "a case", "1 ms", "2 ms", held, (1.0, 3.0), "a GPU", "580", {}, "today")


def test_a_claim_without_a_result_was_never_measured() -> None:
    """Nor was one whose only result says why it could not be measured."""
    assert rows(page([])) == {claim.text: NEVER_MEASURED for claim in CLAIMS}
    assert rows(page([result_of(IDLE.name, held=None)]))[IDLE.text] == NEVER_MEASURED


def test_a_claim_holds_where_each_measurement_does() -> None:
    held, missed = (result_of(IDLE.name, held=value) for value in (True, False))
    assert rows(page([held, held]))[IDLE.text] == "held (2)"
    text = page([held, missed, result_of(ERROR, held=False)])
    assert rows(text)[IDLE.text] == "did not hold (1 of 2)"
    assert "| a case | 1 ms | 2 ms | 1 to 3 | **did not hold** |" in text
    assert "## Errors of tests" in text


def test_the_page_is_of_the_committed_results() -> None:
    assert run.PAGE.read_text() == page(results.read(results.FILE))


def test_every_part_is_there() -> None:
    """Each has a name of its own, and takes a minute at most."""
    names = [(part.file, part.keyword) for part in PARTS]
    assert len(set(names)) == len(names)
    assert all(Path(__file__).with_name(part.file).exists() for part in PARTS)
    assert max(part.limit_s for part in PARTS) <= 60


def test_a_line_that_a_stop_has_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    result = result_of(IDLE.name, held=True)
    path.write_text(result.line() + "\n" + result.line()[:40])
    assert results.read(path) == [result]


@pytest.mark.check
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_every_test_is_skipped(tmp_path: Path) -> None:
    """The reason is told; nothing is measured, and the page tells so."""
    environment = {name: value for name, value in os.environ.items() if name != STAND_IN}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "-q", "-n0"]
    child = subprocess.run(
        [*command, str(Path(__file__).parent), "--deselect", "bench/gpu/test_kit.py"],
        cwd=run.ROOT,
        env=environment | {results.RESULTS: str(tmp_path / "results.jsonl")},
        capture_output=True,
        text=True,
        check=False,
    )
    *skipped, summary = [line for line in child.stdout.splitlines() if "skipped" in line.lower()]
    assert skipped, child.stdout
    assert all("no GPU: torch" in line for line in skipped), child.stdout
    assert re.fullmatch(r"\d+ skipped.* in .*", summary), summary
    assert not results.read(tmp_path / "results.jsonl")


@pytest.mark.check
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_run_without_a_gpu_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes the page of the results that there are; there is nothing wrong with that."""
    monkeypatch.setattr(results, "FILE", tmp_path / "results.jsonl")
    monkeypatch.setattr(run, "PAGE", tmp_path / "gpu.md")
    assert run.main([], [planted.WRONG]) == 0
    assert run.PAGE.read_text() == page([])
    assert not results.FILE.exists()


class Measured:
    """A run of the kit with the stand-in, of parts that hold and of some that go wrong."""

    parts = (
        Part("test_idle.py", 60, (IDLE_HIDDEN,), "hidden"),
        planted.WRONG,
        planted.ABORTING,
        planted.HANGING,
        Part("test_semantics.py", 60, (AS_CUDA,)),
    )

    def __init__(self, folder: Path) -> None:
        self.page = folder / "gpu.md"
        log = folder / "results.jsonl"
        options = ["--stand-in", "--results", str(log), "--page", str(self.page)]
        self.code = run.main(options, self.parts)
        self.results = results.read(log)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Made once."""
    return Measured(tmp_path_factory.mktemp("measured"))


@pytest.mark.check
def test_all_hold_but_the_planted_claim(measured: Measured) -> None:
    """The stand-in is as CUDA is, a wrong claim does not hold, and a test's error is told."""
    missed = [(result.claim, result.case) for result in measured.results if result.held is False]
    assert missed == [(IDLE.name, "planted"), (ERROR, "test_raises")]
    held = [result.claim for result in measured.results if result.held]
    assert held.count(IDLE_HIDDEN.name) == 2
    assert held.count(AS_CUDA.name) == 10
    assert measured.code == 1
    text = measured.page.read_text()
    assert rows(text)[IDLE_HIDDEN.text] == "held (2)"
    assert rows(text)[IDLE.text] == "did not hold (1 of 4)"


@pytest.mark.check
def test_a_part_that_goes_wrong_ends_no_other(measured: Measured) -> None:
    """One that crashes, hangs or raises keeps what it has noted, and those after it run."""
    cases = [result.case for result in measured.results if result.claim == IDLE.name]
    assert cases == ["planted", *[planted.BEFORE] * 3]
    assert measured.results[-1].claim == AS_CUDA.name


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.check
def test_a_run_that_is_stopped_keeps_what_it_has(tmp_path: Path) -> None:
    """The run says so; what the part has started ends too."""
    log, shown = tmp_path / "results.jsonl", tmp_path / "gpu.md"
    options = ["--stand-in", "--results", str(log), "--page", str(shown)]
    code = (
        "from bench.gpu import planted, run; import sys; "
        f"sys.exit(run.main({options!r}, [planted.HANGING, planted.WRONG]))"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=run.ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        process = next(line for line in child.stdout if line.startswith("process"))
        next(line for line in child.stdout if line.startswith("held"))
        child.send_signal(signal.SIGTERM)
        printed = child.stdout.read()
    assert child.returncode == 1
    assert [result.case for result in results.read(log)] == [planted.BEFORE]
    assert rows(shown.read_text())[IDLE.text] == "held (1)"
    assert "planted.py hangs: interrupted" in printed
    assert not is_running(int(process.split()[1]))
