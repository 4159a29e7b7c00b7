"""What is found first in a real program is its fault, and in its healthy twin nothing is.

One program for each cause; `make faults` runs all of them. Other work on the machine disturbs
both, so each has some attempts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch

from loadeval.analysis.rules.finding import Rule
from tests.faults.catalogue import PROGRAMS
from tests.faults.evaluation import is_named, is_nothing_found, measured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.programs import Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ATTEMPTS = 3
FIRST_OF_ITS_CAUSE = {
    program.cause: program for program in reversed(PROGRAMS) if program.costs_time
}
"""A leak costs no time, and takes a minute to see."""
EACH = pytest.mark.parametrize(
    "program", FIRST_OF_ITS_CAUSE.values(), ids=lambda program: str(program.cause)
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_each_cause_is_a_rule() -> None:
    """The catalogue calls them what the findings do."""
    assert {program.cause for program in PROGRAMS} <= {rule.value for rule in Rule}


@EACH
def test_the_fault_is_found_first(program: Program, tmp_path: Path) -> None:
    """By its rule, and by the name of what is slow or is to be changed."""
    said = []
    for attempt in range(ATTEMPTS):
        findings = measured(program.faulty, tmp_path / str(attempt))
        if is_named(program, findings):
            return
        said.append(findings)
    pytest.fail(f"{program.cause} was not found first in {said}")


@EACH
def test_nothing_is_found_in_the_twin(program: Program, tmp_path: Path) -> None:
    """It would be told to change what is well."""
    if len(os.sched_getaffinity(0)) < program.cpus:
        pytest.skip(
            f"with fewer than {program.cpus} CPUs it is not healthy: they are what it lacks"
        )
    said = []
    for attempt in range(ATTEMPTS):
        findings = measured(program.healthy, tmp_path / str(attempt))
        if is_nothing_found(findings):
            return
        said.append(findings)
    pytest.fail(f"found in a healthy program: {said}")
