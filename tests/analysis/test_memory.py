"""Whether memory grows, on readings whose every value is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.memory import (
    MOST_POINTS,
    Growth,
    GrowthAdvice,
    GrowthReason,
    growth_of,
)
from loadeval.analysis.remark import Remark
from loadeval.runlog.model import Header, LoaderInfo, Readings, Run, Steps
from tests.analysis.numbers import bounds, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Values = npt.NDArray[np.float64]

GB = 1e9
LIMIT = 100e9
EVERY_NS = 5_000_000_000
HOUR = 720
"""Readings in an hour."""


def readings(subject: str, **values: Sequence[float] | Values) -> Readings:
    columns = {name: np.array(column, dtype=np.float64) for name, column in values.items()}
    count = len(next(iter(columns.values())))
    return Readings("host", subject, np.arange(count, dtype=np.int64) * EVERY_NS, columns)


def run_of(*found: Readings, limit: float | None = LIMIT, **loader: Any) -> Run:
    machine = [] if limit is None else [readings("machine", memory_limit_bytes=[np.nan, limit])]
    header = Header("id", "a run", "log", "", "images", 0, LoaderInfo("loader", **loader))
    return Run(header, Steps.from_blocks([], []), readings=(*found, *machine))


def workers(pss: Sequence[float] | Values, **values: Sequence[float] | Values) -> Growth:
    return growth_of(run_of(readings("workers", pss_bytes=pss, **values)), "workers")


def line(count: int, bytes_per_hour: float, start: float = 8 * GB) -> Values:
    return start + bytes_per_hour * np.arange(count) / HOUR


def noise(count: int, spread: float, seed: int = 0) -> Values:
    return np.random.default_rng(seed).normal(0, spread, count)


def test_growth_under_noise() -> None:
    """The slope is found, and its interval lies above zero."""
    found = workers(line(120, 6 * GB) + noise(120, 0.02 * GB))
    assert found.grows
    assert found.quantity == "pss_bytes"
    assert found.limit_bytes == LIMIT
    low, high = bounds(found.bytes_per_hour)
    assert 0 < low < 6 * GB < high
    assert found.reason.values["share"] == pytest.approx(0.06, rel=0.1)
    assert found.advice is GrowthAdvice.AVOID_COPY_ON_WRITE


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_growth(seed: int) -> None:
    """However large it is."""
    found = workers(8 * GB + noise(60, GB, seed))
    assert not found.grows
    assert found.advice is None


def test_growth_that_does_not_matter() -> None:
    """Under a hundredth of the memory in an hour, and told all the same."""
    found = workers(line(120, 0.5 * GB))
    assert not found.grows
    assert found.reason.code is GrowthReason.LITTLE


@pytest.mark.parametrize("at", [6, 30, 60, 90, 114])
def test_a_step_is_no_growth(at: int) -> None:
    """At whatever time memory steps up, it is flat in one of the halves."""
    values = 8 * GB + noise(120, 0.02 * GB)
    values[at:] += 10 * GB
    assert not workers(values).grows


def test_starting_up_is_no_growth() -> None:
    """Memory that levels off is flat in the second half."""
    times = np.arange(200)
    found = workers(8 * GB * (1 - np.exp(-times / 15)) + noise(200, 0.01 * GB))
    assert not found.grows
    assert found.reason.code is GrowthReason.BY_CHANCE


def test_shrinking_is_no_growth() -> None:
    """The slope is told as it is."""
    found = workers(line(120, -6 * GB))
    assert not found.grows
    assert value(found.bytes_per_hour) == pytest.approx(-6 * GB)


def test_outliers_do_not_matter() -> None:
    """A batch of another size now and then neither makes growth nor hides it."""
    flat, grown = 8 * GB + noise(120, 0.01 * GB), line(120, 6 * GB) + noise(120, 0.01 * GB)
    flat[::9] += 20 * GB
    grown[::9] += 20 * GB
    assert not workers(flat).grows
    found = workers(grown)
    assert found.grows
    assert value(found.bytes_per_hour) == pytest.approx(6 * GB, rel=0.2)


def test_workers_that_are_started_anew_do_not_shrink() -> None:
    """Each epoch's workers begin with fresh memory: what lies between epochs counts nowhere."""
    epochs = np.concatenate([line(240, 20 * GB) for _ in range(4)])
    found = workers(epochs, started_workers=np.repeat([2, 4, 6, 8], 240))
    assert found.grows
    assert value(found.bytes_per_hour) == pytest.approx(20 * GB)


