"""Lines of a run log: what is written is read back equal."""

from __future__ import annotations

from typing import Any

import numpy as np

from loadeval.data.lines import Event, LoaderInfo, OperatorTimes, StageTimes, decode, encode, since
from tests.builder import make_header


def test_what_is_not_known_is_null_or_left_out() -> None:
    """Left out is a column that is unknown throughout."""
    line = StageTimes(3, [0, 1], fetch_ns=[5, None], transform_ns={"crop": [7.5, None]})
    text = encode(line)
    assert text == (
        b'{"type":"stages","epoch":3,"batch":[0,1],"fetch_ns":[5,null],'
        b'"transform_ns":{"crop":[7.5,null]}}\n'
    )
    assert decode(text) == line


def test_moments_count_from_the_start_of_the_run() -> None:
    """Durations stay as they are, and what is not known stays unknown."""
    line = StageTimes(0, [0, 1], requested_ns=[100, None], fetch_ns=[100, 100])
    assert since(line, 30) == StageTimes(0, [0, 1], requested_ns=[70, None], fetch_ns=[100, 100])
    moved = since(OperatorTimes(0, "decode", 1, 900, 500, 3), 400)
    assert (moved.time_ns, moved.elapsed_ns) == (500, 500)


def test_numbers_of_numpy_are_numbers() -> None:
    loader: Any = LoaderInfo("loader", workers=np.int64(3))  # type: ignore[arg-type]  # as told
    again: Any = decode(encode(make_header(loader=loader)))
    assert again.loader.workers == 3


def test_half_of_a_character_is_a_question_mark() -> None:
    """Python has it in the names of files that are not UTF-8, which errors tell."""
    again: Any = decode(encode(Event(3, "cannot read \udcff.jpg")))
    assert again.message == "cannot read ?.jpg"
