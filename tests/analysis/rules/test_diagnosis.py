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
from loadeval.data.lines import LoaderInfo
from loadeval.errors import UsageError
from loadeval.report.wording.findings import WORDS
from tests.analysis.rules.conftest import diagnosed, finding_of
from tests.runs.given import MS, alternating, make_run
from tests.runs.tables import with_steps

if TYPE_CHECKING:
    from loadeval.data.run import Run

DOC = Path(__file__).parents[3] / "docs/findings.md"
SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.check) for seed in range(8, 150))]
SLACK = 1e-9


def costs(real: Run, ideal: Run | None = None) -> dict[Rule, float]:
    findings = diagnosed(real, ideal).findings
    return {
        finding.rule: finding.cost_share for finding in findings if finding.cost_share is not None
    }


def shaken(run: Run, rng: np.random.Generator) -> Run:
    """The run with some stalls, some long steps, and maybe a trend."""
    columns = {}
    for name in ("wait_ns", "step_ns"):
        hit = rng.random(len(run.steps)) < rng.choice([0.0, 0.005, 0.02])
        longer_ns = run.steps[name] + hit * int(rng.choice([100, 1000, 5000]) * MS)
        trend = np.linspace(1, rng.choice([1, 1, 4]), len(run.steps))
        columns[name] = (longer_ns * trend).astype(np.int64)
    return with_steps(run, **columns)


def some_run(seed: int) -> Run:
    """An alternating run of anything, by a seed."""
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


def test_a_clean_run_has_no_finding() -> None:
    """Every rule is told as checked, in order."""
    diagnosis = diagnosed(alternating(alone=20))
    assert diagnosis.findings == ()
    assert [check.rule for check in diagnosis.checks] == list(RULES) == list(Rule)
    assert {check.outcome for check in diagnosis.checks} == {"nothing found", "not measured"}


def test_the_costliest_comes_first() -> None:
    """Those of which the cost is not known come last, the severest first."""
    diagnosis = diagnosed(alternating(wait=60, real=60, ideal=50, alone=80, workers=9))
    expected = [Rule.CAPACITY, Rule.CONTENTION, Rule.OVERSUBSCRIPTION]
    assert [finding.rule for finding in diagnosis.findings] == expected
    assert [finding.cost_share for finding in diagnosis.findings[:2]] == pytest.approx(
        [60 / 120, 10 / 120]
    )
    assert [check.rule for check in diagnosis.checks if check.outcome == "found"] == expected


def test_of_one_pair_a_loss_is_told() -> None:
    """There is no interval, so it is only possible, and how many batches give one is told."""
    run = alternating(wait=240, real=120, ideal=60, alone=300, pairs=1)
    findings = diagnosed(run).findings
    assert [finding.rule for finding in findings] == [Rule.CAPACITY, Rule.CONTENTION]
    assert [finding.cost_share for finding in findings] == pytest.approx([240 / 360, 60 / 360])
    for finding in findings:
        assert finding.confidence == "possible"
        assert finding.caveat is not None
        assert finding.caveat.code is Caveat.TOO_FEW_PAIRS
        assert finding.caveat.values == {"pairs": 1, "needed": 2, "more_batches": 16}


def test_two_short_runs_tell_a_loss() -> None:
    """There too it is only possible."""
    real, ideal = make_run([400] * 4, 100), make_run([0] * 4, 100, mode="replay")
    finding = finding_of(Rule.WAITING, real, ideal)
    assert finding.confidence == "possible"
    assert finding.caveat is not None
    assert finding.caveat.code is Caveat.RUNS_TOO_SHORT


def test_with_two_pairs_a_loss_is_sure() -> None:
    """There is no caveat then."""
    findings = diagnosed(alternating(wait=50, real=60, ideal=50, alone=100, pairs=2)).findings
    assert {finding.caveat for finding in findings} == {None}
    assert findings[-1].confidence == "measured"


@pytest.mark.parametrize("setting", ["dataloader_prefetch_factor", "prefetch_factor"])
def test_a_setting_has_the_name_that_the_user_knows(setting: str) -> None:
    """A trainer's argument, say, where that made the loader; what names no setting stays."""
    names = {"prefetch_factor": setting}
    run = alternating(wait=12.5, alone=40, prefetch_depth=4, uneven=True, setting_names=names)
    deeper, hides = finding_of(Rule.SHALLOW_QUEUE, run).changes
    assert deeper.values["setting"] == setting
    assert "setting" not in hides.values


def test_a_replayed_run_tells_nothing_of_its_loader() -> None:
    """It loaded nothing."""
    diagnosis = diagnosed(make_run([0] * 40, mode="replay"))
    assert diagnosis.findings == ()
    assert {check.reason and check.reason.code for check in diagnosis.checks} == {
        Unknown.LOADED_NOTHING
    }


def test_an_empty_run_has_no_finding() -> None:
    """No rule stumbles over it."""
    assert diagnosed(make_run([])).findings == ()


def test_two_runs_that_cannot_be_compared() -> None:
    """The error is that of comparing them."""
    with pytest.raises(UsageError, match="expected a run with mode='replay' as the ideal one"):
        diagnose(make_run([0] * 40), make_run([0] * 40))


def test_each_rule_is_in_the_documentation() -> None:
    """The rules are there by name and question, in the same order, and no others."""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", DOC.read_text(), re.MULTILINE)
    assert rows == [(rule.value, WORDS[rule].question) for rule in RULES]


