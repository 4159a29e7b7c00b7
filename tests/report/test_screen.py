"""The screen that `loadeval compare` prints."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.backends import BackendReport, MeasuredRun, failed, result_of
from loadeval.analysis.findings.diagnosis import RULES, diagnose
from loadeval.analysis.findings.finding import Diagnosis, Finding
from loadeval.analysis.report import Comparison, Report
from loadeval.report.changes import CHANGES, LONGEST_CHANGE, change_for
from loadeval.report.screen import (
    MOST_LINES,
    backends_screen,
    comparison_screen,
)
from loadeval.runlog.model import LoaderInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run

    Record = Callable[..., Run]

MS = 1_000_000
MORE = [("everything", "loadeval compare run.jsonl --full"), ("page", "loadeval report run.jsonl")]
WIDTH = 80
TORCH = "torch.utils.data.DataLoader"


def finding(rule: str, cost: float | None = 0.1) -> Finding:
    return Finding(rule, "high", "It is.", (), "Change it.", "measured", "us", cost)


def comparison_of(*runs: Run) -> Comparison:
    found = Report.of(runs).comparison
    assert found is not None
    return found


def screen(*runs: Run, diagnosis: Diagnosis | None = None) -> list[str]:
    found = comparison_of(*runs)
    if diagnosis is not None:
        found = dataclasses.replace(found, diagnosis=diagnosis)
    return comparison_screen(found, MORE, WIDTH)


def row_of(lines: list[str], label: str) -> list[str]:
    (row,) = (line for line in lines if line.split("  ")[0] == label)
    return [cell.strip() for cell in row.split("  ") if cell.strip()][1:]


def changed(rule: str, real: Run, **loader: object) -> str:
    known = LoaderInfo(backend=TORCH, **loader)  # type: ignore[arg-type]  # as a test says
    header = dataclasses.replace(real.header, loader=known, environment={"cpus_usable": 4})
    return change_for(finding(rule), comparison_of(dataclasses.replace(real, header=header)))


def test_an_alternating_run(alternating: Record) -> None:
    """Three arms with throughput and times; the time lost, split, with intervals; the commands."""
    lines = screen(alternating(noise=0))
    assert row_of(lines, "real") == ["800 images/s", "40.0 ms", "10.0 ms", "30.0 ms"]
    assert row_of(lines, "ideal") == ["1,280 images/s", "25.0 ms", "0 ns", "25.0 ms"]
    assert row_of(lines, "loader alone") == ["800 images/s", "40.0 ms", "-", "-"]
    assert row_of(lines, "time lost")[-1] == "37.5% to 37.5%"
    assert any(line.startswith("  waiting     10.0 ms") for line in lines)
    assert any(line.startswith("  contention  5.00 ms") for line in lines)
    assert lines[-2:] == [
        "everything  loadeval compare run.jsonl --full",
        "page        loadeval report run.jsonl",
    ]


def test_two_runs_have_two_arms(record: Record) -> None:
    """The loader was not timed alone."""
    lines = screen(record(), record("replay"))
    assert not any(line.startswith("loader alone") for line in lines)
    assert row_of(lines, "real")[0] == "100 images/s"
    assert "29 real and 29 ideal batches in two separate runs" in lines


def test_a_finding_is_one_line(alternating: Record) -> None:
    """Its rule, what it costs, how sure it is and what to change."""
    told = Diagnosis((finding("waiting"), finding("drift", None)), ())
    lines = screen(alternating(), diagnosis=told)
    assert row_of(lines, "waiting") == ["10.0%", "measured", "measure with mode='alternate'"]
    assert row_of(lines, "drift")[0] == "unknown"


def test_no_finding_says_what_was_checked(alternating: Record) -> None:
    """And how much of it could not be measured."""
    run = alternating(iterations_ns=(25 * MS, 25 * MS), waits_ns=(0, 0), noise=0)
    checks = diagnose(run).checks
    unknown = sum(check.outcome == "not measured" for check in checks)
    told = f"Findings: none in {len(checks) - unknown} checks; {unknown} not measured"
    assert told in screen(run, diagnosis=Diagnosis((), checks))


def test_an_inconclusive_run_says_what_would_settle_it(alternating: Record) -> None:
    """Its advice stands on the screen, for the findings are about something else."""
    lines = screen(alternating(pairs=2))
    assert lines[0].startswith("Inconclusive: ")
    assert "Measure more pairs" in " ".join(lines)


def test_everything_at_once_fits(alternating: Record) -> None:
    """Every finding there is, cautions and an inconclusive verdict: 25 lines of 80 columns."""
    told = Diagnosis(tuple(finding(rule.name) for rule in RULES), ())
    for run in (alternating(), alternating(pairs=2), alternating(prefetches=False)):
        lines = screen(run, diagnosis=told)
        assert len(lines) <= MOST_LINES
        assert max(map(len, lines)) <= WIDTH
        assert any(line.startswith("and ") and line.endswith(" more") for line in lines)


def test_a_narrow_screen_folds_whole_columns(alternating: Record) -> None:
    """No number is parted from its unit."""
    found = comparison_of(alternating(noise=0))
    lines = comparison_screen(found, [], 40)
    assert max(map(len, lines)) <= WIDTH
    assert any("800 images/s" in line for line in lines)
    assert sum(line.startswith("real") for line in lines) == 2


def test_names_and_units_cannot_steer_the_terminal(alternating: Record) -> None:
    """What a log says is shown as text."""
    assert "\x1b" not in "".join(screen(alternating(unit="\x1b[31mred")))


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_every_rule_has_a_change(rule: str, alternating: Record) -> None:
    """In a few words, with or without what is known of the loader."""
    for loader in ({}, {"workers": 0}, {"workers": 2, "prefetch_depth": 4}):
        assert 0 < len(changed(rule, alternating(), **loader)) <= LONGEST_CHANGE
    assert set(CHANGES) == {rule.name for rule in RULES}


@pytest.mark.parametrize(
    ("rule", "loader", "told"),
    [
        ("capacity", {"workers": 2}, "raise num_workers from 2 to 4"),
        ("capacity", {}, "make a batch 1.60x cheaper to load"),
        ("zero workers", {"workers": 0}, "raise num_workers from 0"),
        ("zero workers", {}, "load in the background"),
        ("shallow queue", {"prefetch_depth": 4}, "raise prefetch_factor to keep 8 ready"),
        ("shallow queue", {}, "raise prefetch_factor"),
        ("contention", {"workers": 4}, "cheaper transforms, less copying"),
        ("contention", {"workers": 1}, "cheaper transforms, less copying"),
        ("contention", {"workers": 0}, "raise num_workers from 0 to 1"),
        ("contention", {}, "fewer threads, or cheaper transforms"),
        ("too many workers", {"workers": 9}, "lower num_workers from 9 to 4"),
        ("epoch boundaries", {"persistent_workers": True}, "longer epochs, or smaller batches"),
    ],
)
def test_a_change_names_the_setting(
    rule: str, loader: dict[str, object], told: str, alternating: Record
) -> None:
    """As the loader's package calls it, with its value where that is known."""
    assert changed(rule, alternating(noise=0), **loader) == told