def test_workers_that_are_started_anew_in_time() -> None:
    """In epochs of a minute they grow by next to nothing, at whatever pace."""
    epochs = np.concatenate([line(12, 20 * GB) for _ in range(4)])
    found = workers(epochs, started_workers=np.repeat([2, 4, 6, 8], 12))
    assert not found.grows
    assert found.reason.code is GrowthReason.STARTED_ANEW


def test_each_start_is_no_growth() -> None:
    """Workers that fill their memory when they start, and then rest, do not grow."""
    epoch = 8 * GB * (1 - np.exp(-np.arange(400) / 15))
    epochs = np.concatenate([epoch, epoch, epoch]) + noise(1200, 0.01 * GB)
    assert not workers(epochs, started_workers=np.repeat([2, 4, 6], 400)).grows


def test_a_worker_that_is_gone_begins_a_stretch() -> None:
    """The others' memory is less than the sum before."""
    values = np.concatenate([line(240, 20 * GB, 16 * GB), line(240, 20 * GB, 2 * GB)])
    found = workers(values, alive_workers=np.repeat([8, 7], 240))
    assert value(found.bytes_per_hour) == pytest.approx(20 * GB)


def test_mapped_files_do_not_count() -> None:
    """A dataset that is mapped bit by bit is memory that the system may drop."""
    mapped = line(120, 20 * GB, 0)
    found = workers(8 * GB + mapped, pss_file_bytes=mapped)
    assert not found.grows
    assert value(found.bytes_per_hour) == pytest.approx(0, abs=1e3)


def test_readings_without_memory_are_left_out() -> None:
    """It is read at some times only; the slope is over those."""
    values = np.full(600, np.nan)
    values[::10] = line(600, 6 * GB)[::10]
    found = workers(values, started_workers=np.full(600, 2))
    assert value(found.bytes_per_hour) == pytest.approx(6 * GB)


def test_rss_where_there_is_no_pss() -> None:
    """The quantity is told."""
    found = growth_of(run_of(readings("workers", rss_bytes=line(60, 6 * GB))), "workers")
    assert found.quantity == "rss_bytes"
    assert found.grows


def test_a_long_run_is_thinned() -> None:
    """The slope of ten hours is that of the medians of neighbours."""
    count = 20 * MOST_POINTS
    found = workers(line(count, 6 * GB) + noise(count, 0.1 * GB))
    assert value(found.bytes_per_hour) == pytest.approx(6 * GB, rel=0.02)


def test_too_few_readings() -> None:
    """Nothing is concluded from them, and why is told."""
    found = workers(line(5, 6 * GB))
    assert found.bytes_per_hour is None
    assert not found.grows
    assert found.reason == Remark(GrowthReason.FEW_READINGS, {"count": 5})


@pytest.mark.parametrize("values", [{"cpu_cores": [1.0, 2.0]}, {"rss_bytes": [np.nan] * 9}])
def test_no_reading_of_memory(values: dict[str, list[float]]) -> None:
    """Other readings do not tell."""
    found = growth_of(run_of(readings("workers", **values)), "workers")
    assert found.reason == Remark(GrowthReason.FEW_READINGS, {"count": 0})


def test_no_readings() -> None:
    """Of a loader without workers, say."""
    found = growth_of(run_of(), "workers")
    assert found.reason.code is GrowthReason.NO_READINGS


def test_a_probe_that_had_nothing_to_read() -> None:
    """Its reason is told."""
    nothing = Readings("host", "", np.empty(0, np.int64), {}, "no /proc here")
    other = Readings("gpu", "", np.empty(0, np.int64), {}, "no driver")
    assert growth_of(run_of(other, nothing), "process").reason == Remark(
        GrowthReason.PROBE_FAILED, {"reason": "no /proc here"}
    )


def test_the_machine_of_the_header() -> None:
    """Its memory is the limit where the probe told none; without one nothing is concluded."""
    found = readings("workers", pss_bytes=line(120, 6 * GB))
    run = run_of(found, limit=None)
    assert growth_of(run, "workers").reason.code is GrowthReason.NO_LIMIT
    run.header.environment["memory_bytes"] = int(LIMIT)  # type: ignore[index]  # a dictionary
    assert growth_of(run, "workers").limit_bytes == LIMIT


