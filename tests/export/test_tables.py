"""Tables of a run, as pandas reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from loadeval import read_run
from loadeval.export import Format, export_run
from loadeval.export import tables as module
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import ARMS
from tests.runs.staged import staged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadeval import Run

COLUMNS = [
    *("epoch", "batch", "arm", "pair", "request_ns", "wait_ns", "step_ns"),
    *("samples", "nbytes", "gpu_idle_ns"),
]
READ: dict[Format, Callable[[Path], Any]] = {
    Format.CSV: pd.read_csv,
    Format.PARQUET: pd.read_parquet,
}
both = pytest.mark.parametrize("form", READ)


def tables(run: Run, form: Format, folder: Path, **options: Any) -> tuple[Any, Any]:
    """The batches and the readings, exported and read back."""
    batches, readings = export_run(run, form, folder / "table", **options)
    assert (batches.name, readings.name) == ("table", "table-readings")
    return READ[form](batches), READ[form](readings)


@both
def test_what_is_not_known_is_missing(form: Format, log_file: Path, tmp_path: Path) -> None:
    """Neither -1 nor 0 stands for it; readings are a table in long format of their own."""
    batches, readings = tables(read_run(log_file), form, tmp_path)
    assert list(batches.columns) == COLUMNS
    assert batches["epoch"].tolist() == [0, 0, 0, 1]
    assert batches["batch"].tolist() == [0, 1, 2, 0]
    assert batches["arm"].tolist() == ["real"] * 4
    assert batches["wait_ns"].tolist() == [40_000, 0, 2_500, 1_000]
    assert batches["step_ns"].tolist()[:3] == [10_000, 38_999, 7_500]
    assert batches["gpu_idle_ns"].tolist()[:2] == [0, 500]
    missing = {
        name: batches[name].isna().tolist() for name in COLUMNS if batches[name].isna().any()
    }
    assert missing == {
        "pair": [True] * 4,
        "step_ns": [False, False, False, True],
        "samples": [False, True, False, True],
        "nbytes": [False, False, False, True],
        "gpu_idle_ns": [False, False, True, True],
    }

    assert list(readings.columns) == ["probe", "subject", "quantity", "time_ns", "value"]
    assert readings["quantity"].tolist() == ["busy_percent"] * 2 + ["memory_bytes"] * 2
    assert readings["time_ns"].tolist() == [60_000, 150_000] * 2
    assert readings["value"].fillna(UNKNOWN).tolist() == [97.5, 30.0, UNKNOWN, 2e9]
    assert set(readings["probe"]) == {"gpu"}


@both
@pytest.mark.parametrize("chunk", [7, 50_000])
def test_every_batch_of_an_alternating_run_is_there(
    form: Format, chunk: int, alternating: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its arm and its pair, in the order of the run, in however many pieces it is written."""
    monkeypatch.setattr(module, "CHUNK", chunk)
    batches, readings = tables(alternating, form, tmp_path)
    steps = alternating.steps
    assert batches["arm"].tolist() == [ARMS[code] for code in steps.arm]
    assert batches["pair"].fillna(UNKNOWN).tolist() == steps.pair.tolist()
    for name in ("epoch", "request_ns", "wait_ns", "samples", "nbytes"):
        assert batches[name].tolist() == getattr(steps, name).tolist()
    assert batches["batch"].tolist() == [*range(90), *range(90), *range(51)]
    assert len(readings) == 0


@both
def test_runs_with_parts_missing(
    form: Format, dali_file: Path, empty_file: Path, tmp_path: Path
) -> None:
    """A file of DALI's has waits without requests; a run without batches has no rows."""
    batches, _ = tables(read_run(dali_file), form, tmp_path)
    assert batches["wait_ns"].tolist() == [1_000_000_000, 2_000_000_000]
    assert batches["request_ns"].isna().all()
    batches, readings = tables(read_run(empty_file), form, tmp_path, overwrite=True)
    assert list(batches.columns) == COLUMNS
    assert len(batches) == len(readings) == 0


def test_parquet_keeps_whole_numbers_whole(replayed: Run, tmp_path: Path) -> None:
    """A column of whole numbers is one of integers, and null is not NaN; both have the header."""
    paths = export_run(replayed, Format.PARQUET, tmp_path / "run.parquet")
    table = pq.read_table(tmp_path / "run.parquet")
    whole = [name for name in COLUMNS if name != "arm"]
    assert {str(table.schema.field(name).type) for name in whole} == {"int64"}
    assert table["step_ns"].null_count == 1
    frame = pd.read_parquet(tmp_path / "run.parquet", dtype_backend="numpy_nullable")
    assert str(frame["step_ns"].dtype) == "Int64"
    for path in paths:
        header = json.loads(pq.read_schema(path).metadata[b"loadeval"])
        assert (header["name"], header["mode"]) == ("replay", "replay")


@both
def test_the_batches_of_a_loader_are_a_third_table(form: Format, tmp_path: Path) -> None:
    """It has those of all epochs, if it was looked into; what is not known is missing."""
    run = staged("log", batches=30, epochs=2)
    *_, path = export_run(run, form, tmp_path / "run.table")
    assert path.name == "run-stages.table"
    table = READ[form](path)
    assert list(table.columns[:3]) == ["epoch", "batch", "worker"]
    assert table["epoch"].tolist() == [0] * 30 + [1] * 30
    for name in ("requested_ns", "fetch_ns", "slowest_index"):
        values = [value for stage in run.stages for value in getattr(stage, name).tolist()]
        assert table[name].tolist() == values
    assert table["pin_ns"].isna().all()
    in_process = staged("log", workers=0, batches=10, epochs=1)
    *_, path = export_run(in_process, form, tmp_path / "other.table")
    assert READ[form](path)["worker"].isna().all()


def test_the_third_table_of_parquet_has_the_header(tmp_path: Path) -> None:
    """Its columns are of integers."""
    *_, path = export_run(staged("log", batches=9), Format.PARQUET, tmp_path / "run.parquet")
    schema = pq.read_schema(path)
    assert {str(field.type) for field in schema} == {"int64"}
    assert json.loads(schema.metadata[b"loadeval"])["name"] == "staged"
