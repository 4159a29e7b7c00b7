"""Several loaders under one training step, and recipes for loaders of a folder of JPEGs."""

from __future__ import annotations

import gc
import os
import random
import timeit
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.resources import files
from math import ceil
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from loadeval.adapter import FactoryAdapter, IterableAdapter, adapter_for
from loadeval.core.batch import is_array, leaves
from loadeval.core.counting import Counter
from loadeval.core.rounds import Schedule, in_rounds
from loadeval.data.blocks import block_for
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import LoaderInfo
from loadeval.errors import UNGUARDED, LoadevalWarning, UsageError, in_words
from loadeval.evaluator import Measurement
from loadeval.probes import NAMES
from loadeval.report.build import result_of
from loadeval.report.report import Report
from loadeval.settings import Settings

Sample = tuple[str, int]
Pixels = npt.NDArray[np.uint8]

FEWEST_ROUNDS = 3
OPTIONS = {
    *("samples", "unit", "overwrite", "max_cache_bytes", "seed"),
    *("probes", "probe_interval_s", "stages", "clock"),
}
"""Settings that a comparison takes."""
MOST_EMPTY_EPOCHS = 3
"""After so many epochs in a row without a counted batch, more would not help."""
MOST_LEAVES = 6
"""A message lists no more leaves of a batch."""
SAME = {"float": "float32", "double": "float64"}
"""Frameworks have other names for these types."""
REFERENCE = "pillow"
RECIPES = {
    REFERENCE: "torch pillow",
    "pillow_draft": "torch pillow",
    "opencv": "torch opencv-python-headless",
    "simplejpeg": "torch pillow simplejpeg",
    "dali": "torch nvidia-dali-cuda120",
    "spdl": "torch pillow spdl-core",
}
"""What pip installs for each; `loadeval_adapters.recipes` has their files."""
DRAFT = "_draft"
"""The name of the recipe ends so that is the file of another with `draft=True`."""
MOST_JPEGS = 128
"""So many JPEGs are loaded again and again, at most."""
EPOCH_BATCHES = 64
"""Batches in an epoch, at least."""
PIXELS_DIFFER = 2.0
"""Above this mean difference, of 255 levels, pixels are said to differ from the reference's."""
MEMORY_READ_S = 0.5
"""Memory is read when a recipe was served for so long, and then every five seconds or so."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A loader for `compare_backends`, and how to convert its batches for the training step.

    `loader` is any loader, or a callable that returns a new one and is called each epoch.
    `convert` runs its batch into one that the training step takes. Its time counts as loading,
    since training with this loader needs it.

    Raises UsageError if `convert` is not callable.
    """

    loader: Any
    convert: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.convert is not None and not callable(self.convert):
            raise UsageError(
                f"convert is {self.convert!r}; expected a callable that runs a batch of this "
                "backend into one for the training step"
            )


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
        rounds: how often each backend runs, at least 3.
        unequal: allow batches and epochs that differ between backends.
        log_dir: a folder for run logs, one per backend, NAME.jsonl.
        options: as for LoaderEvaluator: `samples` (of a converted batch), `unit`, `overwrite`,
            `max_cache_bytes`, `seed`, `probes`, `probe_interval_s`, `clock`, and `stages`, which
            are timed in all batches.

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
    unknown = ", ".join(options.keys() - OPTIONS)
    if unknown:
        raise TypeError(f"compare_backends() has no option {unknown}")
    options = {"probes": NAMES, "stages": True, **options}
    settings = Settings(mode="alternate", pairs=rounds, batches=batches, **options)
    if not callable(step):
        raise UsageError(
            f"step is {step!r}; expected a function that trains on one batch: step(batch)"
        )
    logs = _logs_of(backends, log_dir)
    runs: dict[str, BackendRun] = {}
    failed: dict[str, Exception] = {}
    for name, backend in backends.items():
        log_file = None if logs is None else logs / f"{name}.jsonl"
        of_run = replace(settings, name=name, log_file=log_file)
        given = backend if isinstance(backend, Backend) else Backend(backend)
        try:
            runs[name] = BackendRun(given, of_run)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
        except Exception as error:  # noqa: BLE001 - the other backends go on
            failed[name] = error
    unlike = differences({name: run.work for name, run in runs.items()})
    if unlike and not unequal:
        raise UsageError(
            f"the backends' work differs: {'; '.join(unlike)}; convert batches with "
            "Backend(loader, convert=...), or pass unequal=True if this is intended"
        )
    orders = [list(runs) for _ in range(rounds)]
    for number, order in enumerate(orders):
        random.Random(f"{settings.seed}/round {number}").shuffle(order)  # noqa: S311 - no secret

    def serve(_round: int, name: str) -> Exception | None:
        with closing(runs[name].round()) as batches_of_round:
            try:
                for batch in batches_of_round:
                    step(batch)
            except Exception as error:
                note = f"The training step was given a batch of backend {name!r}."
                getattr(error, "add_note", str)(note)  # Python 3.10 has no notes
                raise
        return runs[name].error

    with ExitStack() as stack:
        comparison = uuid.uuid4().hex
        for run in runs.values():
            run.begin(comparison)
            stack.callback(run.recorder.close)
        in_rounds(orders, serve, failed)
    return Report(
        None,
        backends={
            name: result_of(run.recorder.run()) for name, run in runs.items() if name not in failed
        },
        failed={name: in_words(failed[name]) for name in backends if name in failed},
        unequal=unlike,
    )


