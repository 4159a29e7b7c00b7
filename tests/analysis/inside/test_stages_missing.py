"""Why a run has no stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.inside.stages import NoStages, why_no_stages
from loadeval.data.lines import OperatorTimes
from tests.runs.given import run_of
from tests.runs.staged import staged, without_stages
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.data.lines import Mode
    from loadeval.data.run import Run


def code_of(run: Run) -> NoStages:
    reason = why_no_stages(run)
    assert reason is not None
    return NoStages(reason.code)


def run_with(mode: Mode, settings: dict[str, Any]) -> Run:
    run = without_stages(staged("log", batches=10, epochs=1))
    return replace(run, header=replace(run.header, mode=mode, settings=settings))


def test_a_run_that_has_them() -> None:
    """There is nothing to explain."""
    assert why_no_stages(staged("log", batches=10)) is None


def test_a_run_whose_operators_were_timed() -> None:
    """There is nothing to explain either, whatever else was said."""
    run = without_stages(staged("log", batches=10), kind="stages missing", message="it ended")
    operator = OperatorTimes(0, "decode", 0, 10, 10, 1)
    assert why_no_stages(replace(run, operators=(operator,))) is None


def test_a_run_that_replayed() -> None:
    """No loader worked."""
    assert why_no_stages(run_with("replay", {"stages": None})) is None


@pytest.mark.parametrize(
    ("mode", "asked", "code"),
    [
        ("log", None, NoStages.NOT_ASKED_FOR),
        ("log", False, NoStages.NOT_ASKED_FOR),
        ("alternate", False, NoStages.NOT_ASKED_FOR),
        ("alternate", None, NoStages.LOADER),
        ("log", True, NoStages.LOADER),
    ],
)
def test_what_was_asked_for(mode: Mode, asked: object, code: NoStages) -> None:
    """By default a run that alternates looks inside, and one that logs does not."""
    assert code_of(run_with(mode, {"stages": asked})) is code


def test_a_file_that_does_not_tell() -> None:
    """Such as one of another tool."""
    assert code_of(run_with("log", {})) is NoStages.NOT_RECORDED


def test_what_was_said_meanwhile() -> None:
    """The first event of that kind is the reason."""
    run = without_stages(staged("log", batches=10), kind="stages missing", message="no fetcher")
    reason = why_no_stages(run)
    assert reason is not None
    assert (reason.code, reason.values) == (NoStages.ENDED, {"message": "no fetcher"})


def test_a_run_without_batches() -> None:
    """There was nothing to look into."""
    run = run_with("alternate", {"stages": None})
    assert code_of(replace(run, steps=run_of().steps)) is NoStages.NO_BATCH
