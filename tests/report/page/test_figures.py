"""The figures: plotly knows all that is in them, and they hold what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pytest

from loadeval.analysis.report import Report
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import Readings
from loadeval.data.log import read_run
from loadeval.report.figure.bar_charts import iteration_chart, throughput_chart
from loadeval.report.figure.point_charts import OUTLIERS, waits_chart
from loadeval.report.formatting import duration
from loadeval.report.page.blocks import Figure, Section, Text
from loadeval.report.page.page import sections
from loadeval.report.page.stages import inside_the_loader
from loadeval.report.palette import LIGHT
from loadeval.report.tables import Table
from tests.runs import DALI, SPDL
from tests.runs.given import MS, randomised, with_readings
from tests.runs.measured import recorded
from tests.runs.staged import staged
from tests.runs.tables import readings_lines, replace, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.data.run import Run


B = TypeVar("B")


def figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """The figures of a page, by name."""
    return {block.name: block for block in blocks(page_of(runs), Figure)}


def figures_inside(runs: Sequence[Run]) -> dict[str, Figure]:
    """The figures of the section on the inside of the loader, by name."""
    return {block.name: block for block in blocks(inside_the_loader(Report.of(runs)), Figure)}


def tables_inside(runs: Sequence[Run]) -> dict[str, Table]:
    """The tables of the same section, by caption."""
    return {block.caption: block for block in blocks(inside_the_loader(Report.of(runs)), Table)}


def lines_inside(runs: Sequence[Run]) -> list[str]:
    """The sentences of the same section."""
    texts = blocks(inside_the_loader(Report.of(runs)), Text)
    return [line for text in texts for line in text.lines]


def page_of(runs: Sequence[Run]) -> list[Section]:
    files = [Path(f"{place}.jsonl") for place, _ in enumerate(runs)]
    return sections(Report.of(runs), files, Path("page.html"))


def blocks(parts: Sequence[Section], kind: type[B]) -> list[B]:
    return [block for part in parts for block in part.blocks if isinstance(block, kind)]


def painted(value: Any, key: str = "") -> Any:
    """`value` with colours in place of their names, as the page's script puts them in."""
    if isinstance(value, str):
        return LIGHT.get(value, value) if key.endswith("color") else value
    if isinstance(value, list):
        return [painted(item, key) for item in value]
    if isinstance(value, dict):
        return {name: painted(item, name) for name, item in value.items()}
    return value


SORTS = (
    *("alternating", "log", "replay", "pair", "backends", "nothing counts"),
    *("staged", "loaders"),
)


@pytest.fixture(name="drawn", scope="module", params=SORTS)
def _drawn(request: pytest.FixtureRequest) -> dict[str, Figure]:
    """The figures of a page of each sort."""
    jagged = [30 * MS if place % 7 else 500 * MS for place in range(40)]
    log = recorded("log", waits_ns=jagged, epochs=3)
    sorts: dict[str, Callable[[], list[Run]]] = {
        "alternating": lambda: [with_readings(randomised())],
        "log": lambda: [log],
        "replay": lambda: [recorded("replay")],
        "pair": lambda: [log, recorded("replay", waits_ns=jagged)],
        "backends": lambda: [randomised(name="torch"), recorded("log", name="dali")],
        "nothing counts": lambda: [recorded("log", waits_ns=(1,), warmup=5)],
        "staged": lambda: [staged()],
        "loaders": lambda: [
            staged(name="torch", workers=0, batches=60),
            staged("log", name="dali", batches=60),
        ],
    }
    return figures(sorts[request.param]())


def test_plotly_knows_every_property(drawn: dict[str, Figure]) -> None:
    """Its own validation takes each figure."""
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for figure in drawn.values():
        graph_objects.Figure(painted({"data": figure.data, "layout": figure.layout}))


def test_each_figure_says_what_is_to_be_seen(drawn: dict[str, Figure]) -> None:
    """Its caption is a sentence, and every point has words of its own."""
    for figure in drawn.values():
        assert figure.caption.endswith(".")
        for trace in figure.data:
            assert len(trace["customdata"]) == len(trace["x"]) == len(trace["y"])


