"""Backends that loadeval wrote for a folder, as tables and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    estimated,
    number,
    share,
    size,
    speedup,
)
from loadeval.report.tables import Table, wrapped
from loadeval.report.wording import backends as backend_words
from loadeval.report.wording import choice as words

if TYPE_CHECKING:
    from loadeval.analysis.choice import BackendChoice


def choice_lines(choice: BackendChoice, width: int) -> list[str]:
    """The headline first; then what each does by itself, under the step, and what is left out."""
    parts = [
        [
            words.choice_headline(choice),
            *wrapped(f"{words.choice_basis(choice)} {words.BRACKETS}", width),
        ]
    ]
    if choice.ranked:
        parts.append([words.ALONE_TITLE, *alone_table(choice).lines(width)])
    if choice.trained is not None:
        about = words.step_in_words(choice)
        about_step = wrapped(about, width) if about else []
        parts.append([words.STEP_TITLE, *about_step, *step_table(choice).lines(width)])
    elif choice.ranked:
        parts.append(wrapped(words.NO_STEP, width))
    for title, sentences in lists(choice):
        parts.append([title, *(line for text in sentences for line in wrapped(text, width))])
    parts.append(wrapped(words.same_work(choice), width))
    return "\n\n".join("\n".join(part) for part in parts).split("\n")


def lists(choice: BackendChoice) -> list[tuple[str, list[str]]]:
    """Titles, and the sentences under each, where there are some."""
    listed = [
        ("Differences", words.differences_in_words(choice)),
        ("Not ranked", words.not_ranked(choice)),
        ("Files that are not read", words.bad_files(choice)),
    ]
    return [(title, sentences) for title, sentences in listed if sentences]


def alone_table(choice: BackendChoice) -> Table:
    """Each that was measured, the fastest first: by itself, its memory, and what it loads."""
    most = max(choice.cpus)
    head = (
        f"{choice.unit}/s",
        *(counted(count, "CPU", "CPUs") for count in choice.cpus),
        "per CPU",
        "memory",
        words.DATA[choice.kind].differs,
        words.DATA[choice.kind].half,
    )
    rows = [
        (
            each.name,
            *(estimated(each.alone.get(count), number) for count in choice.cpus),
            words.per_cpu(each, most),
            NOT_MEASURED if each.memory_bytes is None else size(each.memory_bytes),
            words.difference_in_words(each),
            words.truncated_in_words(each),
        )
        for each in choice.ranked
    ]
    return Table("", head, rows, figures=True)


def step_table(choice: BackendChoice) -> Table:
    """What training would do with each: real and ideal, and what is lost."""
    rows = []
    for each, result in choice.under_step:
        lost = None if result.lost_share is None else result.lost_share.value
        rows.append(
            (
                each.name,
                estimated(result.real, number),
                estimated(result.ideal, number),
                estimated(result.speedup, speedup),
                share(lost),
                backend_words.backend_verdict(result),
            )
        )
    head = (f"{choice.unit}/s", "real", "ideal", "if loading were free", "time lost", "verdict")
    return Table("", head, rows, figures=True)
