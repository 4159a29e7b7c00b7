"""`loadeval export`: a run as a timeline, and as tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadeval import read_run
from loadeval.data.lines import (
    Block,
    EpochEnd,
    Event,
    GpuIdle,
    Prefetch,
    Readings,
    StageTimes,
    Window,
)
from loadeval.export import export_run
from tests.builder import make_header
from tests.cli.commands import runner
from tests.recordings import laid_out
from tests.runs.given import write_log

TraceEvent = dict[str, Any]

run = runner("export")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two epochs, the second broken off, much of it not known; a pair, and two workers."""
    return write_log(
        tmp_path / "run.jsonl",
        make_header(name='a "run"'),
        Block(0, "real", [1_001], [40_000], [10_000], [4], [64]),
        Prefetch(pair=0, epoch=0, batches=2, timed=1, elapsed_ns=900, began_ns=51_001),
        Block(0, "ideal", [60_000, 70_000], [0, 2_500], [9_999, None], [None, 4], pair=0),
        Window(pair=0, epoch=0, arm="ideal", elapsed_ns=20_000),
        EpochEnd(0, "exhausted", 80_000, 7_000),
        GpuIdle(0, 0, [0, 500, None], [None] * 3),
        StageTimes(
            epoch=0,
            batch=[0, 1, 2],
            worker=[0, 1, 0],
            samples=[4, 4, None],
            requested_ns=[1_001, 51_001, 51_401],
            delivered_ns=[41_001, 51_400, 51_900],
            index_ns=[100, None, None],
            fetch_start_ns=[2_000, 2_500, 29_000],
            fetch_ns=[20_000, 40_000, 5_000],
            collate_ns=[8_000, None, 1_000],
            slowest_index=[17, None, None],
        ),
        Block(1, "real", [200_000], [1_000]),
        EpochEnd(1, "broken off"),
        EpochEnd(2, "broken off"),
        Readings("host", "", [], {}, "there is no /proc"),
        Readings("gpu", "0", [60_000, 150_000], {"busy_percent": [97.5, None]}),
        Event(120_000, "the step changes its batch"),
    )


BATCHES = "epoch,batch,arm,pair,request_ns,wait_ns,step_ns,samples,nbytes,gpu_idle_ns"
TIMELINE = """\
epoch 0: arms: real, not counted 1.0012 +50.0 batches=1
epoch 0: arms: ideal, pair 0 60.0002 +20.0 batches=2
epoch 0: batches: wait 1.0012 +40.0 batch=0 samples=4 nbytes=64 gpu_idle_ns=0
epoch 0: batches: step 41.0012 +10.0 batch=0
epoch 0: batches: wait 60.0002 +0.0 batch=1 gpu_idle_ns=500
epoch 0: batches: step 60.0002 +9.999 batch=1
epoch 0: batches: wait 70.0002 +2.5 batch=2 samples=4
epoch 0: batches: step 72.5002 +7.5 batch=2
epoch 0: worker 0: fetch 2.0002 +20.0 batch=0
epoch 0: worker 0: collate 22.0002 +8.0 batch=0
epoch 0: worker 0: fetch 30.0002 +4.0 batch=2
epoch 0: worker 0: collate 34.0002 +1.0 batch=2
epoch 0: worker 1: fetch 2.5002 +40.0 batch=1
epoch 1: arms: real, not counted 200.0002 +1.0 batches=1
epoch 1: batches: wait 200.0002 +1.0 batch=0
all: gpu 0: busy_percent 60.0002 value=97.5
all: the step changes its batch 120.0002
"""