def test_bars_are_those_of_the_chart() -> None:
    """Each with its whisker; what is gained is faint."""
    run = randomised(iterations_ns=(25 * MS, 30 * MS), waits_ns=(MS, 0))
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


def test_blocks_of_both_arms_are_shaded() -> None:
    """One rectangle for each stretch that counts."""
    shapes = figures([randomised(pairs=6, epoch=10_000)])["timeline-0"].layout["shapes"]
    shaded = [shape["fillcolor"] for shape in shapes if shape["type"] == "rect"]
    assert sorted(shaded) == ["ideal"] * 6 + ["real"] * 6


def test_many_blocks_are_not_shaded_and_that_is_told() -> None:
    """They would be one grey."""
    figure = figures([randomised(pairs=300)])["timeline-0"]
    assert not [shape for shape in figure.layout["shapes"] if shape["type"] == "rect"]
    assert "blocks are too many to be shaded" in figure.caption


def test_points_are_those_of_the_chart() -> None:
    """Each with its epoch, number and time; lines have a gap between epochs, rings their number."""
    waits = [MS + place % 13 for place in range(10_000)]
    waits[1_234] = 77 * MS
    run = recorded("log", waits_ns=waits, epochs=2)
    chart, figure = waits_chart(run), figures([run])["timeline-0"]
    traces = {trace["name"]: trace for trace in figure.data if trace["yaxis"] == "y"}
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


def test_very_many_epoch_starts_are_a_line() -> None:
    """Bars would be thinner than a pixel."""
    (trace,) = figures([recorded("log", waits_ns=(MS,) * 2, epochs=400)])["epoch-starts"].data
    assert (trace["type"], len(trace["x"])) == ("scatter", 400)


def test_outliers_stand_in_a_table() -> None:
    """The worst twenty, the worst first, with epoch, batch and time; all are counted."""
    waits = [10 * MS] * 30
    waits[20], waits[25] = 400 * MS, 100 * MS
    many = [MS if place % 3 else 300 * MS for place in range(300)]
    pages = [page_of([recorded("log", waits_ns=waits_ns)]) for waits_ns in (waits, many)]
    tables = [table for page in pages for table in blocks(page, Table)]
    few, most = (table for table in tables if "Outliers: " in table.caption)
    assert few.caption.startswith("Outliers: 2 real,")
    assert [row[0] for row in few.rows] == ["epoch 0, batch 20", "epoch 0, batch 25"]
    assert few.rows[0][2:] == ("410 ms", "400 ms", "10.0 ms", "20.5")
    assert len(most.rows) == 20
    assert most.caption.startswith("Outliers: 99 real,")


def test_all_waits_are_in_the_distribution() -> None:
    """The shares of each arm add up to 1, waits of nothing included."""
    figure = figures([randomised()])["distribution"]
    assert [trace["name"] for trace in figure.data] == ["real", "ideal"]
    for trace in figure.data:
        assert sum(trace["y"]) == pytest.approx(1, abs=1e-4)
    assert "Waits of zero are at its left end." in figure.caption


def test_readings_share_the_axis_of_the_waits() -> None:
    """The same range, and the same name."""
    drawn = figures([with_readings(randomised())])
    timeline, machine = drawn["timeline-0"], drawn["machine-0"]
    assert timeline.time_axis == machine.time_axis
    assert timeline.layout["xaxis"]["range"] == machine.layout["xaxis"]["range"]


def test_readings_are_shaded_where_blocks_were_measured() -> None:
    """The timeline is too; a run of one mode has no blocks."""
    drawn = figures([with_readings(randomised())])
    shaded = [shape for shape in drawn["timeline-0"].layout["shapes"] if shape["type"] == "rect"]
    assert drawn["machine-0"].layout["shapes"] == shaded != []
    assert "Measured blocks are shaded" in drawn["machine-0"].caption
    machine = figures([with_readings(recorded("log"))])["machine-0"]
    assert machine.layout["shapes"] == []
    assert "shaded" not in machine.caption


