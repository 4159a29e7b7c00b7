"""What the tests of all adapters ask of a loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadeval import LoaderEvaluator
from loadeval.runtime.registry import adapter_for, registered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loadeval import LoaderInfo


def adapter_of(module: str) -> type[Any]:
    """The adapter that is registered for the loaders of a module."""
    found: type[Any] = registered()[module].load()
    return found


def describe(loader: Any) -> LoaderInfo:
    return adapter_for(loader).describe(loader)


def counted(loader: Any) -> list[int]:
    """The samples that are counted in each batch of one epoch; -1 is unknown."""
    evaluator = LoaderEvaluator(loader)
    for _ in evaluator:
        pass
    return [int(samples) for samples in evaluator.recorded().steps.samples]


def break_off(batches: Iterable[Any], after: int = 1) -> list[Any]:
    """The first batches of an epoch that is left with the last of them."""
    served = []
    for batch in batches:
        served.append(batch)
        if len(served) == after:
            break
    return served
