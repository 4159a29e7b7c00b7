"""What tuning found as a figure, a page and text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from matplotlib.text import Text as FigureText

from loadeval.errors import UsageError
from loadeval.report.page import tuning as page
from loadeval.report.page.blocks import Code, Figure, Keys, Text
from loadeval.report.tables import Table
from loadeval.report.terminal.tuning import trial_rows, tuning_lines
from loadeval.report.tuning import Tuning
from loadeval.report.wording.tuning import NOT_PREDICTED, NOTHING_LEFT_OUT, beside_the_line
from tests.report.tuned import BEST, MEASURED, UNMEASURED, tuned

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.analysis.predict.tuning import TuningReport
    from loadeval.report.page.blocks import Section


def tuning(**changes: Any) -> Tuning:
    return Tuning.of(tuned(**changes), dict)


@pytest.fixture(name="sections")
def _sections(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the page is made of: its headline, what is below it, and its sections by name."""

    def made(report: TuningReport) -> tuple[str, Any, dict[str, Section]]:
        # The page as its parts rather than as text.
        monkeypatch.setattr(page, "rendered", lambda *parts: parts)
        parts: Any = page.tuning_page(report)
        headline, _, first, sections = parts
        return headline, first, {section.name: section for section in sections}

    return made


def test_a_figure_has_the_headline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells what the line is of."""
    drawn: list[Any] = []
    monkeypatch.setattr(
        "loadeval.report.tuning.save_figure", lambda *arguments: drawn.append(arguments)
    )
    path = tuning(best=UNMEASURED).plot(tmp_path / "tune.svg")
    ((figure, written),) = drawn
    assert path == written == tmp_path / "tune.svg"
    texts = [text.get_text() for text in figure.findobj(FigureText)]
    words = " ".join(" ".join(texts).split())
    assert "Training is 1.80x" in words
    assert "the best ones have in_order=False too" in words


def test_a_figure_is_written(tmp_path: Path) -> None:
    assert tuning().plot(tmp_path / "tune.png").read_bytes().startswith(b"\x89PNG")


def test_without_predictions_there_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing was predicted"):
        tuning(curve=None).plot(tmp_path / "tune.png")


@pytest.mark.parametrize("name", ["tune.txt", "tune.html"])
def test_a_figure_has_an_extension_of_a_figure(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot write a figure"):
        tuning().plot(tmp_path / name)


def test_a_page_can_be_replaced(tmp_path: Path) -> None:
    report = tuning()
    path = report.page(tmp_path / "tune.html")
    assert report.page(path).read_text(encoding="utf-8").count("<h1>Training is 1.80x") == 1


def test_a_page_has_the_extension_of_a_page(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write a page"):
        tuning().page(tmp_path / "tune.png")


def test_the_page_has_all_that_was_found(sections: Any) -> None:
    headline, (keys, stopped, _), by_name = sections(tuned())
    assert headline.startswith("Training is 1.80x")
    assert isinstance(keys, Keys)
    assert keys.items == (
        ("speed-up", "1.80x", "95% CI [1.70x, 1.90x]"),
        ("present, measured", "500 images/s", ""),
        ("best, measured", "900 images/s", ""),
    )
    assert stopped.lines[0].startswith("Stopped: ")
    assert list(by_name) == ["settings", "trials", "curve", "left-out"]
    assert by_name["settings"].blocks == (Code(("num_workers=4, timeout=None",)),)
    table, failed = by_name["trials"].blocks
    assert len(table.rows) == 4
    assert failed == Text(("num_workers=3 failed: OSError: gone",), "list")
    assert [type(block) for block in by_name["curve"].blocks][:2] == [Figure, Table]
    (left_out,) = by_name["left-out"].blocks
    assert left_out.lines[0].startswith("num_workers=64: predicted to take 20.0 GB")


def test_the_page_of_what_could_not_be_predicted_has_no_curve(sections: Any) -> None:
    bare = replace(MEASURED, settings={}, throughput=None)
    changes = {"trials": (bare,), "best": bare, "gain": None, "left_out": ()}
    _, (keys, *_), by_name = sections(tuned(**changes, predicted=False, curve=None))
    assert keys.items == (("present, measured", "not measured", ""),)
    assert by_name["settings"].blocks == (Code(("as they are",)),)
    assert "curve" not in by_name
    assert by_name["left-out"].blocks == (Text((NOT_PREDICTED,)),)
    assert len(by_name["trials"].blocks) == 1


def test_the_page_says_where_there_was_room(sections: Any) -> None:
    _, _, by_name = sections(tuned(left_out=()))
    assert by_name["left-out"].blocks == (Text((NOTHING_LEFT_OUT,)),)


def test_the_page_says_what_the_line_is_of(sections: Any) -> None:
    _, _, by_name = sections(tuned(best=UNMEASURED))
    assert "in_order=False" in by_name["curve"].blocks[0].lines[0]
    assert not beside_the_line(tuned())


def test_a_gain_without_an_interval_has_none_on_the_page(sections: Any) -> None:
    gain = replace(tuned().gain, low=None, high=None)  # type: ignore[type-var]
    _, (keys, *_), _ = sections(tuned(gain=gain))
    assert keys.items[0] == ("speed-up", "1.80x", "")


def test_lines_are_as_long_as_the_screen() -> None:
    lines = tuning_lines(tuned(), 80)
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "Settings: num_workers=4, timeout=None"


def test_a_column_of_which_nothing_is_known_is_left_out() -> None:
    head, *_ = trial_rows(tuned(trials=(MEASURED,), best=MEASURED))
    assert head == ["images/s", "measured"]
    head, *_ = trial_rows(tuned(trials=(MEASURED, BEST), epoch_batches=None))
    assert head == ["images/s", "predicted", "measured", "speed-up", "memory, predicted"]
