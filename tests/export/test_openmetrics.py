"""A run as metrics, as prometheus_client's own parser reads them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from loadeval import UsageError, read_run
from loadeval.analysis.live import LiveRun
from loadeval.analysis.report import Report
from loadeval.export import Format, export_run, openmetrics
from loadeval.export.openmetrics import OF_REPORTS, OF_STATES, STEP_NS, labelled, metrics_of
from loadeval.runlog.model import ARMS, SECOND_NS
from tests.runs import DEMO
from tests.runs.given import MS
from tests.runs.measured import record

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval import Run
    from loadeval.analysis.live import LiveState

CREATED_S = datetime.fromisoformat("2026-01-31T12:00:00+00:00").timestamp()


def exported(run: Run, path: Path) -> dict[str, list[Any]]:
    """The samples of each name in the file that is written."""
    export_run(run, Format.OPENMETRICS, path)
    return parsed(path.read_text())


def parsed(text: str) -> dict[str, list[Any]]:
    samples: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    return samples


def state_of(path: Path) -> LiveState:
    """The last state of the run at `path`."""
    from loadeval.cli.watch import states

    state = next(states(path, 0.0))
    assert state is not None
    return state


def test_the_totals_are_those_of_the_run(tmp_path: Path) -> None:
    """Batches, samples, waits and steps; the times are those of the run."""
    run = read_run(record(tmp_path / "run.jsonl", epochs=2, probes=()))
    steps, samples = run.steps, exported(run, tmp_path / "it")
    for name, value in {
        "loadeval_batches_total": 60,
        "loadeval_samples_total": 240,
        "loadeval_wait_seconds_total": steps.wait_ns.sum() / 1e9,
        "loadeval_step_seconds_total": steps.step_ns.sum() / 1e9,
        "loadeval_epoch": 1,
        "loadeval_first_epoch_start_seconds": 0.03,
        "loadeval_last_epoch_start_seconds": 0.03,
        "loadeval_ended": 1,
    }.items():
        (sample,) = samples[name]
        assert sample.value == pytest.approx(value), name
        assert sample.labels["rank"] == "0"
    (info,) = samples["loadeval_run_info"]
    assert info.labels == {"run": "run", "rank": "0", "mode": "log", "unit": "images"}


def test_what_is_not_known_is_absent(log_file: Path, tmp_path: Path) -> None:
    """Of samples of which one is not known there is no total, and no lost share of a log."""
    samples = exported(read_run(log_file), tmp_path / "it")
    (batches,) = samples["loadeval_batches_total"]
    assert batches.value == 3
    absent = {"samples_total", "memory_bytes", "outliers_total", "lost_ratio", "lost_low_ratio"}
    assert not {f"loadeval_{name}" for name in absent} & set(samples)
    assert samples["loadeval_ended"][0].value == 0
    (last,) = samples["loadeval_last_batch_timestamp_seconds"]
    assert last.value == pytest.approx(CREATED_S + 201e-6, abs=1e-6)


def test_a_run_without_a_batch_has_no_totals(empty_file: Path, tmp_path: Path) -> None:
    """It has what is known: that it is there, and that it ended."""
    samples = exported(read_run(empty_file), tmp_path / "it")
    assert set(samples) == {"loadeval_run_info", "loadeval_ended"}


def test_there_is_a_value_for_every_15_seconds(tmp_path: Path) -> None:
    """At each such time those batches count whose step had ended, and at the end all do."""
    path = record(tmp_path / "run.jsonl", batches=40, wait_ms=900, step_ns=100 * MS, probes=())
    run = read_run(path)
    created_s = datetime.fromisoformat(run.header.created).timestamp()
    samples = exported(run, tmp_path / "it")["loadeval_batches_total"]
    times_s = [float(sample.timestamp) - created_s for sample in samples]
    assert times_s == pytest.approx([15, 30, 40], abs=0.01)
    ends_ns = run.steps.request_ns + run.steps.wait_ns + run.steps.step_ns
    for time_s, sample in zip(times_s, samples, strict=True):
        assert sample.value == (ends_ns <= time_s * 1e9 + 1e3).sum()


def test_a_long_run_has_a_value_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it was, the file has so many of each and the last."""
    monkeypatch.setattr(openmetrics, "MOST_STEPS", 4)
    path = record(tmp_path / "run.jsonl", batches=100, wait_ms=900, step_ns=100 * MS, probes=())
    samples = exported(read_run(path), tmp_path / "it")["loadeval_batches_total"]
    assert [sample.value for sample in samples] == [25, 50, 75, 100]


