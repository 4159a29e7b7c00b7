"""Measures several backends with one training step, in rounds."""

from __future__ import annotations

import gc
import logging
import random
import uuid
import warnings
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from loadeval.adapter import Adapter, FactoryAdapter, IterableAdapter, adapter_for, check_is_loader
from loadeval.core.counting import Counter
from loadeval.core.loop import served
from loadeval.core.recorder import Recorder
from loadeval.core.threads import NO_PROBES
from loadeval.data.blocks import block_for
from loadeval.data.columns import UNKNOWN
from loadeval.data.environment import describe_environment
from loadeval.errors import LoadevalWarning, UsageError, in_words
from loadeval.runtime.alternation.alternate import AlternatingEpoch, Alternation
from loadeval.runtime.alternation.schedule import Progress, planned_blocks
from loadeval.runtime.batches.tree import is_array, leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from loadeval.core.threads import Probes
    from loadeval.data.lines import LoaderInfo
    from loadeval.data.run import Run
    from loadeval.runtime.alternation.schedule import PlannedBlock
    from loadeval.settings import Settings


@dataclass(frozen=True, slots=True)
class Backend:
    """A loader for `compare_backends`, and how to convert its batches for the training step.

    `loader` is any loader, or a callable that returns a new one and is called each epoch.
    `convert` runs its batch into one that the training step takes. Its time counts as loading,
    since training with this loader needs it.

    Raises UsageError if `convert` is not callable.
    """

    loader: Any
    convert: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.convert is not None and not callable(self.convert):
            raise UsageError(
                f"convert is {self.convert!r}; expected a callable that runs a batch of this "
                "backend into one for the training step"
            )


class FirstLook(NamedTuple):
    """What is known of a backend before anything is timed."""

    info: LoaderInfo
    layout: Layout


class Source:
    """Opens the epochs of a backend, one at a time, and stops its background work.

    Raises UsageError for an object that is no loader, and for an iterator, which has only one
    epoch; and whatever a callable raises.
    """

    def __init__(self, backend: Backend) -> None:
        self.loader = loader = backend.loader
        self._convert = backend.convert
        self.adapter = adapter_for(loader)
        if type(self.adapter) is IterableAdapter:
            check_is_loader(loader)
            _check_is_reiterable(loader)
        self._epoch: Iterator[Any] | None = None

    @property
    def batch_adapter(self) -> Adapter:
        """The adapter that counts and copies the (converted) batches."""
        return self.adapter if self._convert is None else IterableAdapter()

    def open(self) -> Iterator[Any]:
        """A new epoch, its batches converted."""
        with _quietly():
            self._epoch = self.adapter.epoch(self.loader)
        return self._epoch if self._convert is None else map(self._convert, self._epoch)

    def close(self) -> None:
        """Stop the background work of the last epoch."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            self.adapter.release(self.loader, epoch)

    def look(self, samples: Callable[[Any], int | None] | None) -> FirstLook:
        """Read the first batch of an epoch. Raises what the loader raises.

        UsageError if there is no batch.
        """
        info = self.adapter.describe(self.loader)
        _collect_before_fork(info)
        try:
            for batch in self.open():
                count, _ = Counter(self.batch_adapter, samples).count(batch)
                known = None if count == UNKNOWN else count
                layout = layout_of(batch, known, info.length)
                break
            else:
                raise UsageError("the loader gave no batch; expected a loader with at least one")
        finally:
            self.close()
        ready: int | None = 0  # each new loader fills its queue during its epoch start
        if not isinstance(self.adapter, FactoryAdapter):
            with _quietly():
                ready = self.adapter.describe(self.loader).ready_batches
        return FirstLook(replace(info, ready_batches=ready), layout)


def _collect_before_fork(info: LoaderInfo) -> None:
    """Collect what the backend before has left in cycles.

    Else a forked worker may collect it, and hang: the destructor of a DALI pipeline waits for
    threads that only its own process has.
    """
    if info.start_method == "fork":
        gc.collect()


def _check_is_reiterable(loader: Any) -> None:
    # One whose class is written in Python may start over when iter() is called.
    is_iterator = hasattr(type(loader), "__next__")
    if is_iterator and not isinstance(getattr(type(loader), "__iter__", None), FunctionType):
        raise UsageError(
            f"a {type(loader).__name__} can be iterated only once, and each backend runs in "
            "several rounds; pass a callable that returns a new one"
        )


@contextmanager
def _quietly() -> Iterator[None]:
    """Omit what an adapter, or DALI, warns of an unfinished epoch: here that is normal."""
    root = logging.getLogger()  # where DALI logs it
    root.addFilter(_is_error)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LoadevalWarning)
            yield
    finally:
        root.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


class MeasuredBackend(NamedTuple):
    """A backend's run, and its loader's error; no run if it failed before the first round."""

    name: str
    run: Run | None
    error: Exception | None


class BackendRunner:
    """Reads the first batch of each backend, and then runs all backends in rounds.

    `settings` are as for BackendRun; `probes` makes the probes for a backend. `differences` has a
    clause for each difference between the backends' work. Raises UsageError for a loader that
    has no batch, or cannot be iterated again.
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
        self.differences = differences({name: look.layout for name, look in self._looks.items()})

    def run(self, step: Callable[[Any], object], logs: Mapping[str, Path]) -> list[MeasuredBackend]:
        """Train with `step` on all backends; those named in `logs` write a run log.

        If a loader raises, only its own backend ends. Raises what `step` raises, and
        RunLogError if a log exists or cannot be written.
        """
        with ExitStack() as stack:
            runs = {}
            comparison = uuid.uuid4().hex
            for name, look in self._looks.items():
                settings = replace(self._settings, name=name, log_file=logs.get(name))
                runs[name] = BackendRun(
                    self._sources[name], look.info, settings, comparison, self._probes()
                )
                stack.callback(runs[name].close)
            for number in range(self._settings.pairs or 0):
                self._round(runs, step, number)
        self._errors |= {
            name: backend.error for name, backend in runs.items() if backend.error is not None
        }
        return [
            MeasuredBackend(
                name, runs[name].run() if name in runs else None, self._errors.get(name)
            )
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
        self, runs: Mapping[str, BackendRun], step: Callable[[Any], object], number: int
    ) -> None:
        order = list(runs.items())
        random.Random(f"{self._settings.seed}/round {number}").shuffle(order)  # noqa: S311 - no secret
        for name, backend in order:
            if backend.error is not None:
                continue
            with closing(backend.serve_round(number)) as batches:
                try:
                    for batch in batches:
                        step(batch)
                except Exception as error:
                    note = f"The training step was given a batch of backend {name!r}."
                    getattr(error, "add_note", str)(note)  # Python 3.10 has no notes
                    raise


