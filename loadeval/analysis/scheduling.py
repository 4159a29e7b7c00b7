"""CPUs that several programs share, as Linux lets them: each CPU serves its own queue in turns.

Who starts to compute goes to the CPU with the shortest queue, the last one if it can, and stays
there. A CPU with nothing to do takes over from one with a longer queue. So of five threads on four
CPUs two have half of one for a while, and three are as fast as ever.
"""

from __future__ import annotations

import math

OTHERS = -10_000
"""Other programs, among those who compute."""


class Cpus:
    """`count` of them, or as many as are wanted where that is None.

    Other programs compute on `others` of them. What a CPU does takes longer by `growth`, a share,
    for each further CPU that is in use. Those who compute are known by number.
    """

    def __init__(self, count: float | None, others: float, growth: float) -> None:
        self._count = math.inf if count is None else count
        self._queued = [0] * (0 if count is None else math.ceil(count))
        self._growth = growth
        self._part_of_one = others % 1
        self._left_ns: dict[int, float] = {}
        self._places: dict[int, list[int]] = {}
        self._busy = self._turn = 0
        self.spent_ns = self.alone_ns = 0.0
        """CPU time of all but others, and what it would have been with one CPU in use."""
        if others >= 1:
            self.begin(OTHERS, math.inf, int(others))

    def begin(self, who: int, cpu_ns: float, threads: int = 1) -> None:
        """`who` starts to compute, for as long, in threads that wait for each other."""
        self._left_ns[who] = cpu_ns
        if not self._queued:
            self._busy += threads
            self._places[who] = [0] * threads
            return
        places = self._places.get(who, [0])
        self._places[who] = []
        for thread in range(threads):
            place = places[min(thread, len(places) - 1)]
            self._put(who, self._shortest() if self._queued[place] else place)

    def end(self, who: int) -> None:
        """`who` computes no more."""
        del self._left_ns[who]
        if not self._queued:
            self._busy -= len(self._places[who])
            return
        for place in self._places[who]:
            self._take(place)

    def left_ns(self, who: int) -> float:
        """CPU time that `who` still needs."""
        return self._left_ns.get(who, 0.0)

    def soonest(self) -> tuple[float, int]:
        """In how many nanoseconds who is done first; never, where nobody is."""
        self._balance()
        wait_ns, first = math.inf, OTHERS
        for who, left_ns in self._left_ns.items():
            needed_ns = left_ns * self._queue_of(who)
            if needed_ns < wait_ns:
                wait_ns, first = needed_ns, who
        return wait_ns / self._rate, first

    def elapse(self, elapsed_ns: float) -> None:
        """Time passes, for no longer than until the soonest is done."""
        speed, rate, shares_ns = self._speed, self._rate, 0.0
        for who, left_ns in self._left_ns.items():
            share_ns = elapsed_ns / self._queue_of(who)
            done_ns = share_ns * rate
            self._left_ns[who] = left_ns - done_ns if left_ns > done_ns else 0.0
            if who != OTHERS:
                shares_ns += share_ns
        self.spent_ns += shares_ns * speed
        self.alone_ns += shares_ns * rate

    @property
    def _speed(self) -> float:
        """Less than 1 where a container, or other programs, leave only a part of a CPU."""
        return min(self._count / max(self._busy + self._part_of_one, 1.0), 1.0)

    @property
    def _rate(self) -> float:
        used = min(self._busy + self._part_of_one, self._count)
        return self._speed / (1 + self._growth * max(used - 1, 0.0))

    def _queue_of(self, who: int) -> int:
        if not self._queued:
            return 1
        places = self._places[who]
        if len(places) == 1:
            return self._queued[places[0]]
        return max(self._queued[place] for place in places)

    def _shortest(self) -> int:
        """The CPU with the shortest queue: of several each in turn."""
        count = len(self._queued)
        self._turn += 1
        places = [place % count for place in range(self._turn, self._turn + count)]
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
            longest = self._queued.index(max(self._queued))
            who = next(one for one in self._left_ns if longest in self._places[one])
            self._places[who].remove(longest)
            self._take(longest)
            self._put(who, self._queued.index(0))
