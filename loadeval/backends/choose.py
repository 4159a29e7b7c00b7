"""Which backend is fastest for the files in a folder, by itself and under a training step."""

from __future__ import annotations

import hashlib
import math
import os
import random
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.analysis.choice import (
    MOST_DIFFERENCE,
    UNITS,
    BackendChoice,
    BadFile,
    Candidate,
    Standing,
)
from loadeval.backends.check import UNREAD_SHARE, Reading, bad_file, difference_of
from loadeval.backends.code import Work, code_of
from loadeval.backends.compare import compare_backends
from loadeval.backends.kinds import KINDS
from loadeval.backends.samples import truncated_copy
from loadeval.backends.served import ServedBackend, module_of, opened, shortly
from loadeval.errors import UsageError
from loadeval.runlog.model import SECOND_NS
from loadeval.runtime.alternation.backends import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    from typing_extensions import Self

    from loadeval.analysis.choice import RecordedStep
    from loadeval.backends.catalogue import WrittenBackend
    from loadeval.backends.data import Data
    from loadeval.backends.samples import Sample
    from loadeval.backends.served import Loaded
    from loadeval.report.backends import BackendComparison

MOST_MEASURED = 256
"""Files that are loaded again and again, at most."""
FEWEST_MEASURED = 16
READ_S = 3.0
"""After so many seconds the reference has read files enough."""
COMPARED = 64
"""Samples whose pixels are compared."""
PART = 16
LOADED_AGAIN = 20_000
"""Samples in an epoch, so that none ends while it is measured."""
EPOCH_BATCHES = 64
"""Batches in an epoch under a step, at least."""
SPUN_BYTES = 1 << 17
"""Hashing so many takes about 0.1 ms."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to measure: each loader for `seconds` in each of `rounds`; and under a step."""

    rounds: int = 4
    seconds: float = 0.7
    step_rounds: int = 4
    step_batches: int = 24


@dataclass(frozen=True, slots=True)
class Step:
    """A training step, and which it imitates if it does."""

    call: Callable[[Any], object]
    recorded: RecordedStep | None = None


