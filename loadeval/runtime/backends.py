"""Several backends under one training step, each measured in rounds."""

from __future__ import annotations

import random
import uuid
import warnings
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import groupby
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from loadeval.errors import LoadevalWarning, UsageError
from loadeval.runlog.environment import describe_environment
from loadeval.runlog.model import UNKNOWN, Header
from loadeval.runlog.writer import RunLog
from loadeval.runtime.adapter import Adapter, FactoryAdapter, IterableAdapter, check_is_loader
from loadeval.runtime.alternate import (
    AlternatingEpoch,
    Alternation,
    Prefetcher,
    Progress,
    WorkerActivity,
    block_for,
    planned_blocks,
)
from loadeval.runtime.batch import is_array, leaves
from loadeval.runtime.counting import Counter
from loadeval.runtime.loop import served
from loadeval.runtime.metrics_thread import NO_PROBES
from loadeval.runtime.recorder import Recorder
from loadeval.runtime.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from loadeval.runlog.model import LoaderInfo, Run
    from loadeval.runtime.alternate import PlannedBlock
    from loadeval.runtime.metrics_thread import Probes
    from loadeval.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class Backend:
    """A loader that `compare_backends` compares, and what makes its batches like the others'.

    `loader` is any loader, or a callable that returns a new one; each epoch calls it. `convert`
    makes of its batch one that the training step takes; the time of that counts as loading,
    since whoever uses this loader has to spend it.

    Raises UsageError when `convert` cannot be called.
    """

    loader: Any
    convert: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.convert is not None and not callable(self.convert):
            raise UsageError(
                f"convert is {self.convert!r}; expected a callable from a batch of this backend "
                "to one that the training step takes"
            )


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What is known of a backend before anything is timed."""

    info: LoaderInfo
    layout: Layout


class Source:
    """Opens the epochs of a backend, one at a time, and stops what it does in the background.

    Raises UsageError for what is no loader, and for an iterator, which has one epoch only; and
    what a callable raises.
    """

    def __init__(self, backend: Backend) -> None:
        self._loader = loader = backend.loader
        self._convert = backend.convert
        self._adapter = adapter_for(loader)
        if type(self._adapter) is IterableAdapter:
            check_is_loader(loader)
            _check_is_reiterable(loader)
        self._epoch: Iterator[Any] | None = None

    @property
    def batches(self) -> Adapter:
        """What counts and keeps its batches, as they come out of `open`."""
        return self._adapter if self._convert is None else IterableAdapter()

    def open(self) -> Iterator[Any]:
        """A new epoch, its batches converted."""
        with _quietly():
            self._epoch = self._adapter.epoch(self._loader)
        return self._epoch if self._convert is None else map(self._convert, self._epoch)

    def close(self) -> None:
        """Stop what the epoch that was opened last does in the background."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            self._adapter.release(self._loader, epoch)

    def fence(self) -> None:
        """Wait until the device has done all that was asked of it."""
        self._adapter.fence()

    def look(self, samples: Callable[[Any], int | None] | None) -> FirstLook:
        """Read the first batch of an epoch. Raises what the loader raises.

        UsageError when there is no batch.
        """
        info = self._adapter.describe(self._loader)
        try:
            for batch in self.open():
                count, _ = Counter(self.batches, samples).count(batch)
                known = None if count == UNKNOWN else count
                layout = layout_of(batch, known, info.length)
                break
            else:
                raise UsageError("the loader gave no batch; expected one that serves epochs")
        finally:
            self.close()
        return FirstLook(replace(info, ready_batches=self._ready_batches()), layout)

    def _ready_batches(self) -> int | None:
        if isinstance(self._adapter, FactoryAdapter):
            return 0  # each one fills its queue in the epoch start of its epoch
        with _quietly():
            return self._adapter.describe(self._loader).ready_batches


def _check_is_reiterable(loader: Any) -> None:
    # One whose class is written in Python may start over when iter() is called.
    is_iterator = hasattr(type(loader), "__next__")
    if is_iterator and not isinstance(getattr(type(loader), "__iter__", None), FunctionType):
        raise UsageError(
            f"a {type(loader).__name__} can be iterated only once, and a backend has to serve "
            "several turns; pass a callable that returns a new one each time"
        )


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what an adapter says of an epoch that was broken off: here each of them is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoadevalWarning)
        yield


