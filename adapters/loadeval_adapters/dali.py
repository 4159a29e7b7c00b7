"""DALI: its iterators for PyTorch, pipelines by themselves, and the dynamic mode."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

import numpy as np
from nvidia.dali import types
from nvidia.dali.pipeline import Pipeline

from loadeval import IterableAdapter, LoaderInfo, LoaderStages, UsageError, Watch
from loadeval_adapters.notes import NotTimed

UNTOLD = (
    "DALI tells the times of its operators only to Nsight Systems: run nsys profile -t nvtx,cuda "
    "python train.py; the CPU use of its threads is among the readings of this run"
)
OF_PYTHON = (
    "this pipeline calls Python functions, or is fed from Python, which DALI does not serialise; "
    "change {} where it is made"
)
OF_PIPELINE = (
    *("device_id", "seed", "exec_pipelined", "exec_async", "exec_dynamic"),
    *("stream_policy", "concurrency", "set_affinity", "enable_memory_stats"),
)
"""Arguments of a pipeline that it keeps under their names."""


class DALIAdapter(IterableAdapter):
    """DALI's iterators, which cannot end an epoch early: the next one goes on where it was left.

    Each batch is a list with a dict for each pipeline.
    """

    watch: ClassVar[Watch] = Watch(
        classes={"nvidia.dali.plugin.base_iterator": ("_DaliBaseIterator",)},
        inside=("nvidia.dali",),
    )
    setting_names: ClassVar[Mapping[str, str]] = {
        "num_workers": "num_threads",
        "prefetch_depth": "prefetch_queue_depth",
    }
    distributions = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")
    _is_stacked = False

    def samples(self, batch: Any) -> int | None:
        """The samples of all pipelines, where each has a dict; for JAX several are stacked."""
        if not isinstance(batch, list):
            return None if self._is_stacked else super().samples(batch)
        counts = [
            next((len(output) for output in part.values() if _has_rows(output)), None)
            for part in batch
        ]
        return None if None in counts else sum(filter(None, counts))

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, queue, samples of a batch and device, of all pipelines together.

        By default DALI has prepared a batch when the iterator is made.
        """
        pipelines = _pipelines(loader)
        self._is_stacked = len(pipelines) > 1 and getattr(loader, "_sharding", loader) is None
        is_ready = loader._first_batch is not None or not all(each.empty() for each in pipelines)  # noqa: SLF001 - nothing public tells
        info = _described(super().describe(loader), pipelines, ready_batches=int(is_ready))
        # Where the last batch is filled with the next epoch's samples, that may be shorter.
        reads_ahead = loader._last_batch_policy.name == "FILL" and not loader._last_batch_padded  # noqa: SLF001 - the same
        length = None if reads_ahead and loader._ever_consumed else info.length  # noqa: SLF001 - the same
        # An iterator asks for the next batch before it hands out one.
        return replace(info, length=length, prefetch_depth=(info.prefetch_depth or 0) + 1)

    def stages(self, loader: Any) -> LoaderStages | None:  # noqa: ARG002 - no loader of DALI's tells
        """What says that operators cannot be timed."""
        return NotTimed(UNTOLD)

    def tunable(self, loader: Any) -> Mapping[str, Any]:
        """Threads and queue of an iterator of DALI's own class over pipelines without Python."""
        pipelines = _pipelines(loader)
        is_torchs = type(loader).__init__.__module__ == "nvidia.dali.plugin.pytorch"
        can_be_made = is_torchs and None not in map(_serialised, pipelines)
        return _settings(pipelines[0]) if can_be_made else {}

    def reconfigured(self, loader: Any, settings: Mapping[str, Any]) -> Any:
        """An iterator over pipelines that DALI has serialised and made again."""
        present = self.tunable(loader)
        if None in map(_serialised, _pipelines(loader)):
            raise UsageError(OF_PYTHON.format(", ".join(settings)))
        if not present or settings.keys() - present:
            return super().reconfigured(loader, settings)
        has, names = vars(loader), list(inspect.signature(type(loader)).parameters)
        given = {name: has.get(name, has.get(f"_{name}")) for name in names}
        given["pipelines"] = [_made_again(pipeline, settings) for pipeline in _pipelines(loader)]
        if given["reader_name"]:  # which tells these
            given |= {"size": -1, "last_batch_padded": False}
        if "output_types" in given:
            given["output_types"] = has["_outputs_types"]
        return type(loader)(**{name: value for name, value in given.items() if value is not None})


