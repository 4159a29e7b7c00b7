"""Colours by what they stand for, in a light and a dark theme.

Charts name colours; the PNG has those of the light theme, and the page's script puts in those of
the reader's. Text has a contrast of 4.5 to 1 and more against the paper, lines and bars 3 to 1
(WCAG 2.2, 1.4.3 and 1.4.11).
"""

from __future__ import annotations

from typing import Literal

Theme = Literal["light", "dark"]

LIGHT = {
    "paper": "#ffffff",
    "raised": "#f5f4f1",
    "ink": "#1c1b19",
    "faint": "#5d5a55",
    "link": "#00588c",
    "line": "#87837c",
    "rule": "#dedbd5",
    "real": "#0072b2",
    "ideal": "#00805d",
    "loader": "#7b68b3",
    "step": "#8a877f",
    "waiting": "#b56a00",
    "contention": "#b04f87",
    "gpu_idle": "#b3402a",
    "epoch_start": "#c04a00",
    "outlier": "#1c1b19",
    "not_counted": "#8f8b84",
    "series0": "#0072b2",
    "series1": "#b56a00",
    "series2": "#00805d",
    "series3": "#b04f87",
    "series4": "#7b68b3",
    "series5": "#5d5a55",
}
DARK = {
    "paper": "#161718",
    "raised": "#202224",
    "ink": "#eceae6",
    "faint": "#aeaba4",
    "link": "#7cc4f2",
    "line": "#7b7974",
    "rule": "#36383a",
    "real": "#2f8ccb",
    "ideal": "#1f9773",
    "loader": "#8676c9",
    "step": "#7d7b76",
    "waiting": "#b87a08",
    "contention": "#bd6299",
    "gpu_idle": "#cb5a41",
    "epoch_start": "#d4713a",
    "outlier": "#eceae6",
    "not_counted": "#85837d",
    "series0": "#56b4e9",
    "series1": "#f0ab1f",
    "series2": "#35c79d",
    "series3": "#e393c2",
    "series4": "#b0a2e6",
    "series5": "#aeaba4",
}
THEMES: dict[Theme, dict[str, str]] = {"light": LIGHT, "dark": DARK}
TEXT = ("ink", "faint", "link")
"""What text is set in; on the paper, and on raised parts of it."""
DECORATION = ("paper", "raised", "rule")
"""What carries no meaning: no contrast is asked of it."""
NAMES = {
    "real": "real",
    "ideal": "ideal",
    "loader": "loader alone",
    "step": "step",
    "waiting": "waiting",
    "contention": "contention",
    "gpu_idle": "GPU idle while waiting",
    "epoch_start": "epoch start",
    "outlier": "outlier",
    "not_counted": "not counted",
}
"""What a legend says of a colour."""
BARS = ("real", "ideal", "loader", "step", "waiting", "contention")
"""What a whisker in the colour of ink ends in, and is seen against, as against the paper."""
SERIES = 6
"""Colours for things without a colour of their own, told apart by their lines' dashes too."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def series(number: int) -> str:
    """The colour of thing `number`, from 0; they come again after SERIES."""
    return f"series{number % SERIES}"


def dash(number: int) -> str:
    """How the line of thing `number`, from 0, is dashed."""
    return DASHES[number % len(DASHES)]


def css_classes() -> str:
    """A class for each colour, which sets things in it: .c-real."""
    return "".join(f".c-{name}{{color:var(--{name})}}" for name in LIGHT)


def css_variables(theme: Theme) -> str:
    """The colours of `theme` as custom properties of CSS."""
    return "".join(f"--{name}:{color};" for name, color in THEMES[theme].items())