def _logs_of(backends: object, log_dir: str | os.PathLike[str] | None) -> Path | None:
    """The folder for run logs, which is there now. Raises UsageError for names that cannot be."""
    if not isinstance(backends, Mapping) or not backends:
        raise UsageError(
            f"backends is {backends!r}; expected a dict of loaders by name, such as "
            '{"torch": dataloader, "dali": dali_iterator}'
        )
    for name in backends:
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"{name!r} cannot name a backend; expected text such as 'torch'")
        if log_dir is not None and Path(name).name != name:
            raise UsageError(f"{name!r} cannot name a run log; expected a name without slashes")
    if log_dir is not None:
        Path(log_dir).mkdir(parents=True, exist_ok=True)
    return None if log_dir is None else Path(log_dir)


class BackendAdapter(IterableAdapter):
    """Uses a backend's loader as the adapter for it does, and converts its batches."""

    def __init__(self, backend: Backend) -> None:
        self._loader, self._convert = backend.loader, backend.convert
        self._inner = adapter_for(backend.loader)
        self._epoch: Iterator[Any] | None = None
        of_batches = () if backend.convert else ("samples", "nbytes", "keep")
        for name in ("fence", "stages", "distributions", *of_batches):
            setattr(self, name, getattr(self._inner, name))

    @property
    def is_one_shot(self) -> bool:
        """Whether the loader has one epoch: its class may start over only if it is in Python."""
        kind = type(self._loader)
        starts_over = isinstance(getattr(kind, "__iter__", None), FunctionType)
        return (
            type(self._inner) is IterableAdapter and hasattr(kind, "__next__") and not starts_over
        )

    def describe(self, loader: Any) -> LoaderInfo:
        """What is known of the loader; each new one fills its queue during its epoch start."""
        info = self._inner.describe(loader)
        return replace(info, ready_batches=0) if type(self._inner) is FactoryAdapter else info

    def epoch(self, loader: Any) -> Iterator[Any]:
        """A new epoch, its batches converted."""
        with warnings.catch_warnings():
            # That the last epoch was not finished, which is normal here.
            warnings.simplefilter("ignore", LoadevalWarning)
            self._epoch = epoch = self._inner.epoch(loader)
        return epoch if self._convert is None else map(self._convert, epoch)

    def stop(self) -> None:
        """Stop the background work of the last epoch."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            self._inner.release(self._loader, epoch)


class BackendRun:
    """Serves a backend's rounds, and records them as one alternating run.

    Of `settings`, `pairs` is the number of rounds, and `batches` that of the real batches that
    count in all of them. `error` is what the loader raised: it serves no more rounds then.

    Raises UsageError for an object that is no loader, that has no batch, and for an iterator, which
    has only one epoch; and whatever the loader raises at the look at its first batch.
    """

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self.error: Exception | None = None
        self._loader = loader = backend.loader
        self._settings = settings
        self._adapter = adapter = BackendAdapter(backend)
        if adapter.is_one_shot:
            raise UsageError(
                f"a {type(loader).__name__} can be iterated only once, and each backend runs "
                "in several rounds; pass a callable that returns a new one"
            )
        info = adapter.describe(loader)
        _collect_before_fork(info)
        try:
            for batch in adapter.epoch(loader):
                count, _ = Counter(adapter, settings.samples).count(batch)
                self.work = work_of(batch, count, info.length)
                break
            else:
                raise UsageError("the loader gave no batch; expected a loader with at least one")
        finally:
            adapter.stop()

    def begin(self, comparison: str) -> None:
        """Begin to record, as one of the runs of `comparison`.

        Raises RunLogError if the settings' log file exists or cannot be written.
        """
        settings, adapter = self._settings, self._adapter
        depth = adapter.describe(self._loader).prefetch_depth or 0
        of_round = round((settings.batches or 1) / (settings.pairs or 1))
        counted = max(of_round, block_for(depth))
        self._schedule = Schedule(seed=settings.seed, prefetch_depth=depth, counted=counted)
        facts = {
            "comparison": comparison,
            "rounds": settings.pairs,
            "batches": settings.batches,
            "max_cache_bytes": settings.max_cache_bytes,
            "seed": settings.seed,
        }
        self._measurement = Measurement(
            self._loader, settings, adapter=adapter, schedule=self._schedule, facts=facts
        )
        self._measurement.guard = UNGUARDED  # whatever fails, the backend has
        self.recorder = self._measurement.recorder
        self.recorder.expects_batches = False  # another backend may end the comparison first

    def round(self) -> Generator[Any, None, None]:
        """The batches of the next round: train on each before requesting the next one.

        It is one pair of blocks, over as many epochs as it takes, and stops the loader afterwards.
        Close it if you leave early.
        """
        schedule, empty_epochs = self._schedule, 0
        schedule.begin_round()
        _collect_before_fork(self.recorder.header.loader)
        try:
            while (block := schedule.block) is not None:
                left = schedule.left
                for batch in self._measurement.epoch(self._loader, self):
                    if schedule.block is None:  # the rest of the epoch is dropped
                        break
                    yield batch
                is_empty = (block, left) == (schedule.block, schedule.left)
                empty_epochs = empty_epochs + 1 if is_empty else 0
                if empty_epochs == MOST_EMPTY_EPOCHS:
                    why = (
                        f"nothing could be counted in {MOST_EMPTY_EPOCHS} epochs: they end within "
                        f"their first batch and a warm-up of {block.warmup} batches; use longer "
                        "epochs"
                    )
                    self._failed(UsageError(why))
                    return
        except Exception as error:  # noqa: BLE001 - the other backends go on
            self._failed(error)
        finally:
            try:
                self._adapter.stop()
            except Exception as error:  # noqa: BLE001 - the other backends go on
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            self.recorder.note(in_words(error), "failed backend")


def _collect_before_fork(info: LoaderInfo) -> None:
    """Collect what the backend before has left in cycles.

    Else a forked worker may collect it, and hang: the destructor of a DALI pipeline waits for
    threads that only its own process has.
    """
    if info.start_method == "fork":
        gc.collect()


def work_of(batch: Any, samples: int, length: int | None) -> dict[str, str | None]:
    """What a backend does, by the words that tell it; None is not known."""
    described = [leaf_in_words(leaf) for leaf in leaves(batch)]
    more = len(described) - MOST_LEAVES
    shown = ", ".join(described[:MOST_LEAVES]) + (f" and {more} more" if more > 0 else "")
    return {
        "batch 0 is {}": shown or "empty",
        "batch 0 has {} samples": None if samples == UNKNOWN else str(samples),
        "an epoch has {} batches": None if length is None else f"{length:,}",
    }


def differences(work: Mapping[str, Mapping[str, str | None]]) -> list[str]:
    """How the work of each backend differs from the first one's, a clause for each difference."""
    return [
        f"{name}: {words.format(theirs)} where {first} has {ours}"
        for first in list(work)[:1]
        for name in work
        for words, ours in work[first].items()
        if None not in (theirs := work[name][words], ours) and theirs != ours
    ]


