"""Backends that loadeval wrote for one folder: whether they load the same, and how fast.

Each is measured by itself in rounds, in which all take turns, so that two are compared round by
round; under a training step as `analysis.backends` tells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003 - dataclass reads its fields' types
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loadeval.analysis.backends import Difference
from loadeval.analysis.estimate.headroom import headroom
from loadeval.analysis.estimate.intervals import MeanError, ratio_interval
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.summary import summarise
from loadeval.analysis.predict.recorded import recorded_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.backends import BackendReport, BackendResult
    from loadeval.runlog.model import Run

FEWEST_ROUNDS = 2


class Kind(Enum):
    """A kind of data."""

    IMAGES = "images"
    SHARDS = "WebDataset shards"
    AUDIO = "audio"
    TEXT = "text"
    VIDEO = "video"


UNITS = {
    Kind.IMAGES: "images",
    Kind.SHARDS: "images",
    Kind.AUDIO: "recordings",
    Kind.TEXT: "texts",
    Kind.VIDEO: "videos",
}
"""What a sample of each kind is called, of several."""
MOST_DIFFERENCE = {
    Kind.IMAGES: 5.0,
    Kind.SHARDS: 5.0,
    Kind.AUDIO: 5.0,
    Kind.TEXT: 0.0,
    Kind.VIDEO: 5.0,
}
"""The mean difference up to which two load the same.

Pixels are compared in levels of 255. On the demo's photographs other filters to make an image
smaller, and decoding at a smaller size, make up to 4.1; crops that are a pixel aside make 5.8.
Waveforms are compared by the root mean square, in percent of that of the reference. On plucked
strings other filters to resample make up to 1.8, and 16 kHz that begin a sample later 28. Token ids
are equal. Pixels of frames are compared as those of images are: on moving waves, another way from
YUV to RGB makes up to 3.1, and frames that are one aside make 30.
"""


class Standing(Enum):
    """What became of a backend."""

    MEASURED = "measured"
    DIFFERENT = "loads something else"
    FAILED = "failed"
    NOT_INSTALLED = "not installed"
    NO_GPU = "no GPU"
    OTHER_FILES = "does not read these files"


class OnBadFile(Enum):
    """What a backend does with a file that is broken."""

    RAISES = "raises"
    SKIPS = "skips it"
    FILLS = "fills in what is missing"
    ENDS = "ends its process"


class BadFile(NamedTuple):
    """What a backend did with the file `name`; `error` is what it raised, if it did."""

    name: str
    outcome: OnBadFile
    error: str | None = None


class DataDifference(NamedTuple):
    """How far `samples` are from what the reference loads: the `mean` difference and the `largest`.

    `worst` is the mean of the sample that differs most. Pixels differ by levels of
    255, the others by percent.
    """

    mean: float
    largest: float
    worst: float
    samples: int


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A training step to be imitated: what a batch of `batch_size` samples takes, and the CPUs.

    `cpus` is how many the step keeps busy; None is not known.
    """

    step_ns: float
    cpus: float | None
    batch_size: int | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is known of one backend; None is not measured.

    `install` says how to install what it lacks. `rounds` has the samples per second by itself, by
    the number of CPUs, one for each round. `truncated` is what it does with half a file, and
    `unread` are files that it does not read, of those that the reference reads. `warned` are the
    warnings while it loaded.
    """

    name: str
    standing: Standing
    install: str = ""
    error: str | None = None
    difference: DataDifference | None = None
    rounds: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    memory_bytes: int | None = None
    truncated: BadFile | None = None
    broken: tuple[BadFile, ...] = ()
    unread: tuple[BadFile, ...] = ()
    warned: tuple[str, ...] = ()

    @property
    def alone(self) -> dict[int, Estimate]:
        """Samples per second by itself, with 95% CIs, by the number of CPUs."""
        return {cpus: mean_of(rates) for cpus, rates in self.rounds.items() if rates}


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """Backends for one folder, and which of them is fastest.

    `files` is how many samples it has, of which `measured` were loaded again and again; `broken`
    are those that the `reference` does not read, and which were left out. `cpus` are the numbers of
    CPUs that loaders had by themselves. `trained` is what was measured under a training step,
    `step` the one that was imitated, if one was.
    """

    folder: str
    kind: Kind
    transforms: str
    files: int
    classes: int | None
    measured: int
    batch_size: int
    cpus: tuple[int, ...]
    reference: str
    candidates: tuple[Candidate, ...]
    broken: tuple[BadFile, ...] = ()
    step: RecordedStep | None = None
    trained: BackendReport | None = None

    @property
    def unit(self) -> str:
        """What samples are called."""
        return UNITS[self.kind]

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        """Those that were measured, the fastest first: under the step, or by itself."""
        measured = [each for each in self.candidates if each.standing is Standing.MEASURED]
        return tuple(sorted(measured, key=self._rate, reverse=True))

    @property
    def under_step(self) -> tuple[tuple[Candidate, BackendResult], ...]:
        """Each that is ranked, and what training does with it; none where there is no step."""
        trained = self.trained
        return () if trained is None else tuple((each, trained[each.name]) for each in self.ranked)

    @property
    def fastest(self) -> Candidate | None:
        """The one with the highest throughput, which may be no more than another's by chance."""
        return self.ranked[0] if self.ranked else None

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The fastest over each other one, by what they are ranked by."""
        first, *others = self.ranked or (None,)
        if first is None:
            return ()
        if self.trained is not None:
            return tuple(each for each in self.trained.differences if each.one == first.name)
        most = max(self.cpus)
        return tuple(
            Difference(first.name, other.name, ratio_of(first.rounds[most], other.rounds[most]))
            for other in others
        )

    def _rate(self, candidate: Candidate) -> float:
        if self.trained is not None:
            real = self.trained[candidate.name].real
            return 0.0 if real is None else real.value
        rate = candidate.alone.get(max(self.cpus))
        return 0.0 if rate is None else rate.value


def mean_of(rates: Sequence[float]) -> Estimate:
    """The geometric mean of the rates of rounds, with a 95% CI by Student's t of their logarithms.

    Without an interval where there is one round.
    """
    logs = np.log(np.asarray(rates, dtype=np.float64))
    value = math.exp(float(logs.mean()))
    if len(logs) < FEWEST_ROUNDS:
        return Estimate(value)
    return ratio_interval(value, MeanError(float(logs.var(ddof=1)) / len(logs), len(logs) - 1))


def ratio_of(rates: Sequence[float], others: Sequence[float]) -> Estimate:
    """The rates of one over those of another, round by round."""
    return mean_of([one / other for one, other in zip(rates, others, strict=False)])


def recorded_step(run: Run) -> RecordedStep | None:
    """The training step of `run` with ideal loading; None where none was measured.

    Of a run that has no ideal arm, the step as it was.
    """
    summary = summarise(run)
    ideal_ns = headroom(run).ideal_ns if run.header.mode == "alternate" else summary.step_ns
    if not ideal_ns:
        return None
    recorded = recorded_of(run, None)
    cpus = None if recorded is None else recorded.costs.step_cpus
    sizes = run.steps.samples[run.steps.samples > 0]
    return RecordedStep(ideal_ns, cpus, int(np.median(sizes)) if len(sizes) else None)
