"""Which blocks an alternating run has: the order of the arms, how long each block is, the end."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from loadeval.core.recorder import Span
from loadeval.data.lines import Arm
from loadeval.data.run import (
    INSTRUMENTED_EVERY,
    SECOND_NS,
    SHORTEST_WARMUP,
    SMALLEST_BLOCK,
    block_for,
    head_for,
    two_blocks_for,
    with_instruments,
)

BLOCK_NS = SECOND_NS // 10
"""An ideal block is to last so long that what its first steps lose after the pause is little.

The loader is waited for before an ideal block; meanwhile CPU caches go cold and the core sleeps.
"""
WARMUP_NS = SECOND_NS // 20
"""A warm-up is to last so long: after a switch or a pause, steps are slow for tens of ms."""
LONGEST_BLOCK_NS = 10 * SECOND_NS
"""No block is to last longer, so that both arms of a pair see the same machine."""
REAL_PER_IDEAL = 3
"""The real arm is the noisy one: it has stalls that few batches do not show."""
PAIRS = 8
"""The batches of a run are to suffice for so many pairs, those for the instruments included."""
BATCHES_OF_UNKNOWN_EPOCH = 200
"""An epoch whose length is not known is taken to have so many batches."""
FIXED_REAL_BLOCK = 32
"""A real block has so many counted batches where sizes may not depend on what is measured.

