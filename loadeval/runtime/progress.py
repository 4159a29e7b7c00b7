"""How far an alternating run has come: its present segment, and when to stop measuring."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loadeval.runlog.model import Arm
    from loadeval.runtime.schedule import Segment

    Enough = Callable[[Sequence[float], Sequence[float]], bool]


class Progress:
    """Goes through `schedule`, until it ends, `batches` were served, or `enough` says so.

    `enough` is asked after each pair, with the mean cycles of each pair's real and ideal block;
    it may be taken away.
    """

    def __init__(
        self,
        schedule: Iterator[Segment],
        batches: int | None = None,
        enough: Enough | None = None,
    ) -> None:
        self._schedule = schedule
        self._batches = batches
        self.enough = enough
        self._served = 0
        self._counted = 0
        self._elapsed_ns = 0
        self._cycles_ns: dict[Arm, list[float]] = {"real": [], "ideal": []}
        self.segment = next(schedule, None)

    @property
    def left(self) -> int:
        """How many batches of the present segment are still to be counted."""
        return 0 if self.segment is None else self.segment.counted - self._counted

    def pass_by(self, served: int) -> None:
        """Note batches that were served uncounted."""
        self._served += served

    def advance(self, served: int, elapsed_ns: int) -> None:
        """Note counted batches, and go on to the next segment when this one is full."""
        self._served += served
        self._counted += served
        self._elapsed_ns += elapsed_ns
        segment = self.segment
        if segment is None or self._counted < segment.counted:
            return
        self._cycles_ns[segment.arm].append(self._elapsed_ns / self._counted)
        self._counted = self._elapsed_ns = 0
        following = next(self._schedule, None)
        pair_is_over = following is None or following.pair != segment.pair
        self.segment = None if pair_is_over and self._spent() else following

    def _spent(self) -> bool:
        if self._batches is not None and self._served >= self._batches:
            return True
        return self.enough is not None and self.enough(*self._cycles_ns.values())
