"""comparison.png and backends.png: they draw the charts, say what was found, and can be read."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.legend import Legend
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from loadeval.analysis.backends import BackendReport
from loadeval.analysis.estimate.headroom import headroom, headroom_of_two
from loadeval.analysis.report import Comparison
from loadeval.data.lines import Event
from loadeval.errors import RunLogError, UsageError
from loadeval.report.figure.bar_charts import comparison_chart, lost_time_chart
from loadeval.report.figure.figure import backends_figure, comparison_figure, plot_comparison
from loadeval.report.figure.stage_charts import loaders_chart, stages_chart
from loadeval.report.formatting import duration, estimated
from loadeval.report.palette import LIGHT
from loadeval.report.wording.verdict import cautions, headline, not_measured
from loadeval.runtime.alternation.backends import MeasuredBackend
from tests.runs.given import MS, randomised, save_metrics
from tests.runs.measured import TickingClock, recorded
from tests.runs.staged import staged, without_stages
from tests.runs.tables import replace, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

    from loadeval.data.columns import Values
    from loadeval.data.lines import Mode
    from loadeval.data.run import Run
    from loadeval.report.figure.bar_charts import BarChart


LONG = "/data/" + "W" * 3000 + "/$\\alpha_{\x1b[31m\n\u4e2d\u6587"
LONG_NAME = "the WebDataset of the whole department, read from its shards, in its third version"
ERROR = RuntimeError("a stage of the pipeline failed: cannot identify image file " * 9)


def figure_of(real: Run, ideal: Run | None = None) -> Figure:
    return comparison_figure(Comparison.of(real, ideal))


def backend(name: str, real_ms: float = 40, **more: Any) -> MeasuredBackend:
    iterations = round(real_ms * MS), 25 * MS
    settings = {"comparison": "one", "rounds": 6}
    run = randomised(name=name, pairs=6, iterations_ns=iterations, settings=settings, **more)
    return MeasuredBackend(name, run, None)


def texts(figure: Figure) -> list[Text]:
    every = cast("list[Text]", figure.findobj(Text))
    return [text for text in every if text.get_visible() and text.get_text().strip()]


def words(figure: Figure) -> str:
    return " ".join(text.get_text().replace("\n", " ") for text in texts(figure))


def legend(axes: Axes) -> list[str]:
    """What the legend of a panel says."""
    return [text.get_text() for legend in axes.figure.legends for text in legend.get_texts()]


def title(axes: Axes) -> str:
    """The title of a panel."""
    return axes.figure.get_suptitle()


def check_bars(axes: Axes, chart: BarChart) -> None:
    """Each bar and whisker of `chart` is there, with its value, and nothing else."""
    drawn = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    bars = [bar for row in chart.rows for bar in row.bars]
    assert len(drawn) == len(bars)
    for patch, bar in zip(drawn, bars, strict=True):
        assert patch.get_x() + patch.get_width() == pytest.approx(bar.start + bar.length)
        color = to_rgba(LIGHT[bar.color])
        if bar.texture != "solid":
            assert patch.get_facecolor()[:3] == color[:3]
            assert bool(patch.get_hatch()) == (bar.texture == "hatched")
            continue
        # What is gained is hollow.
        assert patch.get_facecolor() == (color if bar.length >= 0 else (0, 0, 0, 0))
        assert patch.get_edgecolor() == color
    whiskers = [np.asarray(line.get_xdata(), dtype=float).tolist() for line in axes.lines]
    expected = [[bar.low, min(bar.high, chart.farthest)] for bar in bars if bar.high is not None]
    assert whiskers == expected
    written = " ".join(text.get_text() for text in axes.texts)
    assert all(row.text in written for row in chart.rows)


# What is drawn


@pytest.mark.parametrize("kind", ["alternating", "two runs", "a gain", "real unmeasured"])
def test_bars_are_those_of_the_charts(kind: str) -> None:
    """Throughput with its intervals, and where the time of an iteration goes."""
    runs = {
        "alternating": lambda: [randomised()],
        "two runs": lambda: [recorded(waits_ns=[MS, 3 * MS] * 20), recorded("replay")],
        "a gain": lambda: [recorded(), recorded("replay", step_ns=15 * MS)],
        "real unmeasured": lambda: [recorded(warmup=99), recorded("replay")],
    }[kind]()
    comparison = Comparison.of(*runs)
    throughput, time, _ = comparison_figure(comparison).axes
    check_bars(throughput, comparison_chart(comparison))
    check_bars(time, lost_time_chart(comparison))
    assert title(throughput) == "Throughput in images/s"


@pytest.mark.parametrize("mode", ["alternate", "log"])
def test_the_inside_of_the_loader(mode: Mode) -> None:
    """All stages and each by itself, below the other panels; a legend tells the parts apart."""
    run = staged(mode, batches=60)
    ideal = staged("log", batches=60)
    steps = replace(ideal.steps, arm=np.ones_like(ideal.steps.arm))
    header = replace(ideal.header, mode="replay")
    ideal = replace(ideal, header=header, steps=steps, stages=())
    comparison = Comparison.of(run, ideal if mode == "log" else None)
    assert comparison.stages is not None
    figure = comparison_figure(comparison)
    *_, inside = figure.axes
    check_bars(inside, stages_chart(comparison.stages))
    assert title(inside) == "Inside the loader"
    assert legend(inside) == ["on CPU", "waiting for CPU", "blocked"]
    assert "A bar is the part of the time" in words(figure)


def test_without_stages_there_is_no_such_panel() -> None:
    """No word of it is there; without CPU times the panel has no legend."""
    figure = figure_of(without_stages(staged(batches=60)))
    assert len(figure.axes) == 3
    assert "Inside the loader" not in words(figure)
    run = staged(batches=60)
    unknown = [replace(times, cpu_ns=np.full(len(times), -1)) for times in rows_of(run)]
    *_, inside = figure_of(replace(run, stages=tuple(unknown))).axes
    assert legend(inside) == []


def test_loaders_of_backends_are_side_by_side() -> None:
    """A bar for each that was looked into, and its main stages in words."""
    runs = [
        staged(name="fast", batches=60),
        staged(name="slow", batches=60, slow=2.0),
        randomised(name="other"),
    ]
    report = BackendReport.of_runs(runs)
    figure = backends_figure(report)
    check_bars(
        figure.axes[-1],
        loaders_chart(
            [(backend.name, backend.stages) for backend in report.backends if backend.stages]
        ),
    )
    assert "Inside the loader indices fetch collate pickle receive" in words(figure)
    assert words(figure).count("(GaussianBlur ") == 2
    other = backends_figure(BackendReport.of_runs([runs[2], randomised(name="a")]))
    assert "Inside the loader" not in words(other)


def test_iterations_of_an_alternating_run() -> None:
    """A line for each block at its mean, in the colour of its arm; the counted batches as dots."""
    axes = figure_of(randomised(noise=0, epoch=1000)).axes[2]
    assert legend(axes) == ["real", "ideal", "1 epoch start (300 ms)"]
    for lines, iteration_ns, arm in zip(
        axes.collections, (40 * MS, 25 * MS), ("real", "ideal"), strict=True
    ):
        assert isinstance(lines, LineCollection)
        heights = [np.asarray(part)[:, 1].tolist() for part in lines.get_segments()]
        assert heights == [[iteration_ns, iteration_ns]] * 12
        assert np.asarray(lines.get_edgecolor())[0].tolist() == pytest.approx(to_rgba(LIGHT[arm]))
    dots = [len(np.asarray(line.get_xdata())) for line in axes.lines if line.get_marker() == "o"]
    assert dots == [96, 96]


def test_epochs_and_outliers_of_an_alternating_run() -> None:
    """Each has its mark, and its number in the legend."""
    run = randomised(noise=0)
    step_ns = run.steps.step_ns.copy()
    step_ns[run.steps.pair == 3] *= np.where(run.steps.arm[run.steps.pair == 3] == 0, 4, 1)
    steps = replace(run.steps, step_ns=step_ns)
    axes = figure_of(replace(run, steps=steps)).axes[2]
    assert legend(axes) == ["real", "ideal", "8 real over 2x median", "5 epoch starts (300 ms)"]


def test_waits_of_two_runs() -> None:
    """By batch number over the epochs, with epoch starts, outliers and new epochs marked."""
    waits_ns = [70 * MS, *[30 * MS] * 12, 90 * MS, *[30 * MS] * 6]
    axes = figure_of(recorded(waits_ns=waits_ns, epochs=2), recorded("replay")).axes[2]
    lines = {str(line.get_label()): np.asarray(line.get_xdata()).tolist() for line in axes.lines}
    assert lines["2 epoch starts"] == [0, 20]
    assert lines["2 over 2x median"] == [13, 33]
    real = next(line for line in axes.lines if line.get_label() == "real")
    drawn = np.asarray(real.get_ydata())
    assert drawn[np.isfinite(drawn)].tolist() == waits_ns[1:] * 2
    assert np.flatnonzero(np.isnan(drawn)).tolist() == [19]  # no line joins two epochs
    assert set(legend(axes)) == {*lines, "new epoch"}


def test_scale_of_the_axis() -> None:
    """The chart decides it; a wait of nothing is drawn at the tick that says 0."""
    axes = figure_of(recorded(waits_ns=[0, 5 * MS, 300] * 10, warmup=0), recorded("replay")).axes[2]
    real = next(line for line in axes.lines if line.get_label() == "real")
    assert axes.get_yscale() == "log"
    assert axes.get_yticklabels()[0].get_text() == "0"
    assert np.nanmin(np.asarray(real.get_ydata())) == axes.get_yticks()[0]


def test_without_a_batch() -> None:
    """The panel says that nothing was measured."""
    runs = [[recorded(epochs=0), recorded("replay", epochs=0)], [randomised(pairs=0)]]
    for some in runs:
        assert [text.get_text() for text in figure_of(*some).axes[2].texts] == ["not measured"]


# What is written


def test_the_finding_and_its_small_print() -> None:
    """The headline first; loader, counts, what a verdict means, and cautions are there."""
    real, ideal = recorded(epochs=2), recorded("replay")
    lost, said = headroom_of_two(real, ideal), words(figure_of(real, ideal))
    assert headline(lost) in said
    assert "real (log): ScriptedLoader; 60 batches in 2 epochs, 58 of them steady" in said
    assert "ideal (replay): 2 kept batches replayed; 30 batches in 1 epoch, 29" in said
    assert "not input-bound under 5% of the time lost, moderately under 20%" in said
    assert all(caution in said for caution in cautions(lost))


def test_small_print_of_an_alternating_run() -> None:
    """The loss with its interval, what was measured, and what was not."""
    run = randomised(prefetches=False)
    lost, said = headroom(run), words(figure_of(run))
    assert headline(lost) in said
    assert "alternating: Loader, workers 2, prefetch depth 4, batch size 32; 264 batches" in said
    assert "in 12 pairs of blocks" in said
    assert f"Lost per batch: {estimated(lost.lost_ns, duration)} of" in said
    assert not_measured(lost)
    assert all(sentence in said for sentence in not_measured(lost))


def test_notes_are_in_the_small_print() -> None:
    """The first note is told, and how many there are beside it; none twice."""
    real = replace(recorded(), notes=("cut off", "same"))
    ideal = replace(recorded("replay"), notes=("same",), events=(Event(0, "copies"),))
    note = "Note: cut off (and 2 more: see `loadeval compare --full`)"
    assert note in words(figure_of(real, ideal))


@pytest.mark.parametrize(
    ("name", "drawn"), [("$\\frac{1$ $x$", "$\\frac{1$ $x$"), ("run \u4e2d", "run \u25a1")]
)
def test_names_are_taken_literally(name: str, drawn: str) -> None:
    """Dollar signs are no mathematics, and what the font does not have is a box."""
    assert f"real ({drawn})" in words(figure_of(recorded(name=name), recorded("replay")))


# Files


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")]
)
def test_figure_is_written_in_the_format_of_its_extension(
    tmp_path: Path, name: str, start: bytes
) -> None:
    """PNG, SVG and PDF; the path written is returned."""
    real, ideal = saved(tmp_path)
    path = plot_comparison(real, ideal, output=tmp_path / name)
    assert path == tmp_path / name
    assert path.read_bytes().startswith(start)


def test_run_logs_are_drawn(tmp_path: Path) -> None:
    """Run logs work as metrics files do, as plain strings too; one alternating run is enough."""
    recorded(log_file=tmp_path / "real.jsonl")
    recorded("replay", log_file=tmp_path / "ideal.jsonl")
    output = str(tmp_path / "figure.png")
    paths = [str(tmp_path / f"{arm}.jsonl") for arm in ("real", "ideal")]
    assert plot_comparison(paths[0], paths[1], output).stat().st_size > 0
    save_metrics(randomised(), tmp_path / "run.json")
    assert plot_comparison(tmp_path / "run.json", output=output).stat().st_size > 0


def test_dali_files_are_drawn(tmp_path: Path) -> None:
    """The JSON of DALI's LoaderEvaluator has what a figure needs."""
    for mode, wait in (("log", 0.02), ("replay", 0.0)):
        metrics = {
            "mode": mode,
            "total_batches": 30,
            "total_time": 30 * (wait + 0.01),
            "batch_times": [wait] * 30,
            "cached_batches": 0,
        }
        (tmp_path / f"{mode}.json").write_text(json.dumps(metrics))
    output = tmp_path / "figure.png"
    plot_comparison(tmp_path / "log.json", tmp_path / "replay.json", output)
    assert output.stat().st_size > 0


