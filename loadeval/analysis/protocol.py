"""What the runs of the bottleneck protocol say together, and which of them to believe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis.doctor import LoaderPlan

if TYPE_CHECKING:
    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.report import Report
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
            for report in ordered:
                if report is not None and is_good(report):
                    return report
        return self.separate or self.alternating

    @property
    def speedups(self) -> tuple[Estimate, Estimate] | None:
        """The speed-ups of both, of the same span: whole epochs, or else the steady state."""
        gains = [_headroom(gain) for gain in (self.separate, self.alternating)]
        known = [gain for gain in gains if gain is not None]
        whole = [gain.speedup for gain in known if gain.epoch_starts_ns is not None]
        same = whole if len(whole) == len(known) else [gain.steady_speedup for gain in known]
        speedups = [gain for gain in same if gain is not None]
        return (speedups[0], speedups[1]) if len(speedups) == len(gains) else None

    @property
    def agree(self) -> bool | None:
        """Whether their 95% intervals overlap; None where either has none."""
        if self.speedups is None:
            return None
        first, second = self.speedups
        if first.low is None or first.high is None or second.low is None or second.high is None:
            return None
        return first.low <= second.high and second.low <= first.high

    @property
    def apart(self) -> float | None:
        """The ratio of the larger speed-up to the smaller one."""
        if self.speedups is None:
            return None
        less, more = sorted(speedup.value for speedup in self.speedups)
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
    gain = _headroom(report)
    return gain is not None and gain.verdict.objection is None
