"""The screen that `loadeval compare` prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.backends import BackendReport, failed, result_of
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.predict.prediction import Limit, Range
from loadeval.analysis.remark import Remark
from loadeval.analysis.report import Comparison, Report
from loadeval.analysis.rules.actions import Action, Plan, Target
from loadeval.analysis.rules.diagnosis import RULES, diagnose
from loadeval.analysis.rules.finding import Advice, Diagnosis, Finding, Problem, Rule
from loadeval.data.lines import LoaderInfo
from loadeval.report.formatting import interval, share
from loadeval.report.terminal.screen import (
    MOST_LINES,
    backends_screen,
    comparison_screen,
)
from loadeval.report.wording.advice import change_in_short
from tests.runs.given import randomised
from tests.runs.measured import recorded
from tests.runs.staged import staged
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.data.run import Run


MS = 1_000_000
MORE = [("everything", "loadeval compare run.jsonl --full"), ("page", "loadeval report run.jsonl")]
WIDTH = 80
TORCH = "torch.utils.data.DataLoader"


def finding(rule: Rule, cost: float | None = 0.1) -> Finding:
    alternate = (Remark(Advice.ALTERNATE),)
    problem = Remark(Problem.WAIT_UNEXPLAINED, {"wait_share": 0.1})
    return Finding(rule, "high", "measured", problem, alternate, (), cost)


def comparison_of(*runs: Run) -> Comparison:
    comparison = Report.of(runs).comparison
    assert comparison is not None
    return comparison


def screen(*runs: Run, diagnosis: Diagnosis | None = None, plan: Plan | None = None) -> list[str]:
    comparison = comparison_of(*runs)
    if diagnosis is not None:
        comparison = replace(comparison, diagnosis=diagnosis, plan=plan or Plan())
    return comparison_screen(comparison, MORE, WIDTH)


def actions(count: int) -> tuple[Action, ...]:
    """Settings, each of which brings more."""
    return tuple(
        Action(
            Target.SETTING,
            Remark(Advice.RAISE, {"setting": "num_workers", "present": 1, "proposed": number}),
            "src/train.py:48",
            Range(1.1 + number / 10, 1.0 + number / 10, 1.2 + number / 10),
        )
        for number in range(1, count + 1)
    )


def row_of(lines: list[str], label: str) -> list[str]:
    (row,) = (line for line in lines if line.split("  ")[0] == label)
    return [cell.strip() for cell in row.split("  ") if cell.strip()][1:]


def changes(run: Run, **loader: object) -> dict[Rule, str]:
    known = LoaderInfo(backend=TORCH, **loader)  # type: ignore[arg-type]  # as a test says
    header = replace(run.header, loader=known, environment={"cpus_usable": 4})
    findings = diagnose(replace(run, header=header)).findings
    return {result.rule: change_in_short(result) for result in findings}


def test_an_alternating_run() -> None:
    """Three arms with throughput and times; the time lost, split, with intervals; the commands."""
    run = randomised(noise=0)
    lines, gain = screen(run), comparison_of(run).headroom
    assert row_of(lines, "real") == ["800 images/s", "40.0 ms", "10.0 ms", "30.0 ms"]
    assert row_of(lines, "ideal") == ["1,280 images/s", "25.0 ms", "0 ns", "25.0 ms"]
    assert row_of(lines, "loader alone") == ["800 images/s", "40.0 ms", "-", "-"]
    assert row_of(lines, "time lost")[-1] == interval(gain.lost_share, share)
    assert any(line.startswith("  waiting       10.0 ms") for line in lines)
    assert any(line.startswith("  contention    5.00 ms") for line in lines)
    assert lines[-2:] == [
        "everything  loadeval compare run.jsonl --full",
        "page        loadeval report run.jsonl",
    ]


def test_the_arms_are_those_that_the_loss_is_of() -> None:
    """Iterations and waits are the headroom's, and what is no wait is the step."""
    comparison = comparison_of(randomised())
    gain = replace(
        comparison.headroom, real_ns=50e6, real_wait_ns=20e6, ideal_ns=28e6, ideal_wait_ns=1e6
    )
    lines = comparison_screen(replace(comparison, headroom=gain), MORE, WIDTH)
    assert row_of(lines, "real")[1:] == ["50.0 ms", "20.0 ms", "30.0 ms"]
    assert row_of(lines, "ideal")[1:] == ["28.0 ms", "1.00 ms", "27.0 ms"]


def test_an_arm_without_an_iteration() -> None:
    """Says so in place of its times."""
    lines = screen(recorded(warmup=99), recorded("replay"))
    assert row_of(lines, "real") == ["not measured"] * 4


def lost_table(comparison: Comparison, starts: Estimate | None) -> list[list[str]]:
    gain = replace(comparison.headroom, real_ns=20.0 * MS, epoch_starts_ns=starts)
    lines = comparison_screen(replace(comparison, headroom=gain), MORE, WIDTH)
    first = next(at for at, line in enumerate(lines) if "per batch" in line)
    after = next(at for at, line in enumerate(lines) if line.startswith(("inside", "findings")))
    return [re.split(" {2,}", line.strip()) for line in lines[first:after]]


