"""The page of which backend is fastest for a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.choice import choice_chart
from loadeval.report.page import plotly
from loadeval.report.page.blocks import Code, Figure, Section, Text
from loadeval.report.page.page import rendered
from loadeval.report.terminal.choice import alone_table, lists, step_table
from loadeval.report.wording import choice as words

if TYPE_CHECKING:
    from loadeval.analysis.choice import BackendChoice
    from loadeval.report.page.blocks import Block

ABOUT = "backends"


def choice_page(choice: BackendChoice, code: str | None) -> str:
    """The page as text; `code` is that of the fastest.

    Raises UsageError where a page cannot hold the installed plotly.
    """
    top: list[Block] = [
        Text((f"{words.choice_basis(choice)} {words.BRACKETS}",)),
        Text((words.same_work(choice),), "small"),
    ]
    sections = [*_measured(choice), *_lists(choice)]
    if code is not None and choice.fastest is not None:
        title = words.CODE_TITLE.format(name=choice.fastest.name)
        sections.append(Section("code", title, (Code(tuple(code.splitlines())),)))
    return rendered(words.choice_headline(choice), [ABOUT], top, sections)


def _measured(choice: BackendChoice) -> list[Section]:
    if not choice.ranked:
        return []
    caption = words.CAPTION.format(unit=choice.unit)
    chart = Figure("throughput", caption, *plotly.bars(choice_chart(choice)))
    sections = [
        Section("throughput", words.THROUGHPUT_TITLE, (chart,)),
        Section("alone", words.ALONE_TITLE, (alone_table(choice),)),
    ]
    if choice.trained is not None:
        about = words.step_in_words(choice)
        notes: list[Block] = [Text((about,))] if about else []
        sections.append(Section("step", words.STEP_TITLE, (*notes, step_table(choice))))
    return sections


def _lists(choice: BackendChoice) -> list[Section]:
    return [
        Section(title.lower().replace(" ", "-"), title, (Text(tuple(sentences), "list"),))
        for title, sentences in lists(choice)
    ]