def test_threads_are_not_among_the_readings() -> None:
    """They are many, and have a table of their own."""
    run = with_readings(randomised())
    (process, *_) = readings_lines(run)
    threads = replace(process, probe="threads", subject="loadeval-log")
    names = [
        trace["name"]
        for trace in figures([replace(run, readings=(threads, *readings_lines(run)))])[
            "machine-0"
        ].data
    ]
    assert "process" in names
    assert "loadeval-log" not in names


@pytest.mark.parametrize("idle_ns", [None, 30_000])
def test_the_caption_explains_gpu_idle_where_it_is_drawn(idle_ns: int | None) -> None:
    run = randomised()
    if idle_ns is not None:
        idle = np.full(len(run.steps), idle_ns)
        run = replace(run, steps=replace(run.steps, gpu_idle_ns=idle))
    caption = figures([run])["iteration-time"].caption
    assert ("GPU idle while waiting is" in caption) is (idle_ns is not None)


def test_a_run_without_times_is_drawn_by_batch() -> None:
    """Runs of DALI's LoaderEvaluator are like this."""
    run = recorded("log")
    steps = replace(run.steps, request_ns=np.full(len(run.steps), UNKNOWN))
    figure = figures([replace(run, steps=steps)])["timeline-0"]
    assert figure.layout["xaxis"]["title"]["text"] == "batch number"
    assert "at " not in figure.data[-1]["customdata"][0]


def test_lanes_have_a_bar_for_each_stage_of_each_batch() -> None:
    """Each shows from when to when, in its worker's lane; the legend names each kind once."""
    run = staged("log", batches=90, epochs=1)
    (times,) = rows_of(run)
    figure = figures_inside([run])["lanes-0"]
    assert figure.layout["yaxis"]["ticktext"] == ["worker 0", "worker 1", "training"]
    traces = {trace["name"]: trace for trace in figure.data}
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
    figure = figures_inside([staged("log", batches=700, epochs=1)])["lanes-0"]
    held = figure.data[-1]
    assert held["marker"]["symbol"] == "diamond"
    assert held["name"] == f"held up later batches ({len(held['x'])})"
    assert "around the longest head-of-line wait" in figure.caption


def test_lanes_without_workers() -> None:
    """The training process has a lane of its own for loading; nothing is pickled or held up."""
    figure = figures_inside([staged("log", workers=0, batches=40)])["lanes-0"]
    assert figure.layout["yaxis"]["ticktext"] == ["loading", "training"]
    assert [trace["name"] for trace in figure.data] == ["fetch", "collate", "waiting", "step"]
    assert "No batch held up others" in figure.caption


def test_a_slowest_sample_that_is_not_known_is_not_told() -> None:
    """Its index is not told either."""
    run = staged("log", batches=40, epochs=1)
    (times,) = rows_of(run)
    unknown = np.full(len(times), UNKNOWN)
    nameless = replace(times, slowest_index=unknown)
    for changed, words in (
        (nameless, "slowest sample 1"),
        (replace(nameless, slowest_ns=unknown), "fetch "),
    ):
        (fetch, *_) = figures_inside([replace(run, stages=(changed,))])["lanes-0"].data
        assert fetch["customdata"][0].split("<br>")[-1].startswith(words)


def test_many_lanes_are_lower() -> None:
    """A figure of them is not as high as many screens."""
    run = staged("log", workers=40, batches=120, epochs=1)
    assert figures_inside([run])["lanes-0"].height < 1_200


def test_the_legend_of_stages_tells_the_parts_apart() -> None:
    """These are on CPU, waiting for a CPU and blocked; where that is not known there is none."""
    run = staged(batches=60)
    legend = figures_inside([run])["stages-0"].legend
    assert [(entry.text, entry.shapes) for entry in legend] == [
        ("on CPU", ("bar",)),
        ("waiting for CPU", ("bar-hatched",)),
        ("blocked", ("bar-light",)),
    ]
    unknown = [replace(times, cpu_ns=np.full(len(times), UNKNOWN)) for times in rows_of(run)]
    figure = figures_inside([replace(run, stages=tuple(unknown))])["stages-0"]
    assert figure.legend == ()
    assert "CPU times were not measured." in figure.caption


