"""compare_backends: several loaders under one training step, side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from loadeval.errors import UsageError
from loadeval.probes import NAMES, probes_named
from loadeval.runtime.backends import Backend, BackendRunner
from loadeval.runtime.metrics_thread import Probes
from loadeval.runtime.settings import DEFAULT_CACHE_BYTES, DEFAULT_PROBE_INTERVAL_S, Settings

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from loadeval.report.backends import BackendComparison

FEWEST_ROUNDS = 3
"""With fewer there would be no interval."""


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
    probe_interval_s: float = DEFAULT_PROBE_INTERVAL_S,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> BackendComparison:
    """Measure one training step with several loaders: each as it is, and as if it were free.

    Backends take turns, in random order in each of several rounds, so that drift of the machine
    hits all alike; who has no turn is at rest. In its turn a backend begins a new epoch, whose
    epoch start and warm-up are left out, and serves blocks of real batches and blocks of batches
    that were prefetched into memory, as `LoaderEvaluator(mode="alternate")` does. A turn goes
    on over as many epochs as it takes; one that ends within an epoch leaves the rest of it, so
    let loaders shuffle.

    Args:
        backends: by name a loader, or a callable that returns a new one (each epoch calls it),
            or a `Backend` with a converter.
        step: what is trained with each batch. Its errors are not caught.
        batches: about how many real batches of each backend count, and as many ideal ones.
        rounds: how many turns each backend has, 3 or more.
        unequal: whether batches and epochs may differ between backends.
        samples: a callable from a batch, converted, to its number of samples; by default the
            first dimension of the first array in it.
        unit: what the samples are called in reports: images, videos.
        log_dir: a folder for a run log of each backend, named after it, with all its turns.
        overwrite: whether these may replace files.
        max_cache_bytes: more than this is not prefetched at once.
        seed: of the order of turns and blocks.
        probes: what is read of the machine meanwhile, as for LoaderEvaluator; () for nothing.
        probe_interval_s: seconds between two readings.
        clock: a clock in nanoseconds, for tests.

    Returns throughputs, speed-ups and differences, with 95% intervals. Drift that is slow beside
    a round widens the intervals of throughputs alone. What is unequal and could not be seen
    beforehand, such as epochs of loaders without a length, is a caution. A backend whose loader
    raises is told as failed, with the error, and the others go on.

    Raises:
        UsageError: an argument cannot be used, or the backends do not do equal work.
        RunLogError: a run log exists, or cannot be written.
    """
    settings = Settings(
        mode="alternate",
        samples=samples,
        unit=unit,
        max_cache_bytes=max_cache_bytes,
        overwrite=overwrite,
        pairs=_checked_rounds(rounds),
        batches=batches,
        seed=seed,
        clock=clock,
        probes=tuple(probes),
        probe_interval_s=probe_interval_s,
    )
    if not callable(step):
        raise UsageError(
            f"step is {step!r}; expected a callable that trains with a batch: step(batch)"
        )
    chosen = _checked(backends)
    logs = {} if log_dir is None else _logs(chosen, Path(log_dir))
    runner = BackendRunner(
        chosen, settings, lambda: Probes(probes_named(settings.probes), probe_interval_s)
    )
    if runner.unlike and not unequal:
        raise UsageError(
            f"{'; '.join(runner.unlike)}; pass a converter, Backend(loader, convert=...), or "
            "unequal=True if that is meant"
        )
    measured = runner.run(step, logs)
    from loadeval.report.backends import BackendComparison  # noqa: PLC0415 - training needs no report

    return BackendComparison.of_measured(measured, runner.unlike)


def _checked_rounds(rounds: object) -> int:
    if type(rounds) is not int or rounds < FEWEST_ROUNDS:
        raise UsageError(
            f"rounds is {rounds!r}; expected a whole number, {FEWEST_ROUNDS} or more, since fewer "
            "rounds make no interval"
        )
    return rounds


def _checked(backends: object) -> dict[str, Backend]:
    if not isinstance(backends, Mapping) or not backends:
        raise UsageError(
            f"backends is {backends!r}; expected loaders by their names, such as "
            '{"torch": dataloader, "dali": dali_iterator}'
        )
    for name in backends:
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"{name!r} names a backend; expected a word such as 'torch'")
    return {
        name: backend if isinstance(backend, Backend) else Backend(backend)
        for name, backend in cast("Mapping[str, Any]", backends).items()
    }


def _logs(backends: Mapping[str, Backend], folder: Path) -> dict[str, Path]:
    for name in backends:
        if Path(name).name != name:
            raise UsageError(
                f"{name!r} cannot name a run log in {folder}; give the backend a name without "
                "slashes, or leave log_dir= out"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {folder} for run logs: {error.strerror or error}; give "
            "log_dir= a folder that can be written"
        ) from error
    return {name: folder / f"{name}.jsonl" for name in backends}
