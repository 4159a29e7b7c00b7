"""Where a loader's time goes: of loaders that are modelled, and of rows whose values are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadeval.analysis.inside.stages import (
    MOST_SAMPLES,
    Basis,
    StageReport,
    stages_of,
)
from loadeval.analysis.inside.timeline import LoaderTimeline, Stage
from loadeval.analysis.inside.transforms import TransformSizes, TransformTime
from loadeval.data.lines import CodeSamples, Prefetch
from tests.runs.given import MS
from tests.runs.loader_model import LoaderModel, constant, of_each, run_of
from tests.runs.tables import Rows, replace

if TYPE_CHECKING:
    from loadeval.data.run import Run

SCALES = st.sampled_from([0, 10_000, MS, 20 * MS])


@st.composite
def models(draw: st.DrawFn, least_workers: int = 1) -> LoaderModel:
    """Loaders of any setting; in each what takes long differs."""
    count = draw(st.integers(2, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def column(scale: int) -> list[int]:
        spread = draw(st.sampled_from([0.1, 1.0, 4.0]))
        return of_each(scale * rng.gamma(1 / spread, spread, count))

    return LoaderModel(
        workers=draw(st.integers(least_workers, 5)),
        prefetch_factor=draw(st.integers(1, 3)),
        index_ns=column(draw(SCALES)),
        fetch_ns=column(draw(SCALES) + 1000),
        collate_ns=column(draw(SCALES)),
        pickle_ns=column(draw(SCALES)),
        receive_ns=column(draw(SCALES)),
        pin_ns=column(draw(SCALES)),
        step_ns=draw(SCALES),
        in_order=draw(st.booleans()),
        pins=draw(st.booleans()),
    )


def report_of(run: Run) -> StageReport:
    stage_report = stages_of(run)
    assert stage_report is not None
    return stage_report


def looked_into(model: LoaderModel, **more: Any) -> StageReport:
    return report_of(run_of(model.times(), workers=model.workers, depth=model.depth, **more))


def charged(report: StageReport) -> dict[Stage, float]:
    return {stage.stage: stage.charged_ns for stage in report.stages if stage.charged_ns}


def back_to_back(times: Rows, first: int, batches: int, timed: int, **more: Any) -> Prefetch:
    """A prefetch: some of the batches were taken back to back."""
    began_ns = int(times.requested_ns[times.batch >= first][0])
    return Prefetch(0, times.epoch, batches, timed, 0, None, **{"began_ns": began_ns, **more})


@given(models(least_workers=0))
def test_all_that_is_waited_for_is_charged_once(model: LoaderModel) -> None:
    """To the stage that the batch that is waited for is in, or its worker for one before it."""
    times, report = model.times(), looked_into(model)
    waits_ns = (times.delivered_ns - times.requested_ns)[1:]
    assert report.basis is Basis.WAITS
    assert report.batches == len(waits_ns)
    assert report.total_ns == pytest.approx(waits_ns.mean())
    assert min(stage.charged_ns for stage in report.stages) >= 0
    total_ns = sum(stage.charged_ns for stage in report.stages) + report.not_attributed_ns
    assert total_ns == pytest.approx(report.total_ns)
    assert report.not_attributed_ns == pytest.approx(0, abs=0.001 * report.total_ns + 2)


@given(models(least_workers=0), st.integers(0, 5000))
def test_of_a_loader_alone_all_time_is_charged_once(model: LoaderModel, between_ns: int) -> None:
    """What lies between two batches that are taken back to back too, where workers go on in it."""
    model = replace(model, step_ns=between_ns)
    times = model.times()
    prefetch = back_to_back(times, 0, len(times), len(times) - 1)
    report = looked_into(model, prefetches=(prefetch,))
    taken_ns = np.diff(times.delivered_ns)
    if not model.workers:
        taken_ns -= between_ns
    assert report.basis is Basis.LOADER_ALONE
    assert report.total_ns == pytest.approx(taken_ns.mean())
    assert min(stage.charged_ns for stage in report.stages) >= 0
    left_ns = report.not_attributed_ns
    # What training does between two batches is the loader's only where it goes on meanwhile.
    assert -1e-6 * report.total_ns - 1 <= left_ns <= 0.001 * report.total_ns + between_ns + 2


@given(models())
def test_how_long_finished_batches_wait(model: LoaderModel) -> None:
    """The model tells it for each batch."""
    waits_ns = LoaderTimeline(0, run_of(model.times()).stages, model.depth).head_of_line_ns()
    assert waits_ns.tolist() == model.head_of_line_ns
    report = looked_into(model)
    if model.workers == 1:
        assert report.head_of_line_ns is None
    else:
        assert report.head_of_line_ns == pytest.approx(np.mean(model.head_of_line_ns))


@pytest.mark.parametrize(
    ("workers", "taken", "stages"),
    [
        # Two workers take 10 ms a batch each, so training waits 5: for fetching, or collating.
        (2, {"fetch_ns": 10 * MS}, {Stage.FETCH: 5}),
        (2, {"fetch_ns": 4 * MS, "collate_ns": 6 * MS}, {Stage.FETCH: 2, Stage.COLLATE: 3}),
        (1, {"fetch_ns": 10 * MS, "pickle_ns": 2 * MS}, {Stage.FETCH: 8, Stage.PICKLE: 2}),
        (1, {"fetch_ns": 2 * MS, "pickle_ns": 10 * MS}, {Stage.PICKLE: 10}),
        (4, {"fetch_ns": 10 * MS, "receive_ns": 9 * MS}, {Stage.RECEIVE: 9}),
        (4, {"fetch_ns": 10 * MS, "index_ns": 9 * MS}, {Stage.INDICES: 9}),
        (0, {"fetch_ns": 4 * MS, "index_ns": MS}, {Stage.INDICES: 1, Stage.FETCH: 4}),
    ],
)
def test_what_is_charged(workers: int, taken: dict[str, int], stages: dict[Stage, int]) -> None:
    """The stage that makes training wait, where each batch takes the same, and steps nothing."""
    model = LoaderModel(workers=workers, prefetch_factor=2, step_ns=0, **constant(80, **taken))
    times = model.times()
    report = looked_into(model, prefetches=(back_to_back(times, 0, 80, 40),))
    assert report.batches == 40
    expected = {stage: pytest.approx(ms * MS) for stage, ms in stages.items()}
    assert charged(report) == expected


def test_a_thread_that_pins() -> None:
    """It receives and pins one batch after the other."""
    taken = constant(80, fetch_ns=10 * MS, receive_ns=2 * MS, pin_ns=6 * MS)
    model = LoaderModel(workers=4, prefetch_factor=2, step_ns=0, pins=True, **taken)
    report = looked_into(model, prefetches=(back_to_back(model.times(), 0, 80, 40),))
    expected = {Stage.RECEIVE: pytest.approx(2 * MS), Stage.PIN: pytest.approx(6 * MS)}
    assert charged(report) == expected


def test_what_stages_take() -> None:
    """The work of a batch, whoever waits for it, without the first of an epoch."""
    taken = {"index_ns": 1, "fetch_ns": 2, "collate_ns": 3, "pickle_ns": 4, "receive_ns": 5}
    model = LoaderModel(workers=2, prefetch_factor=2, step_ns=MS, **constant(9, **taken))
    model.fetch_ns = [900, *[2] * 8]
    report = looked_into(model)
    assert {stage.stage.value: stage.work_ns for stage in report.stages} == {
        "indices": 1,
        "fetch": 2,
        "collate": 3,
        "pickle": 4,
        "receive": 5,
    }
    assert report.work_ns == 15
    assert (report.fetch_ns, report.collate_ns, report.pickled_bytes) == (2, 3, 1000)
    fetch, pin = report.share_of(Stage.FETCH), report.share_of(Stage.PIN)
    assert (fetch and fetch.work_ns, pin) == (2, None)


def test_how_long_batches_lie_in_the_queue() -> None:
    """They lie there from when they are pickled until reading them begins."""
    times = Rows(
        worker=[0, 0],
        requested_ns=[0, 100],
        delivered_ns=[40, 120],
        fetch_start_ns=[0, 10],
        fetch_ns=[10, 10],
        pickle_start_ns=[11, 20],
        pickle_ns=[9, 10],
        received_ns=[35, 110],
        receive_ns=[15, 10],
    )
    assert report_of(run_of(times)).queue_ns == (0 + 70) / 2
    untold = replace(times, received_ns=np.array([-1, -1]))
    assert report_of(run_of(untold)).queue_ns is None


def plain(count: int, **columns: Any) -> Rows:
    """Batches of a worker that takes 10 ms for each, and is waited for."""
    start = np.arange(count) * 10 * MS
    given: dict[str, Any] = {
        "worker": np.zeros(count),
        "samples": np.full(count, 10),
        "requested_ns": start,
        "delivered_ns": start + 10 * MS,
        "fetch_start_ns": start,
        "fetch_ns": np.full(count, 8 * MS),
        "collate_ns": np.full(count, 2 * MS),
    }
    return Rows(**{**given, **columns})


def test_shares_of_cpu_and_blocked() -> None:
    """They are over the batches of which they are known; fetch and collate are split alike."""
    columns = {
        "cpu_ns": [5 * MS, 5 * MS, -1, 7 * MS],
        "run_queue_ns": [MS, MS, -1, MS],
        "other_cpu_ns": [MS, MS, -1, 3 * MS],
    }
    report = report_of(run_of(plain(4, **columns), workers=1))
    assert (report.cpu_ns, report.run_queue_ns, report.other_cpu_ns) == (6 * MS, MS, 2 * MS)
    assert report.blocked_ns == pytest.approx(3 * MS)
    fetch, collate = (report.share_of(stage) for stage in (Stage.FETCH, Stage.COLLATE))
    assert fetch is not None
    assert collate is not None
    parts = [fetch.cpu_ns, fetch.run_queue_ns, fetch.blocked_ns]
    assert parts == pytest.approx([4.8 * MS, 0.8 * MS, 2.4 * MS])
    assert collate.cpu_ns == pytest.approx(1.2 * MS)


def test_shares_that_are_known_of_little() -> None:
    """Where they are known of under half of the time, they count as not known."""
    columns = {"cpu_ns": [5 * MS, *[-1] * 3, 5 * MS], "run_queue_ns": [0] * 5}
    assert report_of(run_of(plain(5, **columns), workers=1)).cpu_ns is None


def test_more_cpu_time_than_time() -> None:
    """The kernel counts in ticks: no share is under 0, nor over 1."""
    columns = {"cpu_ns": [12 * MS] * 4, "run_queue_ns": [MS] * 4}
    report = report_of(run_of(plain(4, **columns), workers=1))
    assert (report.cpu_ns, report.run_queue_ns, report.blocked_ns) == (10 * MS, 0, 0)


def test_figures_of_the_kernel_that_are_not_known() -> None:
    """They are None, and not 0."""
    report = report_of(run_of(plain(4), workers=1))
    figures = (report.cpu_ns, report.blocked_ns, report.read_bytes, report.major_faults)
    assert figures == (None, None, None, None)
    fetch = report.share_of(Stage.FETCH)
    assert fetch is not None
    assert fetch.cpu_ns is None


def test_transforms() -> None:
    """Calls and time in a batch of those batches of which they are known, the longest first."""
    nan = np.nan
    times = plain(
        4,
        transform_ns={"Crop": [9e9, MS, 3 * MS, nan], "Blur": [9e9, 6 * MS, 6 * MS, 6 * MS]},
        transform_calls={"Crop": [10, 10, 20, nan], "Blur": [10, 10, 10, 10]},
    )
    other = replace(
        plain(2, transform_ns={"Not": [0, 0]}, transform_calls={"Not": [0, 0]}), epoch=1
    )
    report = report_of(run_of(times, other, workers=1))
    rows = [
        (transform.name, transform.calls, transform.ns, transform.share)
        for transform in report.transforms
    ]
    assert rows == [("Blur", 10, 6 * MS, 0.6), ("Crop", 15, 2 * MS, 0.2)]


def test_what_only_calls_transforms() -> None:
    """Its own code is a transform like others where it takes 5% of fetching or more."""
    names = ("Compose.__call__", "Compose.__call__ (2)", "Mix.forward", "Crop")
    ns = dict.fromkeys(names, np.full(4, 0.04 * 10 * MS)) | {"Mix.forward": np.full(4, MS)}
    calls = dict.fromkeys(names, np.ones(4))
    report = report_of(run_of(plain(4, transform_ns=ns, transform_calls=calls), workers=1))
    assert [one.name for one in report.transforms] == ["Mix.forward", "Crop"]
    assert report.callers == ("Compose.__call__",)


def test_the_sizes_of_samples() -> None:
    """Means of what workers told in any epoch, in order; not of what calls other transforms."""
    caller = {"Compose.__call__": [60, np.nan, np.nan]}
    first = plain(
        3,
        elements_before={**caller, "Blur": [60, np.nan, 20], "Crop": [60, np.nan, np.nan]},
        elements_after={**caller, "Blur": [60, np.nan, 20], "Crop": [6, np.nan, np.nan]},
    )
    second = replace(
        plain(2, elements_before={"Last": [3, np.nan]}, elements_after={"Last": [2, np.nan]}),
        epoch=1,
    )
    report = report_of(run_of(first, second, workers=1))
    assert report.sizes == (
        TransformSizes("Blur", 40, 40),
        TransformSizes("Crop", 60, 6),
        TransformSizes("Last", 3, 2),
    )


def test_a_transform_of_which_nothing_is_known() -> None:
    """It is left out."""
    unknown = {"Crop": [np.nan] * 4}
    run = run_of(plain(4, transform_ns=unknown, transform_calls=unknown), workers=1)
    assert report_of(run).transforms == ()


def test_batches_that_take_no_time() -> None:
    """Nothing is divided by it."""
    nothing = np.zeros(4)
    times = Rows(
        worker=nothing,
        requested_ns=nothing,
        delivered_ns=nothing,
        fetch_start_ns=nothing,
        fetch_ns=nothing,
        samples=nothing,
        cpu_ns=nothing,
        run_queue_ns=nothing,
        transform_ns={"Crop": nothing},
        transform_calls={"Crop": nothing + 1},
    )
    report = report_of(run_of(times, workers=1))
    assert (report.total_ns, report.work_ns, report.cpu_ns, report.sample_ns) == (0, 0, None, None)
    assert [transform.share for transform in report.transforms] == [0.0]
    assert report.slow_samples == ()


def test_where_the_code_was() -> None:
    """Each function has its commonest line, what it called, and what it was blocked in."""
    code = (
        CodeSamples(0, {"a.py:3 load > Image.open": 30, "a.py:9 __getitem__": 10}, {}),
        CodeSamples(
            1, {"a.py:4 load": 10}, {"a.py:3 load > io_schedule": 40, "a.py:5 load > futex": 10}
        ),
    )
    load, item = report_of(run_of(plain(4), workers=1, code=code)).code
    assert (load.place, load.leaf, load.name) == (
        "a.py:3 load",
        "Image.open",
        "a.py:3 load > Image.open",
    )
    assert load.function == "load"
    assert (load.share, load.blocked_share, load.blocked_in) == (0.9, 0.5, "io_schedule")
    assert (item.name, item.share, item.blocked_share, item.blocked_in) == (
        "a.py:9 __getitem__",
        0.1,
        0,
        "",
    )


def test_code_that_was_never_seen() -> None:
    """Counts of 0 are not divided by."""
    code = (CodeSamples(0, {"a.py:3 load": 0}, {}),)
    (line,) = report_of(run_of(plain(4), workers=1, code=code)).code
    assert line.share == 0


def test_slow_samples() -> None:
    """They take over three times the typical one, which is told without them; slowest first."""
    slowest_ns = np.full(40, int(0.9 * MS))
    fetch_ns, index = np.full(40, 8 * MS), np.arange(40)
    for row, ns, at in ((5, 30 * MS, 77), (9, 50 * MS, 78), (20, 40 * MS, 77), (30, 60 * MS, -1)):
        slowest_ns[row], index[row], fetch_ns[row] = ns, at, ns + 7 * MS
    columns = {"slowest_ns": slowest_ns, "slowest_index": index, "fetch_ns": fetch_ns}
    report = report_of(run_of(plain(40, **columns), workers=1))
    typical_ns = (8 - 0.9) / 9 * MS
    assert report.sample_ns == pytest.approx(typical_ns)
    assert [(sample.index, sample.times, sample.longest_ns) for sample in report.slow_samples] == [
        (78, 1, 50 * MS),
        (77, 2, 40 * MS),
    ]
    assert report.slow_samples[0].times_typical == pytest.approx(50 * MS / typical_ns)


def test_so_many_slow_samples_are_told() -> None:
    """The slowest."""
    columns = {
        "slowest_ns": np.arange(40) * MS,
        "slowest_index": np.arange(40),
        "fetch_ns": np.arange(40) * MS + MS,
    }
    report = report_of(run_of(plain(40, **columns), workers=1))
    assert [sample.index for sample in report.slow_samples] == list(
        range(39, 39 - MOST_SAMPLES, -1)
    )


@pytest.mark.parametrize(
    ("samples", "slowest_ms", "expected_ms"), [(10, -1, 0.8), (10, 3.5, 0.5), (1, 8, 8)]
)
def test_the_typical_sample(samples: int, slowest_ms: float, expected_ms: float) -> None:
    """It takes 8 ms: without the slowest where that is known, and there are others."""
    slowest_ns = -1 if slowest_ms < 0 else int(slowest_ms * MS)
    columns = {"samples": [samples] * 4, "slowest_ns": [slowest_ns] * 4}
    report = report_of(run_of(plain(4, **columns), workers=1))
    assert report.sample_ns == pytest.approx(expected_ms * MS)


def test_workers() -> None:
    """What each did, without the first batch of the epoch; no sample where that is not known."""
    columns = {
        "worker": [0, 1, 0, 1, 0],
        "samples": [4, 4, 4, -1, 4],
        "fetch_ns": [90 * MS, 8 * MS, 1 * MS, 6 * MS, 3 * MS],
    }
    first, other = report_of(run_of(plain(5, **columns))).workers
    assert (first.worker, first.batches, first.batch_ns, first.samples) == (0, 2, 4 * MS, 8)
    assert (other.worker, other.batches, other.batch_ns, other.typical_ns, other.samples) == (
        *(1, 2, 9 * MS, 9 * MS, 4),
    )


def test_without_workers_there_are_none() -> None:
    """The training process made the batches."""
    report = report_of(run_of(plain(4, worker=[-1] * 4), workers=0))
    assert (report.workers, report.head_of_line_ns, report.queue_ns) == ((), None, None)


@pytest.mark.parametrize(
    "columns", [{"requested_ns": [-1]}, {"delivered_ns": [-1]}, {"fetch_start_ns": [-1]}]
)
def test_batches_of_which_too_little_is_known(columns: dict[str, Any]) -> None:
    """Without a moment in the training process and one in the worker nothing is told."""
    assert stages_of(run_of(plain(1, **columns))) is None
    assert stages_of(run_of()) is None


def test_one_batch() -> None:
    """Its request is an epoch's start, so there is nothing to charge; its work is told."""
    report = report_of(run_of(plain(1)))
    assert (report.batches, report.total_ns, report.not_attributed_ns) == (0, 0, 0)
    assert report.fetch_ns == 8 * MS
    assert charged(report) == {}


