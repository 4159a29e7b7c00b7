"""Block lines that Polars decodes all at once are what they are one by one, or left to that."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadeval.errors import RunLogError
from loadeval.runlog import reader
from loadeval.runlog.block_lines import decoded_blocks
from loadeval.runlog.codec import RunEnd, encode, to_text
from loadeval.runlog.fields import LARGEST
from loadeval.runlog.folder import read_batches
from loadeval.runlog.model import Block, EpochEnd, Steps
from tests.synchronous import MS, runs_of, train

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadeval.runlog.codec import Line

HEADER = to_text(encode(runs_of(train(np.full((1, 2), MS)))[0].header))
LINE = (
    '{"type":"block","epoch":0,"arm":"real","request_ns":[0,9],"wait_ns":[3,4],"step_ns":[6,null],'
    '"samples":[4,4],"nbytes":null,"pair":null}\n'
)


def block(first_ns: int, count: int = 2, epoch: int = 0, pair: int | None = None) -> Block:
    """Of batches that take 10 ns each; the step of the last is open."""
    request_ns = np.arange(first_ns, first_ns + 10 * count, 10)
    step_ns = np.full(count, 7)
    step_ns[-1] = -1
    samples = np.full(count, 4)
    return Block(
        epoch, "real", request_ns, np.full(count, 3), step_ns, samples, np.full(count, -1), pair
    )


def as_texts(*lines: Line) -> list[str]:
    return [to_text(encode(line)) for line in lines]


def decoded(*texts: str) -> dict[int, Block | None] | None:
    return decoded_blocks({place: text.encode() for place, text in enumerate(texts)})


def outcome(path: Path) -> tuple[Any, ...]:
    """All that reading it gives, or its error."""
    try:
        run = read_batches(path)
    except RunLogError as error:
        return (str(error),)
    columns = [getattr(run.steps, one.name).tolist() for one in fields(Steps)]
    return (*columns, run.ends, run.events, run.notes, run.closed)


def both_ways(path: Path, texts: Sequence[str]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    path.write_text("".join(texts), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader, "decoded_blocks", lambda _: None)
        plain = outcome(path)
    return outcome(path), plain


def test_lines_that_follow_on_one_another_are_one_block() -> None:
    found = decoded(*as_texts(block(0), block(20), block(40, 1)))
    assert found is not None
    assert list(found) == [0, 1, 2]
    one = found[0]
    assert isinstance(one, Block)
    assert one.request_ns.tolist() == [0, 10, 20, 30, 40]
    assert one.step_ns.tolist() == [7, -1, 7, -1, -1]
    assert one.nbytes.tolist() == [-1] * 5
    assert (found[1], found[2]) == (None, None)


@pytest.mark.parametrize("more", [{"epoch": 1}, {"pair": 0}])
def test_another_epoch_or_pair_is_another_block(more: dict[str, int]) -> None:
    found = decoded(*as_texts(block(0), block(20, **more)))
    assert found is not None
    assert [one and len(one) for one in found.values()] == [2, 2]


def test_a_line_of_another_type_between_them_ends_a_block() -> None:
    first, second = as_texts(block(0), block(20))
    found = decoded_blocks({1: first.encode(), 3: second.encode()})
    assert found is not None
    assert [one and len(one) for one in found.values()] == [2, 2]


def test_no_lines_are_no_blocks() -> None:
    assert decoded() == {}


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ('"epoch":0', '"epoch":0.5'),
        ('"epoch":0', '"epoch":true'),
        ('"epoch":0', '"epoch":-1'),
        ('"epoch":0', '"epoch":"0"'),
        ('"epoch":0', '"epoch":0,"epoch":1'),
        ('"pair":null', '"pair":null,"more":1'),
        (',"pair":null', ""),
        ('"arm":"real"', '"arm":"other"'),
        ("[0,9]", "9"),
        ("[0,9]", "null"),
        ("[0,9]", "[0,9.0]"),
        ("[0,9]", "[0,null]"),
        ("[0,9]", "[0,09]"),
        ("[0,9]", f"[0,{LARGEST + 1}]"),
        ("[0,9]", "[0,9,18]"),
        ("[4,4]", "[4]"),
        ("[4,4]", "[]"),
        ("}\n", "} x\n"),
        ('"real"', '"réal"'),
    ],
)
def test_a_line_that_is_not_as_written_is_left_to_the_decoder(
    tmp_path: Path, written: str, instead: str
) -> None:
    """Polars alone would take most of these for something else."""
    line = LINE.replace(written, instead)
    assert line != LINE
    assert decoded(LINE, line) is None
    found, plain = both_ways(tmp_path / "run.jsonl", [HEADER, line])
    assert found == plain


def test_text_that_is_no_utf_8_is_left_to_the_decoder() -> None:
    assert decoded_blocks({0: LINE.encode().replace(b"real", b"r\xff")}) is None


def test_without_polars_nothing_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    assert decoded(LINE) is None


def test_a_block_that_goes_back_in_time_is_told_with_its_line(tmp_path: Path) -> None:
    """It is as written, but not in order."""
    texts = [HEADER, *as_texts(block(0), block(20), block(30))]
    found, plain = both_ways(tmp_path / "run.jsonl", texts)
    assert found == plain
    assert "line 4 goes back in time" in plain[0]


def test_a_log_that_is_cut_off_in_a_block(tmp_path: Path) -> None:
    texts = [HEADER, *as_texts(block(0), block(20))]
    found, plain = both_ways(tmp_path / "run.jsonl", [*texts, texts[-1][:40]])
    assert found == plain
    assert "line 4 is cut off" in str(plain)


@st.composite
def logs(draw: st.DrawFn) -> list[str]:
    """Mostly right ones, some with a byte too many, lost or changed, or a line moved."""
    at_ns, batches = 0, 0
    lines: list[Line] = []
    for epoch in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(0, 4))):
            count = draw(st.integers(1, 3))
            lines.append(block(at_ns, count, epoch, draw(st.sampled_from([None, 0, 1]))))
            at_ns += 10 * count
            batches += count
        if draw(st.booleans()):
            lines.append(EpochEnd(epoch, "exhausted", at_ns, 1))
    texts = [HEADER, *as_texts(*lines, RunEnd(batches))]
    for _ in range(draw(st.integers(0, 2))):
        which = draw(st.integers(0, len(texts) - 1))
        at = draw(st.integers(0, len(texts[which])))
        change = draw(st.sampled_from(["", "0", "1", ",", "-", "null", "]", "\n", ".5", " "]))
        removed = draw(st.integers(0, 2))
        texts[which] = texts[which][:at] + change + texts[which][at + removed :]
    if draw(st.booleans()):
        texts.insert(draw(st.integers(0, len(texts))), draw(st.sampled_from(texts)))
    return texts


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts=logs())
def test_any_log_is_read_alike_with_polars_and_without(tmp_path: Path, texts: list[str]) -> None:
    """Its figures, its notes and its errors."""
    found, plain = both_ways(tmp_path / "run.jsonl", texts)
    assert found == plain
