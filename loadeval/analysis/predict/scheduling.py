"""CPUs that several programs share, as Linux lets them: each CPU serves its own queue in turns.

A process that starts to compute goes to the CPU with the shortest queue, the last one if it can,
and stays there. A CPU with nothing to do takes over from one with a longer queue. So of five
threads on four CPUs two have half of one for a while, and three are as fast as ever.
"""

from __future__ import annotations

import math
from typing import NamedTuple

OTHERS = -10_000
"""The number of other programs among the processes that compute."""


class Affinity(NamedTuple):
    """How many CPUs `training` may use, `workers` may, and how many of these both `shared`.

    The CPUs of either lie side by side, those of the workers first.
    """

    training: int
    workers: int
    shared: int

    @property
    def is_even(self) -> bool:
        """Whether both may use the same."""
        return self.training == self.workers == self.shared

    @property
    def cpus(self) -> int:
        """The CPUs of both."""
        return self.training + self.workers - self.shared

    def allows(self, who: int) -> range:
        """The CPUs of process `who`: workers count from 0, and other programs may use all."""
        if who == OTHERS:
            return range(self.cpus)
        return range(self.workers) if who >= 0 else range(self.workers - self.shared, self.cpus)


class Cpus:
    """`count` of them, or as many as are wanted where that is None.

    Other programs compute on `others` of them. What a CPU does takes longer by `growth`, a share,
    for each further CPU that is in use. The processes that compute are known by number; `affinity`
    is which CPUs each may use, all of them where that is None.
    """

    def __init__(
        self, count: float | None, others: float, growth: float, affinity: Affinity | None = None
    ) -> None:
        self._count = math.inf if count is None else count
        self._queued = [0] * (0 if count is None else math.ceil(count))
        self._growth = growth
        self._affinity = affinity
        self._others_part = others % 1
        self._left_ns: dict[int, float] = {}
        self._places: dict[int, list[int]] = {}
        self._busy = self._turn = 0
        self.spent_ns = self.alone_ns = 0.0
        """CPU time of all but others, and what it would have been with one CPU in use."""
        if others >= 1:
            self.begin(OTHERS, math.inf, int(others))

    def begin(self, who: int, cpu_ns: float, threads: int = 1) -> None:
        """Process `who` starts to compute for so long, in threads that wait for each other."""
        self._left_ns[who] = cpu_ns
        if not self._queued:
            self._busy += threads
            self._places[who] = [0] * threads
            return
        places = self._places.get(who, [0])
        self._places[who] = []
        allowed = self._allowed(who)
        for thread in range(threads):
            place = places[min(thread, len(places) - 1)]
            is_free = place in allowed and not self._queued[place]
            self._put(who, place if is_free else self._shortest(allowed))

    def end(self, who: int) -> None:
        """Process `who` stops computing."""
        del self._left_ns[who]
        if not self._queued:
            self._busy -= len(self._places[who])
            return
        for place in self._places[who]:
            self._take(place)

    def left_ns(self, who: int) -> float:
        """CPU time that process `who` still needs."""
        return self._left_ns.get(who, 0.0)

    def run(self, most_ns: float) -> tuple[float, int | None]:
        """Let time pass until the first process is done, or `most_ns`: how much, and which."""
        self._balance()
        queued, places = self._queued, self._places
        wait_ns, first = math.inf, OTHERS
        computing: list[tuple[int, float, int]] = []
        for who, left_ns in self._left_ns.items():
            own = places[who]
            if not queued:
                shared_by = 1
            elif len(own) == 1:
                shared_by = queued[own[0]]
            else:
                shared_by = max([queued[place] for place in own])
            computing.append((who, left_ns, shared_by))
            if left_ns * shared_by < wait_ns:
                wait_ns, first = left_ns * shared_by, who
        # Less than 1 where a container, or other programs, leave only a part of a CPU.
        wanted = self._busy + self._others_part
        speed = min(self._count / max(wanted, 1.0), 1.0)
        rate = speed / (1 + self._growth * max(min(wanted, self._count) - 1, 0.0))
        wait_ns /= rate
        passed_ns = min(wait_ns, most_ns)
        shares_ns = 0.0
        for who, left_ns, shared_by in computing:
            share_ns = passed_ns / shared_by
            done_ns = share_ns * rate
            self._left_ns[who] = left_ns - done_ns if left_ns > done_ns else 0.0
            if who != OTHERS:
                shares_ns += share_ns
        self.spent_ns += shares_ns * speed
        self.alone_ns += shares_ns * rate
        return passed_ns, None if most_ns <= wait_ns else first

    def _allowed(self, who: int) -> range:
        return range(len(self._queued)) if self._affinity is None else self._affinity.allows(who)

    def _shortest(self, allowed: range) -> int:
        """The CPU with the shortest queue of those `allowed`: of several each in turn."""
        count = len(allowed)
        self._turn += 1
        places = [allowed[turn % count] for turn in range(self._turn, self._turn + count)]
        return min(places, key=self._queued.__getitem__)

    def _put(self, who: int, place: int) -> None:
        self._places[who].append(place)
        self._queued[place] += 1
        self._busy += self._queued[place] == 1

    def _take(self, place: int) -> None:
        self._queued[place] -= 1
        self._busy -= not self._queued[place]

    def _balance(self) -> None:
        while self._busy < len(self._queued) and max(self._queued) > 1:
            crowded = [place for place, length in enumerate(self._queued) if length > 1]
            moves = (
                (who, place, to)
                for place in sorted(crowded, key=lambda place: -self._queued[place])
                for who in self._left_ns
                if place in self._places[who]
                for to in self._allowed(who)
                if not self._queued[to]
            )
            move = next(moves, None)
            if move is None:  # who waits may not use a CPU that is idle
                return
            who, place, to = move
            self._places[who].remove(place)
            self._take(place)
            self._put(who, to)
