"""Finds the adapter for a loader."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.runtime.adapter import FactoryAdapter, IterableAdapter, is_iterable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.runtime.adapter import Adapter

GROUP = "loadeval.adapters"
OWN = "loadeval_adapters"
"""The package of the adapters that come with loadeval. A vendored or zipped copy has no entry
points, and must not measure a loader that it knows as a plain iterable."""

Rows = tuple[tuple[str, ...], ...]

NO_ADAPTERS = (
    f"cannot import {OWN}, so this loader is measured as a plain iterable: its workers and its "
    "queue are unknown, and results of mode='alternate' may be wrong. Install loadeval, or copy "
    f"{OWN} too"
)


@cache
def registered() -> dict[str, EntryPoint]:
    """Every registered adapter, by the module prefix under which its loaders' classes live."""
    own = (EntryPoint(name, value, GROUP) for name, value in own_adapters().items())
    return {point.name: point for point in (*own, *entry_points(group=GROUP))}


def own_adapters() -> Mapping[str, str]:
    """The adapters that come with loadeval, as entry points name them; none if they are missing."""
    try:
        adapters: Mapping[str, str] = importlib.import_module(OWN).ADAPTERS
    except ImportError:
        return {}
    return adapters


def declared_in_stacks() -> tuple[Rows, Rows, Rows]:
    """What tells the adapters that come with loadeval what a thread does, in its stack.

    Functions: the end of the file's path, the name, what a thread does in it, the line where it
    does if that is not all of the function, and what users call the loader. Variables: the end of
    the file's path, the function, what it tells, and its name. Collective operations: a folder, and
    a pattern of names. No framework is imported.
    """
    try:
        declared = importlib.import_module(f"{OWN}.in_stacks")
    except ImportError:
        return (), (), ()
    return declared.IN_STACKS, declared.VARIABLES, declared.COLLECTIVES


def adapter_for(loader: Any) -> Adapter:
    """The adapter that is registered for a class in the loader's MRO, the first with one.

    The longest prefix of the class's module wins. Other loaders are served as iterables, and
    callables by the adapter for what they return. Adapters are imported only here, so never for
    a framework that the user has not imported.
    """
    for kind in type(loader).__mro__:
        parts = kind.__module__.split(".")
        for end in range(len(parts), 0, -1):
            point = registered().get(".".join(parts[:end]))
            if point is not None:
                return _made(point)
    if callable(loader) and not is_iterable(loader):
        return FactoryAdapter(loader, adapter_for)
    if type(loader).__module__ != "builtins" and not own_adapters():
        warnings.warn(
            NO_ADAPTERS, LoadevalWarning, stacklevel=5
        )  # where the LoaderEvaluator is made
    return IterableAdapter()


def _made(point: EntryPoint) -> Adapter:
    try:
        adapter: Adapter = point.load()()
    except ImportError as error:
        warnings.warn(
            f"cannot import the adapter for {point.name}, {point.value} ({error}), so this loader "
            "is measured as a plain iterable: its workers and its queue are unknown, and results "
            "of mode='alternate' may be wrong. Install loadeval, or copy loadeval_adapters too",
            LoadevalWarning,
            stacklevel=6,  # where the LoaderEvaluator is made
        )
        return IterableAdapter()
    return adapter
