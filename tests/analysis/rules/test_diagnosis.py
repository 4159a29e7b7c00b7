"""Every rule asked of a run, and what findings cost: no time is counted in two of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import RULES, diagnose
from loadeval.analysis.rules.finding import Caveat, Rule, Unknown
from loadeval.analysis.rules.variability import outlying_shares
from loadeval.errors import UsageError
from loadeval.report.wording.findings import QUESTIONS
from loadeval.runlog.model import LoaderInfo
from tests.analysis.rules.conftest import MS, diagnosed, finding

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run
    from tests.analysis.rules.conftest import MakeRun

DOC = Path(__file__).parents[3] / "docs/findings.md"
SEEDS = [*range(40), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40, 150))]
SLACK = 1e-9


def costs(real: Run, ideal: Run | None = None) -> dict[Rule, float]:
    found = diagnosed(real, ideal).findings
    return {one.rule: one.cost_share for one in found if one.cost_share is not None}


def shaken(run: Run, rng: np.random.Generator) -> Run:
    """The run with some stalls, some long steps, and maybe a trend."""
    for column in (run.steps.wait_ns, run.steps.step_ns):
        hit = rng.random(len(column)) < rng.choice([0.0, 0.005, 0.02])
        column[hit] += int(rng.choice([100, 1000, 5000]) * MS)
        column[:] = column * np.linspace(1, rng.choice([1, 1, 4]), len(column))
    return run


@pytest.fixture
def some_run(alternating: MakeRun) -> Callable[[int], Run]:
    """An alternating run of anything, by a seed."""

    def make(seed: int) -> Run:
        rng = np.random.default_rng(seed)

        def pick(choices: list[Any]) -> Any:
            return choices[rng.integers(len(choices))]

        run = alternating(
            wait=pick([0, 1, 10, 200]),
            real=pick([10, 50, 100]),
            ideal=pick([10, 40, 60]),
            alone=pick([None, 1.0, 30.0, 300.0]),
            noise=pick([0, 2]),
            uneven=bool(rng.random() < 0.3),
            pairs=pick([1, 2, 5, 40]),
            first=pick([None, 10.0, 3000.0]),
            workers=pick([None, 0, 2, 9]),
            prefetch_depth=pick([None, 4]),
        )
        return shaken(run, rng)

    return make


def test_a_clean_run_has_no_finding(alternating: MakeRun) -> None:
    """And every rule is told as checked, in order."""
    found = diagnosed(alternating(alone=20))
    assert found.findings == ()
    assert [check.rule for check in found.checks] == list(RULES) == list(Rule)
    assert {check.outcome for check in found.checks} == {"nothing found", "not measured"}


def test_the_costliest_comes_first(alternating: MakeRun) -> None:
    """Those of which the cost is not known come last, the severest first."""
    found = diagnosed(alternating(wait=60, real=60, ideal=50, alone=80, workers=9))
    expected = [Rule.CAPACITY, Rule.CONTENTION, Rule.OVERSUBSCRIPTION]
    assert [one.rule for one in found.findings] == expected
    assert [one.cost_share for one in found.findings[:2]] == pytest.approx([60 / 120, 10 / 120])
    assert [check.rule for check in found.checks if check.outcome == "found"] == expected


def test_of_one_pair_a_loss_is_told(alternating: MakeRun) -> None:
    """There is no interval, so it is only possible, and how many batches give one is told."""
    run = alternating(wait=240, real=120, ideal=60, alone=300, pairs=1)
    found = diagnosed(run).findings
    assert [one.rule for one in found] == [Rule.CAPACITY, Rule.CONTENTION]
    assert [one.cost_share for one in found] == pytest.approx([240 / 360, 60 / 360])
    for one in found:
        assert one.confidence == "possible"
        assert one.caveat is not None
        assert one.caveat.code is Caveat.TOO_FEW_PAIRS
        assert one.caveat.values == {"pairs": 1, "needed": 2, "more_batches": 16}


def test_two_short_runs_tell_a_loss(make_run: MakeRun) -> None:
    """There too it is only possible."""
    real, ideal = make_run([400] * 4, 100), make_run([0] * 4, 100, mode="replay")
    found = finding(Rule.WAITING, real, ideal)
    assert found.confidence == "possible"
    assert found.caveat is not None
    assert found.caveat.code is Caveat.RUNS_TOO_SHORT


def test_with_two_pairs_a_loss_is_sure(alternating: MakeRun) -> None:
    """There is no caveat then."""
    found = diagnosed(alternating(wait=50, real=60, ideal=50, alone=100, pairs=2)).findings
    assert {one.caveat for one in found} == {None}
    assert found[-1].confidence == "measured"


@pytest.mark.parametrize(
    ("made_by", "setting"),
    [("transformers", "dataloader_prefetch_factor"), (None, "prefetch_factor")],
)
def test_a_setting_has_the_name_of_the_trainers_argument(
    alternating: MakeRun, made_by: str | None, setting: str
) -> None:
    """Where a trainer has made the loader of its arguments; what names no setting stays."""
    run = alternating(wait=12.5, alone=40, prefetch_depth=4, uneven=True, made_by=made_by)
    deeper, hides = finding(Rule.SHALLOW_QUEUE, run).changes
    assert deeper.values["setting"] == setting
    assert "setting" not in hides.values


def test_a_replayed_run_tells_nothing_of_its_loader(make_run: MakeRun) -> None:
    """It loaded nothing."""
    found = diagnosed(make_run([0] * 40, mode="replay"))
    assert found.findings == ()
    assert {check.reason and check.reason.code for check in found.checks} == {
        Unknown.LOADED_NOTHING
    }


def test_an_empty_run_has_no_finding(make_run: MakeRun) -> None:
    """No rule stumbles over it."""
    assert diagnosed(make_run([])).findings == ()


def test_two_runs_that_cannot_be_compared(make_run: MakeRun) -> None:
    """The error is that of comparing them."""
    with pytest.raises(UsageError, match="expected a run with mode='replay' as the ideal one"):
        diagnose(make_run([0] * 40), make_run([0] * 40))


def test_each_rule_is_in_the_documentation() -> None:
    """By its name and question, in the same order, and no other is."""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", DOC.read_text(), re.MULTILINE)
    assert rows == [(rule.value, QUESTIONS[rule]) for rule in RULES]


@pytest.mark.parametrize("seed", SEEDS)
def test_costs_never_exceed_what_is_lost(some_run: Callable[[int], Run], seed: int) -> None:
    """Nor all of the time: what loading loses, first waits, outliers, and a fall, each once."""
    run = some_run(seed)
    found = costs(run)
    case = Case.of(run)
    assert case.headroom is not None
    assert case.headroom.lost_share is not None
    allowed = max(case.headroom.lost_share.value, 0.0) + sum(outlying_shares(case))
    allowed += found.get(Rule.EPOCH_BOUNDARIES, 0.0) + found.get(Rule.FALLING_THROUGHPUT, 0.0)
    assert all(cost >= 0 for cost in found.values())
    assert sum(found.values()) <= min(allowed, 1.0) + SLACK


@pytest.mark.parametrize("seed", SEEDS)
def test_costs_in_a_log_never_exceed_its_time(make_run: MakeRun, seed: int) -> None:
    """All waiting at most, and of the steps what is out of the ordinary."""
    rng = np.random.default_rng(seed)
    waits = rng.choice([0, 1, 50, 400]) * rng.choice([1, 1, 1, 60], 400, p=[0.9, 0.05, 0.04, 0.01])
    run = make_run(
        [*waits.tolist()],
        [*rng.choice([50, 100, 2000], 400, p=[0.5, 0.48, 0.02]).tolist()],
        epochs=[100] * 4,
        warmup=1,
        loader=LoaderInfo("torch.x", workers=2 * (seed % 2)),
    )
    assert sum(costs(run).values()) <= 1 + SLACK


def test_capacity_does_not_cost_what_contention_does(alternating: MakeRun) -> None:
    """A loss of 70 of 120 ms: 60 are waited, 10 go into slower steps."""
    found = costs(alternating(wait=60, real=60, ideal=50, alone=80))
    assert found == pytest.approx({Rule.CAPACITY: 60 / 120, Rule.CONTENTION: 10 / 120})


def test_contention_costs_no_more_than_is_lost(alternating: MakeRun) -> None:
    """Steps that are 40 ms slower for waits that are 20 shorter lose 20 ms."""
    run = alternating(wait=0, real=80, ideal=40)
    run.steps.wait_ns[run.steps.arm == 1] = 20 * MS
    assert costs(run) == pytest.approx({Rule.CONTENTION: 20 / 80})


def test_stalls_have_the_waiting_that_they_take(long_alternating: Run, make_run: MakeRun) -> None:
    """What is left of it is that of the finding that tells why training waits."""
    found = costs(make_run([1] * 198 + [1000] * 2, 9))
    assert found[Rule.STALLS] == pytest.approx(2000 / 3998)
    assert found[Rule.WAITING] == pytest.approx(198 / 3998)
    assert costs(long_alternating)[Rule.STALLS] > 0.2


def test_outliers_that_wait_are_told_once(make_run: MakeRun) -> None:
    """Their waits are those of the finding on waiting; steps that take long are their own."""
    waits, steps = [20] * 99 + [500], [80] * 99 + [680]
    total = sum(waits) + sum(steps)
    assert costs(make_run(waits, steps)) == pytest.approx(
        {Rule.WAITING: sum(waits) / total, Rule.OUTLIERS: (500 + 680 - 100 - 480) / total}
    )
    assert finding(Rule.OUTLIERS, make_run(waits, 80)).cost_share is None
    few = make_run([1] * 99 + [200], 99)
    assert costs(few) == pytest.approx({Rule.OUTLIERS: 199 / (99 * 100 + 299)})


def test_throughput_that_falls_is_told_once(make_run: MakeRun) -> None:
    """As waits grow it is part of the waiting; as steps grow it is what nothing else tells of."""
    run = make_run([number * 2 for number in range(100)], 100, loader=LoaderInfo("x", workers=2))
    assert finding(Rule.FALLING_THROUGHPUT, run).cost_share is None
    assert costs(run) == pytest.approx({Rule.WAITING: 9900 / 19900})
    found = costs(make_run([0] * 100, [100 + number for number in range(100)]))
    assert found.keys() == {Rule.FALLING_THROUGHPUT}


def test_epochs_start_outside_of_the_steady_state(alternating: MakeRun) -> None:
    """Of 850 ms and 7 batches of 100, 8 batches lose 50 ms each, and the start 750 more."""
    found = costs(alternating(wait=50, alone=100, first=800, length=8))
    assert found == pytest.approx(
        {Rule.EPOCH_BOUNDARIES: (850 - 100) / 1550, Rule.CAPACITY: 8 * 50 / 1550}
    )


def slow_to_start(make_run: MakeRun, wait: int, step: int, ideal: int) -> tuple[Run, Run]:
    """An epoch of 40 batches that starts with 400, and one that replayed."""
    loader = LoaderInfo("torch.x", workers=2)
    real = make_run([400, *[wait] * 39], step, warmup=1, loader=loader)
    return real, make_run([0] * 40, ideal, mode="replay", loader=loader)


def test_the_start_of_a_single_epoch_is_no_part_of_the_steady_state(make_run: MakeRun) -> None:
    """Of 490 and 39 batches of 100, 40 wait 10 each: what the start costs is not found here."""
    found = costs(*slow_to_start(make_run, 10, 90, 90))
    assert found == pytest.approx({Rule.WAITING: 400 / 4390})


def test_shares_of_the_steady_state_have_no_part_of_epoch_starts(make_run: MakeRun) -> None:
    """Neither that of waiting, which is no more than what is lost, nor that of slower steps."""
    faster = Case.of(*slow_to_start(make_run, 60, 40, 80))
    assert faster.waiting_share == pytest.approx(20 / 100)
    slower = Case.of(*slow_to_start(make_run, 10, 60, 50))
    assert slower.contention_share == pytest.approx(10 / 70)


def test_a_loss_at_epoch_starts_alone_is_no_loss_of_the_steady_state(make_run: MakeRun) -> None:
    """Whole epochs lose 10%, and the rules for the steady state have nothing to explain."""
    case = Case.of(*slow_to_start(make_run, 0, 90, 90))
    assert case.headroom is not None
    assert case.headroom.lost_share is not None
    assert case.headroom.lost_share.value == pytest.approx(400 / 4000)
    assert case.lost is None
