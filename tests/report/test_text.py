"""A report as text, on a terminal and in a file."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pytest
from rich.cells import cell_len
from rich.style import Style

from loadeval.report import text
from loadeval.report.blocks import Bars, Facts, Number, Section, Table, Text
from tests.report import sample
from tests.whole_outputs import trimmed


def printed(sections: Sequence[Section], height: int | None = None) -> str:
    file = io.StringIO()
    text.show(sections, file=file, height=height)
    return file.getvalue()


def lines_of(block: Facts | Table | Text | Bars, width: int = 80) -> list[str]:
    return [line.plain for line in text.lines([Section("", [block])], width)]


@pytest.mark.parametrize(
    ("name", "width", "height"),
    [("report-screen", 80, 32), ("report-full", 80, None), ("report-narrow", 50, None)],
)
def test_whole_outputs(
    name: str,
    width: int,
    height: int | None,
    golden: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    golden(f"{name}.txt", trimmed(printed(sample.report(), height)))


def test_a_terminal_has_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    Style.parse.cache_clear()  # a style keeps the codes of the first terminal that it is printed on
    assert "\x1b[38;2;133;131;125m████" in printed([sample.BATCH])  # the step
    assert "\x1b[33mCaution" in printed([sample.SURE])


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bold and dim are no colours."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    output = printed([sample.BATCH, sample.SURE])
    assert "\x1b[1mA batch's time" in output
    assert "38;" not in output
    assert "[33m" not in output


@pytest.mark.parametrize("height", [4, 24, 40])
def test_a_screen_has_what_fits_by_priority(height: int) -> None:
    """The verdict is always there; what has no priority never is."""
    screen = [line.plain for line in text.lines(sample.report(), height=height)]
    assert len(screen) <= height
    assert screen[0].startswith("Data loading is the bottleneck")
    assert not any(line.startswith(("Time lost", "Settings")) for line in screen)
    if "How sure" in screen:
        assert "Why" in screen


@pytest.mark.parametrize("width", [40, 80, 129])
def test_no_line_is_too_long(width: int) -> None:
    """But that of a command, which is to be copied."""
    rows = [line.plain for line in text.lines(sample.report(), width)]
    assert max(cell_len(row) for row in rows if not row.startswith("loadeval compare")) <= width


@pytest.mark.parametrize("width", [50, 80, 200])
def test_a_long_path_is_whole(width: int) -> None:
    """It goes on behind one of its separators."""
    path = "/mnt/datasets/a-long-name-of-a-folder/runs/2026-11-28/with-another/demo.jsonl"
    rows = lines_of(Facts([("log", path)]), width)
    assert "".join(row[5:] for row in rows) == path
    assert all(row.endswith("/") for row in rows[:-1])


def test_a_number_stays_with_its_unit_and_its_interval() -> None:
    sentence = "training would be 2.28x [2.22x, 2.33x] as fast, and a batch would take 21.3 ms"
    for width in (20, 33, 60):
        rows = lines_of(Text(sentence), width)
        assert " ".join(rows) == sentence
        assert sum("[2.22x, 2.33x]" in row for row in rows) == 1
        assert sum("21.3 ms" in row for row in rows) == 1


@pytest.mark.parametrize(
    ("amount", "unit", "says"),
    [
        (float("nan"), "duration", "not measured"),
        (41.0, "%", "41.0%"),
    ],
)
def test_a_number_has_its_unit(amount: float, unit: str, says: str) -> None:
    assert str(Number(amount, unit)) == says


def test_wide_characters_keep_columns_straight() -> None:
    rows = lines_of(Facts([("数据加载", "a"), ("loader", "b")]))
    assert rows == ["数据加载  a", "loader    b"]


def test_a_part_of_a_bar_that_takes_little_is_drawn() -> None:
    drawn, _ = lines_of(Bars([("real", {"step": 1e9, "waiting": 1e3})]))
    assert drawn.count("░") == 1


def test_an_ascii_terminal_gets_bars_of_ascii() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    text.show([sample.BATCH], file=file)
    file.seek(0)
    assert "real   ####" in file.read()


def test_text_of_a_run_steers_nothing() -> None:
    evil = "\x1b[2J\x00[bold]a[/bold]\r:smile:\u202eb"
    sections = [
        Section(
            evil,
            [
                Text(evil),
                Text(evil, "command"),
                Facts([(evil, evil)]),
                Table((evil,), [(evil,), (Number(1.0, evil),)]),
            ],
        )
    ]
    output = printed(sections)
    assert not set(output) & set("\x1b\x00\r\u202e")
    assert r"\x1b[2J\x00[bold]a[/bold]\r:smile:\u202eb" in output