def test_fewer_workers_are_tried_where_the_loader_is_fast_enough(record: Record) -> None:
    """Where it is too slow already, fewer would make it slower."""
    real, ideal = record(step_ns=30 * MS), record("replay")
    known = LoaderInfo(backend=TORCH, workers=4)
    real = dataclasses.replace(real, header=dataclasses.replace(real.header, loader=known))
    told = change_for(finding("contention"), comparison_of(real, ideal))
    assert told == "lower num_workers from 4"


def test_workers_that_are_started_anew_are_a_setting(alternating: Record) -> None:
    """Where they may be what takes the time."""
    run = alternating()
    known = dataclasses.replace(run.header.loader, persistent_workers=False)
    run = dataclasses.replace(run, header=dataclasses.replace(run.header, loader=known))
    possible = dataclasses.replace(finding("epoch boundaries"), confidence="possible")
    assert change_for(possible, comparison_of(run)) == "try persistent_workers=True"


def test_five_backends_fit(alternating: Record) -> None:
    """The headline, all three throughputs, and what free loading gains, in 25 lines of 80."""
    names = ("torch", "dali-cpu", "spdl", "a-loader-with-a-long-name", "grain")
    runs = [
        alternating(name=name, iterations_ns=((40 + 9 * place) * MS, 25 * MS))
        for place, name in enumerate(names)
    ]
    lines = backends_screen(BackendReport.of_runs(runs), MORE, WIDTH)
    assert lines[0].startswith("torch trains fastest")
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH
    assert sum(line.startswith("dali-cpu  ") for line in lines) == 2
    assert any(line.startswith("and ") for line in lines)


def test_a_few_backends_leave_room_for_cautions(record: Record, alternating: Record) -> None:
    """Differences and cautions follow the table, and what was not measured is a dash."""
    runs = [record(name="torch"), alternating(name="dali", noise=0)]
    lines = backends_screen(BackendReport.of_runs(runs), MORE, WIDTH)
    assert any(line.startswith("dali 8.00x") for line in lines)
    assert any(line.startswith("Caution: The runs are separate") for line in lines)
    (row, _) = (line.split() for line in lines if line.startswith("torch "))
    assert row[-1] == "-"


def test_a_backend_that_failed_is_said(alternating: Record) -> None:
    """With its error."""
    measured = result_of("torch", MeasuredRun.of(alternating()), "images")
    results = (measured, failed("dali", "OSError: gone"))
    found = BackendReport(results, (), "images", ())
    lines = backends_screen(found, MORE, WIDTH)
    assert "dali failed: OSError: gone" in lines
    assert any(line.split()[:2] == ["dali", "failed"] for line in lines)
