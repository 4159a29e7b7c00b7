"""Both arms in one run: blocks of real loading, and blocks of prefetched batches."""

from __future__ import annotations

import logging
import math
import random
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import sub
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from loadeval.runlog.model import SECOND_NS, Prefetch, Window
from loadeval.runtime.loop import Stage, restarting

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import psutil

    from loadeval.runlog.model import Arm, LoaderInfo, Values
    from loadeval.runtime.adapter import Adapter
    from loadeval.runtime.counting import Counter
    from loadeval.runtime.recorder import Recorder
    from loadeval.runtime.settings import Settings

    Enough = Callable[[Sequence[Values], Sequence[Values]], bool]

SMALLEST_BLOCK = 8
"""The fewest counted batches of one arm in one pair."""
SHORTEST_WARMUP = 3
"""Batches until a memory-bound step runs at full speed again after a switch of arms."""
BLOCK_NS = SECOND_NS // 10
"""How long an ideal block is to last: what its first steps lose after the pause is then little.

The loader is waited for before an ideal block; meanwhile CPU caches go cold and the core sleeps.
"""
WARMUP_NS = SECOND_NS // 20
"""How long a warm-up is to last: after a switch or a pause, steps are slow for tens of ms."""
LONGEST_BLOCK_NS = 10 * SECOND_NS
"""No block is to last longer, so that both arms of a pair see the same machine."""
FEWEST_REAL_PER_IDEAL = 3
"""The real arm has rare stalls that its first blocks do not show."""
MOST_REAL_PER_IDEAL = 8
"""A larger share of real batches would hardly be more precise."""
ASSUMED_REAL_PER_IDEAL = 4
"""As long as the noise of neither arm is known."""
FEWEST_PAIRS = 4
"""How many pairs the batches of a run are to suffice for, at least."""
MORE_PAIRS = 8
"""The same where real iterations vary little more than ideal ones: what is left is drift."""
BATCHES_OF_UNKNOWN_EPOCH = 200
"""The length assumed of an epoch whose length is not known."""
FIXED_REAL_BLOCK = 32
"""Counted batches of a real block where sizes may not depend on what is measured."""


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """One arm's block of a pair: its warm-up batches, and then its counted ones."""

    pair: int
    arm: Arm
    warmup: int
    counted: int


def planned_blocks(seed: int, pairs: int, prefetch_depth: int, size: int) -> Iterator[PlannedBlock]:
    """The blocks of `pairs` pairs, all of one size, the arms of each in random order."""
    warmup: dict[Arm, int] = {"real": head_for(prefetch_depth), "ideal": SHORTEST_WARMUP}
    for pair in range(pairs):
        for arm in arms_of(seed, pair):
            yield PlannedBlock(pair, arm, warmup[arm], size)


def arms_of(seed: int, pair: int) -> list[Arm]:
    """Both arms, in the order in which they have their blocks of a pair.

    It is random in the first of two pairs, and reversed in the second: a steady drift favours each
    arm as often.
    """
    order: list[Arm] = ["real", "ideal"]
    random.Random(f"{seed}/{pair // 2}").shuffle(order)  # noqa: S311 - no secret
    return order[::-1] if pair % 2 else order


def head_for(prefetch_depth: int) -> int:
    """Batches until a loader whose queue begins empty has refilled it, and steps are steady."""
    return max(prefetch_depth + 1, SHORTEST_WARMUP)


def block_for(prefetch_depth: int) -> int:
    """The smallest ideal block: prefetching it takes more than the queue holds.

    So there are batches that time the loader alone, and what a real block took out of the queue
    is served in the next ideal block.
    """
    return max(SMALLEST_BLOCK, 2 * prefetch_depth + 2)


