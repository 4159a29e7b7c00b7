"""What is found first in a real program is its fault, and in its healthy twin nothing is.

One program for each cause; `make faults` runs all of them.
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

    from tests.faults.programs import Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

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


@pytest.mark.by_the_clock
@EACH
def test_the_fault_is_found_first(
    program: Program, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The fault is named by its rule, and by the name of what is slow or is to be changed."""
    if len(os.sched_getaffinity(0)) < program.fault_cpus:
        pytest.skip(f"with fewer than {program.fault_cpus} CPUs the fault costs next to nothing")
    findings = measured(program, program.faulty, tmp_path_factory.mktemp("training"))
    assert is_named(program, findings), (program.cause, findings)


@pytest.mark.by_the_clock
@EACH
def test_nothing_is_found_in_the_twin(
    program: Program, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It would be told to change what is well."""
    if len(os.sched_getaffinity(0)) < program.cpus:
        pytest.skip(
            f"with fewer than {program.cpus} CPUs it is not healthy: they are what it lacks"
        )
    findings = measured(program, program.healthy, tmp_path_factory.mktemp("training"))
    assert is_nothing_found(findings), findings
