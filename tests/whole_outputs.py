"""Whole outputs as they are kept in tests/golden: short, and the same on each machine."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from itertools import groupby
from typing import Any

DIGITS = 12
ALIKE = 1e-9
"""Numbers that differ by less, relatively, were computed in another order."""
NOTHING = 1e-12
"""What is left where numbers cancel out."""
WIDEST = 240
LONG = 50
"""Of more numbers in a row their count, sum and first moment are kept."""
CONSTANT = ("question",)
"""Texts that are the same in each run, and stand in its text."""
NOT_TEXT = re.compile(r"<(script|style|svg)\b.*?</\1>", re.DOTALL)


def trimmed(text: str) -> str:
    """`text` without spaces at the ends of lines."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def shortened(content: Any) -> Any:
    """JSON with rounded numbers, little of long lists of numbers, and nothing CONSTANT."""
    if isinstance(content, dict):
        return {name: shortened(content[name]) for name in content if name not in CONSTANT}
    if isinstance(content, list):
        if len(content) > LONG and all(map(_is_number, content)):
            total = math.fsum(content)
            moment = math.fsum(place * value for place, value in enumerate(content))
            return {"numbers": len(content), "sum": _rounded(total), "moment": _rounded(moment)}
        return list(map(shortened, content))
    return _rounded(content) if isinstance(content, float) else content


def written(content: Any, indent: str = "") -> str:
    """JSON as text: what is short, and has nothing in it that is long, is one line."""
    line = json.dumps(content)
    if len(line) <= WIDEST or not isinstance(content, dict | list):
        return line
    inner = f"{indent} "
    if isinstance(content, dict):
        items = [f"{json.dumps(name)}: {written(value, inner)}" for name, value in content.items()]
        return f"{{\n{inner}" + f",\n{inner}".join(items) + f"\n{indent}}}"
    return (
        f"[\n{inner}"
        + f",\n{inner}".join(written(item, inner) for item in content)
        + f"\n{indent}]"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rounded(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def differences(before: Any, now: Any, path: str = "") -> list[str]:
    """Where two JSON values differ: the path, what was there before, and what is now."""
    if isinstance(before, dict) and isinstance(now, dict):
        found = []
        for key in [*before, *(key for key in now if key not in before)]:
            place = f"{path}.{key}" if path else key
            if key not in now:
                found.append(f"{place}: {before[key]!r} before, not there now")
            elif key not in before:
                found.append(f"{place}: not there before, {now[key]!r} now")
            else:
                found += differences(before[key], now[key], place)
        return found
    if isinstance(before, list) and isinstance(now, list):
        found = [f"{path}: {len(before)} items before, {len(now)} now"]
        found = found if len(before) != len(now) else []
        for place, values in enumerate(zip(before, now, strict=False)):
            found += differences(*values, f"{path}[{place}]")
        return found
    if _is_number(before) and _is_number(now):
        is_alike = math.isclose(before, now, rel_tol=ALIKE, abs_tol=NOTHING)
    else:
        is_alike = type(before) is type(now) and before == now
    return [] if is_alike else [f"{path}: {before!r} before, {now!r} now"]


def text_of_page(page: str) -> str:
    """What can be read on a page: without tags, scripts, styles and drawings.

    A caption that is there for the eye and for the ear is there once.
    """
    reader = _Reader()
    reader.feed(NOT_TEXT.sub("", page))
    lines = (" ".join(line.split()).rstrip(" |") for line in "".join(reader.text).split("\n"))
    return "".join(f"{line}\n" for line, _ in groupby(filter(None, lines)))


class _Reader(HTMLParser):
    """Takes the text: a line for each paragraph, row of a table, or item."""

    LINES = frozenset(
        {
            *("title", "p", "h1", "h2", "h3", "h4", "li", "tr", "div", "summary", "caption"),
            *("pre", "figcaption", "nav", "header", "footer", "section", "article", "output"),
        }
    )

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, _: object) -> None:
        self._between(tag)

    def handle_endtag(self, tag: str) -> None:
        self._between(tag)
        if tag in {"td", "th", "dt", "dd"}:
            self.text.append(" | ")

    def handle_data(self, data: str) -> None:
        self.text.append(data.replace("\n", " "))

    def _between(self, tag: str) -> None:
        if tag in self.LINES:
            self.text.append("\n")
