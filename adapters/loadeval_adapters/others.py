"""Loaders whose insides are not read: where each has its batch size, workers, queue and length.

No framework is imported here: the parts of a loader are known by the names of their classes.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar

from loadeval import (
    IterableAdapter,
    LoaderInfo,
    LoaderStages,
    LoadevalWarning,
    UsageError,
    Watch,
    adapter_for,
)


class OtherAdapter(IterableAdapter):
    """A row of the table: a subclass says where its loaders have what is told of them."""

    _epochs_batch_size: int | None = None

    def batch_size(self, loader: Any) -> int | None:  # noqa: ARG002 - adapters override it
        """How many samples each batch but the last has; None if it is unknown."""
        return None

    def inside(self, loader: Any) -> Any:  # noqa: ARG002 - adapters override it
        """The torch DataLoader that `loader` holds, or None."""
        return None

    def known(self, loader: Any, info: LoaderInfo) -> dict[str, Any]:  # noqa: ARG002 - adapters override it
        """What else is known, as fields of LoaderInfo; `info` has what the loader inside tells."""
        return {}

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The loader's own iterator."""
        self._epochs_batch_size = self.batch_size(loader)
        return super().epoch(loader)

    def samples(self, batch: Any) -> int | None:
        """1 where no samples are grouped, else what the batch or its first array tells."""
        return 1 if self._epochs_batch_size == 1 else super().samples(batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """The loader's class and length, what the DataLoader inside tells, and what is `known`."""
        info, inside = super().describe(loader), self.inside(loader)
        if inside is not None:
            own = {name: getattr(info, name) for name in ("backend", "adapter", "length")}
            info = replace(adapter_for(inside).describe(inside), **own)
        info = replace(info, batch_size=self.batch_size(loader))
        return replace(info, **self.known(loader, info))

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Close `epoch`, and stop the workers of the DataLoader inside."""
        super().release(loader, epoch)
        inside = self.inside(loader)
        if inside is not None:
            adapter_for(inside).release(inside, epoch)

    def stages(self, loader: Any) -> LoaderStages | None:
        """What times the stages of the DataLoader inside."""
        if self.inside(loader) is None:
            return None
        from loadeval_adapters.torch_trace.iterators import (  # noqa: PLC0415 - torch may be missing
            DataLoaderStages,
        )

        return DataLoaderStages(self.inside)


class WebDatasetAdapter(OtherAdapter):
    """A pipeline of stages. That of a WebLoader begins with a torch DataLoader."""

    watch = Watch(classes={"webdataset.pipeline": ("DataPipeline",)}, inside=("webdataset",))
    setting_names: ClassVar[dict[str, str]] = {
        "num_shards": "webdataset.ShardWriter(..., maxcount=...)"
    }
    distributions = ("webdataset",)

    def batch_size(self, loader: Any) -> int | None:
        """That of the last stage that groups samples; unknown behind a stage of the user's."""
        return reduce(_size_after, _stages(loader), None)

    def inside(self, loader: Any) -> Any:
        """The first stage of a WebLoader."""
        source = next(_stages(loader), None)
        return source if _is_dataloader(source) else None

    def samples(self, batch: Any) -> int | None:
        """The number of keys, which are the names of samples in their shard."""
        keys = batch.get("__key__") if isinstance(batch, dict) else None
        return len(keys) if isinstance(keys, (list, tuple)) else super().samples(batch)

    def known(self, loader: Any, info: LoaderInfo) -> dict[str, Any]:
        """The length that `with_epoch` or `with_length` set; the queue, in its batches."""
        source, *rest = list(_stages(loader)) or [None]
        # `with_length` makes a class of its own, in no module of WebDataset's.
        kind = next(kind for kind in type(loader).__mro__ if kind.__module__ != "abc")
        known: dict[str, Any] = {"backend": f"{kind.__module__}.{kind.__qualname__}"}
        if getattr(loader, "repetitions", 1) == sys.maxsize:  # as `with_epoch` makes it
            known["length"] = max(loader.nsamples, 0) or info.length
        if _is_dataloader(source):
            inner, outer = _size_after(None, source), info.batch_size
            if rest:  # they may group anew
                elements = (info.prefetch_depth or 0) * (inner or 0)
                known["prefetch_depth"] = math.ceil(elements / outer) if inner and outer else None
            return known
        urls = getattr(source, "urls", None)
        known["shards"] = len(urls) if isinstance(urls, list) else None
        if all(map(_is_webdatasets, [source, *rest])):
            known |= {"workers": 0, "prefetch_depth": 0, "ready_batches": 0}
        return known


def _stages(loader: Any) -> Iterator[Any]:
    """What a pipeline is made of, from its source on; a pipeline within it is opened up."""
    for stage in getattr(loader, "pipeline", ()):
        if hasattr(stage, "pipeline"):
            yield from _stages(stage)
        else:
            yield stage


def _is_dataloader(loader: Any) -> bool:
    return hasattr(loader, "batch_sampler")


def _name(stage: Any) -> str:
    function = getattr(stage, "f", stage)  # of a filter that is partially applied
    return f"{getattr(function, '__module__', None)}.{getattr(function, '__name__', None)}"


def _is_webdatasets(stage: Any) -> bool:
    return _name(stage).partition(".")[0] in {"webdataset", "itertools"}


def _size_after(size: int | None, stage: Any) -> int | None:
    """How many samples an element has behind `stage`, where it had `size` before."""
    if _is_dataloader(stage):
        return stage.batch_size or reduce(_size_after, _stages(stage.dataset), None)
    name = _name(stage)
    if name.startswith("webdataset.shardlists.") or name.endswith(("._unbatched", "._unlisted")):
        return 1
    if name == "webdataset.filters._batched":
        size = stage.args[0] if stage.args else stage.kw.get("batchsize")
    # A stage of the user's may group as it likes; others of WebDataset pass elements on.
    return size if _is_webdatasets(stage) else None


class LitDataAdapter(OtherAdapter):
    """A StreamingDataset by itself; a StreamingDataLoader is a DataLoader of torch's.

    A dataset has attributes of the DataLoader that is to read it, such as `num_workers`. It
    serves samples, not batches.
    """

    watch = Watch(classes={})
    distributions = ("litdata",)

    def batch_size(self, loader: Any) -> int | None:  # noqa: ARG002 - the same for all
        """It serves samples."""
        return 1


class DatasetBatches:
    """One call of `dataset.iter()`; the next one is another epoch. `make` is that call."""

    def __init__(self, dataset: Any, make: Callable[[], Iterator[Any]]) -> None:
        self.column_names = dataset.column_names
        self.make = make
        if hasattr(dataset, "set_epoch"):  # a stream, which may read ahead
            self.set_epoch = dataset.set_epoch

    def __iter__(self) -> Iterator[Any]:
        return self.make()


# The name by which the adapter for datasets, and readers of the log, know it.
DatasetBatches.__module__, DatasetBatches.__qualname__ = "datasets", "Dataset.iter"


class DatasetsAdapter(OtherAdapter):
    """Hugging Face's Dataset or IterableDataset, row by row.

    A row is an example, or a batch where the dataset was made by `batch()`, which makes a list
    of every column. So a row with a column that is none is an example; of other rows only an
    IterableDataset tells, and their samples are unknown where it does not.

    `dataset.iter(batch_size=8)` is a generator, which has one epoch, and no adapter of its own.
    Wrap `lambda: dataset.iter(batch_size=8)` instead, of which each epoch calls a new one.
    """

    watch = Watch(
        classes={
            "datasets.arrow_dataset": ("Dataset",),
            "datasets.iterable_dataset": ("IterableDataset",),
        },
        methods={"iter": DatasetBatches},
        inside=("datasets",),
    )
    setting_names: ClassVar[dict[str, str]] = {
        "num_shards": "dataset.to_iterable_dataset(num_shards=...), reshard() of a stream, and "
        "shuffle(max_buffer_input_shards=1) in datasets 5.0"
    }
    distributions = ("datasets",)
    _serves_batches = False

    def batch_size(self, loader: Any) -> int | None:
        """1 if a column is no list; else what `batch()` of a stream was called with."""
        self._serves_batches = isinstance(loader, DatasetBatches)
        columns = (getattr(loader, "features", None) or {}).values()
        if any(hasattr(column, "dtype") and not hasattr(column, "feature") for column in columns):
            return 1  # a list would have a `feature`, that of its items
        rows = getattr(loader, "_ex_iterable", None)
        made_by = getattr(getattr(rows, "function", None), "__name__", None)
        is_batch = made_by in {"_batch_fn", "_batch_arrow_table"}  # those of batch()
        return getattr(rows, "batch_size", None) if is_batch else None

    def samples(self, batch: Any) -> int | None:
        """1 for an example, the length of a column for a batch; None if it is unknown."""
        size = self._epochs_batch_size
        if size in {None, 1} and not self._serves_batches:
            return size
        return len(next(iter(batch.values())) if isinstance(batch, dict) else batch)

    def known(self, loader: Any, info: LoaderInfo) -> dict[str, Any]:  # noqa: ARG002 - as of all
        """A Dataset reads in this process; a stream has shards, and may read ahead in threads.

        Raises UsageError for a DatasetDict, which holds several datasets.
        """
        if isinstance(loader, dict):
            raise UsageError(
                f"a {type(loader).__name__} holds several datasets, {', '.join(map(str, loader))}; "
                "pass the one that the training loop iterates"
            )
        if not hasattr(loader, "set_epoch"):
            return {"workers": 0, "prefetch_depth": 0, "ready_batches": 0}
        with suppress(RuntimeError):  # of lists of several lengths
            return {"shards": getattr(loader, "num_shards", None)}
        return {}


class RayDataAdapter(OtherAdapter):
    """What `iter_batches`, `iter_torch_batches` and `iter_rows` of a Ray dataset return.

    Ray tells nothing of what it returns. How many batches it has ready is not known either:
    beside `prefetch_batches` it loads blocks ahead, as many as its object store has room for.
    """

    watch = Watch(classes={"ray.data.iterator": ("_IterableFromIterator",)}, inside=("ray.data",))
    distributions = ("ray",)

    def batch_size(self, loader: Any) -> int | None:
        """1 for rows."""
        made_by = getattr(getattr(loader, "iterator_gen", None), "__qualname__", "")
        return 1 if ".iter_rows." in made_by else None

    def samples(self, batch: Any) -> int | None:
        """1 for a row, the rows of a table, else the first dimension of the first array."""
        return int(batch.shape[0]) if _is_table(batch) else super().samples(batch)

    def nbytes(self, batch: Any) -> int | None:
        """Bytes of all arrays, or of an Arrow table; None for a pandas one."""
        return getattr(batch, "nbytes", None) if _is_table(batch) else super().nbytes(batch)

    def known(self, loader: Any, info: LoaderInfo) -> dict[str, Any]:  # noqa: ARG002 - as of all
        """Nothing. Raises UsageError for a dataset, which Ray does not iterate."""
        if hasattr(loader, "iter_batches"):
            raise UsageError(
                f"Ray does not iterate a {type(loader).__name__} by itself; pass what its "
                "iter_torch_batches() or iter_batches() returns"
            )
        return {}


def _is_table(batch: Any) -> bool:
    return hasattr(batch, "columns") and hasattr(batch, "shape")


class GrainAdapter(OtherAdapter):
    """Counts the elements of a pipeline of Grain's, and stops its processes and threads.

    An iterator that is wrapped by itself has one epoch, and cannot be read once released.
    """

    watch = Watch(
        classes={
            "grain._src.python.data_loader": ("DataLoader",),
            "grain._src.python.dataset.dataset": ("MapDataset", "IterDataset"),
        },
        inside=("grain",),
    )
    distributions = ("grain",)

    def batch_size(self, loader: Any) -> int | None:
        """What all `batch()` make of elements; unknown where a step may regroup them."""
        steps = _grain_steps(loader)
        names = [type(step).__name__ for step in steps]
        if not steps or any(word in name for word in REGROUP for name in names):
            return None
        return math.prod(int(getattr(step, "_batch_size", 1)) for step in steps)

    def samples(self, batch: Any) -> int | None:
        """1 if nothing is batched, else the first dimension of an array; None if it is unknown."""
        return None if self._epochs_batch_size is None else super().samples(batch)

    def known(self, loader: Any, info: LoaderInfo) -> dict[str, Any]:
        """No length where elements are dropped, for Grain's counts all."""
        names = [type(step).__name__ for step in _grain_steps(loader)]
        drops = any("Filter" in name or "FlatMap" in name for name in names)
        return {"length": None if drops else info.length, "ready_batches": 0 if names else None}

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Close `epoch`, which ends its workers."""
        super().release(loader, getattr(epoch, "_iterator", epoch))  # of a DataLoader


REGROUP = ("FlatMap", "Pack", "Rebatch", "ConcatThenSplit")
"""Steps of Grain's whose names have these make any number of elements of one."""
PARALLEL = {"ProcessPrefetchIterDataset", "_MpContextIterDataset"}
"""What `mp_prefetch` and `multithread_prefetch` interleave: each has a part of the data."""


def _grain_steps(loader: Any) -> list[Any]:
    """What `loader` iterates, from its output to its source; empty if that is unknown."""
    step, steps = getattr(loader, "_dataset", loader), []
    while step is not None:
        if not hasattr(step, "parents"):
            return []
        steps.append(step)
        sources = [*step.parents, *getattr(step, "_datasets", ())]
        if len(sources) > 1 and not all(type(each).__name__ in PARALLEL for each in sources):
            return []  # a mixture, or an interleaving of the user's
        step = sources[0] if sources else None
    return steps


class ResumableAdapter(IterableAdapter):
    """Warns, once, where the `state_dict()` of a loader could not be resumed from."""

    _has_warned = False

    def refusal(self, loader: Any, mode: str) -> str | None:
        """Refuse as other loaders do; warn of a mode whose states are inexact."""
        if mode == "alternate" and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "mode='alternate' reads batches ahead of training, so a state_dict() taken during "
                "an epoch skips batches that training has not seen; use mode='log' to resume "
                "training from it",
                LoadevalWarning,
                stacklevel=3,  # where it is iterated
            )
        return super().refusal(loader, mode)


