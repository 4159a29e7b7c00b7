"""The parts of the page that are text: its top, backends side by side, settings, reproduction."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loadeval.data.environment import own_version
from loadeval.report.baseline import changes_table, measured_table
from loadeval.report.facts import (
    LONGEST_FACT,
    FactKind,
    On,
    backend_facts,
    loader_facts,
    plan_table,
    recorded,
    report_facts,
    sentences,
)
from loadeval.report.formatting import LONGEST_NAME, NOT_MEASURED, counted, short_name, size
from loadeval.report.page.blocks import Code, Heading, Keys, Section, Text, side_by_side
from loadeval.report.tables import Table
from loadeval.report.terminal.text import gains_table, lists_of
from loadeval.report.wording import baseline as baseline_words
from loadeval.report.wording import page, runs, verdict
from loadeval.report.wording import plan as plan_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadeval.analysis.report import Report
    from loadeval.report.facts import ShownFact
    from loadeval.report.page.blocks import Block
    from loadeval.report.tables import Rows

MOST_KEYS = 4
MOST_NOTES = 50
FILES_HEAD = ("file", "run", "mode", "id", "batches", "complete")


def top(report: Report) -> list[Block]:
    """What is under the headline: a few figures, the time lost, what to do, and cautions."""
    shown = [fact for fact in report_facts(report) if On.PAGE in fact.shown]
    keys = [fact for fact in shown if fact.kind is FactKind.KEY]
    blocks: list[Block] = [Keys(tuple(map(_key, keys[:MOST_KEYS])))] if keys else []
    blocks.append(Text(tuple(sentences(shown, FactKind.TEXT, On.PAGE))))
    if report.comparison is not None and report.comparison.plan.actions:
        plan = report.comparison.plan
        # The caption says what is in the first column.
        blocks.append(replace(plan_table(plan), head=("", *plan_words.HEAD[1:])))
        limit = plan_words.limit_in_words(plan)
        blocks.append(Text(tuple(filter(None, (limit, plan_words.EACH_ON_TOP))), "small"))
    blocks.append(Text(tuple(sentences(shown, FactKind.CAUTION, On.PAGE)), "caution"))
    return [*blocks, Text((" ".join(sentences(shown, FactKind.BASIS, On.PAGE)),), "small")]


def _key(fact: ShownFact) -> tuple[str, str, str]:
    """What belongs to a figure: its interval, or why there is none, and more."""
    bounds = f"95% CI {fact.interval}" if fact.interval else ""
    if not fact.interval and fact.estimated and fact.value != NOT_MEASURED:
        bounds = verdict.TOO_FEW_FOR_CI
    return fact.label, fact.value, ", ".join(filter(None, (bounds, fact.detail)))


def backends(report: Report) -> list[Section]:
    """One section where there are several backends, else none."""
    if report.backends is None:
        return []
    blocks: list[Block] = [gains_table(report.backends, LONGEST_NAME)]
    for title, lines in lists_of(backend_facts(report.backends)):
        blocks += [Heading(title), Text(tuple(lines), "list")]
    return [Section("backends", "Backends side by side", tuple(blocks))]


def baseline(report: Report) -> list[Section]:
    """One section where the run is compared with an earlier one, else none."""
    if report.baseline is None:
        return []
    against = report.baseline
    findings = tuple(baseline_words.finding_changes(against))
    changes: Block = Text((baseline_words.NOTHING_CHANGED,))
    if against.changes:
        changes = changes_table(against)
    blocks = (
        Text((baseline_words.baseline_headline(against),)),
        measured_table(against),
        changes,
        Text(findings, "list"),
        Text(tuple(baseline_words.baseline_cautions(against)), "caution"),
    )
    return [Section("baseline", "Against the baseline", blocks)]


def settings(report: Report) -> Section:
    """Loader, settings and environment, with a column for each run; and notes."""
    names = [run.name or run.run.header.mode for run in report.runs]
    headers = [run.run.header for run in report.runs]
    loaders = [
        [
            *loader_facts(run.run),
            ("adapter", short_name(run.run.header.loader.adapter, LONGEST_FACT)),
        ]
        for run in report.runs
    ]
    asked = _merged([_flat(header.settings) for header in headers])
    where = _merged([_flat(header.environment) for header in headers])
    blocks: list[Block] = [
        side_by_side("Loader", names, loaders),
        side_by_side("Settings", names, asked),
        side_by_side("Environment", names, where),
    ]
    notes = [note for run in report.runs for note in runs.run_notes(run)]
    if notes:
        more = [f"and {len(notes) - MOST_NOTES:,} more"] if len(notes) > MOST_NOTES else []
        blocks += [Heading("Notes"), Text((*notes[:MOST_NOTES], *more), "list")]
    return Section("settings", "Settings", tuple(blocks))


def reproduce(report: Report, files: Sequence[Path], output: Path) -> Section:
    """Commands for a shell, and which runs the files hold."""
    commands = [shlex.join(["loadeval", "report", *map(str, files), "-o", str(output)])]
    if report.runs[0].run.header.mode != "replay":
        commands.append(shlex.join(["loadeval", "compare", *map(str, files)]))
    job = report.job
    read = files if report.baseline is None else files[-1:]  # the page is of the later run
    reports = report.runs if job is None else report.runs * len(read)
    rows = tuple(
        (
            short_name(path.name),
            short_name(run.run.header.name),
            run.run.header.mode,
            short_name(run.run.header.run_id) if job is None else f"{len(job.ranks):,} ranks",
            f"{len(run.run.steps):,}",
            "yes" if run.run.closed else "no",
        )
        for path, run in zip(read, reports, strict=True)
    )
    made = page.MADE.format(version=own_version(), files=counted(len(files), "file", "files"))
    table = Table("Files", FILES_HEAD, rows)
    return Section("reproduce", "Reproduce", (Text((made,)), Code(tuple(commands)), table))


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Names and values; of what is nested, the names joined."""
    rows: dict[str, str] = {}
    for name, value in values.items():
        label = f"{before}{str(name).replace('_', ' ')}"
        if isinstance(value, Mapping) and not before:
            rows |= _flat(value, f"{label}: ")
        elif str(name).endswith("_bytes") and isinstance(value, int):
            rows[label] = size(value)
        else:
            rows[label] = recorded(value, "not set or not known")
    return rows


def _merged(columns: list[dict[str, str]]) -> list[Rows]:
    labels = list(dict.fromkeys(label for column in columns for label in column))
    return [
        [(short_name(label, LONGEST_FACT), column.get(label, "not recorded")) for label in labels]
        for column in columns
    ]
