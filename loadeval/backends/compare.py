"""compare_backends: several loaders with the same training step, side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from loadeval.errors import UsageError
from loadeval.probes import NAMES, probes_named
from loadeval.runtime.alternation.backends import Backend, BackendRunner
from loadeval.runtime.background.metrics_thread import Probes
from loadeval.runtime.settings import (
    DEFAULT_CACHE_BYTES,
    DEFAULT_PROBE_INTERVAL_S,
    EvaluatorSettings,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from loadeval.report.backends import BackendComparison

FEWEST_ROUNDS = 3
"""Fewer rounds give no confidence interval."""


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
) -> BackendComparison:
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

    Returns throughputs, speed-ups and differences with 95% CIs. Drift over several rounds widens
    the CIs of the throughputs only. Differences that show only during the run, such as epochs of
    different lengths, become cautions. If a loader raises, its backend is reported as failed,
    with the error, and the other backends continue.

    Raises:
        UsageError: an argument is not valid, or the backends' work differs.
        RunLogError: a run log exists, or cannot be written.
    """
    settings = EvaluatorSettings(
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
    from loadeval.report.backends import BackendComparison  # noqa: PLC0415 - training needs no report

    return BackendComparison.of_measured(measured, runner.differences)


def _checked_rounds(rounds: object) -> int:
    if type(rounds) is not int or rounds < FEWEST_ROUNDS:
        raise UsageError(
            f"rounds is {rounds!r}; expected a whole number, {FEWEST_ROUNDS} or more: fewer "
            "rounds give no confidence interval"
        )
    return rounds


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