MOST_EMPTY_EPOCHS = 3
"""After so many epochs in a row without a counted batch, more would not help."""
NOTHING_COUNTED = (
    "nothing could be counted in {} epochs: they end within their first batch and a warm-up of {} "
    "batches; use longer epochs"
)


class BackendRun:
    """Serves a backend's rounds, and records them as one alternating run.

    `settings` are those of an alternating run: `pairs` is the number of rounds, and `batches`
    the number of real batches that count in all of them. A round is one pair, in as many
    blocks as it takes. `comparison` identifies the runs that are compared. `probes` are read
    during its rounds. `error` is what the loader raised; after that it serves no more rounds.

    Raises RunLogError if the settings' log file exists or cannot be written.
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
        self._info = info
        self._settings = settings
        self._depth = info.prefetch_depth or 0
        self._fills_its_queue_at_rest = bool(info.ready_batches and self._depth)
        self._counter = Counter(source.batch_adapter, settings.samples)
        self._recorder = Recorder(
            settings,
            info,
            name=settings.name or "backend",
            facts={
                "comparison": comparison,
                "rounds": settings.pairs,
                "batches": settings.batches,
                "max_cache_bytes": settings.max_cache_bytes,
                "seed": settings.seed,
            },
            environment=describe_environment(getattr(source.adapter, "distributions", ())),
            probes=probes,
            stages=partial(source.adapter.stages, source.loader),
        )
        self._recorder.expects_batches = False  # another backend may end the comparison first
        self._alternation = Alternation(
            Progress(iter(())), source.batch_adapter, self._counter, info, settings, self._recorder
        )
        self._alternation.fence = source.adapter.fence

    def serve_round(self, number: int) -> Generator[Any, None, None]:
        """The batches of round `number`; train on each before requesting the next one.

        Takes as many epochs as it needs, and stops the loader afterwards. If the loader raises,
        the round ends, and `error` is set. Close it if you leave early.
        """
        _collect_before_fork(self._info)
        progress = self._alternation.progress = Progress(self._planned_blocks(number))
        empty_epochs = 0
        try:
            while progress.block is not None:
                before = progress.block, progress.left
                yield from self._epoch(progress)
                empty_epochs = empty_epochs + 1 if before == (progress.block, progress.left) else 0
                if empty_epochs == MOST_EMPTY_EPOCHS:
                    message = NOTHING_COUNTED.format(MOST_EMPTY_EPOCHS, before[0].warmup)
                    self._failed(UsageError(message))
                    return
        except Exception as error:  # noqa: BLE001 - the other backends go on
            self._failed(error)
        finally:
            try:
                self._source.close()
            except Exception as error:  # noqa: BLE001 - the other backends go on
                self._failed(error)

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
        number_callback = self._recorder.begin_stages(self._source.loader)
        began_ns = clock()
        source = self._source.open()
        opened_ns = clock() - began_ns
        plan = AlternatingEpoch(self._alternation, source, opened_ns, self._fills_its_queue_at_rest)
        begin = partial(self._recorder.begin_epoch, number_callback)
        for batch in served(plan, source, begin, self._counter.best_for, clock, self):
            if progress.block is None:  # everything was counted; the rest of the epoch is dropped
                return
            yield batch

    def _planned_blocks(self, number: int) -> Iterator[PlannedBlock]:
        settings, rounds = self._settings, self._settings.pairs or 1
        blocks, size = split_into_blocks((settings.batches or 1) / rounds, block_for(self._depth))
        seed = random.Random(f"{settings.seed}/{number}").getrandbits(32)  # noqa: S311 - no secret
        for block in planned_blocks(seed, blocks, self._depth, size):
            yield replace(block, pair=number)

    def _failed(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            self._recorder.note(in_words(error), "failed backend")


def split_into_blocks(batches: float, smallest: int) -> tuple[int, int]:
    """How many blocks of which size to serve for about `batches`, none smaller than `smallest`."""
    blocks = max(1, int(batches // smallest))
    return blocks, max(smallest, round(batches / blocks))


MOST_LEAVES = 6
"""A message lists no more leaves of a batch."""
SAME = {"float": "float32", "double": "float64"}
"""Frameworks have other names for these types."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The samples and the described leaves of a first batch, and the batches of an epoch.

    None is not known.
    """

    samples: int | None
    leaves: tuple[str, ...]
    length: int | None

    def in_words(self) -> str:
        """A description of the leaves: equal ones together, MOST_LEAVES at most."""
        alike = [(leaf, len(list(group))) for leaf, group in groupby(self.leaves)]
        parts = [leaf if count == 1 else f"{count} x {leaf}" for leaf, count in alike]
        more = len(parts) - MOST_LEAVES
        also = f" and {more} more" if more > 0 else ""
        return ", ".join(parts[:MOST_LEAVES]) + also if parts else "empty"


def layout_of(batch: Any, samples: int | None, length: int | None) -> Layout:
    """The layout of `batch`; `length` is how many batches an epoch has."""
    return Layout(samples, tuple(map(_leaf_in_words, leaves(batch))), length)


def differences(layouts: Mapping[str, Layout]) -> list[str]:
    """How each backend differs from the first one, a clause for each difference.

    A value that is unknown for one of the two is no difference.
    """
    named = list(layouts.items())
    return [clause for name, other in named[1:] for clause in _between(*named[0], name, other)]


def _between(first: str, layout: Layout, name: str, other: Layout) -> Iterator[str]:
    if layout.leaves != other.leaves:
        yield f"{name}: batch 0 is {other.in_words()} where {first} has {layout.in_words()}"
    if None not in (layout.samples, other.samples) and layout.samples != other.samples:
        yield f"{name}: batch 0 has {other.samples} samples where {first} has {layout.samples}"
    if None not in (layout.length, other.length) and layout.length != other.length:
        yield f"{name}: an epoch has {other.length:,} batches where {first} has {layout.length:,}"


def _leaf_in_words(leaf: Any) -> str:
    try:
        if is_array(leaf):
            # torch.uint8, DALIDataType.UINT8 and NumPy's uint8 are one type.
            dtype = str(leaf.dtype).rpartition(".")[2].lower()
            return f"{tuple(map(int, leaf.shape))} {SAME.get(dtype, dtype)}"
    except Exception:  # noqa: BLE001, S110 - ragged ones have no shape; each kind raises its own error
        pass
    return type(leaf).__name__
