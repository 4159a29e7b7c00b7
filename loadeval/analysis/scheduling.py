"""CPUs that several threads share, as Linux lets them: each CPU serves its own queue in turns.

Who starts to compute goes to the CPU with the shortest queue, its last one if it can, and stays
there. A CPU with nothing to do takes over from one with a longer queue. So of five threads on four
CPUs two have half of one for a while, and three are as fast as ever.
"""

from __future__ import annotations

import math

OTHERS = -10_000
"""From here down: threads of others, which compute all the time."""


class Cpus:
    """`count` of them, or one for each who computes where that is None.

    `others` of them compute for other programs. What a CPU does takes longer by `growth`, a share,
    for each further CPU that is in use. Threads are known by number.
    """

    def __init__(self, count: float | None, others: float, growth: float) -> None:
        self._count = None if count is None else math.ceil(count)
        # A container that may use half of a CPU has a whole one half of the time.
        self._speed = 1.0 if count is None else count / math.ceil(count)
        self._growth = growth
        self._left_ns: dict[int, float] = {}
        self._place: dict[int, int] = {}
        self._queued = [0] * (self._count or 0)
        self._busy = 0
        self.spent_ns = self.alone_ns = 0.0
        """CPU time of all, and what it would have been with one CPU in use."""
        for number in range(round(others)):
            self.begin(OTHERS - number, math.inf)

    def begin(self, who: int, cpu_ns: float) -> None:
        """`who` starts to compute, for as long."""
        self._left_ns[who] = cpu_ns
        if self._count is None:
            self._busy += 1
            return
        place = self._place.get(who, 0)
        if self._queued[place]:
            place = min(range(self._count), key=self._queued.__getitem__)
        self._put(who, place)

    def end(self, who: int) -> None:
        """`who` computes no more."""
        del self._left_ns[who]
        if self._count is None:
            self._busy -= 1
        else:
            self._take(who)

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
        rate, left = self._rate, self._left_ns
        for who in left:
            share_ns = elapsed_ns / self._queue_of(who)
            left[who] = max(left[who] - share_ns * rate, 0.0)
            if who > OTHERS:
                self.spent_ns += share_ns * self._speed
                self.alone_ns += share_ns * rate

    @property
    def _rate(self) -> float:
        return self._speed / (1 + self._growth * max(self._busy - 1, 0))

    def _queue_of(self, who: int) -> int:
        return 1 if self._count is None else self._queued[self._place[who]]

    def _put(self, who: int, place: int) -> None:
        self._place[who] = place
        self._queued[place] += 1
        self._busy += self._queued[place] == 1

    def _take(self, who: int) -> None:
        place = self._place[who]
        self._queued[place] -= 1
        self._busy -= not self._queued[place]

    def _balance(self) -> None:
        if self._count is None or self._busy == min(self._count, len(self._left_ns)):
            return
        for place in range(self._count):
            longest = max(range(self._count), key=self._queued.__getitem__)
            if not self._queued[place] and self._queued[longest] > 1:
                who = next(one for one in self._left_ns if self._place[one] == longest)
                self._take(who)
                self._put(who, place)
