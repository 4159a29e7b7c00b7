"""Inside the loader, as tables: stages, transforms, lines of code, samples; or operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from loadeval.analysis.timeline import Stage
from loadeval.report.formatting import (
    NOT_MEASURED,
    duration,
    number,
    printable,
    share,
    short_name,
)
from loadeval.report.operators import first_rows, operators_lines, threads_lines
from loadeval.report.tables import table_lines, wrapped
from loadeval.report.wording.stages import (
    CODE_HEAD,
    NO_SLOW_SAMPLE,
    NOT_ATTRIBUTED,
    SAMPLES_HEAD,
    STAGES,
    STAGES_HEAD,
    TRANSFORMS_HEAD,
    blocked_in_words,
    shares_in_words,
    stage_facts,
    stages_headline,
    why_no_stages_in_words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from loadeval.analysis.report import RunReport
    from loadeval.analysis.stages import StageReport, StageShare

    Table = list[tuple[str, ...]]

MOST_TRANSFORMS, MOST_CODE = 5, 4
"""Rows of a table in the terminal."""
LONGEST_PLACE = 38
IN_WORKER = (Stage.FETCH, Stage.COLLATE)
"""The stages whose CPU time is known, if any is."""


class StagesReport:
    """Where the time of a run's loader goes, in the console's width; or why that is not known.

    Threads are told where no stages are, and otherwise only in `full`: of workers, which are other
    processes, those of the training process tell little.
    """

    def __init__(self, one: RunReport, *, full: bool = False) -> None:
        self.one, self.full = one, full

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """A line of text for each line, the first in bold."""
        for at, line in enumerate(inside_lines(self.one, options.max_width, full=self.full)):
            yield Text(line, "" if at else "bold", overflow="fold")


def inside_lines(one: RunReport, width: int, *, full: bool = False) -> list[str]:
    """Stages and operators, or why there are neither; then threads. Nothing if it replayed."""
    parts: list[list[str]] = []
    if one.stages is not None:
        parts.append(stages_lines(one, one.stages, width))
    if one.operators is not None:
        parts.append(operators_lines(one.operators, width))
    if one.no_stages is not None:
        parts.append([printable(why_no_stages_in_words(one.no_stages))])
    if one.threads is not None and (full or one.stages is None):
        parts.append(threads_lines(one.threads, width))
    lines: list[str] = []
    for part in filter(None, parts):
        lines += ["", *part] if lines else part
    return lines


def stages_lines(one: RunReport, found: StageReport, width: int) -> list[str]:
    """The tables of `found`, which are `one`'s stages, one below the other."""
    tables: list[Sequence[tuple[str, ...]]] = [
        [STAGES_HEAD, *stage_rows(found)],
        _first(TRANSFORMS_HEAD, transform_rows(found), MOST_TRANSFORMS),
        _first(CODE_HEAD, code_rows(found), MOST_CODE),
        _samples(found),
        stage_facts(found, one.run.header.loader),
    ]
    lines = wrapped(stages_headline(found), width)
    for place, table in enumerate(filter(None, tables)):
        lines += [*([""] if place else []), *table_lines(table, width)]
        lines += [] if place else wrapped(shares_in_words(found), width)
    return lines


def stage_rows(found: StageReport) -> Table:
    """What each stage takes, its share, and the parts of that; then what is not attributed."""
    rows = [_stage(found, one) for one in found.stages]
    return [*rows, (NOT_ATTRIBUTED, "", share(found.share(found.not_attributed_ns)), "", "", "")]


def _stage(found: StageReport, one: StageShare) -> tuple[str, ...]:
    parts = [one.cpu_ns, one.run_queue_ns, one.blocked_ns]
    told = [share(found.share(part)) for part in parts]
    if one.stage not in IN_WORKER:
        told = [""] * len(parts)
    return (
        STAGES[one.stage],
        duration(one.work_ns),
        share(found.share(one.charged_ns)),
        *told,
    )


def transform_rows(found: StageReport) -> Table:
    """Each transform, the longest first."""
    return [
        (
            short_name(one.name, LONGEST_PLACE),
            duration(one.ns),
            share(found.transform_share(one)),
            number(one.calls),
        )
        for one in found.transforms
    ]


def code_rows(found: StageReport, longest: int = LONGEST_PLACE) -> Table:
    """The lines of code that workers were seen in, the most frequent first."""
    return [
        (
            _place(printable(one.name), longest),
            share(found.code_share(one.share)),
            blocked_in_words(found, one),
        )
        for one in found.code
    ]


def _place(place: str, longest: int) -> str:
    """`place` in at most `longest` characters: without its folders, or else its end."""
    if len(place) > longest:
        file, colon, rest = place.partition(":")
        place = file.rsplit("/", maxsplit=1)[-1] + colon + rest
    return place if len(place) <= longest else f"...{place[3 - longest :]}"


def sample_rows(found: StageReport) -> Table:
    """The slowest samples, the slowest first."""
    return [
        (f"{one.index}", duration(one.longest_ns), f"{number(one.times_typical)}x", f"{one.times}")
        for one in found.slow_samples
    ]


def worker_rows(found: StageReport) -> Table:
    """Each worker with its batches, how long it took for one, and its samples."""
    return [
        (f"{one.worker}", f"{one.batches:,}", duration(one.batch_ns), f"{one.samples:,}")
        for one in found.workers
    ]


def _samples(found: StageReport) -> Table:
    rows = sample_rows(found)
    if rows:
        return [SAMPLES_HEAD, *rows]
    return [(SAMPLES_HEAD[0], NOT_MEASURED if found.sample_ns is None else NO_SLOW_SAMPLE)]


def _first(head: tuple[str, ...], rows: Table, most: int) -> Table:
    """The first of `rows` under `head`, and how many there are more; nothing for none."""
    if not rows:
        return []
    return [head, *first_rows(rows, most)]
