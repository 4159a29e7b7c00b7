"""The page: what is in it, and how it behaves in a real browser without a network."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from loadeval.report.blocks import Bars, Facts, Findings, FindingText, Number, Section, Table, Text
from loadeval.report.html import page
from tests.report import sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    Open = Callable[..., AbstractContextManager[Page]]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PAYLOADS = (
    "</script><script>window.owned=1</script>",
    "'\" onmouseover=window.owned=1 onfocus='",
    '<a href="javascript:owned=1">a</a><b>b</b>',
    "{{ 7*7 }}{% raw %} %{x} $x^2$",
)
STEERING = "a\u2028b\u202ed\x1b[2Je\x00f\ud800"
TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter((one) =>
  !one.closest(".scroll[tabindex], .hidden, .skip, svg") &&
  one.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map((one) => one.outerHTML.slice(0, 200))"""
FOCUSABLE = "a[href], button, summary, [tabindex='0']"
UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
SIZES = """() => [...document.querySelectorAll("svg text")].filter((one) => one.checkVisibility())
  .map((one) => {
    const scale = one.getScreenCTM();
    return parseFloat(getComputedStyle(one).fontSize) * Math.hypot(scale.a, scale.b);
  })"""


@cache
def written() -> str:
    return page(sample.report(), "demo.jsonl")


class Elements(HTMLParser):
    """All elements of a page, with their attributes."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def hostile(text: str) -> list[Section]:
    """A report with `text` in the place of every text of a run."""
    number = Number(1.0, text)
    finding = FindingText(text, text, number, text, [text], [(text, text)], text)
    chart = sample.backends()
    rows = [(text, lengths) for _, lengths in chart.rows]
    return [
        Section(text, [Facts([(text, text)])]),
        Section(
            text,
            [
                *(Text(text, kind) for kind in ("plain", "entry", "caution", "note", "command")),
                Table((text, text), [(text, number), (text, text)], text),
                Bars([(text, {"step": 1.0})]),
                replace(chart, rows=rows, title=text, says=text, unit=text),
                Findings([finding]),
            ],
        ),
    ]


def test_the_page_asks_for_nothing() -> None:
    """No address but names of XML's, and a policy that would forbid it."""
    source = written()
    assert set(re.findall(r"https?://[^\"'\s]+", source)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "default-src 'none'" in source
    assert not {"img", "link", "iframe", "object"} & {tag for tag, _ in Elements(source).found}


@pytest.mark.parametrize("payload", [*PAYLOADS, "x" * 1_000_000])
def test_text_of_a_run_is_escaped(payload: str) -> None:
    """It makes no element, no attribute and no end of one; a very long one is shortened."""
    elements = Elements(page(hostile(payload), payload)).found
    plain = Elements(page(hostile("a"), "a")).found
    assert Counter(tag for tag, _ in elements) - Counter(
        {"tspan": 999, "text": 999, "g": 999, "span": 999, "path": 999, "use": 999}
    ) <= Counter(tag for tag, _ in plain)
    handlers = [name for _, attributes in elements for name in attributes if name.startswith("on")]
    assert handlers == []
    assert sum(len(str(attributes)) for _, attributes in elements) < 1_000_000


def test_what_steers_a_browser_is_its_escape() -> None:
    source = page(hostile(STEERING), STEERING)
    assert not set(source) & set(STEERING) - set("abdef[2J")
    assert r"a\u2028b\u202ed\x1b[2Je\x00f\ud800" in source


# In a browser


@pytest.fixture(name="browser", scope="module")
def _browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(name="opened")
def _opened(browser: Browser, tmp_path: Path) -> Open:
    """Opens the page; at the end it has to have kept quiet, and asked for nothing."""

    @contextmanager
    def open_page(
        source: str | None = None, *, width: int = 1280, theme: str = "light", script: bool = True
    ) -> Iterator[Page]:
        path = tmp_path / "page.html"
        path.write_text(source or written(), encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if theme == "dark" else "light",
            java_script_enabled=script,
        )
        tab, said, asked = context.new_page(), [], []
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(path.as_uri())
        yield tab
        context.close()
        assert said == []
        assert asked == [path.as_uri()]

    return open_page


@pytest.mark.check
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_page(opened: Open, width: int, theme: str) -> None:
    """But a table of many columns, which scrolls by itself and takes the focus."""
    with opened(width=width, theme=theme) as tab:
        tab.evaluate(UNFOLD)
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        assert tab.evaluate(TOO_WIDE) == []


@pytest.mark.check
def test_a_word_in_a_table_is_not_broken_on_a_phone(opened: Open) -> None:
    with opened(width=390) as tab:
        rows = [tab.locator("tbody th", has_text=part) for part in ("waiting", "contention")]
        heights = [row.locator("span").first.bounding_box() for row in rows]
        assert len({box and box["height"] for box in heights}) == 1


@pytest.mark.check
@pytest.mark.parametrize("width", [390, 760, 780, 1280])
def test_charts_can_be_read(opened: Open, width: int) -> None:
    """Each is there once, in a type of 9 pixels or more."""
    with opened(width=width) as tab:
        for figure in tab.locator("figure").all():
            assert figure.locator("svg:visible").count() == 1
        assert min(tab.evaluate(SIZES)) >= 9


@pytest.mark.check
def test_the_keyboard_reaches_everything(opened: Open) -> None:
    """Every link, button, table that scrolls and folded part, in the order of the page."""
    with opened() as tab:
        count = tab.locator(FOCUSABLE).locator("visible=true").count()
        places = []
        for _ in range(count):
            tab.keyboard.press("Tab")
            places.append(
                tab.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)")
            )
        assert len(set(places)) == count
        assert places == sorted(places)


