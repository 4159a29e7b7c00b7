"""Consecutive batches of one arm and one pair, and when others were pulled before them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from loadeval.runlog.model import ARMS, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loadeval.runlog.model import Arm, Column, Pull
    from loadeval.runlog.steps import Steps


@dataclass(frozen=True, slots=True)
class Stretch:
    """Batches of one epoch, from the first one's request to the end of the last one's step.

    A step that is not known ends with its delivery.
    """

    arm: Arm
    pair: int | None
    batches: int
    start_ns: int
    end_ns: int


def stretches_of(steps: Steps, rows: Column) -> list[Stretch]:
    """Those of `rows`, batches of one epoch whose requests are known."""
    if not len(rows):
        return []
    arm, pair = steps.arm[rows], steps.pair[rows]
    changes = np.flatnonzero(np.diff(arm) | np.diff(pair)) + 1
    found = []
    for start, stop in pairwise([0, *changes.tolist(), len(rows)]):
        last = rows[stop - 1]
        end_ns = steps.request_ns[last] + steps.wait_ns[last] + max(steps.step_ns[last], 0)
        found.append(
            Stretch(
                ARMS[arm[start]],
                None if pair[start] == UNKNOWN else int(pair[start]),
                stop - start,
                int(steps.request_ns[rows[start]]),
                int(end_ns),
            )
        )
    return found


def pull_times(
    pulls: Iterable[Pull], stretches: Sequence[Stretch], end_ns: int
) -> list[tuple[Pull, int]]:
    """When training was held up for each of an epoch's `pulls`: at the request that waited.

    That is the first one of the wash-out before the pair's batches; `end_ns` where there are
    none, since the epoch ended before.
    """
    places: dict[int, list[tuple[Arm, int]]] = {}
    before: Stretch | None = None
    for one in stretches:
        if one.pair is not None:
            washed_out = before is not None and (before.pair, before.arm) == (None, one.arm)
            start_ns = before.start_ns if before is not None and washed_out else one.start_ns
            places.setdefault(one.pair, []).append((one.arm, start_ns))
        before = one
    of_pair: dict[int, list[Pull]] = {}
    for pull in pulls:
        of_pair.setdefault(pull.pair, []).append(pull)
    found: list[tuple[Pull, int]] = []
    for pair, its_pulls in of_pair.items():
        there = places.get(pair, [])
        if len(its_pulls) < len(there):  # where the queue was not full, nothing was taken from it
            there = [(arm, start_ns) for arm, start_ns in there if arm == "ideal"]
        times = [start_ns for _, start_ns in there] + [end_ns] * len(its_pulls)
        found += zip(its_pulls, times, strict=False)
    return found
