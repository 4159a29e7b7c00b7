"""The page of `loadeval attach`: a section for each training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.page.blocks import Code, Heading, Section, Text, listed
from loadeval.report.page.findings import advised
from loadeval.report.page.page import rendered
from loadeval.report.wording import attach as wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.attach.report import AttachedReport
    from loadeval.report.page.blocks import Block


def attached_page(reports: Sequence[AttachedReport]) -> str:
    """The page as text. Raises UsageError where a page cannot hold the installed plotly."""
    about = [wording.command(report.training) for report in reports]
    headlines = [wording.headline(report) for report in reports]
    others: list[Block] = [Text(tuple(headlines[1:]))] if len(headlines) > 1 else []
    return rendered(headlines[0], about, others, list(map(_training, reports)))


def _training(report: AttachedReport) -> Section:
    pid = report.training.pid
    blocks: list[Block] = [
        listed("What was seen", "", wording.about(report)),
        *wording.loading_tables(report),
        wording.process_table(report),
        listed("What the kernel tells", "", wording.kernel_rows(report)),
    ]
    if report.findings:
        blocks.append(Heading("Findings"))
        blocks += [advised(finding, level=4) for finding in report.findings]
    blocks += [
        Text((wording.NOT_A_SPEEDUP,)),
        Code((wording.to_measure(report.training),)),
        Text((wording.cost(report),), "small"),
    ]
    return Section(f"training-{pid}", f"Training process {pid}", tuple(blocks))
