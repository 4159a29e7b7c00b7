"""Both arms in one run: blocks of real loading, and of batches prefetched ahead of their time."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from loadeval.runlog.model import Prefetch, Window
from loadeval.runtime.loop import Stage, going_on

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import psutil

    from loadeval.runlog.model import Arm, LoaderInfo
    from loadeval.runtime.adapter import Adapter
    from loadeval.runtime.counting import Counter
    from loadeval.runtime.recorder import Recorder

    Enough = Callable[[Sequence[float], Sequence[float]], bool]

SMALLEST_BLOCK = 8
"""Counted batches of one arm in one pair, at least."""
SHORTEST_WARMUP = 3
"""Batches after a change of arms in which a step that moves much memory finds its pace again."""


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """One arm's part of a pair: how many batches are served uncounted, and then counted."""

    pair: int
    arm: Arm
    warmup: int
    counted: int


def planned_blocks(
    seed: int, pairs: int | None, prefetch_depth: int, size: int
) -> Iterator[PlannedBlock]:
    """The blocks of `pairs` pairs (None: without end), the arms of each in random order.

    In the real arm's warm-up the loader, whose queue begins empty, finds its pace too.
    """
    shortest = SHORTEST_WARMUP
    warmup: dict[Arm, int] = {"real": max(prefetch_depth + 1, shortest), "ideal": shortest}
    for pair in count() if pairs is None else range(pairs):
        order: list[Arm] = ["real", "ideal"]
        random.Random(f"{seed}/{pair}").shuffle(order)  # noqa: S311 - no secret
        for arm in order:
            yield PlannedBlock(pair, arm, warmup[arm], size)


def block_for(prefetch_depth: int) -> int:
    """Counted batches in a block, so many that prefetching them goes well beyond the queue."""
    return max(SMALLEST_BLOCK, 2 * prefetch_depth + 2)


class Progress:
    """Goes through `schedule`, until it ends, `batches` were served, or `enough` says so.

    `enough` is asked after each pair, with the mean iterations of each pair's real and ideal block;
    it may be taken away.
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
        self._served = 0
        self._counted = 0
        self._elapsed_ns = 0
        self._iterations_ns: dict[Arm, list[float]] = {"real": [], "ideal": []}
        self.block = next(schedule, None)

    @property
    def left(self) -> int:
        """How many batches of the present block are still to be counted."""
        return 0 if self.block is None else self.block.counted - self._counted

    def pass_by(self, served: int) -> None:
        """Note batches that were served uncounted."""
        self._served += served

    def advance(self, served: int, elapsed_ns: int) -> None:
        """Note counted batches, and go on to the next block when this one is full."""
        self._served += served
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
        if self._batches is not None and self._served >= self._batches:
            return True
        return self.enough is not None and self.enough(*self._iterations_ns.values())


REORDERED = (
    "loadeval: mode='alternate' reads batches ahead of training: each is served once, but their "
    "order changes by a few places, and losses with it. Use mode='log' where that matters"
)
DRAWN_EARLIER = (
    "loadeval: mode='alternate' reads batches ahead of training: each is served once, in order. "
    "But where the dataset and the training step draw from one random generator, for crops and "
    "for dropout say, they draw other numbers. Use mode='log' where that matters"
)
LONGEST_IDLE_WAIT_S = 5.0
"""How long a training step waits, at most, for the loader's background work to end."""


def tell_changes(info: LoaderInfo) -> None:
    """Say what an alternating run changes of a training with a loader like this.

    Logged and not warned of: nothing is wrong, and a warning that is an error would end it.
    """
    logging.getLogger("loadeval").warning(REORDERED if info.prefetch_depth else DRAWN_EARLIER)


class Alternation:
    """What all epochs of an alternating run share."""

    def __init__(
        self,
        progress: Progress,
        prefetcher: Prefetcher,
        activity: WorkerActivity | None,
        fence: Callable[[], None],
        clock: Callable[[], int],
        recorder: Recorder,
    ) -> None:
        self.progress = progress
        self.prefetcher = prefetcher
        self.activity = activity
        self.fence = fence
        self.clock = clock
        self.keep = recorder.keep
        self.mark = recorder.mark

    def workers_cpu_ns(self) -> int | None:
        """CPU time of the workers so far; None where there can be none, or it is unreadable."""
        return None if self.activity is None else self.activity.workers_cpu_ns()

    def wait_until_idle(self, prefetched: Prefetch) -> None:
        """Wait until the loader has filled its queue, for twice the time that it should take."""
        if self.activity is not None:
            each_s = prefetched.elapsed_ns / prefetched.timed / 1e9 if prefetched.timed else 0.0
            self.activity.wait_until_idle(
                min(0.2 + 2 * prefetched.batches * each_s, LONGEST_IDLE_WAIT_S)
            )


