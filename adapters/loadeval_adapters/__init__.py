"""One module for each framework, found through the entry points `loadeval.adapters`."""

ADAPTERS = {
    "torch.utils.data": "loadeval_adapters.torch:PyTorchAdapter",
    "accelerate": "loadeval_adapters.torch:PyTorchAdapter",
    "lightning.fabric.wrappers": "loadeval_adapters.torch:PyTorchAdapter",
    "lightning_fabric.wrappers": "loadeval_adapters.torch:PyTorchAdapter",
    "torchdata.stateful_dataloader": "loadeval_adapters.torchdata:StatefulDataLoaderAdapter",
    "torchdata.nodes": "loadeval_adapters.torchdata:NodesAdapter",
    "nvidia.dali.plugin": "loadeval_adapters.dali:DALIAdapter",
    "nvidia.dali.pipeline": "loadeval_adapters.dali:DALIPipelineAdapter",
    "nvidia.dali.experimental.dynamic.pytorch": "loadeval_adapters.torchdata:NodesAdapter",
    "nvidia.dali.experimental.dynamic": "loadeval_adapters.dali:DALIDynamicAdapter",
    "spdl.dataloader": "loadeval_adapters.spdl:SPDLAdapter",
    "spdl.pipeline": "loadeval_adapters.spdl:SPDLPipelineAdapter",
    "webdataset": "loadeval_adapters.webdataset:WebDatasetAdapter",
    "datasets": "loadeval_adapters.huggingface_datasets:DatasetsAdapter",
    "litdata": "loadeval_adapters.litdata:LitDataAdapter",
    "grain": "loadeval_adapters.grain:GrainAdapter",
    "ray.data": "loadeval_adapters.ray_data:RayDataAdapter",
}
"""The entry points of pyproject.toml, for a copy that has no metadata."""