def _pipelines(loader: Any) -> list[Any]:
    """The pipelines of an iterator; none of another loader."""
    pipelines = getattr(loader, "_pipes", None)
    return pipelines if isinstance(pipelines, list) else []


def _serialised(pipeline: Any) -> bytes | None:
    """What DALI can make `pipeline` again from; None if it calls Python, or is fed from it."""
    try:
        graph: bytes = pipeline._pipe.SerializeToProtobuf()  # noqa: SLF001 - serialize() fails once deserialised
    except RuntimeError:
        return None
    return None if b"ExternalSource" in graph or b"inputs__" in graph else graph


def _settings(pipeline: Any) -> dict[str, Any]:
    """What can be changed of a pipeline, as it is given when one is made."""
    depth = pipeline.cpu_queue_size
    if pipeline.exec_separated:
        depth = {"cpu_size": depth, "gpu_size": pipeline.gpu_queue_size}
    queue = {"prefetch_queue_depth": depth} if pipeline.exec_pipelined else {}
    return {"num_threads": pipeline.num_threads, **queue}


def _made_again(pipeline: Any, settings: Mapping[str, Any]) -> Any:
    present = {name: getattr(pipeline, name) for name in OF_PIPELINE if hasattr(pipeline, name)}
    kind: Any = Pipeline  # whose deserialize() would forget the executor
    again = kind(pipeline.max_batch_size, **{**present, **_settings(pipeline), **settings})
    again.deserialize_and_build(_serialised(pipeline))
    return again


def _has_rows(output: Any) -> bool:
    """Whether each sample has a place in it: a sparse tensor has none for those at its end."""
    is_dense = len(getattr(output, "shape", ())) > 0 and not getattr(output, "is_sparse", False)
    return isinstance(output, list) or is_dense


def _described(info: LoaderInfo, pipelines: Sequence[Any], **more: Any) -> LoaderInfo:
    """`prefetch_depth` is how many batches are ready beside the one that was last asked for."""
    devices = {"cpu" if each.device_id is None else f"cuda:{each.device_id}" for each in pipelines}
    depths = [max(p.cpu_queue_size, p.gpu_queue_size) * p.exec_pipelined for p in pipelines]
    return replace(
        info,
        workers=sum(pipeline.num_threads for pipeline in pipelines),
        prefetch_depth=max(*depths, 1) - 1,
        batch_size=sum(pipeline.max_batch_size for pipeline in pipelines),
        device=", ".join(sorted(devices)),
        pinned=False if devices == {"cpu"} else None,
        **more,
    )


