"""Which adapters are registered, and whether their frameworks are there, importing neither."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING

from loadeval.runtime.registry import registered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint

Records = list[tuple[Distribution, str]]
"""The installed distributions, each with the list of its files."""


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
    """The registered adapters, in the order of their modules; neither they nor those imported."""
    records = [(found, found.read_text("RECORD") or "") for found in distributions()]
    return [_registration(point, records) for _, point in sorted(registered().items())]


def _registration(point: EntryPoint, records: Records) -> Registration:
    by, spec = point.dist, _located(point.name)
    owner = None if spec is None else _owner(spec, point.name, records)
    return Registration(
        module=point.name,
        adapter=point.value,
        distribution=None if by is None else by.name,
        distribution_version=None if by is None else by.version,
        # A folder that nobody installed is found as a package too: one of data, or of remains.
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
        # By its full name a package without __init__.py is only found once its parent is imported.
        spec = PathFinder.find_spec(part, spec.submodule_search_locations or [])
    return spec


def _owner(spec: ModuleSpec, module: str, records: Records) -> Distribution | None:
    """The one distribution that has put `module` where `spec` is; None when that is unclear."""
    path = module.replace(".", "/")
    places = [Path(place) for place in _places(spec)]
    listed = re.compile(rf"^{re.escape(path)}[/.]", re.MULTILINE)
    owners = [
        found
        for found, record in records
        if listed.search(record) and Path(str(found.locate_file(path))) in places
    ]
    return owners[0] if len(owners) == 1 else None


def _places(spec: ModuleSpec) -> Sequence[str]:
    """The folders of a package; of a module its file, without what follows its name."""
    if spec.submodule_search_locations is not None:
        return spec.submodule_search_locations
    return [str(Path(spec.origin or spec.name).with_name(spec.name))]
