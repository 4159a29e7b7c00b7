"""`loadeval compare --fail-above`: a gate that goes by the whole interval."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.estimate.headroom import Headroom, headroom, headroom_of_two
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.verdict import GateOutcome, Objection, Verdict, gate
from loadeval.data.log import read_run
from loadeval.report.wording.verdict import gate_sentence
from tests.cli.commands import runner
from tests.runs.measured import record
from tests.runs.tables import replace

if TYPE_CHECKING:
    from pathlib import Path

run = runner("compare", columns=200)


@pytest.fixture(scope="module", name="alternated")
def _alternated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that loses 75% in every pair: waits of 30 ms and of none, steps of 10 ms."""
    return record(tmp_path_factory.mktemp("run") / "alternated.jsonl", "alternate", epochs=4)


def headroom_with(low: float | None, high: float | None, run: Path, **changes: Any) -> Headroom:
    """The headroom of `run`, with another interval of the share lost."""
    value = 0.3 if low is None or high is None else (low + high) / 2
    share = Estimate(value, low, high)
    return replace(headroom(read_run(run)), lost_share=share, **changes)


def decided(headroom: Headroom, bound: float = 0.2) -> GateOutcome:
    return gate(headroom.verdict, headroom.lost_share, bound)


def test_an_interval_above_the_bound_exits_with_3(alternated: Path) -> None:
    """One line on stderr says so, with the interval and the bound; the report is as without."""
    code, out, err = run(alternated, "--fail-above", 20)
    assert code == 3
    assert err == (
        "Above 20%: 75.0% [75.0%, 75.0%] of the training time is lost to data loading; the whole "
        "95% CI is above the limit\n"
    )
    assert out == run(alternated)[1]


@pytest.mark.parametrize("bound", [75, 80.5, 99.9])
def test_an_interval_that_ends_at_the_bound_or_under_it_exits_with_0(
    alternated: Path, bound: float
) -> None:
    """That too is said on stderr."""
    code, _, err = run(alternated, "--fail-above", bound)
    assert code == 0
    assert err.startswith(f"Not above {bound:g}%: 75.0% [75.0%, 75.0%]")
    assert err.count("\n") == 1


def test_a_run_that_is_too_short_exits_with_4(tmp_path: Path) -> None:
    """Where nothing was concluded, the reason and the advice are told in the one line."""
    short = record(tmp_path / "short.jsonl", "alternate", batches=4)
    code, _, err = run(short, "--fail-above", 20)
    assert code == 4
    assert err.startswith(f"Undecided whether more than 20% is lost: {short} is too short")
    assert "Measure 8 more epochs at least" in err
    assert err.count("\n") == 1


def test_two_runs_are_gated_too(tmp_path: Path) -> None:
    """A run that loaded and one that replayed give a share with an interval as well."""
    logs = [record(tmp_path / f"{mode}.jsonl", mode) for mode in ("log", "replay")]
    assert run(*logs, "--fail-above", 20)[0] == 3
    assert run(*logs, "--fail-above", 90)[0] == 0


def test_an_end_that_the_bound_rounds_to_counts_as_at_it(tmp_path: Path) -> None:
    """A fifth lost is not above 20%, although 1 - 1 / 1.25 is a little less in binary."""
    real = record(tmp_path / "log.jsonl", "log", wait_ms=2)
    ideal = record(tmp_path / "replay.jsonl", "replay")
    both = [read_run(path) for path in (real, ideal)]
    share = headroom_of_two(*both).lost_share
    assert share is not None
    assert round(share.value, 3) == 0.167
    rounded = replace(headroom_of_two(*both), lost_share=Estimate(0.2, 0.2, 0.2 + 1e-15))
    assert decided(rounded) is GateOutcome.NOT_ABOVE


def test_json_is_the_same_with_a_bound(alternated: Path) -> None:
    """The object on stdout has no trace of the gate, and the exit codes are the same."""
    code, out, err = run(alternated, "--json", "--fail-above", 20)
    assert (code, out) == (3, run(alternated, "--json")[1])
    assert err.startswith("Above 20%")
    assert json.loads(out)["lost_share"]["value"] == 0.75


