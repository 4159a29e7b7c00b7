"""What the tests of all adapters ask of a loader."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import pytest

from loadeval import LoaderEvaluator, LoaderInfo, Run
from loadeval.adapter import adapter_for, registered
from loadeval.testing import AdapterContract


def adapter_of(module: str) -> type[Any]:
    """The adapter that is registered for the loaders of a module."""
    adapter: type[Any] = registered()[module].load()
    return adapter


def describe(loader: Any) -> LoaderInfo:
    return adapter_for(loader).describe(loader)


def counted(loader: Any) -> list[int]:
    """The samples that are counted in each batch of one epoch; -1 is unknown."""
    evaluator = LoaderEvaluator(loader)
    for _ in evaluator:
        pass
    return [int(samples) for samples in evaluator.recorded().steps.samples]


def recorded(loader: Any, epochs: int = 1, **how: Any) -> Run:
    """The run of some whole epochs, looked into."""
    with LoaderEvaluator(loader, stages=True, **how) as evaluator:
        for _ in range(epochs):
            for _batch in evaluator:
                pass
    return evaluator.recorded()


def break_off(batches: Iterable[Any], after: int = 1) -> list[Any]:
    """The first batches of an epoch that is left with the last of them."""
    served = []
    for batch in batches:
        served.append(batch)
        if len(served) == after:
            break
    return served


def contract(
    adapter: type[Any],
    base: type[AdapterContract] = AdapterContract,
    given: str | None = None,
    quick: Collection[str] = (),
    **loaders: Callable[..., Any],
) -> type[AdapterContract]:
    """The contract for each of `loaders`, made from the fixture `given` where there is one.

    It is `quick` for those of these names; `make check` has the others.
    """
    params = [
        pytest.param(make, id=name, marks=[] if name in quick else [pytest.mark.check])
        for name, make in loaders.items()
    ]

    class TestLoaders(base):  # type: ignore[valid-type, misc]
        adapter_type = adapter

        @pytest.fixture(autouse=True, params=params)
        def _made(self, request: pytest.FixtureRequest) -> None:
            fixtures = [] if given is None else [request.getfixturevalue(given)]
            self.make = partial(request.param, *fixtures)

        def make_loader(self) -> Any:
            return self.make()

    return TestLoaders
