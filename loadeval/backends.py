"""Several loaders under one training step: a user's own, or recipes for a folder of JPEGs."""

from __future__ import annotations

import gc
import os
import random
import timeit
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.resources import files
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np

from loadeval.adapter import IterableAdapter, adapter_for, begun, makes_loaders
from loadeval.core.batch import is_array, leaves
from loadeval.core.counting import Counter
from loadeval.core.schedule import Schedule
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import LoaderInfo
from loadeval.data.run import block_for
from loadeval.errors import UNGUARDED, UsageError, in_words
from loadeval.evaluator import Measurement
from loadeval.probes import NAMES
from loadeval.report.build import result_of
from loadeval.report.report import Report
from loadeval.settings import Settings
from loadeval.words import shortened

EMPTY_EPOCHS = 3
"""After so many epochs in a row in which no batch counted, none ever will."""
NO_BATCH = object()
OPTIONS = (
    *("samples", "unit", "overwrite", "max_cache_bytes", "seed"),
    *("probes", "probe_interval_s", "clock", "stages"),
)
NOT_AGAIN = "no batch, or no second epoch; pass a callable that returns a new loader each time"


@dataclass(frozen=True, slots=True)
class Backend:
    """A loader for `compare_backends`, and how to convert its batches for the training step.

    `loader` is any loader, or a callable that returns a new one and is called each epoch.
    `convert` turns its batch into one that the training step takes. Its time counts as loading,
    since training with this loader needs it.
    """

    loader: Any
    convert: Callable[[Any], Any] | None = None


class BackendAdapter(IterableAdapter):
    """Uses a backend's loader as the adapter for it does, and converts its batches.

    `given` is the backend's loader, or what makes one for each epoch; `loader` is the last of
    these. `work` is what it loads, in the words of a difference. `iterator` is the loader's, of the
    epoch that is to be stopped. `measurement` has the rounds of the backend, and `schedule` their
    blocks.
    """

    work: Mapping[str, Any]
    measurement: Measurement
    schedule: Schedule
    iterator: Iterator[Any] | None = None

    def __init__(self, backend: Backend) -> None:
        self.given, self._convert = backend.loader, backend.convert
        self.loader = self.given() if makes_loaders(self.given) else self.given
        self._inner = adapter_for(self.loader)
        of_batches = () if self._convert else ("samples", "nbytes", "keep")
        for name in ("stages", "fence", "distributions", *of_batches):
            setattr(self, name, getattr(self._inner, name))

    def describe(self, loader: Any) -> LoaderInfo:
        """What is known of the loader; one that is made for an epoch has nothing ready before."""
        info = self._inner.describe(loader)
        return replace(info, ready_batches=0) if makes_loaders(self.given) else info

    def epoch(self, loader: Any) -> Iterator[Any]:
        """A new epoch, of converted batches."""
        self.loader = loader
        self.iterator = epoch = self._inner.epoch(loader)
        return map(self._convert, begun(epoch)) if self._convert else epoch

    def stop(self) -> None:
        """Stop the workers, and what else goes on in the background."""
        iterator, self.iterator = self.iterator, None
        if iterator is not None:
            self._inner.release(self.loader, iterator)

    def _collect_before_fork(self) -> None:
        # Else a worker may free what is of another backend, and a pipeline of DALI's hangs there.
        if self.describe(self.loader).start_method == "fork":
            gc.collect()

    def look(self, settings: Settings) -> None:
        """Note what the first batch and an epoch have; None is not known."""
        self._collect_before_fork()
        try:
            batch = next(self.epoch(self.loader), NO_BATCH)
            if batch is NO_BATCH or self.iterator is self.given:
                raise UsageError(NOT_AGAIN)
            samples = Counter(self, settings.samples).samples(batch)
            self.work = {
                "batch 0 is {}": ", ".join(map(_in_words, leaves(batch))) or "empty",
                "batch 0 has {} samples": None if samples == UNKNOWN else samples,
                "an epoch has {} batches": self.describe(self.loader).length,
            }
        finally:
            self.stop()

    def round(self) -> Iterator[Any]:
        """The batches of the next round, from as many epochs as it takes."""
        self._collect_before_fork()
        schedule, empty = self.schedule, 0
        schedule.begin_round()
        try:
            while (block := schedule.block) is not None:
                left = schedule.left
                for batch in self.measurement.epoch(self.given, None):
                    if schedule.block is None:  # the batch belongs to none
                        return
                    yield batch
                empty = empty + 1 if (block, left) == (schedule.block, schedule.left) else 0
                if empty == EMPTY_EPOCHS:
                    raise UsageError(f"no batch counted in {empty} epochs; expected longer ones")
        finally:
            self.stop()


