"""Rare stalls, in runs whose every wait is given, and in simulated ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pytest

from loadeval.analysis.estimate.arms import run_times
from loadeval.analysis.estimate.stalls import FEWEST_REGULAR, LEAST_APART, MOST, PHASE, interval_of
from loadeval.data.lines import Arm, Block, LoaderInfo, Prefetch
from tests.analysis.numbers import bounds
from tests.runs.given import block, run_of
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loadeval.analysis.estimate.intervals import AllWaits
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.data.run import Run

    Draw = Callable[[np.random.Generator, int], list[int]]

DEPTH = 2
USUAL, STALL, STEP = 100, 20_100, 1_000
"""Of a wait, one in a stall, and a step, in nanoseconds."""
COST = STALL - USUAL
SEEN = 154
"""Batches of an epoch by turns: 80 real ones, and 74 taken for ideal blocks."""
REAL = 80
BY_TURNS: tuple[Arm, ...] = ("real", "ideal") * 4
REVERSED: tuple[Arm, ...] = ("real", "ideal", "ideal", "real") * 2
"""As runs have them: each second pair has its arms in the reversed order."""


class Loader(Protocol):
    """Hands out batches, each after a wait; the next one is asked for after `step_ns`."""

    depth: int

    def take(self, step_ns: int) -> int: ...

    def rest(self) -> None: ...


@dataclass
class Listed:
    """A loader whose every wait is USUAL, but for those of some batches, counted from 0."""

    unusual: Mapping[int, int]
    depth: int = DEPTH
    taken: int = 0

    def take(self, step_ns: int) -> int:  # noqa: ARG002 - its waits do not depend on steps
        self.taken += 1
        return self.unusual.get(self.taken - 1, USUAL)

    def rest(self) -> None:
        """Nothing is loaded meanwhile."""


@dataclass
class Queued:
    """A loader that takes `loads_ns`, one after the other, and keeps up to `depth` ready."""

    loads_ns: Sequence[int]
    depth: int
    now: int = 0
    ready: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)

    def take(self, step_ns: int) -> int:
        asked, place = self.now, len(self.taken)
        self._load(place)
        self.now = max(asked, self.ready[place])
        self.taken.append(self.now)
        wait_ns = self.now - asked
        self.now += step_ns
        return wait_ns

    def rest(self) -> None:
        """Until the queue is full."""
        self._load(len(self.taken) + self.depth - 1)
        self.now = max(self.now, self.ready[-1])

    def _load(self, last: int) -> None:
        for place in range(len(self.ready), last + 1):
            room = self.taken[place - self.depth] if place >= self.depth else 0
            free = self.ready[-1] if place else 0
            self.ready.append(max(room, free) + self.loads_ns[place])


class Plan(NamedTuple):
    """The blocks of each epoch, and their sizes; each begins with a warm-up."""

    arms: tuple[Arm, ...] = BY_TURNS
    real: int = 20
    ideal: int = 20
    warmup: int = 0


TURNS = Plan()


def alternated(
    loader: Loader, plan: Plan = TURNS, epochs: int = 1, noise: np.random.Generator | None = None
) -> Run:
    """As the runtime does: a full queue is taken out before a real block, and served later."""
    blocks: list[Block] = []
    prefetches: list[Prefetch] = []

    def steps_ns(count: int) -> list[int]:
        if noise is None:
            return [STEP] * count
        return [round(STEP * factor) for factor in noise.normal(1.0, 0.01, count).tolist()]

    def prefetch(epoch: int, pair: int, count: int) -> int:
        waits = tuple(loader.take(0) for _ in range(count))
        timed = max(count - loader.depth, 0)
        prefetches.append(Prefetch(pair, epoch, count, timed, sum(waits[-timed:]), None, waits))
        return count

    def serve(epoch: int, arm: Arm, pair: int | None, count: int) -> None:
        steps = steps_ns(count)
        waits = [loader.take(step) if arm == "real" else 0 for step in steps]
        blocks.append(block(arm, waits, steps, epoch=epoch, pair=pair))

    for epoch in range(epochs):
        serve(epoch, "real", None, 1)
        held, is_full = 0, False
        for number, arm in enumerate(plan.arms):
            pair = (epoch * len(plan.arms) + number) // 2
            size = plan.real if arm == "real" else plan.ideal
            if arm == "ideal":
                prefetch(epoch, pair, plan.warmup + size - held)
                loader.rest()
                held, is_full = 0, True
            elif is_full:
                held, is_full = held + prefetch(epoch, pair, loader.depth), False
            serve(epoch, arm, None, plan.warmup)
            serve(epoch, arm, pair, size)
    info = LoaderInfo("loader", workers=2, prefetch_depth=loader.depth)
    return run_of(blocks, loader=info, prefetches=tuple(prefetches))


def all_waits(unusual: Mapping[int, int], plan: Plan = TURNS, epochs: int = 1) -> AllWaits | None:
    return run_times(alternated(Listed(unusual), plan, epochs)).real.all_waits


def mean_ns(waits: AllWaits | None) -> float:
    assert waits is not None
    return float(waits.all_ns.mean())


def variance(waits: AllWaits | None) -> float:
    assert waits is not None
    assert waits.known_error is not None
    return waits.known_error.variance


def stalls_at(*places: int) -> dict[int, int]:
    return dict.fromkeys(places, STALL)


@pytest.mark.parametrize(
    ("places", "interval"),
    [
        ([3, 23, 43, 63], 20),
        ([3, 23, 63, 83, 143], 20),
        ([3, 103, 203, 308], 305 / 3),
        ([3, 103, 203, 309], None),
        ([3, 20, 51, 60, 99], None),
    ],
    ids=["exact", "some missing", "nearly", "not nearly", "irregular"],
)
def test_the_interval_of_regular_stalls(places: Sequence[int], interval: float | None) -> None:
    """Every gap is a multiple of the shortest, within 5% of that; the mean is told."""
    spacing = interval_of(np.array(places))
    assert spacing == (None if interval is None else pytest.approx(interval))


@pytest.mark.parametrize("count", range(FEWEST_REGULAR))
def test_few_stalls_have_no_interval(count: int) -> None:
    """Their gaps may be alike by chance."""
    assert interval_of(np.arange(count) * 20) is None


def test_stalls_are_counted_in_prefetches_too() -> None:
    """Two of three are there."""
    assert mean_ns(all_waits(stalls_at(5, 30, 70))) == pytest.approx(3 / SEEN * COST)


def test_what_a_stall_costs_is_seen_in_real_blocks() -> None:
    """Training waits for it there: longer or shorter ones of prefetches do not count."""
    waits = all_waits({5: STALL, 30: 10 * STALL, 70: STALL - 5_000})
    assert mean_ns(waits) == pytest.approx(3 / SEEN * COST)


def test_a_stall_costs_what_it_is_longer_than_other_real_waits() -> None:
    """Prefetched batches are waited for longer: no step hides their loading."""
    prefetched = dict.fromkeys(range(21, 41), 10 * USUAL)
    waits = all_waits({**prefetched, **stalls_at(5, 30, 70)})
    assert mean_ns(waits) == pytest.approx(3 / SEEN * COST)


def test_the_number_of_stalls_is_poissons() -> None:
    """Garwood's interval has two degrees of freedom for each; one real stall has no variance."""
    waits = all_waits(stalls_at(5, 30, 70))
    assert waits is not None
    assert waits.known_error is not None
    assert waits.known_error.variance == pytest.approx((3 / SEEN * COST) ** 2 / 3)
    assert waits.known_error.freedom == 6


