"""Measures the present settings, chooses a space, and measures what a search asks for."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from loadeval.analysis.predict.tuning import (
    WORKERS,
    Search,
    SettingsLeftOut,
    Stop,
    Trial,
    TuningReport,
)
from loadeval.analysis.predict.whatif import LoaderModel
from loadeval.errors import UsageError
from loadeval.probes.cgroup import tightest_cpu
from loadeval.runlog.environment import cpus_usable
from loadeval.tuning.forecasts import PERSIST, PREDICTED, Forecaster, Room

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from typing_extensions import Self

    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.predict.prediction import WorkerCurve
    from loadeval.analysis.predict.tuning import Point
    from loadeval.runlog.model import Run
    from loadeval.tuning.loaders import LoaderMaker
    from loadeval.tuning.trials import EpochThroughput, GroupResult

ALIKE = (WORKERS, "prefetch_factor", "in_order", PERSIST)
"""Settings that do not change what a batch costs. Runs that differ in others do not calibrate."""
COUNTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of workers that are predicted."""
PER_CPU, PER_CPU_WAITING = 2, 8
"""The most workers per CPU that they use, and per CPU of the machine: one that waits uses none."""
PREFETCHES = (2, 4)
DOUBLINGS = 10
STARTS_MATTER = 0.02
"""Workers may be worth keeping if the start of an epoch takes this share of it or more."""
CALIBRATING = 0.5
"""Part of the batches of a trial: the present settings are measured again beside others."""


class Request(NamedTuple):
    """Settings to measure in turns, as Turns.measure does."""

    group: Sequence[Mapping[str, Any]]
    by_sample: bool | None
    part: float = 1.0


