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
@pytest.mark.parametrize("outcomes", ["++", "-++++-++", "+-+-+-++-"])
def test_speed(outcomes):
    runs.append(outcomes)
    assert outcomes[runs.count(outcomes) - 1] == "+"

@pytest.mark.by_the_clock(runs=1, at_least=1)
def test_once():
    runs.append("once")
    assert runs.count("once") == 2

@pytest.mark.by_the_clock
def test_error():
    runs.append("error")
    assert runs.count("error") == 1
    raise ValueError("no measurement")

def test_another():
    assert not runs
"""


def test_it_runs_until_it_is_decided_and_its_count_is_told(pytester: pytest.Pytester) -> None:
    """Both of two runs must hold, else six of nine; an error and another test run once."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmarkers = by_the_clock\n    slow\n    timeout\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=2, failed=4)
    result.stdout.fnmatch_lines(
        [
            "* by the clock *",
            "0 of 1 runs held (at least 1 of 1 must): *once",
            "2 of 2 runs held (at least 2 of 2 must): *speed[[]++]",
            "5 of 9 runs held (at least 6 of 9 must): *speed[[]+-+-+-++-]",
            "6 of 8 runs held (at least 6 of 9 must): *speed[[]-++++-++]",
        ]
    )
    result.stdout.fnmatch_lines(["*ValueError: no measurement"])
