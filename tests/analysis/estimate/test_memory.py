"""Whether memory grows, on readings whose every value is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.memory import (
    MOST_POINTS,
    Growth,
    GrowthAdvice,
    GrowthReason,
    growth_of,
)
from loadeval.analysis.remark import Remark
from loadeval.data.lines import LoaderInfo, Readings
from tests.analysis.numbers import bounds, value
from tests.runs.given import run_of
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from loadeval.data.run import Run

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


def read(*probed: Readings, limit: float | None = LIMIT, **loader: Any) -> Run:
    machine = [] if limit is None else [readings("machine", memory_limit_bytes=[np.nan, limit])]
    info = LoaderInfo("loader", **loader)
    return run_of(mode="log", loader=info, readings=(*probed, *machine))


def workers(pss: Sequence[float] | Values, **values: Sequence[float] | Values) -> Growth:
    return growth_of(read(readings("workers", pss_bytes=pss, **values)), "workers")


def line(count: int, bytes_per_hour: float, start: float = 8 * GB) -> Values:
    return start + bytes_per_hour * np.arange(count) / HOUR


def noise(count: int, spread: float, seed: int = 0) -> Values:
    return np.random.default_rng(seed).normal(0, spread, count)


def test_growth_under_noise() -> None:
    """The slope is found, and its interval lies above zero."""
    growth = workers(line(120, 6 * GB) + noise(120, 0.02 * GB))
    assert growth.grows
    assert growth.quantity == "pss_bytes"
    assert growth.limit_bytes == LIMIT
    low, high = bounds(growth.bytes_per_hour)
    assert 0 < low < 6 * GB < high
    assert growth.reason.values["share"] == pytest.approx(0.06, rel=0.1)
    assert growth.advice is GrowthAdvice.AVOID_COPY_ON_WRITE


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_growth(seed: int) -> None:
    """It may be of any size."""
    growth = workers(8 * GB + noise(60, GB, seed))
    assert not growth.grows
    assert growth.advice is None


def test_growth_that_does_not_matter() -> None:
    """It is under a hundredth of the memory in an hour, and told all the same."""
    growth = workers(line(120, 0.5 * GB))
    assert not growth.grows
    assert growth.reason.code is GrowthReason.LITTLE


@pytest.mark.parametrize("at", [6, 30, 60, 90, 114])
def test_a_step_is_no_growth(at: int) -> None:
    """At whatever time memory steps up, it is flat in one of the halves."""
    values = 8 * GB + noise(120, 0.02 * GB)
    values[at:] += 10 * GB
    assert not workers(values).grows


def test_starting_up_is_no_growth() -> None:
    """Memory that levels off is flat in the second half."""
    times = np.arange(200)
    growth = workers(8 * GB * (1 - np.exp(-times / 15)) + noise(200, 0.01 * GB))
    assert not growth.grows
    assert growth.reason.code is GrowthReason.BY_CHANCE


def test_shrinking_is_no_growth() -> None:
    """The slope is told as it is."""
    growth = workers(line(120, -6 * GB))
    assert not growth.grows
    assert value(growth.bytes_per_hour) == pytest.approx(-6 * GB)


def test_outliers_do_not_matter() -> None:
    """A batch of another size now and then neither makes growth nor hides it."""
    flat, grown = 8 * GB + noise(120, 0.01 * GB), line(120, 6 * GB) + noise(120, 0.01 * GB)
    flat[::9] += 20 * GB
    grown[::9] += 20 * GB
    assert not workers(flat).grows
    growth = workers(grown)
    assert growth.grows
    assert value(growth.bytes_per_hour) == pytest.approx(6 * GB, rel=0.2)


def test_workers_that_are_started_anew_do_not_shrink() -> None:
    """Each epoch's workers begin with fresh memory: what lies between epochs counts nowhere."""
    epochs = np.concatenate([line(240, 20 * GB) for _ in range(4)])
    growth = workers(epochs, started_workers=np.repeat([2, 4, 6, 8], 240))
    assert growth.grows
    assert value(growth.bytes_per_hour) == pytest.approx(20 * GB)


def test_workers_that_are_started_anew_in_time() -> None:
    """They grow by next to nothing in epochs of a minute, at whatever pace."""
    epochs = np.concatenate([line(12, 20 * GB) for _ in range(4)])
    growth = workers(epochs, started_workers=np.repeat([2, 4, 6, 8], 12))
    assert not growth.grows
    assert growth.reason.code is GrowthReason.STARTED_ANEW


def test_each_start_is_no_growth() -> None:
    """Workers that fill their memory when they start, and then rest, do not grow."""
    epoch = 8 * GB * (1 - np.exp(-np.arange(400) / 15))
    epochs = np.concatenate([epoch, epoch, epoch]) + noise(1200, 0.01 * GB)
    assert not workers(epochs, started_workers=np.repeat([2, 4, 6], 400)).grows


def test_a_worker_that_is_gone_begins_a_stretch() -> None:
    """The others' memory is less than the sum before."""
    values = np.concatenate([line(240, 20 * GB, 16 * GB), line(240, 20 * GB, 2 * GB)])
    growth = workers(values, alive_workers=np.repeat([8, 7], 240))
    assert value(growth.bytes_per_hour) == pytest.approx(20 * GB)


def test_mapped_files_do_not_count() -> None:
    """A dataset that is mapped bit by bit is memory that the system may drop."""
    mapped = line(120, 20 * GB, 0)
    growth = workers(8 * GB + mapped, pss_file_bytes=mapped)
    assert not growth.grows
    assert value(growth.bytes_per_hour) == pytest.approx(0, abs=1e3)