Those of the first pairs double up to it, so that a short run has pairs too.
"""


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """One arm's block of a pair: its warm-up batches, and then its counted ones.

    Where it is `instrumented`, stages, stacks and /proc are read in it, and its times do not count.
    """

    pair: int
    arm: Arm
    warmup: int
    counted: int
    instrumented: bool = False


def arms_of(seed: int, pair: int) -> list[Arm]:
    """Both arms, in the order in which they have their blocks of a pair.

    It is random in the first of two pairs, and reversed in the second: a steady drift favours each
    arm as often. Pairs that may be for the instruments are two of their own, whether or not there
    are any: ranks may differ in that, and all have the same order.
    """
    order: list[Arm] = ["real", "ideal"]
    number, place = divmod(pair, INSTRUMENTED_EVERY)
    is_instruments = place == INSTRUMENTED_EVERY - 1
    number = number if is_instruments else 2 * number + place
    random.Random(f"{seed}/{is_instruments}/{number // 2}").shuffle(order)  # noqa: S311 - no secret
    return order[::-1] if number % 2 else order


class Schedule:
    """Decides the blocks of an alternating run, and follows them.

    A pair's blocks are sized when it begins, from how long the iterations of both arms took last.
    How much the size of its real block varies, and the order of its arms, depend on `seed` and its
    number alone. The run ends after `pairs` pairs that count, or with the first pair to reach
    `batches` served ones; None is no limit. `length` is how many batches an epoch has, if that is
    known. Where `counted` is given the run has rounds: each is one pair, whose blocks count so many
    batches.

    `served` are all batches so far, and `left` those that the block still has to count. Where
    epochs are too short for two blocks each epoch is one: `whole` is their length then, else 0.
    Where it is `fixed` sizes depend on no measurement: in distributed training all ranks must
    switch arms at the same batch. Where it `has_instruments` some pairs are for these. After
    `is_enough` no pair begins; `is_over` tells that the last one is complete.
    """

    is_enough = is_over = fixed = has_instruments = False

    def __init__(
        self,
        *,
        seed: int = 0,
        pairs: int | None = None,
        batches: int | None = None,
        prefetch_depth: int = 0,
        length: int | None = None,
        counted: int | None = None,
    ) -> None:
        self.head = head_for(prefetch_depth)
        self.counted = counted
        self._seed = seed
        self._pairs = pairs
        self._batches = batches
        self._depth = prefetch_depth
        self._length = length
        self._pair = 0
        self._planned: list[PlannedBlock] = []  # of the pair that is under way
        self._block: PlannedBlock | None = None
        self.served = self.left = 0
        # Of the block that is under way, and of the last one of each arm.
        self._iterations = self._elapsed_ns = 0
        self._last_ns: dict[Arm, float] = {}
        self._epochs = self._epoch_began = self._longest_epoch = 0
        self._has_room = True
        self.whole = self._length_if_short()

    @property
    def block(self) -> PlannedBlock | None:
        """The block that is under way, or else the next one; None if all are complete."""
        if self._block is None and not self.is_over:
            self._planned = self._planned or self._plan(self._pair)
            self._block = self._planned.pop(0)
            self.left = self._block.counted
        return self._block

    def begin_round(self) -> None:
        """The next pair is one round; the run is over, for now, when it is complete."""
        self._pairs, self.is_over = self._pair + 1, False

    def advance(self, served: int, times_ns: Sequence[int]) -> None:
        """Note counted batches of the block; it ends with its last one.

        `times_ns` are when they were asked for, and when the last step ended unless it was broken
        off.
        """
        self.served += served
        self.left -= served
        self._iterations += max(len(times_ns) - 1, 0)
        self._elapsed_ns += times_ns[-1] - times_ns[0] if times_ns else 0
        if self.left <= 0:
            self.end_block()

    def limit(self, batches: int) -> None:
        """The block ends with the `batches` that memory has room for, if it is large enough."""
        self._has_room = self._has_room and not self.whole
        if self.block is not None and not self.fixed:
            counted = self.block.counted - self.left
            self.left = min(self.left, max(batches, SMALLEST_BLOCK - counted))

    def end_epoch(self) -> None:
        """The epoch ends, or is broken off, and with it the block that it is, if any counted."""
        if self.whole and self._iterations:
            self.end_block()

    def end_block(self) -> None:
        """The block ends, also where it counted fewer batches than planned."""
        block, self._block = self._block, None
        if block is None:  # another epoch, which was read at once, has ended it
            return
        if self._iterations and not block.instrumented:
            self._last_ns[block.arm] = self._elapsed_ns / self._iterations
        self._iterations = self._elapsed_ns = 0
        if self._planned:
            return
        self._pair += 1
        counting = self._pair - self._pair // INSTRUMENTED_EVERY * self.has_instruments
        is_full = self._batches is not None and self.served >= self._batches
        has_all = self._pairs is not None and counting >= self._pairs
        self.is_over = self.is_enough or is_full or has_all

    def begin_epoch(self) -> None:
        """An epoch begins."""
        self._epochs += 1
        self._longest_epoch = max(self._longest_epoch, self.served - self._epoch_began)
        self._epoch_began = self.served
        if self.whole != self._length_if_short():  # it is `fixed` now, or memory has no room
            self._pair += bool(self._block or self._planned)  # a new one begins
            self.whole, self._block, self._planned = 0, None, []
            self._iterations = self._elapsed_ns = 0
        if self.whole and self._block:
            self.left = self._block.counted

    def shortened(self, warmup: int) -> int:
        """`warmup`, but at most half of what the longest epoch so far has after its head.

        A training may break epochs off, and they are to have counted batches all the same.
        """
        if self._longest_epoch <= self.head:
            return warmup
        longest = max(self._longest_epoch, self.served - self._epoch_began)
        return min(warmup, (longest - self.head) // 2)

    def note_head(self, span: Span) -> None:
        """Until an arm has had a block, its times are those of a head, but for its first batch."""
        batches, marks = span.served - 1, [*span.marks[2:], span.asked_ns]
        if batches > 0:
            steps_ns = sum(marks[2::2]) - sum(marks[1::2])
            real_ns = marks[-1] - marks[0]
            self._last_ns = {
                "real": real_ns / batches,
                "ideal": steps_ns / batches,
                **self._last_ns,
            }

    def looks_next(self) -> bool:
        """Whether instruments are read from the start of the next epoch on.

        That is where it is a block for them. Of longer ones it is the first, and one in three from
        the second on, up to the first block: what workers and samplers do at a start is seen
        nowhere else.
        """
        if self.whole:
            return self._is_instrumented(self._pair)
        return self.has_instruments and self._epochs % INSTRUMENTED_EVERY == min(self._epochs, 1)

    def _is_instrumented(self, pair: int) -> bool:
        return self.has_instruments and pair % INSTRUMENTED_EVERY == INSTRUMENTED_EVERY - 1

    def _length_if_short(self) -> int:
        if self.fixed or self.counted or not self._has_room:  # ranks may differ in their epochs
            return 0
        length = self._length or 0
        return length if length < two_blocks_for(self._depth) else 0

    def _plan(self, pair: int) -> list[PlannedBlock]:
        """Both blocks of a pair."""
        warmups: dict[Arm, int] = {"real": self.head, "ideal": SHORTEST_WARMUP}
        if self.whole:
            # One more than follow the first, as the epoch's end shows.
            counted = self.whole + 1 - min(self.whole - 1, 1)
            warmups = dict.fromkeys(warmups, min(self.whole - 1, 1))
            sizes: dict[Arm, int] = dict.fromkeys(warmups, counted)
        elif self.counted:
            sizes = dict.fromkeys(warmups, self.counted)
        elif self.fixed:
            real = min(SMALLEST_BLOCK << min(pair, 8), FIXED_REAL_BLOCK)
            sizes = {"real": self._varied(real, pair), "ideal": block_for(self._depth)}
        else:
            sizes, warmups = self._sizes_by_times(pair, warmups)
        instrumented = self._is_instrumented(pair)
        return [
            PlannedBlock(pair, arm, warmups[arm], sizes[arm], instrumented)
            for arm in arms_of(self._seed, pair)
        ]

    def _varied(self, real: int, pair: int) -> int:
        """A size up to half smaller in the first of two pairs, and as much larger in the second.

        Else the blocks may all meet, or all miss, the stall of a loader at every n-th batch.
        """
        number, place = divmod(pair, 2)
        most = max(min(real // 2, real - SMALLEST_BLOCK), 0)
        change = random.Random(f"{self._seed}/{number}").randint(0, most)  # noqa: S311 - no secret
        return real + change if place else real - change

    def _sizes_by_times(
        self, pair: int, shortest: dict[Arm, int]
    ) -> tuple[dict[Arm, int], dict[Arm, int]]:
        """Counted batches of a pair's blocks, and their warm-ups, by how long batches took.

        The pairs have the batches of one epoch, or twice what was served: before this epoch, for it
        is to have enough pairs too, or so far, where its length is not known. That is without the
        head of an epoch, and without what was taken out of the queue and is left at its end.
        """
        likely = max(BATCHES_OF_UNKNOWN_EPOCH, 2 * self.served)
        if self._length:
            likely = max(self._length, 2 * self._epoch_began)
        batches_for_pairs = (self._batches or likely) - self.head - self._depth
        each_ns = {arm: max(self._last_ns.get(arm, 0.0), 1.0) for arm in shortest}
        least: dict[Arm, int] = {"real": SMALLEST_BLOCK, "ideal": block_for(self._depth)}
        pairs = self._pairs or 0
        pairs = max(PAIRS, with_instruments(pairs) if self.has_instruments else pairs)
        smallest = sum(least.values())
        room = max(batches_for_pairs // pairs - sum(shortest.values()), smallest)
        spare, warmups = (room - smallest) // 4, dict(shortest)
        for arm, batches in shortest.items():
            longer = math.ceil(WARMUP_NS / each_ns[arm]) - batches
            warmups[arm] += max(min(longer, spare), 0)
            room -= warmups[arm] - batches
        ideal = max(least["ideal"], math.ceil(BLOCK_NS / each_ns["ideal"]))
        real = REAL_PER_IDEAL * ideal
        if real + ideal > room:
            ideal = max(room // (1 + REAL_PER_IDEAL), least["ideal"])
            real = room - ideal
        wanted: dict[Arm, int] = {"real": self._varied(real, pair), "ideal": ideal}
        return {
            arm: max(min(wanted[arm], int(LONGEST_BLOCK_NS / each_ns[arm])), least[arm])
            for arm in wanted
        }, warmups
