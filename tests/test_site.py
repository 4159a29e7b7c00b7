"""The documentation as a site: it builds, has every public name and command, and no dead links."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

import loadeval
import loadeval.testing
from loadeval.cli import compare, run
from loadeval.cli.main import COMMANDS, app
from tests.launch.conftest import ran

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXIT_CODES = re.compile(r"^\| (\d+) \| ", re.MULTILINE)


def text_of(html: str) -> str:
    return re.sub(r"<[^>]+>", "", html).replace("&#39;", "'").replace("&quot;", '"')


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a warning is an error."""
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-b", "html"]
    done = ran(ROOT, *command, "-d", site / "doctrees", DOCS, site / "html")
    assert done.returncode == 0, done.stderr
    return site / "html"


def test_every_page_is_in_the_contents(site: Path) -> None:
    index = (site / "index.html").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        path = page.relative_to(DOCS).with_suffix(".html")
        assert f'href="{path.as_posix()}"' in index or path.stem == "index", page


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    page = (site / "reference.html").read_text(encoding="utf-8")
    anchors = set(re.findall(r'id="(loadeval[\w.]*)"', page))
    assert {f"loadeval.{name}" for name in loadeval.__all__} <= anchors
    testing = [
        name
        for name, value in vars(loadeval.testing).items()
        if inspect.getmodule(value) is loadeval.testing and not name.startswith("_")
    ]
    assert {f"loadeval.testing.{name}" for name in testing} <= anchors


def test_every_command_is_on_its_page(site: Path) -> None:
    page = text_of((site / "commands.html").read_text(encoding="utf-8"))
    group: Any = typer.main.get_command(app)
    for name in COMMANDS:
        first, *_ = group.get_command(None, name).help.splitlines()
        assert f"loadeval {name}" in page
        assert first in page
    options = [
        option
        for name in COMMANDS
        for parameter in group.get_command(None, name).params
        for option in parameter.opts
        if option.startswith("-")
    ]
    assert options
    assert all(option in page for option in options)


def test_the_exit_codes_are_those_of_the_help() -> None:
    """Each that `--help` tells of is in the table, and the table has no others but Ctrl-C's."""
    rows = set(EXIT_CODES.findall((DOCS / "commands.md").read_text(encoding="utf-8")))
    in_help = set(re.findall(r"\b(\d) ", f"{app.info.epilog} {compare.EPILOG} {run.EPILOG}"))
    assert in_help <= rows
    assert rows <= in_help | {"130"}


def test_the_overhead_in_the_readme_is_of_the_benchmarks() -> None:
    """It is that of log mode over the kinds of batch in the table, in microseconds."""
    readme, page = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/benchmarks.md")
    )
    table = page[page.index("| batch | `log`, ns |") :].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
    added_us = sorted(int(log.replace(",", "")) / 1000 for _, log, _ in cells)
    assert f"adds {added_us[0]:.1g} to {added_us[-1]:.1g} us" in readme