def test_each_cause_has_what_shows_and_what_excludes_it() -> None:
    """One table has every rule once, with three cells that say something."""
    table = DOC.read_text().partition("## Causes\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    assert {len(row) for row in rows} == {3}
    assert all(all(cell.strip() for cell in row) for row in rows)
    assert sorted(row[0] for row in rows[1:]) == sorted(rule.value for rule in RULES)


@pytest.mark.parametrize("seed", SEEDS)
def test_costs_never_exceed_what_is_lost(seed: int) -> None:
    """They never exceed all of the time: loading, first waits, outliers, a fall, each once."""
    run = some_run(seed)
    shares = costs(run)
    case = Case(run)
    assert case.headroom is not None
    assert case.headroom.lost_share is not None
    allowed = max(case.headroom.lost_share.value, 0.0) + sum(outlying_shares(case))
    allowed += shares.get(Rule.EPOCH_BOUNDARIES, 0.0) + shares.get(Rule.FALLING_THROUGHPUT, 0.0)
    assert all(cost >= 0 for cost in shares.values())
    assert sum(shares.values()) <= min(allowed, 1.0) + SLACK


@pytest.mark.parametrize("seed", SEEDS)
def test_costs_in_a_log_never_exceed_its_time(seed: int) -> None:
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


def test_capacity_does_not_cost_what_contention_does() -> None:
    """A loss of 70 of 120 ms: 60 are waited, 10 go into slower steps."""
    shares = costs(alternating(wait=60, real=60, ideal=50, alone=80))
    assert shares == pytest.approx({Rule.CAPACITY: 60 / 120, Rule.CONTENTION: 10 / 120})


def test_contention_costs_no_more_than_is_lost() -> None:
    """Steps that are 40 ms slower for waits that are 20 shorter lose 20 ms."""
    run = alternating(wait=0, real=80, ideal=40)
    run = with_steps(run, wait_ns=np.where(run.steps.arm == 1, 20 * MS, 0))
    assert costs(run) == pytest.approx({Rule.CONTENTION: 20 / 80})


def test_stalls_have_the_waiting_that_they_take(long_alternating: Run) -> None:
    """What is left of it is that of the finding that tells why training waits."""
    shares = costs(make_run([1] * 198 + [1000] * 2, 9))
    assert shares[Rule.STALLS] == pytest.approx(2000 / 3998)
    assert shares[Rule.WAITING] == pytest.approx(198 / 3998)
    assert costs(long_alternating)[Rule.STALLS] > 0.2


def test_outliers_that_wait_are_told_once() -> None:
    """Their waits are those of the finding on waiting; steps that take long are their own."""
    waits, steps = [20] * 99 + [500], [80] * 99 + [680]
    total = sum(waits) + sum(steps)
    assert costs(make_run(waits, steps)) == pytest.approx(
        {Rule.WAITING: sum(waits) / total, Rule.OUTLIERS: (500 + 680 - 100 - 480) / total}
    )
    assert finding_of(Rule.OUTLIERS, make_run(waits, 80)).cost_share is None
    few = make_run([1] * 99 + [200], 99)
    assert costs(few) == pytest.approx({Rule.OUTLIERS: 199 / (99 * 100 + 299)})


def test_throughput_that_falls_is_told_once() -> None:
    """As waits grow it is part of the waiting; as steps grow it is what nothing else tells of."""
    run = make_run([number * 2 for number in range(100)], 100, loader=LoaderInfo("x", workers=2))
    assert finding_of(Rule.FALLING_THROUGHPUT, run).cost_share is None
    assert costs(run) == pytest.approx({Rule.WAITING: 9900 / 19900})
    shares = costs(make_run([0] * 100, [100 + number for number in range(100)]))
    assert shares.keys() == {Rule.FALLING_THROUGHPUT}


def test_epochs_start_outside_of_the_steady_state() -> None:
    """Of 850 ms and 7 batches of 100, 8 batches lose 50 ms each, and the start 750 more."""
    shares = costs(alternating(wait=50, alone=100, first=800, length=8))
    assert shares == pytest.approx(
        {Rule.EPOCH_BOUNDARIES: (850 - 100) / 1550, Rule.CAPACITY: 8 * 50 / 1550}
    )


def slow_to_start(wait: int, step: int, ideal: int) -> tuple[Run, Run]:
    """An epoch of 40 batches that starts with 400, and one that replayed."""
    loader = LoaderInfo("torch.x", workers=2)
    real = make_run([400, *[wait] * 39], step, warmup=1, loader=loader)
    return real, make_run([0] * 40, ideal, mode="replay", loader=loader)


def test_the_start_of_a_single_epoch_is_no_part_of_the_steady_state() -> None:
    """Of 490 and 39 batches of 100, 40 wait 10 each: what the start costs is not found here."""
    shares = costs(*slow_to_start(10, 90, 90))
    assert shares == pytest.approx({Rule.WAITING: 400 / 4390})


def test_shares_of_the_steady_state_have_no_part_of_epoch_starts() -> None:
    """Neither that of waiting, which is no more than what is lost, nor that of slower steps."""
    faster = Case(*slow_to_start(60, 40, 80))
    assert faster.waiting_share == pytest.approx(20 / 100)
    slower = Case(*slow_to_start(10, 60, 50))
    assert slower.contention_share == pytest.approx(10 / 70)


def test_a_loss_at_epoch_starts_alone_is_no_loss_of_the_steady_state() -> None:
    """Whole epochs lose 10%, and the rules for the steady state have nothing to explain."""
    case = Case(*slow_to_start(0, 90, 90))
    assert case.headroom is not None
    assert case.headroom.lost_share is not None
    assert case.headroom.lost_share.value == pytest.approx(400 / 4000)
    assert case.lost is None
