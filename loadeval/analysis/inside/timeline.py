"""The timeline of an epoch: when a loader did what for each batch, and what was waited for."""

from __future__ import annotations

from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from loadeval.data.columns import UNKNOWN, Columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.data.columns import Column
    from loadeval.data.run import Run

Mask = npt.NDArray[np.bool_]


class Stage(Enum):
    """What is done for a batch, in order."""

    INDICES = "indices"
    FETCH = "fetch"
    COLLATE = "collate"
    PICKLE = "pickle"
    RECEIVE = "receive"
    PIN = "pin"


class Charges(NamedTuple):
    """What each stage is charged in all, over `batches` that took `total_ns`."""

    batches: int
    total_ns: float
    stages: dict[Stage, float]


class LoaderTimeline:
    """One epoch of a loader: when which worker did what, and what was waited for meanwhile.

    A batch was made by one worker, in order: fetch, collate, pickle; then received and pinned by
    the training process. What the worker did before was for batches that training had before, so
    that it is in no later wait.
    """

    def __init__(self, epoch: int, times: Columns, depth: int) -> None:
        self.epoch = epoch
        known = (times.requested_ns != UNKNOWN) & (times.delivered_ns != UNKNOWN)
        self.times = times.take(known & (times.fetch_start_ns != UNKNOWN))
        self._depth = depth

    def __len__(self) -> int:
        return len(self.times)

    @cached_property
    def fetched_ns(self) -> Column:
        """When each batch was fetched."""
        return self.times.fetch_start_ns + or_0(self.times.fetch_ns)

    @cached_property
    def collated_ns(self) -> Column:
        """When each was collated."""
        return self.fetched_ns + or_0(self.times.collate_ns)

    @cached_property
    def ready_ns(self) -> Column:
        """When each could be received: pickled, or collated where nothing is pickled."""
        times = self.times
        pickled = times.pickle_start_ns + or_0(times.pickle_ns)
        pickled = np.where(times.pickle_start_ns == UNKNOWN, self.collated_ns, pickled)
        ready_ns: Column = np.maximum(pickled, self.collated_ns)
        return ready_ns

    @cached_property
    def received_ns(self) -> Column:
        """When the training process had each; if that is unknown, when it was ready."""
        # UNKNOWN is less than any moment.
        received_ns: Column = np.maximum(self.times.received_ns, self.ready_ns)
        return received_ns

    def prefetched(self, run: Run) -> Mask:
        """Batches that were taken back to back, and timed: see Prefetch."""
        rows = np.zeros(len(self), dtype=np.bool_)
        batch = self.times.batch
        for prefetch in run.prefetches:
            if prefetch.epoch == self.epoch and prefetch.began_ns is not None and prefetch.timed:
                since = batch[self.times.requested_ns >= prefetch.began_ns]
                if len(since):  # by their numbers, for rows may be missing
                    end = int(since[0]) + prefetch.batches
                    rows |= (batch >= end - prefetch.timed) & (batch < end)
        return rows

    def steady(self, warmup: int) -> Mask:
        """All but the first `warmup` batches of the epoch, and one at least."""
        return np.asarray(self.times.batch >= max(warmup, 1))

    def charged(self, rows: Mask, *, back_to_back: bool) -> Charges:
        """What each stage was waited for, in the requests of `rows`.

        `back_to_back` adds what lies between them and the batch before, in which the workers
        went on, and training did not.
        """
        times = self.times
        begin, end = times.requested_ns.copy(), times.delivered_ns
        if back_to_back and (times.worker != UNKNOWN).any():
            follows = np.diff(times.batch) == 1  # else rows between them are missing
            begin[1:][follows] = end[:-1][follows]
        begin, end = begin[rows], end[rows]
        charges = dict.fromkeys(Stage, 0.0)
        for stage, start_ns, stop_ns in self._segments(rows):
            charges[stage] += _overlap(start_ns, stop_ns, begin, end)
        return Charges(len(begin), float((end - begin).sum()), charges)

    def _segments(self, rows: Mask) -> Iterator[tuple[Stage, Column, Column]]:
        """What was done, one after the other, until each of `rows` was delivered."""
        times = self.times
        fetch, fetched, collated, ready, received = (
            column[rows]
            for column in (
                times.fetch_start_ns,
                self.fetched_ns,
                self.collated_ns,
                self.ready_ns,
                self.received_ns,
            )
        )
        if (times.worker == UNKNOWN).all():  # the training process asks for indices, and fetches
            yield Stage.INDICES, fetch - or_0(times.index_ns[rows]), fetch
        yield Stage.FETCH, fetch, fetched
        yield Stage.COLLATE, fetched, collated
        pickles = times.pickle_start_ns[rows]
        pickles = np.where(pickles == UNKNOWN, collated, np.clip(pickles, collated, ready))
        # Its queue's thread waits for Python's lock, with which the worker fetches the next batch.
        yield Stage.FETCH, collated, pickles
        yield Stage.PICKLE, pickles, ready
        yield Stage.RECEIVE, ready, received
        pinned = received + or_0(times.pin_ns[rows])
        yield Stage.PIN, received, pinned
        if (times.worker != UNKNOWN).any():
            delivered = times.delivered_ns[rows]
            indices = np.maximum(delivered - or_0(times.index_ns[rows]), pinned)
            # To hand it over the training process needs a CPU, and Python's lock.
            yield Stage.RECEIVE, pinned, indices
            yield Stage.INDICES, indices, delivered

    def head_of_line_ns(self) -> Column:
        """How long each batch was waited for while a later one lay ready."""
        requested, ready = self.times.requested_ns, self.ready_ns
        until = np.clip(ready, requested, self.times.delivered_ns)
        earliest = np.full(len(self), np.iinfo(np.int64).max)
        for ahead in range(1, min(max(self._depth, 1), len(self) - 1) + 1):
            earliest[:-ahead] = np.minimum(earliest[:-ahead], ready[ahead:])
        waited_ns: Column = np.maximum(until - np.maximum(requested, earliest), 0)
        return waited_ns


def _overlap(start: Column, stop: Column, begin: Column, end: Column) -> float:
    """How much of the intervals from `start` to `stop` lies within those from `begin` to `end`."""
    return float((np.minimum(stop, end) - np.maximum(start, begin)).clip(min=0).sum())


def or_0(column: Column) -> Column:
    """The column, with 0 for unknown values."""
    return np.where(column == UNKNOWN, 0, column)
