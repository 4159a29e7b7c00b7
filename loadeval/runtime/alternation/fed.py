"""Settings that take turns in the epochs of a training, each in a loader that is fed."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from loadeval.errors import UsageError
from loadeval.runlog.blocks import SHORTEST_WARMUP, SMALLEST_BLOCK, head_for
from loadeval.runlog.model import FED
from loadeval.runtime.alternation.alternate import AlternatingEpoch, Alternation, drained
from loadeval.runtime.alternation.backends import (
    MOST_EMPTY_EPOCHS,
    NOTHING_COUNTED,
    Backend,
    BackendRun,
    Source,
)
from loadeval.runtime.alternation.schedule import PlannedBlock, Progress
from loadeval.runtime.background.metrics_thread import NO_PROBES
from loadeval.runtime.cuda import timing_events
from loadeval.runtime.serving.loop import served

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from loadeval.runlog.model import Arm
    from loadeval.runtime.background.metrics_thread import Probes
    from loadeval.runtime.feeding import FedLoader, Indices
    from loadeval.runtime.serving.loop import Span
    from loadeval.runtime.settings import EvaluatorSettings
    from loadeval.runtime.whole_epochs import WholeLoader

EPOCH_IS_OVER = object()
"""Comes in the place of a batch where the program's epoch ends; the next one continues."""


class EpochBrokenOff(Exception):  # noqa: N818 - thrown into a turn, not an error
    """The program asks for no more batches of its epoch."""