def test_what_cannot_be_drawn_or_written(tmp_path: Path) -> None:
    """Another extension, before anything is read; no run, no folder, and runs of other modes."""
    real, ideal = saved(tmp_path)
    none = tmp_path / "none"
    with pytest.raises(UsageError, match=r"'a.gif'.*'.gif'.*.png, .svg or .pdf.*try a.png"):
        plot_comparison(none, none, tmp_path / "a.gif")
    with pytest.raises(RunLogError, match="cannot read"):
        plot_comparison(none, none, tmp_path / "a.png")
    with pytest.raises(UsageError, match=r"cannot write the figure .*none/a.png: No such file"):
        plot_comparison(real, ideal, none / "a.png")
    with pytest.raises(UsageError, match="the other way round"):
        plot_comparison(ideal, real, tmp_path / "a.png")
    with pytest.raises(UsageError, match="mode='alternate'"):
        plot_comparison(real, output=tmp_path / "a.png")


def test_pyplot_is_not_imported(tmp_path: Path) -> None:
    """Drawing needs no display: pyplot, which would look for one, takes no part in it."""
    real, ideal = saved(tmp_path)
    script = (
        "import sys, loadeval; assert 'matplotlib' not in sys.modules; "
        "loadeval.plot_comparison(*sys.argv[1:]); print('matplotlib.pyplot' in sys.modules)"
    )
    command = [sys.executable, "-c", script, *map(str, (real, ideal, tmp_path / "a.png"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_settings_of_the_user_and_the_figure_leave_each_other_alone() -> None:
    """A dark style, other sizes, grids and TeX change nothing, and no global setting changes."""
    plain = pixels(figure_of(recorded(), recorded("replay")))
    style: dict[Any, Any] = {
        "axes.grid": True,
        "axes.facecolor": "black",
        "figure.facecolor": "black",
        "font.size": 40,
        "font.family": "monospace",
        "lines.marker": "x",
        "text.color": "white",
        "text.usetex": True,
        "xtick.minor.visible": True,
    }
    with mpl.rc_context(style):
        before = dict(mpl.rcParams)
        assert pixels(figure_of(recorded(), recorded("replay"))) == plain
        assert dict(mpl.rcParams) == before


def test_figures_are_drawn_in_threads(tmp_path: Path) -> None:
    """Threads that draw at once do not disturb each other."""
    real, ideal = saved(tmp_path)
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    threads = [threading.Thread(target=plot_comparison, args=(real, ideal, path)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({path.read_bytes() for path in paths}) == 1


def saved(folder: Path) -> tuple[Path, Path]:
    paths = folder / "real.json", folder / "ideal.json"
    save_metrics(recorded(), paths[0])
    save_metrics(recorded("replay"), paths[1])
    return paths


def pixels(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


# Nothing overlaps, is cut off or is too small

CASES: dict[str, Callable[[], tuple[Run, Run]]] = {
    "highly input-bound": lambda: (recorded(), recorded("replay")),
    "moderately input-bound": lambda: (recorded(waits_ns=[MS] * 30), recorded("replay")),
    "inconclusive": lambda: (recorded(waits_ns=[MS] * 6), recorded("replay")),
    "no faster": lambda: (recorded(waits_ns=[0] * 30), recorded("replay")),
    "slower": lambda: (recorded(step_ns=MS), recorded("replay", step_ns=90 * MS)),
    "contention": lambda: (recorded(step_ns=30 * MS), recorded("replay")),
    "other batch size": lambda: (recorded(batch=np.zeros((8, 2))), recorded("replay")),
    "samples unknown": lambda: (recorded(batch="text"), recorded("replay", batch="text")),
    "other unit": lambda: (recorded(), recorded("replay", unit="videos")),
    "real unmeasured": lambda: (recorded(warmup=99), recorded("replay")),
    "ideal unmeasured": lambda: (recorded(), recorded("replay", warmup=99)),
    "both unmeasured": lambda: (recorded(warmup=99), recorded("replay", warmup=99)),
    "nothing at all": lambda: (recorded(epochs=0), recorded("replay", epochs=0)),
    "no time passed": lambda: (
        recorded(waits_ns=[0] * 30, step_ns=0),
        recorded("replay", step_ns=0),
    ),
    "one batch": lambda: (recorded(waits_ns=[MS]), recorded("replay", waits_ns=[MS])),
    "many epochs": lambda: (recorded(epochs=60), recorded("replay", epochs=60)),
    "some epochs": lambda: (recorded(epochs=12), recorded("replay", epochs=12)),
    "bursts": lambda: (recorded(waits_ns=[0, *[500 * MS, 0, 0, 0] * 20]), recorded("replay")),
    "many batches": lambda: (recorded(waits_ns=[MS, 2 * MS] * 3000), recorded("replay")),
    "nanoseconds": lambda: (
        recorded(waits_ns=[900] * 30, step_ns=300, batch=np.zeros((4096, 2))),
        recorded("replay", step_ns=280, batch=np.zeros((4096, 2)), clock=TickingClock(20)),
    ),
    "weeks": lambda: (
        recorded(waits_ns=[10**15] * 30, step_ns=10**15),
        recorded("replay", step_ns=10**15),
    ),
    "long names": lambda: (
        replace(
            recorded(name=LONG, unit=LONG),
            notes=(LONG * 2, "cut off " * 500),
            events=(Event(0, LONG),),
        ),
        recorded("replay", name=LONG, unit=LONG),
    ),
    "long path": lambda: (
        replace(recorded(warmup=99, name=LONG)),
        recorded("replay", warmup=99, name=LONG),
    ),
}


ALTERNATING: dict[str, dict[str, Any]] = {
    "alternating": {},
    "alternating, no faster": {
        "iterations_ns": (25 * MS, 25 * MS),
        "waits_ns": (900, 0),
        "noise": 0.3,
    },
    "alternating, contention": {"iterations_ns": (25 * MS, 20 * MS), "waits_ns": (0, 0)},
    "alternating, slower": {"iterations_ns": (25 * MS, 90 * MS), "waits_ns": (0, 0), "noise": 0.2},
    "alternating, wide": {"pairs": 3, "noise": 0.6},
    "alternating, loader not alone": {"prefetches": False},
    "alternating, one pair": {"pairs": 1},
    "alternating, many outliers": {"pairs": 300, "noise": 1.2, "epoch": 200},
    "alternating, no pair": {"pairs": 0},
    "alternating, many pairs": {"pairs": 300, "epoch": 2000},
    "alternating, many epochs": {"pairs": 30, "epoch": 12},
    "alternating, long names": {"name": LONG, "unit": LONG},
}


QUICK = {
    *("highly input-bound", "contention", "nothing at all", "one batch", "bursts", "long names"),
    *("alternating", "alternating, wide", "alternating, no pair", "alternating, long names"),
}


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.check)
        for name in (*CASES, *ALTERNATING)
    ],
)
def test_everything_can_be_read(name: str) -> None:
    """Every text and legend has its place for itself, inside, in type that half the size allows."""
    runs = CASES[name]() if name in CASES else (randomised(**ALTERNATING[name]),)
    check_readable(figure_of(*runs))


@pytest.mark.parametrize("workers", [0, 2])
def test_everything_about_the_loader_can_be_read(workers: int) -> None:
    """With short and with long names of transforms, alone and of several backends."""
    run = staged(workers=workers, batches=60)
    renamed = [
        replace(
            times,
            transform_ns=lengthened(times.transform_ns),
            transform_calls=lengthened(times.transform_calls),
        )
        for times in rows_of(run)
    ]
    run = replace(run, stages=tuple(renamed))
    check_readable(figure_of(run))
    other = replace(run, header=replace(run.header, name=LONG_NAME))
    check_readable(backends_figure(BackendReport.of_runs([run, other])))


def lengthened(columns: Mapping[str, Values]) -> dict[str, Values]:
    """The same with a long name for every other one."""
    names = {name: name + "A" * 90 * (place % 2) for place, name in enumerate(columns)}
    return {names[name]: column for name, column in columns.items()}


def boxes(figure: Figure) -> dict[str, Bbox]:
    """Where every text is, and every legend with its handles, in pixels."""
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    legends = cast("list[Legend]", figure.findobj(Legend))
    inside = {id(text) for legend in legends for text in legend.get_texts()}
    places = {
        f"{number}: {text.get_text()}": text.get_window_extent(renderer)
        for number, text in enumerate(texts(figure))
        if id(text) not in inside
    }
    return places | {
        f"legend {i}": legend.get_window_extent(renderer) for i, legend in enumerate(legends)
    }


def check_readable(figure: Figure, wide: float = 0.5, tall: float = 0.5) -> None:
    """Texts and legends overlap by so many pixels at most, inside; type is no smaller than 1.25%.

    Of the figure's width, so that it can be read at half size.
    """
    places = boxes(figure)
    for (name, box), (other_name, other) in combinations(places.items(), 2):
        beside = min(box.x1, other.x1) - max(box.x0, other.x0) <= wide
        below = min(box.y1, other.y1) - max(box.y0, other.y0) <= tall
        assert beside or below, (name, other_name)
    for text, box in places.items():
        assert box.x0 >= 0 <= box.y0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
    points = figure.get_size_inches()[0] * 72
    assert min(text.get_fontsize() for text in texts(figure)) / points > 0.0125
