"""Whether memory grows, on readings whose every value is given; and what workers copy and keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadeval.data.columns import UNKNOWN, Columns, Values
from loadeval.data.lines import WorkerStart
from loadeval.data.run import Run
from loadeval.estimate.memory import Growth, bytes_kept, copies, growth
from tests.builder import MS, looked_into, run_of, stage_rows, steps

GB, MB = 1e9, 1_000_000
LIMIT = 100e9
HOUR = 720
"""Readings in an hour, one each five seconds."""


def read(
    subject: str = "workers", limit: float | None = LIMIT, every_s: float = 5, **known: Any
) -> Growth:
    """What the columns that are `known` of a subject, one of them its memory, tell."""
    starts, nbytes = known.pop("worker_starts", ()), known.pop("nbytes", 0)
    columns = {name: np.asarray(values, np.float64) for name, values in known.items()}
    count = max(map(len, columns.values()), default=0)
    times = (np.arange(count) * every_s * 1e9).astype(np.int64)
    readings = {("host", subject): Columns({"time_ns": times, **columns})} if count else {}
    if limit is not None:
        limits = np.array([np.nan, limit])
        readings["host", "machine"] = Columns({"time_ns": [0, 1], "memory_limit_bytes": limits})
    served = steps("real", 1, 9, 900, nbytes=nbytes)
    run = run_of([served], readings=readings, worker_starts=starts)
    return growth(run, subject)


def line(count: int, bytes_per_hour: float, start: float = 8 * GB) -> Values:
    return np.asarray(start + bytes_per_hour * np.arange(count) / HOUR)


def noise(count: int, spread: float, seed: int = 0) -> Values:
    return np.random.default_rng(seed).normal(0, spread, count)


def rate(result: Any) -> Any:
    return result.bytes_per_hour.value


GROWS, NOISE = "it grows", "any growth is within the noise"
FEW = "too few memory readings for a trend (5); let it run for a minute"
ANEW = "it grows, but the workers restart before that matters"


def test_growth_under_noise_is_found_with_its_interval() -> None:
    result = read(pss_bytes=line(120, 6 * GB) + noise(120, 0.02 * GB))
    assert (result.says, result.grows) == (GROWS, True)
    estimate: Any = result.bytes_per_hour
    assert 0 < (estimate.low or 0) < 6 * GB < (estimate.high or 0)


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_is_no_growth(seed: int) -> None:
    assert read(pss_bytes=8 * GB + noise(60, GB, seed)).says == NOISE


@pytest.mark.parametrize("at", [30, 90])
def test_a_step_is_no_growth(at: int) -> None:
    """At whatever time memory steps up, it is flat in one of the halves."""
    values = 8 * GB + noise(120, 0.02 * GB)
    values[at:] += 10 * GB
    assert read(pss_bytes=values).says == NOISE


def test_growth_by_under_a_hundredth_of_the_memory_in_an_hour_is_little() -> None:
    """Shrinking is told as it is."""
    assert read(pss_bytes=line(120, 0.5 * GB)).says == "it grows by little"
    shrinking = read(pss_bytes=line(120, -6 * GB))
    assert shrinking.says == NOISE
    assert rate(shrinking) == pytest.approx(-6 * GB)


def test_what_lies_between_two_starts_of_workers_counts_nowhere() -> None:
    """They begin with fresh memory, and grow by no more than they do in their lives."""
    for readings, says in ((240, GROWS), (12, ANEW)):
        epochs = np.concatenate([line(readings, 20 * GB) for _ in range(4)])
        result = read(pss_bytes=epochs, started_workers=np.repeat([2, 4, 6, 8], readings))
        assert result.says == says
        assert rate(result) == pytest.approx(20 * GB)


def test_workers_that_come_and_go_beside_those_that_stay_hide_no_leak() -> None:
    """Validation has two of its own, in every other minute."""
    alive = np.tile(np.repeat([2, 4], 12), 10)
    started = 2 + np.maximum(np.diff(alive, prepend=2), 0).cumsum()
    result = read(
        pss_bytes=line(240, 20 * GB) + (alive - 2) * GB,
        alive_workers=alive,
        started_workers=started,
        worker_starts=tuple(WorkerStart(0, worker, 0, 1, 2, 0) for worker in (0, 1)),
    )
    assert result.says == GROWS
    assert rate(result) == pytest.approx(20 * GB)


def test_mapped_files_do_not_count() -> None:
    """A dataset that is mapped bit by bit is memory that the system may drop."""
    mapped = line(120, 20 * GB, 0)
    result = read(pss_bytes=8 * GB + mapped, pss_file_bytes=mapped)
    assert rate(result) == pytest.approx(0, abs=1e3)


def test_the_process_counts_by_what_it_does_not_share() -> None:
    """Its PSS rises while its workers copy what they shared with it."""
    pss, own = line(60, 6 * GB), np.full(60, 8 * GB)
    assert not read("process", pss_bytes=pss, anonymous_bytes=own).grows
    assert read(rss_bytes=line(60, 6 * GB)).grows


def test_what_workers_have_of_their_own_tells_where_pss_was_read_too_few_times() -> None:
    """PSS is costly, and read every five seconds; it also rises by pages that they copy."""
    own = line(90, 150 * GB / 50)
    pss = np.where(np.arange(90) % 45, np.nan, own)
    result = read(every_s=0.1, pss_bytes=pss, anonymous_bytes=own)
    assert (result.says, result.of_own) == (GROWS, pytest.approx(1))
    assert not read(every_s=0.1, pss_bytes=pss, anonymous_bytes=line(90, 20 * GB / 50)).grows
    copied = read(pss_bytes=line(60, 6 * GB), anonymous_bytes=np.full(60, 8 * GB))
    assert (copied.says, copied.of_own) == (GROWS, pytest.approx(0))


def test_what_tensors_have_in_shared_memory_is_told_as_that() -> None:
    own, shared = np.full(60, 8 * GB), line(60, 6 * GB, 0)
    result = read("process", anonymous_bytes=own, shared_memory_bytes=shared)
    assert (result.says, result.of_shared) == (GROWS, pytest.approx(1))


def test_pages_of_mapped_files_are_told_to_be_no_leak() -> None:
    own, mapped = np.full(60, 8 * GB), line(60, 6 * GB, 0)
    result = read("process", anonymous_bytes=own, mapped_file_bytes=mapped)
    assert not result.grows
    assert "pages of mapped files do, by 6.00 GB" in result.says


@pytest.mark.parametrize(
    ("per_hour", "nbytes", "says"),
    [
        (150 * GB, 0, GROWS),  # the memory is full in under an hour
        (20 * GB, 0, "it grows, but was seen for less than a minute"),
        (20 * GB, 50_000, GROWS),  # 50 MB in 9 s, of 45 MB in batches
        (20 * GB, 500_000, "it grows, but was seen for less than a minute"),
    ],
)
def test_growth_that_is_fast_is_told_at_once(per_hour: float, nbytes: int, says: str) -> None:
    """In nine seconds; slower growth may be a start."""
    values = line(90, per_hour / 50)
    result = read("process", every_s=0.1, anonymous_bytes=values, nbytes=nbytes)
    assert result.says == says
    assert result.kept_bytes == pytest.approx(per_hour * 8.9 / 3600)


def test_growth_that_becomes_slower_is_none() -> None:
    """A cache that is nearly full, in a run of minutes."""
    values = 8 * GB + 20 * GB * (1 - np.exp(-np.arange(120) / 40))
    assert read("process", anonymous_bytes=values).says == "it grows ever more slowly"


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ({"pss_bytes": line(5, 6 * GB)}, FEW),
        ({}, "no memory readings of the workers"),
        ({"pss_bytes": line(99, GB), "limit": None}, "the machine's memory size is not known"),
    ],
)
def test_why_growth_was_not_measured(known: dict[str, Any], says: str) -> None:
    result = read(**known)
    assert (result.says, result.bytes_per_hour, result.grows) == (says, None, False)


# In workers

NUMBER = np.arange(120)
FAULTS = 2000
COPIED = FAULTS * 4096 * NUMBER // 2
"""What each of two workers has copied by each batch, where all its faults copy."""


def of_batches(values: Any, is_read: Any) -> Any:
    return np.where(is_read, values, UNKNOWN)


def copying(copied: Any = COPIED, every: int = 20, **columns: Any) -> Run:
    """Two workers whose memory is read at their first batches, and at every so many."""
    is_read = NUMBER % every < 2
    memory = {
        "private_bytes": of_batches(9 * MB + copied, is_read),
        "shared_bytes": of_batches(900 * MB - copied, is_read),
    }
    kernel = {"minor_faults": FAULTS, "system_ns": 48 * MS, "cpu_ns": 60 * MS}
    return looked_into(stage_rows(60, len(NUMBER), **{**kernel, **memory, **columns}))


def test_forked_workers_copy_the_pages_that_they_read() -> None:
    """A fault is not taken to need more than 10 us of the kernel's time."""
    found: Any = copies(copying())
    assert found.copied_bytes == pytest.approx(FAULTS * 4096 * 50)
    assert found.shared_bytes == pytest.approx(900 * MB, rel=0.01)
    assert found.of_faults == pytest.approx(1, rel=0.03)
    assert found.share == pytest.approx(20 / 60, rel=0.03)