def test_epoch_starts_are_a_row() -> None:
    """The row has their share of the time of whole epochs."""
    table = lost_table(comparison_of(randomised()), Estimate(5.0 * MS, 4.0 * MS, 6.0 * MS))
    assert table[0][0] == "whole epochs"
    assert table[-1] == ["epoch starts", "5.00 ms", "[4.00 ms, 6.00 ms]", "20.0%"]


def test_without_epoch_starts_the_loss_is_of_the_steady_state() -> None:
    """There is no row of them."""
    table = lost_table(comparison_of(randomised()), None)
    assert [row[0] for row in table] == ["steady state", "time lost", "waiting", "contention"]


def test_two_runs_have_two_arms() -> None:
    """The loader was not timed alone."""
    lines = screen(recorded(), recorded("replay"))
    assert not any(line.startswith("loader alone") for line in lines)
    assert row_of(lines, "real")[0] == "100 images/s"
    assert "29 real and 29 ideal batches in two separate runs" in lines


def test_findings_are_one_line() -> None:
    """Each with what it costs, where that is known."""
    diagnosis = Diagnosis((finding(Rule.WAITING), finding(Rule.DRIFT, None)), ())
    lines = screen(randomised(), diagnosis=diagnosis)
    assert "findings  waiting 10.0%, drift" in lines
    assert not any("what to do" in line for line in lines)


def test_what_to_do_follows_in_order() -> None:
    """What and where, what training gains by then, and what limits it in the end."""
    diagnosis = Diagnosis((finding(Rule.WAITING),), ())
    lines = screen(randomised(), diagnosis=diagnosis, plan=Plan(actions(2), Limit.STEP, 1.6))
    first = lines.index("what to do        where        predicted")
    assert lines[first + 1 : first + 5] == [
        "1. num_workers=1  train.py:48  1.20x [1.10x, 1.30x]",
        "2. num_workers=2  train.py:48  1.30x [1.20x, 1.40x]",
        "then the training step: 1.30x of at most 1.60x",
        "",
    ]


def test_no_finding_says_what_was_checked() -> None:
    """It says how much of it could not be measured."""
    run = randomised(iterations_ns=(25 * MS, 25 * MS), waits_ns=(0, 0), noise=0)
    checks = diagnose(run).checks
    unknown = sum(check.outcome == "not measured" for check in checks)
    expected = f"Findings: none in {len(checks) - unknown} checks; {unknown} not measured"
    assert expected in screen(run, diagnosis=Diagnosis((), checks))


def test_an_inconclusive_run_says_what_would_settle_it() -> None:
    """Its advice stands on the screen, for the findings are about something else."""
    lines = screen(randomised(pairs=2))
    assert lines[0].startswith("Inconclusive: ")
    assert "Measure more batches or epochs" in " ".join(lines)


def test_everything_at_once_fits() -> None:
    """All findings, many actions, cautions, an inconclusive verdict: 25 lines of 80 columns.

    What limits in the end is said, however many actions are left out.
    """
    diagnosis = Diagnosis(tuple(finding(rule) for rule in RULES), ())
    plan = Plan(actions(9), Limit.CPUS)
    for run in (randomised(), randomised(pairs=2), randomised(prefetches=False)):
        lines = screen(run, diagnosis=diagnosis, plan=plan)
        assert "then the CPUs: 2.00x" in lines
        assert len(lines) <= MOST_LINES
        assert max(map(len, lines)) <= WIDTH
        assert any(line.startswith("and ") and line.endswith(" more") for line in lines)


def test_what_to_do_comes_before_how_many_batches_were_measured() -> None:
    """That line is left out where the list needs the room."""
    for count in (1, 4):
        diagnosis = Diagnosis((finding(Rule.CAPACITY),), ())
        lines = screen(staged(), diagnosis=diagnosis, plan=Plan(actions(count), Limit.CPUS))
        listed = [line for line in lines if re.match(r"\d\. num_workers=", line)]
        assert len(listed) == count
        has_batches = any("pairs of blocks" in line for line in lines)
        assert has_batches is (count == 1)
        assert len(lines) <= MOST_LINES


def test_a_narrow_screen_folds_whole_columns() -> None:
    """No number is parted from its unit."""
    comparison = comparison_of(randomised(noise=0))
    lines = comparison_screen(comparison, [], 40)
    assert max(map(len, lines)) <= WIDTH
    assert any("800 images/s" in line for line in lines)
    assert sum(line.startswith("real") for line in lines) == 2


def test_names_and_units_cannot_steer_the_terminal() -> None:
    """What a log says is shown as text."""
    assert "\x1b" not in "".join(screen(randomised(unit="\x1b[31mred")))


