"""The page of what was measured on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.gpu import results, run
from bench.gpu.claims import IDLE, PARTS
from bench.gpu.page import NEVER_MEASURED, page
from bench.gpu.results import ERROR, Result

if TYPE_CHECKING:
    from pathlib import Path


CLAIMS = list(dict.fromkeys(claim for part in PARTS for claim in part.claims))


def rows(text: str) -> dict[str, str]:
    """The outcome of each claim by its text, from the page's first table."""
    table = text.partition("|---|---|---|---|\n")[2].partition("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in table.strip().splitlines()]
    return {text: outcome for _, text, _, outcome in cells}


def result_of(claim: str, *, held: bool | None) -> Result:
    return Result(claim, "a case", "1 ms", "2 ms", held, (1.0, 3.0), "a GPU", "580", {}, "today")


def test_a_claim_without_a_result_was_never_measured() -> None:
    """Nor was one whose only result says why it could not be measured."""
    assert rows(page([])) == {claim.text: NEVER_MEASURED for claim in CLAIMS}
    assert rows(page([result_of(IDLE.name, held=None)]))[IDLE.text] == NEVER_MEASURED


def test_a_claim_holds_where_each_measurement_does() -> None:
    held, missed = (result_of(IDLE.name, held=value) for value in (True, False))
    assert rows(page([held, held]))[IDLE.text] == "held (2)"
    text = page([held, missed, result_of(ERROR, held=False)])
    assert rows(text)[IDLE.text] == "did not hold (1 of 2)"
    assert "| a case | 1 ms | 2 ms | 1 to 3 | **did not hold** |" in text
    assert "## Errors of tests" in text


def test_the_page_is_of_the_committed_results() -> None:
    assert run.PAGE.read_text() == page(results.read(results.FILE))


def test_a_line_that_a_stop_has_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    result = result_of(IDLE.name, held=True)
    path.write_text(result.line() + "\n" + result.line()[:40])
    assert results.read(path) == [result]
