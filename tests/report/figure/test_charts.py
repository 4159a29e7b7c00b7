"""What the figures show: the data that both renderers draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.epochs import epoch_start_waits
from loadeval.analysis.estimate.headroom import headroom
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.report import Comparison, Report
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import Event
from loadeval.report.figure.bar_charts import (
    Bar,
    BarChart,
    Row,
    iteration_chart,
    lost_time_chart,
    throughput_chart,
)
from loadeval.report.figure.point_charts import (
    DOT_BUCKETS,
    LINE_BUCKETS,
    OUTLIERS,
    RunTime,
    blocks_of,
    duration_axis,
    epoch_starts_of,
    extremes,
    iterations_chart,
    linear_axis,
    round_ticks,
    steps_chart,
    tick_label,
    waits_chart,
    waits_of_two,
)
from tests.runs.given import MS, randomised
from tests.runs.measured import TickingClock, recorded
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.data.run import Run
    from loadeval.report.figure.point_charts import PointChart


ROWS = ["real", "lost to waiting", "lost to contention", "ideal"]


def throughputs(*runs: Run) -> dict[str, str]:
    return {row.name: row.text for row in throughput_chart(Report.of(runs)).rows}


def breakdown(*runs: Run) -> dict[str, Row]:
    return {row.name: row for row in iteration_chart(Report.of(runs)).rows}


def spans(row: Row) -> list[tuple[str, float, float]]:
    """Colour, start and length in milliseconds of each bar."""
    return [(bar.color, bar.start / MS, bar.length / MS) for bar in row.bars]


def rows_of(chart: PointChart) -> dict[str, list[int]]:
    return {points.name: points.rows.tolist() for points in (*chart.points, *chart.marks)}


def test_throughput_has_its_interval() -> None:
    """Real, ideal and the loader alone, as the comparison has them, whiskers included."""
    run = randomised()
    chart = throughput_chart(Report.of([run]))
    assert [row.label for row in chart.rows] == ["real", "ideal", "loader alone"]
    assert chart.unit == "images"
    for row, rate in zip(chart.rows, Comparison.of(run).rates, strict=True):
        (bar,) = row.bars
        assert rate is not None
        assert None not in {bar.low, bar.high}
        assert (bar.start, bar.length, bar.low, bar.high) == (0, rate.value, rate.low, rate.high)
        assert row.words.startswith(f"{row.text} [")


@pytest.mark.parametrize(
    ("real", "ideal", "unit", "texts"),
    [
        ({}, {}, "images", ["100", "400"]),
        ({"batch": "text"}, {"batch": "text"}, "batches", ["25.0", "100"]),
        ({}, {"unit": "videos"}, "batches", ["25.0", "100"]),
        ({"warmup": 99}, {}, "images", ["not measured", "400"]),
    ],
)
def test_throughput_of_two_runs(
    real: dict[str, Any], ideal: dict[str, Any], unit: str, texts: list[str]
) -> None:
    """In samples, or in batches where these are unknown or other ones; a side may have none."""
    runs = recorded(**real), recorded("replay", **ideal)
    assert list(throughputs(*runs).values()) == texts
    assert throughput_chart(Report.of(runs)).unit == unit


@pytest.mark.parametrize(("mode", "name"), [("log", "real"), ("replay", "ideal")])
def test_throughput_of_one_run(mode: str, name: str) -> None:
    """One bar, of the arm that it served."""
    (row,) = throughput_chart(Report.of([recorded(mode)])).rows
    assert (row.label, row.bars[0].color) == (name, name)


def test_throughput_of_backends() -> None:
    """The fastest first; one that failed says so, and what was not measured has no bar."""
    broken = replace(randomised(name="c"), events=(Event(3, "OSError: gone", "failed backend"),))
    fast = randomised(name="b", iterations_ns=(30 * MS, 25 * MS))
    texts = throughputs(randomised(name="a"), fast, broken, recorded(name="d"))
    assert [name.split(", ")[0] for name in texts] == ["b"] * 3 + ["a"] * 3 + ["d"] * 3 + ["c"]
    assert texts["c"] == "failed"
    assert texts["d, ideal"] == texts["d, loader alone"] == "not measured"


def test_loader_alone_that_was_not_timed() -> None:
    """Its place is kept, and says so."""
    assert throughputs(randomised(prefetches=False))["loader alone"] == "not measured"


def test_lost_time_lies_between_real_and_ideal() -> None:
    """Real is step and waiting; of what it has over ideal, waiting is lost first."""
    rows = breakdown(recorded(step_ns=12 * MS), recorded("replay"))
    assert list(rows) == ROWS
    assert [row.text for row in rows.values()] == ["42.0 ms", "30.0 ms", "2.00 ms", "10.0 ms"]
    assert [spans(row) for row in rows.values()] == [
        [("step", 0, 12), ("waiting", 12, 30)],
        [("waiting", 12, 30)],
        [("contention", 10, 2)],
        [("step", 0, 10), ("waiting", 10, 0)],
    ]


def test_lost_time_has_intervals() -> None:
    """They are as wide as those of the headroom, from where the loss begins."""
    run = randomised()
    lost_time, rows = headroom(run), breakdown(run)
    for name, lost in zip(ROWS[1:3], (lost_time.waiting_ns, lost_time.contention_ns), strict=True):
        (bar,) = rows[name].bars
        assert None not in {lost, bar.low, bar.high}
        assert lost is not None
        assert bar.low == pytest.approx(bar.start + (lost.low or 0))
        assert bar.high == pytest.approx(bar.start + (lost.high or 0))


def with_starts(starts_ns: float) -> dict[str, Row]:
    """The rows where real takes 40 ms, ideal 10 ms, and epoch starts what is given."""
    comparison = Report.of([recorded(), recorded("replay")]).comparison
    assert comparison is not None
    gain = replace(comparison.headroom, epoch_starts_ns=Estimate(starts_ns, None, None))
    gain = replace(gain, gpu_idle_ns=5.0 * MS)
    return {row.name: row for row in lost_time_chart(replace(comparison, headroom=gain)).rows}


def test_real_is_as_high_as_whole_epochs() -> None:
    """Epoch starts are the last part of it, and the first that is lost."""
    rows = with_starts(8.0 * MS)
    assert list(rows)[:4] == [
        "real",
        "lost to epoch starts",
        "lost to waiting",
        "GPU idle while waiting",
    ]
    assert rows["real"].text == "48.0 ms"
    assert spans(rows["real"]) == [("step", 0, 10), ("waiting", 10, 30), ("epoch_starts", 40, 8)]
    assert spans(rows["lost to epoch starts"]) == [("epoch_starts", 40, 8)]


def test_epoch_starts_that_gain_time() -> None:
    """They are no part of the real bar, and lead back from its end."""
    rows = with_starts(-8.0 * MS)
    assert rows["real"].text == "32.0 ms"
    assert spans(rows["real"]) == [("step", 0, 10), ("waiting", 10, 30)]
    assert spans(rows["lost to epoch starts"]) == [("epoch_starts", 40, -8)]


def test_epoch_starts_that_round_to_nothing() -> None:
    """They have no row, and real is the steady iteration."""
    rows = with_starts(0.01 * MS)
    assert "lost to epoch starts" not in rows
    assert rows["real"].text == "40.0 ms"


@pytest.mark.parametrize("alone", [True, False])
def test_gpu_idle_has_a_row_where_its_clock_told(*, alone: bool) -> None:
    """In a comparison, below the waiting and beginning with it."""
    real = recorded()
    idle_ns = np.full(len(real.steps), 5 * MS)
    real = replace(real, steps=replace(real.steps, gpu_idle_ns=idle_ns))
    rows = breakdown(real) if alone else breakdown(real, recorded("replay"))
    expected = ["log"] if alone else ROWS[:2]
    assert list(rows)[: len(expected) + 1] == [*expected, "GPU idle while waiting"]
    assert spans(rows["GPU idle while waiting"]) == [("gpu_idle", 0 if alone else 10, 5)]


@pytest.mark.parametrize(
    ("real", "ideal", "expected"),
    [
        ({}, {"step_ns": 15 * MS}, {"lost to contention": "-5.00 ms"}),
        ({"batch": np.zeros((8, 2))}, {}, {"ideal": "20.0 ms"}),
        ({"warmup": 99}, {}, dict.fromkeys(ROWS[:3], "not measured") | {"ideal": "10.0 ms"}),
    ],
)
def test_iteration_times_of_two_runs(
    real: dict[str, Any], ideal: dict[str, Any], expected: dict[str, str]
) -> None:
    """A gain is under zero; ideal has the samples of real; a side may be missing."""
    rows = breakdown(recorded(**real), recorded("replay", **ideal))
    assert expected.items() <= {name: row.text for name, row in rows.items()}.items()


def test_iteration_time_of_backends() -> None:
    """Contention is split from the step where the run alternated."""
    slow = randomised(name="a", iterations_ns=(40 * MS, 20 * MS))
    rows = breakdown(slow, recorded(name="b"), recorded(name="c", warmup=99))
    assert [bar.color for bar in rows["a"].bars] == ["step", "contention", "waiting"]
    assert [bar.color for bar in rows["b"].bars] == ["step", "waiting"]
    assert rows["a"].bars[-1].end == pytest.approx(sum(bar.length for bar in rows["a"].bars))
    assert rows["c"].text == "not measured"


def test_a_wide_interval_does_not_squeeze_the_bars() -> None:
    """It is cut off at one and a half of the longest bar."""
    wide = Row("a", "", (Bar("real", 0, 2, "", 1, 99),))
    chart = BarChart((wide, Row("b", "", (Bar("real", 0, 1, "", 0.5, 2.5),)), Row("c", "none")))
    assert [chart.end(row) for row in chart.rows] == [3, 2.5, 0]


def test_waits_are_grouped() -> None:
    """Epoch starts, what counts, the rest; lines have a gap between epochs."""
    waits_ns = [70 * MS, *[30 * MS] * 15]
    chart = waits_chart(recorded(waits_ns=waits_ns, epochs=2, warmup=3))
    rows = list(range(3, 16)) + list(range(19, 32))
    assert rows_of(chart) == {"epoch start": [0, 16], "real": rows, "not counted": [1, 2, 17, 18]}
    (line,) = (points for points in chart.points if points.joined)
    assert line.breaks == (13,)
    assert chart.epochs.tolist() == [16]


def test_steps_have_no_epoch_start() -> None:
    """The step after one does not count, as others do not."""
    assert rows_of(steps_chart(recorded(waits_ns=[MS] * 4, warmup=2))) == {
        "real": [2, 3],
        "not counted": [0, 1],
    }


def test_outliers_are_iterations_over_twice_the_median_of_their_arm() -> None:
    """All figures mark the same ones: of batches that count, by wait and step together."""
    run = randomised(noise=0, epoch=1000)
    counted = np.flatnonzero(run.steps.pair != UNKNOWN)
    real = counted[run.steps.arm[counted] == 0][[3, 40]]
    ideal = counted[run.steps.arm[counted] == 1][7]
    step_ns = run.steps.step_ns.copy()
    step_ns[[*real, ideal]] += 41 * MS
    run = replace(run, steps=replace(run.steps, step_ns=step_ns))
    assert rows_of(waits_chart(run))[OUTLIERS] == real.tolist()
    chart = iterations_chart(run)
    assert rows_of(chart)[f"real, {OUTLIERS}"] == real.tolist()
    assert rows_of(chart)[f"ideal, {OUTLIERS}"] == [ideal]
    assert [points.count for points in chart.points] == [94, 95]
    assert chart.medians == (("real", 40 * MS), ("ideal", 25 * MS))


def test_few_iterations_have_no_outliers() -> None:
    """Their median is not trusted."""
    chart = iterations_chart(recorded(waits_ns=[MS, MS, 90 * MS, MS]))
    assert chart.marks == ()
    assert iterations_chart(recorded(warmup=99)).points == ()


def test_blocks_are_cut_where_an_epoch_begins() -> None:
    """Each has its mean iteration."""
    run = randomised(noise=0, epoch=1000)
    blocks = blocks_of(run)
    assert sorted(blocks.arm.tolist()) == [0] * 12 + [1] * 12
    assert blocks.mean_ns.tolist() == [(40 * MS, 25 * MS)[arm] for arm in blocks.arm]
    assert (blocks.last - blocks.first + 1).tolist() == [8] * 24
    assert len(blocks_of(randomised(epoch=60))) > 24
    assert len(blocks_of(randomised(pairs=0))) == 0


def test_a_pair_that_was_not_finished_is_not_drawn() -> None:
    """The figures show what the numbers are made of."""
    run = randomised(noise=0, epoch=1000)
    pair = np.where(run.steps.pair == 11, np.where(run.steps.arm == 0, 11, -1), run.steps.pair)
    cut = replace(run, steps=replace(run.steps, pair=pair))
    assert len(blocks_of(Comparison.of(cut).counted)) == 22


def test_waits_of_two_runs_share_an_axis() -> None:
    """Only what counts of the ideal one is drawn."""
    real, ideal = waits_of_two(recorded(epochs=2), recorded("replay", clock=TickingClock(1000)))
    assert real.axis == ideal.axis
    assert list(rows_of(ideal)) == ["ideal"]


@pytest.mark.parametrize("ready", [None, 3])
def test_epoch_starts_are_those_of_the_analysis(ready: int | None) -> None:
    """They have the epochs that they are of."""
    run = randomised()
    loader = replace(run.header.loader, ready_batches=ready)
    run = replace(run, header=replace(run.header, loader=loader))
    epochs, waits = epoch_starts_of(run)
    assert waits.tolist() == epoch_start_waits(run).tolist()
    assert len(epochs) == len(waits)
    assert epochs[0] == (1 if ready else 0)


def test_time_axis() -> None:
    """Seconds, to the end of the last step; numbers where another tool did not tell the times."""
    run = recorded(waits_ns=[30 * MS] * 5)
    time = RunTime.of(run)
    assert time.timed
    assert (time.x[1], time.end[-1]) == (pytest.approx(0.04), pytest.approx(0.2))
    assert time.range[1] > 0.2
    steps = replace(run.steps, request_ns=np.full(5, UNKNOWN))
    untimed = RunTime.of(replace(run, steps=steps))
    assert (untimed.timed, untimed.x.tolist()) == (False, [0, 1, 2, 3, 4])
    assert RunTime.of(recorded(epochs=0)).range == (0, 1)


@pytest.mark.parametrize(
    ("values", "log", "labels"),
    [
        ([5 * MS, 30 * MS], False, ["0", "10 ms", "20 ms", "30 ms"]),
        ([0] * 5, False, ["0"]),
        ([0, 300, 5 * MS], True, ["0", "100 ns", "10 us", "1 ms"]),
        ([20, 20, 900], True, ["10 ns", "100 ns", "1 us"]),
        ([10, 10, 10, 10, 210], True, ["10 ns", "100 ns"]),
        ([0, 100, 0, 1900], True, ["0", "100 ns", "200 ns", "500 ns", "1 us", "2 us"]),
        ([1, 1, 10**14], True, ["1 ns", "1 us", "1 ms", "1 s", "1,000 s"]),
    ],
)
def test_axis_of_durations(values: list[int], log: bool, labels: list[str]) -> None:
    """Logarithmic where values differ greatly, with few labels; nothing has its place there too."""
    axis = duration_axis([np.array(values * 15)], "wait")
    assert axis.log == log
    assert [label for _, label in axis.ticks] == labels
    places = axis.places(np.array(values)).tolist()
    assert axis.low <= min(places) <= max(places) <= axis.high
    assert not log or axis.low > 0
    assert min(values) > 0 or min(places) == axis.ticks[0][0]


def test_an_axis_of_what_is_always_0_has_no_other_tick() -> None:
    assert linear_axis(0.0, "disk reads", str).ticks == ((0.0, "0.0"),)


def test_labels_of_ticks() -> None:
    """They have no digits that say nothing."""
    labels = [tick_label(ns) for ns in (0, 0.5, 1, 2e3, 2.5e5, 1e6, 5e8, 1e9, 2e12)]
    assert labels == ["0", "0.5 ns", "1 ns", "2 us", "250 us", "1 ms", "500 ms", "1 s", "2,000 s"]


@pytest.mark.parametrize("top", [0.07, 1, 1.9, 4.05, 7.9, 100, 2.3e9])
def test_an_axis_has_at_least_three_ticks(top: float) -> None:
    """So it has whatever its highest value is, and no more than six."""
    ticks = round_ticks(top)
    assert 3 <= len(ticks) <= 6
    assert ticks[-1] <= 1.001 * top


def test_a_long_run_is_thinned() -> None:
    """However many batches; a single slow one is still there, and all are counted."""
    waits = [MS + place % 13 for place in range(20_000)]
    waits[12_345] = 77 * MS
    chart = waits_chart(recorded(waits_ns=waits))
    (line,) = (points for points in chart.points if points.name == "real")
    assert (len(line.rows), line.count) == (2 * LINE_BUCKETS, 19_999)
    assert 12_345 in line.rows
    many = waits_chart(recorded(waits_ns=[MS, MS, MS, 200 * MS, 300 * MS] * 2000))
    (mark,) = many.marks
    assert (len(mark.rows), mark.count) == (2 * DOT_BUCKETS, 4000)
    assert set(many.values[mark.rows].tolist()) == {200 * MS, 300 * MS}


def test_thinning_keeps_every_extreme() -> None:
    """The places of the least and of the greatest of each bucket, in order; few are all kept."""
    assert extremes(np.array([5, 1, 9, 5, 5, 5, 7, 0, 3, 3]), 2).tolist() == [1, 2, 6, 7]
    assert extremes(np.arange(20), 10).tolist() == list(range(20))
    values = np.random.default_rng(0).integers(100, 200, 123_457)
    spikes = [0, 1, 61_728, 99_999, 123_456]
    values[spikes] = 10_000 + np.arange(5)
    kept = extremes(values, 50)
    assert len(kept) <= 100
    assert (np.diff(kept) > 0).all()
    assert {61_728, 99_999, 123_456} <= set(kept.tolist())
    assert values[kept].min() == values.min()
