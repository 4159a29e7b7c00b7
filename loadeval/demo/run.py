"""The whole demo: photographs, a training run with real and free loading in turn, a figure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import torch

from loadeval.demo.folder import DemoFolder
from loadeval.demo.photographs import make_photographs
from loadeval.demo.training import Training
from loadeval.evaluator import LoaderEvaluator
from loadeval.report.figure import plot_comparison

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PHOTOGRAPHS = 1024
EPOCHS = 12
"""Of 32 batches each; a pair of blocks takes 26."""

Progress = Callable[[str, int, int], object]
"""Is told of a stage: its name, how much of it is done, and out of how much."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The files that a demo wrote, and how well the network did.

    `accuracy` is the share of photographs, 0 to 1, that were classified right during the last
    epoch.
    """

    run_log: Path
    figure: Path
    accuracy: float


def run_demo(
    output: Path,
    progress: Progress = lambda _stage, _done, _total: None,
    *,
    photographs: int = PHOTOGRAPHS,
    epochs: int = EPOCHS,
) -> DemoResult:
    """Train on JPEGs in `output`, with real and with free loading in turn, and compare.

    The run log and the figure of an earlier demo are replaced. Raises UsageError when `output`
    cannot be written.
    """
    folder = DemoFolder(output)
    folder.clear()
    made = "Making photographs"
    try:
        paths = make_photographs(
            folder.photographs, photographs, lambda done: progress(made, done, photographs)
        )
    except OSError as error:
        raise folder.cannot_write(error) from error
    with one_thread(), nothing_said():
        accuracy = _train(paths, folder.run_log, epochs, progress)
    figure = plot_comparison(folder.run_log, output=folder.figure)
    return DemoResult(folder.run_log, figure, accuracy)


def _train(paths: list[Path], log_file: Path, epochs: int, progress: Progress) -> float:
    training = Training(paths)
    evaluator = LoaderEvaluator(
        training.dataloader, mode="alternate", log_file=log_file, unit="images"
    )
    total = epochs * len(evaluator)
    steps = count(1)
    with evaluator:
        accuracies = [
            training.train_one_epoch(evaluator, lambda: progress("Training", next(steps), total))
            for _ in range(epochs)
        ]
    return accuracies[-1]


@contextmanager
def nothing_said() -> Iterator[None]:
    """Without what alternating changes of a training: nobody keeps this one."""
    log = logging.getLogger("loadeval")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread: more would wait for the cores that the workers hold."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
