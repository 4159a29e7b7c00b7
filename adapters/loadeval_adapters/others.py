"""Loaders whose insides are not read: what is known of each.

Of the samples of a batch `describe` finds out: 1 of a loader that gives one sample at a time, None
where nobody knows, and then they are not counted.
"""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from loadeval import IterableAdapter, LoaderInfo, LoaderStages, Watch, adapter_for
from loadeval.errors import warn

READS_AHEAD = (
    "mode='alternate' reads batches ahead of training: state_dict() counts them, and a training "
    "that resumes from it skips batches that it has not had; use mode='log' if you save it"
)
IN_THIS_PROCESS: dict[str, Any] = {"workers": 0, "prefetch_depth": 0, "ready_batches": 0}
LISTS = {"List", "LargeList", "Sequence", "list"}
"""Kinds of columns that a row of Hugging Face's may have, and a batch has in all columns."""
REGROUP = ("FlatMap", "Pack", "Rebatch", "ConcatThenSplit")
"""Words in the names of Grain's steps that make any number of elements of one."""
OF_WEBDATASET = ("webdataset.", "itertools.")
"""Modules whose functions, as stages of a pipeline, read nothing ahead."""
PARALLEL = {"ProcessPrefetchIterDataset", "_MpContextIterDataset"}
"""Grain's steps of which several have a part of the same data each."""


class OtherAdapter(IterableAdapter):
    """Counts samples where `describe` has found out how many a batch has."""

    _batch_size: int | None = None

    def describe(self, loader: Any) -> LoaderInfo:
        """As any iterable's, and what its adapter knows."""
        info = replace(super().describe(loader), **self._known(loader))
        self._batch_size = info.batch_size
        return info

    def _known(self, loader: Any) -> dict[str, Any]:  # noqa: ARG002 - adapters override it
        """The fields of LoaderInfo that are known: here those of one sample at a time."""
        return {"batch_size": 1}

    def samples(self, batch: Any) -> int | None:
        """1 of a sample, the usual count of a batch; None where it may be either."""
        is_batch = self._batch_size is not None and self._batch_size > 1
        return super().samples(batch) if is_batch else self._batch_size


class LitDataAdapter(OtherAdapter):
    """A StreamingDataset used alone: one sample at a time."""

    watch = Watch(classes={})
    distributions = ("litdata",)


class GrainAdapter(OtherAdapter):
    """Grain's DataLoader and datasets; how far their threads and processes are is not known."""

    watch = Watch(
        classes={
            "grain._src.python.data_loader": ("DataLoader",),
            "grain._src.python.dataset.dataset": ("MapDataset", "IterDataset"),
        },
        inside=("grain",),
    )
    distributions = ("grain",)

    def _known(self, loader: Any) -> dict[str, Any]:
        steps, ahead = [], [getattr(loader, "_dataset", loader)]
        while ahead:
            step = ahead[0]
            kinds = {type(each).__name__ for each in ahead[1:]}
            if not hasattr(step, "parents") or kinds - PARALLEL:
                return {"length": None}  # a mixture, or an iterator
            steps.append(step)
            ahead = [*step.parents, *getattr(step, "_datasets", ())]
        names = " ".join(type(step).__name__ for step in steps)
        known: dict[str, Any] = {"ready_batches": 0}
        if not any(word in names for word in REGROUP):
            known["batch_size"] = math.prod(getattr(step, "_batch_size", 1) for step in steps)
        # Grain's own length counts what these drop.
        return {**known, "length": None} if "Filter" in names or "FlatMap" in names else known

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Close `epoch`, or what a DataLoader's has inside: it ends its threads and processes."""
        super().release(loader, getattr(epoch, "_iterator", epoch))


class RayDataAdapter(OtherAdapter):
    """What `iter_batches` and the like of a Ray dataset return."""

    watch = Watch(classes={"ray.data.iterator": ("_IterableFromIterator",)}, inside=("ray.data",))
    distributions = ("ray",)

    def _known(self, loader: Any) -> dict[str, Any]:
        make = getattr(loader, "iterator_gen", None)
        return {"batch_size": 1 if ".iter_rows." in getattr(make, "__qualname__", "") else None}

    def samples(self, batch: Any) -> int | None:
        """The rows of a batch or table; a row is one."""
        if self._batch_size == 1:
            return 1
        is_table = hasattr(batch, "columns")
        return len(batch) if is_table else IterableAdapter.samples(self, batch)

    def keep(self, batch: Any) -> Any:
        """As of any loader; of a table by pickling, for a copy of it has the same Arrow memory."""
        if hasattr(batch, "columns"):
            rows = batch.take(np.arange(len(batch)))  # with a slice the whole table is pickled
            return pickle.loads(pickle.dumps(rows))  # noqa: S301 - a pickle of ours
        return super().keep(batch)

    def nbytes(self, batch: Any) -> int | None:
        """Of arrays and Arrow tables; what a pandas table takes is not known."""
        if hasattr(batch, "columns"):
            return getattr(batch, "nbytes", None)
        return super().nbytes(batch)


