"""The screen of a run that logged alone, whole."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from loadeval.analysis.report import Report
from loadeval.analysis.rules.finding import Rule
from loadeval.report.terminal.findings import diagnosis_report
from loadeval.report.terminal.launch import launch_screen
from tests.runs.given import cores_read
from tests.runs.looked_into import logged
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.data.run import Run

SCREEN = """\
Training waited for batches 71.4% of the time, at 14.3 batches/s (95% CI
[14.3, 14.3])

findings  zero workers 71.4%, slow transform

what to do            where  predicted
1. try num_workers=1  -      not predicted
2. make blur cheaper  -      not predicted

Mode log shows how long training waited, not what it would gain: loading also
slows the steps beside it. For the gain: loadeval run --mode alternate --
COMMAND

Findings
1. zero workers: high, 71.4% lost, likely
  Nothing is loaded ahead: training spends 71.4% of its time waiting while each
  batch is loaded.
  Advice: Raise num_workers from 0 to 1 only if measuring shows that it helps,
  as tune() does: workers take time to start, and to pass each tensor of a batch
  to training. No CPU is free for it: it helps only while the step or loading
  waits for something. Make decoding and transforms cheaper, or give the
  training more CPUs.
  Evidence: wait, mean 50.0 ms; step, mean 20.0 ms; blur 80.0%.
  Source: PyTorch's documentation of multi-process data loading; bounds of
  TensorFlow's input-pipeline analyzer, 5% and 20% of the time.
2. slow transform: high, cost not known, measured
  blur takes 80.0% of loading a batch: 10.0 ms a call, 4 calls a batch.
  Advice: Make blur cheaper: smaller inputs, a faster library, once for the
  whole batch or on the GPU, or once and for all before training.
  Evidence: its share of loading a batch 80.0%; in a batch 40.0 ms; calls in a
  batch 4.
  Source: times of the stages inside the loader, and a simulation of it without
  this.
Nothing found: confined workers, waiting, data format, slow fetch, slow collate,
tokenising, transfer, slow sampler, pinning, head-of-line blocking, slow
samples, lock, disk, storage latency, slow worker, few shards, slow operator,
Python lock, oversubscription, shared machine, loader re-created, falling
throughput, drift, outliers.
Not measured: capacity, shallow queue, per-batch cost, contention, idle GPU
(ideal loading was not measured: use mode='alternate'); copied pages (no workers
were forked); uneven shards, slow first batch (the length of an epoch, or its
iteration time, is not known); stalls (79 steady-state batches, of 200 needed);
epoch boundaries, worker start, shuffle buffer, sampler start (there was no
second epoch); process memory (the machine's memory size is not known); worker
memory (no memory readings of the workers); unpinned memory, hidden waits (no
CUDA device was in use); not representative (no batches were replayed); padding
(the batches have no mask, lengths or token ids that were read).
"""


def without_workers(fetch: int) -> Run:
    """A log of a loader without workers, on one CPU: more workers would not load any faster."""
    run = logged(workers=0, fetch=fetch, transforms={"blur": 0.8})
    header = replace(run.header, environment={"cpus_usable": 1, "cpus": 1})
    return cores_read(replace(run, header=header), process=1.0)


def test_what_a_log_without_workers_shows() -> None:
    """That nothing is loaded ahead comes first; nothing is predicted, and no rule is left out."""
    report = Report.of([without_workers(50)])
    (diagnosis,) = (diagnosis for _, diagnosis in report.diagnoses)
    console = Console(width=80, file=io.StringIO())
    console.print(diagnosis_report(diagnosis))
    assert isinstance(console.file, io.StringIO)
    screen = [*launch_screen([("run.jsonl", report)], [], [], 80)]
    screen += [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert "\n".join(screen) + "\n" == SCREEN


@pytest.mark.parametrize("fetch", [20, 50, 400])
def test_it_costs_all_that_training_waits(fetch: int) -> None:
    (diagnosis,) = (found for _, found in Report.of([without_workers(fetch)]).diagnoses)
    first, *others = diagnosis.findings
    assert first.rule is Rule.ZERO_WORKERS
    assert first.cost_share == pytest.approx(fetch / (fetch + 20))
    assert all(finding.cost_share is None for finding in others)


@pytest.mark.parametrize("fetch", [5, 50, 400])
def test_every_rule_of_a_log_is_found_or_not_or_not_measured(fetch: int) -> None:
    (diagnosis,) = (found for _, found in Report.of([without_workers(fetch)]).diagnoses)
    assert [check.rule for check in diagnosis.checks] == list(Rule)
    found = {check.rule for check in diagnosis.checks if check.outcome == "found"}
    assert found == {finding.rule for finding in diagnosis.findings}
