"""The six charts: in a figure's file, and as the page's SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.estimate.stats import Estimate
from loadeval.report import charts
from loadeval.report.blocks import Bars, Chart
from loadeval.report.build import result_of
from tests.builder import logged
from tests.report import sample

SVG = "{http://www.w3.org/2000/svg}"


def drawn(chart: Chart | Bars) -> ET.Element:
    return ET.fromstring(charts.inline_svg(chart, "chart-1"))  # noqa: S314 - ours


def texts(root: ET.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}text")]


def titles(root: ET.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}title")]


@pytest.mark.parametrize("name", sample.CHARTS)
def test_a_chart_stands_by_itself(name: str) -> None:
    """Its ids are its own and are all there, and its colours are the page's."""
    chart = sample.CHARTS[name]()
    source = charts.inline_svg(chart, "chart-1")
    root = drawn(chart)
    ids = [one.get("id", "") for one in root.iter() if one.get("id")]
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', source)) <= set(ids)
    assert not set(ids) & set(re.findall(r'\bid="([^"]+)', charts.inline_svg(chart, "chart-2")))
    assert root.get("aria-label") == chart.title
    assert re.findall(r"#[0-9a-f]{6}\b", source) == []
    assert "<style" not in source
    width = root.get("viewBox", "").split()[2]
    assert float(width) == charts.WIDE


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    font = FontProperties(family=charts.FAMILY, size=size, weight="bold" if bold else "normal")
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


@pytest.mark.parametrize("name", sample.CHARTS)
def test_nothing_is_cut_off(name: str) -> None:
    root = drawn(sample.CHARTS[name]())
    room = float(root.get("viewBox", "").split()[2])
    for one in root.iter(f"{SVG}text"):
        if "rotate(-90" in one.get("transform", ""):
            continue
        style = one.get("style", "")
        size = float(re.findall(r"font[^;]* ([\d.]+)px", style)[0])
        bold = bool(re.search(r"font[^;]* (700|bold)", style))
        width = width_of(one.text or "", size, bold=bold)
        anchor = re.findall(r"text-anchor: (\w+)", style) or ["start"]
        left = float(one.get("x", 0)) - {"start": 0, "middle": width / 2, "end": width}[anchor[0]]
        assert left > -1, one.text
        assert left + width < room + 1, one.text


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("real_beside_ideal", "training, ideal: 1,503 images/s [1,469, 1,539]"),
        ("backends", "DALI, loader alone: 4,100 images/s [3,977, 4,264]"),
        ("time_per_batch", "real: waiting 18.6 ms, 38.4%"),
        ("system_metrics", "epoch start, epoch 0, batch 0: 133 ms at 0.13 s"),
        ("system_metrics", "GPU 0: busy, 61.9% on average"),
        ("stages", "shrink: 23.9 ms, 54.2%"),
        ("stages", "worker 0, batch 0: collate 5.37 ms at 20.31 s"),
        ("worker_curve", "2 workers, measured: 660 images/s [648, 674]"),
    ],
)
def test_a_mark_says_what_it_is(name: str, some: str) -> None:
    assert some in titles(drawn(sample.CHARTS[name]()))


def test_many_batches_are_thinned() -> None:
    """100,000 take under 200 kB, and no extreme is lost."""
    wait_ms = np.random.default_rng(0).normal(20, 2, 100_000)
    chart = sample.waits(result_of(logged(wait_ms, 2.0)))
    source = charts.inline_svg(chart, "chart-1")
    assert len(source) < 200_000
    table = chart.tables["batches"]
    usual = (table.arm == 0) & (table.batch > 0) & ~table.outlier
    worst = np.flatnonzero(usual)[table.wait_ns[usual].argmax()]
    assert f"real, epoch {table.epoch[worst]}, batch {table.batch[worst]}:" in source


def test_few_waits_many_times_as_long_ask_for_a_logarithmic_axis() -> None:
    """Where a wait of nothing stands at the foot."""
    chart = sample.waits()
    table = chart.tables["batches"]

    def labels(wait_ns: Any) -> list[str]:
        tables = {"batches": table.replace(wait_ns=wait_ns)}
        return texts(drawn(Chart("waits", "", "", tables, "duration")))

    alike = np.full(len(table), 20_000_000)
    assert {"0", "5 ms", "10 ms", "15 ms", "20 ms"} <= set(labels(alike))
    once_none, once_long = np.arange(len(table)) == 7, np.arange(len(table)) == 9
    differing = np.where(once_none, 0, np.where(once_long, 3_000_000_000, alike))
    assert {"0", "10 ms", "100 ms", "1 s"} <= set(labels(differing))


