"""Pages of scripted runs, and a real browser to open them in, without a network."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.report import Report
from loadeval.report.page.page import page_of, write_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

    from loadeval.data.run import Run

    Write = Callable[..., Path]

SECOND_NS = 1_000_000_000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
READY = "html[data-ready=yes]"


@pytest.fixture(name="write")
def _write(tmp_path: Path) -> Write:
    """Write a page of runs, and tell where it is."""

    def write(runs: Sequence[Run], *, names: Sequence[str] = ()) -> Path:
        files = [Path(name) for name in names or [f"{run.header.name}.jsonl" for run in runs]]
        path = tmp_path / "page.html"
        write_page(page_of(Report.of(runs), files, path), path)
        return path

    return write


@dataclass
class Opened:
    """An open page, and what it did that it should not have."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def said(self, message: ConsoleMessage) -> None:
        self.complaints.append(f"{message.type}: {message.text}")

    def failed(self, error: Exception) -> None:
        self.complaints.append(str(error))

    def asked(self, request: Request) -> None:
        self.requests.append(request.url)


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
def _opened(browser: Browser) -> Callable[..., Any]:
    """Open a page at a width and in a theme; at the end it has to have kept quiet."""

    @contextmanager
    def open_page(
        path: Path, *, width: int = 1280, theme: str = "light", touch: bool = False
    ) -> Iterator[Opened]:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if theme == "dark" else "light",
            has_touch=touch,
            is_mobile=touch,
        )
        tab = Opened(context.new_page())
        tab.page.on("console", tab.said)
        tab.page.on("pageerror", tab.failed)
        tab.page.on("request", tab.asked)
        tab.page.goto(path.as_uri())
        tab.page.wait_for_selector(READY, state="attached")
        yield tab
        context.close()
        assert tab.complaints == []
        assert tab.requests == [path.as_uri()]

    return open_page
