"""Throughputs of one workload: predicted from a recorded run, and measured in turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loadeval import LoaderEvaluator, compare_backends
from loadeval.analysis.whatif import whatif

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loadeval import BackendComparison, BackendResult, Estimate, Headroom, Run
    from loadeval.analysis.whatif import Prediction
    from tests.benchmarks.prediction_loaders import Setting, Workload
else:  # a script finds its siblings by their plain names
    from prediction_loaders import Setting

SECOND_NS = 1e9


@dataclass(frozen=True)
class Outcome:
    """Throughputs in samples per second: predicted, measured, and by plain division."""

    workload: str
    what: str
    present: str
    setting: str
    predicted: float
    low: float
    high: float
    limit: str
    measured: float
    measured_low: float | None
    measured_high: float | None
    divided: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured

    @property
    def divided_ratio(self) -> float:
        return self.divided / self.measured

    @property
    def is_in_range(self) -> bool:
        return self.low <= self.measured <= self.high

    @property
    def is_present(self) -> bool:
        """Whether nothing was to be predicted: what is off is the machine's."""
        return self.setting == self.present

    def row(self) -> list[str]:
        measured = f"{self.measured:.0f}"
        if self.measured_low is not None and self.measured_high is not None:
            measured += f" [{self.measured_low:.0f}, {self.measured_high:.0f}]"
        return [
            self.workload,
            self.what,
            self.present,
            "the same" if self.is_present else self.setting,
            f"{self.predicted:.0f} [{self.low:.0f}, {self.high:.0f}]",
            measured,
            f"{self.ratio:.2f}",
            "yes" if self.is_in_range else "no",
            f"{self.divided:.0f}",
            f"{self.divided_ratio:.2f}",
        ]


def outcomes(workload: Workload) -> Iterator[Outcome]:
    """What was predicted from one run, beside what was measured after it."""
    present = Setting(workload.workers)
    run, found = recorded(workload)
    settings = [present, *(one for one in workload.settings if one != present)]
    predictions = [predicted(run, setting) for setting in settings]
    loaders = {str(setting): setting.options() for setting in settings}
    measured = compared(workload, loaders)
    for setting, prediction in zip(settings, predictions, strict=True):
        if prediction.unit != measured.unit:
            raise RuntimeError(f"predicted {prediction.unit}, but measured {measured.unit}")
        expected, real = prediction.throughput, throughput(measured[str(setting)])
        yield Outcome(
            workload=workload.name,
            what=workload.what,
            present=str(present),
            setting=str(setting),
            predicted=expected.value,
            low=expected.low,
            high=expected.high,
            limit=prediction.limit.value,
            measured=real.value,
            measured_low=real.low,
            measured_high=real.high,
            divided=divided(found, present, setting),
        )


def recorded(workload: Workload) -> tuple[Run, Headroom]:
    """One alternating epoch, with stages."""
    loader = workload.loader(**Setting(workload.workers).options())
    with LoaderEvaluator(loader, mode="alternate", stages=True) as evaluated:
        for batch in evaluated:
            workload.train(batch)
        return evaluated.recorded(), evaluated.headroom()


def predicted(run: Run, setting: Setting) -> Prediction:
    return whatif(
        run,
        num_workers=setting.workers,
        prefetch_factor=setting.prefetch_factor,
        in_order=setting.in_order,
    )


def compared(workload: Workload, settings: Mapping[str, Mapping[str, Any]]) -> BackendComparison:
    """Each loader as it is, in turns; nothing looks inside."""
    return compare_backends(
        {name: workload.loader(**options) for name, options in settings.items()},
        workload.train,
        batches=workload.batches,
        rounds=workload.rounds,
        stages=False,
        probes=(),
    )


def throughput(result: BackendResult) -> Estimate:
    if result.real is None:
        raise RuntimeError(f"{result.name} was not measured: {result.error}")
    return result.real


def divided(found: Headroom, present: Setting, setting: Setting) -> float:
    """Samples per second if the loader's time went by the workers, and the step is no faster."""
    loader_ns = found.loader_only_ns or found.real_ns
    if loader_ns is None or found.ideal_ns is None or found.samples_per_batch is None:
        raise RuntimeError(f"too little was recorded: {found}")
    batch_ns = max(loader_ns * present.workers / setting.workers, found.ideal_ns)
    return found.samples_per_batch * SECOND_NS / batch_ns
