"""The figures: plotly knows all that is in them, and they hold what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.report import Report
from loadeval.report.bar_charts import iteration_chart, throughput_chart
from loadeval.report.formatting import duration
from loadeval.report.html.blocks import Figure, Table, Text
from loadeval.report.html.page import sections
from loadeval.report.palette import LIGHT
from loadeval.report.point_charts import OUTLIERS, waits_chart
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import Readings
from loadeval.runlog.reader import read_run
from tests.report.conftest import MS
from tests.runs import DALI, SPDL
from tests.staged import staged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.runlog.model import Run

    Record = Callable[..., Run]


def figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """The figures of a page, by name."""
    return {found.name: found for found in of_kind(runs, Figure)}


def tables(runs: Sequence[Run]) -> dict[str, Table]:
    """The tables of a page, by caption."""
    return {found.caption: found for found in of_kind(runs, Table)}


def of_kind(runs: Sequence[Run], kind: type[Any]) -> list[Any]:
    files = [Path(f"{place}.jsonl") for place, _ in enumerate(runs)]
    told = sections(Report.of(runs), files, Path("page.html"))
    return [block for section in told for block in section.blocks if isinstance(block, kind)]


def painted(value: Any, key: str = "") -> Any:
    """`value` with colours in place of their names, as the page's script puts them in."""
    if isinstance(value, str):
        return LIGHT.get(value, value) if key.endswith("color") else value
    if isinstance(value, list):
        return [painted(one, key) for one in value]
    if isinstance(value, dict):
        return {name: painted(one, name) for name, one in value.items()}
    return value


@pytest.fixture(name="sorts")
def _sorts(record: Record, alternating: Record, readings: Record) -> dict[str, list[Run]]:
    """A page of each sort."""
    jagged = [30 * MS if place % 7 else 500 * MS for place in range(40)]
    log = record("log", waits_ns=jagged, epochs=3)
    return {
        "alternating": [readings(alternating())],
        "log": [log],
        "replay": [record("replay")],
        "pair": [log, record("replay", waits_ns=jagged)],
        "backends": [alternating(name="torch"), record("log", name="dali")],
        "nothing counts": [record("log", waits_ns=(1,), warmup=5)],
        "staged": [staged()],
        "loaders": [staged(name="torch", workers=0), staged("log", name="dali", batches=700)],
    }


SORTS = (
    *("alternating", "log", "replay", "pair", "backends", "nothing counts"),
    *("staged", "loaders"),
)


@pytest.mark.parametrize("sort", SORTS)
def test_plotly_knows_every_property(sorts: dict[str, list[Run]], sort: str) -> None:
    """Its own validation takes each figure."""
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for figure in figures(sorts[sort]).values():
        graph_objects.Figure(painted({"data": figure.data, "layout": figure.layout}))


@pytest.mark.parametrize("sort", SORTS)
def test_each_figure_says_what_is_to_be_seen(sorts: dict[str, list[Run]], sort: str) -> None:
    """Its caption is a sentence, and every point has words of its own."""
    for figure in figures(sorts[sort]).values():
        assert figure.caption.endswith(".")
        for trace in figure.data:
            assert len(trace["customdata"]) == len(trace["x"]) == len(trace["y"])


def test_bars_are_those_of_the_chart(alternating: Record) -> None:
    """Each with its whisker; what is gained is faint."""
    run = alternating(iterations_ns=(25 * MS, 30 * MS), waits_ns=(MS, 0))
    for name, chart in (
        ("throughput", throughput_chart(Report.of([run]))),
        ("iteration-time", iteration_chart(Report.of([run]))),
    ):
        figure = figures([run])[name]
        drawn = {
            (trace["marker"]["color"], start, length, opacity)
            for trace in figure.data
            for start, length, opacity in zip(
                trace["base"], trace["x"], trace["marker"]["opacity"], strict=True
            )
        }
        bars = [bar for row in chart.rows for bar in row.bars]
        assert drawn == {
            (bar.color, bar.start, bar.length, 1 if bar.length >= 0 else 0.25) for bar in bars
        }
        whiskers = [bar for bar in bars if bar.low is not None]
        assert len(figure.layout["shapes"]) == len(whiskers) >= 2
        rows = [note["text"].split(" images")[0] for note in figure.layout["annotations"]]
        assert rows == [row.text for row in chart.rows]


