"""A run as metrics by the conventions of Prometheus and OpenMetrics: base units, totals, labels.

What is not known has no sample.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loadeval.analysis.live import LiveRun
from loadeval.analysis.report import Report
from loadeval.export.times import began_at_s, seconds_of
from loadeval.runlog.log_file.codec import RunEnd
from loadeval.runlog.log_file.writer import lines_of
from loadeval.runlog.model import SECOND_NS, Block, EpochEnd, Event, Readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from prometheus_client import Metric

    from loadeval.analysis.live import LiveState
    from loadeval.analysis.rules.finding import Finding
    from loadeval.export.files import NewFiles
    from loadeval.runlog.columns import Column
    from loadeval.runlog.log_file.codec import Line
    from loadeval.runlog.model import Run

    Labels = Mapping[str, str]
    Value = tuple[Labels, float | None]

STEP_NS = 15 * SECOND_NS
"""Prometheus' example configuration scrapes so often; a file has a value for each such time."""
MOST_STEPS = 10_000
"""Of a run over 42 hours a file has a value less often; of a month every 259 s, for which
Prometheus, which goes on with a value for 5 minutes, shows no gap."""
SUFFIXES = {"counter": "_total", "info": "_info"}
"""What OpenMetrics puts behind the name of a family, by its type."""


class MetricFamily(NamedTuple):
    """A metric: its name without the suffix of its type, and what it is of a LiveState or Report.

    `read` gives the values, each with the labels that it has beside `run` and `rank`.
    """

    name: str
    kind: str
    unit: str
    help: str
    read: Callable[[Any], Iterable[Value]]

    @property
    def sample(self) -> str:
        """The name under which it is asked for."""
        return self.name + SUFFIXES.get(self.kind, "")


class Point(NamedTuple):
    """What is known of the run with these labels at a time, in seconds since 1970; None is now."""

    labels: Labels
    known: LiveState | Report
    time_s: float | None = None


def _of_arms(name: str, unit: float = 1) -> Callable[[LiveState], Iterator[Value]]:
    def read(state: LiveState) -> Iterator[Value]:
        for arm, sums in state.arms.items():
            value = getattr(sums, name)
            yield {"arm": arm}, None if value is None else value / unit

    return read


def _of_state(name: str, unit: float = 1) -> Callable[[LiveState], Iterator[Value]]:
    def read(state: LiveState) -> Iterator[Value]:
        value = getattr(state, name)
        yield {}, None if value is None else value / unit

    return read


def _info(state: LiveState) -> Iterator[Value]:
    yield {"mode": state.mode, "unit": state.unit}, 1


def _last_batch(state: LiveState) -> Iterator[Value]:
    if state.last_batch_ns is not None:
        try:
            yield {}, seconds_of(state.created) + state.last_batch_ns / SECOND_NS
        except ValueError:  # another program wrote the header
            return


def _memory(state: LiveState) -> Iterator[Value]:
    for process, memory_bytes in state.memory_bytes.items():
        yield {"process": process}, memory_bytes


def _outliers(state: LiveState) -> Iterator[Value]:
    yield {}, None if state.median_iteration_ns is None else state.outlier_count


def _lost(bound: str) -> Callable[[Report], Iterator[Value]]:
    def read(report: Report) -> Iterator[Value]:
        lost = None if report.comparison is None else report.comparison.headroom.lost_share
        yield {}, None if lost is None else getattr(lost, bound)

    return read


def _findings(report: Report) -> Iterator[Finding]:
    return (finding for _, diagnosis in report.diagnoses for finding in diagnosis.findings)


def _finding(report: Report) -> Iterator[Value]:
    for finding in _findings(report):
        yield (
            {
                "rule": finding.rule.value,
                "problem": finding.problem.code.value,
                "severity": finding.severity,
                "confidence": finding.confidence,
            },
            1,
        )


def _cost(report: Report) -> Iterator[Value]:
    for finding in _findings(report):
        yield {"rule": finding.rule.value}, finding.cost_share


