"""Where to cache, in words: each place, and where it pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.predict.caching import LEAST_SPEEDUP, best_place
from loadeval.report.formatting import NOT_MEASURED, cached_at, size, speedup
from loadeval.report.tables import Table
from loadeval.report.wording.whatif import ranged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.predict.caching import CachePlace

TITLE = "Where to cache"
HEAD = ("where to cache", "whole set", "in memory", "random", "later epochs")
ANSWERS = {True: "yes", False: "no", None: NOT_MEASURED}
FITS = {True: "fits", False: "does not fit", None: NOT_MEASURED}
PROBE = "What is random is not measured; record with loadeval run --probe."
NOWHERE = "No cache is known to pay: it has to fit, hold nothing random, and bring 2% or more."
PAYS = "A cache {place} pays: {size} for the whole set, predicted {speedup} in later epochs."


def cache_table(places: Sequence[CachePlace]) -> Table:
    """The places, in the order in which samples pass them."""
    rows = [
        (
            cached_at(place.name),
            NOT_MEASURED if place.total_bytes is None else size(place.total_bytes),
            FITS[place.fits],
            ANSWERS[place.is_random],
            ranged(place.speedup, speedup),
        )
        for place in places
    ]
    return Table(TITLE, HEAD, rows)


def cache_advice(places: Sequence[CachePlace]) -> str:
    """Where a cache pays; why that is not known, or that it pays nowhere."""
    best = best_place(places)
    if best is not None:
        return PAYS.format(
            place=cached_at(best.name),
            size=size(best.total_bytes),
            speedup=ranged(best.speedup, speedup),
        )
    might_pay = any(
        place.is_random is None and place.fits and place.speedup.value >= LEAST_SPEEDUP
        for place in places
    )
    return PROBE if might_pay else NOWHERE
