"""Helpers to test loaders, adapters and code around a LoaderEvaluator; needs no pytest."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from multiprocessing import active_children
from typing import Any

import numpy as np

from loadeval.adapter import Adapter, adapter_for
from loadeval.core.batch import is_array, leaves
from loadeval.evaluator import LoaderEvaluator


class FakeClock:
    """A clock in nanoseconds that moves only when told: exact timing tests, without sleeping."""

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        """The time, in nanoseconds."""
        return self.now_ns

    def advance(self, ns: int) -> None:
        """Move the clock forward by `ns` nanoseconds."""
        self.now_ns += ns


class ScriptedLoader:
    """A loader whose batches take exactly as long to load as you say, in every epoch.

    `waits_ns` has one wait for each batch, in nanoseconds, by which requesting it moves the
    clock. A batch that is an exception is raised. `asked` counts the requested batches of all
    epochs.

    >>> clock = FakeClock()
    >>> loader = ScriptedLoader(["one", "other"], [30, 10], clock)
    >>> [(batch, clock()) for batch in loader]
    [('one', 30), ('other', 40)]
    """

    def __init__(self, batches: Sequence[Any], waits_ns: Iterable[int], clock: FakeClock) -> None:
        self.batches = batches
        self.waits_ns = list(waits_ns)
        self.clock = clock
        self.asked = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for batch, wait_ns in zip(self.batches, self.waits_ns, strict=True):
            self.asked += 1
            self.clock.advance(wait_ns)
            if isinstance(batch, BaseException):
                raise batch
            yield batch


class AdapterContract:
    """Tests that every adapter must pass. Subclass it in a test module and define `make_loader`.

    `make_loader` returns a new loader with at least four batches, the same ones each time, and
    few enough to read them all.
    """

    adapter_type: type[Any]
    """The adapter that the registry must find for the loader."""

    def make_loader(self) -> Any:
        """A new loader."""
        raise NotImplementedError

    def make_adapter(self) -> Adapter:
        """The adapter that the registry finds for the loader."""
        return adapter_for(self.make_loader())

    def content(self, batch: Any) -> Any:
        """The part of `batch` to compare: arrays and plain values; by default all of it."""
        return batch

    def test_the_registry_finds_the_adapter(self) -> None:
        """The registry picks this adapter for such a loader."""
        assert type(self.make_adapter()) is self.adapter_type

    def test_log_serves_the_loaders_own_batches(self) -> None:
        """The batches of a logged epoch are those of the loader, in order."""
        adapter = self.make_adapter()
        expected = list(map(adapter.keep, adapter.epoch(self.make_loader())))
        served = list(map(adapter.keep, LoaderEvaluator(self.make_loader())))
        assert len(served) == len(expected) > 0
        assert all(map(self._same, served, expected))

    def test_a_kept_batch_stays_as_it_was(self) -> None:
        """A kept batch equals the original, and does not change while the loader continues."""
        adapter = self.make_adapter()
        epoch = adapter.epoch(self.make_loader())
        batch = next(epoch)
        kept = adapter.keep(batch)
        assert self._same(kept, batch)
        before = copy.deepcopy(self.content(kept))
        for _ in epoch:
            pass
        assert same_batch(self.content(kept), before)

    def test_a_kept_batch_shares_no_memory(self) -> None:
        """No array of a kept batch is an array of the loader's."""
        adapter = self.make_adapter()
        batch = next(adapter.epoch(self.make_loader()))
        theirs = [leaf for leaf in leaves(self.content(batch)) if is_array(leaf)]
        ours = [leaf for leaf in leaves(self.content(adapter.keep(batch))) if is_array(leaf)]
        assert not any(np.shares_memory(a, b) for a, b in zip(ours, theirs, strict=True))

    def test_replay_serves_the_first_batches_again(self) -> None:
        """A replayed epoch serves the loader's first batches over and over."""
        adapter = self.make_adapter()
        expected = list(map(adapter.keep, islice(adapter.epoch(self.make_loader()), 2)))
        evaluator = LoaderEvaluator(
            self.make_loader(), mode="replay", num_cached_batches=2, epoch_batches=5
        )
        served = list(evaluator)
        assert len(served) == 5  # noqa: PLR2004 - as asked for
        assert all(self._same(batch, expected[i % 2]) for i, batch in enumerate(served))

    def test_no_worker_process_is_alive_under_replay(self) -> None:
        """What the loader has started has ended before the first replayed batch."""
        before = set(active_children())
        evaluator = LoaderEvaluator(
            self.make_loader(), mode="replay", num_cached_batches=2, epoch_batches=3
        )
        for _ in evaluator:
            assert set(active_children()) <= before

    def test_description_is_true(self) -> None:
        """The length, if there is one, is the number of batches of an epoch."""
        adapter = self.make_adapter()
        length = adapter.describe(self.make_loader()).length
        assert length is None or length == sum(1 for _ in adapter.epoch(self.make_loader()))

    def test_a_released_loader_serves_again(self) -> None:
        """After an epoch was broken off and released, the next one is complete."""
        adapter = self.make_adapter()
        loader = self.make_loader()
        epoch = adapter.epoch(loader)
        next(epoch)
        adapter.release(loader, epoch)
        expected = sum(1 for _ in adapter.epoch(self.make_loader()))
        again = sum(1 for _ in adapter.epoch(loader))
        assert again in {expected, 0 if epoch is loader else expected}

    def test_an_epoch_after_a_broken_one_is_whole(self) -> None:
        """That holds in `log` and `alternate` mode; a loader that is its own iterator may go on."""
        adapter, loader = self.make_adapter(), self.make_loader()
        epoch = adapter.epoch(loader)
        if epoch is loader:
            return
        expected = list(map(adapter.keep, epoch))
        for mode in ("log", "alternate"):
            evaluator = LoaderEvaluator(self.make_loader(), mode=mode)
            next(iter(evaluator))
            served = list(map(adapter.keep, evaluator))
            for batch in expected:
                assert self._count(batch, served) == self._count(batch, expected)

    def _count(self, batch: Any, batches: list[Any]) -> int:
        return sum(self._same(batch, other) for other in batches)

    def _same(self, batch: Any, other: Any) -> bool:
        return same_batch(self.content(batch), self.content(other))


def same_batch(batch: Any, other: Any) -> bool:
    """Whether two batches have equal leaves, in order, arrays element by element."""
    ours, theirs = list(leaves(batch)), list(leaves(other))
    return len(ours) == len(theirs) and all(
        np.array_equal(np.asarray(a), np.asarray(b)) if is_array(a) else a == b
        for a, b in zip(ours, theirs, strict=True)
    )
