"""From a loader to the adapter that speaks with it, through entry points."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.runtime.adapter import IterableAdapter, is_iterable
from loadeval.runtime.factory import FactoryAdapter

if TYPE_CHECKING:
    from loadeval.runtime.adapter import Adapter

GROUP = "loadeval.adapters"
OWN = {
    "torch.utils.data": "pytorch:PyTorchAdapter",
    "accelerate": "pytorch:PyTorchAdapter",
    "lightning.fabric.wrappers": "pytorch:PyTorchAdapter",
    "lightning_fabric.wrappers": "pytorch:PyTorchAdapter",
    "torchdata.stateful_dataloader": "torchdata_stateful:StatefulDataLoaderAdapter",
    "torchdata.nodes": "torchdata_nodes:NodesAdapter",
    "nvidia.dali.plugin": "dali:DALIAdapter",
    "nvidia.dali.pipeline": "dali_pipeline:DALIPipelineAdapter",
    "nvidia.dali.experimental.dynamic.pytorch": "torchdata_nodes:NodesAdapter",
    "nvidia.dali.experimental.dynamic": "dali_dynamic:DALIDynamicAdapter",
    "spdl.dataloader": "spdl:SPDLAdapter",
    "spdl.pipeline": "spdl_pipeline:SPDLPipelineAdapter",
    "webdataset": "webdataset:WebDatasetAdapter",
    "datasets": "huggingface_datasets:DatasetsAdapter",
    "litdata": "litdata:LitDataAdapter",
    "grain": "grain:GrainAdapter",
    "ray.data": "ray_data:RayDataAdapter",
}
"""The adapters that come with loadeval. A copy that was not installed, but vendored or zipped, has
no entry points, and a loader that they know must not be taken for any iterable."""


@cache
def registered() -> dict[str, EntryPoint]:
    """Every registered adapter, by the module prefix under which its loaders' classes live."""
    own = (EntryPoint(name, f"loadeval_adapters.{value}", GROUP) for name, value in OWN.items())
    return {point.name: point for point in (*own, *entry_points(group=GROUP))}


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
                return _made(point)
    if callable(loader) and not is_iterable(loader):
        return FactoryAdapter(loader, adapter_for)
    return IterableAdapter()


def _made(point: EntryPoint) -> Adapter:
    try:
        adapter: Adapter = point.load()()
    except ImportError as error:
        warnings.warn(
            f"the adapter for {point.name}, {point.value}, cannot be imported ({error}), so this "
            "loader is measured as any iterable: its workers and its queue are not known, and "
            "mode='alternate' may be wrong. Install loadeval, or copy loadeval_adapters with it",
            LoadevalWarning,
            stacklevel=6,  # where the LoaderEvaluator is made
        )
        return IterableAdapter()
    return adapter