def test_workers_that_are_started_anew_share_anew() -> None:
    """What one has copied, the next has not."""
    first = copying()
    rows = [first.stages, first.stages.replace(epoch=np.ones(len(NUMBER), np.int64))]
    starts = [WorkerStart(epoch, worker, 0, 1, 2, 0) for epoch in (0, 1) for worker in (0, 1)]
    found: Any = copies(looked_into(*rows, worker_starts=tuple(starts)))
    assert found.copied_bytes == pytest.approx(FAULTS * 4096 * 50)
    assert found.of_faults == pytest.approx(1, rel=0.03)


AT = np.array([0, 6, 12, 24, 48, 96])
"""Batches at which the memory of the first worker was read; that of the other at the next ones."""


def keeping(kept: Any, count: int = 120, workers: int = 2) -> float:
    """What is told of workers that have kept so many bytes by each batch."""
    is_read = np.isin(NUMBER, [*AT, *(AT + 1)])
    memory = {
        "private_bytes": of_batches(9 * MB + kept, is_read)[:count],
        "shared_bytes": of_batches(100 * MB, is_read)[:count],
    }
    return bytes_kept(looked_into(stage_rows(20, count, workers=workers, **memory)))


def test_workers_keep_so_much_of_each_batch_of_the_loader() -> None:
    """Here 2 MB of each, of which each of two workers loads one in two."""
    assert keeping(2 * MB * NUMBER) == pytest.approx(4 * MB, rel=0.05)


@pytest.mark.parametrize(
    "kept",
    [
        200 * MB * (1 - np.exp(-NUMBER / 10)),  # a cache that is full
        50 * MB * (NUMBER >= 24),  # once
        2_000 * NUMBER,  # less than Python takes at once
    ],
)
def test_what_does_not_go_on_is_not_kept(kept: Any) -> None:
    assert keeping(kept) == 0
