"""What can be known of the kit without a GPU: skipped rows, the referee's reduction, the page."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bench.gpu import run
from bench.gpu.referee import WAIT, copied_ms, idle_in_waits_ms
from bench.gpu.results import Result, page, read
from bench.gpu.rows import ROWS

TABLE = [(3, "a case", "what it shows")]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_every_row_is_skipped_with_its_reason(tmp_path: Path) -> None:
    before, path = run.PAGE.read_text(), tmp_path / "results.jsonl"
    assert run.main(["--results", str(path)]) == 0
    results = read(path)
    assert sorted(result.row for result in results) == [row.number for row in ROWS]
    assert {(result.measured.partition(":")[0], result.held) for result in results} == {
        ("skipped", None)
    }
    assert run.PAGE.read_text() == before


def event(category: str, start_us: float, end_us: float, name: str = "x") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start_us, "dur": end_us - start_us}


TRACE: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name"},
    event("user_annotation", 1000, 2000, WAIT),
    event("gpu_user_annotation", 1000, 2000, WAIT),
    event("cpu_op", 1000, 2000),
    event("kernel", 500, 1100),
    event("kernel", 1050, 1200),  # of another stream
    event("gpu_memcpy", 1500, 1700, "Memcpy HtoD (Pageable -> Device)"),
    event("gpu_memset", 1900, 2500),
    event("user_annotation", 3000, 4000, WAIT),
    event("user_annotation", 5000, 6000, WAIT),
    event("kernel", 4500, 6500),
    event("gpu_memcpy", 6600, 6700, "Memcpy HtoD (Pinned -> Device)"),
    event("gpu_memcpy", 6700, 6900, "Memcpy DtoH (Device -> Pageable)"),
    event("user_annotation", 7000, 7000.5),
    event("user_annotation", 8000, 9000, WAIT),  # for the end of the epoch
]
"""Made by hand: work before, across, within and over the whole of a wait."""


def test_idle_time_is_what_no_kernel_copy_or_memset_covers() -> None:
    assert idle_in_waits_ms(TRACE) == [0.5, 1.0, 0.0]


def test_copies_to_the_device_are_told_for_each_batch() -> None:
    assert copied_ms(TRACE) == pytest.approx(0.1)


def test_a_row_holds_where_each_of_its_measurements_does() -> None:
    good, bad, beside = (
        Result("idle", "1 ms", "2 ms", held, 3, "one GPU, today") for held in (True, False, None)
    )
    assert "| 3 | a case | what it shows | held |" in page(TABLE, [good, beside])
    assert "| 3 | a case | what it shows | never measured |" in page(TABLE, [beside])
    text = page(TABLE, [good, bad, beside])
    assert "Measured on one GPU, today." in text
    assert "| 3 | a case | what it shows | did not hold (1 of 2) |" in text
    assert "| idle | 1 ms | 2 ms | **did not hold** |" in text


def test_the_page_is_of_the_committed_results() -> None:
    table = [(row.number, row.case, row.shows) for row in ROWS]
    assert run.PAGE.read_text() == page(table, read(run.FILE))


def test_a_line_that_a_stop_has_cut_off_is_left_out(tmp_path: Path) -> None:
    path, result = tmp_path / "results.jsonl", Result("idle", "1 ms", "2 ms", held=True, row=3)
    path.write_text(result.line() + "\n" + result.line()[:40])
    assert read(path) == [result]