class CallOfIter:
    """An epoch that `dataset.iter()` begins, in batches."""

    def __init__(self, dataset: Any, make: Callable[[], Iterator[Any]]) -> None:
        self.dataset, self.make = dataset, make

    def __iter__(self) -> Iterator[Any]:
        return self.make()


# The name by which the adapter for datasets, and readers of the log, know it.
CallOfIter.__module__, CallOfIter.__qualname__ = "datasets", "Dataset.iter"


class DatasetsAdapter(OtherAdapter):
    """Hugging Face's datasets, without a DataLoader."""

    watch = Watch(
        classes={
            "datasets.arrow_dataset": ("Dataset",),
            "datasets.iterable_dataset": ("IterableDataset",),
        },
        methods={"iter": CallOfIter},
        inside=("datasets",),
    )
    setting_names: ClassVar[Mapping[str, str]] = {
        "num_shards": "dataset.to_iterable_dataset(num_shards=...), or reshard() of a stream"
    }
    distributions = ("datasets",)
    _gives_batches = False

    def _known(self, loader: Any) -> dict[str, Any]:
        dataset = getattr(loader, "dataset", loader)
        self._gives_batches = dataset is not loader
        columns = () if self._gives_batches else (dataset.features or {}).values()
        is_row = any(type(column).__name__ not in LISTS for column in columns)
        known: dict[str, Any] = {"batch_size": 1 if is_row else None}
        if not hasattr(dataset, "set_epoch"):
            return {**known, **IN_THIS_PROCESS}
        with suppress(RuntimeError):  # of lists of several lengths
            known["shards"] = getattr(dataset, "num_shards", None)
        return known

    def samples(self, batch: Any) -> int | None:
        """1 of a row, the length of the columns of a batch; None where it may be either."""
        if not self._gives_batches:
            return self._batch_size
        return len(next(iter(batch.values())) if isinstance(batch, dict) else batch)


