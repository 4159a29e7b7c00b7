"""The page as text: its policy, its order, its words, and onto the disk."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.report import Report
from loadeval.data.lines import Event
from loadeval.data.log import read_run
from loadeval.errors import UsageError
from loadeval.report.page.blocks import Figure
from loadeval.report.page.escaping import script_json
from loadeval.report.page.page import check_replaceable, page_of, page_path, write_page
from loadeval.report.page.plotly import PlotlyJs
from loadeval.report.page.stages import inside_the_loader
from loadeval.report.wording.runs import report_headline
from tests.runs import DALI
from tests.runs.given import MS, randomised
from tests.runs.measured import recorded
from tests.runs.staged import staged, without_stages
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[..., Path]

ORDER = [
    "Throughput",
    "Iteration time",
    "Findings",
    "Timeline",
    "Epoch starts",
    "Outliers",
    "Waits",
    "System metrics",
    "Settings",
    "Reproduce",
]


class Outline(HTMLParser):
    """The scripts and styles of a page, its policy, its headings, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[tuple[str | None, str]] = []
        self.styles: list[str] = []
        self.policy = ""
        self.headings: list[tuple[str, str]] = []
        self.text = ""
        self._in: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"] or ""
        self._in.append((tag, attributes))

    def handle_data(self, data: str) -> None:
        tag, attributes = self._in[-1] if self._in else ("", {})
        if tag == "script":
            self.scripts.append((attributes.get("type"), data))
        elif tag == "style":
            self.styles.append(data)
        else:
            self.text += data
        if tag in {"h1", "h2", "h3", "h4"}:
            self.headings.append((tag, data))

    def handle_endtag(self, tag: str) -> None:
        while self._in and self._in.pop()[0] != tag:
            pass


def outlined(path: Path) -> Outline:
    return Outline(path.read_text("utf-8"))


@cache
def plain_page() -> str:
    """The page of an alternating run."""
    path = Path("page.html")
    return page_of(Report.of([randomised()]), [path.with_name("run.jsonl")], path)


def test_sections_are_in_their_order(write: Write) -> None:
    """The verdict first; of several backends there is one section more."""
    headings = Outline(plain_page()).headings
    assert headings[0] == ("h1", report_headline(Report.of([randomised()])))
    assert [text for tag, text in headings if tag == "h2"] == ORDER
    several = outlined(write([randomised(name="a"), randomised(name="b")])).headings
    assert ("h2", "Backends side by side") in several


def test_the_inside_of_the_loader_is_below_the_iteration_time(write: Write) -> None:
    """Only where a loader was looked into; a run beside it says why it was not."""
    page = write([staged()])
    headings = [text for tag, text in outlined(page).headings if tag == "h2"]
    assert headings == [*ORDER[:2], "Inside the loader", "What if", *ORDER[2:]]
    assert page.stat().st_size < len(PlotlyJs.installed().text) + 500_000
    run, other = staged(name="a", batches=60), without_stages(staged(name="b", batches=60))
    assert "Inside the loader: not measured: " in outlined(write([run, other])).text
    assert ("h2", "Inside the loader") not in outlined(write([other])).headings
    threads = outlined(write([read_run(DALI)]))
    assert ("h2", "Inside the loader") in threads.headings


def test_the_inside_of_the_loader_does_not_make_the_page_long() -> None:
    """However many batches there are, a stretch of them is drawn."""
    report = Report.of([staged("log", batches=2_000)])
    figures = [
        block
        for section in inside_the_loader(report)
        for block in section.blocks
        if isinstance(block, Figure)
    ]
    assert len(figures) == 2
    assert sum(len(script_json(figure.data)) for figure in figures) < 100_000


def test_nothing_else_may_run() -> None:
    """The policy names the two scripts by their hashes; styles run nothing and load nothing."""
    page = Outline(plain_page())
    rules = dict(rule.split(" ", maxsplit=1) for rule in page.policy.split("; "))
    running = [text for kind, text in page.scripts if kind is None]
    assert rules["default-src"] == "'none'"
    assert rules["base-uri"] == rules["worker-src"] == rules["form-action"] == "'none'"
    assert rules["script-src"].split() == list(map(named, running))
    assert len(running) == 2
    assert rules["style-src-attr"] == rules["script-src-attr"] == "'none'"
    assert set(rules) == {
        "default-src",
        "script-src",
        "script-src-attr",
        "style-src",
        "style-src-attr",
        "worker-src",
        "base-uri",
        "form-action",
    }


