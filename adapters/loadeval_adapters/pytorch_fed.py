"""DataLoaders like one of the program's, which load the batches whose indices they are given."""

from __future__ import annotations

import warnings
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class DataLoaderFeeding:
    """Feeds DataLoaders like `loader`; see LoaderFeeding.

    `given` are its arguments, and `without_workers` those that it insists on without workers.
    `length` is how many batches an epoch has, None if that is not known.
    """

    def __init__(
        self,
        loader: Any,
        given: Mapping[str, Any],
        without_workers: Mapping[str, Any],
        length: int | None,
    ) -> None:
        self._loader = loader
        self._given = given
        self._without_workers = without_workers
        self._length = length
        self._seed = 0

    def indices(self, *, is_first: bool) -> Iterator[Any]:
        """See LoaderFeeding. Draws the random numbers that the loader's own iterator would draw.

        Those are the seed of the workers, which persistent ones get once, and what the sampler
        draws for the batches that are prefetched.
        """
        loader = self._loader
        indices = iter(loader._index_sampler)  # noqa: SLF001 - torch has no public name
        if is_first or not loader.persistent_workers:
            seed = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            self._seed = int(seed)
            if loader.num_workers:  # torch asks it twice
                indices = iter(loader._index_sampler)  # noqa: SLF001 - torch has no public name
        depth = loader.num_workers * (loader.prefetch_factor or 0)
        return _Ahead(list(islice(indices, depth)), indices)

    def take_over(self, iterator: Any) -> tuple[Iterator[Any], int]:
        """See LoaderFeeding."""
        indices = iterator._sampler_iter  # noqa: SLF001 - there is no other way in
        iterator._sampler_iter = iter(())  # noqa: SLF001 - there is no other way in
        self._seed = iterator._base_seed  # noqa: SLF001 - what its workers are seeded with
        pending = getattr(iterator, "_send_idx", 0) - getattr(iterator, "_rcvd_idx", 0)
        return indices, pending

    def make(self, settings: Mapping[str, Any]) -> FedDataLoader:
        """See LoaderFeeding. Its workers are seeded from the seed of the program's."""
        chosen = {**self._given, **settings}
        chosen["persistent_workers"] = True  # they sleep between two turns
        if not chosen["num_workers"]:
            chosen |= {name: self._without_workers[name] for name in self._without_workers}
        chosen = {name: value for name, value in chosen.items() if name in self._given}
        feed = Feed(self._length, self._loader.batch_size)
        if "batch_sampler" not in chosen and chosen.get("batch_size") is None:
            chosen["sampler"] = feed
        else:
            for name in ("batch_size", "sampler", "drop_last"):
                chosen.pop(name, None)
            chosen["batch_sampler"] = feed
        chosen["generator"] = torch.Generator().manual_seed(self._seed)
        with warnings.catch_warnings():  # they may be settings that torch advises against
            warnings.simplefilter("ignore")
            return FedDataLoader(type(self._loader)(**chosen), feed)


class _Ahead:
    """`first`, and then `rest`."""

    def __init__(self, first: list[Any], rest: Iterator[Any]) -> None:
        self._first, self._rest = deque(first), rest

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._first.popleft() if self._first else next(self._rest)


class Feed:
    """The sampler of a loader that is fed: what was put in, and then nothing until there is more.

    It has the length and the batch size of the program's own sampler.
    """

    def __init__(self, length: int | None, batch_size: int | None) -> None:
        self.waiting: deque[Any] = deque()
        self.batch_size = batch_size
        self._length = length

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self.waiting:
            raise StopIteration
        return self.waiting.popleft()

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("the length of the program's sampler is not known")
        return self._length


class FedDataLoader:
    """See FedLoader."""

    def __init__(self, loader: Any, feed: Feed) -> None:
        self.loader = loader
        self.depth: int = loader.num_workers * (loader.prefetch_factor or 0)
        self.unserved: deque[Any] = deque()
        self._feed = feed
        self._iterator: Any = None

    def open(self) -> None:
        """See FedLoader."""
        if self._iterator is None or not self.loader.num_workers:
            with warnings.catch_warnings():  # the setting may be one that torch advises against
                warnings.simplefilter("ignore")
                self._iterator = iter(self.loader)

    def put(self, indices: Iterable[Any]) -> None:
        """See FedLoader."""
        indices = list(indices)
        self.unserved += indices
        self._feed.waiting += indices
        if self.loader.num_workers:
            iterator = self._iterator
            while self._feed.waiting and iterator._send_idx - iterator._rcvd_idx < self.depth:  # noqa: SLF001 - there is no other way in
                iterator._try_put_index()  # noqa: SLF001 - there is no other way in

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self.unserved:
            raise StopIteration
        batch = next(self._iterator)
        self.unserved.popleft()
        return batch

    def close(self) -> None:
        """See FedLoader."""
        iterator, self._iterator = self._iterator, None
        self.loader._iterator = None  # noqa: SLF001 - where a DataLoader keeps persistent workers
        self._feed.waiting.clear()
        self.unserved.clear()
        shutdown = getattr(iterator, "_shutdown_workers", None)
        if shutdown is not None:
            shutdown()