def test_blocks_of_both_arms_are_shaded(alternating: Record) -> None:
    """One rectangle for each stretch that counts."""
    shapes = figures([alternating(pairs=6, epoch=10_000)])["timeline-0"].layout["shapes"]
    shaded = [shape["fillcolor"] for shape in shapes if shape["type"] == "rect"]
    assert sorted(shaded) == ["ideal"] * 6 + ["real"] * 6


def test_many_blocks_are_not_shaded_and_that_is_told(alternating: Record) -> None:
    """They would be one grey."""
    figure = figures([alternating(pairs=300)])["timeline-0"]
    assert not [shape for shape in figure.layout["shapes"] if shape["type"] == "rect"]
    assert "blocks are too many to be shaded" in figure.caption


def test_points_are_those_of_the_chart(record: Record) -> None:
    """Each with its epoch, number and time; lines have a gap between epochs, rings their number."""
    waits = [MS + place % 13 for place in range(10_000)]
    waits[1_234] = 77 * MS
    run = record("log", waits_ns=waits, epochs=2)
    chart, figure = waits_chart(run), figures([run])["timeline-0"]
    traces = {one["name"]: one for one in figure.data if one["yaxis"] == "y"}
    assert list(traces) == ["epoch start", "real", f"{OUTLIERS} (2)"]
    (line,) = (points for points in chart.points if points.joined)
    drawn = traces["real"]
    assert [x for x in drawn["x"] if x is not None] == np.round(chart.time.x[line.rows], 6).tolist()
    assert [y for y in drawn["y"] if y is not None] == chart.values[line.rows].tolist()
    assert drawn["x"].count(None) == drawn["y"].count(None) == 1
    spikes = [words for words in drawn["customdata"] if words and duration(77 * MS) in words]
    assert [words.split(", at ")[0] for words in spikes] == [
        "epoch 0, batch 1234",
        "epoch 1, batch 1234",
    ]
    assert any("Thinned: 2,002 of 20,000 batches are drawn" in note for note in figure.notes)


def test_very_many_epoch_starts_are_a_line(record: Record) -> None:
    """Bars would be thinner than a pixel."""
    (trace,) = figures([record("log", waits_ns=(MS,) * 2, epochs=400)])["epoch-starts"].data
    assert (trace["type"], len(trace["x"])) == ("scatter", 400)


def test_outliers_stand_in_a_table(record: Record) -> None:
    """The worst twenty, the worst first, with epoch, batch and time; all are counted."""
    waits = [10 * MS] * 30
    waits[20], waits[25] = 400 * MS, 100 * MS
    many = [MS if place % 3 else 300 * MS for place in range(300)]
    found = [tables([record("log", waits_ns=some)]) for some in (waits, many)]
    few, most = (one for some in found for one in some.values() if "Outliers: " in one.caption)
    assert few.caption.startswith("Outliers: 2 real,")
    assert [row[0] for row in few.rows] == ["epoch 0, batch 20", "epoch 0, batch 25"]
    assert few.rows[0][2:] == ("410 ms", "400 ms", "10.0 ms", "20.5")
    assert len(most.rows) == 20
    assert most.caption.startswith("Outliers: 99 real,")


def test_all_waits_are_in_the_distribution(alternating: Record) -> None:
    """The shares of each arm add up to 1, waits of nothing included."""
    figure = figures([alternating()])["distribution"]
    assert [trace["name"] for trace in figure.data] == ["real", "ideal"]
    for trace in figure.data:
        assert sum(trace["y"]) == pytest.approx(1, abs=1e-4)
    assert "Waits of zero are at its left end." in figure.caption


def test_readings_share_the_axis_of_the_waits(alternating: Record, readings: Record) -> None:
    """The same range, and the same name."""
    found = figures([readings(alternating())])
    timeline, machine = found["timeline-0"], found["machine-0"]
    assert timeline.time_axis == machine.time_axis
    assert timeline.layout["xaxis"]["range"] == machine.layout["xaxis"]["range"]


def test_readings_are_shaded_where_blocks_were_measured(
    alternating: Record, record: Record, readings: Record
) -> None:
    """As the timeline is; a run of one mode has no blocks."""
    found = figures([readings(alternating())])
    shaded = [shape for shape in found["timeline-0"].layout["shapes"] if shape["type"] == "rect"]
    assert found["machine-0"].layout["shapes"] == shaded != []
    assert "Measured blocks are shaded" in found["machine-0"].caption
    machine = figures([readings(record("log"))])["machine-0"]
    assert machine.layout["shapes"] == []
    assert "shaded" not in machine.caption