def named(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def test_plotly_is_there_once_and_nothing_is_loaded() -> None:
    """No address of anything outside."""
    page = plain_page()
    assert page.count(PlotlyJs.installed().text) == 1
    rest = page.replace(PlotlyJs.installed().text, "")
    assert not re.search(r"(src|href)=\"(?!#)", rest)
    assert not re.search(r"https?://|url\(|@import", rest)


def test_the_page_is_small() -> None:
    """Little more than plotly.js itself."""
    assert len(plain_page().encode()) < len(PlotlyJs.installed().text) + 500_000


def test_the_same_runs_make_the_same_page(write: Write) -> None:
    """It holds no time at which it was made."""
    assert write([randomised()]).read_bytes() == write([randomised()]).read_bytes()


def test_figures_are_json() -> None:
    """The script reads them; both themes are there."""
    themes, figures = (text for kind, text in Outline(plain_page()).scripts if kind)
    assert set(json.loads(themes)) == {"light", "dark"}
    assert "timeline-0" in json.loads(figures)


def test_one_run_that_logged() -> None:
    """It tells how long it waited, with an interval of its pace, and compares nothing."""
    headline = report_headline(Report.of([recorded("log")]))
    assert "75.0% of the time" in headline
    assert "100 images/s (95% CI [100, 100])" in headline


def test_a_backend_that_failed(write: Write) -> None:
    """It is told as failed, with the error, and has no bar."""
    broken = replace(randomised(name="a"), events=(Event(3, "OSError: gone", "failed backend"),))
    page = outlined(write([broken, randomised(name="b")]))
    assert "a failed: OSError: gone" in page.text
    (_, figures) = (text for kind, text in page.scripts if kind)
    drawn = json.loads(figures)["iteration-time"]
    assert {row for trace in drawn["data"] for row in trace["y"]} == {1}
    assert drawn["layout"]["annotations"][0]["text"] == "failed"


def test_a_file_of_dali(tmp_path: Path, write: Write) -> None:
    """It has waits alone, without the times at which batches were asked for."""
    path = tmp_path / "dali.json"
    metrics = {"mode": "log", "total_batches": 3, "total_time": 0.1, "cached_batches": 0}
    path.write_text(json.dumps({**metrics, "batch_times": [0.01, 0.02, 0.01]}))
    text = outlined(write([read_run(path)])).text
    assert "Throughput" in text
    assert "not measured" in text


def test_runs_that_tell_little() -> None:
    """One that replayed, one in which nothing counts."""
    assert report_headline(Report.of([recorded("replay")])).startswith(
        "This run replayed kept batches"
    )
    assert report_headline(Report.of([recorded("log", waits_ns=(MS,), warmup=5)])) == (
        "Not measured: no steady-state batches. Batches so far: 1. Training waited 1.00 ms for "
        "them, 9.1% of the time (1.00 ms for the first of each epoch), and its steps took 10.0 ms"
    )


@pytest.mark.parametrize("name", ["page.htm", "page", "page.pdf", ".html"])
def test_another_extension(name: str) -> None:
    """Is refused, with one that would do."""
    with pytest.raises(UsageError, match=r"\.html was expected; try .*\.html"):
        page_path(name)


def test_only_a_page_of_ours_is_replaced(write: Write) -> None:
    """Anything else stays as it is."""
    path = write([randomised()])
    check_replaceable(path)
    path.write_text("<!doctype html><title>thesis</title>")
    with pytest.raises(UsageError, match="is no page that loadeval report wrote"):
        write_page("", path)
    assert "thesis" in path.read_text()


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    """Is told, and leaves nothing behind."""
    with pytest.raises(UsageError, match=r"cannot write the page .*: No such file"):
        write_page("", tmp_path / "none" / "page.html")
    with pytest.raises(UsageError, match=r"cannot write the page .*: Is a directory"):
        write_page("", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["</SCRIPT>", "<!--"])
def test_a_plotly_that_no_page_can_hold(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """One whose text would end its script element."""
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: f"window.Plotly = '{end}'")
    with pytest.raises(UsageError, match=r"another release: pip install --upgrade plotly"):
        PlotlyJs.installed()


def test_a_copy_that_is_not_installed_makes_pages_too(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes them without a version, and replaces them."""
    monkeypatch.setattr("loadeval.data.environment.installed_version", lambda _: None)
    path = write([randomised()])
    assert "loadeval (not installed) made this page" in path.read_text()
    check_replaceable(path)
