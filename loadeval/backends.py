"""Several loaders under one training step, and recipes for loaders of a folder of JPEGs."""

from __future__ import annotations

import os
import time
import timeit
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from loadeval.core.threads import Probes
from loadeval.errors import UsageError, in_words
from loadeval.probes import NAMES, probes_named
from loadeval.report.build import result_of
from loadeval.report.report import Report
from loadeval.runtime.alternation.backends import Backend, BackendRunner
from loadeval.settings import (
    DEFAULT_CACHE_BYTES,
    DEFAULT_PROBE_INTERVAL_S,
    Settings,
)

Sample = tuple[str, int]
MakeLoader = Callable[[Sequence[Sample], int, int], Any]

FEWEST_ROUNDS = 3
REFERENCE = "pillow"
RECIPES = {
    REFERENCE: "torch pillow",
    "pillow_draft": "torch pillow",
    "opencv": "torch opencv-python-headless",
    "simplejpeg": "torch pillow simplejpeg",
    "dali": "torch nvidia-dali-cuda120",
    "spdl": "torch pillow spdl-core",
}
"""What pip installs for each; `loadeval_adapters.recipes` has a file for each."""
MOST_JPEGS = 128
"""So many JPEGs are loaded again and again, at most."""
EPOCH_BATCHES = 64
"""Batches in an epoch, at least."""
PIXELS_DIFFER = 2.0
"""Above this mean difference, of 255 levels, pixels are said to differ from the reference's."""
MEMORY_READ_S = 0.5
"""Memory is read when a recipe was served for so long, and then every five seconds or so."""


def compare_backends(  # noqa: PLR0913 - options, nearly all by keyword
    backends: Mapping[str, Any],
    step: Callable[[Any], object],
    *,
    batches: int = 200,
    rounds: int = 6,
    unequal: bool = False,
    samples: Callable[[Any], int | None] | None = None,
    unit: str = "samples",
    log_dir: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    max_cache_bytes: int = DEFAULT_CACHE_BYTES,
    seed: int = 0,
    probes: Iterable[Any] = NAMES,
    stages: bool = True,
    probe_interval_s: float = DEFAULT_PROBE_INTERVAL_S,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Report:
    """Measure one training step with several loaders: each as it is, and as if it were free.

    In each round all backends run one after the other, in random order, so that machine drift
    affects all of them alike. While one runs, the others are stopped. In each round a backend
    starts a new epoch, of which the epoch start and the warm-up are not counted, and serves
    blocks of real batches and blocks of batches prefetched into memory, as
    `LoaderEvaluator(mode="alternate")` does. A round may take several epochs. If it ends in the
    middle of one, the rest of that epoch is dropped, so let loaders shuffle.

    Args:
        backends: maps each name to a loader, to a callable that returns a new loader and is
            called each epoch, or to a `Backend` with a converter.
        step: the training step, called with each batch. Its exceptions propagate.
        batches: about how many real and how many ideal batches to measure per backend.
        rounds: how often each backend runs, at least 3.
        unequal: allow batches and epochs that differ between backends.
        samples: a callable that returns the number of samples of a (converted) batch; by default
            the first dimension of its first array.
        unit: what reports call the samples, such as "images".
        log_dir: a folder for run logs, one per backend, NAME.jsonl.
        overwrite: whether the run logs may replace existing files.
        max_cache_bytes: the most memory that prefetched batches may take.
        seed: seeds the random order of backends and blocks.
        probes: the system metrics to record, as for LoaderEvaluator; () records none.
        stages: whether to time what happens inside the loaders.
        probe_interval_s: seconds between two readings of the system metrics.
        clock: a clock in nanoseconds, for tests.

    Returns a `Report`: print it for throughputs, speed-ups and differences with 95% CIs; `plot`
    draws them, and `backends` has the result of each. Drift over several rounds widens
    the CIs of the throughputs only. Differences that show only during the run, such as epochs of
    different lengths, become cautions. If a loader raises, its backend is reported as failed,
    with the error, and the other backends continue.

    Raises:
        UsageError: an argument is not valid, or the backends' work differs.
        RunLogError: a run log exists, or cannot be written.
    """
    if type(rounds) is not int or rounds < FEWEST_ROUNDS:
        raise UsageError(
            f"rounds is {rounds!r}; expected a whole number, {FEWEST_ROUNDS} or more: fewer "
            "rounds give no confidence interval"
        )
    settings = Settings(
        mode="alternate",
        samples=samples,
        unit=unit,
        max_cache_bytes=max_cache_bytes,
        overwrite=overwrite,
        pairs=rounds,
        batches=batches,
        seed=seed,
        clock=clock,
        probes=tuple(probes),
        stages=stages,
        probe_interval_s=probe_interval_s,
    )
    if not callable(step):
        raise UsageError(
            f"step is {step!r}; expected a function that trains on one batch: step(batch)"
        )
    chosen = _checked_backends(backends)
    logs = {} if log_dir is None else _log_paths(chosen, Path(log_dir))
    runner = BackendRunner(
        chosen,
        settings,
        lambda: Probes(
            probes_named(settings.probes, threads=settings.looks_inside), probe_interval_s
        ),
    )
    if runner.differences and not unequal:
        raise UsageError(
            f"the backends' work differs: {'; '.join(runner.differences)}; convert batches with "
            "Backend(loader, convert=...), or pass unequal=True if this is intended"
        )
    measured = runner.run(step, logs)
    runs = {each.name: each.run for each in measured if each.run and each.error is None}
    return Report(
        None,
        backends={name: result_of(run) for name, run in runs.items()},
        failed={each.name: in_words(each.error) for each in measured if each.error is not None},
        unequal=runner.differences,
    )


def _checked_backends(backends: object) -> dict[str, Backend]:
    if not isinstance(backends, Mapping) or not backends:
        raise UsageError(
            f"backends is {backends!r}; expected a dict of loaders by name, such as "
            '{"torch": dataloader, "dali": dali_iterator}'
        )
    for name in backends:
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"{name!r} cannot name a backend; expected text such as 'torch'")
    return {
        name: backend if isinstance(backend, Backend) else Backend(backend)
        for name, backend in cast("Mapping[str, Any]", backends).items()
    }


