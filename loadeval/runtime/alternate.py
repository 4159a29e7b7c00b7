"""Both arms in one run: blocks of real loading, and blocks of prefetched batches."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple

from loadeval.runlog.model import Prefetch, Window
from loadeval.runtime.loop import Stage, restarting

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import psutil

    from loadeval.runlog.model import Arm, LoaderInfo
    from loadeval.runtime.adapter import Adapter
    from loadeval.runtime.counting import Counter
    from loadeval.runtime.recorder import Recorder
    from loadeval.runtime.settings import Settings

    Enough = Callable[[Sequence[float], Sequence[float]], bool]

SMALLEST_BLOCK = 8
"""The fewest counted batches of one arm in one pair."""
SHORTEST_WARMUP = 3
"""Batches until a memory-bound step runs at full speed again after a switch of arms."""


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """One arm's block of a pair: its warm-up batches, and then its counted ones."""

    pair: int
    arm: Arm
    warmup: int
    counted: int


def planned_blocks(
    seed: int, pairs: int | None, prefetch_depth: int, size: int
) -> Iterator[PlannedBlock]:
    """The blocks of `pairs` pairs (None: without end), the arms of each in random order.

    The real arm's warm-up is longer: the loader, whose queue begins empty, has to refill it.
    """
    shortest = SHORTEST_WARMUP
    warmup: dict[Arm, int] = {"real": max(prefetch_depth + 1, shortest), "ideal": shortest}
    for pair in count() if pairs is None else range(pairs):
        order: list[Arm] = ["real", "ideal"]
        random.Random(f"{seed}/{pair}").shuffle(order)  # noqa: S311 - no secret
        for arm in order:
            yield PlannedBlock(pair, arm, warmup[arm], size)


def block_for(prefetch_depth: int) -> int:
    """Counted batches in a block: enough that prefetching them takes more than the queue holds."""
    return max(SMALLEST_BLOCK, 2 * prefetch_depth + 2)


class Progress:
    """Follows `schedule` until it ends, `batches` were served, or `enough` returns True.

    `enough` is called after each pair with the mean iterations, in nanoseconds, of all real and all
    ideal blocks so far. Set it to None to go on regardless. `served` are all batches so far, also
    those that were not counted.
    """

    def __init__(
        self,
        schedule: Iterator[PlannedBlock],
        batches: int | None = None,
        enough: Enough | None = None,
    ) -> None:
        self._schedule = schedule
        self._batches = batches
        self.enough = enough
        self.served = 0
        self._counted = 0
        self._elapsed_ns = 0
        self._iterations_ns: dict[Arm, list[float]] = {"real": [], "ideal": []}
        self.block = next(schedule, None)

    @property
    def left(self) -> int:
        """How many batches the current block still has to count."""
        return 0 if self.block is None else self.block.counted - self._counted

    def advance(self, served: int, elapsed_ns: int) -> None:
        """Note counted batches, and move to the next block once this one is complete."""
        self.served += served
        self._counted += served
        self._elapsed_ns += elapsed_ns
        block = self.block
        if block is None or self._counted < block.counted:
            return
        self._iterations_ns[block.arm].append(self._elapsed_ns / self._counted)
        self._counted = self._elapsed_ns = 0
        following = next(self._schedule, None)
        pair_is_over = following is None or following.pair != block.pair
        self.block = None if pair_is_over and self._spent() else following

    def _spent(self) -> bool:
        if self._batches is not None and self.served >= self._batches:
            return True
        return self.enough is not None and self.enough(*self._iterations_ns.values())