def test_a_whisker_far_beyond_all_bars_does_not_squeeze_them() -> None:
    lengths = {"real": Estimate(727.0, 701.0, 753.0), "ideal": Estimate(725.0, 667.0, 1e9)}
    chart = Bars([("training", lengths)], unit="images/s", stacked=False)
    labels = [float(text.replace(",", "")) for text in texts(drawn(chart)) if text[0].isdigit()]
    assert max(labels) < 2_000


def test_batches_of_unknown_times_stand_by_their_numbers() -> None:
    """Such are those of a file that another tool wrote; nothing else has a place beside them."""
    chart = sample.system_metrics()
    batches = chart.tables["batches"]
    batches = batches.replace(request_ns=np.full(len(batches), UNKNOWN))
    root = drawn(replace(chart, tables={"batches": batches}))
    assert "batch number" in texts(root)
    assert "GPU 0" not in texts(root)
    assert "epoch start, epoch 0, batch 0: 133 ms" in titles(root)


def test_readings_have_their_units_at_their_axes() -> None:
    readings = {
        ("host", "machine"): Columns(
            {
                "time_ns": [1e9, 2e9],
                "memory_available_bytes": [20e9, 24e9],
                "read_bytes_per_s": [4e6, 6e6],
            }
        )
    }
    root = drawn(replace(sample.waits(), readings=readings))
    assert {"memory available", "20 GB", "read (bytes/s)", "5 MB"} <= set(texts(root))
    assert titles(root)[-1] == "machine: read, 5.00 million bytes/s on average"


def test_what_stays_the_same_along_the_run_is_not_drawn() -> None:
    read = Columns({"time_ns": [1, 2], "cpu_cores": [0.5, 1.5], "major_faults_per_s": [0.0, 0.0]})
    root = drawn(replace(sample.waits(), readings={("host", "process"): read}))
    assert "cpu (CPUs)" in texts(root)
    assert "major faults (/s)" not in texts(root)


NAMES = ("$x^2$", "</text><script>a</script>", "a\x1b[2J\u202eb", "x" * 500)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_drawn_as_they_are(name: str) -> None:
    """No TeX, no markup, and no warning of a character that the font does not have."""
    chart = sample.backends()
    rows = [(name if row == "DALI" else row, lengths) for row, lengths in chart.rows]
    root = drawn(replace(chart, rows=rows, title=name, says=name, unit=name))
    shown = {"a\x1b[2J\u202eb": r"a\x1b[2J\u202eb"}.get(name, name)
    assert any(title.startswith(f"{shown[:100]}") for title in titles(root))
    assert {one.tag for one in root.iter()} <= {
        SVG + tag
        for tag in ("svg", "g", "path", "text", "title", "use", "defs", "clipPath", "rect")
    }
    if len(name) < 20:
        assert shown in texts(root)


# Files


@pytest.mark.parametrize(
    ("extension", "beginning"),
    [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")],
)
def test_a_figure_of_charts(extension: str, beginning: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"figure.{extension}"
    charts.save(path, "A headline", [sample.time_per_batch(), sample.stages()], ["A note."])
    assert path.read_bytes().startswith(beginning)


def test_a_figure_has_the_words_of_its_charts(tmp_path: Path) -> None:
    path = tmp_path / "figure.svg"
    every = [chart() for chart in sample.CHARTS.values()]
    charts.save(path, sample.HEADLINE.title, every, ["A note."])
    said = " ".join(texts(ET.parse(path).getroot()))  # noqa: S314 - ours
    titles_of = [chart.title for chart in every]
    for words in (sample.HEADLINE.title, *titles_of, sample.stages().says, "A note."):
        assert words in said


def test_a_word_of_any_length_fits(tmp_path: Path) -> None:
    path = tmp_path / "figure.svg"
    charts.save(path, "x" * 5_000, [sample.time_per_batch()])
    long = [text for text in texts(ET.parse(path).getroot()) if "xx" in text]  # noqa: S314
    assert max(width_of(text, charts.BIG, bold=True) for text in long) <= charts.WIDE


def test_a_users_settings_change_nothing_and_stay() -> None:
    """Nor is there anything of pyplot's, which would be the process's."""
    plain = charts.inline_svg(sample.worker_curve(), "chart-1")
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "black", "text.usetex": True}):
        assert charts.inline_svg(sample.worker_curve(), "chart-1") == plain
        assert mpl.rcParams["font.size"] == 30.0
        assert mpl.rcParams["text.usetex"]
