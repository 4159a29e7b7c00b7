"""What one run counted, round by round, and the throughput that it makes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.arms import Side, paired, side_of_run
from loadeval.analysis.figures import figures
from loadeval.analysis.intervals import Estimate, Pace, over_pairs, over_runs, ratio
from loadeval.analysis.stalls import RULE_OF_THREE, missed_stall_ns
from loadeval.runlog.model import SECOND_NS

if TYPE_CHECKING:
    from loadeval.analysis.intervals import Series, Spread
    from loadeval.runlog.model import Run


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """What counts of a run: an entry for each of `rounds`, or for each batch of a log run.

    `rounds` and `ideal` are None for a log run. `missed` is the share by which the real pace may
    be slower than its batches say, for stalls that fell beside them.
    """

    real: Side
    ideal: Side | None = None
    rounds: tuple[int, ...] | None = None
    missed: float = 0.0

    @property
    def has_samples(self) -> bool:
        """Whether the samples of all batches are known."""
        known = self.real.samples is not None
        return known and (self.ideal is None or self.ideal.samples is not None)

    @property
    def spread(self) -> Spread:
        """What tells its interval."""
        return over_runs if self.rounds is None else over_pairs

    def only(self, rounds: set[int]) -> Counted:
        """Of its `rounds` these, its real side alone."""
        own = self.rounds or ()
        rows = np.isin(own, list(rounds))
        samples = None if self.real.samples is None else self.real.samples[rows]
        real = self.real
        part = Side(real.wait_ns[rows], real.step_ns[rows], real.batches[rows], samples)
        return Counted(part, None, tuple(number for number in own if number in rounds), self.missed)


def counted_of(run: Run) -> Counted:
    """What counts of a run that alternated, or logged."""
    if run.header.mode != "alternate":
        return Counted(side_of_run(run))
    rounds, real, ideal = paired(run)
    found = figures(real, ideal, over_pairs)
    missed = 0.0
    if found.real_ns is not None:
        missed_ns = RULE_OF_THREE * missed_stall_ns(run, found)
        missed = missed_ns / found.real_batches / found.real_ns
    return Counted(real, ideal, tuple(rounds), missed)


def throughput(side: Side, spread: Spread, by_sample: bool, missed: float = 0.0) -> Estimate | None:
    """Samples, or batches, per second; None where nothing counts, or it took no time.

    `missed` is as in Counted.
    """
    return _per_second(side.iterations(by_sample), spread, missed)


def loader_alone(run: Run, by_sample: bool) -> Estimate | None:
    """The throughput of the loader with nobody training; None where it was not timed.

    None too where its samples are not known, and are asked for.
    """
    prefetches = [prefetch for prefetch in run.prefetches if prefetch.timed]
    if by_sample and not all(prefetch.samples for prefetch in prefetches):
        return None
    _, index = np.unique([prefetch.pair for prefetch in prefetches], return_inverse=True)
    amounts = [float((by_sample and prefetch.samples) or prefetch.timed) for prefetch in prefetches]
    elapsed_ns = [float(prefetch.elapsed_ns) for prefetch in prefetches]
    summed = (np.bincount(index, values).astype(np.float64) for values in (elapsed_ns, amounts))
    return _per_second(Pace(*summed), over_pairs)


def throughput_ratio(one: Counted, other: Counted, by_sample: bool, together: bool) -> Estimate:
    """The throughput of `one` over that of `other`, both of which have one.

    `together` tells that both took turns in the same rounds: their ratio in each is then one
    observation, in which drift slower than a round is gone.
    """
    spread: Spread = over_pairs
    shared = set(one.rounds or ()) & set(other.rounds or ())
    if together and shared:
        one, other = one.only(shared), other.only(shared)
    else:
        spread = _apart(other.spread, one.spread)
    found = ratio(other.real.iterations(by_sample), one.real.iterations(by_sample), spread)
    return _widened(found, one.missed, other.missed)


def _per_second(pace: Pace, spread: Spread, missed: float = 0.0) -> Estimate | None:
    if not pace.total_ns.sum():
        return None
    ones = np.ones(len(pace.total_ns))
    return _widened(ratio(Pace(SECOND_NS * ones, ones), pace, spread), missed)


def _widened(found: Estimate, slower: float, faster: float = 0.0) -> Estimate:
    if found.low is None or found.high is None:
        return found
    return replace(found, low=found.low / (1 + slower), high=found.high * (1 + faster))


def _apart(of_first: Spread, of_second: Spread) -> Spread:
    """The Spread of two series that have nothing to do with each other, each with its own."""

    def spread(first: Series, second: Series) -> float | None:
        one = of_first(first, np.zeros(len(first)))
        other = of_second(second, np.zeros(len(second)))
        return None if one is None or other is None else math.hypot(one, other)

    return spread
