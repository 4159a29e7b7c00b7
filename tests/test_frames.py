"""What an instruction calls that is not written in Python, and how long code may keep the lock."""

from __future__ import annotations

import dis
import json
import sys
from typing import Any

import numpy as np
import pytest

from loadeval.frames import called_by, short_switches


@pytest.mark.skipif(sys.version_info < (3, 11), reason="instructions have no columns")
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda: json.loads("[1, 2]"), "json.loads"),
        (
            lambda line: json.loads(  # noqa: PLW0108 - it is what calls
                line
            ),
            "json.loads",
        ),
        (lambda line: len(line), "len"),  # noqa: PLW0108 - it is what calls
        (lambda lines: lines[0].strip(), "strip"),
        (lambda path: np.load(path), "numpy.load"),  # noqa: PLW0108 - it is what calls
        (lambda line: line.strip("\n"), ""),
        (lambda number: number * number, ""),
    ],
)
def test_what_an_instruction_calls(function: Any, name: str) -> None:
    code = function.__code__
    offsets = {each.opname: each.offset for each in dis.get_instructions(code)}
    offset = offsets.get("CALL") or offsets["BINARY_OP"]
    assert called_by(code, offset, function.__globals__) == name


def loop(batch: Any) -> None:
    for _ in batch.cursor():
        pass


@pytest.mark.skipif(sys.version_info < (3, 11), reason="instructions have no columns")
def test_a_loop_calls_what_it_goes_through() -> None:
    called = {
        each.opname: called_by(loop.__code__, each.offset, {})
        for each in dis.get_instructions(loop.__code__)
    }
    assert (called["FOR_ITER"], called["JUMP_BACKWARD"]) == ("batch.cursor", "")


def test_what_nobody_can_see_is_not_told() -> None:
    code = compile("len('a')", "<nowhere>", "eval")
    assert called_by(code, 0, {}) == ""


def test_the_switch_interval_stays_what_a_user_has_set_meanwhile() -> None:
    before = sys.getswitchinterval()
    with short_switches():
        sys.setswitchinterval(0.002)
    assert sys.getswitchinterval() == pytest.approx(0.002)
    sys.setswitchinterval(before)
