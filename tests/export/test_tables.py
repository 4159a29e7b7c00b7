"""Tables of a run."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from loadeval import read_run
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS
from loadeval.export import Format, export_run
from loadeval.export import tables as module
from tests.runs.staged import staged
from tests.runs.tables import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval import Run

BATCHES = "epoch,batch,arm,pair,request_ns,wait_ns,step_ns,samples,nbytes,gpu_idle_ns\n"
READINGS = "probe,subject,quantity,time_ns,value\n"


def texts(run: Run, folder: Path) -> list[str]:
    """The tables that are exported."""
    return [path.read_text() for path in export_run(run, Format.CSV, folder / "table")]


def column(path: Path, name: str) -> list[int]:
    """What a table has of one name, UNKNOWN where nothing is."""
    with path.open(newline="") as file:
        return [int(row[name] or UNKNOWN) for row in csv.DictReader(file)]


def test_what_is_not_known_is_missing(log_file: Path, tmp_path: Path) -> None:
    """Neither -1 nor 0 stands for it; readings are a table in long format of their own."""
    assert texts(read_run(log_file), tmp_path) == [
        f"""\
{BATCHES}\
0,0,real,,1001,40000,10000,4,64,0
0,1,real,,51001,0,38999,,64,500
0,2,real,,90000,2500,7500,4,64,
1,0,real,,200000,1000,,,,
""",
        f"""\
{READINGS}\
gpu,0,busy_percent,60000,97.5
gpu,0,busy_percent,150000,30.0
gpu,0,memory_bytes,60000,
gpu,0,memory_bytes,150000,2000000000.0
""",
    ]


@pytest.mark.parametrize("chunk", [7, 50_000])
def test_every_batch_of_an_alternating_run_is_there(
    chunk: int, alternating: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its arm and its pair, in the order of the run, in however many pieces it is written."""
    monkeypatch.setattr(module, "CHUNK", chunk)
    batches, readings = export_run(alternating, Format.CSV, tmp_path / "table")
    steps = alternating.steps
    with batches.open(newline="") as file:
        arms = [row["arm"] for row in csv.DictReader(file)]
    assert arms == [ARMS[code] for code in steps.arm]
    for name in ("epoch", "pair", "request_ns", "wait_ns", "samples", "nbytes"):
        assert column(batches, name) == getattr(steps, name).tolist()
    assert column(batches, "batch") == [*range(90), *range(90), *range(51)]
    assert readings.read_text() == READINGS


def test_a_file_of_dalis_has_waits_without_requests(dali_file: Path, tmp_path: Path) -> None:
    batches, _ = export_run(read_run(dali_file), Format.CSV, tmp_path / "table")
    assert column(batches, "wait_ns") == [1_000_000_000, 2_000_000_000]
    assert column(batches, "request_ns") == [UNKNOWN] * 2


def test_a_run_without_batches_has_no_rows(empty_file: Path, tmp_path: Path) -> None:
    assert texts(read_run(empty_file), tmp_path) == [BATCHES, READINGS]


def test_the_batches_of_a_loader_are_a_third_table(tmp_path: Path) -> None:
    """It has those of all epochs, if it was looked into; what is not known is missing."""
    run = staged("log", batches=30, epochs=2)
    *_, path = export_run(run, Format.CSV, tmp_path / "run.table")
    assert path.name == "run-stages.table"
    assert path.read_text().startswith("epoch,batch,worker,")
    assert column(path, "epoch") == [0] * 30 + [1] * 30
    for name in ("requested_ns", "fetch_ns", "slowest_index"):
        values = [value for stage in rows_of(run) for value in getattr(stage, name).tolist()]
        assert column(path, name) == values
    assert column(path, "pin_ns") == [UNKNOWN] * 60
    in_process = staged("log", workers=0, batches=10, epochs=1)
    *_, path = export_run(in_process, Format.CSV, tmp_path / "other.table")
    assert column(path, "worker") == [UNKNOWN] * 10