def test_a_figure_is_written_before_the_exit(alternated: Path, tmp_path: Path) -> None:
    """CI keeps the figure of a run that failed."""
    output = tmp_path / "figure.svg"
    code, out, _ = run(alternated, "--fail-above", 20, "--output", output)
    assert code == 3
    assert out.endswith(f"Figure written to {output}\n")
    assert output.exists()


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.21, 0.25, GateOutcome.ABOVE),
        (0.21, 0.99, GateOutcome.ABOVE),
        (0.20, 0.25, GateOutcome.SPANS),
        (0.15, 0.25, GateOutcome.SPANS),
        (0.15, 0.20, GateOutcome.NOT_ABOVE),
        (-0.1, 0.1, GateOutcome.NOT_ABOVE),
    ],
)
def test_the_whole_interval_decides(
    alternated: Path, low: float, high: float, outcome: GateOutcome
) -> None:
    """Above from its lower end on, not above up to its upper end, and else nobody knows."""
    assert decided(headroom_with(low, high, alternated)) is outcome


def test_an_interval_that_spans_the_bound_asks_for_more(alternated: Path) -> None:
    """The sentence names the interval and says to measure longer."""
    said = gate_sentence(GateOutcome.SPANS, headroom_with(0.15, 0.25, alternated), 0.2)
    assert said == (
        "Undecided whether more than 20% is lost: 20.0% [15.0%, 25.0%] of the training time is "
        "lost to data loading; the 95% CI spans the limit. Measure more batches or epochs for a "
        "narrower interval."
    )


@pytest.mark.parametrize("why", [Objection.WIDE_INTERVAL, Objection.MISSED_STALL])
def test_a_wide_interval_may_be_wholly_above(alternated: Path, why: Objection) -> None:
    """A verdict that objects to the width alone leaves it to the interval."""
    wide = headroom_with(0.3, 0.7, alternated, verdict=Verdict(objection=why))
    outcomes = [decided(wide, bound) for bound in (0.2, 0.5, 0.8)]
    assert outcomes == [GateOutcome.ABOVE, GateOutcome.SPANS, GateOutcome.NOT_ABOVE]


def test_figures_in_doubt_cannot_tell(alternated: Path) -> None:
    """Where the verdict objects to what the interval does not cover, it decides nothing."""
    doubted = headroom_with(0.3, 0.4, alternated, verdict=Verdict(objection=Objection.DRIFT))
    assert decided(doubted) is GateOutcome.INCONCLUSIVE
    assert "drifted" in gate_sentence(GateOutcome.INCONCLUSIVE, doubted, 0.2)


def test_without_an_interval_nobody_knows(alternated: Path) -> None:
    """A share without its interval is no reason to pass or to fail."""
    assert decided(headroom_with(None, None, alternated)) is GateOutcome.INCONCLUSIVE
    unmeasured = replace(headroom_with(0.3, 0.4, alternated), lost_share=None)
    assert decided(unmeasured) is GateOutcome.INCONCLUSIVE


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_runs_without_an_ideal_arm_have_no_share(runs: int, tmp_path: Path) -> None:
    """The gate is wrong usage there, and nothing is printed."""
    logs = [record(tmp_path / f"{number}.jsonl", "log") for number in range(runs)]
    code, out, err = run(*logs, "--fail-above", 20)
    assert (code, out) == (2, "")
    assert "expected a run of mode alternate" in " ".join(err.replace("│", "").split())


@pytest.mark.parametrize("bound", ["0", "100", "-1", "nan", "inf", "many"])
def test_a_bound_is_a_percentage(alternated: Path, bound: str) -> None:
    """Anything but a number above 0 and under 100 is wrong usage."""
    code, out, err = run(alternated, "--fail-above", bound)
    assert (code, out) == (2, "")
    assert "--fail-above" in err


def test_the_exit_codes_are_in_the_help() -> None:
    """What 3 and 4 mean is said where the command is described."""
    words = " ".join(run("--help")[1].split())
    assert "3 loss above it (whole 95% CI); 4 undecided." in words