def test_threads_are_not_among_the_readings(alternating: Record, readings: Record) -> None:
    """They are many, and have a table of their own."""
    run = readings(alternating())
    (process, *_) = run.readings
    threads = replace(process, probe="threads", subject="loadeval-log")
    names = [
        trace["name"]
        for trace in figures([replace(run, readings=(threads, *run.readings))])["machine-0"].data
    ]
    assert "process" in names
    assert "loadeval-log" not in names


@pytest.mark.parametrize("idle_ns", [None, 30_000])
def test_the_caption_explains_gpu_idle_where_it_is_drawn(
    alternating: Record, idle_ns: int | None
) -> None:
    run = alternating()
    if idle_ns is not None:
        idle = np.full(len(run.steps), idle_ns)
        run = replace(run, steps=replace(run.steps, gpu_idle_ns=idle))
    caption = figures([run])["iteration-time"].caption
    assert ("GPU idle while waiting is" in caption) is (idle_ns is not None)


def test_a_run_without_times_is_drawn_by_batch(record: Record) -> None:
    """As one of DALI's LoaderEvaluator is."""
    run = record("log")
    steps = replace(run.steps, request_ns=np.full(len(run.steps), UNKNOWN))
    figure = figures([replace(run, steps=steps)])["timeline-0"]
    assert figure.layout["xaxis"]["title"]["text"] == "batch number"
    assert "at " not in figure.data[-1]["customdata"][0]


def test_lanes_have_a_bar_for_each_stage_of_each_batch() -> None:
    """From when to when, in the lane of its worker; the legend names each kind once."""
    run = staged("log", batches=90, epochs=1)
    (times,) = run.stages
    figure = figures([run])["lanes-0"]
    assert figure.layout["yaxis"]["ticktext"] == ["worker 0", "worker 1", "training"]
    traces = {one["name"]: one for one in figure.data}
    fetch = traces["fetch"]
    assert np.allclose(np.array(fetch["base"]) * 1e9, times.fetch_start_ns, atol=1e3)
    assert np.allclose(np.array(fetch["x"]) * 1e9, times.fetch_ns, atol=1e3)
    assert fetch["y"] == times.worker.tolist()
    assert "slowest sample " in fetch["customdata"][0]
    waits = traces["waiting"]
    assert set(waits["y"]) == set(traces["step"]["y"]) == {2}
    assert len(waits["x"]) == len(traces["step"]["x"]) == 90


def test_batches_that_held_up_others_are_marked() -> None:
    """A diamond over each, and how many they are."""
    figure = figures([staged("log", batches=700, epochs=1)])["lanes-0"]
    held = figure.data[-1]
    assert held["marker"]["symbol"] == "diamond"
    assert held["name"] == f"held up later batches ({len(held['x'])})"
    assert "around the longest head-of-line wait" in figure.caption


def test_lanes_without_workers() -> None:
    """The training process has a lane of its own for loading; nothing is pickled or held up."""
    figure = figures([staged("log", workers=0, batches=40)])["lanes-0"]
    assert figure.layout["yaxis"]["ticktext"] == ["loading", "training"]
    assert [one["name"] for one in figure.data] == ["fetch", "collate", "waiting", "step"]
    assert "No batch held up others" in figure.caption


def test_a_slowest_sample_that_is_not_known_is_not_told() -> None:
    """Nor its index."""
    run = staged("log", batches=40, epochs=1)
    (times,) = run.stages
    unknown = np.full(len(times), UNKNOWN)
    nameless = replace(times, slowest_index=unknown)
    for changed, told in (
        (nameless, "slowest sample 1"),
        (replace(nameless, slowest_ns=unknown), "fetch "),
    ):
        (fetch, *_) = figures([replace(run, stages=(changed,))])["lanes-0"].data
        assert fetch["customdata"][0].split("<br>")[-1].startswith(told)


def test_many_lanes_are_lower() -> None:
    """A figure of them is not as high as many screens."""
    run = staged("log", workers=40, batches=120, epochs=1)
    assert figures([run])["lanes-0"].height < 1_200


def test_the_legend_of_stages_tells_the_parts_apart() -> None:
    """On CPU, waiting for a CPU and blocked; where that is not known there is none."""
    run = staged()
    legend = figures([run])["stages-0"].legend
    assert [(entry.text, entry.shapes) for entry in legend] == [
        ("on CPU", ("bar",)),
        ("waiting for CPU", ("bar-hatched",)),
        ("blocked", ("bar-light",)),
    ]
    unknown = [replace(one, cpu_ns=np.full(len(one), UNKNOWN)) for one in run.stages]
    figure = figures([replace(run, stages=tuple(unknown))])["stages-0"]
    assert figure.legend == ()
    assert "CPU times were not measured." in figure.caption


