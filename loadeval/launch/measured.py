"""One loader that is measured where it is, and the iterators that the program gets from it."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

from loadeval.adapter import Begun, Watch, adapter_for
from loadeval.core.loop import MeasuredEpoch
from loadeval.core.recorder import OpenEpoch
from loadeval.data.folder import LoaderRecord
from loadeval.data.lines import Mode
from loadeval.evaluator import LoaderEvaluator
from loadeval.launch.iterators import Inner, IteratedByTorch, inner_of, keeps_type, serve_by
from loadeval.launch.loadeval_inject import failed
from loadeval.launch.one_loader import plain

Iter = Callable[[Any], Iterator[Any]]


class MeasuredLoader:
    """One loader, and others like it that were built in its place, with their run log.

    `kind` distinguishes them from other loaders of the process; `has_gradients` tells whether
    gradients were on when its first batch was requested or, before that, when its iterator was.
    `place_of` is called when an epoch's first batch is requested, and returns the loader in whose
    log the epoch belongs. `dataset` returns what was last read, as long as it exists.
    """

    def __init__(
        self,
        loader: Any,
        mode: Mode,
        log: Path,
        kind: tuple[Any, ...],
        options: dict[str, Any],
        place_of: Callable[[MeasuredLoader, Read], MeasuredLoader],
        *,
        has_gradients: bool,
    ) -> None:
        evaluator = LoaderEvaluator(loader, mode, log_file=log, **options)
        evaluator._closer.detach()  # noqa: SLF001 - the measurement goes on without it, and without the loader
        self.measurement = evaluator._measurement  # noqa: SLF001 - it goes on without the evaluator
        self.mode, self.log, self.kind = mode, log, kind
        self.has_gradients = has_gradients
        self.is_dataset = getattr(adapter_for(loader), "watch", Watch()).is_dataset
        self.optimizer_steps = self.epochs = 0
        self.follows_training = False
        self._place_of = place_of
        self._reads: weakref.WeakSet[Read] = weakref.WeakSet()
        self._last: Callable[[], Any] = lambda: None
        self.dataset: Callable[[], Any] = lambda: None
        recorder = self.measurement.recorder
        recorder.expects_batches = False  # it was asked for an epoch, which may stay unread
        self._begin = recorder.begin_epoch

    @property
    def is_read(self) -> bool:
        """Whether an epoch has begun, and is neither exhausted nor dropped."""
        return bool(self._reads)

    @property
    def evaluates(self) -> bool:
        """Whether it was read after optimizer steps, and had none itself.

        With Trainer and skorch gradients are on until they have a batch.
        """
        return self.follows_training and not self.optimizer_steps and not self.is_dataset

    def reads(self, loader: Any) -> bool:
        """Whether one of the epochs being read is of `loader` itself."""
        return any(read.loader is loader for read in self._reads)

    def is_of(self, loader: Any) -> bool:
        """Whether `loader` was the last one read, or the last one read no longer exists."""
        last = self._last()
        return last is None or last is loader

    def epoch(self, loader: Any, original: Iter) -> Iterator[Any]:
        """A measured epoch; an unmeasured one if measuring fails."""
        requested: list[Any] = []
        iterators: list[Iterator[Any]] = []

        def begun(loader: Any) -> Iterator[Any]:
            requested.append(loader)
            epoch = original(loader)
            iterators.append(epoch)
            if self.mode != "replay" and keeps_type(loader, epoch):
                return inner_of(epoch)
            return chain(Begun(epoch)) if epoch is loader else epoch

        try:
            adapter = adapter_for(loader)
            adapter.epoch = begun  # type: ignore[method-assign]  # iter() would come back here
            read = Read(loader, had_gradients=are_gradients_on())
            self._reads.add(read)
            with suppress(TypeError):  # it takes no weak reference
                self._last = weakref.ref(loader)
            self.dataset = dataset_reference(loader)
            # Nothing else shows when the first batch is requested.
            begin = partial(self._began, weakref.ref(read))
            self.measurement.recorder.begin_epoch = begin  # type: ignore[method-assign]
            epoch = self.measurement.epoch(loader, read, adapter)
        except Exception as error:
            if requested and not iterators:
                raise  # the loader's own
            failed(error)
            return iterators[0] if iterators else original(loader)
        if not iterators:
            return MeasuredEpoch.of(epoch, cast("Iterator[Any]", _Replayed(loader)))
        inner = epoch if isinstance(epoch, Inner) else getattr(epoch, "_source", None)
        if not isinstance(inner, Inner):
            return epoch
        if epoch is not inner:
            serve_by(iterators[0], epoch)
        return iterators[0]

    def record(self) -> LoaderRecord:
        """What is known about it."""
        info = self.measurement.recorder.header.loader
        return LoaderRecord(
            log=self.log.name,
            role="validation" if self.evaluates else "other",
            mode=self.mode,
            loader=info.backend,
            dataset=info.dataset,
            has_gradients=self.has_gradients if self.epochs else None,
            epochs=self.epochs,
            optimizer_steps=self.optimizer_steps,
        )

    def _began(
        self, reading: weakref.ref[Read], known: Callable[[int], object] | None = None
    ) -> OpenEpoch:
        """Begin an epoch, whose first batch is requested, in the log where it belongs."""
        read, was_evaluated = reading(), self.evaluates
        destination = self if read is None else self._place_of(self, read)
        alternation = self.measurement.alternation
        # Its arms cannot move to another log, and an evaluation needs none.
        if alternation is not None and (destination is not self or was_evaluated):
            alternation.serve_whole()
        return (
            self._begin(known)
            if read is None or destination is self
            else destination.take_over(read, self)
        )

    def take_over(self, read: Read, other: MeasuredLoader) -> OpenEpoch:
        """Record an epoch that `other` had begun to measure."""
        other._reads.discard(read)
        self._reads.add(read)
        recorder = self.measurement.recorder
        recorder.origin_ns = min(recorder.origin_ns, read.asked_ns)  # this log may be newer
        return self._begin()

    def drop(self) -> bool:
        """Delete the log if only the epoch that begins now was requested; whether it was."""
        if len(self._reads) > 1:
            return False
        self.measurement.recorder.close()
        self.log.unlink(missing_ok=True)
        return True


def dataset_of(loader: Any) -> Any:
    """The dataset of a loader of torch's, without what Accelerate wraps it in; else None."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is None or not isinstance(loader, (torch_data.DataLoader, IteratedByTorch)):
        return None
    return plain(loader.dataset)


def dataset_reference(loader: Any) -> Callable[[], Any]:
    """Returns the dataset of `loader` while it exists; of a list, while `loader` does."""
    try:
        return weakref.ref(dataset_of(loader))
    except TypeError:
        pass
    try:
        reference = weakref.ref(loader)
    except TypeError:
        return lambda: None
    return lambda: None if reference() is None else dataset_of(reference())


class Read:
    """Lives as long as an epoch is read; keeps its loader.

    `had_gradients` tells whether gradients were on when the epoch was asked for, at `asked_ns`.
    """

    def __init__(self, loader: Any, *, had_gradients: bool) -> None:
        self.loader, self.had_gradients = loader, had_gradients
        self.asked_ns = time.perf_counter_ns()


def are_gradients_on() -> bool:
    """Whether torch computes gradients now; True without torch."""
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.is_grad_enabled())


class _Replayed:
    """Stands for an iterator that was never made, and has the length of its loader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)