class Progress:
    """Follows the blocks of `schedule` until it ends.

    `served` are all batches so far, also those that were not counted, and `left` those that the
    block still has to count.
    """

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

    def note_head(self, stage: Stage) -> None:
        """Note the real batches with which an epoch began."""

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
        if not len(iterations_ns):  # each of its batches was the last of an epoch broken off
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
    order of its arms depends on `seed` and its number alone. The run ends after `pairs` pairs,
    with the first pair to reach `batches` served ones, or when `enough` returns True; None is no
    limit. `enough` is called after each pair with the iterations in nanoseconds of the counted
    real batches of each pair so far, and of the ideal ones; a pair in which none is known of an
    arm is left out. `length` is how many batches an epoch has, if that is known.

    Where `fixed` is set sizes depend on no measurement. In distributed training all ranks must
    switch arms at the same batch.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        pairs: int | None = None,
        batches: int | None = None,
        prefetch_depth: int = 0,
        length: int | None = None,
        enough: Enough | None = None,
    ) -> None:
        super().__init__(self._planned())
        self.fixed = False
        self.enough = enough
        self.is_over = False
        self._seed = seed
        self._pairs = pairs
        self._batches = batches
        self._depth = prefetch_depth
        self._length = length
        self._arms: dict[Arm, _ArmSoFar] = {"real": _ArmSoFar(), "ideal": _ArmSoFar()}
        self._latest_ns: dict[Arm, Values] = {}
        self._of_pairs: dict[Arm, list[Values]] = {"real": [], "ideal": []}
        self._head_iterations_ns: list[int] = []
        self._head_steps_ns: list[int] = []

    def note_head(self, stage: Stage) -> None:
        """Until an arm has had a block, its pace is taken from the heads of epochs."""
        if self._arms["ideal"].pace_ns is None or self._arms["real"].pace_ns is None:
            ends_ns = [*stage.marks[2::2], stage.asked_ns]
            self._head_iterations_ns += map(sub, ends_ns, stage.marks[::2])
            self._head_steps_ns += map(sub, ends_ns, stage.marks[1::2])

    def limit(self, batches: int) -> None:
        """The block ends with the `batches` that memory has room for, if it is large enough."""
        block = self.block
        if block is not None and not self.fixed:
            counted = block.counted - self.left
            self.left = min(self.left, max(batches, SMALLEST_BLOCK - counted))

    def _planned(self) -> Iterator[PlannedBlock]:
        pair = 0
        while not self.is_over:
            real, ideal, real_warmup, ideal_warmup = self._sizes()
            blocks: dict[Arm, PlannedBlock] = {
                "real": PlannedBlock(pair, "real", real_warmup, real),
                "ideal": PlannedBlock(pair, "ideal", ideal_warmup, ideal),
            }
            for arm in arms_of(self._seed, pair):
                yield blocks[arm]
            pair += 1

    def _sizes(self) -> tuple[int, int, int, int]:
        """Counted batches of a pair's real and ideal blocks, and the warm-ups of both.

        Batches are in proportion to the noise of an arm: J. Neyman, "On the two different aspects
        of the representative method", Journal of the Royal Statistical Society 97, 1934.
        """
        least = block_for(self._depth)
        real_warmup, ideal_warmup = head_for(self._depth), SHORTEST_WARMUP
        if self.fixed:
            return FIXED_REAL_BLOCK, least, real_warmup, ideal_warmup
        real_ns = self._pace_ns("real", self._head_iterations_ns)
        ideal_ns = self._pace_ns("ideal", self._head_steps_ns)
        noise = self._noise_ratio()
        pairs = FEWEST_PAIRS if noise > FEWEST_REAL_PER_IDEAL else MORE_PAIRS
        budget = self._batches_for_pairs() // max(pairs, self._pairs or 0)
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
        return max(float(np.median(of_heads_ns)) if pace_ns is None else pace_ns, 1.0)

    def _noise_ratio(self) -> float:
        """By how much iterations of the real arm vary more than those of the ideal arm."""
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
        self._arms[block.arm].add(iterations_ns)
        self._latest_ns[block.arm] = iterations_ns
        if block.arm == arms_of(self._seed, block.pair)[-1]:
            self.is_over = self._is_enough(block.pair + 1)

    def _is_enough(self, pairs: int) -> bool:
        if pairs == self._pairs or (self._batches is not None and self.served >= self._batches):
            return True
        if self.enough is None:
            return False
        if all(map(len, self._latest_ns.values())):
            for arm, iterations_ns in self._latest_ns.items():
                self._of_pairs[arm].append(iterations_ns)
        return self.enough(self._of_pairs["real"], self._of_pairs["ideal"])


