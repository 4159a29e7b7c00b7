"""One loader that is measured where it is, and the iterators that the program gets of it."""

from __future__ import annotations

import sys
import time
import weakref
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from loadeval.evaluator import LoaderEvaluator
from loadeval.launch.folder import is_dataset
from loadeval.launch.inject.loadeval_inject import failed
from loadeval.launch.iterators import Inner, inner_of, keeps_type, serve_by
from loadeval.runlog.processes import LoaderRecord
from loadeval.runtime.adapter import Begun
from loadeval.runtime.epoch_iterators import MeasuredEpoch
from loadeval.runtime.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loadeval.launch.session import Session
    from loadeval.runlog.model import Mode
    from loadeval.runtime.open_epoch import OpenEpoch

    Iter = Callable[[Any], Iterator[Any]]


class MeasuredLoader:
    """One loader, and others like it that were built in its place, with their run log.

    `kind` tells them from other loaders of the process; `has_gradients` whether gradients were on
    when its first batch was asked for, or before that, when its iterator was.
    """

    def __init__(
        self,
        loader: Any,
        mode: Mode,
        log: Path,
        kind: tuple[Any, ...],
        session: Session,
        options: dict[str, Any],
    ) -> None:
        evaluator = LoaderEvaluator(loader, mode, log_file=log, **options)
        evaluator._closer.detach()  # noqa: SLF001 - the measurement goes on without it, and without the loader
        self.measurement = evaluator._measurement  # noqa: SLF001 - as above
        self.mode, self.log, self.kind = mode, log, kind
        self.has_gradients = session.has_gradients(loader)
        self.optimizer_steps = self.epochs = 0
        self.follows_training = False
        self._session = session
        self._reads: weakref.WeakSet[Read] = weakref.WeakSet()
        self._last: Callable[[], Any] = lambda: None
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
        is_rows = is_dataset(self.measurement.recorder.header.loader.backend)
        return self.follows_training and not self.optimizer_steps and not is_rows

    def reads(self, loader: Any) -> bool:
        """Whether one of those epochs is of `loader` itself."""
        return any(read.loader is loader for read in self._reads)

    def is_of(self, loader: Any) -> bool:
        """Whether `loader` was read last, or what was is gone."""
        last = self._last()
        return last is None or last is loader

    def epoch(self, loader: Any, original: Iter) -> Iterator[Any]:
        """A measured epoch; should measuring fail, one that is not."""
        asked: list[Any] = []
        made: list[Iterator[Any]] = []

        def begun(loader: Any) -> Iterator[Any]:
            asked.append(loader)
            epoch = original(loader)
            made.append(epoch)
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
            # Nobody else tells when the first batch is asked for.
            begin = partial(self._began, weakref.ref(read))
            self.measurement.recorder.begin_epoch = begin  # type: ignore[method-assign]
            epoch = self.measurement.epoch(loader, read, adapter)
        except Exception as error:
            if asked and not made:
                raise  # the loader's own
            failed(error)
            return made[0] if made else original(loader)
        if not made:
            return _replay_of(loader, epoch)
        inner = epoch if isinstance(epoch, Inner) else getattr(epoch, "_source", None)
        if not isinstance(inner, Inner):
            return epoch
        if epoch is not inner:
            serve_by(made[0], epoch)
        return made[0]

    def record(self) -> LoaderRecord:
        """What is known of it."""
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
        """The first batch of an epoch is asked for: it is noted where it belongs."""
        read, was_evaluated = reading(), self.evaluates
        by = self if read is None else self._session.began(self, read)
        alternation = self.measurement.alternation
        # Its arms cannot be noted elsewhere, and an evaluation needs none.
        if alternation is not None and (by is not self or was_evaluated):
            alternation.serve_whole()
        return self._begin(known) if read is None or by is self else by.take_over(read, self)

    def take_over(self, read: Read, other: MeasuredLoader) -> OpenEpoch:
        """Note an epoch that `other` had begun to measure."""
        other.forget(read)
        self._reads.add(read)
        recorder = self.measurement.recorder
        recorder.origin_ns = min(recorder.origin_ns, read.asked_ns)  # this log may be newer
        return self._begin()

    def forget(self, read: Read) -> None:
        """This epoch is noted elsewhere."""
        self._reads.discard(read)

    def drop(self) -> bool:
        """Delete the log, where no epoch but the one that begins was asked for; whether it was."""
        if len(self._reads) > 1:
            return False
        self.measurement.recorder.close()
        self.log.unlink(missing_ok=True)
        return True


class Read:
    """Lives as long as an epoch is read; keeps its loader.

    `had_gradients` tells whether gradients were on when the epoch was asked for, at `asked_ns`.
    """

    def __init__(self, loader: Any, *, had_gradients: bool) -> None:
        self.loader, self.had_gradients = loader, had_gradients
        self.asked_ns = time.perf_counter_ns()


def are_gradients_on() -> bool:
    """Whether what is computed now can be trained; True without torch."""
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.is_grad_enabled())


def _replay_of(loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """An iterator of `batches`, replayed, as long as one of `loader`."""
    return MeasuredEpoch.of([batches], cast("Iterator[Any]", _Replayed(loader)))


class _Replayed:
    """Stands for an iterator that was never made."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)
