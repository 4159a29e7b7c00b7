"""The page in a real browser, without a network."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.data.log import read_run
from tests.runs import DALI, SPDL
from tests.runs.given import randomised, with_readings
from tests.runs.measured import recorded
from tests.runs.staged import staged
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from playwright.sync_api import Page

    from loadeval.data.run import Run

    Open = Callable[..., AbstractContextManager[Any]]
    Write = Callable[..., Path]

pytestmark = pytest.mark.check

MS = 1_000_000
RANGES = """(name) => document.getElementById("plot-" + name).layout.xaxis.range"""
HOVERED = """() =>
  [...document.querySelectorAll(".hoverlayer text")].map((one) => one.textContent).join(" ")"""
ACTIVE = "() => [...document.querySelectorAll('*')].indexOf(document.activeElement)"
LABEL_COLOR = "() => getComputedStyle(document.querySelector('#plot-throughput .ytick text')).fill"
DRAG_MODE = "document.getElementById('plot-timeline-0').layout.dragmode"
TAG_NAMES = "all => all.map(one => one.tagName)"
PLACE = """([name, trace, point]) => {
  const plot = document.getElementById("plot-" + name), layout = plot._fullLayout;
  const data = plot.data[trace], box = plot.getBoundingClientRect();
  const axis = layout[(data.yaxis || "y").replace("y", "yaxis")];
  return [
    box.left + layout.xaxis._offset + layout.xaxis.d2p(data.x[point]),
    box.top + axis._offset + axis.d2p(data.y[point]),
    data.customdata[point],
  ];
}"""
TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter((one) =>
  !one.closest(".scroll, .hidden, .skip, svg") &&
  one.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map((one) => one.outerHTML.slice(0, 200))"""
FOCUSABLE = """() => [...document.querySelectorAll("a[href], button, summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility()).length"""


@pytest.fixture(name="jagged")
def _jagged() -> Run:
    """An alternating run with readings and some slow iterations."""
    run = randomised(noise=0.05)
    step_ns = run.steps.step_ns.copy()
    step_ns[::17] *= 4
    return with_readings(replace(run, steps=replace(run.steps, step_ns=step_ns)))


@pytest.fixture(name="page")
def _page(write: Write, jagged: Run) -> Path:
    return write([jagged])


def test_every_figure_is_drawn(page: Path, opened: Open) -> None:
    """Each has its axes, with something on them."""
    with opened(page) as tab:
        plots = tab.page.locator(".plot")
        assert plots.count() == 7
        for plot in plots.all():
            assert plot.locator("svg.main-svg").count() > 0
            assert plot.locator(".trace").count() > 0


@pytest.mark.filterwarnings("ignore:the loader gave no batch")
def test_sorts_of_pages(write: Write, opened: Open) -> None:
    """Two runs, several backends, and one run of each mode open without complaint."""
    sorts = [
        [recorded("log")],
        [recorded("replay")],
        [recorded("log"), recorded("replay")],
        [randomised(name="torch"), recorded("log", name="dali"), recorded("log", name="spdl")],
        [recorded("log", waits_ns=(), name="empty")],
        [staged()],
        [staged(name="torch", workers=0), staged("log", name="dali", workers=20)],
        [read_run(SPDL), read_run(DALI)],
    ]
    for runs in sorts:
        with opened(write(runs)) as tab:
            assert tab.page.locator("h1").inner_text()


def test_hover_tells_epoch_batch_and_time(page: Path, opened: Open) -> None:
    """They are those of the batch that is pointed at."""
    with opened(page) as tab:
        for name in ("timeline-0", "outliers-0"):
            plot = tab.page.locator(f"#plot-{name}")
            plot.scroll_into_view_if_needed()
            x, y, words = tab.page.evaluate(PLACE, [name, 1, 3])
            tab.page.mouse.move(x, y)
            until(lambda: "epoch" in tab.page.evaluate(HOVERED))
            hovered = tab.page.evaluate(HOVERED)
            assert words.split("<br>")[0] in hovered
            assert words.split("<br>")[1] in hovered


