"""WebDataset: its pipelines, and WebLoader, a pipeline that begins with a torch DataLoader."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

from loadeval import IterableAdapter, LoaderInfo, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval import LoaderStages

KEY = "__key__"  # the name of a sample within its shard; a batch has a list of them
UNGROUPING = {"webdataset.filters._unbatched", "webdataset.filters._unlisted"}


class WebDatasetAdapter(IterableAdapter):
    """Knows the DataLoader inside a WebLoader, and how a pipeline groups its samples."""

    watch = Watch(classes={"webdataset.pipeline": ("DataPipeline",)}, inside=("webdataset",))
    setting_names: ClassVar[dict[str, str]] = {
        "num_shards": "webdataset.ShardWriter(..., maxcount=...)"
    }
    distributions = ("webdataset",)
    _serves_samples = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The pipeline's own iterator."""
        self._serves_samples = _batch_size(loader) == 1
        return super().epoch(loader)

    def samples(self, batch: Any) -> int | None:
        """The number of keys; without keys 1 if no samples are grouped, else as of an array."""
        keys = batch.get(KEY) if isinstance(batch, dict) else None
        if isinstance(keys, (list, tuple)):
            return len(keys)
        return 1 if keys is not None or self._serves_samples else super().samples(batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """What the DataLoader inside tells; the length that `with_epoch` or `with_length` set."""
        info = super().describe(loader)
        kind = next(kind for kind in type(loader).__mro__ if kind.__module__ != "abc")
        stages = list(_stages(loader))
        if stages and _is_dataloader(stages[0]):
            inside = _torch_adapter().describe(stages[0])
            depth = _in_batches(inside.prefetch_depth, stages)
            info = replace(inside, adapter=info.adapter, length=info.length, prefetch_depth=depth)
        elif stages:
            urls = getattr(stages[0], "urls", None)
            info = replace(info, shards=len(urls) if isinstance(urls, list) else None)
            if all(map(_is_own, stages)):
                info = replace(info, workers=0, prefetch_depth=0, ready_batches=0)
        return replace(
            info,
            # `with_length` makes a class of its own, in no module of WebDataset's.
            backend=f"{kind.__module__}.{kind.__qualname__}",
            batch_size=_batch_size(loader),
            length=_epoch_length(loader) or info.length,
        )

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Close the pipeline, and stop the workers of the DataLoader inside."""
        super().release(loader, epoch)
        source = next(_stages(loader), None)
        if _is_dataloader(source):
            _torch_adapter().release(source, epoch)

    def stages(self, loader: Any) -> LoaderStages | None:
        """What times the stages inside the DataLoader of a WebLoader."""
        if not _is_dataloader(next(_stages(loader), None)):
            return None
        from loadeval_adapters.torch_trace.stages import DataLoaderStages  # noqa: PLC0415 - WebDataset does without torch

        return DataLoaderStages(lambda loader: next(_stages(loader)))


def _torch_adapter() -> IterableAdapter:
    from loadeval_adapters.torch import PyTorchAdapter  # noqa: PLC0415 - WebDataset does without torch

    return PyTorchAdapter()


def _stages(loader: Any) -> Iterator[Any]:
    """What a pipeline is made of, from its source on; a pipeline within it is opened up."""
    for stage in getattr(loader, "pipeline", ()):
        if hasattr(stage, "pipeline"):
            yield from _stages(stage)
        else:
            yield stage


def _is_dataloader(stage: Any) -> bool:
    return hasattr(stage, "batch_sampler")


def _name(stage: Any) -> str:
    function = getattr(stage, "f", stage)  # of a filter that is partially applied
    return f"{getattr(function, '__module__', None)}.{getattr(function, '__name__', None)}"


def _is_own(stage: Any) -> bool:
    return _name(stage).partition(".")[0] in {"webdataset", "itertools"}


def _epoch_length(loader: Any) -> int | None:
    endless = getattr(loader, "repetitions", 1) == sys.maxsize  # as `with_epoch` makes it
    return loader.nsamples if endless and loader.nsamples > 0 else None


def _in_batches(elements: int | None, stages: list[Any]) -> int | None:
    """`elements` of a DataLoader, in batches of the pipeline after it, which may group anew."""
    if len(stages) == 1:
        return elements
    inner, outer = _size_after(None, stages[0]), reduce(_size_after, stages, None)
    return math.ceil((elements or 0) * inner / outer) if inner and outer else None


def _batch_size(loader: Any) -> int | None:
    """How many samples each element of `loader` but the last holds; None if it is unknown."""
    return reduce(_size_after, _stages(loader), None)


def _size_after(size: int | None, stage: Any) -> int | None:
    if _is_dataloader(stage):
        return stage.batch_size or _batch_size(stage.dataset)
    name = _name(stage)
    if name.startswith("webdataset.shardlists.") or name in UNGROUPING:
        return 1
    if name == "webdataset.filters._batched":
        size = stage.args[0] if stage.args else stage.kw.get("batchsize")
    # A stage of the user's may group as it likes; others of WebDataset pass elements on.
    return size if _is_own(stage) else None
