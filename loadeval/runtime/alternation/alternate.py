"""Both arms in one run: blocks of real loading, and blocks of prefetched batches."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from loadeval.adapter import begun
from loadeval.core.cuda import spare_bytes, timing_events
from loadeval.core.loop import RealEpoch, Remaining, Span, restarting
from loadeval.data.blocks import head_for
from loadeval.data.lines import Prefetch, Window
from loadeval.errors import is_of_a_signal, of_the_loader
from loadeval.runtime.alternation.worker_activity import WorkerActivity
from loadeval.runtime.batches.tree import leaves

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Generator, Iterator

    from loadeval.adapter import Adapter
    from loadeval.core.counting import Counter
    from loadeval.core.recorder import Recorder
    from loadeval.data.lines import Arm, LoaderInfo
    from loadeval.runtime.alternation.schedule import PlannedBlock, Progress
    from loadeval.settings import Settings

REORDERED = (
    "loadeval: alternating changes the order of batches, so losses differ; mode='log' does not"
)
DIFFERENT_RANDOM_NUMBERS = (
    "loadeval: alternating loads ahead, so random numbers may differ; mode='log' does not"
)
NOT_COPIED = "a batch could not be copied, so that fewer are prefetched: {error}"
LIMITED_RANK = (
    "max_cache_bytes is too little for the ideal blocks of this rank, so parts of them do not "
    "count; other ranks wait for it there, and their ideal steps are longer than they would be"
)
LONGEST_IDLE_WAIT_S = 5.0
"""An ideal block waits no longer for the loader's background work to end."""


class Alternation:
    """What all epochs of an alternating run share. `adapter` copies the batches."""

    has_logged = False
    """Whether `log_side_effects` has said it in this process, of any loader."""

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
        self.stop_stages = recorder.stop_stages
        self.looks = True
        self._look = recorder.look
        self._note = recorder.note
        self._origin_ns = recorder.origin_ns
        self._adapter = adapter
        self._counter = counter
        # Workers go on loading while a batch is copied; a loader without them waits.
        self._loads_meanwhile = bool(info.workers)
        self._max_bytes = settings.max_cache_bytes
        self._spare_bytes = math.inf
        self._activity = None if info.workers == 0 else WorkerActivity()
        self._has_failed = self._has_noted_limit = False
        self._serves_whole = False

    def epoch(self, source: Iterator[Any], opened_ns: int) -> AlternatingEpoch:
        """An epoch of `source`, which took `opened_ns` to make."""
        return AlternatingEpoch(self, source, opened_ns)

    def serve_whole(self) -> None:
        """The epoch that begins now is none of this run: it is served as it comes."""
        self._serves_whole = True

    def takes_whole(self) -> bool:
        """Whether this epoch is to be served so."""
        whole, self._serves_whole = self._serves_whole, False
        return whole

    def log_side_effects(self) -> None:
        """Log, once in a process, what an alternating run changes about training.

        Not a warning: nothing is wrong, and where warnings are errors it would stop training.
        """
        if not Alternation.has_logged:
            Alternation.has_logged = True
            is_reordered = self.depth and not self.progress.whole
            logging.getLogger("loadeval").warning(
                REORDERED if is_reordered else DIFFERENT_RANDOM_NUMBERS
            )

    def look(self, on: bool) -> bool:
        """Read instruments from now on, or none but the clock and what measures a GPU.

        Returns whether that changes what is done.
        """
        changes = self.progress.has_instruments and on != self.looks
        if changes:
            self.looks = on
            self._look(on)
        return changes

    @property
    def instrumented(self) -> bool:
        """Whether what is served now is of a block for the instruments."""
        return self.looks and self.progress.has_instruments

    def note_fixed_limit(self) -> None:
        """Note, once, that memory does not suffice for blocks whose size is given."""
        if not self._has_noted_limit:
            self._has_noted_limit = True
            self._note(LIMITED_RANK)

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

    def prefetch(  # noqa: PLR0915 - in one piece, as batches come back to back
        self, remaining: Remaining, wanted: int, pair: int, epoch: int
    ) -> Prefetched:
        """Hold copies of the next `wanted` batches of what is `remaining`, taken back to back.

        Fewer if the epoch ends before, the loader raises, or memory is full; a batch that cannot
        be copied is the last, and comes itself. Those beyond the loader's own queue are timed.
        """
        source, held = remaining.source, remaining.held
        waits_ns: list[int] = []
        end_ns: int | None = None
        timed = elapsed_ns = samples = total_bytes = 0
        more = 1 + len(held)  # which take memory too
        began_ns = self.clock() - self._origin_ns
        is_over = is_full = False
        while len(waits_ns) < wanted and not is_full:
            asked = self.clock()
            try:
                batch = next(source)
            except StopIteration:
                is_over, end_ns = True, self.clock() - asked
                break
            except Exception as error:
                if is_of_a_signal(error):  # which is meant for now
                    raise
                remaining.errors.append(error)
                break
            kept = batch
            try:
                delivered = self.clock()
                waits_ns.append(delivered - asked)
                if len(waits_ns) == 1 and math.isinf(self._spare_bytes):
                    self._spare_bytes = spare_bytes(leaves(batch))
                kept = self._adapter.keep(batch)
            except Exception as error:  # nearly always for want of memory
                if is_of_a_signal(error):
                    raise
                if not self._has_failed:
                    self._note(NOT_COPIED.format(error=error))
                is_full = self._has_failed = True
            finally:
                held.append(kept)
                del kept
            count, nbytes = self._counter.count(batch)
            del batch
            if len(waits_ns) > self.depth:
                timed += 1
                elapsed_ns += (self.clock() if self._loads_meanwhile else delivered) - asked
                samples = count + samples if min(count, samples) >= 0 else -1
            total_bytes += max(nbytes, 0)
            fits = min(self._max_bytes, self._spare_bytes)
            is_full = is_full or total_bytes + more * max(nbytes, 0) > fits
        known = samples if timed and samples >= 0 else None
        prefetched = len(waits_ns)
        times = elapsed_ns, known, waits_ns, end_ns, began_ns
        fact = Prefetch(pair, epoch, prefetched, timed, *times, self.instrumented)
        self.keep(fact)
        return Prefetched(fact, is_over, is_full)


