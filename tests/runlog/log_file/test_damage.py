"""Whatever a file holds, reading it gives a run or one RunLogError, and passes over nothing."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.estimate.summary import summarise
from loadeval.errors import RunLogError
from loadeval.runlog.log_file.reader import read_run
from loadeval.runlog.log_file.writer import metrics_of, write_metrics

if TYPE_CHECKING:
    from pathlib import Path

JUNK = [None, True, -1, 0, 1, 1.5, 2**63, float("nan"), "", "real", [], [-1, 0], {}, {"a": [1]}]


def read_or_refused(path: Path, content: bytes) -> bool:
    """Whether `content` is read; what is read can be used. Anything but RunLogError is raised."""
    path.write_bytes(content)
    try:
        run = read_run(path)
    except RunLogError as error:
        assert str(error).startswith(str(path))  # noqa: PT017 - the other case is as good
        return False
    assert len(metrics_of(run).get("batch_times", [])) in {len(run.steps), 0}
    assert summarise(run).batches == run.batches
    return True


def refusal(path: Path, content: bytes | None = None) -> str:
    """What is said of a file at `path` with `content`, after its path."""
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RunLogError) as caught:
        read_run(path)
    return str(caught.value).removeprefix(f"{path}, ")


def test_a_log_cut_anywhere_is_read_or_refused(log: Path, tmp_path: Path) -> None:
    """A cut in the first line is an error; after it, all that came before the cut is read."""
    content = log.read_bytes()
    header = content.index(b"\n")
    path = tmp_path / "cut.jsonl"
    for length in [*range(0, header, 20), *range(header, len(content) - 1)]:
        assert read_or_refused(path, content[:length]) is (length >= header)
        if length >= header:
            lines = content[:length].splitlines()
            cut_off = content[length - 1 : length + 1].count(b"\n") == 0
            kinds = [json.loads(line)["type"] for line in (lines[:-1] if cut_off else lines)]
            served = [kind for kind in kinds if kind in {"block", "epoch"}]
            within_an_epoch = served[-1:] != ["epoch"]
            notes = read_run(path).notes
            assert any("is cut off" in note for note in notes) is cut_off
            assert any("no end line" in note for note in notes) is within_an_epoch


def test_a_log_with_a_changed_byte_is_read_or_refused(log: Path, tmp_path: Path) -> None:
    content = log.read_bytes()
    chosen = random.Random(0)
    for _ in range(500):
        damaged = bytearray(content)
        damaged[chosen.randrange(len(content))] = chosen.randrange(256)
        read_or_refused(tmp_path / "changed.jsonl", bytes(damaged))


def variants(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """`fields` with each value replaced by each piece of junk, or left out."""
    changed = [{**fields, name: value} for name in fields for value in JUNK]
    changed += [{key: fields[key] for key in fields if key != name} for name in fields]
    for name, values in fields.items():
        if isinstance(values, list):
            changed += [{**fields, name: [*values[:-1], value]} for value in JUNK]
        if isinstance(values, dict):
            changed += [{**fields, name: inner} for inner in variants(values)]
    return changed


def test_a_metrics_file_with_a_changed_value_is_read_or_refused(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_metrics(read_run(log), path)
    content = json.loads(path.read_text())
    dali = {name: value for name, value in content.items() if name != "run"}
    for fields in [*variants(content), *variants(dali)]:
        read_or_refused(path, json.dumps(fields).encode())


def test_lines_that_are_left_out_are_missed(log: Path, tmp_path: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    path = tmp_path / "lines.jsonl"
    for number, line in enumerate(lines):
        twice = b"".join([*lines[: number + 1], line, *lines[number + 1 :]])
        without = b"".join([*lines[:number], *lines[number + 1 :]])
        harmless = b'"event"' in line or b'"epoch","' in line
        assert read_or_refused(path, twice) is (b'"event"' in line)
        assert read_or_refused(path, without) is (harmless or b'"end"' in line)


NOT_JSON = "line 1 is no line of a run log, which is JSON in UTF-8"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "line 1 is missing, where the header of a run log was expected"),
        (b'{"a": 1}', "line 1 has None as 'type'"),
        (b"[1, 2]\n", "line 1 is not a JSON object"),
        (b"hello\n", NOT_JSON),
        (b"\n", NOT_JSON),
        (b"\x89PNG\r\n\x1a\n\x00", NOT_JSON),
        (b"\xff\xfe{\x00", NOT_JSON),
        (b'{"type":"header"', NOT_JSON),
        (b"[" * 100_000, NOT_JSON),
        (b'{"type":' + b"[" * 100_000, NOT_JSON),
        (b'{\n  "name": "other"\n}\n', NOT_JSON),
        (b"NaN1", NOT_JSON),
        (b"1" * 5_000, NOT_JSON),
    ],
    ids=lambda value: str(value[:20]),
)
def test_something_else_than_a_log(tmp_path: Path, content: bytes, said: str) -> None:
    reason = refusal(tmp_path / "run.jsonl", content)
    assert reason.startswith(said)
    assert reason.endswith("and read it with the loadeval that did")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    said = refusal(tmp_path / "none.jsonl")
    assert re.match("cannot read .*none.jsonl: No such file or directory; .*save_metrics", said)
    assert "Is a directory" in refusal(tmp_path)


def test_damage_is_told_with_its_line_and_a_way_out(log: Path) -> None:
    """What came before is good; only the beginning of a line may stand without its end."""
    lines = log.read_bytes().splitlines(keepends=True)
    for content in ([*lines[:2], b"garbage\n", *lines[2:]], [*lines[:2], b"garbage"]):
        said = refusal(log, b"".join(content))
        assert said.startswith("line 3 is no line of a run log")
        assert said.endswith("cut off before this line, it can still be read")
    log.write_bytes(b"".join(lines[:2]))
    assert len(read_run(log).steps) > 0


def test_a_log_has_one_header(log: Path) -> None:
    header, block, *_ = log.read_bytes().splitlines(keepends=True)
    assert refusal(log, header + header).startswith("line 2 is out of order: one header")
    assert refusal(log, block + header).startswith("line 1 is out of order: one header")


@pytest.mark.parametrize("line", [b'{"type":"event","time_ns":1,"message":""}\n', b"\n", b"{"])
def test_nothing_follows_the_end_line(log: Path, line: bytes) -> None:
    content = log.read_bytes()
    number = len(content.splitlines()) + 1
    assert refusal(log, content + line).startswith(f"line {number} ")


def test_the_end_line_counts(log: Path) -> None:
    content = log.read_bytes().replace(b'"batches":5', b'"batches":7')
    said = refusal(log, content)
    assert "says that the run had 7 batches, where 5 were expected" in said


def block(epoch: int, request_ns: list[int], wait_ns: list[int]) -> bytes:
    fields: dict[str, Any] = {"type": "block", "epoch": epoch, "arm": "real", "pair": None}
    fields |= {"request_ns": request_ns, "wait_ns": wait_ns}
    fields |= dict.fromkeys(("step_ns", "samples", "nbytes"))
    return json.dumps(fields).encode() + b"\n"


def epoch_end(epoch: int, cause: str, request_ns: int | None, wait_ns: int | None) -> bytes:
    fields = {"type": "epoch", "epoch": epoch, "cause": cause, "request_ns": request_ns}
    return json.dumps({**fields, "wait_ns": wait_ns, "error": None}).encode() + b"\n"


def test_time_does_not_go_back(log: Path) -> None:
    """No request of an epoch comes before the last delivery, nor does the epoch's end."""
    header = log.read_bytes().splitlines(keepends=True)[0]
    first = block(7, [0, 20], [10, 10])
    end = epoch_end(7, "exhausted", 29, 0)
    for lines in ([block(7, [0, 9], [10, 10])], [first, block(7, [29], [1])], [first, end]):
        said = refusal(log, b"".join([header, *lines]))
        assert said.startswith(f"line {len(lines) + 1} goes back in time")
    others = [first, block(8, [3], [1]), block(7, [30], [0]), block(7, [], [])]
    log.write_bytes(b"".join([header, *others]))
    assert len(read_run(log).steps) == 4


def test_an_epoch_ends_once(log: Path) -> None:
    header = log.read_bytes().splitlines(keepends=True)[0]
    end = epoch_end(7, "broken off", None, None)
    for line in (end, block(7, [50], [1])):
        said = refusal(log, header + end + line)
        assert said.startswith("line 3 is of epoch 7, where none was expected after its epoch line")
