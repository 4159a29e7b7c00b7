"""Programs that read a loader through a LoaderEvaluator, and what has come of it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from loadeval import LoaderEvaluator, LoadevalWarning, Run, read_run

MODES = ("log", "alternate", "replay")
IN_EACH_MODE = pytest.mark.parametrize("mode", MODES)


class Outcome(NamedTuple):
    """The batches of each epoch, the run as its log tells it, and what loadeval warned of."""

    epochs: list[list[Any]]
    run: Run
    said: list[str]


def read(
    loader: Any,
    mode: str,
    folder: Path,
    epochs: int = 1,
    change: Callable[[Any], Any] = lambda batch: batch,
    **options: Any,
) -> Outcome:
    """Read `loader` for some epochs, and then its log; what is kept of a batch is its `change`."""
    gc.collect()  # what tests before this one have left open warns when it is collected
    gc.freeze()  # and what lives need not be looked at again by the next
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with LoaderEvaluator(loader, mode, log_file=folder / "run.jsonl", **options) as evaluator:
            epoch_batches = [[change(batch) for batch in evaluator] for _ in range(epochs)]
    texts = [
        str(warning.message) for warning in said if issubclass(warning.category, LoadevalWarning)
    ]
    return Outcome(epoch_batches, read_run(folder / "run.jsonl"), texts)


def read_on(epoch: Iterator[Any]) -> list[Any]:
    """What a consumer gets that goes on after each exception."""
    over, got = object(), list[Any]()
    while True:
        try:
            if (batch := next(epoch, over)) is over:
                return got
            got.append(batch)
        except BaseException as error:  # noqa: BLE001, PERF203 - the consumer's way
            got.append(type(error))