def test_tables_of_the_inside() -> None:
    """Stages, transforms, code, samples; workers on demand, and loaders side by side."""
    one = tables([staged()])
    names = ("Stages", "Transforms", "Lines of code that workers were in", "Slowest samples")
    assert set(names) <= set(one)
    assert one["Workers"].folded
    assert [row[0] for row in one["Stages"].rows][-1] == "not attributed"
    two = tables([staged(name="a"), staged(name="b", workers=0)])
    (shares,) = (table for name, table in two.items() if name.startswith("Inside the loaders"))
    rows = {row[0]: row[1:] for row in shares.rows}
    assert rows["receive"][1] == ""
    assert rows["fetch"][0].endswith("%")


def test_stages_without_details() -> None:
    """Neither transforms nor code nor a slow sample: no empty table."""
    run = staged(batches=60)
    quick = [
        replace(
            one,
            transform_ns={},
            transform_calls={},
            slowest_ns=np.zeros(len(one), dtype=np.int64),
        )
        for one in run.stages
    ]
    run = replace(run, stages=tuple(quick), code=())
    assert not {"Transforms", "Lines of code that workers were in"} & set(tables([run]))
    assert "Slowest samples" not in tables([run])
    (told,) = (text for text in of_kind([run], Text) if "Slowest samples" in text.lines[0])
    assert told.lines == ("Slowest samples: none over 3x the typical one and 100 us.",)
    no_samples = [replace(one, samples=np.full(len(one), UNKNOWN)) for one in run.stages]
    run = replace(run, stages=tuple(no_samples))
    assert not any("Slowest" in line for text in of_kind([run], Text) for line in text.lines)


def test_tables_of_operators_and_threads() -> None:
    """With the bottleneck, and no figure."""
    run = read_run(SPDL)
    found = tables([run])
    assert [row[0] for row in found["Operators"].rows][:2] == ["src", "decode"]
    threads = found["Threads of the training process"]
    assert "spdl_worker_thread_" in [row[0] for row in threads.rows]
    assert not threads.folded
    told = [line for text in of_kind([run], Text) for line in text.lines]
    assert "Inside the loader: 5 operators, over 128 batches." in told
    assert "Bottleneck: decode, which is busy 94.6% of the time." in told
    assert not {"stages-0", "lanes-0"} & set(figures([run]))


def test_threads_of_a_loader_that_was_not_looked_into() -> None:
    """Below the reason."""
    run = read_run(DALI)
    assert "Threads of the training process" in tables([run])
    told = [line for text in of_kind([run], Text) for line in text.lines]
    assert any(line.startswith("Inside the loader: not measured: DALI") for line in told)


def test_threads_beside_stages_are_folded() -> None:
    """Workers are other processes."""
    run = replace(staged(), readings=read_run(DALI).readings)
    assert tables([run])["Threads of the training process"].folded


def test_threads_that_were_not_read_say_why() -> None:
    """In place of the table."""
    none = Readings("threads", "", np.empty(0, dtype=np.int64), {}, "no /proc")
    run = replace(read_run(DALI), readings=(none,))
    assert "Threads of the training process" not in tables([run])
    told = [line for text in of_kind([run], Text) for line in text.lines]
    assert "Threads of the training process: not measured: no /proc" in told


def test_threads_in_which_nothing_is_known_have_no_table() -> None:
    """Of a run without a reading in either arm."""
    readings = Readings(
        "threads", "decode", np.empty(0, dtype=np.int64), {"cpu_cores": np.empty(0)}
    )
    assert "Threads of the training process" not in tables(
        [replace(read_run(DALI), readings=(readings,))]
    )


def test_a_loader_in_which_nothing_was_delivered_has_no_lanes() -> None:
    """Without rows there is nothing at all."""
    run = staged("log", batches=20, epochs=1)
    (times,) = run.stages
    assert "lanes-0" not in figures([replace(run, stages=(times.part(slice(0, 0)),))])


def test_the_run_that_replayed_has_no_inside(record: Record) -> None:
    """Beside the one that loaded."""
    found = figures([staged("log", batches=40, epochs=1), record("replay")])
    assert "stages-0" in found
    assert "stages-1" not in found