class AlternatingEpoch:
    """One epoch of an alternating run: every batch is served once.

    An ideal block leaves the loader's queue full, and a full queue hides for many batches that
    the loader is too slow. So a real block begins by taking what is in the queue, which is
    `held` and served in the next ideal block: the order of batches changes by a few places.
    They come before an exception that was raised after them. `queue_is_full` tells that the
    loader had filled it before the epoch began.
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
        reads_ahead = bool(shared.prefetcher.depth)
        self._in_order = _with_held_before_errors(source, self._held) if reads_ahead else source
        self._opened_ns = opened_ns
        self._epoch = 0
        self._queue_is_full = queue_is_full
        self.asked_ns: int | None = None
        self._over = False

    def stages(self, epoch: int) -> Generator[Stage, None, None]:
        """See Plan. The epoch's first batch, its epoch start, belongs to no block."""
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
        return chain(handed_out(self._held), self._source)

    def _real(self, block: PlannedBlock) -> Iterator[Stage]:
        if self._queue_is_full:
            yield from self._empty_queue(block)
        if not self._over:
            yield from self._uncounted(self._in_order, block.warmup, "real")
        if not self._over:
            yield from self._counted(block, self._in_order, self._shared.progress.left)

    def _empty_queue(self, block: PlannedBlock) -> Iterator[Stage]:
        prefetched = self._prefetch(self._shared.prefetcher.depth, block)
        self._queue_is_full = False
        yield from self._ended_by(prefetched)

    def _ideal(self, block: PlannedBlock) -> Iterator[Stage]:
        shared = self._shared
        prefetched = self._prefetch(block.warmup + shared.progress.left - len(self._held), block)
        shared.wait_until_idle(prefetched.fact)
        self._queue_is_full = bool(shared.prefetcher.depth)
        count = min(len(self._held), block.warmup + shared.progress.left)
        # Where memory bounds what is prefetched, a warm-up must leave something to count.
        warmup = min(block.warmup, count // 2 if prefetched.full else count)
        batches = handed_out(self._held)
        yield from self._uncounted(batches, warmup, "ideal")
        if count > warmup:
            yield from self._counted(block, batches, count - warmup)
        yield from self._ended_by(prefetched)

    def _prefetch(self, wanted: int, block: PlannedBlock) -> Prefetched:
        prefetched = self._shared.prefetcher.prefetch(
            self._source, wanted, block.pair, self._epoch, self._held
        )
        self._shared.keep(prefetched.fact)
        return prefetched

    def _ended_by(self, prefetched: Prefetched) -> Iterator[Stage]:
        if prefetched.error is not None:
            yield from self._uncounted_held()
            yield from self._uncounted(failing(prefetched.error), 1, "real")
        self._over = prefetched.exhausted

    def _uncounted_held(self) -> Iterator[Stage]:
        return self._uncounted(handed_out(self._held), len(self._held), "ideal")

    def _uncounted(self, source: Iterator[Any], size: int, arm: Arm) -> Iterator[Stage]:
        """Batches between blocks; what was done since they were asked for is part of their wait.

        So that what loadeval does there, and the loader at its epoch's end, is in no step.
        """
        stage = Stage(source, size, arm, since_ns=self.asked_ns)
        yield stage
        self.asked_ns = stage.asked_ns
        self._shared.progress.pass_by(stage.served)
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
            # An epoch's end takes its time, to stop workers for one: no step's, nor a block's.
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


def _with_held_before_errors(source: Iterator[Any], held: deque[Any]) -> Iterator[Any]:
    # No method: an iteration would keep the loader's workers alive after an epoch was broken off.
    return going_on(partial(_until_error, source, held))


def _until_error(source: Iterator[Any], held: deque[Any]) -> Iterator[Any]:
    while True:
        try:
            batch = next(source)
        except StopIteration:
            return
        except Exception:
            yield from handed_out(held)
            raise
        yield batch


@dataclass(frozen=True, slots=True)
class Prefetched:
    """How many batches were prefetched, how long that took, and why there were no more of them.

    `error` is what the loader raised after them, `exhausted` that its epoch is over, and
    `full` that more of them would not have fitted.
    """

    fact: Prefetch
    error: Exception | None = None
    exhausted: bool = False
    full: bool = False


def failing(error: Exception) -> Iterator[Any]:
    """An iterator that raises `error` when it is asked for a batch."""
    yield from _raised(error)


def _raised(error: Exception) -> Iterator[Any]:
    raise error


def handed_out(batches: deque[Any]) -> Iterator[Any]:
    """The batches in order; none is held any longer once it is handed out."""
    while batches:
        yield batches.popleft()


class Prefetcher:
    """Prefetches batches back to back, and times those that the loader cannot have prefetched."""

    def __init__(
        self,
        adapter: Adapter,
        counter: Counter,
        clock: Callable[[], int],
        info: LoaderInfo,
        max_bytes: int,
    ) -> None:
        self._adapter = adapter
        self._counter = counter
        self._clock = clock
        self.depth = info.prefetch_depth or 0
        # Workers go on loading while a batch is copied; a loader without them waits.
        self._loads_meanwhile = bool(info.workers)
        self._max_bytes = max_bytes

    def prefetch(
        self, source: Iterator[Any], wanted: int, pair: int, epoch: int, held: deque[Any]
    ) -> Prefetched:
        """Add the next `wanted` batches of `source` to `held`, or as many as there are, and fit.

        They are copies in memory of their own.
        """
        prefetched = 0
        ends: dict[str, Any] = {}
        longest_ns: int | None = None
        timed = elapsed_ns = samples = total_bytes = 0
        while prefetched < wanted and not ends:
            asked = self._clock()
            try:
                batch = next(source)
            except StopIteration:
                ends["exhausted"] = True
                break
            except Exception as error:  # noqa: BLE001 - raised again, in its turn
                ends["error"] = error
                break
            delivered = self._clock()
            longest_ns = max(longest_ns or 0, delivered - asked)
            held.append(self._adapter.keep(batch))
            prefetched += 1
            count, nbytes = self._counter.count(batch)
            del batch
            if prefetched > self.depth:
                timed += 1
                elapsed_ns += (self._clock() if self._loads_meanwhile else delivered) - asked
                samples = count + samples if min(count, samples) >= 0 else -1
            total_bytes += max(nbytes, 0)
            if total_bytes + max(nbytes, 0) > self._max_bytes:
                ends["full"] = True
        known = samples if timed and samples >= 0 else None
        return Prefetched(
            Prefetch(pair, epoch, prefetched, timed, elapsed_ns, known, longest_ns), **ends
        )


NAP_S = 0.03
"""Three ticks of the clock by which systems count CPU time."""
IDLE_SHARE = 0.1
"""Of one CPU: what a process that does nothing in particular may take."""


class WorkerActivity:
    """What this process and its children do while the training step does nothing."""

    def __init__(self) -> None:
        import psutil  # noqa: PLC0415 - kept out of `import loadeval`

        self._psutil = psutil
        self._self = psutil.Process()

    def workers_cpu_ns(self) -> int | None:
        """CPU time that the living children have taken so far; None where it cannot be read."""
        try:
            children = self._self.children(recursive=True)
        except self._psutil.Error:
            return None
        return round(sum(map(self._cpu_s, children)) * 1e9)

    def wait_until_idle(self, limit_s: float) -> bool:
        """Nap until nobody works in the background; False when `limit_s` passed before."""
        deadline = time.monotonic() + limit_s
        busy_s = self._busy_s()
        while time.monotonic() < deadline:
            time.sleep(NAP_S)
            before_s, busy_s = busy_s, self._busy_s()
            if busy_s - before_s <= IDLE_SHARE * NAP_S:
                return True
        return False

    def _busy_s(self) -> float:
        # This thread's own time is that of asking.
        others_s = time.process_time() - time.thread_time()
        return others_s + (self.workers_cpu_ns() or 0) / 1e9

    def _cpu_s(self, process: psutil.Process) -> float:
        try:
            times = process.cpu_times()
        except self._psutil.Error:  # it ended meanwhile
            return 0.0
        return float(times.user + times.system)
