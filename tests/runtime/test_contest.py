"""Several backends in turns: whose turn it is, and who goes on after an error."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import Backend, IterableAdapter, LoaderInfo, UsageError
from loadeval.runtime import registry
from loadeval.runtime.backends import BackendRunner
from loadeval.runtime.settings import Settings
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadeval.runtime.backends import Measured


class Idle(ScriptedLoader):
    """A loader without workers, so that nobody naps for them; `open` epochs are being read."""

    open = begun = 0

    def __iter__(self) -> Iterator[Any]:
        self.open += 1
        self.begun += 1
        try:
            yield from super().__iter__()
        finally:
            self.open -= 1


class IdleAdapter(IterableAdapter):
    def describe(self, loader: Any) -> LoaderInfo:
        return LoaderInfo("Idle", workers=0, length=len(loader))


@pytest.fixture(autouse=True)
def _adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(__name__, f"{__name__}:IdleAdapter", registry.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _: IdleAdapter)
    monkeypatch.setattr(registry, "registered", lambda: {__name__: point})


class Arena:
    """Backends named a, b and so on, of 100 batches of which each is its name's number."""

    def __init__(self, count: int = 3, rounds: int = 4, seed: int = 0) -> None:
        self.clock = clock = FakeClock(1000)
        self.settings = Settings(
            mode="alternate",
            samples=None,
            unit="images",
            max_cache_bytes=10**9,
            overwrite=False,
            pairs=rounds,
            batches=8 * rounds,
            seed=seed,
            clock=clock,
        )
        self.loaders = [Idle([np.full(4, one)] * 100, [10] * 100, clock) for one in range(count)]
        self.epochs: list[tuple[int, int]] = []

    @property
    def turns(self) -> list[int]:
        """Whose turns there were: the epochs are so long that a turn takes one."""
        return [number for number, _ in self.epochs]

    def step(self, batch: Any) -> None:
        number = int(batch[0])
        epoch = number, self.loaders[number].begun
        if epoch not in self.epochs:
            self.epochs.append(epoch)
        assert [loader.open for loader in self.loaders if loader.open] in ([1], [])
        self.clock.advance(5)

    def contest(self) -> BackendRunner:
        backends = {"abcdef"[one]: Backend(loader) for one, loader in enumerate(self.loaders)}
        return BackendRunner(backends, self.settings)

    def fight(self, step: Callable[[Any], object] | None = None) -> list[Measured]:
        return self.contest().run(step or self.step, {})


def test_all_have_a_turn_in_each_round() -> None:
    """The order changes, and is that of the seed."""
    arena, again, other = Arena(), Arena(), Arena(seed=1)
    for one in (arena, again, other):
        one.fight()
    assert again.turns == arena.turns != other.turns
    assert [arena.turns.count(one) for one in range(3)] == [4, 4, 4]


def test_who_has_no_turn_is_at_rest() -> None:
    """Only one loader is read at a time, and none afterwards."""
    arena = Arena()
    arena.fight()
    assert [loader.open for loader in arena.loaders] == [0, 0, 0]


def test_runs_come_in_the_order_of_the_backends() -> None:
    """All are of one comparison."""
    found = Arena().fight()
    assert [one.name for one in found] == ["a", "b", "c"]
    runs = [one.run for one in found if one.run is not None]
    assert [run.header.name for run in runs] == ["a", "b", "c"]
    assert len({run.header.settings["comparison"] for run in runs}) == 1
    assert all(run.closed for run in runs)
    assert [one.error for one in found] == [None] * 3


def test_an_error_at_the_first_look_is_that_backends() -> None:
    """It has no turn and no run; the others go on."""
    arena = Arena()
    arena.loaders[1].batches = [OSError("gone"), *[np.zeros(4)] * 99]
    found = arena.fight()
    assert isinstance(found[1].error, OSError)
    assert found[1].run is None
    assert found[2].run is not None
    assert 1 not in arena.turns


def test_an_error_in_a_turn_ends_the_turns_of_its_backend() -> None:
    """Its run has what was measured before; the others go on."""
    arena = Arena()
    arena.loaders[1].batches = [*[np.full(4, 1)] * 10, OSError("gone"), *[np.full(4, 1)] * 89]
    found = arena.fight()
    assert isinstance(found[1].error, OSError)
    assert found[1].run is not None
    assert [arena.turns.count(one) for one in range(3)] == [4, 1, 4]


def test_wrong_usage_is_raised_before_anything_is_timed() -> None:
    """The error names the backend."""
    arena = Arena()
    arena.loaders[2].batches, arena.loaders[2].waits_ns = [], []
    with pytest.raises(UsageError, match="c: the loader gave no batch"):
        arena.contest()


def test_an_error_of_the_step_is_raised() -> None:
    """All loaders are at rest then, and a note tells whose batch it was."""
    arena = Arena(count=1)

    def fail(_batch: object) -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory") as caught:
        arena.fight(fail)
    assert arena.loaders[0].open == 0
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == ["The training step was given a batch of backend 'a'."]


def test_unequal_work_is_told() -> None:
    """Before anything is timed; one that could not be looked at has none to compare."""
    arena = Arena()
    assert arena.contest().unlike == []
    arena.loaders[0].batches = [OSError("gone")] * 100
    arena.loaders[2].batches = [np.zeros(5)] * 100
    told = arena.contest().unlike
    assert told[-1] == "c: batch 0 has 5 samples where b has 4"