def _log_paths(backends: Mapping[str, Backend], folder: Path) -> dict[str, Path]:
    for name in backends:
        if Path(name).name != name:
            raise UsageError(
                f"{name!r} cannot be the name of a run log in {folder}; choose a backend name "
                "without slashes, or omit log_dir="
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot create the folder {folder} for run logs: {error.strerror or error}; pass "
            "log_dir= a writable folder"
        ) from error
    return {name: folder / f"{name}.jsonl" for name in backends}


def jpegs_in(folder: Path) -> list[str]:
    """The paths of all JPEGs in `folder` and its subfolders. Raises UsageError if there is none."""
    suffixes = {".jpg", ".jpeg"}
    found = sorted(str(path) for path in folder.rglob("*") if path.suffix.lower() in suffixes)
    if not found:
        raise UsageError(
            f"{folder} has no JPEGs; expected a folder with a subfolder of .jpg files for each "
            "class, as torchvision's ImageFolder reads"
        )
    return found


def recipe_code(name: str, resized: int, cropped: int) -> str:
    """The file of the recipe `name`, with these sizes as its defaults."""
    text = (files("loadeval_adapters.recipes") / f"{name}.py").read_text(encoding="utf-8")
    text = text.replace("resized: int = 256", f"resized: int = {resized}")
    return text.replace("cropped: int = 224", f"cropped: int = {cropped}")


