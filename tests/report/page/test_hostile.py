"""A run log that wants to be more than text: nothing of it runs, and all is shown as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval.data.lines import CodeSamples, EpochEnd, Event, LoaderInfo, Readings
from loadeval.data.log import read_run
from tests.runs import SPDL
from tests.runs.given import randomised, save_metrics, with_readings
from tests.runs.staged import staged
from tests.runs.tables import readings_lines, replace, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from loadeval.data.run import Run

    Open = Callable[..., AbstractContextManager[Any]]
    Write = Callable[..., Path]

pytestmark = pytest.mark.check

PAYLOADS = (
    "</script><script>window.owned=1</script>",
    "<!--<script>window.owned=1;</script>",
    "<img src=x onerror=window.owned=1>",
    "'\" onmouseover=window.owned=1 onfocus='",
    '<a href="javascript:owned=1">a</a><b>b</b>',
    "<span style='color:red'>r</span><br><sup>x</sup>",
    "&lt;b&gt;b&lt;/b&gt; &#60;i&#62; &amp;lt;",
    "{{ 7*7 }}{% raw %} %{x} %{customdata} $x^2$",
)
STEERING = "a\u2028b\u2029c\u202ed\x1b[2Je\x00f\ud800"
STRANGERS = """() => [...document.querySelectorAll(
  "img, iframe, object, embed, link, form, base, svg a, svg image, foreignObject, main script, " +
  "header script, svg tspan[style], [onerror], [onmouseover], [onfocus]"
)].map((one) => one.outerHTML)"""
LINKS = """() => [...document.querySelectorAll("a")].map((one) => one.getAttribute("href"))"""


def hostile(run: Run, text: str) -> Run:
    """`run` with `text` in every field that holds text."""
    loader = LoaderInfo(text, adapter=text, device=text, start_method=text)
    readings = [
        replace(reading, probe=reading.probe, subject=f"{text}{place}")
        for place, reading in enumerate(readings_lines(run))
    ]
    missing = Readings(text, text, [], {text: []}, text)
    header = replace(
        run.header,
        run_id=text,
        name=text,
        created=text,
        unit=text,
        loader=loader,
        settings={text: text, "nested": {text: [text]}},
        environment={text: text, "host": text, "platform": text, "packages": {text: text}},
    )
    ends = [*run.ends[:-1], EpochEnd(run.ends[-1].epoch, "failed", 10**18, 0, text)]
    return replace(
        run,
        header=header,
        ends=tuple(ends),
        events=(Event(5, text),),
        readings=(*readings, missing),
        notes=(text,),
    )


def with_hostile_stages(run: Run, text: str) -> Run:
    """`run` with `text` for the name of a transform and a line of code."""
    stages = [
        replace(
            times,
            transform_ns={text: times.transform_ns["GaussianBlur"]},
            transform_calls={text: times.transform_calls["GaussianBlur"]},
        )
        for times in rows_of(run)
    ]
    code = (CodeSamples(0, {text: 5}, {f"{text} > {text}": 5}),)
    return replace(run, stages=tuple(stages), code=code)


def opens_quietly(page: Path, opened: Open) -> tuple[str, str]:
    """The text of the page and of its figures, after a visit of every point of the first ones."""
    with opened(page) as tab:
        for plot in tab.page.locator(".plot").all():
            plot.focus()
            for key in ("Home", "ArrowDown"):
                tab.page.keyboard.press(key)
        assert tab.page.evaluate("() => window.owned") is None
        assert tab.page.evaluate(STRANGERS) == []
        assert all(link.startswith("#") for link in tab.page.evaluate(LINKS))
        text = tab.page.locator("body").inner_text()
        drawn = tab.page.locator(".main-svg text").all_text_contents()
        return text, "\n".join(drawn)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_text_stays_text(payload: str, write: Write, opened: Open) -> None:
    """In every field of a run and in the names of files, on the page and in its figures."""
    run = hostile(with_readings(randomised(pairs=4)), payload)
    text, drawn = opens_quietly(write([run], names=[f"{payload}.jsonl"]), opened)
    assert payload in text
    assert payload[:6] in drawn
    assert f"{payload[-5:]}/s" in drawn


def test_names_of_backends_stay_text(write: Write, opened: Open) -> None:
    """They stand in headings, on axes, in legends and where a point is."""
    payload = "<b>$x$</b><a href='//x'>"
    runs = [hostile(with_readings(randomised(pairs=4)), f"{payload}{n}") for n in range(2)]
    text, drawn = opens_quietly(write(runs, names=["a.jsonl", "b.jsonl"]), opened)
    assert f"{payload}0" in text
    assert "<b>$x$</b>" in drawn


def test_names_of_operators_and_threads_stay_text(write: Write, opened: Open) -> None:
    """In tables, and in the sentence on the bottleneck."""
    payload, run = PAYLOADS[0], read_run(SPDL)
    operators = [
        replace(operator, operator=f"{payload}{operator.operator}") for operator in run.operators
    ]
    readings = [
        replace(reading, subject=payload)
        for reading in readings_lines(run)
        if "spdl" in reading.subject
    ]
    hostile_run = replace(run, operators=tuple(operators), readings=tuple(readings[:40]))
    text, _ = opens_quietly(write([hostile_run]), opened)
    assert f"{payload}collate" in text
    assert f"Bottleneck: {payload}decode" in text


@pytest.mark.parametrize("payload", PAYLOADS)
def test_names_of_transforms_and_code_stay_text(payload: str, write: Write, opened: Open) -> None:
    """In tables, on axes and where a point is."""
    run = with_hostile_stages(staged(name="a", batches=90), payload)
    text, drawn = opens_quietly(write([run, staged(name="b", batches=90)]), opened)
    assert payload in text
    assert payload[:6] in drawn


def test_what_steers_or_does_not_show_is_its_escape(write: Write, opened: Open) -> None:
    """Separators of lines, marks of direction, escape sequences, half of a pair."""
    run = hostile(with_readings(randomised(pairs=4)), STEERING)
    text, _ = opens_quietly(write([run]), opened)
    assert r"a\u2028b\u2029c\u202ed\x1b[2Je\x00f\ud800" in text


def test_the_same_from_a_file(write: Write, opened: Open, tmp_path: Path) -> None:
    """The run is read from the disk."""
    payload = PAYLOADS[0]
    path = tmp_path / "hostile.json"
    save_metrics(hostile(with_readings(randomised(pairs=4)), payload), path)
    text, _ = opens_quietly(write([read_run(path)]), opened)
    assert payload in text


def test_a_very_long_text_is_shortened(write: Write) -> None:
    """A name of a megabyte does not make the page longer by as much."""
    plain = write([randomised(pairs=4)]).stat().st_size
    long = write([randomised(pairs=4, name="x" * 1_000_000)], names=["a.jsonl"]).stat().st_size
    assert long < plain + 100_000
