"""The adapters that come with loadeval."""

ADAPTERS = {
    "torch.utils.data": "loadeval_adapters.torch:PyTorchAdapter",
    "accelerate": "loadeval_adapters.torch:PyTorchAdapter",
    "lightning.fabric.wrappers": "loadeval_adapters.torch:PyTorchAdapter",
    "lightning_fabric.wrappers": "loadeval_adapters.torch:PyTorchAdapter",
    "torchdata.stateful_dataloader": "loadeval_adapters.torch:StatefulDataLoaderAdapter",
    "torchdata.nodes": "loadeval_adapters.others:NodesAdapter",
    "nvidia.dali.plugin": "loadeval_adapters.dali:DALIAdapter",
    "nvidia.dali.pipeline": "loadeval_adapters.dali:DALIPipelineAdapter",
    "nvidia.dali.experimental.dynamic.pytorch": "loadeval_adapters.others:NodesAdapter",
    "nvidia.dali.experimental.dynamic": "loadeval_adapters.dali:DALIDynamicAdapter",
    "spdl.dataloader": "loadeval_adapters.spdl:SPDLAdapter",
    "spdl.pipeline": "loadeval_adapters.spdl:SPDLPipelineAdapter",
    "webdataset": "loadeval_adapters.others:WebDatasetAdapter",
    "datasets": "loadeval_adapters.others:DatasetsAdapter",
    "litdata.streaming.dataset": "loadeval_adapters.others:LitDataAdapter",
    "grain": "loadeval_adapters.others:GrainAdapter",
    "ray.data": "loadeval_adapters.others:RayDataAdapter",
    "fastai.data.load": "loadeval:IterableAdapter",
}
"""By the module of the loaders that each is for, as entry points of other packages name theirs."""