class Measured(NamedTuple):
    """What is known of a backend afterwards: no run where it failed before it had a turn."""

    name: str
    run: Run | None
    error: Exception | None


class BackendRunner:
    """Reads the first batch of each backend, and has them take turns.

    `settings` are as for BackendRun, and `probes` makes those of each backend. `unlike` tells in
    what the backends' work differs, a clause for each difference. Raises UsageError for a loader
    that has no batch, or cannot serve several turns.
    """

    def __init__(
        self,
        backends: Mapping[str, Backend],
        settings: Settings,
        probes: Callable[[], Probes] = lambda: NO_PROBES,
    ) -> None:
        self._settings = settings
        self._probes = probes
        self._names = list(backends)
        self._sources: dict[str, Source] = {}
        self._looks: dict[str, FirstLook] = {}
        self._errors: dict[str, Exception] = {}
        for name, backend in backends.items():
            self._look(name, backend)
        self.unlike = differences({name: look.layout for name, look in self._looks.items()})

    def run(self, step: Callable[[Any], object], logs: Mapping[str, Path]) -> list[Measured]:
        """Train with `step` on all backends in turns; those named in `logs` write a run log.

        An error of a loader ends the turns of its backend alone. Raises what `step` raises, and
        RunLogError when a log exists, or cannot be written.
        """
        with ExitStack() as stack:
            turns = {}
            comparison = uuid.uuid4().hex
            for name, look in self._looks.items():
                settings = replace(self._settings, name=name, log_file=logs.get(name))
                turns[name] = BackendRun(
                    self._sources[name], look.info, settings, comparison, self._probes()
                )
                stack.callback(turns[name].close)
            for number in range(self._settings.pairs or 0):
                self._round(turns, step, number)
        self._errors |= {name: one.error for name, one in turns.items() if one.error is not None}
        return [
            Measured(name, turns[name].run() if name in turns else None, self._errors.get(name))
            for name in self._names
        ]

    def _look(self, name: str, backend: Backend) -> None:
        try:
            source = self._sources[name] = Source(backend)
            self._looks[name] = source.look(self._settings.samples)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
        except Exception as error:  # noqa: BLE001 - the other backends go on
            self._errors[name] = error

    def _round(
        self, turns: Mapping[str, BackendRun], step: Callable[[Any], object], number: int
    ) -> None:
        order = list(turns.items())
        random.Random(f"{self._settings.seed}/round {number}").shuffle(order)  # noqa: S311 - no secret
        for name, one in order:
            if one.error is None:
                with closing(one.serve_round(number)) as batches, _whose(name):
                    for batch in batches:
                        step(batch)


@contextmanager
def _whose(name: str) -> Iterator[None]:
    """Add to an error of the step of whose batch it was."""
    try:
        yield
    except Exception as error:
        # Python 3.10 has no notes.
        getattr(error, "add_note", str)(f"The training step was given a batch of backend {name!r}.")
        raise


MOST_FRUITLESS = 3
"""Epochs in a row in which nothing was counted: more would not help."""


class BackendRun:
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
        self._recorder = Recorder(header, log, clock, probes)
        self._recorder.expects_batches = False  # another backend may end the comparison first
        self._alternation = Alternation(
            Progress(iter(())),
            Prefetcher(source.batches, self._counter, clock, info, settings.max_cache_bytes),
            None if info.workers == 0 else WorkerActivity(),
            source.fence,
            clock,
            self._recorder,
        )

    def serve_round(self, number: int) -> Generator[Any, None, None]:
        """The batches of round `number`, each to be trained on before the next is asked for.

        Goes on over as many epochs as it takes. Afterwards the loader is at rest. An error of
        the loader ends it, and is in `error`. Close it where it is left early.
        """
        progress = self._alternation.progress = Progress(self._planned_blocks(number))
        fruitless = 0
        try:
            while progress.block is not None:
                before = progress.block, progress.left
                yield from self._epoch(progress)
                fruitless = fruitless + 1 if before == (progress.block, progress.left) else 0
                _check_something_counts(fruitless, before[0])
        except Exception as error:  # noqa: BLE001 - the other backends go on
            self._failed(error)
        finally:
            self._rest()

    def run(self) -> Run:
        """Everything measured; read from the log where there is one. Ends the recording."""
        self.close()
        return self._recorder.run()

    def close(self) -> None:
        """End the recording. May be called again."""
        if not self._recorder.closed:
            self._recorder.close()

    def _epoch(self, progress: Progress) -> Iterator[Any]:
        clock = self._settings.clock
        began_ns = clock()
        source = self._source.open()
        opened_ns = clock() - began_ns
        plan = AlternatingEpoch(self._alternation, source, opened_ns, self._fills_its_queue_at_rest)
        begin, count = self._recorder.begin_epoch, self._counter.best_for
        for batch in served(plan, source, begin, count, clock, self):
            if progress.block is None:  # all has been counted, and this is of the rest
                return
            yield batch

    def _planned_blocks(self, number: int) -> Iterator[PlannedBlock]:
        settings, rounds = self._settings, self._settings.pairs or 1
        blocks, size = split_into_blocks((settings.batches or 1) / rounds, block_for(self._depth))
        seed = random.Random(f"{settings.seed}/{number}").getrandbits(32)  # noqa: S311 - no secret
        for block in planned_blocks(seed, blocks, self._depth, size):
            yield replace(block, pair=number)

    def _rest(self) -> None:
        try:
            self._source.close()
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            self._recorder.note(in_words(error), "failed backend")


