"""What was found and what to do, for the terminal: in short below a verdict, or in full."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from loadeval.report.facts import plan_table
from loadeval.report.formatting import printable
from loadeval.report.tables import Paragraph, wrapped
from loadeval.report.wording import plan as wording

if TYPE_CHECKING:
    from rich.console import RenderableType

    from loadeval.analysis.rules.actions import Plan
    from loadeval.analysis.rules.finding import Diagnosis


def findings_lines(diagnosis: Diagnosis, width: int, most: int | None = None) -> list[str]:
    """The findings, with what each costs, in so many lines at most."""
    return wrapped(f"findings  {wording.findings_in_short(diagnosis)}", width, most)


def plan_lines(plan: Plan, width: int) -> list[list[str]]:
    """The lines of each action, those of the first under a heading; the limit is the last's."""
    if not plan.actions:
        return []
    numbered = plan_table(plan).numbered_lines(width)
    head, *parts = (
        [line for _, line in lines] for _, lines in groupby(numbered, lambda line: line[0])
    )
    return [[*head, *parts[0]], *parts[1:]]


def limit_lines(plan: Plan, width: int) -> list[str]:
    """What limits then, in a line where that is known."""
    return wrapped(wording.limit_in_words(plan), width, 1)


def found_and_to_do(diagnosis: Diagnosis, plan: Plan, width: int) -> list[str]:
    """The findings, and what to do, with all actions."""
    actions = [line for lines in plan_lines(plan, width) for line in lines]
    to_do = ["", *actions, *limit_lines(plan, width)] if actions else []
    return [*findings_lines(diagnosis, width), *to_do]


def plan_report(plan: Plan) -> RenderableType:
    """The plan, with which findings ask for each action."""
    actions = map(wording.action_in_words, plan.actions)
    lines = [f"{number}. {action}" for number, action in enumerate(actions, 1)]
    below = [wording.limit_in_words(plan), wording.EACH_ON_TOP if plan.whole else ""]
    return Group(
        Text(wording.TITLE, style="bold"),
        *(Paragraph(printable(line)) for line in [*lines, *filter(None, below)]),
    )