def test_tables_of_the_inside() -> None:
    """Stages, transforms, code, samples; workers on demand, and loaders side by side."""
    single = tables_inside([staged(batches=200)])
    names = ("Stages", "Transforms", "Lines of code that workers were in", "Slowest samples")
    assert set(names) <= set(single)
    assert single["Workers"].folded
    assert [row[0] for row in single["Stages"].rows][-1] == "not attributed"
    two = tables_inside([staged(name="a", batches=60), staged(name="b", workers=0, batches=60)])
    (shares,) = (table for name, table in two.items() if name.startswith("Inside the loaders"))
    rows = {row[0]: row[1:] for row in shares.rows}
    assert rows["receive"][1] == ""
    assert rows["fetch"][0].endswith("%")


def test_stages_without_details() -> None:
    """Neither transforms nor code nor a slow sample: no empty table."""
    run = staged(batches=60)
    quick = [
        replace(
            times,
            transform_ns={},
            transform_calls={},
            slowest_ns=np.zeros(len(times), dtype=np.int64),
        )
        for times in rows_of(run)
    ]
    run = replace(run, stages=tuple(quick), code=())
    assert not {"Transforms", "Lines of code that workers were in"} & set(tables_inside([run]))
    assert "Slowest samples" not in tables_inside([run])
    (line,) = (line for line in lines_inside([run]) if "Slowest samples" in line)
    assert line == "Slowest samples: none over 3x the typical one and 100 us."
    no_samples = [replace(times, samples=np.full(len(times), UNKNOWN)) for times in rows_of(run)]
    run = replace(run, stages=tuple(no_samples))
    assert not any("Slowest" in line for line in lines_inside([run]))


def test_tables_of_operators_and_threads() -> None:
    """They have the bottleneck, and no figure."""
    run = read_run(SPDL)
    tables = tables_inside([run])
    assert [row[0] for row in tables["Operators"].rows][:2] == ["src", "decode"]
    threads = tables["Threads of the training process"]
    assert "spdl_worker_thread_" in [row[0] for row in threads.rows]
    assert not threads.folded
    lines = lines_inside([run])
    assert "Inside the loader: 5 operators, over 128 batches." in lines
    assert "Bottleneck: decode, which is busy 94.6% of the time." in lines
    assert not {"stages-0", "lanes-0"} & set(figures_inside([run]))


def test_threads_of_a_loader_that_was_not_looked_into() -> None:
    """Below the reason."""
    run = read_run(DALI)
    assert "Threads of the training process" in tables_inside([run])
    lines = lines_inside([run])
    assert any(line.startswith("Inside the loader: not measured: DALI") for line in lines)


def test_threads_beside_stages_are_folded() -> None:
    """Workers are other processes."""
    run = replace(staged("log", epochs=1, batches=200), readings=readings_lines(read_run(DALI)))
    assert tables_inside([run])["Threads of the training process"].folded


def test_threads_that_were_not_read_say_why() -> None:
    """The reason stands in place of the table."""
    none = Readings("threads", "", np.empty(0, dtype=np.int64), {}, "no /proc")
    run = replace(read_run(DALI), readings=(none,))
    assert "Threads of the training process" not in tables_inside([run])
    lines = lines_inside([run])
    assert "Threads of the training process: not measured: no /proc" in lines


def test_threads_in_which_nothing_is_known_have_no_table() -> None:
    """The run has no reading in either arm."""
    readings = Readings(
        "threads", "decode", np.empty(0, dtype=np.int64), {"cpu_cores": np.empty(0)}
    )
    assert "Threads of the training process" not in tables_inside(
        [replace(read_run(DALI), readings=(readings,))]
    )


def test_a_loader_in_which_nothing_was_delivered_has_no_lanes() -> None:
    """Without rows there is nothing at all."""
    run = staged("log", batches=20, epochs=1)
    (times,) = rows_of(run)
    assert "lanes-0" not in figures_inside([replace(run, stages=(times.part(slice(0, 0)),))])


def test_the_run_that_replayed_has_no_inside() -> None:
    """It stands beside the one that loaded."""
    drawn = figures_inside([staged("log", batches=40, epochs=1), recorded("replay")])
    assert "stages-0" in drawn
    assert "stages-1" not in drawn
