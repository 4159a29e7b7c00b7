"""What if: throughput under other settings, predicted from a recorded run, never measured.

The batches of the run are replayed by the rules of torch's DataLoader (see `simulation`), under
the new settings and under those that it had (see `recorded`).

The CPU time of a batch grows with the CPUs in use, for they share caches and memory. By how much
is fitted where runs with different numbers of workers are given, and else taken from GROWTH.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from loadeval.analysis.inside.stages import Blockage
from loadeval.analysis.predict.change import GROWTH, Change, ChangedLoader
from loadeval.analysis.predict.faster import FasterError, full_name
from loadeval.analysis.predict.prediction import Prediction, Range, WorkerCurve
from loadeval.analysis.predict.recorded import (
    RESUME_NS,
    PresentReplay,
    Recorded,
    worker_bytes,
)
from loadeval.analysis.predict.simulation import iteration_ns
from loadeval.data.run import Run
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

GROWTH_STEP, MOST_STEPS = 0.02, 25
"""How exactly growth is fitted, and how far: to 0.5."""


class Length(NamedTuple):
    """How many batches an epoch has, and how many epochs there are."""

    batches: float
    epochs: int


class LoaderModel:
    """A recorded loader, and what it would do under other settings."""

    def __init__(self, recorded: Sequence[Recorded]) -> None:
        self._recorded = list(recorded)

    @classmethod
    def of(cls, runs: Run | Sequence[Run]) -> LoaderModel:
        """Model of a loader: from a run that alternates, or several that differ in `num_workers`.

        Raises UsageError where a run does not tell what happens inside the loader, or what a
        training step takes without loading.
        """
        given = [runs] if isinstance(runs, Run) else list(runs)
        if not given:
            raise UsageError("no run was given; expected one at least, of mode 'alternate'")
        recorded = [Recorded.of(run) for run in given]
        if len(given) > 1:
            each_bytes = worker_bytes(*given)
            recorded = [replace(run, worker_bytes=each_bytes) for run in recorded]
        return cls(recorded)

    @property
    def num_workers(self) -> int:
        """The workers of the present run."""
        return self._recorded[-1].setting.workers

    @cached_property
    def growth(self) -> tuple[float, float, float]:
        """The share that each further CPU in use adds to a batch's CPU time: least to most.

        Fitted where runs differ in their number of workers.
        """
        if len({run.setting.workers for run in self._recorded if run.setting.workers}) <= 1:
            return GROWTH
        misfit = cache(lambda steps: self._misfit(GROWTH_STEP * steps))
        best = min(range(0, MOST_STEPS + 1, 5), key=misfit)
        for apart in (2, 2, 1):  # each misfit takes many replays
            near = (best, best - apart, best + apart)
            best = min((steps for steps in near if 0 <= steps <= MOST_STEPS), key=misfit)
        return GROWTH_STEP * max(best - 1, 0), GROWTH_STEP * best, GROWTH_STEP * (best + 1)

    @property
    def in_turn(self) -> tuple[bool, ...]:
        """Whether workers read one after the other; both where that is not known, as is likely.

        A disk is likely to give several workers no more in sum, and other storage to answer each
        of them as fast.
        """
        last = self._recorded[-1]
        if not last.may_share_bandwidth:
            return (False,)
        return (True, False) if last.blockage is Blockage.DISK else (False, True)

    def _misfit(self, growth: float) -> float:
        """By how much what each run with workers tells of each other is off: a sum of squares."""
        misfit = 0.0
        for run in self._recorded:
            costs = run.present(growth).costs
            for other in self._recorded:
                setting = replace(other.setting, growth=growth)
                if setting.workers and run.setting.workers and other is not run:
                    predicted_ns = iteration_ns(costs, setting)
                    misfit += math.log(predicted_ns / other.measured_ns) ** 2
        return misfit

    @property
    def present(self) -> PresentReplay:
        """The replay of the settings that the present run had, with the least growth."""
        return self._present(self._recorded[-1], self.growth[0])

    def _present(self, recorded: Recorded, growth: float) -> PresentReplay:
        return recorded.present(growth, in_turn=self.in_turn[0])

    def predict(
        self,
        *,
        num_workers: int | None = None,
        prefetch_factor: int | None = None,
        cpus: float | None = None,
        in_order: bool | None = None,
        batch_size: int | None = None,
        faster: Mapping[str, float] | None = None,
    ) -> Prediction:
        """What training would do under these settings. Raises UsageError as `whatif`."""
        _check(num_workers, prefetch_factor, cpus, batch_size, faster)
        last = self._recorded[-1]
        workers = self.num_workers if num_workers is None else num_workers
        if prefetch_factor is not None and not workers:
            raise UsageError(
                f"prefetch_factor is {prefetch_factor} and num_workers is 0; expected workers, for "
                "only they prefetch: leave it out, or ask for 1 worker or more"
            )
        nearest = self._nearest(workers)
        setting = replace(
            last.setting,
            workers=workers,
            prefetch_factor=prefetch_factor or last.setting.prefetch_factor,
            in_order=last.setting.in_order if in_order is None else in_order,
            cpus=last.setting.cpus if cpus is None else cpus,
            others_cpus=last.setting.others_cpus if cpus is None else 0.0,
            affinity=last.setting.affinity if cpus is None else None,
        )
        in_full = _in_full(nearest, faster or {})
        return self._prediction(ChangedLoader(nearest, setting, batch_size, in_full))

    def speedup(self, num_workers: int, length: Length) -> float:
        """The speed-up with so many workers: that of `predict` and `with_starts`, in less time."""
        measured_ns = self._recorded[-1].measured_ns
        change = Change({"workers": num_workers}, more_workers=True)
        iteration_ns = self.share_left(change) * measured_ns
        return measured_ns / self.with_starts(iteration_ns, num_workers, length)

    def share_left(self, change: Change) -> float:
        """What is left of an iteration with `change`: the replay of it over the present one.

        Both with the least growth, without more workers: what is lost now does not depend on how
        much slower CPUs become when more of them are in use.
        """
        growth = self.growth[1 if change.more_workers else 0]
        changed = self._changed(change)
        usual = changed.usual(self._present(changed.recorded, growth))
        return usual.iteration_ns / self._recorded[-1].measured_ns

    def with_change(self, change: Change) -> Prediction:
        """The same as it was, but for `change`."""
        return self._prediction(self._changed(change))

    def _changed(self, change: Change) -> ChangedLoader:
        setting = replace(self._recorded[-1].setting, **change.settings)
        return ChangedLoader(self._nearest(setting.workers), setting, None, {}, change)

    def with_starts(self, iteration_ns: float, num_workers: int, length: Length) -> float:
        """A mean iteration over whole epochs of a run without workers that is to have some.

        These start once, and live on.
        """
        if self.num_workers or not num_workers:
            return iteration_ns
        starts_ns = self.starts_ns(num_workers, length.epochs)
        return iteration_ns + (starts_ns + self.edge_ns(num_workers)) / length.batches

    def edge_ns(self, num_workers: int) -> float:
        """What an epoch takes longer because nothing is loaded ahead of its first batch.

        Where the step is the limit, loading it comes on top, and else the last step does.
        """
        costs = self._recorded[-1].costs
        fetch_ns = float(costs.fetch_ns.mean())
        return fetch_ns if fetch_ns <= num_workers * costs.step_ns else costs.step_ns

    def starts_ns(self, num_workers: int, epochs: float) -> float:
        """What starting so many workers takes of each epoch, where they live on for `epochs`."""
        return num_workers * (self._nearest(num_workers).start_ns / epochs + RESUME_NS)

    @property
    def is_passing_known(self) -> bool:
        """Whether it is known what passing a batch from a worker would take."""
        last = self._recorded[-1]
        return bool(last.setting.workers) or last.tensors is not None

    def _nearest(self, workers: int) -> Recorded:
        """The run whose number of workers is the nearest."""

        def distance(run: Recorded) -> float:
            return abs(math.log((run.setting.workers + 0.5) / (workers + 0.5)))

        return min(self._recorded, key=distance)

    def _prediction(self, changed: ChangedLoader) -> Prediction:
        """What training would do with that loader."""
        return changed.prediction(
            self._iteration(changed),
            self._present(changed.recorded, self.growth[1]),
            self._recorded[-1].measured_ns,
            is_fitted=self.growth != GROWTH,
        )

    def _iteration(self, changed: ChangedLoader) -> Range:
        """How long an iteration takes, in nanoseconds."""
        presents = [
            changed.recorded.present(growth, in_turn=each)
            for each in self.in_turn
            for growth in self.growth
        ]
        present = self._present(changed.recorded, self.growth[1])
        usual = changed.usual(present)
        times_ns = [usual.iteration_ns]
        times_ns += [changed.replayed(present).iteration_ns for present in presents]
        if changed.are_first:
            hindered = (changed.replayed(present, hindered=True) for present in presents)
            times_ns += [replay.iteration_ns for replay in hindered]
        cases = (min(times_ns), usual.iteration_ns, max(times_ns))
        return changed.iteration(cases, usual.spread, present)

    def curve(self) -> WorkerCurve:
        """Throughput without workers and with some, until twice the CPUs, or those there are."""
        last = self._recorded[-1]
        most = 2 * max(last.setting.workers, math.ceil(last.setting.cpus or 1), 2)
        counts = {0, *spread(1, most), *(run.setting.workers for run in self._recorded)}
        return WorkerCurve(
            tuple((run.setting.workers, run.rate) for run in self._recorded),
            tuple(self.predict(num_workers=count) for count in sorted(counts)),
            last.unit,
            last.setting.cpus,
            last.setting.others_cpus,
        )


def whatif(
    runs: Run | Sequence[Run],
    *,
    num_workers: int | None = None,
    prefetch_factor: int | None = None,
    cpus: float | None = None,
    in_order: bool | None = None,
    batch_size: int | None = None,
    faster: Mapping[str, float] | None = None,
) -> Prediction:
    """What training would do under other settings; None leaves one as it was.

    `runs` is one of mode "alternate", or several of the same loader with different numbers of
    workers, which show how its CPU time grows with them. `cpus` are those that
    training and its workers may share. `faster` maps a transform or function, or "fetch",
    "collate", "indices", "hand-over", "pin" or "step", to how many times as fast it becomes. The
    last part of a name, behind a dot, will do where no other ends so.

    Raises UsageError where a run does not tell what happens inside the loader, or what a training
    step takes without loading, and for a value that no loader can have.
    """
    return LoaderModel.of(runs).predict(
        num_workers=num_workers,
        prefetch_factor=prefetch_factor,
        cpus=cpus,
        in_order=in_order,
        batch_size=batch_size,
        faster=faster,
    )


def spread(first: int, last: int) -> list[int]:
    """Numbers from `first` to `last`, the larger ones some 20% apart."""
    counts = [first]
    while counts[-1] < last:
        counts.append(min(counts[-1] + max(counts[-1] // 5, 1), last))
    return counts


def _in_full(recorded: Recorded, faster: Mapping[str, float]) -> dict[str, float]:
    """`faster` with full names. Raises FasterError where two of its names mean the same."""
    in_full: dict[str, float] = {}
    for given, factor in faster.items():
        name = full_name(given, recorded.costs.named_ns, recorded.nameable)
        if name in in_full:
            raise FasterError(f"faster has {name!r} twice; expected each part once")
        in_full[name] = factor
    return in_full


def _check(
    num_workers: int | None,
    prefetch_factor: int | None,
    cpus: float | None,
    batch_size: int | None,
    faster: Mapping[str, float] | None,
) -> None:
    for name, value, least in (
        ("num_workers", num_workers, 0),
        ("prefetch_factor", prefetch_factor, 1),
        ("batch_size", batch_size, 1),
    ):
        if value is not None and (type(value) is not int or value < least):
            raise UsageError(f"{name} is {value!r}; expected a whole number, {least} or more")
    if cpus is not None and not cpus > 0:
        raise UsageError(f"cpus is {cpus!r}; expected a number above 0")
    factors: Mapping[str, object] = faster or {}
    for part, factor in factors.items():
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not factor > 0:
            raise FasterError(
                f"faster has {factor!r} for {part!r}; expected how many times as fast it becomes, "
                "above 0: 2 is twice as fast"
            )
