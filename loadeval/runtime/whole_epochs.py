"""Loaders that are given whole epochs, where what they serve depends on their workers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from loadeval.errors import UsageError
from loadeval.runtime.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LONGEST_EPOCH_NS = 10_000_000_000
"""Settings take turns by epochs that are no longer: a search takes dozens of them."""
RANDOM_LENGTH = 0.1
"""The share by which epochs may differ in their batches, as where a dataset leaves out some."""
TOO_LONG = (
    "settings could only take turns by whole epochs, since the dataset is iterable-style: which "
    "samples it yields depends on its workers. An epoch takes {epoch_s:.0f} s; expected at most "
    "{longest_s:.0f} s"
)
NOT_DIVIDED = (
    "an epoch has {batches} batches, and one with the present settings {expected}: the dataset "
    "does not divide its samples among its workers"
)


class StreamEpoch:
    """An epoch to be served. `error` is what it has raised, and the program has not got yet."""

    def __init__(self) -> None:
        self.iterator: Iterator[Any] | None = None
        self.error: Exception | None = None

    def next(self) -> Any:
        """The next batch, once it has begun."""
        assert self.iterator is not None  # noqa: S101 - it has begun
        error, self.error = self.error, None
        if error is not None:
            raise error
        return next(self.iterator)


class WholeEpochs:
    """Makes loaders like `loader` that serve whole epochs: a LoaderFeeding of Epochs.

    Each epoch is what the program would get with the setting.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._workers = adapter_for(loader).describe(loader).workers or 0
        self._expected: int | None = None

    def indices(self, *, is_first: bool) -> Iterator[Any]:  # noqa: ARG002 - see LoaderFeeding
        """One epoch."""
        return iter([StreamEpoch()])

    def take_over(self, iterator: Iterator[Any]) -> tuple[Iterator[Any], int]:
        """Raises UsageError: an epoch that has begun is served to its end."""
        raise UsageError(f"the rest of {iterator} cannot be served with other settings")

    def make(self, settings: Mapping[str, Any]) -> WholeLoader:
        """See LoaderFeeding."""
        return WholeLoader(adapter_for(self._loader).reconfigured(self._loader, settings), self)

    def check(self, batches: int, took_ns: int, workers: int) -> None:
        """Check an epoch of so many batches, from so many workers; the first one is the present.

        Raises UsageError if that is too long, or if another has not about as many batches.
        """
        if self._expected is None:
            self._expected = batches
            if took_ns > LONGEST_EPOCH_NS:
                raise UsageError(
                    TOO_LONG.format(epoch_s=took_ns / 1e9, longest_s=LONGEST_EPOCH_NS / 1e9)
                )
        # Each worker may have a last batch that is not full, or leave it out.
        most_apart = max(workers, self._workers) + RANDOM_LENGTH * self._expected
        if abs(batches - self._expected) > most_apart:
            raise UsageError(NOT_DIVIDED.format(batches=batches, expected=self._expected))


class WholeLoader:
    """A FedLoader whose entries are epochs. `served` counts the batches of the one under way."""

    depth = 1

    def __init__(self, loader: Any, feeding: WholeEpochs) -> None:
        self.loader = loader
        self.served = 0
        self._feeding = feeding
        self.unserved: deque[StreamEpoch] = deque()
        self._adapter = adapter_for(loader)

    def open(self) -> None:
        """Begin the epoch that it was given, if there is one."""
        for epoch in self.unserved:
            if epoch.iterator is None:
                epoch.iterator = self._adapter.epoch(self.loader)

    def put(self, epochs: Iterable[StreamEpoch]) -> None:
        """Let it serve these; it has only one at a time."""
        self.unserved.extend(epochs)
        self.served = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next batch. After an error the rest of the epoch is another entry."""
        self.open()
        epoch = self.unserved[0]
        try:
            batch = epoch.next()
        except StopIteration:
            raise
        except Exception:
            self.unserved.appendleft(epoch)
            raise
        self.served += 1
        return batch

    def ended(self, took_ns: int) -> None:
        """The epoch is over. Raises UsageError if it is not as it has to be; see WholeEpochs."""
        self.unserved.clear()
        workers = self._adapter.describe(self.loader).workers or 0
        self._feeding.check(self.served, took_ns, workers)

    def failed(self, error: Exception) -> bool:
        """It has raised `error`. Whether that is for the program, which has had batches before it.

        What is left of the epoch is an entry then; else the epoch is one that has not begun.
        """
        epoch = self.unserved[-1]
        is_for_program = self.served > 0
        if is_for_program:
            epoch.error = error
        else:
            self.close()
            epoch = StreamEpoch()
        self.unserved = deque([epoch])
        return is_for_program

    def close(self) -> None:
        """Stop its workers, unless others go on with its epoch."""
        while self.unserved:
            epoch = self.unserved.popleft()
            if epoch.iterator is not None and epoch.error is None:
                self._adapter.release(self.loader, epoch.iterator)
