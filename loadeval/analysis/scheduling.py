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

    def run(self, most_ns: float) -> tuple[float, int | None]:
        """Let time pass until the first is done, or `most_ns`: how much it was, and who is done."""
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
        wanted = self._busy + self._part_of_one
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
