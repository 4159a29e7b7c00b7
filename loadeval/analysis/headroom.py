"""Real against ideal: how much faster training would be if loading were free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.alone import loader_only_ns as timed_alone_ns
from loadeval.analysis.alone import not_measured as unknown_of
from loadeval.analysis.arms import paired, side_of_run
from loadeval.analysis.caution import about_two_runs, more_faults, not_quite_free, same_unit
from loadeval.analysis.checks import drift_ns, loads_ahead, too_busy
from loadeval.analysis.epochs import epochs_of, starting_up
from loadeval.analysis.figures import figures
from loadeval.analysis.gpu_idle import gpu_idle_ns, hidden_waits
from loadeval.analysis.intervals import Estimate, over_pairs, over_runs
from loadeval.analysis.stalls import missed_stall_ns, widened
from loadeval.analysis.summary import summarise
from loadeval.analysis.unmeasured import no_pace, no_pair
from loadeval.analysis.verdict import HIGH_SHARE, MODERATE_SHARE, Evidence, judge
from loadeval.errors import UsageError
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from loadeval.analysis.figures import Figures
    from loadeval.analysis.verdict import Verdict
    from loadeval.runlog.model import Arm, Run

__all__ = ["HIGH_SHARE", "MODERATE_SHARE", "Estimate", "Headroom", "compare", "headroom"]


@dataclass(frozen=True, slots=True)
class Headroom:
    """What free loading gains; times are in nanoseconds per batch of the real arm.

    `speedup` is the ratio of the mean iterations per sample (per batch where samples are unknown,
    or called differently). `lost_ns` = `real_ns` - `ideal_ns` is the sum of `waiting_ns`, the
    difference of the waits, and `contention_ns`, the difference of the steps: what the
    loader's workers take from the training process. Either may be negative; a step that ends by
    waiting for a device is shorter when the device had work during the wait. `lost_share` =
    1 - 1 / `speedup` gives the verdict, with its interval. `required` = `loader_only_ns` /
    `ideal_ns` is how many times as fast the loader alone would have to be; None for a loader that
    loads nothing while a step runs, whose time is added to the step's. `epoch_start_ns` is the mean
    first wait of an epoch, `gpu_idle_ns` how long the device had nothing to do in the wait for a
    real batch, by its own clock, and `epoch_speedup` what free loading is worth with it, over
    epochs as long as they are. `pairs` is None for two separate runs. What cannot be known is
    None, and `not_measured` says why, a sentence each.
    """

    speedup: Estimate | None
    lost_share: Estimate | None
    real_ns: float | None
    ideal_ns: float | None
    loader_only_ns: float | None
    lost_ns: Estimate | None
    waiting_ns: Estimate | None
    contention_ns: Estimate | None
    required: float | None
    epoch_start_ns: float | None
    gpu_idle_ns: float | None
    epoch_speedup: float | None
    samples_per_batch: float | None
    unit: str
    pairs: int | None
    real_batches: int
    ideal_batches: int
    verdict: str
    reason: str
    advice: str
    caution: str
    not_measured: tuple[str, ...]

    def __str__(self) -> str:
        """The finding in one line."""
        if self.speedup is None:
            return f"{self.verdict}: {self.reason}"
        low, high = self.speedup.low, self.speedup.high
        interval = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
        gain = f"{self.speedup.value:.2f}x{interval} if loading were free"
        return f"{gain}: {self.verdict}, {self.reason}"


def headroom(run: Run) -> Headroom:
    """The headroom that one alternating run measured.

    Raises UsageError when the run is not an alternating one.
    """
    if run.header.mode != "alternate":
        raise UsageError(
            f"{run.path or run.header.name} was recorded with mode={run.header.mode!r}; expected "
            "a run with mode='alternate'. A run with mode='log' and one with mode='replay' are "
            "compared by plot_comparison(real_log, ideal_log), and by: loadeval compare REAL IDEAL"
        )
    pairs, real, ideal = paired(run)
    found = figures(real, ideal, over_pairs)
    alone_ns = timed_alone_ns(run, found.samples_per_batch)
    busy = too_busy(run, pairs)
    verdict = no_pair(run, found)
    if found.gain is not None:
        required = _required(run, alone_ns, found)
        ahead = loads_ahead(run.header.loader)
        missed_ns = missed_stall_ns(run, found)
        gain = widened(found.gain, missed_ns, found.real_batches)
        found = replace(found, gain=gain)
        verdict = judge(Evidence(found, gain, True, required, busy, 0.0, missed_ns, ahead))
    return _headroom(
        run,
        found,
        verdict,
        caution=" ".join(filter(None, [not_quite_free(busy), more_faults(run, found)])),
        loader_only_ns=alone_ns,
        pairs=len(pairs),
        not_measured=unknown_of(run, found, pairs),
    )


def compare(real: Run, ideal: Run) -> Headroom:
    """The headroom between a run that loaded and one that replayed.

    Raises UsageError when a run is not of the arm that its place asks for.
    """
    _check_arm(real, "real")
    _check_arm(ideal, "ideal")
    one, other = side_of_run(real), side_of_run(ideal)
    found = figures(one, other, over_runs, same_unit(real, ideal))
    verdict = no_pace([(real, one.count, found.real_ns), (ideal, other.count, found.ideal_ns)])
    if found.gain is not None:
        known, scale = found.samples_per_batch is not None, found.samples_per_batch or 1.0
        drifts = [drift_ns(side.iterations(known)) * scale for side in (one, other)]
        verdict = judge(Evidence(found, found.gain, alternating=False, drift_ns=max(drifts)))
    return _headroom(
        real, found, verdict, about_two_runs(real, ideal, summarise(real), summarise(ideal))
    )


def _check_arm(run: Run, arm: Arm) -> None:
    found = [ARMS[code] for code in np.unique(run.steps.arm)]
    if run.header.mode == "replay" and "ideal" in found:
        found = ["ideal"]  # the real batches before it count nowhere
    if run.header.mode == "alternate" or (found and found != [arm]):
        wanted = {"real": "mode='log'", "ideal": "mode='replay'"}[arm]
        advice = "Are the two the other way round, or the same one?"
        if run.header.mode == "alternate":
            advice = "An alternating run has both: give it alone."
        raise UsageError(
            f"{run.path or run.header.name} was recorded with mode={run.header.mode!r}; expected "
            f"a run with {wanted} as the {arm} one. {advice}"
        )


def _headroom(
    run: Run,
    found: Figures,
    verdict: Verdict,
    caution: str,
    loader_only_ns: float | None = None,
    pairs: int | None = None,
    not_measured: tuple[str, ...] = (),
) -> Headroom:
    gain, epochs = found.gain, epochs_of(run)
    epoch_speedup = gain and epochs.speedup(gain.real_ns, gain.ideal_ns)
    return Headroom(
        speedup=gain and gain.speedup,
        lost_share=gain and gain.lost_share,
        real_ns=found.real_ns,
        ideal_ns=found.ideal_ns,
        loader_only_ns=loader_only_ns,
        lost_ns=gain and gain.lost_ns,
        waiting_ns=gain and gain.waiting_ns,
        contention_ns=gain and gain.contention_ns,
        required=_required(run, loader_only_ns, found),
        epoch_start_ns=epochs.epoch_start_ns,
        gpu_idle_ns=gpu_idle_ns(run, "real"),
        epoch_speedup=epoch_speedup,
        samples_per_batch=found.samples_per_batch,
        unit=run.header.unit,
        pairs=pairs,
        real_batches=found.real_batches,
        ideal_batches=found.ideal_batches,
        verdict=verdict.verdict,
        reason=verdict.reason,
        advice=" ".join(filter(None, [verdict.advice, starting_up(gain, epochs)])),
        caution=" ".join(filter(None, [caution, hidden_waits(run)])),
        not_measured=not_measured,
    )


def _required(run: Run, alone_ns: float | None, found: Figures) -> float | None:
    if not loads_ahead(run.header.loader):
        return None  # its time is added to the step's, however short it is
    return alone_ns / found.ideal_ns if alone_ns is not None and found.ideal_ns else None
