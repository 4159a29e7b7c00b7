"""A comparison of backends in plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval import BackendComparison
from loadeval.runtime.backends import Measured

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval import Run

    Record = Callable[..., Run]

MS = 1_000_000


def turns(
    alternating: Record, name: str, real_ms: float = 40, pairs: int = 6, **more: float
) -> Run:
    return alternating(
        name=name,
        pairs=pairs,
        iterations_ns=(round(real_ms * MS), 25 * MS),
        settings={"comparison": "one", "rounds": pairs},
        **more,
    )


def compared(*runs: Run) -> BackendComparison:
    return BackendComparison.of_measured([Measured(run.header.name, run, None) for run in runs])


def first_line(found: BackendComparison) -> str:
    return str(found).splitlines()[0]


def test_the_fastest_is_in_the_first_line(alternating: Record) -> None:
    """With the interval of what it is ahead of the next one by."""
    torch, dali = turns(alternating, "torch"), turns(alternating, "dali", 20)
    assert first_line(compared(torch, dali)) == (
        "dali trains fastest: 2.00x [2.00x, 2.00x] as fast as torch"
    )
    spdl = turns(alternating, "spdl", 30)
    assert first_line(compared(torch, dali, spdl)) == (
        "dali trains fastest: 1.50x [1.50x, 1.50x] as fast as the next, spdl"
    )


def test_no_difference_is_said_to_be_shown_where_none_is(alternating: Record) -> None:
    """Between the fastest ones, or all."""
    near = turns(alternating, "near", noise=0.3)
    far = turns(alternating, "far", 80)
    equal = turns(alternating, "equal", noise=0.2)
    assert first_line(compared(near, equal)) == "No difference shown between near and equal"
    assert first_line(compared(near, far, equal)) == (
        "No difference shown between the fastest, near and equal"
    )
    third = turns(alternating, "third", noise=0.1)
    assert first_line(compared(near, third, equal)) == (
        "No difference shown between near, equal and third"
    )


def test_too_little_for_an_interval_is_said(alternating: Record) -> None:
    """Two rounds show nothing."""
    found = compared(turns(alternating, "a", 20, pairs=2), turns(alternating, "b", pairs=2))
    assert first_line(found) == "a was 2.00x as fast as b, with too little for an interval"


def test_one_backend_alone_is_told_by_what_free_loading_gains(
    alternating: Record, record: Record
) -> None:
    """Or where that was not measured, by its throughput."""
    assert first_line(compared(turns(alternating, "torch"))).startswith(
        "torch: training would be 1.58x ["
    )
    logged = BackendComparison.of_runs([record(name="torch")])
    assert first_line(logged) == "torch: 100 [100, 100] images/s"


def test_no_backend_at_all_is_said() -> None:
    """All have failed."""
    found = BackendComparison.of_measured([Measured("torch", None, OSError("gone"))])
    assert str(found).splitlines() == [
        "No backend was measured",
        "1 backend under one training step.",
        "Brackets are 95% intervals.",
        "",
        "batches/s  real    ideal  loader alone",
        "torch      failed",
        "",
        "torch failed: OSError: gone",
    ]


def test_the_table_has_all_paces_with_intervals(alternating: Record) -> None:
    """The fastest first; then what is lost, and the failures in full."""
    runs = turns(alternating, "torch"), turns(alternating, "dali", 20)
    failed = Measured("spdl", None, RuntimeError("no such file"))
    measured = [*(Measured(run.header.name, run, None) for run in runs), failed]
    text = str(BackendComparison.of_measured(measured))
    rows = [line.split("  ")[0] for line in text.splitlines()]
    assert rows[4:8] == ["images/s", "dali", "torch", "spdl"]
    assert rows[10:12] == ["dali", "torch"]
    assert "\n\nspdl failed: RuntimeError: no such file\n\n" in text
    assert "in turns, 6 rounds in random order; " in text


def test_the_differences_are_in_words(alternating: Record) -> None:
    """One line for every two."""
    text = str(compared(turns(alternating, "torch"), turns(alternating, "dali", 20)))
    assert "Differences in real throughput\ndali 2.00x [2.00x, 2.00x] as fast as torch\n" in text


def test_separate_runs_are_said_to_be_such(record: Record, alternating: Record) -> None:
    """And a run without an ideal has "not measured" in its place, and the reason below."""
    text = str(BackendComparison.of_runs([record(name="torch"), alternating(name="dali")]))
    assert "2 backends under one training step, in separate runs; 29-" in text
    assert "torch     100 [100, 100]  not measured" in " ".join(text.split(" "))
    assert "torch: No ideal throughput and no loader alone" in text


def test_names_from_a_log_cannot_steer_the_terminal(alternating: Record) -> None:
    """Nor do long ones widen the table."""
    wild, long = "\x1b[31mred", "the loader of the department, third version"
    text = str(compared(turns(alternating, wild), turns(alternating, long, 20)))
    assert "\x1b" not in text
    assert "\\x1b[31mred" in text
    assert all(len(line.split("  ")[0]) <= 24 for line in text.splitlines()[5:7])
    assert text.splitlines()[5].startswith("the loader ")
