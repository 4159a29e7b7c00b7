"""A small demo, run for real."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import torch

from loadeval.analysis.headroom import compare
from loadeval.demo.run import DemoResult, run_demo
from loadeval.errors import UsageError
from loadeval.record.metrics import read_run

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.record.model import Run

# From Python 3.12 on, forking a process in which torch has threads gives this warning.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


@dataclass
class Demo:
    folder: Path
    stages: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    result: DemoResult = field(init=False)

    def __post_init__(self) -> None:
        self.result = run_demo(self.folder, self.heard, photographs=320, epochs=2)
        self.real: Run = read_run(self.result.real_log)
        self.ideal: Run = read_run(self.result.ideal_log)

    def heard(self, stage: str, done: int, total: int) -> None:
        self.stages.setdefault(stage, []).append((done, total))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return Demo(tmp_path_factory.mktemp("demo"))


def test_files(demo: Demo) -> None:
    """It writes two run logs and a figure, beside the photographs."""
    written = {path.name for path in demo.folder.iterdir()}
    assert written == {"photographs", "real.jsonl", "ideal.jsonl", "comparison.png"}
    assert demo.result.figure.read_bytes().startswith(b"\x89PNG")


def test_both_sides_are_complete(demo: Demo) -> None:
    """Both logs are closed, and nothing had to be said about either."""
    for run in (demo.real, demo.ideal):
        assert run.closed
        assert not run.notes
        assert not run.events


def test_same_steps(demo: Demo) -> None:
    """Both sides take the same steps, on batches of the same size."""
    assert demo.real.steps.epoch.tolist() == demo.ideal.steps.epoch.tolist()
    assert set(demo.real.steps.samples.tolist()) == set(demo.ideal.steps.samples.tolist()) == {32}
    assert set(demo.real.steps.nbytes.tolist()) == set(demo.ideal.steps.nbytes.tolist())


def test_loader(demo: Demo) -> None:
    """Two worker processes load, and replay keeps batches of theirs."""
    assert demo.real.header.loader.workers == 2
    assert demo.ideal.header.loader == demo.real.header.loader
    assert demo.ideal.header.cache is not None


def test_can_be_compared(demo: Demo) -> None:
    """The two runs give a speed-up."""
    assert compare(demo.real, demo.ideal).speedup is not None


def test_progress(demo: Demo) -> None:
    """Every stage is told from its beginning to its end."""
    assert len(demo.stages) == 4
    for heard in demo.stages.values():
        assert [done for done, _ in heard] == sorted(done for done, _ in heard)
        assert heard[-1][0] == heard[-1][1]


def test_accuracy(demo: Demo) -> None:
    """The accuracy is a share."""
    assert 0 <= demo.result.accuracy <= 1


def test_threads_are_given_back(demo: Demo) -> None:
    """The caller's number of torch threads is as it was, after an error too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.raises(InterruptedError):
            run_demo(demo.folder.parent / "broken", _interrupt_training, photographs=32)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)


def test_photographs_that_cannot_be_written(tmp_path: Path) -> None:
    """A file where a class's folder should be is one clear error."""
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / "upright").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        run_demo(tmp_path, photographs=4)


def _interrupt_training(stage: str, _done: int, _total: int) -> None:
    if stage.startswith("Training"):
        raise InterruptedError