def read(path: Path) -> list[tuple[str, TraceEvent]]:
    """The events of a timeline but those that give names, each with its track's name."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert len(names) == len(set(names.values()))
    return [(names.get(e["tid"], "all"), e) for e in events if e["ph"] != "M"]


def test_a_timeline(log: Path) -> None:
    """What is not known is not in it, and of two fetches that seem to overlap one begins later."""
    assert run(log, "--format", "chrome")[0] == 0
    lines = []
    for track, event in read(log.with_name("run.trace.json")):
        told = " ".join(f"{name}={value}" for name, value in event.get("args", {}).items())
        took = f" +{event['dur']}" if "dur" in event else ""
        lines.append(f"{track}: {event['name']} {event['ts']}{took} {told}".rstrip())
    assert lines == TIMELINE.splitlines()


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_tables(log: Path) -> None:
    """An empty cell is not known. Readings have a row for each value; stages are a third table."""
    assert run(log, "--format", "csv")[0] == 0
    assert lines_of(log.with_name("run.csv")) == [
        BATCHES,
        "0,0,real,,1001,40000,10000,4,64,0",
        "0,1,ideal,0,60000,0,9999,,,500",
        "0,2,ideal,0,70000,2500,7500,4,,",
        "1,0,real,,200000,1000,,,,",
    ]
    assert lines_of(log.with_name("run-readings.csv")) == [
        "probe,subject,quantity,time_ns,value",
        "gpu,0,busy_percent,60000,97.5",
        "gpu,0,busy_percent,150000,",
    ]
    stages = lines_of(log.with_name("run-stages.csv"))
    assert stages[0].startswith("epoch,batch,worker,samples,requested_ns,delivered_ns,index_ns,")
    assert [line.rstrip(",") for line in stages[1:]] == [
        "0,0,0,4,1001,41001,100,2000,20000,8000,,,,,,,,,,,,,,,,17",
        "0,1,1,4,51001,51400,,2500,40000",
        "0,2,0,,51401,51900,,29000,5000,1000",
    ]


@pytest.mark.parametrize("whole", [round, int])
@pytest.mark.parametrize("name", ["slow-transform", "slow-operator"])
def test_no_slice_of_a_recorded_run_overlaps_another(
    name: str, whole: Callable[[float], int], tmp_path: Path
) -> None:
    """Each is within another one of its track, or begins when that is over.

    That holds for readers that round to nanoseconds, and for those that cut off.
    """
    (log,) = (tmp_path / each for each in laid_out(name, tmp_path))
    around: dict[str, list[int]] = {}
    spans = [
        (whole(event["ts"] * 1000), -whole(event["dur"] * 1000), track)
        for track, event in read(*export_run(read_run(log), "chrome", tmp_path / "trace"))
        if event["ph"] == "X"
    ]
    for begin, minus_length, track in sorted(spans):
        ends = around.setdefault(track, [])
        while ends and ends[-1] <= begin:
            ends.pop()
        assert not ends or begin - minus_length <= ends[-1]
        ends.append(begin - minus_length)


def test_a_file_of_dalis_has_waits_and_no_timeline(tmp_path: Path) -> None:
    """The error says why, and what to export instead."""
    path = tmp_path / "dali.json"
    times = {"total_batches": 2, "total_time": 5.0, "batch_times": [1.0, 2.0]}
    path.write_text(json.dumps({"mode": "log", "cached_batches": 0, **times}))
    code, out, err = run(path, "--format", "chrome")
    assert (code, out) == (1, "")
    assert err.startswith(f"Error: {path} has no times at which batches were requested, since DALI")
    assert err.endswith("so there is no timeline; export its waits as csv\n")
    assert run(path, "--format", "csv")[0] == 0
    waits = [f"0,{n},real,,,{n + 1}000000000,1000000000,,," for n in (0, 1)]
    assert lines_of(path.with_name("dali.csv")) == [BATCHES, *waits]


# The files


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("form", "written"),
    [("chrome", ["run.trace.json"]), ("csv", ["run.csv", "run-readings.csv", "run-stages.csv"])],
)
def test_what_is_written(form: str, written: list[str], log: Path, tmp_path: Path) -> None:
    """It goes beside the run, and replaces nothing."""
    told = "".join(f"Written to {tmp_path / name}\n" for name in written)
    assert run(log, "--format", form) == (0, told, "")
    before = files_in(tmp_path)
    assert before.keys() == {"run.jsonl", *written}
    code, out, err = run(log, "--format", form)
    assert (code, out) == (1, "")
    assert err.startswith(f"Error: cannot write {tmp_path / written[0]}: File exists; give another")
    assert files_in(tmp_path) == before


def test_a_place_that_cannot_be_written(log: Path, tmp_path: Path) -> None:
    code, out, err = run(log, "-f", "csv", "-o", tmp_path / "none" / "it")
    assert (code, out) == (1, "")
    assert err.startswith(f"Error: cannot write {tmp_path / 'none' / 'it'}: No such file")
    assert run(log, "-f", "csv", "-o", ".")[2].startswith("Error: cannot write .: File exists")
    assert files_in(tmp_path).keys() == {"run.jsonl"}


@pytest.mark.usefixtures("log")
def test_the_only_log_of_a_folder(tmp_path: Path) -> None:
    assert run(tmp_path, "--format", "chrome")[0] == 0
