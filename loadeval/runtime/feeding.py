"""Loaders that load what they are given, so that several can serve one epoch in turns."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class FedLoader(Protocol):
    """A loader that loads the batches whose indices it is given, in their order, and no others.

    `loader` is what an adapter describes, `depth` how many batches its queue holds, and `unserved`
    has the indices of those that it was given and has not served.
    """

    loader: Any
    depth: int
    unserved: deque[Any]

    def open(self) -> None:
        """Start its workers unless they run. Called before indices are put in."""

    def put(self, indices: Iterable[Any]) -> None:
        """Let it load these too, an entry for each batch."""

    def __iter__(self) -> Iterator[Any]:
        """Itself."""

    def __next__(self) -> Any:
        """The next batch; StopIteration while there is nothing to serve."""

    def close(self) -> None:
        """Stop its workers, and forget what it was given."""


class LoaderFeeding(Protocol):
    """Makes fed loaders like one whose epoch begins, or is under way."""

    def indices(self, *, is_first: bool) -> Iterator[Any]:
        """What its sampler chooses for a new epoch, an entry for each batch.

        It draws the random numbers that the loader would draw. `is_first` tells whether the loader
        has had no epoch before.
        """

    def take_over(self, iterator: Iterator[Any]) -> tuple[Iterator[Any], int]:
        """What the sampler chooses for the rest of the epoch that `iterator` serves.

        And how many batches more `iterator` has to serve, for it has asked its workers for them.
        """

    def make(self, settings: Mapping[str, Any]) -> FedLoader:
        """A loader like it with other settings; none of its workers is started yet."""


class Indices:
    """Reads what a sampler chooses, once; what was read and not served can be put back.

    They end where the sampler raises, which `error` keeps for when all before it is served.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self.error: Exception | None = None
        self._source = source
        self._put_back: deque[Any] = deque()

    def take(self, count: int) -> list[Any]:
        """Those of the next `count` batches; fewer where the epoch ends before."""
        taken = [self._put_back.popleft() for _ in range(min(count, len(self._put_back)))]
        try:
            taken.extend(islice(self._source, count - len(taken)))
        except Exception as error:  # noqa: BLE001 - the program gets it
            self.error = error
        return taken

    def put_back(self, indices: Iterable[Any]) -> None:
        """These come next."""
        self._put_back.extendleft(reversed(list(indices)))

    def are_over(self) -> bool:
        """Whether the epoch has no more batches."""
        self.put_back(self.take(1))
        return not self._put_back
