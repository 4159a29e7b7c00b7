"""How a test that is marked `by_the_clock` is run and reported."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

CONFTEST = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")
TESTS = """
import pytest

runs = []

@pytest.mark.by_the_clock
@pytest.mark.parametrize("outcomes", ["held held", "failed held held", "held failed failed"])
def test_speed(outcomes):
    runs.append(outcomes)
    assert outcomes.split()[runs.count(outcomes) - 1] == "held"

@pytest.mark.by_the_clock
def test_error():
    runs.append("error")
    assert runs.count("error") == 1
    raise ValueError("no measurement")

def test_another():
    assert not runs
"""


def test_it_runs_until_it_is_decided_and_its_count_is_told(pytester: pytest.Pytester) -> None:
    """Two runs of three must hold; an error and a test of another kind are not tried again."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmarkers = by_the_clock\n    slow\n    timeout\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(
        [
            "* by the clock *",
            "1 of 3 runs held (at least 2 of 3 must): *speed[[]held failed failed]",
            "2 of 2 runs held (at least 2 of 3 must): *speed[[]held held]",
            "2 of 3 runs held (at least 2 of 3 must): *speed[[]failed held held]",
        ]
    )
    result.stdout.fnmatch_lines(["*ValueError: no measurement"])
