"""Inside the loader, as tables: stages, transforms, lines of code, samples; or operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from loadeval.analysis.inside.timeline import Stage
from loadeval.report.formatting import (
    NOT_MEASURED,
    duration,
    number,
    printable,
    share,
    short_name,
)
from loadeval.report.tables import Table, wrapped
from loadeval.report.terminal.operators import first_rows, operators_lines, threads_lines
from loadeval.report.wording import stages as wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from loadeval.analysis.inside.stages import StageReport, StageShare
    from loadeval.analysis.report import RunReport

    Rows = list[tuple[str, ...]]

MOST_TRANSFORMS, MOST_CODE = 5, 4
"""A table in the terminal has at most so many rows."""
LONGEST_PLACE = 38
IN_WORKER = (Stage.FETCH, Stage.COLLATE)
"""The stages whose CPU time is known, if any is."""


class StagesReport:
    """Where the time of a run's loader goes, in the console's width; or why that is not known."""

    def __init__(self, run: RunReport) -> None:
        self.run = run

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """A line of text for each line, the first in bold."""
        for at, line in enumerate(inside_lines(self.run, options.max_width)):
            yield Text(line, "" if at else "bold", overflow="fold")


def inside_lines(run: RunReport, width: int) -> list[str]:
    """Stages and operators, or why there are neither; then threads. Nothing if it replayed."""
    parts: list[list[str]] = []
    if run.stages is not None:
        parts.append(stages_lines(run, run.stages, width))
    if run.operators is not None:
        parts.append(operators_lines(run.operators, width))
    if run.no_stages is not None:
        parts.append([printable(wording.why_no_stages_in_words(run.no_stages))])
    if run.threads is not None:
        parts.append(threads_lines(run.threads, width))
    lines: list[str] = []
    for part in filter(None, parts):
        lines += ["", *part] if lines else part
    return lines


def stages_lines(run: RunReport, stages: StageReport, width: int) -> list[str]:
    """The tables of `found`, which are `one`'s stages, one below the other."""
    tables: list[Sequence[tuple[str, ...]]] = [
        [wording.STAGES_HEAD, *stage_rows(stages)],
        _first(wording.TRANSFORMS_HEAD, transform_rows(stages), MOST_TRANSFORMS),
        _first(wording.CODE_HEAD, code_rows(stages), MOST_CODE),
        _samples(stages),
        wording.stage_facts(stages, run.run.header.loader),
    ]
    lines = wrapped(wording.stages_headline(stages), width)
    for place, table in enumerate(filter(None, tables)):
        lines += [*([""] if place else []), *Table(rows=table).lines(width)]
        lines += [] if place else wrapped(wording.shares_in_words(stages), width)
    return lines


def stage_rows(stages: StageReport) -> Rows:
    """What each stage takes, its share, and the parts of that; then what is not attributed."""
    rows = [_stage(stages, stage) for stage in stages.stages]
    return [
        *rows,
        (wording.NOT_ATTRIBUTED, "", share(stages.share(stages.not_attributed_ns)), "", "", ""),
    ]


def _stage(stages: StageReport, stage: StageShare) -> tuple[str, ...]:
    parts = [stage.cpu_ns, stage.run_queue_ns, stage.blocked_ns]
    shares = [share(stages.share(part)) for part in parts]
    if stage.stage not in IN_WORKER:
        shares = [""] * len(parts)
    return (
        wording.STAGES[stage.stage],
        duration(stage.work_ns),
        share(stages.share(stage.charged_ns)),
        *shares,
    )


def transform_rows(stages: StageReport) -> Rows:
    """Each transform, the longest first."""
    return [
        (
            short_name(transform.name, LONGEST_PLACE),
            duration(transform.ns),
            share(stages.transform_share(transform)),
            number(transform.calls),
        )
        for transform in stages.transforms
    ]


def code_rows(stages: StageReport, longest: int = LONGEST_PLACE) -> Rows:
    """The lines of code that workers were seen in, the most frequent first."""
    return [
        (
            _place(printable(line.name), longest),
            share(stages.code_share(line.share)),
            wording.blocked_in_words(stages, line),
        )
        for line in stages.code
    ]


def _place(place: str, longest: int) -> str:
    """`place` in at most `longest` characters: without its folders, or else its end."""
    if len(place) > longest:
        file, colon, rest = place.partition(":")
        place = file.rsplit("/", maxsplit=1)[-1] + colon + rest
    return place if len(place) <= longest else f"...{place[3 - longest :]}"


def sample_rows(stages: StageReport) -> Rows:
    """The slowest samples, the slowest first."""
    return [
        (
            f"{sample.index}",
            duration(sample.longest_ns),
            f"{number(sample.times_typical)}x",
            f"{sample.times}",
        )
        for sample in stages.slow_samples
    ]


def worker_rows(stages: StageReport) -> Rows:
    """Each worker with its batches, how long it took for one, and its samples."""
    return [
        (
            f"{worker.worker}",
            f"{worker.batches:,}",
            duration(worker.batch_ns),
            f"{worker.samples:,}",
        )
        for worker in stages.workers
    ]


def _samples(stages: StageReport) -> Rows:
    rows = sample_rows(stages)
    if rows:
        return [wording.SAMPLES_HEAD, *rows]
    return [
        (
            wording.SAMPLES_HEAD[0],
            NOT_MEASURED if stages.sample_ns is None else wording.NO_SLOW_SAMPLE,
        )
    ]


def _first(head: tuple[str, ...], rows: Rows, most: int) -> Rows:
    """The first of `rows` under `head`, and how many there are more; nothing for none."""
    if not rows:
        return []
    return [head, *first_rows(rows, most)]
