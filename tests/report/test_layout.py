"""Nothing in the figure overlaps, is cut off or is too small, whatever the runs are."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

import pytest
from matplotlib.axes import Axes
from matplotlib.text import Text

from loadeval.report.comparison import Comparison
from loadeval.report.plots import comparison_figure
from loadeval.runlog.model import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

    from loadeval.runlog.model import Run

    Record = Callable[..., Run]

MS = 1_000_000


def figure_of(real: Run, ideal: Run | None = None) -> Figure:
    return comparison_figure(Comparison.of(real, ideal))


LONG = "/data/" + "W" * 3000 + "/$\\alpha_{\x1b[31m\n\u4e2d\u6587"

CASES: dict[str, Callable[[Record], tuple[Run, Run]]] = {
    "highly input-bound": lambda record: (record(), record("replay")),
    "moderately input-bound": lambda record: (record(waits_ns=[MS] * 30), record("replay")),
    "inconclusive": lambda record: (record(waits_ns=[MS] * 6), record("replay")),
    "no faster": lambda record: (record(waits_ns=[0] * 30), record("replay")),
    "slower": lambda record: (record(step_ns=MS), record("replay", step_ns=90 * MS)),
    "interference": lambda record: (record(step_ns=30 * MS), record("replay")),
    "other batch size": lambda record: (record(samples=8), record("replay")),
    "samples unknown": lambda record: (record(samples=None), record("replay", samples=None)),
    "other unit": lambda record: (record(), record("replay", unit="videos")),
    "real unmeasured": lambda record: (record(warmup=99), record("replay")),
    "ideal unmeasured": lambda record: (record(), record("replay", warmup=99)),
    "both unmeasured": lambda record: (record(warmup=99), record("replay", warmup=99)),
    "nothing at all": lambda record: (record(epochs=0), record("replay", epochs=0)),
    "no time passed": lambda record: (
        record(waits_ns=[0] * 30, step_ns=0),
        record("replay", step_ns=0),
    ),
    "one batch": lambda record: (record(waits_ns=[MS]), record("replay", waits_ns=[MS])),
    "many epochs": lambda record: (record(epochs=60), record("replay", epochs=60)),
    "some epochs": lambda record: (record(epochs=12), record("replay", epochs=12)),
    "bursts": lambda record: (record(waits_ns=[0, *[500 * MS, 0, 0, 0] * 20]), record("replay")),
    "many batches": lambda record: (record(waits_ns=[MS, 2 * MS] * 3000), record("replay")),
    "nanoseconds": lambda record: (
        record(waits_ns=[900] * 30, step_ns=300, samples=4096),
        record("replay", step_ns=280, samples=4096, tick_ns=20),
    ),
    "weeks": lambda record: (
        record(waits_ns=[10**15] * 30, step_ns=10**15),
        record("replay", step_ns=10**15),
    ),
    "long names": lambda record: (
        dataclasses.replace(
            record(name=LONG, unit=LONG),
            notes=(LONG * 2, "cut off " * 500),
            events=(Event(0, LONG),),
        ),
        record("replay", name=LONG, unit=LONG),
    ),
    "long path": lambda record: (
        dataclasses.replace(record(warmup=99, name=LONG)),
        record("replay", warmup=99, name=LONG),
    ),
}


ALTERNATING: dict[str, dict[str, Any]] = {
    "alternating": {},
    "alternating, no faster": {"cycles_ns": (25 * MS, 25 * MS), "waits_ns": (900, 0), "noise": 0.3},
    "alternating, interference": {"cycles_ns": (25 * MS, 20 * MS), "waits_ns": (0, 0)},
    "alternating, slower": {"cycles_ns": (25 * MS, 90 * MS), "waits_ns": (0, 0), "noise": 0.2},
    "alternating, wide": {"pairs": 3, "noise": 0.6},
    "alternating, loader not alone": {"pulls": False},
    "alternating, one pair": {"pairs": 1},
    "alternating, no pair": {"pairs": 0},
    "alternating, many pairs": {"pairs": 300, "epoch": 2000},
    "alternating, many epochs": {"pairs": 30, "epoch": 12},
    "alternating, long names": {"name": LONG, "unit": LONG},
}


def texts(figure: Figure) -> list[Text]:
    found = cast("list[Text]", figure.findobj(Text))
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def boxes(figure: Figure) -> dict[str, Bbox]:
    """Where every text is, and every legend with its handles, in pixels."""
    legends = [legend for legend in map(Axes.get_legend, figure.axes) if legend is not None]
    inside = {id(text) for legend in legends for text in legend.get_texts()}
    found = {
        f"{number}: {text.get_text()}": text.get_window_extent()
        for number, text in enumerate(texts(figure))
        if id(text) not in inside
    }
    return found | {f"legend {i}": legend.get_window_extent() for i, legend in enumerate(legends)}


def overlap(one: Bbox, other: Bbox) -> bool:
    # Half a pixel of rounding is no overlap.
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return bool(wide > 0.5 and high > 0.5)


@pytest.mark.parametrize("name", [*CASES, *ALTERNATING])
def test_everything_can_be_read(name: str, record: Record, alternating: Record) -> None:
    """Every text and legend has its place for itself, inside, in type that half the size allows."""
    runs = CASES[name](record) if name in CASES else (alternating(**ALTERNATING[name]),)
    figure = figure_of(*runs)
    figure.draw_without_rendering()
    found = boxes(figure)
    assert not [pair for pair in combinations(found, 2) if overlap(*(found[n] for n in pair))]
    width, height = figure.canvas.get_width_height()
    for text, box in found.items():
        assert box.x0 >= 0 <= box.y0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
    points = figure.get_size_inches()[0] * 72
    assert min(text.get_fontsize() for text in texts(figure)) / points > 0.0125
