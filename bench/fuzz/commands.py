"""Gives files that were mutated to the commands, and objects to what they should not do."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from loadeval.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("compare",),
    ("compare", "--full"),
    ("compare", "--json"),
    ("compare", "--output", "figure.svg"),
    ("compare", "--fail-above", "20"),
    ("report", "--output", "page.html"),
    ("whatif", "--num-workers", "4"),
    ("whatif", "--batch-size", "8", "--cpus", "1.5", "--prefetch-factor", "1", "--json"),
    ("whatif", "--out-of-order", "--faster", "GaussianBlur=2", "--output", "figure.svg"),
    ("watch", "--once"),
    ("watch", "--once", "--json"),
    *(("export", "--format", name, "--output", f"exported-{name}") for name in ("chrome", "csv")),
)
OF_FOLDERS = ("compare", "report", "watch")
WRONG_USE = 2
LOST = (3, 4)
"""The exit codes of --fail-above."""
OWN_SCRIPTS = 1
"""The scripts of a page: what sorts and folds."""


def give(words: Sequence[str], paths: Sequence[Path], folder: Path) -> str:
    """What a command does with `paths`: "done" or "refused". It writes into `folder`.

    Raises what the command raises, and AssertionError for what it should not print or write.
    """
    name, *options = words
    if "--output" in options:
        options[-1] = str(folder / options[-1])
    for exported in folder.glob("exported-*"):
        exported.unlink()  # it is not replaced
    done = CliRunner().invoke(app, [name, *options, *map(str, paths)], catch_exceptions=False)
    if not done.exit_code:
        assert not done.stderr, done.stderr
    elif done.exit_code in LOST:
        assert done.stderr.count("\n") == 1, done.stderr
    elif done.exit_code == WRONG_USE:
        assert "Error: Invalid value: " in done.stderr, done.stderr
    else:
        assert done.exit_code == 1, done.output
        assert done.stderr.startswith("Error: "), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    steering = {char for char in done.output if char != "\n" and not char.isprintable()}
    assert not steering, steering
    if "--json" in options and not done.exit_code:
        json.loads(done.stdout, parse_constant=_no_json)
    if options[-1:] == [str(folder / "page.html")] and not done.exit_code:
        check_page((folder / "page.html").read_text(encoding="utf-8"))
    return "refused" if done.stderr else "done"


def _no_json(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def check_page(html: str) -> None:
    """Raises AssertionError if the page has an element or a link that is none of its own."""
    page = _Page()
    page.feed(html)
    assert page.scripts == OWN_SCRIPTS, page.scripts


class _Page(HTMLParser):
    """Counts the scripts, and objects to what else runs or loads."""

    scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        assert tag not in {"img", "iframe", "object", "embed", "link", "form", "base"}, tag
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name in {"href", "src", "action"}:
                assert (value or "").startswith("#"), value
