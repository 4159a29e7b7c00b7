"""A small demo, run for real, and its photographs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from loadeval.data.log import read_run
from loadeval.demo.run import ROTATIONS, make_photographs, run_demo
from loadeval.errors import UsageError
from loadeval.estimate.gap import gap

# From Python 3.12 on, forking a process in which torch has threads gives this warning.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


def test_photographs_are_jpegs(tmp_path: Path) -> None:
    """Of about 500 pixels a side, no two the same, as many in the folder of each rotation."""
    paths = make_photographs(tmp_path, 12)
    for path in paths:
        with Image.open(path) as photograph:
            assert photograph.format == "JPEG"
            assert all(450 <= side <= 550 for side in photograph.size)
    assert Counter(path.parent.name for path in paths) == dict.fromkeys(ROTATIONS, 3)
    assert len({path.read_bytes() for path in paths}) == 12


def test_photographs_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / "upright").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        run_demo(tmp_path / "run.jsonl", photographs=4)


def test_every_batch_is_served_once(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    run_demo(log, photographs=64, epochs=3)
    run = read_run(log)
    assert (run.closed, run.notes, run.events) == (True, (), ())
    assert np.bincount(run.steps.epoch).tolist() == [16] * 3
    assert gap(run).speedup is not None