class Prefetched(NamedTuple):
    """How many batches were prefetched, how long that took, and why prefetching ended.

    `is_over` tells that the loader's epoch is, and `is_full` that the next batch would not have
    fitted into memory.
    """

    fact: Prefetch
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
        source = begun(source)
        self._remaining = Remaining(source)
        self._held = self._remaining.held
        self._source = source
        self._in_order = source
        if shared.depth:  # no method: `self` would keep the workers of a broken-off epoch alive
            self._in_order = restarting(partial(_held_before_errors, source, self._held))
        self._opened_ns = opened_ns
        self._epoch = 0
        self._queue_is_full = queue_is_full
        self._settled_batches = 0
        self.asked_ns: int | None = None
        self._is_over = False
        self._has_device_clock = False

    def spans(self, epoch: int) -> Generator[Span, None, None]:
        """See EpochPlan. The first batches belong to no block.

        They show the epoch start, and what follows it, as without loadeval.
        """
        if self._shared.takes_whole():
            yield from RealEpoch(self._source, self._shared.clock, self._opened_ns).spans(epoch)
            return
        self._epoch = epoch
        progress = self._shared.progress
        self._has_device_clock = timing_events() is not None
        self.asked_ns = self._shared.clock() - self._opened_ns
        progress.begin_epoch(self._shared.head)
        if progress.whole:
            yield from self._whole(progress)
        else:
            yield from self._begin(self._span(self._in_order, self._shared.head, self.asked_ns))
        while not self._is_over:
            block = progress.block
            if block is None:
                if progress.is_over:
                    self._shared.stop_stages()
                self.rest = self.remainder()
                return
            yield from self._blocks(block)
            self._settled_batches = 0
        yield from self._uncounted_held()

    def _blocks(self, block: PlannedBlock) -> Iterator[Span]:
        if self._shared.look(block.instrumented):
            self._settled_batches = 0
        return self._ideal(block) if block.arm == "ideal" else self._real(block)

    def _whole(self, progress: Progress) -> Iterator[Span]:
        """An epoch that is a block; the first one is warm-up."""
        if progress.is_first:
            yield from self._uncounted(self._source, progress.whole + 1, "real")
        elif progress.block is not None:
            try:
                yield from self._blocks(progress.block)
            finally:
                progress.end_block()
        if not self._is_over and progress.block is not None:
            progress.leave_whole()

    def remainder(self) -> Iterator[Any]:
        """See EpochPlan."""
        return self._remaining

    def _begin(self, head: Span) -> Iterator[Span]:
        """The first batches, which are also warm-up of a real block that follows."""
        yield from self._served(head)
        self._shared.progress.note_head(head)
        self._settled_batches = head.served

    def _real(self, block: PlannedBlock) -> Iterator[Span]:
        if self._queue_is_full:
            self._queue_is_full = False
            self._settled_batches = 0
            prefetched = self._prefetch(self._shared.depth, block)
            if prefetched.is_full:  # the next batch may be written over the last of these
                # All ranks have as many batches before those that count.
                self._settled_batches = len(self._held) if self._shared.progress.fixed else 0
                yield from self._uncounted_held()
            yield from self._ended_by(prefetched)
        if not self._is_over:
            warmup = self._warmup(max(block.warmup - self._settled_batches, 0))
            if warmup:
                yield from self._uncounted(self._in_order, warmup, "real")
        if not self._is_over:
            yield from self._counted(block, self._in_order, self._shared.progress.left)

    def _ideal(self, block: PlannedBlock) -> Iterator[Span]:
        shared = self._shared
        warmup = self._warmup(block.warmup)
        wanted = warmup + shared.progress.left
        prefetched = self._prefetch(wanted - len(self._held), block)
        shared.wait_until_idle(prefetched.fact)
        self._queue_is_full = bool(shared.depth)
        count = min(len(self._held), wanted)
        fixed = shared.progress.fixed
        # When memory limits the prefetch, the warm-up must leave something to count.
        warmup = min(warmup, count // 2 if prefetched.is_full and not fixed else count)
        if prefetched.is_full:
            shared.progress.limit(count - warmup)
        batches = drained(self._held)
        if warmup:
            yield from self._uncounted(batches, warmup, "ideal")
        if count > warmup:
            yield from self._counted(block, batches, count - warmup)
        yield from self._ended_by(prefetched)
        if fixed and prefetched.is_full and wanted > count and not self._is_over:
            # The other ranks may have memory for the whole block, and switch arms behind it.
            shared.note_fixed_limit()
            yield from self._uncounted(self._in_order, wanted - count, "real")
            shared.progress.skip(shared.progress.left)

    def _prefetch(self, wanted: int, block: PlannedBlock) -> Prefetched:
        return self._shared.prefetch(self._remaining, wanted, block.pair, self._epoch)

    def _ended_by(self, prefetched: Prefetched) -> Iterator[Span]:
        if self._remaining.errors:
            yield from self._uncounted_held()
            yield from self._uncounted(iter(self._remaining.raise_error, None), 1, "real")
        self._is_over = prefetched.is_over

    def _uncounted_held(self) -> Iterator[Span]:
        return self._uncounted(drained(self._held), len(self._held), "ideal")

    def _uncounted(self, source: Iterator[Any], size: int, arm: Arm) -> Iterator[Span]:
        """Batches between blocks. Their wait begins when the consumer asked for them.

        So what loadeval does before them, and the loader at its epoch's end, counts as no step.
        """
        return self._served(self._span(source, size, self.asked_ns, arm))

    def _span(
        self,
        source: Iterator[Any],
        size: int,
        since_ns: int | None,
        arm: Arm = "real",
        pair: int | None = None,
    ) -> Span:
        is_ours = source is not self._source
        return Span(source, size, arm, pair, since_ns, is_ours, self._shared.instrumented)

    def _served(self, span: Span) -> Iterator[Span]:
        try:
            yield span
        finally:
            self._shared.progress.served += span.served
        if span.served and span.arm == "real":
            self._shared.progress.note_start(span.asked_ns - span.marks[0])
        self.asked_ns = span.asked_ns
        self._is_over = span.fell_short

    def _warmup(self, planned: int) -> int:
        return int(min(planned, self._shared.progress.longest_warmup(self._shared.head)))

    def _counted(self, block: PlannedBlock, source: Iterator[Any], size: int) -> Iterator[Span]:
        shared = self._shared
        shared.mark()
        if not self._has_device_clock:  # a device that was waited for hides none of the first wait
            shared.fence()
        cpu_ns, faults = shared.workers_cpu_ns(), minor_faults()
        began_ns = shared.clock()
        span = self._span(source, size, began_ns, block.arm, block.pair)
        times_ns: list[int] = []  # the end of the last step is not known if it is broken off
        try:
            yield span
            reached_ns = shared.clock()
            shared.fence()
            # Ending an epoch, such as stopping workers, is no part of a step or block.
            over_ns = span.asked_ns if span.fell_short else reached_ns
            self.asked_ns = over_ns + shared.clock() - reached_ns
            times_ns = [self.asked_ns]
            faults_now = minor_faults()
        finally:
            times_ns = [*span.marks[::2], *times_ns]
            shared.progress.advance(span.served, times_ns)
        shared.mark()
        self._is_over = span.fell_short
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
        except Exception as error:
            if not is_of_a_signal(error):
                yield from drained(held)
            of_the_loader(error)
            raise
        yield batch


def drained(batches: deque[Any]) -> Iterator[Any]:
    """The batches in order, each removed before it is served."""
    while batches:
        yield batches.popleft()
