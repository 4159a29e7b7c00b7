"""What `make fuzz` found once: each of these ended in a traceback, or in an error without end."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from bench.fuzz.commands import COMMANDS, give
from bench.fuzz.readers import read_all_ways
from bench.fuzz.seeds import PROCESS, seeds
from loadeval.data.folder import processes_in
from loadeval.data.log import read_run
from loadeval.errors import RunLogError

if TYPE_CHECKING:
    from pathlib import Path

seed = cache(seeds)
DEPTHS = (50, 900, *range(930, 1_000), 100_000)
"""Around a thousand Python parses what it cannot show any more."""


def written(folder: Path, name: str, old: str = "", new: str = "") -> Path:
    """A file with `new` in the place of the first `old`."""
    content = seed()[name]
    assert old.encode() in content
    path = folder / name
    path.write_bytes(content.replace(old.encode(), new.encode(), 1))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(RunLogError) as caught:
        read_run(path)
    assert read_all_ways(path) == "refused"
    return str(caught.value)


def given_to_all(path: Path) -> None:
    for words in COMMANDS:
        give(words, [path], path.parent)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"rank":0', '"rank":[0]'),
        ('"rank":0', f'"rank":{"[" * 2_000}{"]" * 2_000}'),
        ('"optimizer_steps":14', '"optimizer_steps":{}'),
        ('"role":"training"', '"role":"other loader"'),
        ('"log":"log.jsonl"', '"log":"../log.jsonl"'),
        ('"log":"log.jsonl"', '"log":"/etc/passwd"'),
        ('"log":"log.jsonl"', '"log":""'),
        ('"loaders":[', '"loaders":["log.jsonl", '),
        ('"loaders":[', '"loaders":{}, "more":['),
    ],
)
def test_a_file_of_a_process_that_is_odd_is_passed_over(tmp_path: Path, old: str, new: str) -> None:
    """One that names a log in another folder, too."""
    assert len(processes_in(written(tmp_path, PROCESS).parent)) == 1
    assert read_all_ways(written(tmp_path, PROCESS, old, new)) == "read"
    assert processes_in(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("log.json", '"version":1'),
        ("log.jsonl", '"version":1'),
        ("log.jsonl", '"format":"loadeval-run"'),
        ("log.jsonl", '"warmup":1'),
    ],
)
def test_what_is_nested_deeply_is_refused(tmp_path: Path, name: str, old: str) -> None:
    """The refusal is one sentence, though it may be too deep to show."""
    key = old.partition(":")[0]
    for depth in DEPTHS:
        path = written(tmp_path, name, old, f"{key}:{'[' * depth}{']' * depth}")
        assert len(refusal(path)) < 600


@pytest.mark.parametrize("old", ['"batches":24', '"arm":"real"'])
def test_a_line_that_is_nested_deeply_is_left_out(tmp_path: Path, old: str) -> None:
    key = old.partition(":")[0]
    for depth in DEPTHS:
        path = written(tmp_path, "log.jsonl", old, f"{key}:{'[' * depth}{']' * depth}")
        assert read_all_ways(path) == "read"
        assert all(len(note) < 200 for note in read_run(path).notes)


@pytest.mark.parametrize("value", ["1e308", "-1e308", "1e101", "1.8e308", "NaN", "true"])
def test_more_than_any_reading_is_left_out(tmp_path: Path, value: str) -> None:
    """Sums of so much are infinite."""
    path = written(tmp_path, "log.jsonl", '"cpu_cores":[0.5', f'"cpu_cores":[{value}')
    assert read_run(path).notes[0].startswith("line 2 is no line of a run log")


def test_readings_that_are_there_twice_are_left_out(tmp_path: Path) -> None:
    """There may be two of one moment."""
    path = written(tmp_path, "log.jsonl")
    header, first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([header, first, first, *rest]))
    assert "readings of process go back in time" in read_run(path).notes[0]
    reading = json.loads(first) | {"time_ns": [1], "values": {"pss_bytes": [1e9]}}
    twice = json.dumps({**reading, "subject": "workers"}).encode() + b"\n"
    path.write_bytes(b"".join([header, *[twice] * 40, *rest]))
    given_to_all(path)


@pytest.mark.parametrize("kept", ["transform_ns", "transform_calls"])
def test_a_transform_without_its_calls_or_time(tmp_path: Path, kept: str) -> None:
    """Such a file is given to all commands."""
    path = written(tmp_path, "real-demo.jsonl")
    content = [json.loads(line) for line in path.read_text().splitlines()]
    first = next(record for record in content if record["type"] == "stages")
    first[kept]["more"] = [1.0] * len(first["batch"])
    path.write_text("".join(json.dumps(record) + "\n" for record in content))
    given_to_all(path)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("log.jsonl", {"lock_wait_ns": "more_ns"}), ("real-demo.jsonl", {"cpu_cores": "a_cores"})],
)
def test_quantities_of_other_names_are_nothing(
    tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    """Such a file is given to all commands."""
    path = written(tmp_path, name)
    for old, new in changes.items():
        path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    given_to_all(path)
