"""Which blocks an alternating run has: the arms of its pairs in turn, and how many batches each."""

from __future__ import annotations

import math
import random
import sys
from collections import deque
from dataclasses import dataclass
from operator import sub
from typing import TYPE_CHECKING

import numpy as np

from loadeval.data.blocks import (
    INSTRUMENTED_EVERY,
    SHORTEST_WARMUP,
    SMALLEST_BLOCK,
    block_for,
    head_for,
    two_blocks_for,
    with_instruments,
)
from loadeval.data.run import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadeval.core.loop import Span
    from loadeval.data.columns import Values
    from loadeval.data.lines import Arm

BLOCK_NS = SECOND_NS // 10
"""An ideal block is to last so long that what its first steps lose after the pause is little.

The loader is waited for before an ideal block; meanwhile CPU caches go cold and the core sleeps.
"""
WARMUP_NS = SECOND_NS // 20
"""A warm-up is to last so long: after a switch or a pause, steps are slow for tens of ms."""
LONGEST_BLOCK_NS = 10 * SECOND_NS
"""No block is to last longer, so that both arms of a pair see the same machine."""
FEWEST_REAL_PER_IDEAL = 3
"""The real arm has rare stalls that its first blocks do not show."""
MOST_REAL_PER_IDEAL = 8
"""A larger share of real batches would hardly be more precise."""
ASSUMED_REAL_PER_IDEAL = 4
"""It holds as long as the noise of neither arm is known."""
FEWEST_PAIRS = 4
"""The batches of a run are to suffice for so many pairs, at least."""
MORE_PAIRS = 8
"""Where real iterations vary little more than ideal ones, what is left is drift: then so many."""
BATCHES_OF_UNKNOWN_EPOCH = 200
"""An epoch whose length is not known is taken to have so many batches."""
FIXED_REAL_BLOCK = 32
"""A real block has so many counted batches where sizes may not depend on what is measured.

Those of the first pairs double up to it, so that a short run has pairs too.
"""
SHORT_IN_A_ROW = 2
"""After so many epochs in a row that are too short for two blocks, the next ones will be too."""


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


def planned_blocks(seed: int, pairs: int, prefetch_depth: int, size: int) -> Iterator[PlannedBlock]:
    """The blocks of `pairs` pairs, all of one size, the arms of each in random order."""
    warmup: dict[Arm, int] = {"real": head_for(prefetch_depth), "ideal": SHORTEST_WARMUP}
    for pair in range(pairs):
        for arm in arms_of(seed, pair):
            yield PlannedBlock(pair, arm, warmup[arm], size)


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


