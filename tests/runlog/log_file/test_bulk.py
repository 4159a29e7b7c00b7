"""Lines that are decoded many at once are what they are one by one, or left to the decoder."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadeval.errors import RunLogError
from loadeval.runlog.log_file import reader
from loadeval.runlog.log_file.bulk import decoded_lines
from loadeval.runlog.log_file.codec import RunEnd, encode, to_text
from loadeval.runlog.log_file.fields import LARGEST
from loadeval.runlog.log_file.reader import read_run
from loadeval.runlog.model import Block, EpochEnd, Event, Readings, Steps
from loadeval.runlog.run_folder.folder import read_batches
from tests.runs.given import block as block_of
from tests.runs.ranks import MS, runs_of, train

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadeval.runlog.log_file.codec import Line

HEADER = to_text(encode(runs_of(train(np.full((1, 2), MS)))[0].header))
LINE = (
    '{"type":"block","epoch":0,"arm":"real","request_ns":[0,9],"wait_ns":[3,4],"step_ns":[6,null],'
    '"samples":[4,4],"nbytes":null,"pair":null}\n'
)
READING = (
    '{"type":"readings","probe":"host","subject":"process","time_ns":[1,2],"values":'
    '{"cpu_cores":[null,0.5],"alive":[2.0,-1e-3]},"missing":null}\n'
)


def block(
    first_ns: int, count: int = 2, epoch: int = 0, pair: int | None = None, nbytes: int = -1
) -> Block:
    """A block of batches that take 10 ns each; the step of the last is open."""
    steps_ns = [7] * (count - 1) + [-1]
    requests_ns = range(first_ns, first_ns + 10 * count, 10)
    known = {"epoch": epoch, "samples": 4, "nbytes": nbytes}
    return block_of("real", 3, steps_ns, request_ns=requests_ns, pair=pair, **known)


def readings(time_ns: int, subject: str = "process", *names: str) -> Readings:
    values = {name: np.array([0.5 * time_ns, np.nan]) for name in names or ("cpu_cores",)}
    return Readings("host", subject, np.array([time_ns, time_ns + 1]), values)


def as_texts(*lines: Line) -> list[str]:
    return [to_text(encode(line)) for line in lines]


def decoded(*texts: str) -> dict[int, Block | Readings | None]:
    return decoded_lines([text.encode() for text in texts])


def lengths(*lines: Line) -> list[int | None]:
    """How many rows are decoded at the place of each; None where they are with an earlier one."""
    blocks = sorted(decoded(*as_texts(*lines)).items())
    return [None if line is None else len(line) for _, line in blocks]


def outcome(path: Path) -> tuple[Any, ...]:
    """All that reading it gives, or its error."""
    parts: list[Any] = []
    for read in (read_run, read_batches):
        try:
            run = read(path)
        except RunLogError as error:
            parts.append(str(error))
            continue
        parts += [getattr(run.steps, field.name).tolist() for field in fields(Steps)]
        parts += [run.ends, run.events, run.notes, run.closed]
        for reading in run.readings:
            values = {name: column.tolist() for name, column in reading.values.items()}
            parts += [
                reading.probe,
                reading.subject,
                reading.time_ns.tolist(),
                repr(values),
                reading.missing,
            ]
    return tuple(parts)


def both_ways(path: Path, texts: Sequence[str]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    path.write_text("".join(texts), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader, "decoded_lines", lambda _: {})
        one_by_one = outcome(path)
    return outcome(path), one_by_one


def test_lines_that_follow_on_one_another_are_one_block() -> None:
    lines = decoded(*as_texts(block(0), block(20), block(40, 1)))
    assert list(lines) == [0, 1, 2]
    joined = lines[0]
    assert isinstance(joined, Block)
    assert joined.request_ns.tolist() == [0, 10, 20, 30, 40]
    assert joined.step_ns.tolist() == [7, -1, 7, -1, -1]
    assert joined.nbytes.tolist() == [-1] * 5
    assert (lines[1], lines[2]) == (None, None)


def test_a_column_that_one_line_does_not_have_is_unknown_there() -> None:
    joined = decoded(*as_texts(block(0), block(20, 3, nbytes=8)))[0]
    assert isinstance(joined, Block)
    assert joined.nbytes.tolist() == [-1, -1, 8, 8, 8]


@pytest.mark.parametrize("more", [{"epoch": 1}, {"pair": 0}])
def test_another_epoch_or_pair_is_another_block(more: dict[str, int]) -> None:
    assert lengths(block(0), block(20, **more)) == [2, 2]


def test_readings_between_them_do_not_end_a_block() -> None:
    assert lengths(block(0), readings(1), block(20)) == [4, 2, None]


def test_any_other_line_between_them_ends_a_block() -> None:
    assert lengths(block(0), EpochEnd(1, "broken off"), block(20)) == [2, 2]


def test_readings_of_one_subject_are_one() -> None:
    lines = decoded(*as_texts(readings(1), readings(3, "workers"), readings(5)))
    joined = lines[0]
    assert isinstance(joined, Readings)
    assert (joined.probe, joined.subject, joined.missing) == ("host", "process", None)
    assert joined.time_ns.tolist() == [1, 2, 5, 6]
    assert np.array_equal(joined.values["cpu_cores"], [0.5, np.nan, 2.5, np.nan], equal_nan=True)
    assert [value and len(value) for value in lines.values()] == [4, 2, None]


def test_readings_of_other_quantities_are_others() -> None:
    more = readings(3, "process", "cpu_cores", "memory_bytes")
    assert lengths(readings(1), more, readings(5)) == [2, 2, 2]


def test_no_lines_are_nothing() -> None:
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
        ('"real"', '"r\x00al"'),
    ],
)
def test_a_block_that_is_not_as_written_is_left_to_the_decoder(
    tmp_path: Path, written: str, instead: str
) -> None:
    """Numbers alone would be taken for something else."""
    line = LINE.replace(written, instead)
    assert line != LINE
    assert decoded(LINE, line) == {}
    at_once, one_by_one = both_ways(tmp_path / "run.jsonl", [HEADER, line])
    assert at_once == one_by_one


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("[1,2]", "[1]"),
        ("[1,2]", "[1,-2]"),
        ("0.5", "1e999"),
        ("0.5", "-1e999"),
        ("0.5", "1" + 400 * "0"),
        ("0.5", "NaN"),
        ("0.5", "true"),
        ("0.5", '"0.5"'),
        ("0.5", "0.5,1"),
        ("0.5", "nul"),
        ("0.5", "-"),
        ('],"alive"', '],,"alive"'),
        ('],"alive"', ']"alive"'),
        ('"process"', '"pro\\u0063ess"'),
        ('"missing":null', '"missing":"why"'),
        ('"missing":null', '"missing":null,"more":1'),
        ('},"missing":null}\n', "}}\n"),
        ('"missing":null}\n', '"missing":null},{}\n'),
    ],
)
def test_readings_that_are_not_as_written_are_left_to_the_decoder(
    tmp_path: Path, written: str, instead: str
) -> None:
    line = READING.replace(written, instead)
    assert line != READING
    assert decoded(READING, line) == {}
    at_once, one_by_one = both_ways(tmp_path / "run.jsonl", [HEADER, READING, line])
    assert at_once == one_by_one


def test_one_kind_may_be_left_and_the_other_not() -> None:
    assert list(decoded(LINE, READING, LINE.replace("real", "other"))) == [1]
    assert list(decoded(LINE, READING.replace("0.5", "NaN"))) == [0]


def test_text_that_is_no_utf_8_is_left_to_the_decoder() -> None:
    assert decoded_lines([LINE.encode().replace(b"real", b"r\xff")]) == {}


def test_a_block_that_goes_back_in_time_is_told_with_its_line(tmp_path: Path) -> None:
    """It is as written, but not in order."""
    texts = [HEADER, *as_texts(block(0), block(20), block(30))]
    at_once, one_by_one = both_ways(tmp_path / "run.jsonl", texts)
    assert at_once == one_by_one
    assert "line 4 goes back in time" in at_once[0]


def test_a_log_that_is_cut_off_in_a_block(tmp_path: Path) -> None:
    texts = [HEADER, *as_texts(block(0), readings(1), block(20))]
    at_once, one_by_one = both_ways(tmp_path / "run.jsonl", [*texts, texts[-1][:40]])
    assert at_once == one_by_one
    assert any("line 5 is cut off" in note for note in read_run(tmp_path / "run.jsonl").notes)


def test_an_error_behind_blocks_that_were_joined_names_its_own_line(tmp_path: Path) -> None:
    """The second block was taken with the first; the readings between them go back in time."""
    texts = [HEADER, *as_texts(block(0), readings(20), block(20), readings(20))]
    at_once, one_by_one = both_ways(tmp_path / "run.jsonl", texts)
    assert at_once == one_by_one
    assert "line 5 goes back in time: it holds a reading" in at_once[0]


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
            for subject in draw(st.lists(st.sampled_from(["process", "workers"]), max_size=2)):
                names = draw(st.lists(st.sampled_from(["cpu_cores", "alive"]), unique=True))
                lines.append(readings(at_ns, subject, *names))
            if draw(st.integers(0, 5)) == 0:
                nothing = Readings("host", "process", np.empty(0, np.int64), {}, "no more")
                lines.append(nothing if draw(st.booleans()) else Event(at_ns, "x"))
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
def test_any_log_is_read_alike_many_at_once_and_one_by_one(
    tmp_path: Path, texts: list[str]
) -> None:
    """Its figures, its notes and its errors."""
    at_once, one_by_one = both_ways(tmp_path / "run.jsonl", texts)
    assert at_once == one_by_one
