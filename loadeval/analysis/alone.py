"""The loader alone, timed while batches were pulled; and what a run could not measure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.checks import busy_share

if TYPE_CHECKING:
    from loadeval.analysis.figures import Figures
    from loadeval.runlog.model import Run

NO_PULL = "The loader alone was not timed: no batches were pulled."
SWALLOWED = (
    "The loader alone was not timed: all batches that were pulled had been loaded ahead of time."
)
NO_CPU = (
    "The CPU time of the loader's workers in the ideal blocks could not be read: whether they "
    "rested is not known."
)
NO_SAMPLES = "Samples are not known of every batch: batches are compared as if equally large."
NO_DEPTH = (
    "How far the loader reads ahead is not known: if it does, blocks of real loading begin with a "
    "queue that ideal ones have filled, and the loss is larger than it looks."
)
NO_INTERVAL = "There is no interval: fewer than three pairs are whole."


def loader_only_ns(run: Run, samples_per_batch: float | None) -> float | None:
    """The pace of the loader alone, in nanoseconds per batch; None: not timed.

    Where all samples are known it is per sample, times `samples_per_batch`.
    """
    elapsed_ns = sum(pull.elapsed_ns for pull in run.pulls)
    timed = sum(pull.timed for pull in run.pulls)
    samples = [pull.samples for pull in run.pulls if pull.timed]
    known = [count for count in samples if count]
    if not timed:
        return None
    if samples_per_batch is None or len(known) < len(samples):
        return elapsed_ns / timed
    return elapsed_ns / sum(known) * samples_per_batch


def not_measured(run: Run, found: Figures, pairs: list[int]) -> tuple[str, ...]:
    """What an alternating run could not measure, and why, a sentence each."""
    said = []
    if found.gain is not None and found.gain.speedup.low is None:
        said.append(NO_INTERVAL)
    if not any(pull.timed for pull in run.pulls):
        said.append(SWALLOWED if run.pulls else NO_PULL)
    if pairs and run.header.loader.workers != 0 and busy_share(run, pairs) is None:
        said.append(NO_CPU)
    if found.real_batches and found.samples_per_batch is None:
        said.append(NO_SAMPLES)
    if pairs and run.header.loader.prefetch_depth is None:
        said.append(NO_DEPTH)
    return tuple(said)