class Progress:
    """Follows the blocks of `schedule` until it ends.

    `served` are all batches so far, also those that were not counted, and `left` those that the
    block still has to count. Where epochs are too short for two blocks each is a block: `whole` is
    how many batches they have, and otherwise 0.
    """

    whole = 0
    fixed = has_instruments = False
    is_over = False
    """Whether the run has all its pairs."""
    is_first = False
    """Whether the epoch that begins is to be left out, for steps are slow in the first one."""

    def __init__(self, schedule: Iterator[PlannedBlock]) -> None:
        self.served = self.left = 0
        self._epoch_began = self._longest_epoch = 0
        self._schedule = schedule
        self._block: PlannedBlock | None = None
        self._iterations_ns: list[Values] = []

    @property
    def block(self) -> PlannedBlock | None:
        """The block that is under way, or else the next one; None if all are complete."""
        if self._block is None:
            self._block = next(self._schedule, None)
            self.left = 0 if self._block is None else self._block.counted
        return self._block

    def advance(self, served: int, times_ns: Sequence[int]) -> None:
        """Note counted batches of the block; it ends with its last one.

        `times_ns` are when they were asked for, and when the last step ended unless it was broken
        off.
        """
        self.served += served
        self.left -= served
        times = np.array(times_ns, dtype=np.int64)
        self._iterations_ns.append((times[1:] - times[:-1]).astype(np.float64))
        if self._block is not None and self.left <= 0:
            block, self._block = self._block, None
            parts, self._iterations_ns = self._iterations_ns, []
            self._completed(block, np.concatenate(parts))

    def begin_epoch(self, head: int) -> None:
        """An epoch begins, with a head of so many batches."""
        ended = self.served - self._epoch_began
        if ended > head:  # no mere look at the first batch
            self._longest_epoch = max(self._longest_epoch, ended)
        self._epoch_began = self.served

    def longest_warmup(self, head: int) -> float:
        """Half of what an epoch has after its head, so that also short epochs have counted batches.

        Judged by the longest one so far; infinite in the first epoch.
        """
        if not self._longest_epoch:
            return math.inf
        return (max(self._longest_epoch, self.served - self._epoch_began) - head) / 2

    def note_head(self, span: Span) -> None:
        """Note the real batches with which an epoch began."""

    def note_start(self, elapsed_ns: int) -> None:
        """Note what the first batch of a real epoch took, where it is a block."""

    def end_block(self) -> None:
        """The epoch ends, or is broken off, and with it the block that it is."""

    def leave_whole(self) -> None:
        """The epoch goes on after as many batches as it was to have."""

    def skip(self, batches: int) -> None:
        """So many batches that the block was to count were served, and do not count."""
        self.left -= batches
        self.advance(0, ())

    def limit(self, batches: int) -> None:
        """There is memory for only `batches` more in a row: a block of given size goes on."""

    def _completed(self, block: PlannedBlock, iterations_ns: Values) -> None:
        """Note what a whole block took."""


@dataclass(slots=True)
class _ArmSoFar:
    """The iterations of all counted batches of an arm; `pace_ns` is the mean of the last block.

    Mean and squared deviations are updated block by block: T. F. Chan, G. H. Golub and R. J.
    LeVeque, "Algorithms for computing the sample variance", The American Statistician 37, 1983.
    """

    batches: int = 0
    mean_ns: float = 0.0
    squared_deviations: float = 0.0
    pace_ns: float | None = None

    def add(self, iterations_ns: Values) -> None:
        # Each of its batches was the last of an epoch broken off, or Python ends, and NumPy can no
        # longer import what a mean needs.
        if not len(iterations_ns) or sys.is_finalizing():
            return
        batches, mean_ns = len(iterations_ns), float(iterations_ns.mean())
        change_ns, total = mean_ns - self.mean_ns, self.batches + batches
        self.squared_deviations += float(((iterations_ns - mean_ns) ** 2).sum())
        self.squared_deviations += change_ns**2 * self.batches * batches / total
        self.mean_ns += change_ns * batches / total
        self.batches, self.pace_ns = total, mean_ns

    @property
    def relative_sd(self) -> float:
        if not self.mean_ns:
            return 0.0
        return math.sqrt(self.squared_deviations / self.batches) / self.mean_ns


