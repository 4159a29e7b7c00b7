"""The directive `command-line`: every command of `loadeval`, as its own --help describes it."""

# ruff: noqa: INP001 - Sphinx imports this file by its name, from its folder

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer.main
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from loadeval.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

LITERAL = re.compile(r"(--[a-z][a-z-]*)")


class CommandLine(SphinxDirective):
    """A section for each command: its usage, what it does, its arguments and options."""

    def run(self) -> list[nodes.Node]:
        """The sections, in the order of `loadeval --help`."""
        group = typer.main.get_command(app)
        top = group.make_context("loadeval", [], resilient_parsing=True)
        names = group.list_commands(top)
        return [self._section(group.get_command(top, name), name, top) for name in names]

    def _section(self, command: Any, name: str, top: Any) -> nodes.section:
        context = command.make_context(name, [], parent=top, resilient_parsing=True)
        section = nodes.section(ids=[f"loadeval-{name}"])
        self.state.document.note_explicit_target(section)
        usage = " ".join(["loadeval", name, *map(_plain, command.collect_usage_pieces(context))])
        section += nodes.title(text=f"loadeval {name}")
        section += nodes.literal_block(usage, usage, language="text")
        section += [_paragraph(part) for part in command.help.split("\n\n")]
        section += _options([one.get_help_record(context) for one in command.get_params(context)])
        return section


def _options(records: list[tuple[str, str] | None]) -> nodes.definition_list:
    """A row for each argument and option: how it is written, and its help."""
    found = nodes.definition_list()
    for written, told in filter(None, records):
        term = nodes.term("", "", nodes.literal(text=_plain(written)))
        found += nodes.definition_list_item("", term, nodes.definition("", _paragraph(told)))
    return found


def _plain(written: str) -> str:
    """An argument by its name alone: of `{RUN...}...` and `RUN... <list[Path]>` `RUN...`."""
    name = re.fullmatch(r"\{?([A-Z]+(?:\.\.\.)?)\}?(?:\.\.\.)?(?: <.*>)?", written)
    return name[1] if name else written


def _paragraph(text: str) -> nodes.paragraph:
    return nodes.paragraph("", "", *_inline(" ".join(text.split())))


def _inline(text: str) -> Iterator[nodes.Node]:
    """The text with its options in the type of code."""
    for number, part in enumerate(LITERAL.split(text)):
        if part:
            yield nodes.literal(text=part) if number % 2 else nodes.Text(part)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