def test_the_last_values_are_the_state_that_watch_tells(tmp_path: Path) -> None:
    """Of each arm of an alternating run, in which the report has its lost share and findings."""
    run, state = read_run(DEMO), state_of(DEMO)
    samples = exported(run, tmp_path / "it")
    report = Report.of([run])
    assert report.comparison is not None
    assert report.comparison.headroom.lost_share is not None
    assert {sample.labels["arm"] for sample in samples["loadeval_batches_total"]} == set(ARMS)
    last = {sample.labels["arm"]: sample.value for sample in samples["loadeval_batches_total"]}
    assert last == {arm: sums.batches for arm, sums in state.arms.items()}
    (lost,) = samples["loadeval_lost_ratio"]
    assert lost.value == pytest.approx(report.comparison.headroom.lost_share.value)
    ((_, diagnosis),) = report.diagnoses
    assert [sample.labels["rule"] for sample in samples["loadeval_finding_info"]] == [
        finding.rule.value for finding in diagnosis.findings
    ]
    costs = {s.labels["rule"]: s.value for s in samples["loadeval_finding_cost_ratio"]}
    assert costs == {
        finding.rule.value: pytest.approx(finding.cost_share)
        for finding in diagnosis.findings
        if finding.cost_share is not None
    }


def test_a_run_whose_start_is_not_known_is_refused(tmp_path: Path) -> None:
    """A file without times could not be taken in."""
    run = read_run(record(tmp_path / "run.jsonl", probes=()))
    run = replace(run, header=replace(run.header, created="yesterday"))
    with pytest.raises(UsageError, match="created at 'yesterday'"):
        exported(run, tmp_path / "it")


def test_now_has_no_last_batch_where_the_start_is_not_known(tmp_path: Path) -> None:
    """A served run is scraped all the same."""
    state = replace(state_of(record(tmp_path / "run.jsonl")), created="yesterday")
    names = {metric.name for metric in metrics_of(labelled("run", [("run", state)]), None)}
    assert "loadeval_batches" in names
    assert "loadeval_last_batch_timestamp_seconds" not in names


def test_ranks_are_told_apart() -> None:
    """By number, or where that does not tell by the names of their logs; alone it is rank 0."""

    def ranks(*numbers: int | None) -> list[str]:
        run = LiveRun()
        run.take(read_run(DEMO).header)
        state = run.state(0)
        assert state is not None
        given = [(f"log{place}", replace(state, rank=rank)) for place, rank in enumerate(numbers)]
        return [point.labels["rank"] for point in labelled("job", given)]

    assert ranks(None) == ["0"]
    assert ranks(3) == ["3"]
    assert ranks(1, 0) == ["1", "0"]
    assert ranks(1, 1) == ["log0", "log1"]
    assert ranks(None, 1) == ["log0", "log1"]
    assert ranks() == []


def test_every_family_follows_the_conventions() -> None:
    """A prefix, a unit at the end of the name, base units, and a text."""
    for family in (*OF_STATES, *OF_REPORTS):
        assert family.name.startswith("loadeval_")
        assert family.name.endswith(family.unit)
        assert family.unit in {"", "seconds", "bytes", "ratio"}
        assert not family.name.endswith(("_total", "_info"))
        assert family.help.endswith(".")
    assert STEP_NS == 15 * SECOND_NS
