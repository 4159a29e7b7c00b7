"""Speed-ups of one workload: predicted from a recorded run, and measured in turns."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.judge import compared, predicted
from bench.tables import in_words
from bench.zoo.workloads import Setting
from loadeval import Estimate, LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.judge import Said
    from bench.zoo.workloads import Workload

SETTLING = 34
"""Batches that are not counted: those of the fullest queue, and some, for workers begin slowly."""


@dataclass(frozen=True)
class Outcome:
    """Speed-ups over the recorded settings: predicted, measured, and by plain division.

    `throughput` is that of the recorded run, in samples per second.
    """

    workload: str
    what: str
    present: str
    setting: str
    throughput: float
    predicted: Estimate
    limit: str
    measured: Estimate
    divided: float

    @property
    def ratio(self) -> float:
        return self.predicted.value / self.measured.value

    @property
    def divided_ratio(self) -> float:
        return self.divided / self.measured.value

    @property
    def is_in_range(self) -> bool:
        low, high = self.predicted.bounds
        return low <= self.measured.value <= high

    def row(self) -> list[str]:
        return [
            self.workload,
            self.what,
            self.present,
            self.setting,
            in_words(self.predicted),
            in_words(self.measured),
            f"{self.ratio:.2f}",
            "yes" if self.is_in_range else "no",
            f"{self.divided:.2f}",
            f"{self.divided_ratio:.2f}",
        ]


def outcomes(workload: Workload) -> Iterator[Outcome]:
    """What was predicted from one run, beside what was measured after it."""
    present = Setting(workload.workers)
    with TemporaryDirectory() as folder:
        log = recorded(workload, Path(folder))
        said = compared(log)
        settings = [setting for setting in workload.settings if setting != present]
        loaders = {str(setting): setting.options() for setting in (present, *settings)}
        real = speedups(workload, loaders, str(present))
        for setting in settings:
            yield outcome(workload, log, said, setting, real[str(setting)])


def outcome(workload: Workload, log: Path, said: Said, setting: Setting, real: Estimate) -> Outcome:
    """What is predicted of `setting` from the run in `log`, of which `said` is said."""
    present = Setting(workload.workers)
    prediction = predicted(
        log,
        num_workers=setting.workers,
        prefetch_factor=setting.prefetch_factor,
        in_order=setting.in_order,
    )
    return Outcome(
        workload=workload.name,
        what=workload.what,
        present=str(present),
        setting=str(setting),
        throughput=prediction.throughput.value / prediction.speedup.value,
        predicted=prediction.speedup,
        limit=prediction.limit,
        measured=real,
        divided=divided(said, present, setting) / divided(said, present, present),
    )


def recorded(workload: Workload, folder: Path) -> Path:
    """The log of one alternating epoch, with stages."""
    loader = workload.loader(**Setting(workload.workers).options())
    log = folder / "run.jsonl"
    with LoaderEvaluator(loader, mode="alternate", stages=True, log_file=log) as evaluated:
        for batch in evaluated:
            workload.train(batch)
    return log


def speedups(
    workload: Workload, settings: Mapping[str, Mapping[str, Any]], over: str
) -> dict[str, Estimate]:
    """The throughput of plain loops over that with the settings `over`: all in turns."""
    return ratios(seconds(workload, settings), over)


def seconds(
    workload: Workload, settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[float]]:
    """How long a batch takes of plain loops, round by round: all in turns."""
    took_s: dict[str, list[float]] = {name: [] for name in settings}
    for number in range(workload.rounds):
        order = list(settings)
        random.Random(number).shuffle(order)
        for name in order:
            took_s[name].append(batch_s(workload, settings[name]))
    return took_s


def ratios(took_s: Mapping[str, Sequence[float]], over: str) -> dict[str, Estimate]:
    """Speed-ups over `over`: the median of the rounds, and from where to where they went."""
    speedups = {
        name: [present / other for present, other in zip(took_s[over], others, strict=True)]
        for name, others in took_s.items()
    }
    return {
        name: Estimate(statistics.median(values), min(values), max(values))
        for name, values in speedups.items()
    }


def batch_s(workload: Workload, options: Mapping[str, Any]) -> float:
    """Seconds per batch of a plain loop, once its queue has filled: of the same batches for all."""
    began_s = elapsed_s = 0.0
    for number, batch in enumerate(workload.loader(**options)):
        if number == SETTLING:
            began_s = time.perf_counter()
        workload.train(batch)
        elapsed_s = time.perf_counter() - began_s
        if number == SETTLING + workload.counted - 1:
            break
    return elapsed_s / workload.counted


def divided(said: Said, present: Setting, setting: Setting) -> float:
    """Batches per second if the loader's time went by the workers, and the step is no faster."""
    loader_ns = said.loader_only_ns or said.real_ns
    if loader_ns is None or said.ideal_ns is None:
        raise RuntimeError(f"too little was recorded: {said}")
    return 1e9 / max(loader_ns * present.workers / setting.workers, said.ideal_ns)