def compare_recipes(  # noqa: PLR0913 - options, all by keyword
    paths: Sequence[str],
    names: Sequence[str],
    step: Callable[[Any], object],
    *,
    batch_size: int,
    workers: int,
    resized: int,
    cropped: int,
    say: Callable[[str], object],
) -> tuple[Report, dict[str, float], list[str]]:
    """Measure the recipes `names` with the JPEGs at `paths`; `say` is told what is being done.

    Their shorter side is `resized`, and a square of `cropped` pixels in the middle taken. Returns
    the comparison; the mean difference of each recipe's pixels from the reference's, of 255 levels;
    and a sentence for each recipe and file that is left out.

    Raises UsageError where the reference is not installed or reads no file, and where no recipe is
    left.
    """

    def make_loader(name: str) -> MakeLoader:
        recipe = import_module(f"loadeval_adapters.recipes.{name}")
        return partial(recipe.make_loader, resized=resized, cropped=cropped)

    say(f"loading JPEGs with {REFERENCE}, which the others are compared with")
    try:
        reference, left_out = _reference(paths, make_loader(REFERENCE))
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the others are compared with {REFERENCE}, which is not installed; install it with: "
            f"pip install {RECIPES[REFERENCE]}"
        ) from error
    samples = list(zip(reference, range(len(reference)), strict=True))
    repeated = samples * ceil(EPOCH_BATCHES * batch_size / len(samples))
    loaders, pixels = {}, {}
    for name in names:
        say(f"comparing the pixels of {name}")
        try:
            make = make_loader(name)
            images = _loaded(make, samples, batch_size)
        except ModuleNotFoundError:
            left_out.append(f"{name} is not installed: pip install {RECIPES[name]}")
            continue
        except Exception as error:  # noqa: BLE001 - a library may raise anything, the others go on
            left_out.append(f"{name} is left out: {in_words(error)}")
            continue
        if len(images) < len(samples):
            counts = f"{len(images)} of {len(samples)}"
            left_out.append(f"{name} is left out: it loads {counts} JPEGs")
            continue
        loaders[name] = make(repeated, batch_size, workers)
        pixels[name] = float(
            np.mean(
                [
                    np.abs(images[place].astype(np.int16) - image).mean()
                    for place, image in enumerate(reference.values())
                ]
            )
        )
    if not loaders:
        raise UsageError(f"no recipe can be measured: {'; '.join(left_out)}")
    say(f"measuring {', '.join(loaders)} in turns")
    comparison = compare_backends(
        loaders,
        step,
        batches=48,
        rounds=4,
        unit="images",
        probes=("host",),
        stages=False,
        probe_interval_s=MEMORY_READ_S,
    )
    return comparison, pixels, left_out


def _reference(
    paths: Sequence[str], make_loader: MakeLoader
) -> tuple[dict[str, npt.NDArray[np.uint8]], list[str]]:
    """What the reference loads of MOST_JPEGS from all `paths`; and a sentence for each it cannot.

    Raises UsageError where it reads none.
    """
    images, left_out = {}, []
    for path in dict.fromkeys(paths[at * len(paths) // MOST_JPEGS] for at in range(MOST_JPEGS)):
        try:
            images[path] = _loaded(make_loader, [(path, 0)], 1)[0]
        except Exception as error:  # noqa: BLE001, PERF203 - any error says that a file is broken
            left_out.append(f"{Path(path).name} is left out: {in_words(error)}")
    if not images:
        raise UsageError(f"{REFERENCE} reads none of {len(paths)} JPEGs: {left_out[0]}")
    return images, left_out


def _loaded(
    make_loader: MakeLoader, samples: Sequence[Sample], batch_size: int
) -> dict[int, npt.NDArray[np.uint8]]:
    """The images of an epoch, by their class, which tells them apart in any order."""
    return {
        int(label): image
        for images, labels in make_loader(samples, batch_size, 0)
        for image, label in zip(images.numpy(), labels, strict=True)
    }


def computing_step(seconds: float) -> Callable[[object], None]:
    """A step of a fixed amount of work: on a CPU of its own it takes `seconds`, else longer."""
    numbers = np.linspace(-1, 1, 1 << 16, dtype=np.float32)
    out = np.empty_like(numbers)

    def compute(times: int) -> None:
        for _ in range(times):
            np.tanh(numbers, out=out)

    fastest_s = min(timeit.repeat(lambda: compute(10), number=1, repeat=50)) / 10
    times = max(1, round(seconds / fastest_s))
    return lambda _batch: compute(times)
