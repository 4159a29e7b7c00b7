"""What is computed of a run is computed once, for findings, screen, page and predictions alike."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadeval.analysis.estimate.arms import paired, run_times
from loadeval.analysis.estimate.metrics import quantities
from loadeval.analysis.estimate.steady import steady
from loadeval.analysis.inside.stages import stages_of
from loadeval.analysis.once import once_per_run
from loadeval.analysis.predict.simulation import replayed
from loadeval.analysis.predict.whatif import LoaderModel
from loadeval.analysis.report import Report
from loadeval.analysis.rules.case import Case
from loadeval.data.log import read_run
from loadeval.report.page.page import page_of
from loadeval.report.terminal.screen import screen
from tests.runs.looked_into import looked_into
from tests.runs.staged import staged

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from loadeval.data.run import Run

DEMO = Path(__file__).parents[1] / "runs" / "demo.jsonl"


def calls(shown: Callable[[], object]) -> list[tuple[Callable[..., Any], dict[str, Any]]]:
    """Each time that a function in WATCHED computed, with what it was given."""
    watched = {
        getattr(function, "__wrapped__", function).__code__: function for function in WATCHED
    }
    seen: list[tuple[Callable[..., Any], dict[str, Any]]] = []

    def enter(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in watched:
            seen.append((watched[frame.f_code], dict(frame.f_locals)))

    sys.setprofile(enter)
    try:
        shown()
    finally:
        sys.setprofile(None)
    return seen


WATCHED: tuple[Any, ...] = (steady, run_times, paired, quantities, stages_of, replayed)


@pytest.fixture(scope="module")
def computed() -> list[tuple[Callable[..., Any], dict[str, Any]]]:
    """What the report, one screen and one page of the demo's run compute."""
    replayed.cache_clear()

    def show() -> None:
        report = Report.of([read_run(DEMO)])
        screen(report, [], 100)
        page_of(report, [DEMO], Path("page.html"))

    return calls(show)


@pytest.mark.parametrize("function", [run_times, paired, quantities, stages_of])
def test_what_is_computed_of_a_run(
    function: Callable[..., Any], computed: list[tuple[Callable[..., Any], dict[str, Any]]]
) -> None:
    """Once of each run; its arms, and its batches that count, are runs of their own."""
    runs = Counter(id(given["run"]) for called, given in computed if called is function)
    assert set(runs.values()) == {1}
    if function is not quantities:
        assert len(runs) == 1


def test_steady_batches(computed: list[tuple[Callable[..., Any], dict[str, Any]]]) -> None:
    """Once for each run and arm."""
    arms = Counter(
        (id(given["run"]), given["arm"])
        for called, given in computed
        if called is steady and given["arm"] is not None
    )
    assert set(arms.values()) == {1}


def test_replays(computed: list[tuple[Callable[..., Any], dict[str, Any]]]) -> None:
    """One at most for each setting and change, whoever asks for it."""
    replays = Counter(
        (given["costs"], given["setting"]) for called, given in computed if called is replayed
    )
    assert set(replays.values()) == {1}
    assert {setting for _, setting in replays}  # some


RUNS: dict[str, Callable[[], Run]] = {
    "demo": lambda: read_run(DEMO),
    "alternating": staged,
    "without workers": lambda: looked_into(fetch=30, workers=0),
    "blocked": lambda: looked_into(fetch=60, blocked=0.75),
}


@pytest.mark.parametrize("name", RUNS)
def test_findings_and_predictions_have_one_replay(name: str) -> None:
    """The replay is of the settings that the run had."""
    run = RUNS[name]()
    inside, report = Case(run).inside, Report.of([run]).runs[0]
    assert inside is not None
    assert inside.model.present is LoaderModel.of(run).present
    assert report.recorded is inside.recorded


@settings(max_examples=25, deadline=None)
@given(
    fetch=st.integers(1, 100),
    workers=st.integers(0, 4),
    blocked=st.sampled_from([0.0, 0.3, 0.9]),
    run_queue=st.sampled_from([0.0, 0.1]),
)
def test_the_replay_of_any_run(fetch: int, workers: int, blocked: float, run_queue: float) -> None:
    """Is the same object, and what takes as long as was measured."""
    run = looked_into(fetch=fetch, workers=workers, blocked=blocked, run_queue=run_queue)
    inside = Case(run).inside
    assert inside is not None
    model = LoaderModel.of(run)
    assert inside.model.present is model.present
    assert model.predict().speedup.value == pytest.approx(1)


def test_keyed_by_what_else_is_given() -> None:
    """Another argument is another result; the same one is the same object."""

    @once_per_run
    def of_name(run: Run, name: str = "") -> list[str]:
        return [run.header.name, name]

    run = staged()
    assert of_name(run) is of_name(run)
    assert of_name(run, "a") is of_name(run, "a")
    assert of_name(run, "a") == [run.header.name, "a"]
    assert of_name(staged(name="other"), "a") is not of_name(run, "a")
