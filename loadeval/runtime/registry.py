"""Finds the adapter for a loader, and lists all registered adapters."""

from __future__ import annotations

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
    from importlib.machinery import ModuleSpec

    from loadeval.runtime.adapter import Adapter

GROUP = "loadeval.adapters"
OWN = {
    "torch.utils.data": "pytorch:PyTorchAdapter",
    "accelerate": "pytorch:PyTorchAdapter",
    "lightning.fabric.wrappers": "pytorch:PyTorchAdapter",
    "lightning_fabric.wrappers": "pytorch:PyTorchAdapter",
    "torchdata.stateful_dataloader": "torchdata:StatefulDataLoaderAdapter",
    "torchdata.nodes": "torchdata:NodesAdapter",
    "nvidia.dali.plugin": "dali:DALIAdapter",
    "nvidia.dali.pipeline": "dali:DALIPipelineAdapter",
    "nvidia.dali.experimental.dynamic.pytorch": "torchdata:NodesAdapter",
    "nvidia.dali.experimental.dynamic": "dali:DALIDynamicAdapter",
    "spdl.dataloader": "spdl:SPDLAdapter",
    "spdl.pipeline": "spdl:SPDLPipelineAdapter",
    "webdataset": "webdataset:WebDatasetAdapter",
    "datasets": "huggingface_datasets:DatasetsAdapter",
    "litdata": "litdata:LitDataAdapter",
    "grain": "grain:GrainAdapter",
    "ray.data": "ray_data:RayDataAdapter",
}
"""The adapters that come with loadeval. A vendored or zipped copy has no entry points, and must not
measure a loader that it knows as a plain iterable."""


@cache
def registered() -> dict[str, EntryPoint]:
    """Every registered adapter, by the module prefix under which its loaders' classes live."""
    own = (EntryPoint(name, f"loadeval_adapters.{value}", GROUP) for name, value in OWN.items())
    return {point.name: point for point in (*own, *entry_points(group=GROUP))}


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
    """The registered adapters, in the order of their modules; neither they nor those imported."""
    files = [(found, found.read_text("RECORD") or "") for found in distributions()]
    return [_registration(point, files) for _, point in sorted(registered().items())]


def _registration(point: EntryPoint, files: list[tuple[Distribution, str]]) -> Registration:
    by, spec = point.dist, _located(point.name)
    owner = None if spec is None else _owner(spec, point.name, files)
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


def _owner(
    spec: ModuleSpec, module: str, files: list[tuple[Distribution, str]]
) -> Distribution | None:
    """The one distribution that has put `module` where `spec` is; None when that is unclear."""
    path = module.replace(".", "/")
    folders = spec.submodule_search_locations
    if folders is None:  # a module: its file, without what follows its name
        folders = [str(Path(spec.origin or spec.name).with_name(spec.name))]
    places = set(map(Path, folders))
    listed = re.compile(rf"^{re.escape(path)}[/.]", re.MULTILINE)
    owners = [
        found
        for found, record in files
        if listed.search(record) and Path(str(found.locate_file(path))) in places
    ]
    return owners[0] if len(owners) == 1 else None
