"""The parts of the page that are text: its top, backends side by side, settings, reproduction."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loadeval.analysis.backends import ranked
from loadeval.report.findings import SHORT_HEADING, findings_in_short
from loadeval.report.formatting import (
    LONGEST_NAME,
    NOT_MEASURED,
    counted,
    duration,
    interval,
    per_second,
    share,
    short_name,
    size,
    speedup,
    throughput,
)
from loadeval.report.html.blocks import Code, Heading, Keys, Section, Table, Text, side_by_side
from loadeval.report.text import (
    BACKEND_HEAD,
    LONGEST_FACT,
    backend_gains,
    backend_lists,
    fact,
    loader_facts,
)
from loadeval.report.wording.backends import (
    BRACKETS,
    backend_cautions,
    difference_sentence,
    measured_in_words,
)
from loadeval.report.wording.page import HOW_TO_MEASURE_GAIN, MADE, STEADY_RATES
from loadeval.report.wording.ranks import described_job, job_cautions, stragglers_in_words
from loadeval.report.wording.runs import described_loader, run_notes
from loadeval.report.wording.verdict import (
    STEADY,
    THRESHOLDS,
    TOO_FEW_FOR_CI,
    capitalized,
    cautions,
    lost_in_words,
    measured,
    not_measured,
    verdict_advice,
)
from loadeval.runlog.environment import own_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from loadeval.analysis.backends import BackendReport, BackendResult
    from loadeval.analysis.ranks import JobReport
    from loadeval.analysis.report import Comparison, Report, RunReport
    from loadeval.analysis.stats import Estimate
    from loadeval.report.html.blocks import Block
    from loadeval.report.tables import Rows

MOST_KEYS = 4
MOST_NOTES = 50
FILES_HEAD = ("file", "run", "mode", "id", "batches", "complete")
Key = tuple[str, str, str]


def top(report: Report) -> list[Block]:
    """Under the headline: a few figures, the time lost, what to do, and cautions."""
    job = [] if report.job is None else _top_of_job(report.job)
    if report.comparison is not None:
        return [*_top_of_comparison(report.comparison), *job]
    if report.backends is not None:
        return _top_of_backends(report.backends)
    return [*_top_of_run(report.runs[0]), *job]


def backends(report: Report) -> list[Section]:
    """One section where there are several backends, else none."""
    found = report.backends
    if found is None:
        return []
    rows = tuple(map(tuple, backend_gains(found, LONGEST_NAME)))
    blocks: list[Block] = [Table("What each would gain, with 95% CI", tuple(BACKEND_HEAD), rows)]
    for title, sentences in backend_lists(found):
        blocks += [Heading(title), Text(tuple(sentences), "list")]
    return [Section("backends", "Backends side by side", tuple(blocks))]


def settings(report: Report) -> Section:
    """Loader, settings and environment, with a column for each run; and notes."""
    runs = [one.run for one in report.runs]
    names = [one.name or one.run.header.mode for one in report.runs]
    loaders = [
        [*loader_facts(run), ("adapter", short_name(run.header.loader.adapter, LONGEST_FACT))]
        for run in runs
    ]
    asked = _merged([_flat(run.header.settings) for run in runs])
    where = _merged([_flat(run.header.environment) for run in runs])
    blocks: list[Block] = [
        side_by_side("Loader", names, loaders),
        side_by_side("Settings", names, asked),
        side_by_side("Environment", names, where),
    ]
    notes = [line for one in report.runs for line in run_notes(one)]
    if notes:
        more = [f"and {len(notes) - MOST_NOTES:,} more"] if len(notes) > MOST_NOTES else []
        blocks += [Heading("Notes"), Text((*notes[:MOST_NOTES], *more), "list")]
    return Section("settings", "Settings", tuple(blocks))


def reproduce(report: Report, files: Sequence[Path], output: Path) -> Section:
    """Commands for a shell, and which runs the files hold."""
    alone = report.comparison is None and report.backends is None and report.job is None
    command = "show" if alone else "compare"
    commands = (
        shlex.join(["loadeval", "report", *map(str, files), "-o", str(output)]),
        shlex.join(["loadeval", command, *map(str, files)]),
    )
    job = report.job
    runs = report.runs if job is None else report.runs * len(files)
    # A folder may hold two runs: a real one, and its replay.
    paths = files if len(files) == len(runs) else [one.run.path or files[0] for one in runs]
    rows = tuple(
        (
            short_name(path.name),
            short_name(one.run.header.name),
            one.run.header.mode,
            short_name(one.run.header.run_id) if job is None else f"{len(job.ranks):,} ranks",
            f"{len(one.run.steps):,}",
            "yes" if one.run.closed else "no",
        )
        for path, one in zip(paths, runs, strict=True)
    )
    made = MADE.format(version=own_version(), files=counted(len(files), "file", "files"))
    table = Table("Files", FILES_HEAD, rows)
    return Section("reproduce", "Reproduce", (Text((made,)), Code(commands), table))


def _top_of_job(job: JobReport) -> list[Block]:
    return [
        Text((described_job(job), stragglers_in_words(job))),
        Text(tuple(job_cautions(job)), "caution"),
    ]


def _top_of_run(one: RunReport) -> list[Block]:
    (side,) = one.sides
    summary = side.summary
    unit = short_name(one.run.header.unit)
    keys = Keys(
        (
            ("throughput", throughput(summary, unit), ""),
            ("iteration, mean", duration(summary.iteration_ns), ""),
            ("wait, mean", duration(summary.wait_ns), ""),
            ("step, mean", duration(summary.step_ns), ""),
        )
    )
    steady = counted(summary.steady_batches, "steady batch", "steady batches")
    epochs = counted(summary.epochs, "epoch", "epochs")
    what = f"{described_loader(one.run)}; {steady} of {summary.batches:,} in {epochs}."
    return [keys, Text((HOW_TO_MEASURE_GAIN,)), Text((what,), "small")]


def _top_of_comparison(comparison: Comparison) -> list[Block]:
    found = comparison.headroom
    real, ideal = (None if rate is None else rate.value for rate in comparison.rates[:2])
    unit = short_name(comparison.unit)
    keys = Keys(
        (
            _with_interval("if loading were free", found.speedup, speedup),
            _with_interval("time lost to data loading", found.lost_share, share),
            (f"real, {STEADY}", per_second(real, unit), _per_batch(found.real_ns)),
            (f"ideal, {STEADY}", per_second(ideal, unit), _per_batch(found.ideal_ns)),
        )
    )
    lines = [] if found.lost_ns is None else [lost_in_words(found)]
    rows = tuple(findings_in_short(comparison.diagnosis))
    # With findings, these say what to change.
    if found.verdict.objection is not None or not rows:
        lines.append(verdict_advice(found))
    short = [Table("Findings in short", SHORT_HEADING, rows, fits=True)] if rows else []
    details = f"{described_loader(comparison.real)}; {measured(found)}. Verdicts: {THRESHOLDS}."
    return [
        keys,
        Text(tuple(filter(None, lines))),
        *short,
        Text((*cautions(found), *not_measured(found)), "caution"),
        Text((details,), "small"),
    ]


def _top_of_backends(found: BackendReport) -> list[Block]:
    unit = short_name(found.unit)
    keys = Keys(tuple(_real(one, unit) for one in ranked(found.backends)[:MOST_KEYS]))
    # The headline leaves the size of a difference that is not shown out.
    first = [difference_sentence(one) for one in found.differences[:1] if not one.shown]
    return [
        keys,
        Text(tuple(f"{capitalized(line)}." for line in first)),
        Text(tuple(backend_cautions(found)), "caution"),
        Text((f"{measured_in_words(found)} {BRACKETS} {STEADY_RATES}",), "small"),
    ]


def _real(one: BackendResult, unit: str) -> Key:
    name = short_name(one.name)
    if one.error is not None:
        return name, "failed", one.error
    return _with_interval(name, one.real, lambda rate: per_second(rate, unit))


def _with_interval(label: str, found: Estimate | None, text: Callable[[float], str]) -> Key:
    if found is None:
        return label, NOT_MEASURED, ""
    between = interval(found, text)
    detail = f"95% CI {between}" if between else TOO_FEW_FOR_CI
    return label, text(found.value), detail


def _per_batch(iteration_ns: float | None) -> str:
    return "" if iteration_ns is None else f"{duration(iteration_ns)} per batch"


def _flat(found: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Names and values; of what is nested, the names joined."""
    rows: dict[str, str] = {}
    for name, value in found.items():
        label = f"{before}{str(name).replace('_', ' ')}"
        if isinstance(value, Mapping) and not before:
            rows |= _flat(value, f"{label}: ")
        elif str(name).endswith("_bytes") and isinstance(value, int):
            rows[label] = size(value)
        else:
            rows[label] = fact(value, "not set or not known")
    return rows


def _merged(columns: list[dict[str, str]]) -> list[Rows]:
    labels = list(dict.fromkeys(label for column in columns for label in column))
    return [
        [(short_name(label, LONGEST_FACT), column.get(label, "not recorded")) for label in labels]
        for column in columns
    ]