class Schedule(Progress):
    """Decides the blocks of an alternating run, and follows them.

    A pair's blocks are sized when it begins, from the pace and the noise of both arms so far; the
    order of its arms depends on `seed` and its number alone. The run ends after `pairs` pairs that
    count, or with the first pair to reach `batches` served ones; None is no limit. `length` is how
    many batches an epoch has, if that is known.

    Where `fixed` is set sizes depend on no measurement. In distributed training all ranks must
    switch arms at the same batch. Where `has_instruments` is, some pairs are for these.
    """

    is_enough = False
    """Whether no pair is to begin after the present one."""

    def __init__(
        self,
        *,
        seed: int = 0,
        pairs: int | None = None,
        batches: int | None = None,
        prefetch_depth: int = 0,
        length: int | None = None,
    ) -> None:
        self._planned_pair = -1
        super().__init__(self._planned(0))
        self._pair = 0
        self._seed = seed
        self._pairs = pairs
        self._batches = batches
        self._depth = prefetch_depth
        self._length = length
        self._arms: dict[Arm, _ArmSoFar] = {"real": _ArmSoFar(), "ideal": _ArmSoFar()}
        self._head_iterations_ns: list[int] = []
        self._head_steps_ns: list[int] = []
        self._two_blocks = two_blocks_for(prefetch_depth)
        self._epochs = 0
        self._has_room = True
        self._latest: deque[int] = deque(maxlen=SHORT_IN_A_ROW)
        self._start_ns = 0
        self.whole = self._batches_if_short()

    def begin_epoch(self, head: int) -> None:
        """See Progress. Where epochs come out shorter or longer than before, a new pair begins."""
        ended = self.served - self._epoch_began
        self._epochs += 1
        self._latest += [ended] if ended else []
        super().begin_epoch(head)
        whole = self._batches_if_short()
        if bool(whole) != bool(self.whole):
            self._begin_anew()
        self.whole, self._start_ns = whole, 0
        self.is_first = self.served < min(whole, 2)
        if whole and self._block is not None:
            self.left = self._counted_of_whole()

    def _batches_if_short(self) -> int:
        """How many batches an epoch has that is too short for two blocks; 0 where it is not.

        As its length tells, or some epochs in a row: one may be a mere look at the first batch.
        """
        if self.fixed:  # ranks may differ in how long their epochs are
            return 0
        known = [self._length] if self._length and self._length < self._two_blocks else []
        if not self._has_room or (not known and len(self._latest) < SHORT_IN_A_ROW):
            return 0
        longest = max([*known, *self._latest])
        return longest if longest < self._two_blocks else 0

    def leave_whole(self) -> None:
        """See Progress."""
        self.whole = 0
        self._latest.clear()
        self._begin_anew()

    def note_start(self, elapsed_ns: int) -> None:
        """See Progress."""
        self._start_ns = elapsed_ns

    def end_block(self) -> None:
        """See Progress. One that has counted nothing goes on."""
        iterations_ns = np.concatenate([np.empty(0), *self._iterations_ns])
        if self._block is None or not len(iterations_ns):
            return
        block, self._block, self._iterations_ns = self._block, None, []
        starts = [self._start_ns] if self._start_ns else []
        self._completed(block, np.array([np.mean([*starts, *iterations_ns])]))

    def _begin_anew(self) -> None:
        self._block, self._iterations_ns = None, []
        self._pair = self._planned_pair + 1
        self._schedule = self._planned(self._pair)

    def _counted_of_whole(self) -> int:
        """How many batches to count: one more than follow the first, as the epoch's end shows."""
        return self.whole + 1 - min(self.whole - 1, 1)

    def note_head(self, span: Span) -> None:
        """Until an arm has had a block, its pace is taken from the heads of epochs."""
        if self._arms["ideal"].pace_ns is None or self._arms["real"].pace_ns is None:
            ends_ns = [*span.marks[2::2], span.asked_ns]
            self._head_iterations_ns += map(sub, ends_ns, span.marks[::2])
            self._head_steps_ns += map(sub, ends_ns, span.marks[1::2])

    def limit(self, batches: int) -> None:
        """The block ends with the `batches` that memory has room for, if it is large enough."""
        block = self.block
        self._has_room = self._has_room and not self.whole
        if block is not None and not self.fixed:
            counted = block.counted - self.left
            self.left = min(self.left, max(batches, SMALLEST_BLOCK - counted))

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

    def _counted_before(self, pair: int) -> int:
        """How many pairs before this one count."""
        return pair - pair // INSTRUMENTED_EVERY * self.has_instruments

    def _planned(self, pair: int) -> Iterator[PlannedBlock]:
        while not self.is_over:
            self._planned_pair = pair
            real, ideal, real_warmup, ideal_warmup = self._sizes(pair)
            instrumented = self._is_instrumented(pair)
            blocks: dict[Arm, PlannedBlock] = {
                "real": PlannedBlock(pair, "real", real_warmup, real, instrumented),
                "ideal": PlannedBlock(pair, "ideal", ideal_warmup, ideal, instrumented),
            }
            for arm in arms_of(self._seed, pair):
                yield blocks[arm]
            pair += 1

    def _sizes(self, pair: int) -> tuple[int, int, int, int]:
        """Counted batches of a pair's real and ideal blocks, and the warm-ups of both.

        Batches are in proportion to the noise of an arm: J. Neyman, "On the two different aspects
        of the representative method", Journal of the Royal Statistical Society 97, 1934.
        """
        if self.whole:
            counted, warmup = self._counted_of_whole(), min(self.whole - 1, 1)
            return counted, counted, warmup, warmup
        least = block_for(self._depth)
        real_warmup, ideal_warmup = head_for(self._depth), SHORTEST_WARMUP
        if self.fixed:
            fixed = min(SMALLEST_BLOCK << min(pair, 8), FIXED_REAL_BLOCK)
            return fixed, least, real_warmup, ideal_warmup
        real_ns = self._pace_ns("real", self._head_iterations_ns)
        ideal_ns = self._pace_ns("ideal", self._head_steps_ns)
        noise = self._noise_ratio()
        pairs = FEWEST_PAIRS if noise > FEWEST_REAL_PER_IDEAL else MORE_PAIRS
        pairs = max(pairs, self._pairs or 0)
        if self.has_instruments:
            pairs = with_instruments(pairs)
        budget = self._batches_for_pairs() // pairs
        room = max(budget - real_warmup - ideal_warmup, SMALLEST_BLOCK + least)
        spare = (room - SMALLEST_BLOCK - least) // 4
        real_longer = max(min(math.ceil(WARMUP_NS / real_ns) - real_warmup, spare), 0)
        ideal_longer = max(min(math.ceil(WARMUP_NS / ideal_ns) - ideal_warmup, spare), 0)
        room -= real_longer + ideal_longer
        base = max(least, math.ceil(BLOCK_NS / ideal_ns))
        real = base * min(max(noise, FEWEST_REAL_PER_IDEAL), MOST_REAL_PER_IDEAL)
        ideal = real / min(max(noise, 1), MOST_REAL_PER_IDEAL)
        if real + ideal > room:
            ideal = max(ideal * room / (real + ideal), min(base, room / 2), least)
            real = room - ideal
        return (
            max(min(round(real), int(LONGEST_BLOCK_NS / real_ns)), SMALLEST_BLOCK),
            max(min(int(ideal), int(LONGEST_BLOCK_NS / ideal_ns)), least),
            real_warmup + real_longer,
            ideal_warmup + ideal_longer,
        )

    def _pace_ns(self, arm: Arm, of_heads_ns: list[int]) -> float:
        pace_ns = self._arms[arm].pace_ns
        if pace_ns is None:
            pace_ns = float(np.median(of_heads_ns)) if of_heads_ns else 0.0
        return max(pace_ns, 1.0)

    def _noise_ratio(self) -> float:
        """How many times as much iterations of the real arm vary as those of the ideal arm."""
        real, ideal = self._arms["real"], self._arms["ideal"]
        if not real.batches or not ideal.batches:
            return ASSUMED_REAL_PER_IDEAL
        if not ideal.relative_sd:
            return MOST_REAL_PER_IDEAL
        return real.relative_sd / ideal.relative_sd

    def _batches_for_pairs(self) -> int:
        """How many batches there are for the pairs.

        Of one epoch, or of twice what was served: before this epoch, for it is to have enough
        pairs too, or so far, where its length is not known. That is without the head of an epoch,
        and without what was taken out of the queue and is left at its end.
        """
        if self._length:
            likely = max(self._length, 2 * self._epoch_began)
        else:
            likely = max(BATCHES_OF_UNKNOWN_EPOCH, 2 * self.served)
        total = self._batches or likely
        apart = head_for(self._depth) + self._depth
        return total - apart

    def _completed(self, block: PlannedBlock, iterations_ns: Values) -> None:
        if not block.instrumented:
            self._arms[block.arm].add(iterations_ns)
        if block.arm == arms_of(self._seed, block.pair)[-1]:
            self._pair = block.pair + 1
            is_full = self._batches is not None and self.served >= self._batches
            self.is_over = (
                self.is_enough or is_full or self._counted_before(self._pair) == self._pairs
            )
