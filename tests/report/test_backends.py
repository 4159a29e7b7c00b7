"""A comparison of backends as an object: what it holds, as JSON and by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loadeval import BackendComparison, UsageError
from loadeval.report.wording import backend_cautions, difference_sentence
from loadeval.runtime.backends import Measured

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval import Run

    Record = Callable[..., Run]

MS = 1_000_000
TURNS = {"comparison": "one", "rounds": 6}


@pytest.fixture(name="measured")
def _measured(alternating: Record) -> list[Measured]:
    """torch, of 40 ms a batch; dali, of 30 ms; and spdl, which failed."""
    torch = alternating(name="torch", pairs=6, settings=TURNS)
    dali = alternating(name="dali", pairs=6, iterations_ns=(30 * MS, 25 * MS), settings=TURNS)
    error = RuntimeError("the pipeline\nis gone")
    return [
        Measured("torch", torch, None),
        Measured("dali", dali, None),
        Measured("spdl", dali, error),
    ]


def test_results_come_in_the_order_given(measured: list[Measured]) -> None:
    """Those that failed too, with the error in one line; differences come the fastest first."""
    found = BackendComparison.of_measured(measured)
    assert [one.name for one in found.backends] == ["torch", "dali", "spdl"]
    assert [one.error for one in found.backends] == [
        None,
        None,
        "RuntimeError: the pipeline is gone",
    ]
    assert [(one.one, one.other) for one in found.differences] == [("dali", "torch")]
    assert found.unit == "images"


def test_a_backend_that_failed_at_once_has_no_run(measured: list[Measured]) -> None:
    """It is told all the same."""
    found = BackendComparison.of_measured([measured[0], Measured("x", None, OSError("gone"))])
    assert (found["x"].error, found["x"].run) == ("OSError: gone", None)
    nothing = BackendComparison.of_measured([Measured("x", None, None)])
    assert nothing.backends == ()


def test_unlike_work_is_a_caution(measured: list[Measured]) -> None:
    """It was compared because the user meant it."""
    found = BackendComparison.of_measured(measured, ["dali: batch 0 is other"])
    assert backend_cautions(found)[0].startswith(
        "The backends do not do equal work: dali: batch 0 is"
    )


def test_a_result_is_had_by_its_name(measured: list[Measured]) -> None:
    """Another name is an error that tells those there are."""
    found = BackendComparison.of_measured(measured)
    assert found["dali"].name == "dali"
    with pytest.raises(KeyError, match="'tf' is none of the backends 'torch', 'dali', 'spdl'"):
        found["tf"]


def test_as_dict_is_json(measured: list[Measured]) -> None:
    """All fields but the runs; differences with their words."""
    found = BackendComparison.of_measured(measured)
    told = json.loads(json.dumps(found.as_dict()))
    assert set(told) == {
        "backends",
        "differences",
        "unit",
        "cautions",
        "caution_codes",
        "not_measured",
    }
    assert "run" not in told["backends"][0]
    assert told["backends"][0]["real"]["value"] == pytest.approx(
        found["torch"].real and found["torch"].real.value
    )
    assert told["differences"][0]["shown"] is True
    assert told["differences"][0]["words"] == difference_sentence(found.differences[0])


def test_separate_runs_are_named_as_they_are(record: Record, alternating: Record) -> None:
    """By their names where they differ."""
    found = BackendComparison.of_runs([record(name="torch"), alternating(name="dali")])
    assert [one.name for one in found.backends] == ["torch", "dali"]
    assert found["torch"].ideal is None
    assert len(found.differences) == 1


def test_runs_of_one_name_are_told_apart(record: Record) -> None:
    """By their paths, or numbered where there are none."""
    run = record(name="torch")
    files = [replace(run, path=Path(name)) for name in ("a.jsonl", "b.jsonl")]
    assert [one.name for one in BackendComparison.of_runs(files).backends] == ["a.jsonl", "b.jsonl"]
    both = BackendComparison.of_runs([run, run]).backends
    assert [one.name for one in both] == ["torch (1)", "torch (2)"]


def test_a_run_that_replayed_is_an_error(record: Record) -> None:
    """It has no real pace."""
    with pytest.raises(UsageError, match="tells nothing of its loader's throughput"):
        BackendComparison.of_runs([record(name="torch"), record("replay")])


def test_the_figure_is_written_where_asked(measured: list[Measured], tmp_path: Path) -> None:
    """The path is returned; another extension is an error."""
    found = BackendComparison.of_measured(measured)
    assert found.plot(tmp_path / "backends.png") == tmp_path / "backends.png"
    assert (tmp_path / "backends.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf was expected"):
        found.plot(tmp_path / "backends.gif")
