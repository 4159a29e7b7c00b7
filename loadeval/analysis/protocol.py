"""What the runs of the bottleneck protocol say together, and which of them to believe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis.doctor import LoaderPlan

if TYPE_CHECKING:
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.report import Report
    from loadeval.analysis.stats import Estimate
    from loadeval.runlog.model import LoaderInfo


@dataclass(frozen=True, slots=True)
class Answers:
    """The same question answered in two ways; None where a way has no answer.

    `separate` is of a real run and a run that replayed, or of the real one alone; `alternating` is
    of one run.
    """

    separate: Report | None
    alternating: Report | None

    @property
    def best(self) -> Report | None:
        """The one to believe.

        That is the alternating run, whose arms had the same machine; where only the other is
        conclusive, or was compared at all, that one.
        """
        ordered = (self.alternating, self.separate)
        for is_good in (_is_conclusive, _is_comparison):
            for one in ordered:
                if one is not None and is_good(one):
                    return one
        return self.separate or self.alternating

    @property
    def speedups(self) -> tuple[Estimate, Estimate] | None:
        """The speed-ups of both, of the same span: whole epochs, or else the steady state."""
        gains = [_headroom(one) for one in (self.separate, self.alternating)]
        known = [one for one in gains if one is not None]
        whole = [one.speedup for one in known if one.epoch_starts_ns is not None]
        same = whole if len(whole) == len(known) else [one.steady_speedup for one in known]
        found = [one for one in same if one is not None]
        return (found[0], found[1]) if len(found) == len(gains) else None

    @property
    def agree(self) -> bool | None:
        """Whether their 95% intervals overlap; None where either has none."""
        if self.speedups is None:
            return None
        one, other = self.speedups
        if one.low is None or one.high is None or other.low is None or other.high is None:
            return None
        return one.low <= other.high and other.low <= one.high

    @property
    def apart(self) -> float | None:
        """The ratio of the larger speed-up to the smaller one."""
        if self.speedups is None:
            return None
        less, more = sorted(one.value for one in self.speedups)
        return more / less


def plan_of(loader: LoaderInfo) -> LoaderPlan:
    """The loader that the machine is judged for; what is not known as `loadeval doctor` has it."""
    assumed = LoaderPlan()
    if not loader.workers or not loader.prefetch_depth:
        return LoaderPlan(workers=loader.workers)
    prefetch = max(loader.prefetch_depth // loader.workers, 1)
    return LoaderPlan(loader.workers, prefetch, assumed.batch_bytes)


def _headroom(report: Report | None) -> Headroom | None:
    return report.comparison.headroom if report is not None and report.comparison else None


def _is_comparison(report: Report) -> bool:
    return report.comparison is not None


def _is_conclusive(report: Report) -> bool:
    found = _headroom(report)
    return found is not None and found.verdict.objection is None
