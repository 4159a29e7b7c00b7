"""Text in a figure: measured, shortened and wrapped to the room there is."""

from __future__ import annotations

from loadeval.report.formatting import printable, shortened

FAMILY = "DejaVu Sans"
"""Comes with matplotlib, so the room that a text needs is the same everywhere."""
POINTS_PER_INCH = 72
LONGEST = 400
"""Characters of one text that are looked at, at most."""
FEWEST = 5
"""Characters that are left of any text."""


def drawable(text: object) -> str:
    """`text` with a box for each character that the figure's font does not have."""
    from matplotlib.font_manager import FontProperties, findfont, get_font  # noqa: PLC0415 - heavy

    glyphs = get_font(findfont(FontProperties(family=FAMILY))).get_charmap()
    return "".join(char if ord(char) in glyphs else "\N{WHITE SQUARE}" for char in printable(text))


def width_of(text: str, points: float, *, bold: bool = False) -> float:
    """The width of `text` in inches, set in a font of `points`."""
    from matplotlib.font_manager import FontProperties  # noqa: PLC0415 - heavy
    from matplotlib.textpath import text_to_path  # noqa: PLC0415 - heavy

    font = FontProperties(family=FAMILY, size=points, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return width / POINTS_PER_INCH


def clipped(text: str, points: float, room: float, *, bold: bool = False) -> str:
    """`text`, its middle left out where it is wider than `room` inches."""
    shown = text = shortened(text, LONGEST)
    while (width := width_of(shown, points, bold=bold)) > room and len(shown) > FEWEST:
        shown = shortened(text, max(FEWEST, min(len(shown) - 1, int(len(shown) * room / width))))
    return shown


def wrapped(text: str, points: float, room: float, lines: int, *, bold: bool = False) -> list[str]:
    """`text` in at most `lines` lines, none wider than `room` inches."""
    rows: list[str] = []
    for word in text.split():
        longer = f"{rows[-1]} {word}" if rows else word
        if rows and width_of(longer, points, bold=bold) <= room:
            rows[-1] = longer
        else:
            rows.append(word)
    kept, rest = rows[: lines - 1], rows[lines - 1 :]
    kept += [" ".join(rest)] if rest else []
    return [clipped(row, points, room, bold=bold) for row in kept]
