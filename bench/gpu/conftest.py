"""Tests of what loadeval claims on a GPU: they run where torch finds one, and note results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.gpu.device import missing
from bench.gpu.results import ERROR, RESULTS, Result, append, where

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from bench.gpu.claims import Claim

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that are marked gpu where there is none; their results are printed."""
    marked = [
        item for item in items if HERE in item.path.parents and item.get_closest_marker("gpu")
    ]
    why = missing() if marked else ""
    for item in marked if why else []:
        item.add_marker(pytest.mark.skip(reason=f"no GPU: {why}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what a test raises: it has measured nothing more then."""
    report = yield
    path = os.environ.get(RESULTS)
    if path and call.excinfo is not None and report.failed and report.when == "call":
        error = repr(call.excinfo.value)
        append(Path(path), Result(ERROR, item.name, "no error", error, held=False, **where()))
    return report


class Notes:
    """Takes the measurements of one test, and fails it at its end if one did not hold."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed: list[str] = []

    def __call__(
        self,
        claim: Claim,
        case: str,
        *,
        expected: object,
        measured: object,
        held: bool | None,
        interval: tuple[float, float] | None = None,
    ) -> None:
        """Note a measurement; numbers are written with three digits."""
        result = Result(
            claim.name, case, _text(expected), _text(measured), held, interval, **where()
        )
        append(self.path, result)
        if held is False:
            self.failed.append(f"{claim.name} ({case}): {result.measured}, not {result.expected}")


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@pytest.fixture
def note(tmp_path: Path) -> Iterator[Notes]:
    """Call it with each measurement."""
    notes = Notes(Path(os.environ.get(RESULTS) or tmp_path / "results.jsonl"))
    yield notes
    if notes.failed:
        pytest.fail("; ".join(notes.failed))
