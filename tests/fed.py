"""Loaders that are fed by a script: each batch takes as long as their setting says, by a clock."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval.runtime.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from loadeval.testing import FakeClock

MS = 1_000_000


class FedScript:
    """A batch is what it was made of; `fails` may raise for one, before it is served.

    The first batch of a real queue would come late, and its last ones too fast: the first of each
    feed takes ten times as long, and the last `depth` of it no time.
    """

    def __init__(
        self, loader: Any, clock: FakeClock, each_ns: int, fails: Callable[[Any], None]
    ) -> None:
        self.loader = loader
        self.depth = loader.num_workers * (loader.prefetch_factor or 0)
        self.unserved: deque[Any] = deque()
        self.is_open = False
        self.opened = 0
        self._clock, self._each_ns, self._fails = clock, each_ns, fails
        self._is_first = False

    def open(self) -> None:
        self.opened += not self.is_open
        self.is_open = True

    def put(self, indices: Iterable[Any]) -> None:
        assert self.is_open
        self._is_first = not self.unserved
        self.unserved += indices

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self.unserved:
            raise StopIteration
        self._fails(self.unserved[0])
        late = 10 if self._is_first else 1
        self._is_first = False
        is_last = len(self.unserved) <= self.depth
        self._clock.advance(0 if is_last else late * self._each_ns)
        return torch.tensor(self.unserved.popleft())

    def close(self) -> None:
        self.unserved.clear()
        self.is_open = False


class Feeding:
    """Feeds loaders whose batches take 40 ms, divided by their workers.

    `fails` is called with the number of workers and a batch, and may raise. `loader` is the
    program's own, which nobody iterates.
    """

    def __init__(self, clock: FakeClock, batches: int = 600, **options: Any) -> None:
        self.clock = clock
        self.loader: Any = DataLoader(
            TensorDataset(torch.arange(2 * batches)), batch_size=2, num_workers=1, **options
        )
        self.made: list[FedScript] = []
        self.fails: Callable[[int, Any], None] = lambda _workers, _batch: None
        self.cannot_make: int | None = None

    def epoch(self, batches: int) -> Iterator[list[int]]:
        """The indices of so many batches."""
        return iter([[2 * number, 2 * number + 1] for number in range(batches)])

    def indices(self, *, is_first: bool) -> Iterator[Any]:
        assert not is_first
        return self.epoch(len(self.loader))

    def take_over(self, iterator: Iterator[Any]) -> tuple[Iterator[Any], int]:
        return iterator, 0

    def make(self, settings: Mapping[str, Any]) -> FedScript:
        loader = adapter_for(self.loader).reconfigured(self.loader, settings)
        workers = loader.num_workers
        if workers == self.cannot_make:
            raise OSError("no more processes")
        made = FedScript(
            loader,
            self.clock,
            40 * MS // max(workers, 1),
            lambda batch: self.fails(workers, batch),
        )
        self.made.append(made)
        return made