def test_costs_that_differ_widen_the_interval() -> None:
    """The interval widens by the variance of their mean."""
    waits = all_waits({5: STALL - 5_000, 30: STALL, 50: STALL + 5_000})
    of_cost = 2 * 5_000**2 / 2 / COST**2
    assert variance(waits) == pytest.approx((3 / SEEN * COST) ** 2 * (1 / 3 + of_cost))


def test_what_stalls_add_is_told_of_each_real_batch() -> None:
    """It is told beside the usual wait; batches of the real arm are in order."""
    waits = all_waits(stalls_at(5, 30, 50))
    assert waits is not None
    assert np.flatnonzero(waits.within_ns).tolist() == [4, 27]
    assert waits.within_ns[[4, 27]].tolist() == [COST, COST]


def test_the_mean_iteration_has_as_many_stalls_as_all_batches() -> None:
    """They replace those that happened to be in real blocks."""
    times = run_times(alternated(Listed(stalls_at(5, 30, 70))))
    expected = STEP + USUAL + 3 / SEEN * COST
    assert times.real.iterations(by_sample=False).mean_ns == pytest.approx(expected)
    assert times.comparison is not None
    assert times.comparison.real_ns == pytest.approx(expected)


def test_a_stall_that_was_counted_was_not_missed() -> None:
    """Its length does not matter; without one in a real block it was missed."""
    long = {30: 10 * STALL}
    assert run_times(alternated(Listed({**stalls_at(5, 70), **long}))).missed_ns == 0
    assert run_times(alternated(Listed(long))).missed_ns == 10 * STALL - DEPTH * STEP