class Chooser:
    """Writes, checks and measures each of `candidates` for `data`; close it in the end.

    `say` is told what is being done. Raises UsageError where the reference reads no file.
    """

    def __init__(
        self,
        data: Data,
        work: Work,
        candidates: Sequence[WrittenBackend],
        say: Callable[[str], object],
        budget: Budget,
    ) -> None:
        self._data, self._work, self._say, self._budget = data, work, say, budget
        self._candidates = candidates
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._served: dict[str, ServedBackend] = {}
        self._results: dict[str, Candidate] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def choose(self, transforms: str, step: Step | None) -> BackendChoice:
        """All that is found out."""
        for candidate in self._candidates:
            self._start(candidate)
        samples, pixels, broken = self._read_reference(self._work.reference, transforms)
        samples = self._check_all(samples, pixels, broken)
        cpus = cpu_counts()
        self._measure_alone(samples, cpus)
        trained = None if step is None else self._measure_step(samples, step)
        return BackendChoice(
            folder=str(self._data.folder),
            kind=self._data.kind,
            transforms=transforms,
            files=len(self._data.samples),
            classes=self._data.classes,
            measured=len(samples),
            batch_size=self._work.batch_size,
            cpus=tuple(cpus),
            reference=self._work.reference,
            candidates=tuple(self._results[each.name] for each in self._candidates),
            broken=(*self._data.broken, *broken.values()),
            step=None if step is None else step.recorded,
            trained=trained,
        )

    def _given(self, samples: Sequence[Sample]) -> list[Any]:
        """What loaders take for `samples`."""
        return KINDS[self._data.kind].given(samples, self._folder)

    def _load(self, backend: ServedBackend, samples: Sequence[Sample]) -> Loaded:
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            return backend.load(KINDS[self._data.kind].given(samples, Path(folder)))

    def _path(self, name: str) -> Path:
        return self._folder / f"load_with_{name.replace('-', '_')}.py"

    def _start(self, candidate: WrittenBackend) -> None:
        name = candidate.name
        unavailable = candidate.unavailable(self._data.suffixes)
        if unavailable is not None:
            install = f"pip install {candidate.install}"
            self._results[name] = Candidate(name, unavailable, install)
            return
        self._path(name).write_text(code_of(candidate, self._work), encoding="utf-8")
        self._served[name] = ServedBackend(self._path(name))
        self._stack.callback(self._served[name].close)
        self._results[name] = Candidate(name, Standing.MEASURED)

    def _read_reference(
        self, name: str, transforms: str
    ) -> tuple[list[Sample], npt.NDArray[Any], dict[Sample, BadFile]]:
        """The files that it reads, at most MOST_MEASURED; the first ones' pixels; the others."""
        if name not in self._served:
            raise UsageError(
                f"backends are compared with {name}, which is not installed; install it with: "
                f"{self._results[name].install}"
            )
        self._say(f"reading {UNITS[self._data.kind]} with {name}")
        backend, began_s = self._served[name], math.inf
        good: list[Sample] = []
        broken: dict[Sample, BadFile] = {}
        chosen = self._data.chosen(MOST_MEASURED)
        for first in range(0, len(chosen), PART):
            part = chosen[first : first + PART]
            reading = Reading(partial(self._load, backend), part)
            good += reading.good
            lost = [sample for sample in part if sample not in reading.good]
            broken |= dict(zip(lost, reading.bad, strict=True))
            if len(good) >= FEWEST_MEASURED and time.monotonic() - began_s > READ_S:
                break
            began_s = min(began_s, time.monotonic())  # the first part waits for imports
        if backend.lost is not None:
            raise UsageError(f"{name} fails at {transforms!r}: {backend.lost}")
        loaded = self._load(backend, good[:COMPARED]) if good else None
        if loaded is None or loaded.samples is None:
            error = next(iter(broken.values())).error if broken else None
            raise UsageError(f"{name} reads none of the files in {self._data.folder}: {error}")
        return good, loaded.samples, broken

    def _check_all(
        self,
        samples: list[Sample],
        pixels: npt.NDArray[Any],
        broken: dict[Sample, BadFile],
    ) -> list[Sample]:
        """Check each backend; returns the samples that all read which are measured."""
        half = truncated_copy(samples[0], self._folder)
        unread: set[Sample] = set()
        for name, backend in self._served.items():
            self._say(f"checking what {name} loads")
            result = self._results[name]
            reading = Reading(partial(self._load, backend), samples)
            bad = tuple(reading.bad)
            result = replace(result, unread=bad, warned=tuple(backend.warned))
            if len(bad) > UNREAD_SHARE * len(samples):
                self._results[name] = replace(
                    result, standing=Standing.FAILED, error=bad[0].error or bad[0].outcome.value
                )
                continue
            result = replace(
                result,
                truncated=bad_file(half, self._load(backend, [half])),
                broken=tuple(bad_file(each, self._load(backend, [each])) for each in broken),
            )
            self._results[name] = self._compared(result, backend, reading, samples, pixels)
            if self._results[name].standing is Standing.MEASURED:
                unread |= set(samples) - set(reading.good)
        return [sample for sample in samples if sample not in unread]

    def _compared(
        self,
        result: Candidate,
        backend: ServedBackend,
        reading: Reading,
        samples: list[Sample],
        pixels: npt.NDArray[Any],
    ) -> Candidate:
        """`result` with how its pixels differ from those of the reference."""
        first, readable = samples[: len(pixels)], set(reading.good)
        kept = [number for number, sample in enumerate(first) if sample in readable]
        # What is flipped depends on the place, so both load the same list.
        loaded = self._load(backend, [first[number] for number in kept])
        reference = pixels
        if len(kept) < len(first):
            of_reference = self._served[self._work.reference]
            again = self._load(of_reference, [first[number] for number in kept])
            reference = pixels[:0] if again.samples is None else again.samples
        if loaded.samples is None:
            return replace(result, standing=Standing.FAILED, error=loaded.error)
        difference = difference_of(loaded.samples, reference, self._work.transforms)
        if difference is None:
            shapes = f"{loaded.samples.shape[1:]} where {reference.shape[1:]} was expected"
            return replace(result, standing=Standing.DIFFERENT, error=f"its samples are {shapes}")
        same = difference.mean <= MOST_DIFFERENCE[self._data.kind]
        standing = Standing.MEASURED if same else Standing.DIFFERENT
        return replace(result, standing=standing, difference=difference)

    def _measured(self) -> list[str]:
        return [name for name, each in self._results.items() if each.standing is Standing.MEASURED]

    def _measure_alone(self, samples: Sequence[Sample], cpus: Sequence[int]) -> None:
        """In each round each backend on each number of CPUs, in random order."""
        usable = sorted(os.sched_getaffinity(0))
        repeated = self._given(samples) * (LOADED_AGAIN // len(samples) + 1)
        turns = [(name, count) for name in self._measured() for count in cpus]
        order = random.Random(0)  # noqa: S311 - no secret
        rates: dict[tuple[str, int], list[float]] = {turn: [] for turn in turns}
        memory: dict[str, int] = {}
        failed: dict[str, str] = {}
        for number in range(self._budget.rounds):
            self._say(f"measuring each loader by itself, round {number + 1}")
            for name, count in order.sample(turns, len(turns)):
                if name in failed:
                    continue
                alone = self._served[name].alone(repeated, usable[:count], self._budget.seconds)
                if alone.samples_per_s is None:
                    failed[name] = alone.error or ""
                    continue
                rates[name, count].append(alone.samples_per_s)
                if alone.memory_bytes is not None and count == max(cpus):
                    memory[name] = max(memory.get(name, 0), alone.memory_bytes)
        for name in self._measured():
            rounds = {count: tuple(rates[name, count]) for count in cpus}
            result = replace(self._results[name], rounds=rounds, memory_bytes=memory.get(name))
            if name in failed:
                result = replace(result, standing=Standing.FAILED, error=failed[name])
            self._results[name] = result

    def _measure_step(self, samples: Sequence[Sample], step: Step) -> BackendComparison | None:
        """All that do not fail under the step, in turns."""
        epoch = max(EPOCH_BATCHES * self._work.batch_size, len(samples))
        few = self._given(samples[: self._work.batch_size])
        repeated = self._given(samples) * (epoch // len(samples) + 1)
        backends: dict[str, Backend] = {}
        for name in self._measured():
            self._say(f"trying the step with {name}")
            try:
                backends[name] = self._tried(name, few, repeated, step)
            except Exception as error:  # noqa: BLE001 - the step may not take what one loads
                self._results[name] = replace(
                    self._results[name], standing=Standing.FAILED, error=shortly(error)
                )
        if not backends:
            return None
        self._say("measuring all under the step, in turns")
        trained = compare_backends(
            backends,
            step.call,
            batches=self._budget.step_batches,
            rounds=self._budget.step_rounds,
            unequal=True,
            unit=UNITS[self._data.kind],
            probes=(),
            stages=False,
        )
        for result in trained.backends:
            if result.error is not None:
                self._results[result.name] = replace(
                    self._results[result.name], standing=Standing.FAILED, error=result.error
                )
        return trained

    def _tried(self, name: str, few: list[Any], samples: list[Any], step: Step) -> Backend:
        """The backend, after a step with its first batch. Raises what either raises."""
        module = module_of(self._path(name))
        loader = module.make_loader(few, workers=1, shuffle=False)
        with opened(loader) as batches:
            step.call(next(batches))
        (candidate,) = (each for each in self._candidates if each.name == name)
        if candidate.one_epoch:
            return Backend(lambda: module.make_loader(samples, self._work.workers))
        return Backend(module.make_loader(samples, self._work.workers))


def cpu_counts() -> list[int]:
    """1, 2, 4 and so on, up to all CPUs that this process may use."""
    usable = len(os.sched_getaffinity(0))
    counts = [1]
    while counts[-1] * 2 < usable:
        counts.append(counts[-1] * 2)
    return counts if usable == 1 else [*counts, usable]


def imitated(recorded: RecordedStep) -> Step:
    """A step that sleeps, and computes for the part of it in which the recorded one used a CPU.

    Where that is not known, it sleeps alone.
    """
    busy_ns = recorded.step_ns * min(recorded.cpus or 0.0, 1.0)
    block = bytes(SPUN_BYTES)

    def step(_batch: object) -> None:
        began_ns = time.perf_counter_ns()
        while time.perf_counter_ns() - began_ns < busy_ns:
            hashlib.sha256(block)  # as a training step does, it lets other threads of Python run
        left_s = (recorded.step_ns - (time.perf_counter_ns() - began_ns)) / SECOND_NS
        if left_s > 0:
            time.sleep(left_s)

    return Step(step, recorded)
