"""Measures settings in turns, and what each gives over a whole epoch."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from loadeval.analysis.estimate.arms import run_times
from loadeval.analysis.estimate.epochs import epoch_starts_of, epochs_of
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.throughput import throughput_ratio, throughputs
from loadeval.analysis.predict.tuning import Outcome
from loadeval.errors import UsageError, in_words
from loadeval.probes import probes_named
from loadeval.runtime.adapter import IterableAdapter
from loadeval.runtime.alternation.backends import Backend, BackendRunner
from loadeval.runtime.background.metrics_thread import Probes
from loadeval.runtime.registry import adapter_for
from loadeval.runtime.settings import DEFAULT_PROBE_INTERVAL_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loadeval.analysis.estimate.arms import Gain, RunTimes
    from loadeval.analysis.estimate.epochs import EpochStarts
    from loadeval.runlog.model import Run
    from loadeval.runtime.alternation.backends import BackendRun
    from loadeval.runtime.settings import EvaluatorSettings
    from loadeval.tuning.loaders import LoaderMaker
    from loadeval.tuning.progress import ProgressCallback


class GroupResult(NamedTuple):
    """What measuring settings in turns gave, with the runs behind it."""

    outcomes: list[Outcome]
    runs: list[Run | None]
    errors: list[Exception | None]
    wholes: list[EpochThroughput | None]
    interrupted: bool


class Turns:
    """Measures settings in turns. `epoch_batches` is the length of an epoch; None: the loader's."""

    def __init__(
        self,
        maker: LoaderMaker,
        step: Callable[[Any], object],
        settings: EvaluatorSettings,
        on_progress: ProgressCallback,
        epoch_batches: int | None,
    ) -> None:
        self._maker = maker
        self._step = step
        self._settings = settings
        self._on_progress = on_progress
        self._epoch_batches = epoch_batches

    def measure(
        self, group: Sequence[Mapping[str, Any]], by_sample: bool | None, part: float = 1.0
    ) -> GroupResult:
        """`by_sample` tells whether throughput is in samples; None: where they are known.

        `part` of the batches are measured. Raises UsageError where `make` does not use the
        settings.
        """
        names = [
            ", ".join(f"{name}={settings[name]!r}" for name in settings) or "present"
            for settings in group
        ]
        backends: dict[str, Backend] = {}
        failed: dict[str, Exception] = {}
        for name, settings in zip(names, group, strict=True):
            try:
                loader = self._maker.make(settings)
            except Exception as error:  # noqa: BLE001 - the others go on
                failed[name] = error
                continue
            self._maker.check(loader, settings)
            backends[name] = Backend(self._reiterable(loader, settings))
        evaluator_settings = replace(
            self._settings, batches=round((self._settings.batches or 0) * part)
        )
        runner = TrialRunner(
            backends, evaluator_settings, partial(self._probes, evaluator_settings)
        )
        runner.on_batch = partial(self._on_progress, _naming(group))
        results = {name: (run, error) for name, run, error in runner.run(self._step, {})}
        runs = [results[name][0] if name in results else None for name in names]
        errors = [results[name][1] if name in results else failed[name] for name in names]
        return group_result(runs, errors, by_sample, self._epoch_batches, runner.interrupted)

    def _reiterable(self, loader: Any, settings: Mapping[str, Any]) -> Any:
        is_iterator = hasattr(type(loader), "__next__")
        if is_iterator and type(adapter_for(loader)) is IterableAdapter:
            return lambda: self._maker.make(settings)
        return loader

    @staticmethod
    def _probes(settings: EvaluatorSettings) -> Probes:
        probes = probes_named(settings.probes, threads=settings.looks_inside)
        return Probes(probes, DEFAULT_PROBE_INTERVAL_S)


def group_result(
    runs: Sequence[Run | None],
    errors: Sequence[Exception | None],
    by_sample: bool | None,
    epoch_batches: float | None,
    interrupted: bool = False,
) -> GroupResult:
    """What these runs measured; those with an error measured nothing."""
    wholes = [
        None if run is None or error else epoch_throughput_of(run, by_sample, epoch_batches)
        for run, error in zip(runs, errors, strict=True)
    ]
    outcomes = [
        _outcome(number, wholes) if error is None else Outcome(error=in_words(error))
        for number, error in enumerate(errors)
    ]
    return GroupResult(outcomes, list(runs), list(errors), wholes, interrupted)


class EpochThroughput(NamedTuple):
    """A run's throughput in the steady state, and the factor to that over an epoch.

    `starts_error` is the relative error of that factor; the factor is None if the length of an
    epoch is unknown. `starts_ns` is what the start and end of an epoch add to it.
    """

    times: RunTimes
    by_sample: bool
    throughput: Estimate
    factor: float | None
    starts_error: float
    starts_ns: float
    epoch_batches: float | None

    @property
    def gain(self) -> Gain | None:
        """What ideal loading would gain."""
        comparison = self.times.comparison
        return None if comparison is None else comparison.gain


