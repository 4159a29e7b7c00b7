"""One loader that is measured where it is, and the iterators that the program gets of it."""

from __future__ import annotations

import weakref
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from loadeval.evaluator import LoaderEvaluator
from loadeval.launch.inject.sitecustomize import failed
from loadeval.launch.iterators import Inner, keeps_type, serve_by
from loadeval.runlog.processes import LoaderRecord
from loadeval.runtime.adapter import Begun
from loadeval.runtime.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loadeval.launch.session import Session
    from loadeval.runlog.model import Mode
    from loadeval.runtime.recorder import OpenEpoch

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
        self._session = session
        self._reads: weakref.WeakSet[Read] = weakref.WeakSet()
        recorder = self.measurement.recorder
        recorder.expects_batches = False  # it was asked for an epoch, which may stay unread
        self._begin = recorder.begin_epoch

    @property
    def is_read(self) -> bool:
        """Whether an epoch has begun, and is neither exhausted nor dropped."""
        return bool(self._reads)

    def reads(self, loader: Any) -> bool:
        """Whether one of those epochs is of `loader` itself."""
        return any(read.loader is loader for read in self._reads)

    def epoch(self, loader: Any, original: Iter) -> Iterator[Any]:
        """A measured epoch; should measuring fail, one that is not."""
        asked: list[Any] = []
        made: list[Iterator[Any]] = []

        def begun(loader: Any) -> Iterator[Any]:
            asked.append(loader)
            epoch = original(loader)
            made.append(epoch)
            if self.mode != "replay" and keeps_type(loader, epoch):
                return Inner(epoch)
            return chain(Begun(epoch)) if epoch is loader else epoch

        try:
            adapter = adapter_for(loader)
            adapter.epoch = begun  # type: ignore[method-assign]  # iter() would come back here
            read = Read(loader)
            self._reads.add(read)
            # Nobody else tells when the first batch is asked for.
            begin = partial(self._began, weakref.ref(read))
            self.measurement.recorder.begin_epoch = begin  # type: ignore[method-assign]
            epoch = self.measurement.epoch(loader, read, adapter)
        except Exception as error:
            if asked and not made:
                raise  # the loader's own
            failed(error)
            return made[0] if made else original(loader)
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
            role="other",
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
        read = reading()
        by = self
        if read is not None:
            by = self._session.began(self, read.loader)
        if by is not self and read is not None:
            self._reads.discard(read)
            by._reads.add(read)
            return by._begin()
        return self._begin(known)


class Read:
    """Lives as long as an epoch is read; keeps its loader."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
