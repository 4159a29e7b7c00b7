"""Both arms in one run: blocks of real loading, and blocks of batches that were taken ahead."""

from __future__ import annotations

import logging
import math
import os
import resource
import time
from collections import deque
from collections.abc import Generator, Iterator
from itertools import repeat
from typing import Any

import psutil

from loadeval.adapter import Adapter, begun
from loadeval.core.batch import leaves
from loadeval.core.counting import Counter
from loadeval.core.cuda import spare_bytes, timing_events
from loadeval.core.loop import EpochPlan, RealEpoch
from loadeval.core.recorder import Recorder, Span
from loadeval.core.schedule import PlannedBlock, Schedule
from loadeval.data.lines import Arm, LoaderInfo, Prefetch, Window
from loadeval.errors import is_of_a_signal, of_the_loader
from loadeval.probes.processes import Family
from loadeval.settings import Settings

LOADS_AHEAD = (
    "loadeval: alternating changes the order of batches or random draws, so losses may differ; "
    "mode='log' does not"
)
LONGEST_IDLE_WAIT_S = 5.0
"""An ideal block waits no longer for the loader's background work to end."""
NAP_S = 0.03
"""It is three ticks of the clock that counts CPU time."""
IDLE_SHARE = 0.1
"""A process that uses no more than this share of one CPU is idle."""


class Alternation:
    """What all epochs of an alternating run share. `adapter` copies the batches."""

    has_logged = False
    """Whether `log_side_effects` has said it in this process, of any loader."""

    def __init__(
        self,
        schedule: Schedule,
        adapter: Adapter,
        counter: Counter,
        info: LoaderInfo,
        settings: Settings,
        recorder: Recorder,
    ) -> None:
        self.schedule = schedule
        self.adapter = adapter
        self.counter = counter
        self.recorder = recorder
        self.clock = settings.clock
        self.max_bytes = settings.max_cache_bytes
        self.spare_bytes = math.inf
        self.depth = info.prefetch_depth or 0
        # Between two rounds a loader may have filled its queue.
        self.begins_full = bool(schedule.counted and info.ready_batches and self.depth)
        # Workers go on loading while a batch is copied; a loader without them waits.
        self.loads_meanwhile = bool(info.workers)
        self.activity = None if info.workers == 0 else WorkerActivity()
        self.instrumented = schedule.has_instruments
        """What is served now is of a block for the instruments, or before the first block."""
        self.skips_next = False
        """The epoch that begins next is none of this run: it is served as it comes."""

    def epoch(self, source: Iterator[Any], opened_ns: int) -> EpochPlan:
        """An epoch of `source`, which took `opened_ns` to make."""
        if self.skips_next:
            self.skips_next = False
            return RealEpoch(source, self.clock, opened_ns)
        return AlternatingEpoch(self, source, opened_ns)

    def log_side_effects(self) -> None:
        """Log, once in a process, what an alternating run changes about training.

        Not a warning: nothing is wrong, and where warnings are errors it would stop training.
        """
        if not (Alternation.has_logged or self.schedule.counted):
            Alternation.has_logged = True
            logging.getLogger("loadeval").warning(LOADS_AHEAD)

    def look(self, on: bool) -> bool:
        """Read instruments from now on, or none but the clock and what measures a GPU.

        Returns whether that changes what is done.
        """
        changes = self.schedule.has_instruments and on != self.instrumented
        if changes:
            self.instrumented = on
            self.recorder.look(on)
        return changes


class Remaining:
    """What is left of an epoch of which batches were taken ahead; several threads may read it.

    First the batches that are `held`, then the exception that the loader raised after them (of
    `errors` there is one at most), then what the loader's iterator, `source`, still gives.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self.source = source
        self.held: deque[Any] = deque()
        self.errors: deque[Exception] = deque()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self.held.popleft()
        except IndexError:
            pass
        if self.errors:
            error = self.errors.popleft()
            of_the_loader(error)
            raise error
        return next(self.source)

    def next_of_loader(self) -> Any:
        """The loader's next batch; where it raises, first those that are held."""
        if not self.errors:
            try:
                return next(self.source)
            except StopIteration:
                raise
            except Exception as error:
                if is_of_a_signal(error):
                    of_the_loader(error)
                    raise
                self.errors.append(error)
        return next(self)