class FedEpoch(AlternatingEpoch):
    """The part of one of the program's epochs that is a turn: blocks in the sampler's order.

    Nothing is loaded beyond a block, so that each batch is served once, in order, and while
    another setting has its turn the workers sleep. A real block begins with an empty queue and
    ends with nothing to refill it: it counts only what comes between. `stops_workers` tells
    whether the workers end with the program's epoch, which is part of what an epoch takes.
    """

    def __init__(
        self,
        shared: Alternation,
        loader: FedLoader,
        indices: Indices,
        opened_ns: int,
        stops_workers: bool,
    ) -> None:
        super().__init__(shared, loader, opened_ns)
        self._loader = loader
        self._indices = indices
        self._stops_workers = stops_workers
        self._ends = False

    def spans(self, epoch: int) -> Generator[Span, None, None]:
        """See EpochPlan. The first batches of a real block show how the epoch started."""
        self._epoch = epoch
        self._has_device_clock = timing_events() is not None
        self.asked_ns = self._shared.clock() - self._opened_ns
        progress = self._shared.progress
        progress.begin_epoch(self._shared.head)
        while (block := progress.block) is not None and not self._ends:
            yield from self._blocks(block)
        if not self._ends:  # it is the turn of another setting
            self.rest = iter(())
        elif self._stops_workers:
            self._loader.close()

    def _feed(self, wanted: int) -> int:
        """Feed the loader with `wanted` batches; fewer where the epoch ends. Returns how many."""
        indices = self._indices.take(wanted)
        self._loader.put(indices)
        self._ends = self._indices.are_over()
        return len(indices)

    def _real(self, block: PlannedBlock) -> Iterator[Span]:
        progress, depth = self._shared.progress, self._shared.depth
        fed = self._feed(block.warmup + progress.left + depth)
        counted = min(progress.left, fed - block.warmup - depth)
        if counted <= 0:
            yield from self._uncounted(self._source, fed, "real")
            return
        yield from self._uncounted(self._source, block.warmup, "real")
        yield from self._counted(block, self._source, counted)
        if self._loader.unserved:
            yield from self._uncounted(self._source, len(self._loader.unserved), "real")

    def _ideal(self, block: PlannedBlock) -> Iterator[Span]:
        progress = self._shared.progress
        prefetched = self._prefetch(self._feed(block.warmup + progress.left), block)
        count = len(self._held)
        # When memory limits the prefetch, the warm-up must leave something to count.
        warmup = min(block.warmup, count // 2 if prefetched.is_full else count)
        if prefetched.is_full:
            progress.limit(count - warmup)
        batches = drained(self._held)
        if warmup:
            yield from self._uncounted(batches, warmup, "ideal")
        if count > warmup:
            yield from self._counted(block, batches, count - warmup)
        yield from self._ended_by(prefetched)
        if self._loader.unserved:
            yield from self._uncounted(self._source, len(self._loader.unserved), "real")


class FedRun(BackendRun):
    """Records the turns of one setting as one alternating run, a round for each turn.

    `loader` has the setting; its workers persist from turn to turn. `persists` tells whether those
    of the setting persist from epoch to epoch. `settings` are as for BackendRun.
    `error` is what the loader raised; after that it serves no more.
    """

    facts: ClassVar[Mapping[str, Any]] = {FED: True}

    def __init__(
        self,
        loader: FedLoader,
        persists: bool,
        settings: EvaluatorSettings,
        comparison: str,
        probes: Probes = NO_PROBES,
    ) -> None:
        self.loader = loader
        self.persists = persists
        source = Source(Backend(loader.loader))
        info = source.adapter.describe(loader.loader)
        info = replace(info, persistent_workers=persists)
        super().__init__(source, info, settings, comparison, probes)

    def turn(self, number: int, indices: Callable[[], Indices]) -> Generator[Any, None, None]:
        """The batches of turn `number`, and EPOCH_IS_OVER where an epoch of the program ends.

        `indices` returns those of the epoch that is under way. Throw EpochBrokenOff where the
        program leaves it early. If the loader raises, the turn ends, `error` is set, and what was
        not served is put back.
        """
        progress = self._alternation.progress = Progress(self._planned_blocks(number))
        empty_epochs = 0
        try:
            while True:
                before = progress.block, progress.left
                try:
                    if not indices().are_over():
                        yield from self._part(indices())
                except EpochBrokenOff:
                    self.loader.close()
                if progress.block is None:
                    return
                empty_epochs = empty_epochs + 1 if before == (progress.block, progress.left) else 0
                if empty_epochs > MOST_EMPTY_EPOCHS:
                    warmup = progress.block.warmup
                    self._failed(UsageError(NOTHING_COUNTED.format(MOST_EMPTY_EPOCHS, warmup)))
                    return
                yield EPOCH_IS_OVER
        except Exception as error:  # noqa: BLE001 - other settings go on
            self._failed(error)
            indices().put_back(self.loader.unserved)
            self.loader.close()

    def _part(self, indices: Indices) -> Iterator[Any]:
        clock, loader = self._settings.clock, self.loader
        number_callback = self._recorder.begin_stages(loader.loader)
        began_ns = clock()
        loader.open()
        opened_ns = clock() - began_ns
        plan = FedEpoch(self._alternation, loader, indices, opened_ns, not self.persists)
        begin = partial(self._recorder.begin_epoch, number_callback)
        yield from served(plan, loader, begin, self._counter.best_for, clock, self)

    def _planned_blocks(self, number: int) -> Iterator[PlannedBlock]:
        """One block of each arm, the arms in turn first: a steady drift favours both alike.

        The first turn begins with the real one, which shows how an epoch starts. An ideal one has
        SMALLEST_BLOCK batches or more beyond those of a queue: they time the loader alone.
        """
        rounds = self._settings.pairs or 1
        wanted = round((self._settings.batches or 1) / rounds)
        size = max(wanted, SMALLEST_BLOCK, self._depth + SMALLEST_BLOCK - SHORTEST_WARMUP)
        warmup: dict[Arm, int] = {"real": head_for(self._depth), "ideal": SHORTEST_WARMUP}
        arms: list[Arm] = ["ideal", "real"] if number % 2 else ["real", "ideal"]
        for arm in arms:
            yield PlannedBlock(number, arm, warmup[arm], size)


class EpochRun(FedRun):
    """Records whole epochs of one setting, whose loader serves no parts of one.

    The program's epochs are its turns: in each pair one is real, and one is ideal once its first
    batches have shown how it starts. Batches come in the loader's own order.
    """

    loader: WholeLoader

    def turn(self, number: int, indices: Callable[[], Indices]) -> Generator[Any, None, None]:
        """The batches of two epochs, with EPOCH_IS_OVER after each; see FedRun.

        What the loader raises in the midst of an epoch is raised, for the program has to get it.
        """
        for block in self._planned_blocks(number):
            endless = replace(block, counted=sys.maxsize)
            self._alternation.progress = Progress(iter([endless]))
            try:
                yield from self._part(indices())
            except EpochBrokenOff:
                self.loader.close()
            except Exception as error:
                self._failed(error)
                is_for_program = self.loader.failed(error)
                if is_for_program:
                    raise
                indices().put_back(self.loader.unserved)
                self.loader.close()
                return
            yield EPOCH_IS_OVER
            if self.error is not None:
                return

    def _part(self, indices: Indices) -> Iterator[Any]:
        clock, loader = self._settings.clock, self.loader
        number_callback = self._recorder.begin_stages(loader.loader)
        loader.put(indices.take(1))
        began_ns = clock()
        loader.open()
        plan = AlternatingEpoch(self._alternation, loader, clock() - began_ns)
        begin = partial(self._recorder.begin_epoch, number_callback)
        yield from served(plan, loader, begin, self._counter.best_for, clock, self)
        try:
            loader.ended(clock() - began_ns)
        except UsageError as error:
            self._failed(error)