def test_dragging_zooms_all_figures_of_the_run(page: Path, opened: Open) -> None:
    """The waits, the outliers and the machine; a double click shows the whole run again."""
    with opened(page) as tab:
        plot = tab.page.locator("#plot-timeline-0")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        assert box is not None
        whole = tab.page.evaluate(RANGES, "timeline-0")
        drag(tab.page, box, 0.4, 0.6)
        until(lambda: ranges_of(tab.page, "machine-0")[0] > whole[0])
        ranges = [ranges_of(tab.page, name) for name in ("timeline-0", "outliers-0", "machine-0")]
        assert ranges[0] == ranges[1] == ranges[2]
        assert whole[0] < ranges[0][0] < ranges[0][1] < whole[1]
        assert "showing" in tab.page.locator("output").first.inner_text()
        tab.page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 100)
        until(lambda: ranges_of(tab.page, "machine-0")[0] == whole[0])
        assert ranges_of(tab.page, "timeline-0") == whole


def until(holds: Callable[[], bool]) -> None:
    """Ask the page again and again, some thousand times, which takes seconds."""
    assert any(holds() for _ in range(3_000))


def drag(page: Page, box: Any, start: float, end: float) -> None:
    across = box["y"] + 100
    page.mouse.move(box["x"] + start * box["width"], across)
    page.mouse.down()
    page.mouse.move(box["x"] + (start + end) / 2 * box["width"], across)
    page.mouse.move(box["x"] + end * box["width"], across)
    page.mouse.up()


def ranges_of(page: Page, name: str) -> list[float]:
    return list(page.evaluate(RANGES, name))


def test_buttons_zoom_by_keyboard(page: Path, opened: Open) -> None:
    """In, later, out and the whole run again."""
    with opened(page) as tab:
        whole = ranges_of(tab.page, "machine-0")
        seen = []
        for move in ("in", "later", "out", "whole"):
            tab.page.locator(f"button[data-zoom={move}]").first.focus()
            tab.page.keyboard.press("Enter")
            seen.append(ranges_of(tab.page, "machine-0"))
        middle, later, out, again = seen
        assert middle[1] - middle[0] == pytest.approx((whole[1] - whole[0]) / 2)
        assert later[0] > middle[0]
        assert out[1] - out[0] > later[1] - later[0]
        assert again == whole


def test_arrow_keys_go_from_point_to_point(page: Path, opened: Open) -> None:
    """What is pointed at is shown, and told to a screen reader; Escape leaves it."""
    with opened(page) as tab:
        plot = tab.page.locator("#plot-timeline-0")
        plot.focus()
        tab.page.keyboard.press("ArrowDown")
        said = tab.page.locator("#plot-timeline-0-point")
        first = said.inner_text()
        assert first.startswith("epoch 0, batch")
        tab.page.keyboard.press("ArrowRight")
        assert said.inner_text() != first
        tab.page.keyboard.press("ArrowLeft")
        assert said.inner_text() == first
        assert first.split(", wait ")[0] in tab.page.evaluate(HOVERED)
        tab.page.keyboard.press("End")
        assert said.inner_text() != first
        tab.page.keyboard.press("Escape")
        assert said.inner_text() == ""


def test_the_keyboard_reaches_everything(page: Path, opened: Open) -> None:
    """Every link, button, figure and folded table, in the order of the page."""
    with opened(page) as tab:
        count = tab.page.evaluate(FOCUSABLE)
        reached = []
        for _ in range(count):
            tab.page.keyboard.press("Tab")
            reached.append(tab.page.evaluate(ACTIVE))
        assert len(set(reached)) == count
        assert reached == sorted(reached)
        for figure in tab.page.locator(".plot").all():
            assert figure.get_attribute("tabindex") == "0"
            assert figure.get_attribute("aria-label")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_wider_than_the_page(page: Path, opened: Open, theme: str, width: int) -> None:
    """Tables scroll by themselves; the page does not."""
    with opened(page, width=width, theme=theme) as tab:
        for folded in tab.page.locator("summary").all():
            folded.click()
        assert tab.page.evaluate("document.documentElement.scrollWidth") == width
        assert tab.page.evaluate(TOO_WIDE) == []


def test_all_that_is_to_do_is_on_a_narrow_page(page: Path, opened: Open) -> None:
    """What it brings stands beside it, without scrolling."""
    with opened(page, width=390) as tab:
        box = tab.page.locator("[aria-label='What to do']")
        assert box.evaluate("one => one.scrollWidth - one.clientWidth") == 0


