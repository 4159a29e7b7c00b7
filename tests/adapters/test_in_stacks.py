"""The functions by which adapters know what a thread does are those of the frameworks."""

from __future__ import annotations

import ast
import concurrent.futures
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

import loadeval_adapters
from loadeval.attach.marks import declared_marks

PACKAGES = Path(sysconfig.get_path("purelib"))
PYTHONS = Path(concurrent.futures.__file__).parents[2]
OURS = Path(loadeval_adapters.__file__).parents[1]
MARKS = declared_marks()


def sources(file: str, function: str) -> list[str]:
    """The functions of that name in a file of a framework; of "<listcomp>" the comprehensions."""
    places = [folder / file for folder in (PACKAGES, PYTHONS, OURS) if (folder / file).exists()]
    if not places:
        pytest.skip(f"{file.partition('/')[0]} is not installed")
    text = places[0].read_text()
    return [
        ast.get_source_segment(text, node) or ""
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.FunctionDef) and node.name == function)
        or (isinstance(node, ast.ListComp) and function == "<listcomp>")
    ]


@pytest.mark.parametrize(
    ("file", "function", "line"),
    sorted({(mark.file, mark.function, mark.line) for mark in MARKS.functions}),
)
def test_the_framework_has_the_function(file: str, function: str, line: str) -> None:
    """And in it the line that tells two activities apart."""
    assert any(line in source for source in sources(file, function))


@pytest.mark.parametrize(
    ("file", "function", "name"),
    [(variable.file, variable.function, variable.name) for variable in MARKS.variables],
)
def test_the_function_has_the_variable(file: str, function: str, name: str) -> None:
    names = {
        node.arg if isinstance(node, ast.arg) else node.id
        for source in sources(file, function)
        for node in ast.walk(ast.parse(textwrap.dedent(source)))
        if isinstance(node, (ast.arg, ast.Name))
    }
    assert name in names


def test_no_framework_is_imported_for_them() -> None:
    script = (
        "import sys\nfrom loadeval.attach.marks import declared_marks\n"
        "assert declared_marks().functions\nprint('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