def leaf_in_words(leaf: Any) -> str:
    """An array by its shape and type, anything else by its class."""
    try:
        if is_array(leaf):
            # torch.uint8, DALIDataType.UINT8 and NumPy's uint8 are one type.
            dtype = str(leaf.dtype).rpartition(".")[2].lower()
            return f"{tuple(map(int, leaf.shape))} {SAME.get(dtype, dtype)}"
    except Exception:  # noqa: BLE001, S110 - ragged ones have no shape; each kind raises its own error
        pass
    return type(leaf).__name__


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
    file = files("loadeval_adapters.recipes") / f"{name.removesuffix(DRAFT)}.py"
    text = file.read_text(encoding="utf-8")
    text = text.replace("resized=256, cropped=224", f"resized={resized}, cropped={cropped}")
    return text.replace("draft=False", f"draft={name.endswith(DRAFT)}")


def recipe_loader(
    name: str, samples: Sequence[Sample], batch_size: int, workers: int, **sizes: int
) -> Any:
    """The loader that the recipe `name` makes."""
    recipe = import_module(f"loadeval_adapters.recipes.{name.removesuffix(DRAFT)}")
    draft = {"draft": True} if name.endswith(DRAFT) else {}
    return recipe.make_loader(samples, batch_size, workers, **sizes, **draft)