def test_the_process_too() -> None:
    """Its memory grows for another reason."""
    run = run_of(readings("process", pss_bytes=line(120, 6 * GB)), start_method="fork")
    process, of_workers = (growth_of(run, one) for one in ("process", "workers"))
    assert (process.subject, of_workers.subject) == ("process", "workers")
    assert process.grows
    assert process.advice is GrowthAdvice.DROP_KEPT_TENSORS
    assert of_workers.bytes_per_hour is None


def test_what_the_process_no_longer_shares_is_no_growth() -> None:
    """Its PSS rises while its workers copy what they shared with it."""
    values = {"pss_bytes": line(60, 6 * GB), "anonymous_bytes": np.full(60, 8 * GB)}
    found = growth_of(run_of(readings("process", **values)), "process")
    assert not found.grows
    assert found.quantity == "anonymous_bytes"


def test_workers_that_were_not_forked() -> None:
    """They share nothing that could be copied."""
    run = run_of(readings("workers", pss_bytes=line(120, 6 * GB)), start_method="spawn")
    assert growth_of(run, "workers").advice is GrowthAdvice.BOUND_WORKER_CACHES


LEAK = 20e6
"""Bytes in a second."""


def leaking(
    every_s: float, seconds: float = 60, epoch_s: float | None = None, **values: Any
) -> Growth:
    """Two workers that leak, together, as probes read it: each 0.1 s, and memory now and then.

    They are started anew after `epoch_s`, if that is given.
    """
    time_s = np.arange(0.1, seconds, 0.1)
    age_s = time_s if epoch_s is None else time_s % epoch_s
    pss = 1e9 + LEAK * age_s + noise(len(time_s), 5e6)
    pss[np.arange(len(time_s)) % round(every_s * 10) != 0] = np.nan
    started = 2.0 if epoch_s is None else 2 + 2 * (time_s // epoch_s)
    columns = {
        "pss_bytes": pss,
        "started_workers": np.zeros(len(time_s)) + started,
        "alive_workers": np.full(len(time_s), 2.0),
        **values,
    }
    found = Readings("host", "workers", (time_s * 1e9).astype(np.int64), columns)
    return growth_of(run_of(found), "workers")


@pytest.mark.parametrize("every_s", [0.1, 1, 5, 8, 10])
def test_a_leak_is_found_within_a_minute(every_s: float) -> None:
    """However seldom memory could be read: the more there is, the longer that takes."""
    found = leaking(every_s)
    assert found.grows
    assert value(found.bytes_per_hour) == pytest.approx(3600 * LEAK, rel=0.05)
    low, high = bounds(found.bytes_per_hour)
    assert 0 < low <= 3600 * LEAK <= high


def test_a_leak_of_workers_that_are_found_one_by_one() -> None:
    """They come, and none has gone: it goes on for longer than the run."""
    count = np.where(np.arange(0.1, 60, 0.1) < 2, 1.0, 2.0)
    for every_s in (0.1, 5, 8):
        found = leaking(every_s, started_workers=count, alive_workers=count)
        assert found.reason.code is GrowthReason.GROWS


def test_a_leak_of_workers_that_live_for_an_epoch() -> None:
    """Of 10 s: they end before it matters."""
    found = leaking(0.1, epoch_s=10)
    assert found.reason.code is GrowthReason.STARTED_ANEW
    assert not found.grows
    assert value(found.bytes_per_hour) == pytest.approx(3600 * LEAK, rel=0.05)
    # Memory that is read twice in the life of a worker tells nothing.
    assert leaking(5, epoch_s=10).reason.code is GrowthReason.FEW_READINGS


def test_too_short_a_run_for_a_leak() -> None:
    """Of four readings, and of five."""
    for seconds in (20, 25):
        assert leaking(5, seconds=seconds).reason.code is GrowthReason.FEW_READINGS


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("count", [6, 7, 8, 9])
def test_few_readings_of_noise_are_no_growth(count: int, seed: int) -> None:
    """They do not grow evenly."""
    assert not workers(8 * GB + noise(count, GB, seed)).grows


@pytest.mark.parametrize(
    "values",
    [
        [1, 1.1, 1.2, 9, 9.1, 9.2],  # one step
        [1, 2, 3, 9, 10, 11],  # and growth
        [0, 8, 12, 14, 15, 15.5],  # starting up
        [9, 8, 7, 6, 5, 4],
    ],
)
def test_few_readings_that_grow_unevenly(values: list[float]) -> None:
    """What that is will be seen in a longer run."""
    found = workers(np.array(values) * GB)
    assert found.reason.code is GrowthReason.FEW_READINGS
