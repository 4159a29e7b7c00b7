"""What was asked for, what was wrapped, and where: settings, loaders and environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loadeval.report.formatting import shortened, size
from loadeval.report.html.blocks import Heading, Section, Text
from loadeval.report.html.tables import side_by_side
from loadeval.report.text import LONGEST_FACT, loader_facts, notes

if TYPE_CHECKING:
    from loadeval.report.facts import Rows
    from loadeval.report.html.blocks import Block
    from loadeval.report.html.subject import Subject
    from loadeval.runlog.model import Run

MOST_NOTES = 50


def settings(subject: Subject) -> Section:
    """Tables with a column for each run, and what else happened in them."""
    runs = subject.runs
    names = [track.name or track.run.header.mode for track in subject.tracks]
    blocks: list[Block] = [
        side_by_side("Loader", names, [[*loader_facts(run), _adapter(run)] for run in runs]),
        side_by_side("Settings", names, _merged([_flat(run.header.settings) for run in runs])),
        side_by_side(
            "Environment", names, _merged([_flat(run.header.environment) for run in runs])
        ),
    ]
    said = list(dict.fromkeys(line for run in runs for line in notes(run)))
    if said:
        more = [f"and {len(said) - MOST_NOTES:,} more"] if len(said) > MOST_NOTES else []
        blocks += [Heading("Notes"), Text((*said[:MOST_NOTES], *more), "list")]
    return Section("settings", "Settings", tuple(blocks))


def _adapter(run: Run) -> tuple[str, str]:
    return "adapter", shortened(run.header.loader.adapter, LONGEST_FACT)


def _flat(found: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Names and values; of what is nested, the names joined."""
    rows: dict[str, str] = {}
    for name, value in found.items():
        label = f"{before}{str(name).replace('_', ' ')}"
        if isinstance(value, Mapping):
            rows |= _flat(value, f"{label}: ") if not before else {label: _value(value)}
        else:
            rows[label] = _value(value) if not _counts_bytes(str(name), value) else size(value)
    return rows


def _merged(columns: list[dict[str, str]]) -> list[Rows]:
    labels = list(dict.fromkeys(label for column in columns for label in column))
    return [
        [(shortened(label, LONGEST_FACT), column.get(label, "not recorded")) for label in labels]
        for column in columns
    ]


def _counts_bytes(name: str, value: object) -> bool:
    return name.endswith("_bytes") and isinstance(value, int)


def _value(value: object) -> str:
    if value is None:
        return "not set, or not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shortened(str(value), LONGEST_FACT)