def test_what_scrolls_can_be_reached(page: Path, opened: Open) -> None:
    """Tables that do not fit on a narrow page take the focus."""
    with opened(page, width=400) as tab:
        boxes = tab.page.locator(".scroll:visible")
        for box in boxes.all():
            wider = box.evaluate("one => one.scrollWidth > one.clientWidth")
            assert (box.get_attribute("tabindex") == "0") == wider


def test_figures_follow_the_theme(page: Path, opened: Open) -> None:
    """Those of a page that is open do too, and the zoom stays."""
    with opened(page) as tab:
        tab.page.locator("button[data-zoom=in]").first.click()
        zoomed = ranges_of(tab.page, "timeline-0")
        assert tab.page.evaluate(LABEL_COLOR) == "rgb(28, 27, 25)"
        tab.page.emulate_media(color_scheme="dark")
        until(lambda: tab.page.evaluate(LABEL_COLOR) == "rgb(236, 234, 230)")
        assert ranges_of(tab.page, "timeline-0") == zoomed


def test_fingers_scroll_over_figures(page: Path, opened: Open) -> None:
    """On a touch screen dragging does not zoom, so the page can be scrolled; buttons do."""
    with opened(page, width=400, touch=True) as tab:
        assert tab.page.evaluate(DRAG_MODE) is False
        whole = ranges_of(tab.page, "timeline-0")
        tab.page.locator("button[data-zoom=in]").first.tap()
        assert ranges_of(tab.page, "timeline-0") != whole


def test_headings_are_in_order(page: Path, opened: Open) -> None:
    """One at the top, and no level is skipped."""
    with opened(page) as tab:
        names = tab.page.locator("h1, h2, h3, h4").evaluate_all(TAG_NAMES)
        levels = [int(name[1]) for name in names]
        assert levels.count(1) == 1
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))


# Inside the loader

LANES_ZOOM_IN = "figure:has(#plot-lanes-0) button[data-zoom=in]"


@pytest.fixture(name="inside")
def _inside(write: Write) -> Path:
    """A page of a run whose loader was looked into."""
    return write([staged(batches=400)])


def test_lanes_zoom_by_themselves(inside: Path, opened: Open) -> None:
    """They show another stretch than the run."""
    with opened(inside) as tab:
        run, lanes = (ranges_of(tab.page, name) for name in ("timeline-0", "lanes-0"))
        tab.page.locator(LANES_ZOOM_IN).click()
        zoomed = ranges_of(tab.page, "lanes-0")
        assert zoomed[1] - zoomed[0] == pytest.approx((lanes[1] - lanes[0]) / 2)
        assert ranges_of(tab.page, "timeline-0") == run


def test_arrow_keys_go_from_batch_to_batch(inside: Path, opened: Open) -> None:
    """The batches are those that the zoom shows."""
    with opened(inside) as tab:
        said = tab.page.locator("#plot-lanes-0-point")
        tab.page.locator("#plot-lanes-0").focus()
        tab.page.keyboard.press("ArrowRight")
        first = said.inner_text()
        assert "worker" in first
        assert "slowest sample" in first
        tab.page.locator(LANES_ZOOM_IN).click()
        tab.page.locator("#plot-lanes-0").focus()
        tab.page.keyboard.press("Home")
        assert said.inner_text() not in {"", first}


def test_hover_tells_the_batch_of_a_bar(inside: Path, opened: Open) -> None:
    """The batch has its worker, its time and its slowest sample."""
    with opened(inside) as tab:
        plot = tab.page.locator("#plot-lanes-0")
        plot.scroll_into_view_if_needed()
        bar = plot.locator(".barlayer .trace").first.locator("path").nth(60)
        box = bar.bounding_box()
        assert box is not None
        tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        until(lambda: "slowest sample" in tab.page.evaluate(HOVERED))
        assert "worker" in tab.page.evaluate(HOVERED)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_inside_is_not_wider_than_the_page(
    inside: Path, opened: Open, theme: str, width: int
) -> None:
    """Tables scroll by themselves."""
    with opened(inside, width=width, theme=theme) as tab:
        for folded in tab.page.locator("summary").all():
            folded.click()
        assert tab.page.evaluate("document.documentElement.scrollWidth") == width
        assert tab.page.evaluate(TOO_WIDE) == []
