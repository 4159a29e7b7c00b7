"""What a report says of a run, section by section."""

from __future__ import annotations

import pytest

from loadeval.data.lines import CodeSamples
from loadeval.data.log import read_run
from loadeval.report.blocks import Chart, Table, Text
from loadeval.report.build import result_of, step_in_short, the_step, timeline
from tests.builder import MS, alternating
from tests.runs import DEMO


@pytest.mark.parametrize(
    ("wait", "looks", "says"),
    [(0.1, 30, True), (2, 30, True), (0.1, 10, False), (3, 30, False)],
    ids=["loading costs little", "under a fifth", "too few looks", "loading costs much"],
)
def test_what_a_step_is_stands_on_the_screen(wait: float, looks: int, says: bool) -> None:
    """Where loading costs under a fifth, with what the lines call."""
    seen = [
        ("train.py:9 main > optimizer.step", "train.py:7 main > loss.backward")[n % 3 < 1]
        for n in range(looks)
    ]
    code = tuple(
        CodeSamples(None, {place.partition(" > ")[0]: 1}, {}, {place: 1}, "step", (n + 1) * 70 * MS)
        for n, place in enumerate(seen)
    )
    r = result_of(alternating(wait=wait, spread=0.01, code=code))
    text = "A step: 66.7% optimizer.step (train.py:9), 33.3% loss.backward (train.py:7)."
    assert step_in_short(r).blocks == ([Text(text)] if says else [])
    assert [type(block) for block in the_step(r).blocks] == [Table if looks > 10 else Text]


def test_no_ideal_batch_is_drawn_that_waits_until_its_block_is_loaded() -> None:
    (waits,) = (
        each for each in timeline(result_of(read_run(DEMO))).blocks if isinstance(each, Chart)
    )
    assert waits.tables["batches"].where(arm=1).wait_ns.max() < MS