OF_STATES = (
    MetricFamily(
        "loadeval_run", "info", "", "The mode of a run, and what its samples are called.", _info
    ),
    MetricFamily(
        *("loadeval_batches", "counter", "", "Batches whose step has ended."), _of_arms("batches")
    ),
    MetricFamily(
        *("loadeval_samples", "counter", "", "Samples in these batches."), _of_arms("samples")
    ),
    MetricFamily(
        *("loadeval_wait_seconds", "counter", "seconds", "How long training waited for them."),
        _of_arms("wait_ns", SECOND_NS),
    ),
    MetricFamily(
        *("loadeval_step_seconds", "counter", "seconds", "How long training worked with them."),
        _of_arms("step_ns", SECOND_NS),
    ),
    MetricFamily("loadeval_epoch", "gauge", "", "The last epoch, from 0.", _of_state("epoch")),
    MetricFamily(
        *("loadeval_first_epoch_start_seconds", "gauge", "seconds"),
        "The first wait of the first epoch.",
        _of_state("epoch_start_ns", SECOND_NS),
    ),
    MetricFamily(
        *("loadeval_last_epoch_start_seconds", "gauge", "seconds"),
        "The first wait of the last epoch, if there were more.",
        _of_state("last_epoch_start_ns", SECOND_NS),
    ),
    MetricFamily(
        *("loadeval_outliers", "counter", "", "Iterations over twice the median."), _outliers
    ),
    MetricFamily(
        *("loadeval_memory_bytes", "gauge", "bytes"),
        "Memory of the training process and of its workers, what is shared counted once.",
        _memory,
    ),
    MetricFamily(
        *("loadeval_last_batch_timestamp_seconds", "gauge", "seconds"),
        "When the last batch was delivered, in seconds since 1970.",
        _last_batch,
    ),
    MetricFamily("loadeval_ended", "gauge", "", "1 once the run has ended.", _of_state("ended")),
)
"""What is read of the state of each rank."""
OF_REPORTS = (
    MetricFamily(
        *("loadeval_lost_ratio", "gauge", "ratio"),
        "The share of the training time that data loading costs.",
        _lost("value"),
    ),
    MetricFamily(
        *("loadeval_lost_low_ratio", "gauge", "ratio"), "The low end of its 95% CI.", _lost("low")
    ),
    MetricFamily(
        *("loadeval_lost_high_ratio", "gauge", "ratio"),
        "The high end of its 95% CI.",
        _lost("high"),
    ),
    MetricFamily("loadeval_finding", "info", "", "What was found to be wrong.", _finding),
    MetricFamily(
        *("loadeval_finding_cost_ratio", "gauge", "ratio"),
        "The share of the training time that a finding costs.",
        _cost,
    ),
)
"""What is read of the report on all ranks together, which have no label for one."""


def metrics_of(points: Sequence[Point], report: Report | None) -> list[Metric]:
    """The families that have a value, of states in the order of time.

    And of the `report` on the run of the last of them, at its time.
    """
    metrics = [_metric(family, points) for family in OF_STATES]
    if points and report is not None:
        whole = points[-1]._replace(labels={"run": points[-1].labels["run"]}, known=report)
        metrics += [_metric(family, [whole]) for family in OF_REPORTS]
    return [metric for metric in metrics if metric.samples]


def _metric(family: MetricFamily, points: Iterable[Point]) -> Metric:
    from prometheus_client import Metric  # noqa: PLC0415 - few runs go to Prometheus
    from prometheus_client.samples import Sample  # noqa: PLC0415 - likewise

    # The values of one set of labels follow on one another.
    series: dict[tuple[tuple[str, str], ...], list[Sample]] = defaultdict(list)
    for labels, known, time_s in points:
        for own, value in family.read(known):
            if value is not None:
                sample = Sample(family.sample, {**labels, **own}, float(value), time_s)
                series[tuple(sample.labels.items())].append(sample)
    metric = Metric(family.name, family.help, family.kind, family.unit)
    metric.samples = [sample for samples in series.values() for sample in samples]
    return metric


