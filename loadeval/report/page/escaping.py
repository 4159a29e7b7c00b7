"""Text of a run, made harmless where Jinja's escaping does not reach: in figures and scripts.

plotly.js reads a subset of HTML in each text that it draws, and `$...$` as TeX. Whatever reaches
it is neutralised here; text of a run that reaches the page itself is escaped by Jinja.
"""

from __future__ import annotations

import json
from typing import Any

from loadeval.report.formatting import LONGEST_NAME, short_name

ENTITIES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord("$"): "&#36;"}
"""Entities that plotly.js turns back into characters, after it looked for tags and for TeX."""
IN_SCRIPT = {ord("<"): r"\u003c", ord(">"): r"\u003e", ord("&"): r"\u0026"}
"""No `</script>`, no `<!--` and no entity can come about in JSON that is escaped so."""


def drawn(text: object, longest: int = LONGEST_NAME) -> str:
    """`text` as plotly.js is to draw it: literally, in at most `longest` characters."""
    return short_name(text, longest).translate(ENTITIES)


def literal(text: str) -> str:
    """What plotly.js would draw for `text` that is `drawn`, for text on the page."""
    for code, entity in reversed(ENTITIES.items()):
        text = text.replace(entity, chr(code))
    return text


def script_json(data: Any) -> str:
    """`data` as JSON that can stand in a script element: ASCII alone, and no markup.

    Raises ValueError for what JSON has no form for, such as a float that is not a number.
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(IN_SCRIPT)