def test_epochs_count_together() -> None:
    """Each without its first batches."""
    first = plain(11, fetch_ns=[8 * MS] * 11)
    other = replace(plain(6), epoch=1, delivered_ns=plain(6).requested_ns + 13 * MS)
    report = report_of(run_of(first, other, workers=1, warmup=3))
    assert report.batches == 8 + 3
    assert report.total_ns == pytest.approx((8 * 10 + 3 * 13) / 11 * MS)


def test_a_row_that_is_missing() -> None:
    """What was waited for it is in no other batch's time, and those after it are still found."""
    model = LoaderModel(workers=2, prefetch_factor=2, step_ns=0, **constant(60, fetch_ns=10 * MS))
    times = model.times()
    prefetch = back_to_back(times, 0, 60, 40)
    part = times.part(~np.isin(times.batch, [30, 31]))
    report = report_of(run_of(part, depth=4, prefetches=(prefetch,)))
    assert report.batches == 38
    assert report.total_ns <= 5 * MS
    timeline = LoaderTimeline(0, run_of(part).stages, 4)
    run = run_of(part, prefetches=(back_to_back(times, 11, 30, 5),))
    assert part.batch[timeline.prefetched(run)].tolist() == [36, 37, 38, 39, 40]


@pytest.mark.parametrize(
    "told", [{"epoch": 1}, {"began_ns": None}, {"timed": 0}, {"began_ns": 10**15}]
)
def test_batches_that_were_not_taken_back_to_back(told: dict[str, Any]) -> None:
    """If of another epoch, in a log that does not tell when, or not timed, waits are told."""
    times = plain(40)
    prefetch = replace(back_to_back(times, 10, 20, 10), **told)
    report = report_of(run_of(times, workers=1, prefetches=(prefetch,)))
    assert (report.basis, report.batches) == (Basis.WAITS, 39)