class NodesAdapter(ResumableAdapter, OtherAdapter):
    """torchdata's nodes: stops the workers of a graph of them.

    A Loader has one iterator, which each epoch begins anew, or where `load_state_dict` says. In
    `log` mode nothing is read ahead, so `evaluator.state_dict()` is exact in the midst of an
    epoch; of `alternate` mode, where it is not, a LoadevalWarning tells when the first epoch
    begins. A node by itself is reset at each epoch: a state that it was reset to before is not
    resumed from, for which there is Loader.
    """

    watch = Watch(classes={"torchdata.nodes.loader": ("Loader",)}, inside=("torchdata",))
    distributions = ("torchdata",)
    _lists_samples = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The iterator of a Loader, or the node itself, at the beginning."""
        if _root(loader) is loader:
            loader.reset()
        last = _root(loader)
        while _is_a(last, "Prefetcher", "PinMemory"):
            last = last.source
        self._lists_samples = _is_a(last, "Batcher")
        return super().epoch(loader)

    def samples(self, batch: Any) -> int | None:
        """The length of a list that a Batcher made; any other batch is counted as usual."""
        is_list = self._lists_samples and isinstance(batch, list)
        return len(batch) if is_list else super().samples(batch)

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:  # noqa: ARG002 - it is the loader's
        """Stop the threads and processes of all nodes, until the next epoch."""
        nodes = [_root(loader)]
        for node in nodes:
            for source in _nodes_in(node):
                if all(source is not known for known in nodes):  # they may know each other
                    nodes.append(source)
            works: Any = getattr(node, "_it", None)
            inside = node.iterable if _is_a(node, "IterableWrapper") else None
            if _is_dataloader(inside):
                adapter_for(inside).release(inside, works)
            elif callable(getattr(works, "_shutdown", None)):
                works._shutdown()  # noqa: SLF001 - nodes have no other way to stop


def _is_a(node: Any, *names: str) -> bool:
    return any(kind.__name__ in names for kind in type(node).__mro__)


def _root(loader: Any) -> Any:
    return loader.root if _is_a(loader, "Loader") else loader


def _nodes_in(node: Any) -> list[Any]:
    """The nodes that `node` reads from, those in a dict or list of its own included."""
    sources: list[Any] = []
    for held in vars(node).values():
        several = held.values() if isinstance(held, dict) else held
        several = several if isinstance(held, (dict, list, tuple)) else [held]
        if _is_a(next(iter(several), None), "BaseNode"):  # a list of files may be long
            sources += [source for source in several if _is_a(source, "BaseNode")]
    return sources
