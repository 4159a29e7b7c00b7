"""Colours by what they stand for, in a light and a dark theme.

Charts name colours; a figure has those of the light theme, and the page those of the reader's. Text
has a contrast of 4.5 to 1 and more against the paper, lines and bars 3 to 1 (WCAG 2.2, 1.4.3 and
1.4.11).
"""

from __future__ import annotations

_NAMED = {
    "paper": ("#ffffff", "#161718"),
    "raised": ("#f5f4f1", "#202224"),
    "ink": ("#1c1b19", "#eceae6"),
    "faint": ("#5d5a55", "#aeaba4"),
    "link": ("#00588c", "#7cc4f2"),
    "line": ("#87837c", "#7b7974"),
    "rule": ("#dedbd5", "#36383a"),
    "real": ("#0072b2", "#2f8ccb"),
    "ideal": ("#00805d", "#1f9773"),
    "loader alone": ("#7b68b3", "#8676c9"),
    "step": ("#75726a", "#85837d"),
    "waiting": ("#a86200", "#b87a08"),
    "contention": ("#b04f87", "#bd6299"),
    "epoch starts": ("#107c88", "#23929f"),
    "epoch start": ("#c04a00", "#d4713a"),
    "outlier": ("#1c1b19", "#eceae6"),
    "indices": ("#3f9e78", "#1f9773"),
    "fetch": ("#2f8ccb", "#2f8ccb"),
    "collate": ("#c26aa3", "#bd6299"),
    "pickle": ("#8f7fcb", "#8676c9"),
    "receive": ("#2d949f", "#23929f"),
    "pin": ("#c9752a", "#d4713a"),
    "not attributed": ("#8a877f", "#7d7b76"),
}
LIGHT = {name: light for name, (light, _) in _NAMED.items()}
DARK = {name: dark for name, (_, dark) in _NAMED.items()}
Dash = str | tuple[int, tuple[int, ...]]
DASHED: Dash = (0, (6, 3))
DASHES = ("-", DASHED, (0, (2, 2)))
"""How lines are dashed, as matplotlib has it."""
SERIES = ("real", "waiting", "ideal", "contention", "loader alone", "faint")
"""Colours for things without a colour of their own."""


def series(number: int) -> tuple[str, Dash]:
    """The colour of thing `number`, from 0, and how its line is dashed.

    A colour comes again after all of SERIES, with another dash.
    """
    count = len(SERIES)
    return SERIES[number % count], DASHES[number // count % len(DASHES)]


def css_variable(color: str) -> str:
    """The custom property of CSS that has a colour."""
    return f"--{color.replace(' ', '-')}"
