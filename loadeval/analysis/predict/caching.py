"""Where a cache of samples would pay: how large it is, whether it is random, and what it brings.

A place is behind a transform, and one behind the dataset's own code before all of them. A sample's
way is followed backwards, from what the dataset gives, by how large it is: transforms of labels, of
which that is no part, are no places. All code of the dataset's own is taken to run before the first
transform.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.epochs import epochs_of
from loadeval.analysis.inside.transforms import calls_others
from loadeval.analysis.predict.change import Change
from loadeval.analysis.predict.prediction import Range  # noqa: TC001 - a dataclass field
from loadeval.runlog.stages import WHOLE_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.analysis.estimate.stats import Series
    from loadeval.analysis.predict.costs import Costs
    from loadeval.analysis.predict.recorded import Recorded
    from loadeval.runlog.model import Run

OWN_CODE = ""
"""Names the place behind the dataset's own code, before the first transform."""
COPY_BYTES_PER_NS = 2.0
"""Bytes are taken to be copied out of a cache in memory at 2 GB/s.

On two busy CPUs Pillow made images of 750 kB of arrays at 6 GB/s, and NumPy copied these at 17.
"""
LEAST_SPEEDUP = 1.02
"""A cache that brings less does not pay."""
SAME_SIZE = 0.05
"""What comes out of a transform goes into the next one if its size differs by less than this."""
MOST_OF_SAMPLE = 0.5
"""The last transform of a sample makes at least so much of it."""


@dataclass(frozen=True, slots=True)
class CachePlace:
    """A place where samples could be kept in memory.

    `name` is the transform behind which it is, "" before all, "__getitem__" that of whole samples.
    A sample there has `sample_bytes` on average. `total_bytes` is the whole data set there, and
    `fits` tells whether there is memory for it. `is_random` tells whether the same sample is not
    always the same there. `speedup` is what later epochs gain, predicted, when what is before it
    is replaced by copying the sample out of memory, which takes `read_ns` for a batch. None is not
    known. `replaced` are the transforms that are not called any more, and `left` those that are.
    """

    name: str
    sample_bytes: float
    total_bytes: float | None
    is_random: bool | None
    fits: bool | None
    speedup: Range
    replaced: tuple[str, ...]
    left: tuple[str, ...]
    read_ns: float

    @property
    def pays(self) -> bool:
        """Whether a cache there is known to fit, to keep what is not random, and to pay."""
        return bool(self.is_random is False and self.fits) and self.speedup.value >= LEAST_SPEEDUP


def cache_places(
    run: Run,
    recorded: Recorded,
    predict: Callable[[Change], Range],
    memory_bytes: float | None,
) -> tuple[CachePlace, ...]:
    """The places in the order in which samples pass them; none where sizes are not known.

    `recorded` is of that run, and `predict` tells what a change brings. A cache may take
    `memory_bytes`; None is not known.
    """
    known = _Known.of(run)
    samples = recorded.loader.batch_size or recorded.summary.samples_per_batch
    if known is None or not samples:
        return ()
    length = epochs_of(run).batches
    ranks = float(run.header.environment.get("world_size") or 1)
    count = None if length is None else length * samples * ranks

    def place(name: str, replaced: Sequence[str], size: float) -> CachePlace:
        total = None if count is None else count * size
        read_ns = samples * size / COPY_BYTES_PER_NS
        gone = transforms if name == WHOLE_SAMPLE else tuple(replaced)
        left = tuple(other for other in transforms if other not in gone)
        return CachePlace(
            name,
            size,
            total,
            known.is_random(name, replaced),
            None if total is None or memory_bytes is None else total <= memory_bytes,
            predict(_change(gone, left, read_ns)),
            gone,
            left,
            read_ns,
        )

    transforms = tuple(dict.fromkeys(name for part in run.stages for name in part.transform_ns))
    way = known.way
    places = [place(name, way[: at + 1], known.after[name]) for at, name in enumerate(way)]
    if way and (first := known.before.get(way[0])):
        places.insert(0, place(OWN_CODE, (), first))
    return (*places, place(WHOLE_SAMPLE, way, known.after[WHOLE_SAMPLE]))


def with_cache(place: CachePlace) -> Change:
    """What a cache there does to a loader."""
    return _change(place.replaced, place.left, place.read_ns)


def best_place(places: Sequence[CachePlace]) -> CachePlace | None:
    """The one that pays most; None where none is known to."""
    paying = [place for place in places if place.pays]
    return max(paying, key=lambda place: place.speedup.value, default=None)


@dataclass(frozen=True)
class _Known:
    """What is known of a sample in each transform: its bytes, and whether it varies."""

    before: dict[str, float]
    after: dict[str, float]
    varies: dict[str, float]

    @classmethod
    def of(cls, run: Run) -> _Known | None:
        """None where the size of whole samples is not known."""
        before, after, varies, calls = (
            {
                name: float(known.mean())
                for name in dict.fromkeys(
                    name for part in run.stages for name in getattr(part, column)
                )
                if len(known := _known(run, column, name))
            }
            for column in ("bytes_before", "bytes_after", "varies", "transform_calls")
        )
        samples = [part.samples[part.samples > 0] for part in run.stages]
        in_batch = np.concatenate(samples).mean() if any(map(len, samples)) else 0.0
        if WHOLE_SAMPLE not in after or not in_batch:
            return None
        for sizes in (before, after):
            for name in sizes.keys() - {WHOLE_SAMPLE}:
                sizes[name] *= calls.get(name, 0.0) / in_batch
        return cls(before, after, varies)

    @property
    def way(self) -> list[str]:
        """The transforms that a sample passes, in order."""
        names = [name for name in self.after if name != WHOLE_SAMPLE and not calls_others(name)]
        way: list[str] = []
        wanted: float | None = None
        for name in reversed(names):
            size = self.after[name]
            if not way:
                is_next = size >= MOST_OF_SAMPLE * self.after[WHOLE_SAMPLE]
            else:
                is_next = wanted is not None and abs(size - wanted) <= SAME_SIZE * wanted
            if is_next:
                way.insert(0, name)
                wanted = self.before.get(name)
        return way

    def is_random(self, name: str, parts: Sequence[str]) -> bool | None:
        """Whether a sample is, behind these transforms; None is not known.

        What goes into the first transform is not, where what comes out of it is not.
        """
        if name == OWN_CODE:
            first = self.varies.get(self.way[0])
            return False if first == 0 else None
        varies = [self.varies.get(part) for part in dict.fromkeys((*parts, name))]
        return True if any(varies) else None if None in varies else False


def _known(run: Run, column: str, name: str) -> Series:
    values = np.concatenate([getattr(part, column).get(name, np.empty(0)) for part in run.stages])
    known: Series = values[~np.isnan(values)]
    return known


def _change(replaced: tuple[str, ...], left: tuple[str, ...], read_ns: float) -> Change:
    return Change(costs=partial(_from_cache, replaced=replaced, left=left, read_ns=read_ns))


def _from_cache(
    costs: Costs, *, replaced: tuple[str, ...], left: tuple[str, ...], read_ns: float
) -> Costs:
    """`costs` of which only collating and the transforms that are `left` stay, and reading."""
    fetch_ns = costs.fetch_ns
    left_ns = sum((costs.named_ns[name] for name in left), costs.named_ns["collate"])
    left_ns = np.minimum(left_ns, fetch_ns) + read_ns
    cached = costs.fetched_in(left_ns / np.maximum(fetch_ns, 1.0))
    gone = dict.fromkeys(replaced, np.zeros(len(costs)))
    return replace(cached, named_ns={**costs.named_ns, **gone})
