"""Sphinx's settings: `make docs` builds the site into docs/_build/html."""

# ruff: noqa: INP001 - Sphinx executes this file by its path

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "loadeval"
author = "The loadeval authors"
release = metadata.version("loadeval")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "command_line",
]
exclude_patterns = ["_build"]
nitpicky = True
nitpick_ignore_regex = [
    # Types of other projects: an index of their names would have to be fetched from the network.
    ("py:class", r"(numpy|npt)\..*"),
    ("py:class", r"(os\.PathLike|(pathlib\.)?Path|enum\.Enum|collections\.abc\..*)"),
    ("py:class", "Json"),
]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
add_module_names = False
toc_object_entries_show_parents = "hide"
default_role = "code"  # what docstrings have in single backticks
smartquotes_action = "D"  # dashes: quotation marks stay as they are written

html_theme = "furo"
html_title = "loadeval"
html_show_copyright = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"top_of_page_buttons": []}


BOUNDED = re.compile(r"(?:~?typing\.)?Annotated\[(\w+), msgspec\.Meta\([^)]*\)\]")


def readable(*arguments: str | None) -> tuple[str | None, str | None]:
    """A signature with the default clock's name, and types without the bounds of their values."""
    *_, signature, returned = arguments
    shown = "<built-in function perf_counter_ns>"
    clock = signature and signature.replace(shown, "time.perf_counter_ns")
    return (clock and BOUNDED.sub(r"\1", clock)), returned


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", readable)
