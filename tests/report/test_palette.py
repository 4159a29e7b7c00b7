"""The contrast of both themes, by WCAG 2.2."""

from __future__ import annotations

import pytest

from loadeval.report.blocks import DARK, LIGHT, SERIES, series

TEXT = ("ink", "faint", "link")
DECORATION = {"paper", "raised", "rule"}  # carries no meaning
LINEAR_UNDER = 0.04045
FOR_TEXT, FOR_GRAPHICS = 4.5, 3.0


def luminance(color: str) -> float:
    """The relative luminance that WCAG defines, of #rrggbb."""
    parts = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= LINEAR_UNDER else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(color: str, other: str) -> float:
    lighter, darker = sorted((luminance(color), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("under", ["paper", "raised"])
def test_text_can_be_read(colors: dict[str, str], under: str) -> None:
    contrasts = {name: contrast(colors[name], colors[under]) for name in TEXT}
    assert {name: value for name, value in contrasts.items() if value < FOR_TEXT} == {}


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_and_bars_can_be_seen(colors: dict[str, str]) -> None:
    contrasts = {name: contrast(color, colors["paper"]) for name, color in colors.items()}
    weak = {name: value for name, value in contrasts.items() if value < FOR_GRAPHICS}
    assert weak.keys() <= DECORATION


def test_things_without_a_colour_of_their_own_are_told_apart() -> None:
    """The seventh GPU of eight has a colour that returns, and another dash."""
    assert len({series(number) for number in range(16)}) == 16
    assert LIGHT.keys() >= {*SERIES}
