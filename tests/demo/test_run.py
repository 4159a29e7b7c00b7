"""A small demo, run for real."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.data.blocks import block_for
from loadeval.data.log import read_run
from loadeval.demo.run import BATCH_SIZE, EPOCHS, PHOTOGRAPHS, DemoResult, run_demo
from loadeval.errors import UsageError
from loadeval.estimate.gap import gap

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.data.run import Run

# From Python 3.12 on, forking a process in which torch has threads gives this warning.
pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
    pytest.mark.check,
]


@dataclass
class Demo:
    folder: Path
    stages: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    result: DemoResult = field(init=False)

    def __post_init__(self) -> None:
        self.result = run_demo(self.folder, self.heard, photographs=640, epochs=4)
        self.run: Run = read_run(self.result.run_log)

    def heard(self, stage: str, done: int, total: int) -> None:
        self.stages.setdefault(stage, []).append((done, total))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return Demo(tmp_path_factory.mktemp("demo"))


def test_files(demo: Demo) -> None:
    """It writes one run log and a figure, beside the photographs."""
    written = {path.name for path in demo.folder.iterdir()}
    assert written == {"photographs", "run.jsonl", "comparison.png"}
    assert demo.result.figure.read_bytes().startswith(b"\x89PNG")


def test_the_run_is_complete(demo: Demo) -> None:
    """The log is closed, every epoch ended by itself, and nothing had to be said about it."""
    assert demo.run.closed
    assert not demo.run.notes
    assert not demo.run.events
    assert [end.cause for end in demo.run.ends] == ["exhausted"] * 4


def test_every_batch_is_served_once(demo: Demo) -> None:
    """Each epoch has all its batches, whichever arm served them, in one size."""
    steps = demo.run.steps
    assert np.bincount(steps.epoch).tolist() == [20] * 4
    assert set(steps.samples.tolist()) == {32}
    assert len(set(steps.nbytes.tolist())) == 1


def test_it_has_a_speedup(demo: Demo) -> None:
    """Of real and of free loading, by a loader with two workers that is timed by itself too."""
    estimate = gap(demo.run)
    assert estimate.speedup is not None
    assert estimate.pairs is not None
    assert estimate.pairs >= 2
    assert demo.run.header.loader.workers == 2
    assert sum(prefetch.timed for prefetch in demo.run.prefetches) > 0


def test_a_whole_demo_has_pairs_enough() -> None:
    """At least 512 photographs, and batches for ten pairs: a warm-up of 5 and 1, blocks of 10."""
    assert PHOTOGRAPHS >= 512
    batches = PHOTOGRAPHS // BATCH_SIZE * EPOCHS
    assert batches / (5 + 1 + 2 * block_for(4)) >= 10


def test_photographs_that_cannot_be_written(tmp_path: Path) -> None:
    """A file where a class's folder should be is one clear error."""
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / "upright").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        run_demo(tmp_path, photographs=4)