@pytest.mark.parametrize(
    ("rule", "loader", "expected"),
    [
        (Rule.CAPACITY, {"workers": 2}, "perhaps raise num_workers from 2 to 4"),
        (Rule.CAPACITY, {}, "perhaps try more workers or threads"),
        (Rule.ZERO_WORKERS, {"workers": 0}, "try raising num_workers from 0 to 1"),
        (Rule.CONTENTION, {"workers": 4}, "cheaper transforms and copies"),
        (Rule.CONTENTION, {"workers": 0}, "try raising num_workers from 0 to 1"),
        (Rule.CONTENTION, {}, "cheaper transforms and copies"),
        (Rule.OVERSUBSCRIPTION, {"workers": 9}, "perhaps lower num_workers from 9 to 4"),
    ],
)
def test_a_change_names_the_setting(rule: Rule, loader: dict[str, object], expected: str) -> None:
    """It is called as in the loader's package, with its value where that is known."""
    assert changes(randomised(noise=0), **loader)[rule] == expected


def test_five_backends_fit() -> None:
    """The headline, all three throughputs, and what free loading gains, in 25 lines of 80."""
    names = ("torch", "dali-cpu", "spdl", "a-loader-with-a-long-name", "grain")
    runs = [
        randomised(name=name, iterations_ns=((40 + 9 * place) * MS, 25 * MS))
        for place, name in enumerate(names)
    ]
    lines = backends_screen(BackendReport.of_runs(runs), MORE, WIDTH)
    assert lines[0].startswith("torch trains fastest")
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH
    assert sum(line.startswith("dali-cpu  ") for line in lines) == 2
    assert any(line.startswith("and ") for line in lines)


def test_a_few_backends_leave_room_for_cautions() -> None:
    """Differences and cautions follow the table, and what was not measured is a dash."""
    runs = [recorded(name="torch"), randomised(name="dali", noise=0)]
    lines = backends_screen(BackendReport.of_runs(runs), MORE, WIDTH)
    assert any(line.startswith("dali 8.00x") for line in lines)
    assert any(line.startswith("Caution: The runs are separate") for line in lines)
    (row, _) = (line.split() for line in lines if line.startswith("torch "))
    assert row[-1] == "-"


def test_a_backend_that_failed_is_said() -> None:
    """It is said with its error."""
    measured = result_of("torch", randomised(), "images")
    results = (measured, failed("dali", "OSError: gone"))
    report = BackendReport(results, (), "images", ())
    lines = backends_screen(report, MORE, WIDTH)
    assert "dali failed: OSError: gone" in lines
    assert any(line.split()[:2] == ["dali", "failed"] for line in lines)


def test_one_line_says_where_the_loaders_time_goes() -> None:
    """Below the time lost; the screen is no longer than without."""
    diagnosis = Diagnosis(tuple(finding(rule) for rule in RULES), ())
    lines = screen(staged(), diagnosis=diagnosis)
    (line,) = (line for line in lines if line.startswith("inside the loader"))
    assert line == "inside the loader  fetch 72% (GaussianBlur 43%), collate 18%, transfer 9%"
    assert lines[lines.index(line) - 1].startswith("  epoch starts")
    assert len(lines) <= MOST_LINES
    assert not any(line.startswith("inside") for line in screen(randomised()))


def test_on_a_narrow_screen_that_line_leaves_the_transform_out() -> None:
    """It stays one line."""
    comparison = comparison_of(staged())
    lines = comparison_screen(comparison, MORE, 60)
    (line,) = (line for line in lines if line.startswith("inside the loader"))
    assert line == "inside the loader  fetch 72%, collate 18%, transfer 9%"


def test_a_loader_that_was_not_waited_for_has_no_such_line() -> None:
    """There is nothing to share out."""
    comparison = comparison_of(staged())
    assert comparison.stages is not None
    idle = replace(comparison, stages=replace(comparison.stages, total_ns=0.0))
    assert not any("inside" in line for line in comparison_screen(idle, MORE, WIDTH))


def test_a_long_change_goes_on_in_further_lines() -> None:
    """With all of its numbers, also where there is room for nothing but the first action."""
    (first, *_) = actions(1)
    name = "photographs.Photographs.__getitem__"
    change = Remark(Advice.CHEAPER_NAMED, {"name": name, "times": 2.0})
    plan = Plan((replace(first, change=change), *actions(4)), Limit.STEP, 2.0)
    diagnosis = Diagnosis(tuple(finding(rule) for rule in RULES), ())
    for run in (randomised(), randomised(pairs=2), randomised(prefetches=False)):
        lines = screen(run, diagnosis=diagnosis, plan=plan)
        place = next(at for at, line in enumerate(lines) if line.startswith("1. make"))
        assert lines[place].endswith("1.20x [1.10x, 1.30x]")
        assert "twice as fast" in " ".join(lines[place : place + 3])
        assert len(lines) <= MOST_LINES
        assert max(map(len, lines)) <= WIDTH
