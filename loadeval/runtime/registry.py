"""Finds the adapter for a loader, and lists all registered adapters."""

from __future__ import annotations

import importlib
import importlib.util
import re
import warnings
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.runtime.adapter import FactoryAdapter, IterableAdapter, is_iterable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.machinery import ModuleSpec

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


@dataclass(frozen=True, slots=True)
class Registration:
    """One registered adapter; None is "not known".

    `module` is the prefix of the modules where its loaders' classes live, and `adapter` its
    class, as the entry point names it. `distribution` and `distribution_version` are of the
    package that registered it. `installed` tells whether there is such a module here, and
    `framework` and `framework_version` which package it came with.
    """

    module: str
    adapter: str
    distribution: str | None
    distribution_version: str | None
    installed: bool
    framework: str | None
    framework_version: str | None


def registrations() -> list[Registration]:
    """The registered adapters, ordered by module. Neither adapters nor modules are imported."""
    files = [
        (distribution, distribution.read_text("RECORD") or "") for distribution in distributions()
    ]
    return [_registration(point, files) for _, point in sorted(registered().items())]


def _registration(point: EntryPoint, files: list[tuple[Distribution, str]]) -> Registration:
    distribution, spec = point.dist, _located(point.name)
    owner = None if spec is None else _owner(spec, point.name, files)
    return Registration(
        module=point.name,
        adapter=point.value,
        distribution=None if distribution is None else distribution.name,
        distribution_version=None if distribution is None else distribution.version,
        # A folder that nobody installed, with data or leftovers, is also found as a package.
        installed=owner is not None or (spec is not None and spec.origin is not None),
        framework=None if owner is None else owner.name,
        framework_version=None if owner is None else owner.version,
    )


def _located(module: str) -> ModuleSpec | None:
    """What an import of `module` would find; the packages around it are not imported."""
    top, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a module made by hand, which is nowhere
        return None
    for part in inner:
        if spec is None:
            return None
        # A package without __init__.py is only found by its full name once its parent is imported.
        spec = PathFinder.find_spec(part, spec.submodule_search_locations or [])
    return spec


def _owner(
    spec: ModuleSpec, module: str, files: list[tuple[Distribution, str]]
) -> Distribution | None:
    """The distribution that installed `module` where `spec` is; None if that is unclear."""
    path = module.replace(".", "/")
    folders = spec.submodule_search_locations
    if folders is None:  # a module: its file, without what follows its name
        folders = [str(Path(spec.origin or spec.name).with_name(spec.name))]
    places = set(map(Path, folders))
    listed = re.compile(rf"^{re.escape(path)}[/.]", re.MULTILINE)
    owners = [
        distribution
        for distribution, record in files
        if listed.search(record) and Path(str(distribution.locate_file(path))) in places
    ]
    return owners[0] if len(owners) == 1 else None
