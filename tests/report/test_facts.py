"""What a comparison found, as labels and values."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from loadeval.analysis.headroom import compare
from loadeval.analysis.headroom import headroom as alternating_headroom
from loadeval.report.facts import comparison_facts
from loadeval.report.wording import not_measured, reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run

MS = 1_000_000


def test_comparison_facts(record: Callable[..., Run]) -> None:
    """Speed-up, paces, loss and its parts, verdict with its reason."""
    headroom = compare(record(step_ns=12 * MS), record("replay"))
    found = dict(comparison_facts(headroom))
    assert found["speed-up"] == "4.20x [4.20x, 4.20x]"
    assert found["real"] == "42.0 ms a batch, 95.2 images/s"
    assert found["ideal"] == "10.0 ms a batch, 400 images/s"
    assert found["loader alone"] == found["required"] == "not measured"
    assert found["lost per batch"].startswith("32.0 ms [32.0 ms, 32.0 ms] of 42.0 ms (76.2% [")
    assert found["  waiting"] == "30.0 ms [30.0 ms, 30.0 ms]"
    assert found["  contention"] == "2.00 ms [2.00 ms, 2.00 ms]"
    assert found["measured"] == "29 real and 29 ideal batches in two separate runs"
    assert found["verdict"] == f"highly input-bound: {reason(headroom)}"


def test_facts_of_an_alternating_run(alternating: Callable[..., Run]) -> None:
    """The loader's own pace, what is required of it, epoch starts and whole epochs beside them."""
    headroom = alternating_headroom(alternating(noise=0))
    found = dict(comparison_facts(headroom))
    assert found["loader alone"] == "40.0 ms a batch, 800 images/s"
    assert found["required"] == "the loader must be 1.60x faster to keep up"
    assert found["first batch of an epoch"] == "300 ms"
    assert found["speed-up, whole epochs"].endswith("x")
    assert found["measured"] == "95 real and 94 ideal batches in 12 pairs of blocks"


def test_a_loader_that_is_fast_enough(alternating: Callable[..., Run]) -> None:
    """At or under 1 no faster loader is asked for."""
    headroom = dataclasses.replace(alternating_headroom(alternating()), required=0.8)
    told = dict(comparison_facts(headroom))["required"]
    assert told == "0.80x of an ideal iteration: alone, the loader is fast enough"


def test_what_was_not_measured_is_told_with_its_reason(alternating: Callable[..., Run]) -> None:
    """Each sentence about it stands at the end."""
    headroom = alternating_headroom(alternating(prefetches=False))
    facts = comparison_facts(headroom)
    assert facts[-1] == ("not measured", " ".join(not_measured(headroom)))
    assert dict(facts)["loader alone"] == "not measured"


def test_comparison_without_a_figure(record: Callable[..., Run]) -> None:
    """Nothing that was not measured gets a number."""
    found = dict(comparison_facts(compare(record(warmup=99), record("replay"))))
    names = ("speed-up", "lost per batch", "  waiting", "  contention")
    assert {found[name] for name in names} == {"not measured"}