class AlternatingEpoch(EpochPlan):
    """One epoch of an alternating run, see EpochPlan: every batch is served once.

    An ideal block leaves the loader's queue full, and a full queue hides a slow loader for many
    batches. So a real block first empties the queue, and holds these batches for the next ideal
    block: they come up to two real blocks later, and others a few places earlier. If the loader
    raises, they are served before the exception.
    """

    def __init__(self, shared: Alternation, source: Iterator[Any], opened_ns: int) -> None:
        self._shared = shared
        self._remaining = Remaining(begun(source))
        self._held = self._remaining.held
        self._in_order = map(Remaining.next_of_loader, repeat(self._remaining))
        self._opened_ns = opened_ns
        self._queue_is_full = shared.begins_full
        self._settled_batches = 0  # real ones that were served since the last switch
        self._epoch = 0
        self._is_over = False  # the loader's own epoch
        self._memory_is_full = False  # which ended the last prefetch
        self._has_device_clock = False

    def remainder(self) -> Iterator[Any]:
        """See EpochPlan."""
        return self._remaining

    def spans(self, epoch: int) -> Generator[Span, None, None]:
        """See EpochPlan. The first batches belong to no block.

        They show the epoch start, and what follows it, as without loadeval.
        """
        shared, schedule = self._shared, self._shared.schedule
        self._epoch = epoch
        self._has_device_clock = timing_events() is not None
        self.asked_ns = shared.clock() - self._opened_ns
        schedule.begin_epoch()
        if not schedule.whole:
            head = self._span(self._in_order, schedule.head)
            yield from self._uncounted(head)
            schedule.note_head(head)
            self._settled_batches = head.served  # they are also warm-up of a real block
        elif schedule.is_warmup_epoch:
            yield from self._uncounted(self._span(self._in_order, schedule.whole + 1))
        try:
            while not self._is_over and (block := schedule.block) is not None:
                if shared.look(block.instrumented):
                    self._settled_batches = 0
                yield from self._ideal(block) if block.arm == "ideal" else self._real(block)
                self._settled_batches = 0
        finally:
            schedule.end_epoch()
        if self._is_over:
            yield from self._held_ones()
            return
        if schedule.is_over and not schedule.counted:
            shared.recorder.stop_stages()
        self.rest = self.remainder()

    def _real(self, block: PlannedBlock) -> Iterator[Span]:
        schedule = self._shared.schedule
        if self._queue_is_full:
            self._queue_is_full = False
            self._settled_batches = 0
            self._prefetch(self._shared.depth, block)
            if self._memory_is_full:  # the next batch may be written over the last of these
                # All ranks have as many batches before those that count.
                self._settled_batches = len(self._held) if schedule.fixed else 0
                yield from self._held_ones()
            yield from self._error_after_prefetch()
        warmup = schedule.shortened(max(block.warmup - self._settled_batches, 0))
        if warmup and not self._is_over:
            yield from self._uncounted(self._span(self._in_order, warmup))
        if not self._is_over:
            yield from self._counted(block, self._in_order, schedule.left)

    def _ideal(self, block: PlannedBlock) -> Iterator[Span]:
        shared, schedule = self._shared, self._shared.schedule
        warmup = schedule.shortened(block.warmup)
        wanted = warmup + schedule.left
        prefetch = self._prefetch(wanted - len(self._held), block)
        if shared.activity is not None:  # until the loader has refilled its queue
            each_s = prefetch.elapsed_ns / max(prefetch.timed, 1) / 1e9
            limit_s = 0.2 + 2 * prefetch.batches * each_s
            shared.activity.wait_until_idle(min(limit_s, LONGEST_IDLE_WAIT_S))
        self._queue_is_full = bool(shared.depth)
        count = min(len(self._held), wanted)
        if self._memory_is_full:
            # The warm-up must leave something to count.
            warmup = min(warmup, count if schedule.fixed else count // 2)
            schedule.limit(count - warmup)
        warmup = min(warmup, count)
        if warmup:
            yield from self._uncounted(self._span(self._remaining, warmup, "ideal"))
        if count > warmup:
            yield from self._counted(block, self._remaining, count - warmup)
        yield from self._error_after_prefetch()
        if schedule.fixed and self._memory_is_full and wanted > count and not self._is_over:
            # The other ranks may have memory for the whole block, and switch arms behind it.
            yield from self._uncounted(self._span(self._in_order, wanted - count))
            schedule.end_block()

    def _held_ones(self) -> Iterator[Span]:
        return self._uncounted(self._span(self._remaining, len(self._held), "ideal"))

    def _error_after_prefetch(self) -> Iterator[Span]:
        if self._remaining.errors:
            yield from self._held_ones()
            yield from self._uncounted(self._span(self._in_order, 1))

    def _span(
        self, source: Iterator[Any], size: int, arm: Arm = "real", pair: int | None = None
    ) -> Span:
        """Batches whose wait begins when the consumer asked for them.

        So what loadeval does before them, and the loader at its epoch's end, counts as no step.
        """
        return Span(
            source,
            size,
            arm,
            pair,
            self.asked_ns,
            is_ours=True,
            instrumented=self._shared.instrumented,
        )

    def _uncounted(self, span: Span) -> Iterator[Span]:
        try:
            yield span
        finally:
            self._shared.schedule.served += span.served
        self.asked_ns = span.asked_ns
        self._is_over |= span.fell_short

    def _counted(self, block: PlannedBlock, source: Iterator[Any], size: int) -> Iterator[Span]:
        shared = self._shared
        shared.recorder.mark()
        if not self._has_device_clock:  # a device that was waited for hides none of the first wait
            shared.adapter.fence()
        cpu_ns, faults = self._workers_cpu_ns(), _minor_faults()
        self.asked_ns = began_ns = shared.clock()
        span = self._span(source, size, block.arm, block.pair)
        times_ns: list[int] = []  # the end of the last step is not known if it is broken off
        try:
            yield span
            reached_ns = shared.clock()
            shared.adapter.fence()
            # Ending an epoch, such as stopping workers, is no part of a step or block.
            over_ns = span.asked_ns if span.fell_short else reached_ns
            self.asked_ns = over_ns + shared.clock() - reached_ns
            times_ns = [self.asked_ns]
            new_faults = _minor_faults() - faults
        finally:
            shared.schedule.advance(span.served, [*span.marks[::2], *times_ns])
        shared.recorder.mark()
        self._is_over |= span.fell_short
        now_ns = self._workers_cpu_ns()
        new_cpu_ns = None if cpu_ns is None or now_ns is None else max(now_ns - cpu_ns, 0)
        elapsed_ns = self.asked_ns - began_ns
        shared.recorder.keep(
            Window(block.pair, self._epoch, block.arm, elapsed_ns, new_cpu_ns, new_faults)
        )

    def _workers_cpu_ns(self) -> int | None:
        activity = self._shared.activity
        return None if activity is None else activity.workers_cpu_ns()

    def _prefetch(self, wanted: int, block: PlannedBlock) -> Prefetch:
        """Hold copies of the loader's next `wanted` batches, taken back to back.

        Fewer if the epoch ends before, the loader raises, or memory is full; a batch that cannot
        be copied is the last one, and held itself. Those beyond the loader's own queue are timed.
        """
        shared, held, clock = self._shared, self._held, self._shared.clock
        waits_ns: list[int] = []
        end_ns: int | None = None
        timed = elapsed_ns = samples = total_bytes = 0
        more = 1 + len(held)  # which take memory too
        began_ns = clock() - shared.recorder.origin_ns
        self._memory_is_full = False
        while len(waits_ns) < wanted and not self._memory_is_full:
            asked_ns = clock()
            try:
                batch = next(self._remaining.source)
            except StopIteration:
                end_ns = clock() - asked_ns
                self._is_over = True
                break
            except Exception as error:
                if is_of_a_signal(error):  # which is meant for now
                    raise
                self._remaining.errors.append(error)
                break
            kept = batch
            try:
                delivered_ns = clock()
                waits_ns.append(delivered_ns - asked_ns)
                if len(waits_ns) == 1 and math.isinf(shared.spare_bytes):
                    shared.spare_bytes = spare_bytes(leaves(batch))
                kept = shared.adapter.keep(batch)
            except Exception as error:  # nearly always for want of memory
                if is_of_a_signal(error):
                    raise
                self._memory_is_full = True
            finally:
                held.append(kept)
                del kept
            count, nbytes = shared.counter.count(batch)
            del batch
            if len(waits_ns) > shared.depth:
                timed += 1
                elapsed_ns += (clock() if shared.loads_meanwhile else delivered_ns) - asked_ns
                samples = count + samples if min(count, samples) >= 0 else -1
            total_bytes += max(nbytes, 0)
            if total_bytes + more * max(nbytes, 0) > min(shared.max_bytes, shared.spare_bytes):
                self._memory_is_full = True
        prefetch = Prefetch(
            block.pair,
            self._epoch,
            len(waits_ns),
            timed,
            elapsed_ns,
            samples if timed and samples >= 0 else None,
            waits_ns,
            end_ns,
            began_ns,
            shared.instrumented,
        )
        shared.recorder.keep(prefetch)
        return prefetch


class WorkerActivity:
    """CPU use of this process's workers and background threads."""

    def __init__(self) -> None:
        self._family = Family(os.getpid())

    def workers_cpu_ns(self) -> int | None:
        """CPU time of all living child processes so far; None if it cannot be read."""
        try:
            self._family.look()
        except (psutil.Error, OSError, IndexError):  # such as too many open files; /proc is hidden
            return None
        return round(sum(usage.cpu_s for usage in self._family.usages().values()) * 1e9)

    def wait_until_idle(self, limit_s: float) -> None:
        """Sleep until the background work is done, or about as long as `limit_s`."""
        busy_s = self._busy_s()
        for _ in range(math.ceil(limit_s / NAP_S)):
            time.sleep(NAP_S)
            before_s, busy_s = busy_s, self._busy_s()
            if busy_s - before_s <= IDLE_SHARE * NAP_S:
                return

    def _busy_s(self) -> float:
        # This thread spends its time on reading these numbers.
        others_s = time.process_time() - time.thread_time()
        return others_s + (self.workers_cpu_ns() or 0) / 1e9


def _minor_faults() -> int:
    """Page faults of this process so far that needed no disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
