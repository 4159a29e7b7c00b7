"""What a report says of a run, section by section."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadeval.data.log import read_run
from loadeval.report.blocks import Text
from loadeval.report.build import inside, result_of, what_to_do
from tests.runs import DEMO, SPDL


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("the CPUs", "After that the CPUs are the limit: "),
        ("the training process", "After that the training process is the limit: "),
    ],
)
def test_the_limit_that_is_left_is_a_sentence(limit: str, says: str) -> None:
    """It agrees with one thing, or several."""
    r = result_of(read_run(DEMO))
    r = replace(r, diagnosis=replace(r.diagnosis, limit=limit))
    (said,) = [block.text for block in what_to_do(r).blocks if isinstance(block, Text)]
    assert said.startswith(says)


def test_a_loader_with_operators_does_not_lack_stages() -> None:
    """SPDL's are known in place of stages, and nothing is said to be not measured."""
    assert not inside(result_of(read_run(SPDL))).blocks