def test_an_alternating_run_tells_of_the_loader_alone() -> None:
    """It tells this of epochs where it was alone; in others nothing is charged."""
    first, other = plain(40), replace(plain(40), epoch=1)
    run = run_of(first, other, workers=1, prefetches=(back_to_back(first, 10, 20, 15),))
    report = report_of(run)
    assert (report.basis, report.batches) == (Basis.LOADER_ALONE, 15)
    assert charged(report) == {Stage.FETCH: 8 * MS, Stage.COLLATE: 2 * MS}


def test_moments_in_disorder_are_charged_once() -> None:
    """A batch that was received before it is said to be pickled, say, by clocks that differ."""
    times = Rows(
        worker=[0, 0],
        requested_ns=[0, 100],
        delivered_ns=[50, 200],
        fetch_start_ns=[0, 100],
        fetch_ns=[10, 60],
        collate_ns=[0, 10],
        pickle_start_ns=[5, 150],
        pickle_ns=[1, 30],
        received_ns=[40, 120],
        index_ns=[0, 500],
    )
    report = report_of(run_of(times, workers=1))
    assert charged(report) == {
        Stage.FETCH: 60,
        Stage.COLLATE: 10,
        Stage.PICKLE: 10,
        Stage.INDICES: 20,
    }
    assert report.not_attributed_ns == 0


