"""A comparison of backends: what it holds, as text, as JSON and as a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loadeval import BackendComparison, UsageError
from loadeval.report.formatting import estimated, speedup
from loadeval.report.wording.backends import difference_sentence
from loadeval.runtime.alternation.backends import MeasuredBackend
from tests.runs.given import randomised
from tests.runs.measured import recorded
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval import Run


MS = 1_000_000


def turns(name: str, real_ms: float = 40, pairs: int = 6, **more: Any) -> Run:
    """A run that took turns with others in rounds."""
    iterations_ns = (round(real_ms * MS), 25 * MS)
    settings = {"comparison": "one", "rounds": pairs}
    return randomised(
        name=name, pairs=pairs, iterations_ns=iterations_ns, settings=settings, **more
    )


@pytest.fixture(name="measured")
def _measured() -> list[MeasuredBackend]:
    """torch, of 40 ms a batch; dali, of 20 ms; and spdl, which failed."""
    torch, dali = turns("torch", noise=0), turns("dali", 20, noise=0)
    error = RuntimeError("the pipeline\nis gone")
    return [
        MeasuredBackend("torch", torch, None),
        MeasuredBackend("dali", dali, None),
        MeasuredBackend("spdl", dali, error),
    ]


def compared(*runs: Run) -> BackendComparison:
    return BackendComparison.of_measured(
        [MeasuredBackend(run.header.name, run, None) for run in runs]
    )


def first_line(comparison: BackendComparison) -> str:
    return str(comparison).splitlines()[0]


def test_results_come_in_the_order_given(measured: list[MeasuredBackend]) -> None:
    """Those that failed too, with the error in one line; differences come the fastest first."""
    comparison = BackendComparison.of_measured(measured)
    assert [(backend.name, backend.error) for backend in comparison.backends] == [
        ("torch", None),
        ("dali", None),
        ("spdl", "RuntimeError: the pipeline is gone"),
    ]
    assert [(difference.one, difference.other) for difference in comparison.differences] == [
        ("dali", "torch")
    ]
    assert comparison.unit == "images"


def test_a_backend_that_failed_at_once_has_no_run(measured: list[MeasuredBackend]) -> None:
    """It is told all the same."""
    comparison = BackendComparison.of_measured(
        [measured[0], MeasuredBackend("x", None, OSError("gone"))]
    )
    assert (comparison["x"].error, comparison["x"].run) == ("OSError: gone", None)
    assert BackendComparison.of_measured([MeasuredBackend("x", None, None)]).backends == ()


def test_a_result_is_had_by_its_name(measured: list[MeasuredBackend]) -> None:
    """Another name is an error that tells those there are."""
    comparison = BackendComparison.of_measured(measured)
    assert comparison["dali"].name == "dali"
    with pytest.raises(KeyError, match="'tf' is none of the backends 'torch', 'dali', 'spdl'"):
        comparison["tf"]


def test_as_dict_is_json(measured: list[MeasuredBackend]) -> None:
    """All fields but the runs; metrics, and differences with their words."""
    comparison = BackendComparison.of_measured(measured)
    document = json.loads(json.dumps(comparison.as_dict()))
    keys = {"backends", "differences", "unit", "cautions", "caution_codes", "not_measured"}
    assert set(document) == keys
    torch = document["backends"][0]
    assert not {"run", "metrics"} & set(torch)
    assert set(torch["readings"]) == {"gpu_idle_ns", "quantities", "missing", "growth"}
    assert comparison["torch"].real is not None
    assert torch["real"]["value"] == pytest.approx(comparison["torch"].real.value)
    (difference,) = document["differences"]
    assert difference["shown"] is True
    assert difference["words"] == difference_sentence(comparison.differences[0])


def test_separate_runs_have_their_own_names() -> None:
    """Where those do not differ their paths, or numbers."""
    comparison = BackendComparison.of_runs([recorded(name="torch"), randomised(name="dali")])
    assert [backend.name for backend in comparison.backends] == ["torch", "dali"]
    assert comparison["torch"].ideal is None
    assert len(comparison.differences) == 1
    run = recorded(name="torch")
    files = [replace(run, path=Path(name)) for name in ("a.jsonl", "b.jsonl")]
    assert [backend.name for backend in BackendComparison.of_runs(files).backends] == [
        "a.jsonl",
        "b.jsonl",
    ]
    both = BackendComparison.of_runs([run, run]).backends
    assert [backend.name for backend in both] == ["torch (1)", "torch (2)"]
    with pytest.raises(UsageError, match="tells nothing of its loader's throughput"):
        BackendComparison.of_runs([run, recorded("replay")])


def test_the_figure_is_written_where_asked(measured: list[MeasuredBackend], tmp_path: Path) -> None:
    """The path is returned; another extension is an error."""
    comparison = BackendComparison.of_measured(measured)
    assert comparison.plot(tmp_path / "backends.png") == tmp_path / "backends.png"
    assert (tmp_path / "backends.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf was expected"):
        comparison.plot(tmp_path / "backends.gif")


def test_the_fastest_is_in_the_first_line() -> None:
    """With the interval of what it is ahead of the next one by."""
    torch, dali, spdl = (
        turns(name, real_ms, noise=0)
        for name, real_ms in (("torch", 40), ("dali", 20), ("spdl", 30))
    )
    assert first_line(compared(torch, dali)) == (
        "dali trains fastest: 2.00x [2.00x, 2.00x] as fast as torch"
    )
    assert "1.50x [1.50x, 1.50x]" in first_line(compared(torch, dali, spdl))


def test_no_difference_is_said_to_be_shown_where_none_is() -> None:
    """This is between the fastest ones, or all; one round shows nothing."""
    near, equal, third = (
        turns(name, noise=noise) for name, noise in (("near", 0.3), ("equal", 0.2), ("third", 0.1))
    )
    no_difference = "No difference shown between"
    assert first_line(compared(near, equal)) == f"{no_difference} near and equal"
    assert first_line(compared(near, turns("far", 80), equal)) == (
        f"{no_difference} the fastest, near and equal"
    )
    assert first_line(compared(near, third, equal)) == f"{no_difference} near, equal and third"
    few = first_line(compared(turns("a", 20, pairs=1), turns("b", pairs=1)))
    assert few.startswith("a was 2.00x as fast as b, with too few measurements")


def test_one_backend_alone() -> None:
    """What free loading gains is told, or where that was not measured, its throughput."""
    alone = compared(turns("torch"))
    gain = estimated(alone["torch"].speedup, speedup)
    assert first_line(alone) == f"torch: training would be {gain} as fast if loading were free"
    logged = BackendComparison.of_runs([recorded(name="torch")])
    assert first_line(logged) == "torch: 100 [100, 100] images/s"


def test_no_backend_at_all_is_said() -> None:
    """All have failed."""
    comparison = BackendComparison.of_measured([MeasuredBackend("torch", None, OSError("gone"))])
    lines = str(comparison).splitlines()
    assert lines[0] == "No backend was measured"
    assert lines[-1] == "torch failed: OSError: gone"
    assert ["torch", "failed"] in [line.split() for line in lines]


def test_the_text_has_everything(measured: list[MeasuredBackend]) -> None:
    """Throughputs, the fastest first; what is lost, failures, differences, cautions."""
    text = str(BackendComparison.of_measured(measured, ["dali: batch 0 is other"]))
    rows = [line.split("  ")[0] for line in text.splitlines()]
    assert rows[4:8] == ["images/s", "dali", "torch", "spdl"]
    assert rows[10:12] == ["dali", "torch"]
    assert "in turns, 6 rounds in random order; " in text
    assert "\n\nFailed\nspdl failed: RuntimeError: the pipeline is gone\n\n" in text
    assert "Differences in real throughput\ndali 2.00x [2.00x, 2.00x] as fast as torch\n" in text
    assert "\n\nCautions\nThe backends do not do equal work: dali: batch 0 is other" in text


def test_separate_runs_are_said_to_be_such() -> None:
    """A run without an ideal has "not measured" in its place, and the reason below."""
    text = str(BackendComparison.of_runs([recorded(name="torch"), randomised(name="dali")]))
    assert "2 backends under one training step, in separate runs; 29-" in text
    assert "torch     100 [100, 100]  not measured" in text
    assert "torch: No ideal throughput and no loader alone" in text


def test_names_from_a_log_cannot_steer_the_terminal() -> None:
    """Long ones do not widen the table."""
    wild, long = "\x1b[31mred", "the loader of the department, third version"
    text = str(compared(turns(wild), turns(long, 20)))
    assert "\x1b" not in text
    assert "\\x1b[31mred" in text
    assert all(len(line.split("  ")[0]) <= 24 for line in text.splitlines()[5:7])
    assert text.splitlines()[5].startswith("the loader ")