REORDERED = (
    "loadeval: mode='alternate' prefetches batches. Each is served once, but some come a few "
    "places earlier or later, so losses differ from a run without loadeval. Use mode='log' if "
    "that matters"
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
        prefetched = 0
        raised: Exception | None = None
        waits_ns: list[int] = []
        timed = elapsed_ns = samples = total_bytes = 0
        is_over = is_full = False
        while prefetched < wanted and not is_full:
            asked = self.clock()
            try:
                batch = next(source)
            except StopIteration:
                is_over = True
                break
            except Exception as error:  # noqa: BLE001 - raised again, after the batches before it
                raised = error
                break
            delivered = self.clock()
            waits_ns.append(delivered - asked)
            held.append(self._adapter.keep(batch))
            prefetched += 1
            count, nbytes = self._counter.count(batch)
            del batch
            if prefetched > self.depth:
                timed += 1
                elapsed_ns += (self.clock() if self._loads_meanwhile else delivered) - asked
                samples = count + samples if min(count, samples) >= 0 else -1
            total_bytes += max(nbytes, 0)
            is_full = total_bytes + max(nbytes, 0) > self._max_bytes
        known = samples if timed and samples >= 0 else None
        fact = Prefetch(pair, epoch, prefetched, timed, elapsed_ns, known, tuple(waits_ns))
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
    block: they move by a few places. If the loader raises, they are served before the exception.
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
        self.asked_ns: int | None = None
        self._over = False

    def stages(self, epoch: int) -> Generator[Stage, None, None]:
        """See Plan. The first batch, whose wait is the epoch start, belongs to no block."""
        self._epoch = epoch
        progress = self._shared.progress
        self.asked_ns = self._shared.clock() - self._opened_ns
        yield from self._uncounted(self._in_order, 1, "real")
        while not self._over:
            block = progress.block
            if block is None:
                self.rest = self.remainder()
                return
            yield from self._ideal(block) if block.arm == "ideal" else self._real(block)
        yield from self._uncounted_held()

    def remainder(self) -> Iterator[Any]:
        """See Plan."""
        return chain(drained(self._held), self._source)

    def _real(self, block: PlannedBlock) -> Iterator[Stage]:
        if self._queue_is_full:
            self._queue_is_full = False
            prefetched = self._prefetch(self._shared.depth, block)
            yield from self._ended_by(prefetched)
        if not self._over:
            yield from self._uncounted(self._in_order, block.warmup, "real")
        if not self._over:
            yield from self._counted(block, self._in_order, self._shared.progress.left)

    def _ideal(self, block: PlannedBlock) -> Iterator[Stage]:
        shared = self._shared
        prefetched = self._prefetch(block.warmup + shared.progress.left - len(self._held), block)
        shared.wait_until_idle(prefetched.fact)
        self._queue_is_full = bool(shared.depth)
        count = min(len(self._held), block.warmup + shared.progress.left)
        # When memory limits the prefetch, the warm-up must leave something to count.
        warmup = min(block.warmup, count // 2 if prefetched.is_full else count)
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
        stage = Stage(source, size, arm, since_ns=self.asked_ns)
        yield stage
        self.asked_ns = stage.asked_ns
        self._shared.progress.served += stage.served
        self._over = stage.fell_short

    def _counted(self, block: PlannedBlock, source: Iterator[Any], size: int) -> Iterator[Stage]:
        shared = self._shared
        shared.mark()
        shared.fence()
        cpu_ns = shared.workers_cpu_ns()
        began_ns = shared.clock()
        stage = Stage(source, size, block.arm, block.pair, began_ns)
        ended_ns = began_ns
        try:
            yield stage
            reached_ns = shared.clock()
            shared.fence()
            # Ending an epoch, such as stopping workers, is no part of a step or block.
            over_ns = stage.asked_ns if stage.fell_short else reached_ns
            ended_ns = over_ns + shared.clock() - reached_ns
        finally:
            shared.progress.advance(stage.served, ended_ns - began_ns)
        shared.mark()
        self.asked_ns = ended_ns
        self._over = stage.fell_short
        now_ns = shared.workers_cpu_ns()
        used_ns = None if cpu_ns is None or now_ns is None else max(now_ns - cpu_ns, 0)
        window = Window(block.pair, self._epoch, block.arm, ended_ns - began_ns, used_ns)
        shared.keep(window)


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