REORDERED = (
    "loadeval: mode='alternate' prefetches batches. Each is served once, but most come a few "
    "places earlier, and some up to two blocks later, so losses differ from a run without "
    "loadeval. Use mode='log' if that matters"
)
DIFFERENT_RANDOM_NUMBERS = (
    "loadeval: mode='alternate' prefetches batches. Each is served once, in order, but if the "
    "dataset and the training step share a random generator, such as for crops and dropout, "
    "they draw different numbers than without loadeval. Use mode='log' if that matters"
)
LONGEST_IDLE_WAIT_S = 5.0
"""How long an ideal block waits, at most, for the loader's background work to end."""


class Alternation:
    """What all epochs of an alternating run share. `adapter` copies the batches."""

    def __init__(
        self,
        progress: Progress,
        adapter: Adapter,
        counter: Counter,
        info: LoaderInfo,
        settings: Settings,
        recorder: Recorder,
    ) -> None:
        self.progress = progress
        self.depth = info.prefetch_depth or 0
        self.head = head_for(self.depth)
        self.fence = adapter.fence
        self.clock = settings.clock
        self.keep = recorder.keep
        self.mark = recorder.mark
        self._adapter = adapter
        self._counter = counter
        # Workers go on loading while a batch is copied; a loader without them waits.
        self._loads_meanwhile = bool(info.workers)
        self._max_bytes = settings.max_cache_bytes
        self._activity = None if info.workers == 0 else WorkerActivity()
        self._has_told = False

    def log_side_effects(self) -> None:
        """Log, once, what an alternating run changes about training with such a loader.

        Not a warning: nothing is wrong, and where warnings are errors it would stop training.
        """
        if not self._has_told:
            self._has_told = True
            logging.getLogger("loadeval").warning(
                REORDERED if self.depth else DIFFERENT_RANDOM_NUMBERS
            )

    def workers_cpu_ns(self) -> int | None:
        """CPU time of the workers so far; None if there are none, or it cannot be read."""
        return None if self._activity is None else self._activity.workers_cpu_ns()

    def wait_until_idle(self, prefetched: Prefetch) -> None:
        """Wait until the loader has refilled its queue, at most twice the expected time."""
        if self._activity is not None:
            each_s = prefetched.elapsed_ns / prefetched.timed / 1e9 if prefetched.timed else 0.0
            self._activity.wait_until_idle(
                min(0.2 + 2 * prefetched.batches * each_s, LONGEST_IDLE_WAIT_S)
            )

    def prefetch(
        self, source: Iterator[Any], wanted: int, pair: int, epoch: int, held: deque[Any]
    ) -> Prefetched:
        """Append copies of the next `wanted` batches of `source` to `held`, back to back.

        Fewer if the epoch ends before, the loader raises, or memory is full. Those beyond the
        loader's own queue are timed.
        """
        raised: Exception | None = None
        waits_ns: list[int] = []
        end_ns: int | None = None
        timed = elapsed_ns = samples = total_bytes = 0
        is_over = is_full = False
        while len(waits_ns) < wanted and not is_full:
            asked = self.clock()
            try:
                batch = next(source)
            except StopIteration:
                is_over, end_ns = True, self.clock() - asked
                break
            except Exception as error:  # noqa: BLE001 - raised again, after the batches before it
                raised = error
                break
            delivered = self.clock()
            waits_ns.append(delivered - asked)
            held.append(self._adapter.keep(batch))
            count, nbytes = self._counter.count(batch)
            del batch
            if len(waits_ns) > self.depth:
                timed += 1
                elapsed_ns += (self.clock() if self._loads_meanwhile else delivered) - asked
                samples = count + samples if min(count, samples) >= 0 else -1
            total_bytes += max(nbytes, 0)
            is_full = total_bytes + max(nbytes, 0) > self._max_bytes
        known = samples if timed and samples >= 0 else None
        prefetched = len(waits_ns)
        fact = Prefetch(pair, epoch, prefetched, timed, elapsed_ns, known, tuple(waits_ns), end_ns)
        self.keep(fact)
        return Prefetched(fact, raised, is_over, is_full)


