"""The loader alone, timed while batches were prefetched; and what a run could not measure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.checks import busy_share

if TYPE_CHECKING:
    from loadeval.analysis.figures import Figures
    from loadeval.runlog.model import Run

NO_PREFETCH = "The loader alone was not timed: no batches were prefetched."
SWALLOWED = "The loader alone was not timed: all batches that were prefetched had been loaded ahead of time."
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
    elapsed_ns = sum(prefetch.elapsed_ns for prefetch in run.prefetches)
    timed = sum(prefetch.timed for prefetch in run.prefetches)
    samples = [prefetch.samples for prefetch in run.prefetches if prefetch.timed]
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
    if not any(prefetch.timed for prefetch in run.prefetches):
        said.append(SWALLOWED if run.prefetches else NO_PREFETCH)
    if pairs and run.header.loader.workers != 0 and busy_share(run, pairs) is None:
        said.append(NO_CPU)
    if found.real_batches and found.samples_per_batch is None:
        said.append(NO_SAMPLES)
    if pairs and run.header.loader.prefetch_depth is None:
        said.append(NO_DEPTH)
    return tuple(said)