def compare_recipes(  # noqa: C901, PLR0913 - options, all by keyword, and one way through
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
    made = partial(recipe_loader, resized=resized, cropped=cropped)

    def loaded(name: str, samples: Sequence[Sample], size: int) -> dict[int, Pixels]:
        """The images of an epoch, by their class, which tells them apart in any order."""
        return {
            int(label): image
            for images, labels in made(name, samples, size, 0)
            for image, label in zip(images.numpy(), labels, strict=True)
        }

    say(f"loading JPEGs with {REFERENCE}, which the others are compared with")
    left_out: list[str] = []
    samples: list[Sample] = []
    reference: list[Pixels] = []
    for path in dict.fromkeys(paths[at * len(paths) // MOST_JPEGS] for at in range(MOST_JPEGS)):
        try:
            reference.append(loaded(REFERENCE, [(path, 0)], 1)[0])
        except ModuleNotFoundError as error:  # noqa: PERF203 - each file by itself
            raise UsageError(
                f"the others are compared with {REFERENCE}, which is not installed; install it "
                f"with: pip install {RECIPES[REFERENCE]}"
            ) from error
        except Exception as error:  # noqa: BLE001 - any error says that a file is broken
            left_out.append(f"{Path(path).name} is left out: {in_words(error)}")
        else:
            samples.append((path, len(samples)))
    if not samples:
        raise UsageError(f"{REFERENCE} reads none of {len(paths)} JPEGs: {left_out[0]}")
    repeated = samples * ceil(EPOCH_BATCHES * batch_size / len(samples))
    loaders, pixels = {}, {}
    for name in names:
        say(f"comparing the pixels of {name}")
        try:
            images = loaded(name, samples, batch_size)
            if len(images) < len(samples):
                counts = f"{len(images)} of {len(samples)}"
                left_out.append(f"{name} is left out: it loads {counts} JPEGs")
                continue
            differ = [
                np.abs(images[at].astype(np.int16) - image).mean()
                for at, image in enumerate(reference)
            ]
            loaders[name] = made(name, repeated, batch_size, workers)
            pixels[name] = float(np.mean(differ))
        except ModuleNotFoundError:
            left_out.append(f"{name} is not installed: pip install {RECIPES[name]}")
        except Exception as error:  # noqa: BLE001 - a library may raise anything, the others go on
            left_out.append(f"{name} is left out: {in_words(error)}")
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