class DALIPipelineAdapter(DALIAdapter):
    """A Pipeline by itself: an epoch is that of its readers, or ends with an external source.

    Its batches are the tuples of TensorLists that `run()` returns; without the dynamic executor
    each is overwritten by the next one. An epoch that was broken off goes on.
    """

    watch = Watch(classes={}, inside=("nvidia.dali",))

    def epoch(self, loader: Any) -> Iterator[Any]:
        """As many runs as an epoch has; raises UsageError where that is not clear."""
        batches = _epoch_batches(loader)
        if loader.empty():  # else the end of an epoch that was broken off would be lost
            loader.reset()
        return _calls(loader.run, batches)

    def samples(self, batch: Any) -> int | None:
        """The samples of the first output."""
        return len(next(map(_shapes, _outputs(batch)), ())) or None

    def nbytes(self, batch: Any) -> int | None:
        """The bytes of all outputs, without padding."""
        return sum(map(_nbytes, _outputs(batch))) or None

    def keep(self, batch: Any) -> Any:
        """Copies of all outputs, computed where that was deferred."""
        if isinstance(batch, dict):
            return {name: _copied(output) for name, output in batch.items()}
        return tuple(map(_copied, batch)) if isinstance(batch, tuple) else _copied(batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, queue, samples of a batch, and the length of its readers' epoch."""
        info = IterableAdapter.describe(self, loader)
        info = _described(info, [loader], length=_epoch_batches(loader))
        return replace(info, ready_batches=0 if loader.empty() else info.prefetch_depth)


class DALIDynamicAdapter(DALIPipelineAdapter):
    """Readers of the dynamic mode, of which each epoch goes on with a shard; and sources."""

    setting_names: ClassVar[Mapping[str, str]] = {}

    def epoch(self, loader: Any) -> Iterator[Any]:
        """`next_epoch()` of a reader; of a source all that it gives until it ends."""
        return loader.next_epoch() if hasattr(loader, "next_epoch") else _calls(loader)

    def describe(self, loader: Any) -> LoaderInfo:
        """The queue of a reader, and the length of its epochs where they have one length."""
        info = IterableAdapter.describe(self, loader)
        has = vars(loader)
        if "_init_args" not in has:
            return info
        size, shards, length = has["_batch_size"], has["_num_shards"], None
        if size and (shards == 1 or has["_stick_to_shard"]):
            samples, shard = loader.get_metadata()["epoch_size_padded"], has["_shard_id"]
            of_shard = samples * (shard + 1) // shards - samples * shard // shards
            length = math.ceil(of_shard / size)
        depth = has["_init_args"].get("prefetch_queue_depth") or 1
        return replace(info, workers=1, prefetch_depth=depth, batch_size=size, length=length)


def _calls(next_batch: Callable[[], Any], batches: int | None = None) -> Iterator[Any]:
    """What so many calls return; None: until StopIteration."""
    try:
        for _ in count() if batches is None else range(batches):
            yield next_batch()
    except StopIteration:
        return


def _epoch_batches(pipeline: Any) -> int | None:
    """The batches of an epoch of the pipeline's readers; None if it has none.

    Raises UsageError if they disagree.
    """
    batches = {}
    for name, meta in pipeline.reader_meta().items():
        shard = math.ceil(meta["epoch_size"] / meta["number_of_shards"])
        batches[name] = math.ceil(shard / pipeline.max_batch_size)
    if len(set(batches.values())) > 1:
        each = ", ".join(f"{name} {count}" for name, count in batches.items())
        raise UsageError(
            f"the readers of this pipeline have epochs of different lengths, in batches ({each}), "
            "so nobody knows what an epoch is; wrap a DALIGenericIterator with reader_name="
        )
    return next(iter(batches.values()), None)


def _outputs(batch: Any) -> Sequence[Any]:
    outputs = tuple(batch.values()) if isinstance(batch, dict) else batch
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _shapes(output: Any) -> Sequence[Sequence[int]]:
    """The shape of each sample of an output; of the dynamic mode without computing it."""
    shape = output.shape() if callable(output.shape) else output.shape
    return shape if isinstance(shape, list) else [shape]


def _nbytes(output: Any) -> int:
    numbers: Any = types
    kind = output.dtype
    itemsize = getattr(kind, "bytes", None) or np.dtype(numbers.to_numpy_type(kind)).itemsize
    return int(itemsize) * sum(map(math.prod, _shapes(output)))


def _copied(output: Any) -> Any:
    """Of its own memory, which the executor that is not dynamic would overwrite."""
    if not hasattr(output, "evaluate"):
        return type(output)(list(output), output.layout())
    from nvidia.dali.experimental import dynamic  # noqa: PLC0415 - older versions have none

    is_batch = isinstance(output, dynamic.Batch)
    return dynamic.batch(output) if is_batch else dynamic.tensor(output).evaluate()