def labelled(run: str, states: Sequence[tuple[str, LiveState]]) -> list[Point]:
    """The states of the ranks of `run`, each under the name of its log, with their labels.

    A rank is called by its number, or by its log where the numbers do not tell logs apart.
    """
    ranks = [state.rank for _, state in states]
    names = [str(rank) for rank in ranks]
    if len(states) == 1:
        names = [str(ranks[0] or 0)]
    elif None in ranks or len(set(ranks)) < len(ranks):
        names = [name for name, _ in states]
    return [
        Point({"run": run, "rank": rank}, state)
        for rank, (_, state) in zip(names, states, strict=True)
    ]


def write_openmetrics(run: Run, path: Path, files: NewFiles) -> None:
    """What Prometheus would have scraped of `run`, with times, for `promtool`.

    The report has the time of the last value. Raises UsageError if the run's start is unknown.
    """
    from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415 - few runs go to Prometheus

    began_s = began_at_s(run)
    points = [
        point._replace(time_s=began_s + time_ns / SECOND_NS)
        for time_ns, state in states_over(run)
        for point in labelled(run.header.name, [(run.header.name, state)])
    ]
    metrics = metrics_of(points, Report.of([run]))
    text: bytes = generate_latest(SimpleNamespace(collect=lambda: metrics))  # type: ignore[no-untyped-call]
    files.part(path).write_bytes(text)


def states_over(run: Run) -> Iterator[tuple[int, LiveState]]:
    """The state every 15 s, or MOST_STEPS times, and at the end; with its time since the start."""
    step_ns = max(STEP_NS, _length_ns(run) // MOST_STEPS)
    live, due_ns = LiveRun(), step_ns
    live.take(run.header)
    parts = (part for line in lines_of(run) for part in _cut(line, step_ns))
    timed = sorted(((_time_of(part), part) for part in parts), key=_first)
    for time_ns, part in timed:
        while time_ns > due_ns:
            state = live.state(0)
            if state is not None:
                yield due_ns, state
            due_ns += step_ns
        live.take(part)
    if run.closed:
        live.take(RunEnd(run.batches))
    state = live.state(0)
    if state is not None:
        yield max(state.elapsed_ns, due_ns - step_ns), state


def _length_ns(run: Run) -> int:
    columns = [run.steps.request_ns, *(readings.time_ns for readings in run.readings)]
    return max(
        *(int(column.max(initial=0)) for column in columns),
        *(end.request_ns or 0 for end in run.ends),
        *(event.time_ns for event in run.events),
        0,
    )


def _first(timed: tuple[int, Line]) -> int:
    return timed[0]


def _cut(line: Line, step_ns: int) -> Iterator[Line]:
    """`line` in parts, each of which is of one step; nothing of what a state ignores."""
    if isinstance(line, Block):
        for rows in _in_steps(line.request_ns, step_ns):
            yield line.part(rows)
    elif isinstance(line, Readings):
        for rows in _in_steps(line.time_ns, step_ns):
            values = {name: column[rows] for name, column in line.values.items()}
            yield replace(line, time_ns=line.time_ns[rows], values=values)
    elif isinstance(line, EpochEnd):
        if line.request_ns is not None:
            yield line
    elif isinstance(line, Event):
        yield line


def _in_steps(time_ns: Column, step_ns: int) -> Iterator[slice]:
    steps = (time_ns - 1) // step_ns
    bounds = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(time_ns)]
    return (slice(start, stop) for start, stop in pairwise(bounds) if stop > start)


def _time_of(line: Line) -> int:
    """When a part of `_cut` was known."""
    if isinstance(line, Block):
        return int(line.request_ns[-1])
    if isinstance(line, Readings):
        return int(line.time_ns[-1])
    if isinstance(line, EpochEnd):
        return line.request_ns or 0
    return line.time_ns if isinstance(line, Event) else 0
