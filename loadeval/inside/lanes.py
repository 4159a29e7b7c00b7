"""What the loader and training did when, batch by batch: for timelines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadeval.data.columns import UNKNOWN, Column, Columns
from loadeval.data.run import Run
from loadeval.inside.stages import loaded

MOST_BATCHES = 200
"""Batches of a stretch: more are narrower than a pixel, and slow to draw."""


def spans(batches: Columns) -> dict[str, tuple[Column, Column]]:
    """When each stage of each batch began, and how long it took; UNKNOWN where either is.

    Indices are drawn before the batch is fetched where the training process does that itself, and
    for a later batch, before this one is handed over, where workers do.
    """
    indexed_ns = np.where(batches.worker == UNKNOWN, batches.fetch_start_ns, batches.delivered_ns)
    moments = {
        "indices": (indexed_ns, batches.index_ns, -batches.index_ns),
        "fetch": (batches.fetch_start_ns, batches.fetch_ns, 0),
        "collate": (batches.fetch_start_ns, batches.collate_ns, batches.fetch_ns.clip(0)),
        "pickle": (batches.pickle_start_ns, batches.pickle_ns, 0),
        "receive": (batches.received_ns, batches.receive_ns, -batches.receive_ns),
        "pin": (batches.received_ns, batches.pin_ns, 0),
    }
    began = {}
    for stage, (moment_ns, took_ns, after_ns) in moments.items():
        known = (moment_ns != UNKNOWN) & (took_ns != UNKNOWN)
        begin_ns = np.where(known, moment_ns + after_ns, UNKNOWN)
        began[stage] = begin_ns, np.where(known, took_ns, UNKNOWN)
    return began


@dataclass(frozen=True, eq=False)
class Lanes:
    """Consecutive batches of one epoch, which `says` tells; times are since the run's start.

    `batches` are as in `loaded`, and `steps` has `start_ns` and `end_ns` of the training steps of
    that time.
    """

    says: str
    batches: Columns
    steps: Columns


def lanes(run: Run) -> Lanes | None:
    """The middle of the last of the longest epochs; None where the loader was not looked into."""
    batches = loaded(run)
    if not len(batches):
        return None
    epoch, shown = max(reversed(batches.by("epoch")), key=lambda each: len(each[1]))
    first = max((len(shown) - MOST_BATCHES) // 2, 0)
    stretch = shown.take(slice(first, first + MOST_BATCHES))
    numbers = f"{stretch.batch[0]} to {stretch.batch[-1]}, {len(stretch)} of them drawn"
    steps, start_ns = run.steps, run.steps.request_ns + run.steps.wait_ns
    within = (start_ns >= stretch.requested_ns[0]) & (start_ns <= stretch.delivered_ns[-1])
    rows = within & (steps.request_ns != UNKNOWN) & (steps.step_ns != UNKNOWN)
    return Lanes(
        says=f"Epoch {epoch}, batches {numbers}",
        batches=stretch,
        steps=Columns({"start_ns": start_ns[rows], "end_ns": (start_ns + steps.step_ns)[rows]}),
    )