class WebDatasetAdapter(OtherAdapter):
    """WebDataset's pipelines; a WebLoader's begins with a DataLoader of torch's."""

    watch = Watch(classes={"webdataset.pipeline": ("DataPipeline",)}, inside=("webdataset",))
    setting_names: ClassVar[Mapping[str, str]] = {
        "num_shards": "webdataset.ShardWriter(..., maxcount=...)"
    }
    distributions = ("webdataset",)

    def _known(self, loader: Any) -> dict[str, Any]:
        source, *rest = _stages(loader) or [None]
        known: dict[str, Any] = {}
        if loader.repetitions == sys.maxsize and loader.nsamples > 0:  # of with_epoch()
            known["length"] = loader.nsamples
        size = known["batch_size"] = _size_behind([source, *rest])
        if _is_torchs(source):
            info, inner = adapter_for(source).describe(source), _size_behind([source])
            own = {"backend", "adapter", "length", "batch_size", "made_at"}
            known |= {name: getattr(info, name) for name in info.__slots__ if name not in own}
            if rest:  # they may group anew
                ahead = (
                    math.ceil(known["prefetch_depth"] * inner / size) if inner and size else None
                )
                known["prefetch_depth"] = ahead
            return known
        urls = getattr(source, "urls", None)
        known["shards"] = len(urls) if isinstance(urls, list) else None
        is_webdatasets = all(_name(stage).startswith(OF_WEBDATASET) for stage in [source, *rest])
        return {**known, **IN_THIS_PROCESS} if is_webdatasets else known

    def samples(self, batch: Any) -> int | None:
        """By the keys of samples, where it has some."""
        keys = batch.get("__key__") if isinstance(batch, dict) else None
        if isinstance(keys, (list, tuple)):
            return len(keys)
        return 1 if self._batch_size == 1 else IterableAdapter.samples(self, batch)

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop the workers of the DataLoader inside, too."""
        super().release(loader, epoch)
        source = _stages(loader)[0]
        if _is_torchs(source):
            adapter_for(source).release(source, iter(()))

    def stages(self, loader: Any) -> LoaderStages | None:
        """What times the stages of the DataLoader inside."""
        if not _is_torchs(_stages(loader)[0]):
            return None
        from loadeval_adapters.torch_trace.iterators import (  # noqa: PLC0415 - not without torch
            DataLoaderStages,
        )

        return DataLoaderStages(lambda each: _stages(each)[0])


def _stages(loader: Any) -> list[Any]:
    """What a pipeline is made of, from its source on; a pipeline within it is opened up."""
    is_pipeline = hasattr(loader, "pipeline")
    return (
        [each for stage in loader.pipeline for each in _stages(stage)] if is_pipeline else [loader]
    )


def _is_torchs(source: Any) -> bool:
    return hasattr(source, "batch_sampler")


def _name(stage: Any) -> str:
    function = getattr(stage, "f", stage)  # of a filter that is partially applied
    return f"{getattr(function, '__module__', None)}.{getattr(function, '__name__', None)}"


def _size_behind(stages: list[Any]) -> int | None:
    """How many samples an element has behind these stages; None behind one of the user's."""
    size = None
    for stage in stages:
        name = _name(stage)
        if _is_torchs(stage):
            size = stage.batch_size or _size_behind(_stages(stage.dataset))
        elif name.startswith("webdataset.shardlists.") or name.endswith(
            ("_unbatched", "_unlisted")
        ):
            size = 1
        elif name == "webdataset.filters._batched":
            size = stage.args[0] if stage.args else stage.kw.get("batchsize")
        elif not name.startswith(OF_WEBDATASET):
            size = None
    return size


class ResumableAdapter(IterableAdapter):
    """Warns once of a run that reads ahead: a state saved in it is not that of the training."""

    _has_warned = False

    def refusal(self, loader: Any, mode: str) -> str | None:
        """As of any loader, with that warning."""
        if mode == "alternate" and not self._has_warned and hasattr(loader, "state_dict"):
            self._has_warned = True
            warn(READS_AHEAD)
        return super().refusal(loader, mode)


class NodesAdapter(ResumableAdapter):
    """A graph of torchdata's nodes, whose threads and processes end with an epoch's release."""

    watch = Watch(classes={"torchdata.nodes.loader": ("Loader",)}, inside=("torchdata",))
    distributions = ("torchdata",)
    _gives_lists = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """`iter(loader)`; a node by itself is reset, also where it was reset to a state before."""
        if hasattr(loader, "reset"):
            loader.reset()
        return super().epoch(loader)

    def describe(self, loader: Any) -> LoaderInfo:
        """Its class alone; whether its batches are lists of samples is found out."""
        node = getattr(loader, "root", loader)
        while type(node).__name__ in {"Prefetcher", "PinMemory"}:
            node = node.source
        self._gives_lists = type(node).__name__ == "Batcher"
        return super().describe(loader)

    def samples(self, batch: Any) -> int | None:
        """The samples of a list of them, else as usual."""
        return len(batch) if self._gives_lists else super().samples(batch)

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop what the nodes have started; each begins anew when it is reset."""
        super().release(loader, epoch)
        nodes: dict[int, Any] = {}
        waiting = [loader]
        while waiting:
            part = waiting.pop()
            if id(part) not in nodes:
                nodes[id(part)] = part
                for held in vars(part).values():
                    several = held.values() if isinstance(held, dict) else held
                    several = several if isinstance(held, (dict, list, tuple)) else [held]
                    if _is_of_nodes(next(iter(several), None)):  # a list of files may be long
                        waiting += filter(_is_of_nodes, several)
        for node in nodes.values():
            if hasattr(getattr(node, "iterable", None), "batch_sampler"):
                adapter_for(node.iterable).release(node.iterable, node._it)  # noqa: SLF001 - nothing public has it
            if hasattr(node, "_shutdown"):
                node._shutdown()  # noqa: SLF001 - nothing public stops it


def _is_of_nodes(part: Any) -> bool:
    """Whether it is a node, also of a class of the program's, or what runs for one."""
    return any(kind.__module__.startswith("torchdata.nodes") for kind in type(part).__mro__)
