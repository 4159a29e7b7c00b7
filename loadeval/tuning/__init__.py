"""tune: the settings of a loader with which training is fastest, predicted and then measured."""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from loadeval.analysis.predict.tuning import WORKERS
from loadeval.errors import UsageError
from loadeval.probes import NAMES
from loadeval.runtime.settings import DEFAULT_CACHE_BYTES, EvaluatorSettings
from loadeval.tuning.loaders import LoaderMaker
from loadeval.tuning.progress import bar
from loadeval.tuning.trials import Turns
from loadeval.tuning.tuner import Tuner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from loadeval.report.tuning import Tuning

FEWEST_ROUNDS = 3
"""Fewer rounds give no confidence interval."""


def tune(  # noqa: PLR0913 - options, nearly all by keyword
    make: Any,
    step: Callable[[Any], object] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    space: Mapping[str, Iterable[Any]] | None = None,
    batches: int = 80,
    rounds: int = 4,
    max_trials: int = 6,
    epoch_batches: int | None = None,
    samples: Callable[[Any], int | None] | None = None,
    unit: str = "samples",
    max_cache_bytes: int = DEFAULT_CACHE_BYTES,
    seed: int = 0,
    probes: Iterable[Any] = NAMES,
    progress: bool = True,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Tuning:
    """Find the settings of a loader with which training is fastest.

    Measures the present settings and what happens inside the loader, predicts others, and then
    measures the predicted best and its neighbours in turns with the present ones, as
    `compare_backends` does; with each measurement predictions get better. It ends when the best is
    better than its neighbours, or when less than 2% more is predicted. Settings that are as fast
    within the interval, or within 2%, count as equal: the fewest workers win, then the least
    prefetch. If loadeval cannot look into the loader, it predicts nothing, and doubles and
    halves the settings as long as that helps.

    For a DataLoader, `num_workers`, `prefetch_factor` and `in_order` are predicted, and
    `persistent_workers` where the start of an epoch takes 2% of it or more. At the end `pin_memory`
    is tried where there is CUDA. Settings that need more memory or shared memory than is free are
    left out. Ctrl-C ends it with what is known until then.

    Args:
        make: a function that makes the loader with settings by keyword, or a loader that its
            adapter can make again.
        step: the training step, called with each batch; without it the throughput of the loader
            alone counts. Its exceptions propagate, but for settings that were not there before.
        settings: the present settings, passed to `make`. What is not among them keeps the loader's
            default, unless another value is faster.
        space: values to choose from, by setting, such as {"num_workers": [2, 4, 8]}; others keep
            their default values to choose from. `batch_size` and `multiprocessing_context` are
            tuned only if they are here. The present value always belongs to them.
        batches: about how many real, and as many ideal, batches to measure of each setting; more
            where its queue holds more.
        rounds: how often each runs, at least 3.
        max_trials: how many settings to measure at most.
        epoch_batches: the batches of an epoch, over which its start counts; by default the
            loader's length.
        samples: a callable that returns a batch's number of samples; by default the first
            dimension of its first array.
        unit: what reports call the samples, such as "images".
        max_cache_bytes: the most memory that prefetched batches may take.
        seed: seeds the random order of settings and blocks.
        probes: the system metrics to record, as for LoaderEvaluator; () records none.
        progress: whether to show a bar on stderr, if that is a terminal.
        clock: a clock in nanoseconds, for tests.

    Settings with which the loader fails are reported as failed, with the error.

    Raises:
        UsageError: an argument is not valid, or `make` does not use the settings.
        KeyboardInterrupt: there was nothing to tell yet.
        Exception: what the loader raises with its present settings.
    """
    if rounds < FEWEST_ROUNDS or max_trials < 1:
        raise UsageError(
            f"rounds is {rounds!r} and max_trials {max_trials!r}; expected at least "
            f"{FEWEST_ROUNDS}, for a confidence interval, and 1"
        )
    if step is not None and not callable(step):
        raise UsageError(
            f"step is {step!r}; expected a function that trains on one batch: step(batch)"
        )
    maker = LoaderMaker(make, {} if settings is None else settings)
    evaluator_settings = EvaluatorSettings(
        mode="alternate",
        samples=samples,
        unit=unit,
        max_cache_bytes=max_cache_bytes,
        overwrite=False,
        pairs=rounds,
        batches=batches,
        seed=seed,
        clock=clock,
        probes=tuple(probes),
        stages=True,
    )
    with bar(progress, clock) as on_progress, _quietly():
        turns = Turns(maker, step or _no_step, evaluator_settings, on_progress, epoch_batches)
        tuner = Tuner(maker, values_of(space), max_trials).run(turns.measure)
    report = tuner.report(unit, step is not None)
    from loadeval.report.tuning import Tuning  # noqa: PLC0415 - training needs no report

    return Tuning.of(report, maker.make)


def _no_step(_batch: Any) -> None:
    """Stands in for a training step where there is none."""


def values_of(space: Mapping[str, Iterable[Any]] | None) -> dict[str, list[Any]]:
    """The values to choose from, by setting. Raises UsageError where there are none."""
    choices = {}
    for name, values in ({} if space is None else space).items():
        choices[name] = [] if isinstance(values, str) else list(values)
        if not choices[name]:
            raise UsageError(
                f"space has {name}={values!r}; expected the values to choose from, such as "
                f'{{"{WORKERS}": [2, 4, 8]}}'
            )
        numbers = sum(isinstance(value, (int, float)) for value in choices[name])
        if 0 < numbers < len(choices[name]) and None not in choices[name]:
            raise UsageError(f"space has {name}={choices[name]!r}; expected numbers alone, or none")
    return choices


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide torch's warnings about settings that would not help: tuning measures that.

    torch would repeat them for each epoch.
    """
    with warnings.catch_warnings():
        for message in ("This DataLoader will create", "'pin_memory' argument is set as true"):
            warnings.filterwarnings("ignore", message, UserWarning)
        yield