def test_a_thread_that_waits_before_it_pickles() -> None:
    """It waits for Python's lock, with which its worker fetches the next batch."""
    times = Rows(
        worker=[0, 0],
        requested_ns=[0, 100],
        delivered_ns=[50, 200],
        fetch_start_ns=[0, 100],
        fetch_ns=[10, 40],
        collate_ns=[0, 20],
        pickle_start_ns=[15, 170],
        pickle_ns=[1, 30],
    )
    report = report_of(run_of(times, workers=1))
    assert charged(report) == {Stage.FETCH: 40 + 10, Stage.COLLATE: 20, Stage.PICKLE: 30}


def test_shares_of_what_is_charged() -> None:
    """Shares are of the loader's time: a stage, a transform, a line of code."""
    nan = np.nan
    transforms = {"Blur": [nan, 4 * MS, 4 * MS, 4 * MS], "Crop": [nan, 9e9, 9e9, 9e9]}
    calls = {"Blur": [1] * 4, "Crop": [1] * 4}
    times = plain(
        4,
        delivered_ns=plain(4).requested_ns + 16 * MS,
        transform_ns=transforms,
        transform_calls=calls,
    )
    report = report_of(run_of(times, workers=1))
    assert report.charged_share(Stage.FETCH, Stage.COLLATE) == pytest.approx(10 / 16)
    assert report.charged_share(Stage.PIN) == 0
    assert report.code_share(0.5) == pytest.approx(5 / 16)
    crop, blur = report.transforms
    assert report.transform_share(blur) == pytest.approx(4 / 16)
    assert report.transform_share(crop) == pytest.approx(8 / 16)  # no more than fetching
    assert report.share(None) is None


