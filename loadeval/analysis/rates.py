"""What some batches add up to, and how fast they came: of a run that goes on, and of its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


RECENT_NS = 60 * SECOND_NS
"""What counts as now."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Batches and samples per second over some batches, and the share of the time that was waited.

    `elapsed_ns` is the time that the batches took. What is not known is None.
    """

    batches: int
    elapsed_ns: int
    batches_per_s: float | None
    samples_per_s: float | None
    wait_share: float | None


@dataclass(frozen=True, slots=True)
class BatchSums:
    """Sums over some batches that count, and when the last step of them ended."""

    end_ns: int = 0
    batches: int = 0
    wait_ns: int = 0
    step_ns: int = 0
    samples: int | None = 0


def in_seconds(rows: Columns) -> Iterator[Columns]:
    """The last minute of `rows`, second by second, after all that came before."""
    end_ns = rows.request_ns + rows.wait_ns + rows.step_ns
    if end_ns[-1] - end_ns[0] <= SECOND_NS:
        yield rows
        return
    seconds_ns = np.arange(end_ns[-1] - RECENT_NS, end_ns[-1], SECOND_NS)
    bounds = np.unique([0, *np.searchsorted(end_ns, seconds_ns, side="right"), len(rows)])
    for bound in pairwise(bounds.tolist()):
        yield rows.take(slice(*bound))


def sums_of(rows: Columns) -> BatchSums:
    """The sums over `rows`, whose steps are known."""
    unknown = (rows.samples == UNKNOWN).any()
    return BatchSums(
        int(rows.request_ns[-1] + rows.wait_ns[-1] + rows.step_ns[-1]),
        len(rows),
        int(rows.wait_ns.sum()),
        int(rows.step_ns.sum()),
        None if unknown else int(rows.samples.sum()),
    )


def total(parts: Iterable[BatchSums]) -> BatchSums:
    """All `parts` together; samples are not known where those of one are not."""
    given = list(parts)
    samples = [part.samples for part in given]
    return BatchSums(
        max((part.end_ns for part in given), default=0),
        sum(part.batches for part in given),
        sum(part.wait_ns for part in given),
        sum(part.step_ns for part in given),
        None if None in samples else sum(count or 0 for count in samples),
    )


def together(ranks: Sequence[Rates | None]) -> Rates | None:
    """The rates of all ranks; None where one has none yet.

    The job waits no less than the rank that waits most: how much longer, only batches that are
    aligned tell.
    """
    known = [rank for rank in ranks if rank is not None]
    if not known or len(known) < len(ranks):
        return None
    batches = [rank.batches_per_s for rank in known if rank.batches_per_s is not None]
    samples = [rank.samples_per_s for rank in known if rank.samples_per_s is not None]
    waits = [rank.wait_share for rank in known if rank.wait_share is not None]
    return Rates(
        batches=min(rank.batches for rank in known),
        elapsed_ns=max(rank.elapsed_ns for rank in known),
        batches_per_s=min(batches, default=None),
        samples_per_s=sum(samples) if len(samples) == len(known) else None,
        wait_share=max(waits, default=None),
    )


def rates(parts: Iterable[BatchSums]) -> Rates | None:
    """The rates of `parts` together; None where there is no batch."""
    sums = total(parts)
    if not sums.batches:
        return None
    elapsed_ns, samples = sums.wait_ns + sums.step_ns, sums.samples
    per_s = SECOND_NS / elapsed_ns if elapsed_ns else None
    return Rates(
        batches=sums.batches,
        elapsed_ns=elapsed_ns,
        batches_per_s=None if per_s is None else sums.batches * per_s,
        samples_per_s=None if per_s is None or samples is None else samples * per_s,
        wait_share=sums.wait_ns / elapsed_ns if elapsed_ns else None,
    )
