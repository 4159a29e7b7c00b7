"""The tracks of a timeline on which workers load batches, and the training process takes them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.export.events import event, length, moment, track_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadeval.data.columns import Column
    from loadeval.data.run import Run


class Slices(NamedTuple):
    """What was done for some batches on one track, from when and for how long.

    `facts` are columns that tell more of each batch, by the names under which they are told.
    """

    name: str
    batch: Column
    start_ns: Column
    took_ns: Column
    facts: dict[str, Column]


def stage_events(run: Run, first_track: int) -> Iterator[str]:
    """The events of each epoch that was looked into, on tracks from number `first_track` on."""
    numbers = count(first_track)
    for epoch, times in run.stages.by("epoch"):
        for name, slices in _tracks(times):
            known = [_known(part) for part in slices]
            if any(len(part.batch) for part in known):
                track = next(numbers)
                yield from track_names(track, f"epoch {epoch}: {name}")
                yield from _on_one_track(track, known)


def _tracks(times: Columns) -> Iterator[tuple[str, Sequence[Slices]]]:
    """The tracks of an epoch: each worker has one of fetching and one of pickling, beside it."""
    for worker in np.unique(times.worker).tolist():
        own = times.take(times.worker == worker)
        name = "loading" if worker == UNKNOWN else f"worker {worker}"
        facts = {name: getattr(own, name) for name in ("samples", "slowest_index", "slowest_ns")}
        collate = np.where(
            own.collate_ns == UNKNOWN, UNKNOWN, own.fetch_start_ns + own.fetch_ns.clip(min=0)
        )
        yield (
            name,
            [
                Slices("fetch", own.batch, own.fetch_start_ns, own.fetch_ns, facts),
                Slices("collate", own.batch, collate, own.collate_ns, {}),
            ],
        )
        sizes = {"pickled_bytes": own.pickled_bytes}
        pickle = Slices("pickle", own.batch, own.pickle_start_ns, own.pickle_ns, sizes)
        yield f"{name}, queue", [pickle]
    started = np.where(times.received_ns == UNKNOWN, UNKNOWN, times.received_ns - times.receive_ns)
    yield (
        "receive and pin",
        [
            Slices("receive", times.batch, started, times.receive_ns, {}),
            Slices("pin", times.batch, times.received_ns, times.pin_ns, {}),
        ],
    )
    handed_out = np.where(times.worker == UNKNOWN, times.fetch_start_ns, times.delivered_ns)
    started = np.where(handed_out == UNKNOWN, UNKNOWN, handed_out - times.index_ns)
    yield "indices", [Slices("indices", times.batch, started, times.index_ns, {})]


def _known(slices: Slices) -> Slices:
    """`slices` without those that have an unknown time."""
    known = (slices.start_ns != UNKNOWN) & (slices.took_ns != UNKNOWN)
    facts = {name: column[known] for name, column in slices.facts.items()}
    return Slices(
        slices.name, slices.batch[known], slices.start_ns[known], slices.took_ns[known], facts
    )


def _on_one_track(track: int, slices: Sequence[Slices]) -> Iterator[str]:
    """The events in order; one measured to begin before another ended begins when that ends."""
    rows: list[tuple[int, int, str, dict[str, Any]]] = []
    for part in slices:
        facts = [column.tolist() for column in part.facts.values()]
        columns = (part.start_ns.tolist(), part.took_ns.tolist(), part.batch.tolist(), *facts)
        for start, took, batch, *facts_of_batch in zip(*columns, strict=True):
            args = dict(zip(part.facts, facts_of_batch, strict=True))
            known = {name: value for name, value in args.items() if value != UNKNOWN}
            rows.append((start, took, part.name, {"batch": batch, **known}))
    over_ns = 0
    for start, took, name, args in sorted(rows, key=lambda row: row[0]):
        begin_ns, over_ns = max(start, over_ns), max(start + took, over_ns)
        yield event("X", name, track, moment(begin_ns), length(over_ns - begin_ns), args=args)