def test_shares_of_nothing() -> None:
    """They are not known."""
    report = report_of(run_of(plain(1)))
    assert report.charged_share(Stage.FETCH) is None
    assert report.code_share(0.5) is None
    assert report.transform_share(TransformTime("Crop", 1, 1, 1)) is None


def test_fetching_that_takes_no_time() -> None:
    """Nothing is divided by it, though its thread waits before it pickles."""
    times = plain(3, fetch_ns=[0] * 3, pickle_start_ns=plain(3).requested_ns + 5 * MS)
    report = report_of(run_of(times, workers=1))
    assert report.transform_share(TransformTime("Crop", 1, 0, 0)) == 0


@pytest.mark.parametrize(("fetch_ms", "differ"), [([9, 9, 9, 9], False), ([9, 9, 9, 12], True)])
def test_workers_that_differ(fetch_ms: list[int], differ: bool) -> None:
    """They differ by over a fifth."""
    columns = {"worker": [0, 0, 0, 1], "fetch_ns": np.array(fetch_ms) * MS}
    assert report_of(run_of(plain(4, **columns))).workers_differ == differ
    assert not report_of(run_of(plain(4), workers=1)).workers_differ


def test_many_batches() -> None:
    """100,000 of them, of 64 workers: no step is done for each by itself."""
    count = 100_000
    rng = np.random.default_rng(0)
    start = np.arange(count) * MS
    times = Rows(
        worker=np.arange(count) % 64,
        samples=np.full(count, 32),
        requested_ns=start,
        delivered_ns=start + MS // 2,
        fetch_start_ns=start - 60 * MS,
        fetch_ns=rng.integers(20 * MS, 60 * MS, count),
        collate_ns=np.full(count, MS),
        cpu_ns=np.full(count, MS),
        run_queue_ns=np.full(count, MS),
        slowest_ns=rng.integers(1, MS, count),
        slowest_index=np.arange(count),
        transform_ns={f"T{n}": np.ones(count) for n in range(8)},
        transform_calls={f"T{n}": np.ones(count) for n in range(8)},
    )
    report = report_of(run_of(times, workers=64, depth=128))
    assert (report.batches, len(report.workers), len(report.slow_samples)) == (99_999, 64, 0)