@pytest.mark.check
def test_a_screen_reader_finds_its_way(opened: Open) -> None:
    """By landmarks and headings; tables have captions or heads, and charts names."""
    with opened() as tab:
        for landmark in ("banner", "navigation", "main", "contentinfo"):
            assert tab.get_by_role(landmark).count() == 1
        names = tab.locator("h1, h2, h3").evaluate_all("all => all.map((one) => one.tagName)")
        levels = [int(name[1]) for name in names]
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        for section in tab.locator("section").all():
            assert section.get_attribute("aria-labelledby")
        for drawing in tab.locator("svg").all():
            assert drawing.get_attribute("role") == "img"
            assert drawing.get_attribute("aria-label")
        assert tab.locator("table:not(:has(th[scope=row]))").count() == 0
        assert tab.locator("figure:not(:has(figcaption))").count() == 0


@pytest.mark.check
def test_a_table_is_sorted_by_the_keyboard(opened: Open) -> None:
    """By the numbers that it shows, not by their text; what is not a number comes last."""
    with opened() as tab:
        tab.locator("summary", has_text="What each would gain").click()
        table = tab.locator("table", has_text="What each would gain")
        names = table.locator("tbody th")
        head = table.locator("th[scope=col]", has_text="real")
        head.get_by_role("button").focus()
        assert names.all_inner_texts()[1] == "DALI"
        tab.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "ascending"
        assert names.all_inner_texts()[1] == "DALI"
        tab.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "descending"
        assert names.all_inner_texts()[0] == "DALI"


@pytest.mark.check
def test_sections_fold_and_links_unfold_them(opened: Open) -> None:
    with opened() as tab:
        chart = tab.locator("section", has_text="Along the run").locator("svg").first
        assert chart.is_visible()
        tab.get_by_role("button", name="Fold all").click()
        assert not chart.is_visible()
        tab.get_by_role("link", name="Along the run").click()
        assert chart.is_visible()
        tab.get_by_role("button", name="Fold all").click()
        tab.get_by_role("button", name="Unfold all").click()
        assert tab.locator("section > details:not([open])").count() == 0


@pytest.mark.check
def test_without_script_all_is_there(opened: Open) -> None:
    with opened(script=False) as tab:
        assert tab.locator("section > details[open]").count() == tab.locator("section").count()
        assert tab.get_by_role("button").count() == 0


@pytest.mark.check
def test_colours_follow_the_theme(opened: Open) -> None:
    label = "() => getComputedStyle(document.querySelector('svg text')).fill"
    with opened() as tab:
        assert tab.evaluate(label) == "rgb(28, 27, 25)"
        tab.emulate_media(color_scheme="dark")
        assert tab.evaluate(label) == "rgb(236, 234, 230)"


@pytest.mark.check
@pytest.mark.parametrize("payload", PAYLOADS)
def test_nothing_of_a_run_is_executed(payload: str, opened: Open) -> None:
    """And all of it is shown as it is, on the page and in its charts."""
    with opened(page(hostile(payload), payload)) as tab:
        tab.evaluate(UNFOLD)
        assert tab.evaluate("window.owned") is None
        assert tab.locator("[onerror], [onmouseover], [onfocus], main a, svg a").count() == 0
        shown = [tab.locator("h1").inner_text(), tab.locator("article h3").inner_text()]
        shown += [tab.locator("caption").inner_text(), tab.locator("pre").inner_text()]
        assert shown == [payload] * 4
        assert payload in (tab.locator("svg title").first.text_content() or "")


@pytest.mark.check
def test_a_mark_tells_what_it_is(opened: Open) -> None:
    """What is under the pointer has the title of the mark."""
    told = "([x, y]) => document.elementFromPoint(x, y).querySelector('title').textContent"
    with opened() as tab:
        bar = tab.locator("svg[aria-label='Throughput'] path:has(title)").nth(1)
        bar.scroll_into_view_if_needed()
        box = bar.bounding_box()
        assert box is not None
        middle = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
        assert tab.evaluate(told, middle) == "training, ideal: 1,503 images/s [1,469, 1,539]"
