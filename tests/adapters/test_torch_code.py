"""What a line of code calls that is not written in Python, by the instruction where it is."""

from __future__ import annotations

import dis
import json
import sys
from typing import Any

import numpy as np
import pytest

from loadeval.frames import called_by


def calling() -> object:
    return json.loads("[1, 2]")


def calling_far(line: str) -> object:
    return json.loads(
        line,
    )


def calling_a_name(line: list[int]) -> object:
    return len(line)


def calling_a_part(lines: list[str]) -> object:
    return lines[0].strip()


def calling_a_module_by_another_name(path: str) -> object:
    return np.load(path)


def calling_an_escape(line: str) -> object:
    return line.strip("\n")


def multiplying(number: int) -> object:
    return number * number


@pytest.mark.skipif(sys.version_info < (3, 11), reason="instructions have no columns")
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (calling, "json.loads"),
        (calling_far, "json.loads"),
        (calling_a_name, "len"),
        (calling_a_part, "strip"),
        (calling_a_module_by_another_name, "numpy.load"),
        (calling_an_escape, ""),
        (multiplying, ""),
    ],
)
def test_what_an_instruction_calls(function: Any, name: str) -> None:
    code = function.__code__
    kinds = "BINARY_OP" if function is multiplying else "CALL"
    offset = next(each.offset for each in dis.get_instructions(code) if each.opname == kinds)
    assert called_by(code, offset, function.__globals__) == name


def test_what_nobody_can_see_is_not_told() -> None:
    code = compile("len('a')", "<nowhere>", "eval")
    assert called_by(code, 0, {}) == ""