def test_without_a_real_stall_its_cost_is_not_known() -> None:
    """A run without stalls has none either."""
    assert all_waits(stalls_at(30, 70)) is None
    assert all_waits({}) is None


def test_many_stalls_need_no_counting_elsewhere() -> None:
    """Above one batch in ten the real blocks tell enough."""
    prefetched = [*range(21, 41), *range(63, 81)]
    most = SEEN // LEAST_APART
    assert all_waits(stalls_at(5, *prefetched[: most - 1])) is not None
    assert all_waits(stalls_at(5, *prefetched[:most])) is None


def test_so_do_twenty_stalls_in_a_long_run() -> None:
    """It does not matter how rare they are."""
    rare = range(5, 161 * 4, 30)
    assert len(rare) > MOST
    assert all_waits(stalls_at(*rare[:MOST]), epochs=4) is not None
    assert all_waits(stalls_at(*rare), epochs=4) is None


def test_a_wait_that_the_queue_hides_is_no_stall() -> None:
    """The queue hides as many ideal iterations as the loader has batches ready."""
    run = alternated(Listed(stalls_at(5, 30, 70)))
    for depth, is_stall in ((STALL // STEP, True), (STALL // STEP + 1, False)):
        loader = replace(run.header.loader, prefetch_depth=depth)
        times = run_times(replace(run, header=replace(run.header, loader=loader)))
        assert (times.real.all_waits is not None) == is_stall


def test_a_wait_of_a_few_iterations_is_no_stall() -> None:
    """Five of them."""
    usual = STEP + USUAL
    least = round(5 * usual / (1 - 5 / REAL))
    assert all_waits({5: least - 500, **stalls_at(*range(21, 33))}) is None
    assert all_waits({5: least + 500, **stalls_at(*range(21, 33))}) is not None


def test_stalls_that_matter_little_are_left_alone() -> None:
    """What they cost is to be 5% of the real time."""
    hidden = {21: 9_100, 30: 9_100}
    assert all_waits({5: 7_000, **hidden}) is not None
    assert all_waits({5: 7_000, **hidden}, epochs=3) is None


def test_without_both_arms_there_is_nothing_to_count_for() -> None:
    """A run without a whole pair has nothing either."""
    assert all_waits(stalls_at(5), Plan(("real",))) is None


def test_prefetches_whose_waits_are_not_known_count_as_unseen() -> None:
    """Some logs do not tell them."""
    run = alternated(Listed(stalls_at(5, 12, 30, 70, 90)))
    bare = tuple(replace(prefetch, waits_ns=()) for prefetch in run.prefetches)
    waits = run_times(replace(run, prefetches=bare)).real.all_waits
    assert mean_ns(waits) == pytest.approx(3 / REAL * COST)


@pytest.mark.parametrize("arms", [BY_TURNS, REVERSED], ids=["by turns", "reversed"])
def test_regular_stalls_are_known_in_number(arms: tuple[Arm, ...]) -> None:
    """Places are those of the loader, also where two ideal blocks follow on one another."""
    waits = all_waits(stalls_at(*range(10, 160, 20)), Plan(arms))
    assert mean_ns(waits) == pytest.approx(COST / 20)
    assert variance(waits) == pytest.approx((COST / 20 * PHASE / 8) ** 2)


def test_batches_that_filled_the_queue_have_places_but_are_not_seen() -> None:
    """Three of 16 stalls come while nobody waits: their interval is the same."""
    waits = all_waits(stalls_at(*range(2, 161, 10)))
    assert mean_ns(waits) == pytest.approx(COST / 10)
    assert variance(waits) == pytest.approx((COST / 10 * PHASE / 13) ** 2)


def test_places_go_on_from_epoch_to_epoch() -> None:
    """An epoch has 161 batches here."""
    waits = all_waits(stalls_at(*range(10, 322, 20)), epochs=2)
    assert mean_ns(waits) == pytest.approx(COST / 20)


def test_the_first_batches_of_epochs_do_not_count() -> None:
    """Their waits are epoch starts."""
    firsts = {0: 10 * STALL, 161: 10 * STALL}
    waits = all_waits({**firsts, **stalls_at(5, 30, 70)}, epochs=2)
    assert mean_ns(waits) == pytest.approx(3 / (2 * SEEN) * COST)


@pytest.mark.parametrize("places", [(5, 6, 30, 70), (5, 6, 7, 8)], ids=["two", "four"])
def test_stalls_in_a_row_are_not_regular(places: Sequence[int]) -> None:
    """Else there would be one at every batch: any gap is a multiple of 1."""
    assert mean_ns(all_waits(stalls_at(*places))) == pytest.approx(4 / SEEN * COST)


BATCHES, QUEUE = 300, 4
SHORT, LONG = STEP // 4, 30 * STEP
SIMULATED = Plan(REVERSED, real=32, ideal=20, warmup=QUEUE + 1)


def random_stalls(rng: np.random.Generator, batches: int) -> list[int]:
    """A quarter of a step a batch, and 30 steps for one in 50."""
    return [LONG if is_stall else SHORT for is_stall in rng.random(batches) < 1 / 50]


def regular_stalls(rng: np.random.Generator, batches: int) -> list[int]:
    """The same, but at every 50th, from any of them on."""
    first = int(rng.integers(50))
    return [LONG if place % 50 == first else SHORT for place in range(batches)]


def speedup(run: Run) -> Estimate:
    comparison = run_times(run).comparison
    assert comparison is not None
    assert comparison.gain is not None
    return comparison.gain.steady_speedup


@pytest.mark.check
@pytest.mark.parametrize(("loads", "runs"), [(random_stalls, 300), (regular_stalls, 60)])
def test_counting_stalls_everywhere_gives_narrower_intervals_that_hold(
    loads: Draw, runs: int
) -> None:
    """They contain the truth in nine of ten runs; beside those from real blocks alone."""
    rng = np.random.default_rng(7)
    endless = Queued(loads(rng, 50_000), QUEUE)
    true = 1 + sum(endless.take(STEP) for _ in range(50_000)) / 50_000 / STEP
    covered, widths = 0, list[tuple[float, float]]()
    for _ in range(runs):
        run = alternated(Queued(loads(rng, BATCHES), QUEUE), SIMULATED, noise=rng)
        bare = tuple(replace(prefetch, waits_ns=()) for prefetch in run.prefetches)
        (low, high), (least, most) = (
            bounds(speedup(variant)) for variant in (run, replace(run, prefetches=bare))
        )
        covered += int(low <= true <= high)
        widths.append((high - low, most - least))
    assert covered >= 0.9 * runs
    counted, within = np.median(widths, axis=0)
    assert counted < within
