"""Kept batches that do not stand for the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.rules.finding import Finding
    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]
    Find = Callable[..., Finding]
    Ask = Callable[..., tuple[str, str]]

NOTHING = ("nothing found", "")


def test_steps_that_depend_on_their_batch(make_run: MakeRun, finding: Find) -> None:
    """Larger batches take longer, and only some were replayed."""
    samples = [1 + number % 7 for number in range(70)]
    real = make_run([0] * 70, [100 * count for count in samples], samples=samples)
    found = finding("varying batches", real, make_run([0] * 70, 100, mode="replay"))
    assert "its size in bytes" in found.sentence
    assert "alternate" in found.advice
    (fact,) = found.evidence
    assert (fact.name, fact.unit) == ("rank correlation with its size in bytes", "rank correlation")
    assert fact.value > 0.9


def test_steps_that_do_not(make_run: MakeRun, outcome: Ask) -> None:
    """Replayed batches are as good as any."""
    replayed = make_run([0] * 70, mode="replay")
    assert outcome("varying batches", make_run([0] * 70), replayed) == NOTHING


def test_an_alternating_run_serves_all(alternating: MakeRun, outcome: Ask) -> None:
    """Its ideal arm stands for the epoch by design."""
    assert outcome("varying batches", alternating()) == NOTHING


def test_a_log_alone(make_run: MakeRun, outcome: Ask) -> None:
    """There is nothing that could stand for it."""
    assert outcome("varying batches", make_run([0] * 70)) == (
        "not measured",
        "nothing was replayed",
    )