def test_readings_without_memory_are_left_out() -> None:
    """It is read at some times only; the slope is over those."""
    values = np.full(600, np.nan)
    values[::10] = line(600, 6 * GB)[::10]
    growth = workers(values, started_workers=np.full(600, 2))
    assert value(growth.bytes_per_hour) == pytest.approx(6 * GB)


def test_rss_where_there_is_no_pss() -> None:
    """The quantity is told."""
    growth = growth_of(read(readings("workers", rss_bytes=line(60, 6 * GB))), "workers")
    assert growth.quantity == "rss_bytes"
    assert growth.grows


def test_a_long_run_is_thinned() -> None:
    """The slope of ten hours is that of the medians of neighbours."""
    count = 20 * MOST_POINTS
    growth = workers(line(count, 6 * GB) + noise(count, 0.1 * GB))
    assert value(growth.bytes_per_hour) == pytest.approx(6 * GB, rel=0.02)


def test_too_few_readings() -> None:
    """Nothing is concluded from them, and why is told."""
    growth = workers(line(5, 6 * GB))
    assert growth.bytes_per_hour is None
    assert not growth.grows
    assert growth.reason == Remark(GrowthReason.FEW_READINGS, {"count": 5})


@pytest.mark.parametrize("values", [{"cpu_cores": [1.0, 2.0]}, {"rss_bytes": [np.nan] * 9}])
def test_no_reading_of_memory(values: dict[str, list[float]]) -> None:
    """Other readings do not tell."""
    growth = growth_of(read(readings("workers", **values)), "workers")
    assert growth.reason == Remark(GrowthReason.FEW_READINGS, {"count": 0})


def test_no_readings() -> None:
    """A loader without workers has none."""
    growth = growth_of(read(), "workers")
    assert growth.reason.code is GrowthReason.NO_READINGS


def test_a_probe_that_had_nothing_to_read() -> None:
    """Its reason is told."""
    nothing = Readings("host", "", np.empty(0, np.int64), {}, "no /proc here")
    other = Readings("gpu", "", np.empty(0, np.int64), {}, "no driver")
    assert growth_of(read(other, nothing), "process").reason == Remark(
        GrowthReason.PROBE_FAILED, {"reason": "no /proc here"}
    )


def test_the_machine_of_the_header() -> None:
    """Its memory is the limit where the probe told none; without one nothing is concluded."""
    reading = readings("workers", pss_bytes=line(120, 6 * GB))
    run = read(reading, limit=None)
    assert growth_of(run, "workers").reason.code is GrowthReason.NO_LIMIT
    header = replace(run.header, environment={"memory_bytes": int(LIMIT)})
    assert growth_of(replace(run, header=header), "workers").limit_bytes == LIMIT


def test_the_process_too() -> None:
    """Its memory grows for another reason."""
    run = read(readings("process", pss_bytes=line(120, 6 * GB)), start_method="fork")
    process, of_workers = (growth_of(run, subject) for subject in ("process", "workers"))
    assert (process.subject, of_workers.subject) == ("process", "workers")
    assert process.grows
    assert process.advice is GrowthAdvice.DROP_KEPT_TENSORS
    assert of_workers.bytes_per_hour is None


def test_what_the_process_no_longer_shares_is_no_growth() -> None:
    """Its PSS rises while its workers copy what they shared with it."""
    values = {"pss_bytes": line(60, 6 * GB), "anonymous_bytes": np.full(60, 8 * GB)}
    growth = growth_of(read(readings("process", **values)), "process")
    assert not growth.grows
    assert growth.quantity == "anonymous_bytes"


def test_workers_that_were_not_forked() -> None:
    """They share nothing that could be copied."""
    run = read(readings("workers", pss_bytes=line(120, 6 * GB)), start_method="spawn")
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
    reading = Readings("host", "workers", (time_s * 1e9).astype(np.int64), columns)
    return growth_of(read(reading), "workers")


@pytest.mark.parametrize("every_s", [0.1, 1, 5, 8, 10])
def test_a_leak_is_found_within_a_minute(every_s: float) -> None:
    """Memory may be read seldom: the more there is, the longer reading takes."""
    growth = leaking(every_s)
    assert growth.grows
    assert value(growth.bytes_per_hour) == pytest.approx(3600 * LEAK, rel=0.05)
    low, high = bounds(growth.bytes_per_hour)
    assert 0 < low <= 3600 * LEAK <= high


def test_a_leak_of_workers_that_are_found_one_by_one() -> None:
    """They come, and none has gone: it goes on for longer than the run."""
    count = np.where(np.arange(0.1, 60, 0.1) < 2, 1.0, 2.0)
    for every_s in (0.1, 5, 8):
        growth = leaking(every_s, started_workers=count, alive_workers=count)
        assert growth.reason.code is GrowthReason.GROWS


def test_a_leak_of_workers_that_live_for_an_epoch() -> None:
    """An epoch takes 10 s: the workers end before it matters."""
    growth = leaking(0.1, epoch_s=10)
    assert growth.reason.code is GrowthReason.STARTED_ANEW
    assert not growth.grows
    assert value(growth.bytes_per_hour) == pytest.approx(3600 * LEAK, rel=0.05)
    # Memory that is read twice in the life of a worker tells nothing.
    assert leaking(5, epoch_s=10).reason.code is GrowthReason.FEW_READINGS


def test_too_short_a_run_for_a_leak() -> None:
    """Four readings are too few, and so are five."""
    for seconds in (20, 25):
        assert leaking(5, seconds=seconds).reason.code is GrowthReason.FEW_READINGS


@pytest.mark.parametrize("seed", range(5))
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
    growth = workers(np.array(values) * GB)
    assert growth.reason.code is GrowthReason.FEW_READINGS