class Tuner:
    """Measures the present settings, chooses the space, and then what the search asks for.

    So many `processes` of this machine have such a loader each. `may_end` tells that measurements
    are batches of a training, which may end before the search: what takes few comes first.
    """

    def __init__(
        self,
        maker: LoaderMaker,
        space: Mapping[str, list[Any]],
        max_trials: int,
        room: Room | None = None,
        processes: int = 1,
        *,
        may_end: bool = False,
    ) -> None:
        for name in space:
            if not maker.accepts(name):
                raise UsageError(
                    f"space has {name!r}, which make does not take; expected a function such as "
                    f"lambda **settings: DataLoader(dataset, **settings)"
                )
        self._maker = maker
        self._asked = space
        self._max_trials = max_trials
        self._runs: dict[int, Run] = {}
        self._by_sample: bool | None = None
        self._forecaster: Forecaster | None = None
        self._room = room
        self._cpus = max(cpus() // processes, 1)
        self._may_end = may_end
        self._left: dict[int, Estimate] = {}

    def run(self, measure: Callable[..., GroupResult]) -> Self:
        """Measure what is asked for until the search ends. Raises what tune raises."""
        requests = self.requests()
        request = next(requests)
        with suppress(StopIteration):
            while True:
                try:
                    result = measure(*request)
                except BaseException as error:  # noqa: BLE001, PERF203 - Ctrl-C too is for the search
                    request = requests.throw(error)
                else:
                    request = requests.send(result)
        return self

    def requests(self) -> Generator[Request, GroupResult, None]:
        """What to measure, until the search ends; send what it gave. Raises what tune raises."""
        first = yield Request([self._maker.present], None, CALIBRATING)
        (outcome,), (run,), (error,), (whole,), interrupted = first
        if error is not None:
            raise error
        if run is None or whole is None:
            if interrupted:
                raise KeyboardInterrupt
            raise UsageError(
                "no batch could be measured with the present settings: epochs are too short, or "
                "the step takes no time; pass a loader with longer epochs"
            )
        self._by_sample = whole.by_sample
        self._workers = run.header.loader.workers or 0
        self.epoch_batches = whole.epoch_batches
        if "batch_size" in self._asked and not self._by_sample:
            raise UsageError(
                "space has 'batch_size', and the samples of a batch are not known, so that "
                "throughputs cannot be compared; pass samples=, such as samples=len"
            )
        self._forecaster = self._model_of(run)
        space = self._space(whole)
        self._present = {name: self._maker.value(name) for name in space}
        self.search = search = Search(
            self._present, space, PREDICTED, self._max_trials, *self._depths(space)
        )
        search.add([search.points[0]], [outcome])
        self._learn([search.points[0]], first)
        try:
            while not interrupted and (group := search.next_group(self._forecaster)):
                result = yield Request(list(map(self._settings, group)), self._by_sample)
                search.add(group, result.outcomes)
                self._learn(group, result)
                interrupted = result.interrupted
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:
            search.stopped = Stop.INTERRUPTED

    def report(self, unit: str, step: bool) -> TuningReport:
        """What was found."""
        search = self.search
        trials = tuple(map(self._trial, range(len(search.points))))
        assert search.stopped is not None  # noqa: S101 - it ended
        return TuningReport(
            trials=trials,
            best=trials[search.best],
            gain=search.ratio(search.best) if search.best else None,
            stopped=search.stopped,
            left_out=tuple(
                SettingsLeftOut(self._settings(point), why) for point, why in search.left_out
            ),
            unit=unit if self._by_sample else "batches",
            step=step,
            predicted=self._forecaster is not None,
            epoch_batches=self.epoch_batches,
            curve=self._curve(),
            left=self._left.get(search.best),
        )

    def _curve(self) -> WorkerCurve | None:
        """The predicted curve, with measurements of points that differ only in their workers."""
        if self._forecaster is None:
            return None
        search, curve = self.search, self._forecaster.curve()
        measured = [
            (point.get(WORKERS, self._workers), outcome.throughput)
            for number, (point, outcome) in enumerate(
                zip(search.points, search.outcomes, strict=True)
            )
            if outcome.throughput is not None
            and number
            and (number == search.best or self._are_present(point, leaving_out=(WORKERS,)))
        ]
        _, last = curve.measured[-1]
        present = search.outcomes[0].throughput or last  # where it failed when it ran again
        workers = search.points[0].get(WORKERS, self._workers)
        return replace(curve, measured=(*measured, (workers, present)))

    def _are_present(self, point: Point, leaving_out: Sequence[str]) -> bool:
        """Whether the settings of `point` are the present ones, but for some."""
        return all(
            value == self._present[name] for name, value in point.items() if name not in leaving_out
        )

    def _trial(self, number: int) -> Trial:
        outcome, forecast = self.search.outcomes[number], self.search.forecasts[number]
        point = self.search.points[number]
        memory_bytes = None
        if self._forecaster is not None:
            memory_bytes = self._forecaster(point).prediction.memory_bytes
        return Trial(
            settings=self._settings(point),
            state=outcome.state,
            prediction=None if forecast is None else forecast.prediction,
            throughput=outcome.throughput,
            epoch_throughput=outcome.epoch_throughput,
            ratio=self.search.ratio(number) if number else None,
            memory_bytes=memory_bytes,
            error=outcome.error,
        )

    def _settings(self, point: Point) -> dict[str, Any]:
        return self._maker.settings(point)

    def _model_of(self, run: Run) -> Forecaster | None:
        """A forecaster; None where nothing is known about the inside of the loader."""
        try:
            model = LoaderModel.of([run])
        except UsageError:
            return None
        return Forecaster(model, self._room or Room.free(), self.epoch_batches)

    def _learn(self, group: Sequence[Point], result: GroupResult) -> None:
        """Use the runs of `group` for further predictions, and for what ideal loading would add."""
        for point, whole in zip(group, result.wholes, strict=True):
            if whole is not None and whole.gain is not None:
                self._left[self.search.points.index(point)] = whole.gain.speedup
        forecaster = self._forecaster
        if forecaster is None:
            return
        for point, whole, run in zip(group, result.wholes, result.runs, strict=True):
            if run is None or whole is None:
                continue
            if not self._are_present(point, leaving_out=ALIKE):
                continue
            loader = run.header.loader
            workers = loader.workers or 0
            if workers != self._workers or point == self.search.points[0]:
                self._runs[workers] = run
            forecaster.saw_start(workers, bool(loader.persistent_workers), whole.starts_ns)
        present_last = sorted(self._runs.items(), key=lambda entry: entry[0] == self._workers)
        forecaster.recalibrate([run for _, run in present_last])

    def _space(self, whole: EpochThroughput) -> dict[str, list[Any]]:
        if self._forecaster:
            space = self._predicted_space(whole, self._forecaster.cpu_share)
        else:
            space = self._climbed_space()
        space |= self._asked
        if not space:
            raise UsageError(
                "nothing to tune: no known setting among settings=, and space= is empty; name "
                'the settings, such as settings={"num_threads": 4}'
            )
        return {name: _ordered(values, self._maker.value(name)) for name, values in space.items()}

    def _depths(self, space: Mapping[str, Sequence[Any]]) -> tuple[float, float]:
        """The most batches in a queue, and from how many on it grows step by step: see Search."""
        if "prefetch_factor" in self._asked or not {WORKERS, "prefetch_factor"} <= space.keys():
            return math.inf, math.inf
        least, cautious = PREFETCHES[0], math.inf
        if self._may_end and WORKERS not in self._asked:
            cautious = least * PER_CPU * self._cpus
        return least * max(space[WORKERS]), cautious

    def _predicted_space(self, whole: EpochThroughput, cpu_share: float) -> dict[str, list[Any]]:
        per_cpu = min(PER_CPU / max(cpu_share, 0.01), PER_CPU_WAITING)
        most_workers = per_cpu * self._cpus
        starts_matter = whole.factor is not None and 1 - whole.factor >= STARTS_MATTER
        values: dict[str, list[Any]] = {
            WORKERS: [count for count in COUNTS if count <= most_workers],
            "prefetch_factor": list(PREFETCHES),
            "in_order": [True, False],
            PERSIST: [False, True] if starts_matter else [],
            "pin_memory": [False, True] if has_cuda() else [],
        }
        return {
            name: choices for name, choices in values.items() if choices and self._maker.takes(name)
        }

    def _climbed_space(self) -> dict[str, list[Any]]:
        space = {}
        present = {name: self._maker.value(name) for name in self._maker.climbed}
        numbers = {name: value for name, value in present.items() if type(value) is int}
        for name, value in numbers.items():
            largest = self._cpus if name in self._maker.of_cpus else value << DOUBLINGS
            up = [max(value, 1) << power for power in range(DOUBLINGS)]
            down = [value >> power for power in range(value.bit_length())]
            none = [0] if name == WORKERS else []
            space[name] = [count for count in {*none, *up, *down} if count <= max(largest, value)]
        return space


def _ordered(values: Iterable[Any], present: Any) -> list[Any]:
    """All `values` and the present one, once each, the cheapest first."""
    ordered: list[Any] = []
    for value in (present, *values):
        if value not in ordered:
            ordered.append(value)
    if all(type(value) in (int, float) for value in ordered):
        return sorted(ordered)
    return ordered


def cpus() -> int:
    """Whole CPUs that this process may use."""
    group = tightest_cpu()
    quota = None if group is None else group.quota_cores
    usable = cpus_usable() or 1
    return max(int(usable if quota is None else min(usable, quota)), 1)


def has_cuda() -> bool:
    """Whether torch is in use, and there is CUDA."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())
