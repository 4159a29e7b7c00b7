"""The turns of one backend among several: each a part of one alternating run."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from loadeval.errors import UsageError
from loadeval.runlog.environment import describe_environment
from loadeval.runlog.model import Header
from loadeval.runlog.reader import RunLog
from loadeval.runtime.alternation import AlternatingEpoch, Alternation
from loadeval.runtime.counting import Counter
from loadeval.runtime.progress import Progress
from loadeval.runtime.pull import Puller
from loadeval.runtime.quiet import Background
from loadeval.runtime.recording import Recording
from loadeval.runtime.sampler import NO_PROBES
from loadeval.runtime.schedule import block_for, segments
from loadeval.runtime.timing import served

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from loadeval.runlog.model import LoaderInfo, Run
    from loadeval.runtime.backend import Source
    from loadeval.runtime.sampler import Probes
    from loadeval.runtime.schedule import Segment
    from loadeval.runtime.settings import Settings

FAILURE = "the backend failed: "
"""What the note of a failure begins with."""
MOST_FRUITLESS = 3
"""Epochs in a row in which nothing was counted: more would not help."""


class Turns:
    """Serves a backend's turns, and records all of them as one alternating run.

    `settings` are those of an alternating run, whose `pairs` are the rounds, and `batches` the
    real batches that count in all of them. What counts in a round is one pair, in as many
    blocks as it takes. `comparison` is what the runs of one comparison have in common. `probes`
    are read in the turns. `error` is what the loader raised, after which there are no more turns.

    Raises RunLogError when the settings' log file exists, or cannot be written.
    """

    def __init__(
        self,
        source: Source,
        info: LoaderInfo,
        settings: Settings,
        comparison: str,
        probes: Probes = NO_PROBES,
    ) -> None:
        self.error: Exception | None = None
        self._source = source
        self._settings = settings
        self._depth = info.prefetch_depth or 0
        self._fills_its_queue_at_rest = bool(info.ready_batches and self._depth)
        self._counter = Counter(source.batches, settings.samples)
        header = _header(info, settings, comparison)
        path, clock = settings.log_file, settings.clock
        log = None if path is None else RunLog(path, header, overwrite=settings.overwrite)
        self._recording = Recording(header, log, clock, probes)
        self._recording.expects_batches = False  # another backend may end the comparison first
        self._alternation = Alternation(
            Progress(iter(())),
            Puller(source.batches, self._counter, clock, info, settings.max_cache_bytes),
            None if info.workers == 0 else Background(),
            source.fence,
            clock,
            self._recording,
        )

    def turn(self, number: int) -> Generator[Any, None, None]:
        """The batches of turn `number`, each to be trained on before the next is asked for.

        Goes on over as many epochs as it takes. Afterwards the loader is at rest. An error of
        the loader ends it, and is in `error`. Close it where it is left early.
        """
        progress = self._alternation.progress = Progress(self._segments(number))
        fruitless = 0
        try:
            while progress.segment is not None:
                before = progress.segment, progress.left
                yield from self._epoch(progress)
                fruitless = fruitless + 1 if before == (progress.segment, progress.left) else 0
                _check_something_counts(fruitless, before[0])
        except Exception as error:  # noqa: BLE001 - the other backends go on
            self._failed(error)
        finally:
            self._rest()

    def run(self) -> Run:
        """Everything measured; read from the log where there is one. Ends the recording."""
        self.close()
        return self._recording.run()

    def close(self) -> None:
        """End the recording. May be called again."""
        if not self._recording.closed:
            self._recording.close()

    def _epoch(self, progress: Progress) -> Iterator[Any]:
        clock = self._settings.clock
        began_ns = clock()
        source = self._source.open()
        opened_ns = clock() - began_ns
        plan = AlternatingEpoch(self._alternation, source, opened_ns, self._fills_its_queue_at_rest)
        begin, count = self._recording.begin_epoch, self._counter.best_for
        for batch in served(plan, source, begin, count, clock, self):
            if progress.segment is None:  # all has been counted, and this is of the rest
                return
            yield batch

    def _segments(self, number: int) -> Iterator[Segment]:
        settings, rounds = self._settings, self._settings.pairs or 1
        blocks, size = portions((settings.batches or 1) / rounds, block_for(self._depth))
        seed = random.Random(f"{settings.seed}/{number}").getrandbits(32)  # noqa: S311 - no secret
        for segment in segments(seed, blocks, self._depth, size):
            yield replace(segment, pair=number)

    def _rest(self) -> None:
        try:
            self._source.close()
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            self._recording.note(FAILURE + in_words(error))


def portions(batches: float, smallest: int) -> tuple[int, int]:
    """In how many blocks of which size some `batches` are served, none under `smallest`."""
    blocks = max(1, int(batches // smallest))
    return blocks, max(smallest, round(batches / blocks))


def in_words(error: BaseException) -> str:
    """The kind of an error and its text, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _check_something_counts(fruitless: int, segment: Segment) -> None:
    if fruitless == MOST_FRUITLESS:
        raise UsageError(
            f"nothing could be counted in {MOST_FRUITLESS} epochs, which are over with their "
            f"start-up and a wash-out of {segment.washout} batches; expected longer epochs"
        )


def _header(info: LoaderInfo, settings: Settings, comparison: str) -> Header:
    return Header(
        run_id=uuid.uuid4().hex,
        name=settings.name or "backend",
        mode=settings.mode,
        created=datetime.now(timezone.utc).isoformat(),
        unit=settings.unit,
        warmup=settings.warmup_for(info.prefetch_depth),
        loader=info,
        settings={
            "comparison": comparison,
            "rounds": settings.pairs,
            "batches": settings.batches,
            "max_cache_bytes": settings.max_cache_bytes,
            "seed": settings.seed,
        },
        environment=describe_environment(),
    )