def epoch_throughput_of(
    run: Run, by_sample: bool | None, epoch_batches: float | None
) -> EpochThroughput | None:
    """What a run measured; None where it measured nothing."""
    times = run_times(run)
    real_ns = None if times.comparison is None else times.comparison.real_ns
    if not real_ns or not times.real.count:
        return None
    by_sample = times.has_samples if by_sample is None else by_sample
    throughput = throughputs(run, by_sample)[0]
    assert throughput is not None  # noqa: S101 - it took time
    starts = starts_of(run, epoch_batches)
    if starts is None:
        return EpochThroughput(times, by_sample, throughput, None, 0.0, 0.0, epochs_of(run).batches)
    added_ns, error = starts.added_ns(real_ns), starts.error(real_ns)
    whole_ns = real_ns + added_ns
    half = 0.0 if error is None else error.half_width / whole_ns
    return EpochThroughput(
        times,
        by_sample,
        throughput,
        real_ns / whole_ns,
        half,
        added_ns * starts.batches,
        starts.batches,
    )


def starts_of(run: Run, epoch_batches: float | None) -> EpochStarts | None:
    """The starts of epochs, as training would see them.

    If workers persist, only epochs in which none was started count, if there was such an epoch;
    and else only those in which some were: settings in turns keep workers while others load.
    """
    if epoch_batches is not None:
        loader = replace(run.header.loader, length=int(epoch_batches))
        run = replace(run, header=replace(run.header, loader=loader))
    starts = epoch_starts_of(run)
    started = {start.epoch for start in run.worker_starts}
    steps, persist = run.steps, bool(run.header.loader.persistent_workers)
    alike = [(epoch in started) != persist for epoch in steps.epoch.tolist()]
    if started and any(alike):
        kept = replace(
            steps, **{field.name: getattr(steps, field.name)[alike] for field in fields(steps)}
        )
        starts = epoch_starts_of(replace(run, steps=kept)) or starts
    if starts is None or epoch_batches is None:
        return starts
    return replace(starts, batches=float(epoch_batches))


def _outcome(number: int, wholes: Sequence[EpochThroughput | None]) -> Outcome:
    whole = wholes[number]
    if whole is None:
        return Outcome()
    epoch = None
    if whole.factor is not None:
        epoch = _scaled(whole.throughput, whole.factor, whole.starts_error)
    over = {}
    for position, other in enumerate(wholes):
        if position == number or other is None:
            continue
        ratio = throughput_ratio(whole.times, other.times, whole.by_sample, together=True)
        if whole.factor is not None and other.factor is not None:
            error = (whole.starts_error**2 + other.starts_error**2) ** 0.5
            ratio = _scaled(ratio, whole.factor / other.factor, error)
        over[position] = ratio
    return Outcome(whole.throughput, epoch, over)


def _scaled(estimate: Estimate, factor: float, error: float) -> Estimate:
    """`estimate` times `factor`, which has the relative half-width `error` and is independent."""
    value = estimate.value * factor
    if estimate.low is None or estimate.high is None:
        return Estimate(value)
    low, high = (
        (abs(bound / estimate.value - 1) ** 2 + error**2) ** 0.5
        for bound in (estimate.low, estimate.high)
    )
    return Estimate(value, value * max(1 - low, 0.0), value * (1 + high))


class TrialRunner(BackendRunner):
    """Rounds in which a backend's training step may fail too, and which Ctrl-C ends early.

    `on_batch` is called after each batch, with how many are done and how many there are.
    """

    interrupted = False
    on_batch: Callable[[int, int], None]
    _done = 0

    def _look(self, name: str, backend: Backend) -> None:
        try:
            super()._look(name, backend)
        except UsageError as error:
            self._errors[name] = error

    def _round(
        self, runs: Mapping[str, BackendRun], step: Callable[[Any], object], number: int
    ) -> None:
        order = list(runs.items())
        random.Random(f"{self._settings.seed}/round {number}").shuffle(order)  # noqa: S311 - no secret
        total = 2 * len(order) * (self._settings.batches or 0)
        for _, run in order:
            if self.interrupted:
                return
            if run.error is not None:
                continue
            try:
                with closing(run.serve_round(number)) as batches:
                    for batch in batches:
                        step(batch)
                        self._done += 1
                        self.on_batch(self._done, total)
            except KeyboardInterrupt:
                self.interrupted = True
            except Exception as error:  # noqa: BLE001 - the others go on
                run.error = error
            if _came_of_interrupt(run.error):
                run.error, self.interrupted = None, True


def _came_of_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is the cause: if it ended workers, the loader raises an error of its own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _naming(group: Sequence[Mapping[str, Any]]) -> str:
    return "present settings" if len(group) == 1 else f"{len(group)} settings in turns"
