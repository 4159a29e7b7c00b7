"""A report as one page that needs nothing else: its charts are inline, and it asks no network.

All text of a run is escaped, and a character that would steer a reader's browser is its escape.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from importlib import resources
from itertools import count

try:
    from jinja2 import Environment, StrictUndefined
except ImportError as error:
    from loadeval.errors import UsageError

    raise UsageError(
        "a page needs the package jinja2, which is not installed; install it with: "
        "pip install matplotlib jinja2"
    ) from error
from markupsafe import Markup

from loadeval.report.blocks import DARK, LIGHT, Cell, Chart, Number, Section, css_variable
from loadeval.report.charts import inline_svg
from loadeval.words import duration, printable, share, shortened

LONGEST_TEXT = 5_000
"""Characters of one text that are shown: a run's names may be of any length."""
LONGEST_WORD = 14
"""Characters of a text in a table that is not broken on a narrow screen."""


def page(sections: Sequence[Section], about: str) -> str:
    """The page of a report, whose first section is its top; `about` names what it is of."""
    source = resources.files("loadeval.report").joinpath("page.html").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "kind": lambda block: type(block).__name__,
        "cell": _cell,
        "worth": _worth,
        "variable": css_variable,
    }
    numbers = count(1)

    def drawn(chart: Chart) -> Markup:
        return Markup(inline_svg(chart, f"chart-{next(numbers)}"))  # noqa: S704 - it escapes what it draws

    script = source.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shown = environment.from_string(source).render(
        sections=sections,
        about=about,
        drawn=drawn,
        share=share,
        duration=duration,
        script_hash=digest,
        light=LIGHT,
        dark=DARK,
    )
    return shown.lstrip()


def _shown(value: object) -> object:
    """What an expression of the template puts into the page, before it is escaped."""
    return value if isinstance(value, Markup) else printable(shortened(str(value), LONGEST_TEXT))


def _cell(cell: Cell) -> str:
    """A number or a word on one line, with its interval on the next if need be; text as it is."""
    if isinstance(cell, str):
        word = Markup('<span class="number">{}</span>')
        return cell if len(cell) > LONGEST_WORD else word.format(printable(cell))
    text = printable(shortened(str(cell), LONGEST_TEXT))
    value, _, interval = text.partition(" [")
    shown = Markup('<span class="number">{}</span>').format(value)
    if interval:
        shown += Markup(' <span class="number faint">[{}</span>').format(interval)
    return shown


def _worth(cell: Cell) -> float | str:
    """What a cell is sorted by, if that is not its text."""
    value = cell.point if isinstance(cell, Number) else None
    return "" if value is None or math.isnan(value) else value