def split_into_blocks(batches: float, smallest: int) -> tuple[int, int]:
    """In how many blocks of which size some `batches` are served, none under `smallest`."""
    blocks = max(1, int(batches // smallest))
    return blocks, max(smallest, round(batches / blocks))


def in_words(error: BaseException) -> str:
    """The kind of an error and its text, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _check_something_counts(fruitless: int, block: PlannedBlock) -> None:
    if fruitless == MOST_FRUITLESS:
        raise UsageError(
            f"nothing could be counted in {MOST_FRUITLESS} epochs, which are over with their "
            f"epoch start and a warm-up of {block.warmup} batches; expected longer epochs"
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


MOST_LEAVES = 6
"""Leaves that are told of one batch."""
SAME = {"float": "float32", "double": "float64"}
"""Names that frameworks have for one type."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A first batch: its samples, and its leaves in words; and how many batches an epoch has.

    None is not known.
    """

    samples: int | None
    leaves: tuple[str, ...]
    length: int | None

    def in_words(self) -> str:
        """The leaves, those that are alike together, and not more than some."""
        alike = [(leaf, len(list(group))) for leaf, group in groupby(self.leaves)]
        told = [leaf if count == 1 else f"{count} x {leaf}" for leaf, count in alike]
        more = len(told) - MOST_LEAVES
        also = f" and {more} more" if more > 0 else ""
        return ", ".join(told[:MOST_LEAVES]) + also if told else "empty"


def layout_of(batch: Any, samples: int | None, length: int | None) -> Layout:
    """The layout of `batch`; `length` is how many batches an epoch has."""
    return Layout(samples, tuple(map(_leaf_in_words, leaves(batch))), length)


def differences(layouts: Mapping[str, Layout]) -> list[str]:
    """In what each backend differs from the first one, a clause each; [] where all are alike.

    What is not known of one of the two is no difference.
    """
    named = list(layouts.items())
    return [told for name, other in named[1:] for told in _between(*named[0], name, other)]


def _between(first: str, one: Layout, name: str, other: Layout) -> Iterator[str]:
    if one.leaves != other.leaves:
        yield f"{name}: batch 0 is {other.in_words()} where {first} has {one.in_words()}"
    if None not in (one.samples, other.samples) and one.samples != other.samples:
        yield f"{name}: batch 0 has {other.samples} samples where {first} has {one.samples}"
    if None not in (one.length, other.length) and one.length != other.length:
        yield f"{name}: an epoch has {other.length:,} batches where {first} has {one.length:,}"


def _leaf_in_words(leaf: Any) -> str:
    try:
        if is_array(leaf):
            return f"{tuple(map(int, leaf.shape))} {_dtype_in_words(leaf)}"
    except Exception:  # noqa: BLE001, S110 - ragged ones have no shape; each kind raises its own error
        pass
    return type(leaf).__name__


def _dtype_in_words(array: Any) -> str:
    # torch.uint8, DALIDataType.UINT8 and NumPy's uint8 are one type.
    dtype = str(array.dtype).rpartition(".")[2].lower()
    return SAME.get(dtype, dtype)
