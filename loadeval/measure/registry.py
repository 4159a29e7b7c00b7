"""From a loader to the adapter that speaks with it, through entry points."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from loadeval.measure.adapter import IterableAdapter, is_iterable
from loadeval.measure.factory import FactoryAdapter

if TYPE_CHECKING:
    from loadeval.measure.adapter import Adapter

GROUP = "loadeval.adapters"


@cache
def registered() -> dict[str, EntryPoint]:
    """Every registered adapter, by the module prefix under which its loaders' classes live."""
    return {point.name: point for point in entry_points(group=GROUP)}


def adapter_for(loader: Any) -> Adapter:
    """The adapter of the first class in the loader's MRO that one is registered for.

    Where several prefixes match a class's module the longest wins. What nobody claims is
    served as an iterable; a callable, which is called, by the adapter of what it returns. An
    adapter is imported only here, so never for a framework that the user has not imported.
    """
    for kind in type(loader).__mro__:
        parts = kind.__module__.split(".")
        for end in range(len(parts), 0, -1):
            point = registered().get(".".join(parts[:end]))
            if point is not None:
                adapter: Adapter = point.load()()
                return adapter
    if callable(loader) and not is_iterable(loader):
        return FactoryAdapter(loader, adapter_for)
    return IterableAdapter()