class Prefetched(NamedTuple):
    """How many batches were prefetched, how long that took, and why prefetching ended.

    `error` is what the loader raised after them; `is_over` tells that its epoch is, and `is_full`
    that the next one would not have fitted into memory.
    """

    fact: Prefetch
    error: Exception | None
    is_over: bool
    is_full: bool


class AlternatingEpoch:
    """One epoch of an alternating run: every batch is served once.

    An ideal block leaves the loader's queue full, and a full queue hides a slow loader for many
    batches. So a real block first empties the queue, and holds these batches for the next ideal
    block: they come up to two real blocks later, and others a few places earlier. If the loader
    raises, they are served before the exception.
    `queue_is_full` tells that the loader had filled its queue before the epoch began.
    """

    def __init__(
        self,
        shared: Alternation,
        source: Iterator[Any],
        opened_ns: int,
        queue_is_full: bool = False,
    ) -> None:
        self.rest: Iterator[Any] | None = None
        self._shared = shared
        self._held: deque[Any] = deque()
        self._source = source
        self._in_order = source
        if shared.depth:  # no method: `self` would keep the workers of a broken-off epoch alive
            self._in_order = restarting(partial(_held_before_errors, source, self._held))
        self._opened_ns = opened_ns
        self._epoch = 0
        self._queue_is_full = queue_is_full
        self._settled = 0
        self.asked_ns: int | None = None
        self._over = False

    def stages(self, epoch: int) -> Generator[Stage, None, None]:
        """See Plan. The first batches belong to no block.

        They show the epoch start, and what follows it, as without loadeval.
        """
        self._epoch = epoch
        progress = self._shared.progress
        self.asked_ns = self._shared.clock() - self._opened_ns
        progress.begin_epoch(self._shared.head)
        yield from self._begin(Stage(self._in_order, self._shared.head, since_ns=self.asked_ns))
        while not self._over:
            block = progress.block
            if block is None:
                self.rest = self.remainder()
                return
            yield from self._ideal(block) if block.arm == "ideal" else self._real(block)
            self._settled = 0
        yield from self._uncounted_held()

    def remainder(self) -> Iterator[Any]:
        """See Plan."""
        return chain(drained(self._held), self._source)

    def _begin(self, head: Stage) -> Iterator[Stage]:
        """The first batches, which are also warm-up of a real block that follows."""
        yield from self._served(head)
        self._shared.progress.note_head(head)
        self._settled = head.served

    def _real(self, block: PlannedBlock) -> Iterator[Stage]:
        if self._queue_is_full:
            self._queue_is_full = False
            self._settled = 0
            prefetched = self._prefetch(self._shared.depth, block)
            yield from self._ended_by(prefetched)
        if not self._over:
            warmup = self._warmup(max(block.warmup - self._settled, 0))
            yield from self._uncounted(self._in_order, warmup, "real")
        if not self._over:
            yield from self._counted(block, self._in_order, self._shared.progress.left)

    def _ideal(self, block: PlannedBlock) -> Iterator[Stage]:
        shared = self._shared
        warmup = self._warmup(block.warmup)
        wanted = warmup + shared.progress.left
        prefetched = self._prefetch(wanted - len(self._held), block)
        shared.wait_until_idle(prefetched.fact)
        self._queue_is_full = bool(shared.depth)
        count = min(len(self._held), wanted)
        # When memory limits the prefetch, the warm-up must leave something to count.
        warmup = min(warmup, count // 2 if prefetched.is_full else count)
        if prefetched.is_full:
            shared.progress.limit(count - warmup)
        batches = drained(self._held)
        yield from self._uncounted(batches, warmup, "ideal")
        if count > warmup:
            yield from self._counted(block, batches, count - warmup)
        yield from self._ended_by(prefetched)

    def _prefetch(self, wanted: int, block: PlannedBlock) -> Prefetched:
        return self._shared.prefetch(self._source, wanted, block.pair, self._epoch, self._held)

    def _ended_by(self, prefetched: Prefetched) -> Iterator[Stage]:
        if prefetched.error is not None:
            yield from self._uncounted_held()
            yield from self._uncounted(map(_raise, [prefetched.error]), 1, "real")
        self._over = prefetched.is_over

    def _uncounted_held(self) -> Iterator[Stage]:
        return self._uncounted(drained(self._held), len(self._held), "ideal")

    def _uncounted(self, source: Iterator[Any], size: int, arm: Arm) -> Iterator[Stage]:
        """Batches between blocks. Their wait begins when the consumer asked for them.

        So what loadeval does before them, and the loader at its epoch's end, counts as no step.
        """
        return self._served(Stage(source, size, arm, since_ns=self.asked_ns))

    def _served(self, stage: Stage) -> Iterator[Stage]:
        try:
            yield stage
        finally:
            self._shared.progress.served += stage.served
        self.asked_ns = stage.asked_ns
        self._over = stage.fell_short

    def _warmup(self, planned: int) -> int:
        return int(min(planned, self._shared.progress.longest_warmup(self._shared.head)))

    def _counted(self, block: PlannedBlock, source: Iterator[Any], size: int) -> Iterator[Stage]:
        shared = self._shared
        shared.mark()
        shared.fence()
        cpu_ns, faults = shared.workers_cpu_ns(), minor_faults()
        began_ns = shared.clock()
        stage = Stage(source, size, block.arm, block.pair, began_ns)
        times_ns: list[int] = []  # the end of the last step is not known if it is broken off
        try:
            yield stage
            reached_ns = shared.clock()
            shared.fence()
            # Ending an epoch, such as stopping workers, is no part of a step or block.
            over_ns = stage.asked_ns if stage.fell_short else reached_ns
            self.asked_ns = over_ns + shared.clock() - reached_ns
            times_ns = [self.asked_ns]
            faults_now = minor_faults()
        finally:
            times_ns = [*stage.marks[::2], *times_ns]
            shared.progress.advance(stage.served, times_ns)
        shared.mark()
        self._over = stage.fell_short
        window = Window(
            block.pair,
            self._epoch,
            block.arm,
            self.asked_ns - began_ns,
            _increase(cpu_ns, shared.workers_cpu_ns()),
            _increase(faults, faults_now),
        )
        shared.keep(window)


def minor_faults() -> int | None:
    """Page faults of this process so far that needed no disk; None where that is not known."""
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _increase(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(after - before, 0)


def _held_before_errors(source: Iterator[Any], held: deque[Any]) -> Iterator[Any]:
    while True:
        try:
            batch = next(source)
        except StopIteration:
            return
        except Exception:
            yield from drained(held)
            raise
        yield batch


def _raise(error: Exception) -> None:
    raise error


def drained(batches: deque[Any]) -> Iterator[Any]:
    """The batches in order, each removed before it is served."""
    while batches:
        yield batches.popleft()


NAP_S = 0.03
"""Three ticks of the clock that counts CPU time."""
IDLE_SHARE = 0.1
"""The share of one CPU that an idle process may use."""


class WorkerActivity:
    """CPU use of this process's workers and background threads."""

    def __init__(self) -> None:
        import psutil  # noqa: PLC0415 - kept out of `import loadeval`

        self._psutil = psutil
        self._self = psutil.Process()

    def workers_cpu_ns(self) -> int | None:
        """CPU time of all living child processes so far; None if it cannot be read."""
        try:
            children = self._self.children(recursive=True)
        except self._psutil.Error:
            return None
        return round(sum(map(self._cpu_s, children)) * 1e9)

    def wait_until_idle(self, limit_s: float) -> bool:
        """Sleep until the background work is done; False if it is not after `limit_s`."""
        deadline = time.monotonic() + limit_s
        busy_s = self._busy_s()
        while time.monotonic() < deadline:
            time.sleep(NAP_S)
            before_s, busy_s = busy_s, self._busy_s()
            if busy_s - before_s <= IDLE_SHARE * NAP_S:
                return True
        return False

    def _busy_s(self) -> float:
        # This thread spends its time on reading these numbers.
        others_s = time.process_time() - time.thread_time()
        return others_s + (self.workers_cpu_ns() or 0) / 1e9

    def _cpu_s(self, process: psutil.Process) -> float:
        try:
            times = process.cpu_times()
        except self._psutil.Error:  # it has just ended
            return 0.0
        return float(times.user + times.system)