def compare_backends(  # noqa: C901 - one way through
    backends: Mapping[str, Any],
    step: Callable[[Any], object],
    *,
    batches: int = 200,
    rounds: int = 6,
    unequal: bool = False,
    log_dir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Report:
    """Measure one training step with several loaders: each as it is, and as if it were free.

    In each round all backends run one after the other, in random order, so that machine drift
    affects all of them alike. While one runs, the others are stopped. In each round a backend
    starts a new epoch, of which the epoch start and the warm-up are not counted, and serves
    a block of real batches and one of batches prefetched into memory, as
    `LoaderEvaluator(mode="alternate")` does. A round may take several epochs. If it ends in the
    middle of one, the rest of that epoch is dropped, so let loaders shuffle.

    Args:
        backends: maps each name to a loader, to a callable that returns a new loader and is
            called each epoch, or to a `Backend` with a converter.
        step: the training step, called with each batch. Its exceptions propagate.
        batches: about how many real and how many ideal batches to measure per backend.
        rounds: how often each backend runs; of one there are no CIs, of two they are wide.
        unequal: allow batches and epochs that differ between backends.
        log_dir: a folder for run logs, one per backend, NAME.jsonl.
        options: as for LoaderEvaluator: `samples` (of a converted batch), `unit`, `overwrite`,
            `max_cache_bytes`, `seed`, `probes`, `probe_interval_s`, `clock`, and `stages`, which
            are timed in all batches.

    Returns a `Report`: print it for throughputs, speed-ups and differences with 95% CIs; `plot`
    draws them, and `backends` has the result of each. Drift over several rounds widens
    the CIs of the throughputs only. If a loader raises, or can be iterated only once, its backend
    is reported as failed, with the error, and the other backends continue.

    Raises:
        UsageError: an argument is not valid, or first batches or lengths of epochs differ.
        RunLogError: a run log exists, or cannot be written.
    """
    if rounds < 1:
        raise UsageError(f"rounds is {rounds!r}; expected 1 or more")
    for name in options:
        if name not in OPTIONS:
            raise UsageError(f"there is no option {name}=; expected one of {', '.join(OPTIONS)}")
    settings = Settings(mode="alternate", batches=batches, **{"probes": NAMES, **options})
    adapters: dict[str, BackendAdapter] = {}
    failed: dict[str, Exception] = {}
    for name, given in backends.items():
        try:
            adapter = BackendAdapter(given if isinstance(given, Backend) else Backend(given))
            adapter.look(settings)
            adapters[name] = adapter
        except Exception as error:  # noqa: BLE001, PERF203 - a loader may raise anything
            failed[name] = error
    differences = [
        shortened(f"{name}: {fact.format(own)} where {first} has {expected}", 240)
        for first, reference in [*adapters.items()][:1]
        for name, adapter in adapters.items()
        for fact, expected in reference.work.items()
        if len({own := adapter.work[fact], expected} - {None}) > 1  # one may not be known
    ]
    if differences and not unequal:
        raise UsageError(
            f"the backends do not do equal work: {'; '.join(differences)}; convert batches with "
            "Backend(loader, convert), or pass unequal=True if this is intended"
        )
    logs: dict[str, Path] = {}
    if log_dir is not None:
        Path(log_dir).mkdir(parents=True, exist_ok=True)
        logs = {name: Path(log_dir, f"{name}.jsonl") for name in backends}

    def serve(name: str) -> None:
        """Train on one backend for a round, and note what its loader raises."""
        trains = False
        try:
            for batch in adapters[name].round():
                trains = True
                step(batch)
                trains = False
        except Exception as error:
            if trains:
                raise
            adapters[name].measurement.recorder.note(in_words(error), "failed backend")
            failed[name] = error

    facts = {"comparison": uuid.uuid4().hex, "rounds": rounds, "seed": settings.seed}
    with ExitStack() as stack:
        for name, adapter in adapters.items():
            depth = adapter.describe(adapter.loader).prefetch_depth or 0
            adapter.schedule = Schedule(
                seed=settings.seed,
                prefetch_depth=depth,
                counted=max(round(batches / rounds), block_for(depth)),
            )
            adapter.measurement = Measurement(
                adapter.loader,
                replace(settings, name=str(name), log_file=logs.get(name)),
                adapter=adapter,
                schedule=adapter.schedule,
                facts=facts,
            )
            stack.callback(adapter.measurement.close)
            adapter.measurement.guard = UNGUARDED  # what fails in here is the backend's error
        names, chance = [*adapters], random.Random(settings.seed)  # noqa: S311 - no secret
        for _ in range(rounds):
            for name in chance.sample(names, len(names)):
                if name not in failed:
                    serve(name)
    results = {
        name: result_of(adapter.measurement.recorder.run())
        for name, adapter in adapters.items()
        if name not in failed
    }
    errors = {name: in_words(error) for name, error in failed.items()}
    return Report(None, backends=results, failed=errors, unequal=differences)


def _in_words(leaf: Any) -> str:
    """An array by its shape and type, which frameworks name differently; else by its class."""
    if not is_array(leaf):
        return type(leaf).__name__
    return f"{tuple(leaf.shape)} {str(leaf.dtype).rpartition('.')[2].lower()}"


# Recipes


RECIPES = {
    "pillow": "torch pillow",
    "pillow_draft": "torch pillow",
    "opencv": "torch opencv-python-headless",
    "simplejpeg": "torch pillow simplejpeg",
    "dali": "torch nvidia-dali-cuda120",
    "spdl": "torch pillow spdl-core",
}
"""The loaders of JPEGs in loadeval_adapters/recipes, and the packages that each needs."""
REFERENCE = "pillow"
"""The pixels of others are compared with those of this recipe."""
EPOCH_BATCHES = 64
"""Few files are loaded again and again, so that a round takes few epochs."""


def recipe_code(name: str, resized: int, cropped: int) -> str:
    """The file of a recipe, to copy, with these sizes as its defaults."""
    file, _, draft = name.partition("_")
    code = (files("loadeval_adapters.recipes") / f"{file}.py").read_text(encoding="utf-8")
    code = code.replace("draft=False", f"draft={bool(draft)}")
    return code.replace("resized=256, cropped=224", f"resized={resized}, cropped={cropped}")


def recipe_loader(
    name: str, samples: Sequence[Any], batch_size: int, workers: int, **sizes: int
) -> Any:
    """The loader of a recipe, of pairs of path and class. Raises ImportError."""
    file, _, draft = name.partition("_")
    make = import_module(f"loadeval_adapters.recipes.{file}").make_loader
    return make(samples, batch_size, workers, **sizes, **({draft: True} if draft else {}))


def compare_recipes(
    paths: Sequence[str],
    names: Sequence[str],
    step: Callable[[Any], object],
    batch_size: int,
    workers: int,
    **sizes: int,
) -> tuple[Report, dict[str, float], list[str]]:
    """Measure recipes with these JPEGs, and how far their pixels are from the reference's.

    `sizes` are `resized` and `cropped`, in pixels. Returns also the mean difference of each, of 255
    levels, and what was left out and why. Raises UsageError where no recipe can be measured.
    """
    left_out: list[str] = []
    pixels_differ: dict[str, float] = {}

    def images_of(name: str, samples: Sequence[Any], what: str) -> dict[int, Any]:
        """The images of an epoch, by their class; none where it fails, and `what` is left out."""
        try:
            images = {
                int(label): np.asarray(image, np.int16)
                for batch in recipe_loader(name, samples, batch_size, 0, **sizes)
                for image, label in zip(*batch, strict=True)
            }
            if len(images) == len(samples):
                return images
            left_out.append(f"{what} is left out: it loads {len(images)} of {len(samples)} JPEGs")
        except Exception as error:  # noqa: BLE001 - a library may raise anything
            install = f"; pip install {RECIPES[name]}" * isinstance(error, ImportError)
            left_out.append(f"{what} is left out: {in_words(error)}{install}")
        return {}

    expected: dict[int, Any] = {}
    for number, path in enumerate(paths):
        expected |= images_of(REFERENCE, [(path, number)], Path(path).name)
    samples = [(paths[number], number) for number in expected]
    for name in names:
        images = images_of(name, samples, name)
        if images:
            levels = [np.abs(images[number] - expected[number]) for number in images]
            pixels_differ[name] = float(np.mean(levels))
    if not pixels_differ:
        raise UsageError(f"no recipe can be measured: {left_out[0]}")
    again = list(islice(cycle(samples), EPOCH_BATCHES * batch_size))
    loaders = {
        name: recipe_loader(name, again, batch_size, workers, **sizes) for name in pixels_differ
    }
    report = compare_backends(
        loaders,
        step,
        batches=48,
        rounds=4,
        unit="images",
        probes=["host"],
        probe_interval_s=0.5,  # what a round begins with is no recipe's memory yet
        stages=False,
    )
    return report, pixels_differ, left_out


def computing_step(seconds: float) -> Callable[[object], object]:
    """A training step that computes on one CPU: as much as takes so long while nothing else runs.

    One that sleeps would not show that loaders take the CPU from it.
    """
    numbers = np.linspace(-1, 1, 4096)
    each_s = min(timeit.repeat(lambda: np.tanh(numbers), number=100, repeat=20)) / 100
    times = round(seconds / each_s)
    return lambda _batch: deque(map(np.tanh, repeat(numbers, times)), 0)
