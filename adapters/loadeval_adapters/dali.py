"""NVIDIA DALI: its iterators, pipelines without one, and the dynamic mode."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.types import to_numpy_type

from loadeval import (
    IterableAdapter,
    LoaderInfo,
    LoadevalWarning,
    UsageError,
    Watch,
    is_array,
    leaves,
)
from loadeval_adapters.notes import NotTimed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from loadeval import LoaderStages

NOT_TIMED = (
    "DALI tells the times of its operators only to Nsight Systems: run nsys profile -t nvtx,cuda "
    "python train.py; the CPU use of its threads is among the readings of this run"
)
BROKEN_OFF = (
    "this epoch begins where the last one was broken off (replay does that when it fills its "
    "cache), because DALI cannot go back to the start. To measure complete epochs, read each to "
    "its end, or wrap a callable that returns a new loader"
)
PYTHON_INSIDE = (
    "this DALI pipeline calls Python functions, or is fed from Python, and DALI serialises neither "
    "to build the pipeline again; change its settings where it is made"
)
DISTRIBUTIONS = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")
NAMES = {"num_workers": "num_threads", "prefetch_depth": "prefetch_queue_depth"}
OURS = ("loadeval", "loadeval_adapters")
FED = re.compile(rb"\n[\x00-\x7f](ExternalSource|\w*inputs__)")
"""Finds, in a serialised pipeline, an operator whose data are not serialised with it."""
KEPT = (
    "device_id",
    "seed",
    "exec_pipelined",
    "exec_async",
    "exec_dynamic",
    "stream_policy",
    "concurrency",
    "set_affinity",
    "enable_memory_stats",
)
"""Arguments of a Pipeline that are properties of it, beside those that can be changed."""


def warn_broken_off() -> None:
    """Warn about an epoch that begins in the middle, at the caller outside loadeval."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals["__name__"].split(".")[0] in OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(BROKEN_OFF, LoadevalWarning, stacklevel=level)


class ForwardAdapter(IterableAdapter):
    """The adapter of loaders that serve batches by a call, and cannot start an epoch again."""

    watch = Watch(classes={}, inside=("nvidia.dali",))
    distributions = DISTRIBUTIONS

    def __init__(self) -> None:
        self._part_read: Any = None

    def forward(
        self, loader: Any, next_batch: Callable[[], Any], batches: int | None
    ) -> Iterator[Any]:
        """An epoch of at most `batches` calls; None: until StopIteration."""
        if loader is self._part_read:
            warn_broken_off()
        return self._calls(loader, next_batch, batches)

    def stages(self, loader: Any) -> LoaderStages | None:  # noqa: ARG002 - the same for all
        """Says once that DALI's operators are not timed."""
        return NotTimed(NOT_TIMED)

    def _calls(
        self, loader: Any, next_batch: Callable[[], Any], batches: int | None
    ) -> Iterator[Any]:
        try:
            for left in count(1) if batches is None else reversed(range(batches)):
                self._part_read = loader if left else None
                yield next_batch()
        except StopIteration:
            self._part_read = None


class DALIAdapter(IterableAdapter):
    """Serves the epochs that DALI itself would: after a `break` the next one is the remainder.

    A built pipeline has no way back: its readers cannot seek, a checkpoint can be restored only
    before it is built, and reading on to the end would take as long as the epoch, and lose
    batches that training would have got. So the remainder is served, with a warning.

    An iterator without `size` and `reader_name` has no length, and may be endless.
    """

    watch = Watch(
        classes={"nvidia.dali.plugin.base_iterator": ("_DaliBaseIterator",)},
        inside=("nvidia.dali",),
    )
    setting_names = NAMES
    distributions = DISTRIBUTIONS

    def __init__(self) -> None:
        self._stacked = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """What `for batch in loader` would serve; an iterator that is used up is reset."""
        if not hasattr(loader, "_pipes"):  # not an iterator of DALI's, but in its package
            return super().epoch(loader)
        # JAX: the arrays of several pipelines are stacked, unless a sharding joins them.
        several = len(loader._pipes) > 1 or getattr(loader, "_pmap_compatible", False)  # noqa: SLF001 - an iterator tells of its pipelines nowhere else
        self._stacked = several and getattr(loader, "_sharding", loader) is None
        if _is_part_read(loader):
            warn_broken_off()
        return super().epoch(loader)

    def stages(self, loader: Any) -> LoaderStages | None:  # noqa: ARG002 - the same for all
        """Says once that DALI's operators are not timed."""
        return NotTimed(NOT_TIMED)

    def samples(self, batch: Any) -> int | None:
        """The samples of all pipelines together: for PyTorch, each has a dict in a list."""
        if self._stacked:
            shapes = (leaf.shape for leaf in leaves(batch) if is_array(leaf))
            return next((math.prod(shape[:2]) for shape in shapes if len(shape) > 1), None)
        if not isinstance(batch, list):
            return super().samples(batch)
        counts = [_samples_in(outputs) for outputs in batch]
        known = [count for count in counts if count is not None]
        return sum(known) if known and len(known) == len(counts) else None

    def nbytes(self, batch: Any) -> int | None:
        """Bytes of all tensors; a sparse one counts its indices and values."""
        return super().nbytes([_dense(leaf) for leaf in leaves(batch)])

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, queue and batch size of all its pipelines together.

        `ready_batches` is 1 where DALI has prepared a batch, or has begun to: by default it does
        when the iterator is made.
        """
        if not hasattr(loader, "_pipes"):
            return super().describe(loader)
        pipes = loader._pipes  # noqa: SLF001 - DALI has no public name
        ready = loader._first_batch is not None or not all(pipe.empty() for pipe in pipes)  # noqa: SLF001 - DALI has no public name
        devices = list(dict.fromkeys(map(_device_of, pipes)))
        return LoaderInfo(
            backend=f"{type(loader).__module__}.{type(loader).__qualname__}",
            adapter=f"{type(self).__module__}.{type(self).__qualname__}",
            workers=sum(pipe.num_threads for pipe in pipes),
            # An iterator asks for the next batch before it hands out one.
            prefetch_depth=1 + max(map(_batches_ahead, pipes)),
            batch_size=loader.batch_size * len(pipes),
            pinned=False if devices == ["cpu"] else None,
            device=", ".join(devices),
            length=_length(loader),
            ready_batches=int(ready),
            setting_names=self.setting_names,
        )

    def tunable(self, loader: Any) -> Mapping[str, Any]:
        """The settings of the first pipeline of an iterator for PyTorch; empty for others."""
        return _tunable(loader._pipes) if _arguments(loader) else {}  # noqa: SLF001 - DALI has no public name

    def reconfigured(self, loader: Any, settings: Mapping[str, Any]) -> Any:
        """An iterator over new pipelines, all with `settings`, at the start of their data."""
        given = _arguments(loader)
        if not given:
            return super().reconfigured(loader, settings)
        graphs = [(pipe, _serialised(pipe)) for pipe in loader._pipes]  # noqa: SLF001 - DALI has no public name
        if not settings.keys() <= self.tunable(loader).keys():
            return super().reconfigured(loader, settings)
        return type(loader)([_rebuilt(pipe, graph, settings) for pipe, graph in graphs], **given)


def _arguments(loader: Any) -> dict[str, Any]:
    """Arguments of an iterator like `loader`, beside pipelines; empty if they are not known."""
    constructor: Any = next(kind for kind in type(loader).__mro__ if "__init__" in vars(kind))
    if constructor.__module__ != "nvidia.dali.plugin.pytorch":
        return {}
    given = {
        "auto_reset": loader._auto_reset,  # noqa: SLF001 - DALI has no public name
        "last_batch_policy": loader._last_batch_policy,  # noqa: SLF001 - DALI has no public name
        "prepare_first_batch": loader._prepare_first_batch,  # noqa: SLF001 - DALI has no public name
    }
    if loader._reader_name:  # noqa: SLF001 - DALI has no public name
        given["reader_name"] = loader._reader_name  # noqa: SLF001 - DALI has no public name
    else:
        given["size"] = loader._size  # noqa: SLF001 - DALI has no public name
        given["last_batch_padded"] = loader._last_batch_padded  # noqa: SLF001 - DALI has no public name
    names = inspect.signature(constructor.__init__).parameters
    if "output_map" in names:
        given["output_map"] = loader.output_map
    if "output_types" in names:
        given["output_types"] = loader._outputs_types  # noqa: SLF001 - DALI has no public name
    return given


def _samples_in(outputs: dict[str, Any]) -> int | None:
    for output in outputs.values():
        if isinstance(output, list):  # of DALIRaggedIterator: a tensor for each sample
            return len(output)
        # A sparse tensor has no rows for samples at its end that are empty.
        if len(output.shape) > 0 and not getattr(output, "is_sparse", False):
            return int(output.shape[0])
    return None


def _dense(leaf: Any) -> Any:
    return (leaf._indices(), leaf._values()) if getattr(leaf, "is_sparse", False) else leaf  # noqa: SLF001 - the public ones want it coalesced


def _length(loader: Any) -> int | None:
    if loader.size < 0:  # it has no length: len() is 0, or fails
        return None
    # Where the last batch is filled with the next epoch's samples, that epoch may be shorter: it
    # is known after the reset, and with `size` not even then.
    carries_over = loader._last_batch_policy.name == "FILL" and not loader._last_batch_padded  # noqa: SLF001 - it has no public name
    at_the_start = loader._counter < loader.size and loader._counter % _step(loader) == 0  # noqa: SLF001 - DALI has no public name
    return None if carries_over and not at_the_start else len(loader)


def _is_part_read(loader: Any) -> bool:
    # The counter includes what the last epoch read of this one, but that is less than a batch.
    peeked = getattr(loader, "_peek", None) is not None
    served = loader._counter // _step(loader) - peeked  # noqa: SLF001 - DALI has no public name
    if served <= 0 or not loader._ever_consumed:  # noqa: SLF001 - DALI's own condition for a reset
        return False
    if loader.size < 0:
        return not all(pipe.empty() for pipe in loader._pipes)  # noqa: SLF001 - DALI has no public name
    return bool(served < len(loader) and loader._counter < loader.size)  # noqa: SLF001 - DALI has no public name


def _step(loader: Any) -> int:  # how far the counter goes up with each batch
    return int(loader.batch_size * (1 if loader._reader_name else len(loader._pipes)))  # noqa: SLF001 - DALI has no public name


class DALIPipelineAdapter(ForwardAdapter):
    """Runs a pipeline for as many batches as its reader's epoch has, or until a source ends.

    A batch is what `run()` returns, a tuple of TensorLists. The reader's epoch is that of its
    shard, the last batch included, which the reader fills. Without a reader, and with a source
    that does not end, it is endless.
    """

    setting_names = NAMES

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The outputs of as many runs as an epoch has; a source that has ended begins anew."""
        batches = _batches_in_an_epoch(loader)
        if loader.empty():  # else the reset would lose the end of an epoch that was broken off
            loader.reset()
        return self.forward(loader, loader.run, batches)

    def samples(self, batch: Any) -> int | None:
        """The length of the first TensorList."""
        return len(batch[0]) if batch else None

    def nbytes(self, batch: Any) -> int | None:
        """Bytes of all TensorLists, without padding."""
        return sum(map(_tensors_nbytes, batch)) if batch else None

    def keep(self, batch: Any) -> Any:
        """TensorLists of their own memory: `exec_dynamic=False` overwrites those of a run."""
        return tuple(type(tensors)(list(tensors), tensors.layout()) for tensors in batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, queue and batch size; builds the pipeline where that is still to be done."""
        length = _batches_in_an_epoch(loader)
        return replace(
            super().describe(loader),
            workers=loader.num_threads,
            prefetch_depth=_batches_ahead(loader),
            batch_size=loader.max_batch_size,
            pinned=False if loader.device_id is None else None,
            device=_device_of(loader),
            length=length,
            ready_batches=0 if loader.empty() else _batches_ahead(loader),
        )

    def tunable(self, loader: Any) -> Mapping[str, Any]:
        """Threads and queue; nothing where Python functions are in the pipeline, or feed it."""
        return _tunable([loader])

    def reconfigured(self, loader: Any, settings: Mapping[str, Any]) -> Any:
        """A new pipeline, built, at the start of its data; without a `seed` it draws its own."""
        graph = _serialised(loader)
        if not settings.keys() <= self.tunable(loader).keys():
            return super().reconfigured(loader, settings)
        return _rebuilt(loader, graph, settings)


def _serialised(pipe: Any) -> bytes:
    """Build `pipe`, and return what DALI can rebuild it from. Raises UsageError if it cannot."""
    pipe.build()
    try:
        graph: bytes = pipe._pipe.SerializeToProtobuf()  # noqa: SLF001 - serialize() fails for a deserialised one
    except RuntimeError as error:  # a Python function is one of the operators
        raise UsageError(PYTHON_INSIDE) from error
    if FED.search(graph):
        raise UsageError(PYTHON_INSIDE)
    return graph


def _tunable(pipes: list[Any]) -> dict[str, Any]:
    """The first pipe's settings that can be changed; empty if one of `pipes` cannot be rebuilt."""
    try:
        for pipe in pipes:
            _serialised(pipe)
    except UsageError:
        return {}
    return _settings(pipes[0])


def _settings(pipe: Any) -> dict[str, Any]:
    depth = pipe.cpu_queue_size
    if pipe.exec_separated:
        depth = {"cpu_size": depth, "gpu_size": pipe.gpu_queue_size}
    queue = {"prefetch_queue_depth": depth} if pipe.exec_pipelined else {}
    return {"num_threads": pipe.num_threads, **queue}


def _rebuilt(pipe: Any, graph: bytes, settings: Mapping[str, Any]) -> Any:
    # Pipeline.deserialize() would forget the executor.
    kept = {name: getattr(pipe, name) for name in KEPT if hasattr(pipe, name)}
    kept["bytes_per_sample"] = pipe._bytes_per_sample  # noqa: SLF001 - it is no property
    kept["enable_checkpointing"] = pipe._enable_checkpointing  # noqa: SLF001 - DALI has no public name
    chosen = kept | _settings(pipe) | dict(settings)
    made = Pipeline(pipe.max_batch_size, **chosen)  # type: ignore[no-untyped-call]  # DALI's
    made.deserialize_and_build(graph)  # type: ignore[no-untyped-call]  # DALI's
    return made


def _batches_ahead(pipe: Any) -> int:
    """How many batches a pipeline has ready beside the one that it was last asked for."""
    return max(pipe.cpu_queue_size, pipe.gpu_queue_size) - 1 if pipe.exec_pipelined else 0


def _device_of(pipe: Any) -> str:
    """The device that a pipeline works on."""
    return "cpu" if pipe.device_id is None else f"cuda:{pipe.device_id}"


def _batches_in_an_epoch(pipe: Any) -> int | None:
    per_reader = {}
    for name, meta in pipe.reader_meta().items():
        shard = math.ceil(meta["epoch_size"] / meta["number_of_shards"])
        per_reader[name] = math.ceil(shard / pipe.max_batch_size)
    lengths = set(per_reader.values())
    if len(lengths) > 1:
        shown = ", ".join(f"{name} {batches}" for name, batches in per_reader.items())
        raise UsageError(
            f"the pipeline's readers differ in batches per epoch ({shown}): expected one length; "
            "wrap a DALIGenericIterator with reader_name=, or a callable that yields pipe.run() "
            "as often as your epoch has batches"
        )
    return lengths.pop() if lengths else None


def _tensors_nbytes(tensors: Any) -> int:
    itemsize = np.dtype(to_numpy_type(tensors.dtype)).itemsize  # type: ignore[no-untyped-call]  # DALI's
    return itemsize * sum(map(math.prod, tensors.shape()))


class DALIDynamicAdapter(ForwardAdapter):
    """Calls `next_epoch()` of a reader for each epoch, and an ExternalSource for each batch.

    A reader's batches have the size that it was made with, `max_batch_size`; without one it
    hands out single samples. What a training loop then makes of them, decoding above all, is its
    step: to have that counted as loading, wrap a generator function that does it.
    """

    def __init__(self) -> None:
        super().__init__()
        from nvidia.dali.experimental import dynamic  # noqa: PLC0415 - older versions have none

        self._dynamic = dynamic

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The next epoch of a reader; a source until it raises StopIteration."""
        if hasattr(loader, "next_epoch"):
            return self.forward(loader, iter(loader.next_epoch()).__next__, _reader_length(loader))
        sources: Any = getattr(self._dynamic, "ExternalSource", ())  # older versions have none
        if isinstance(loader, sources):
            return self.forward(loader, loader, None)
        return super().epoch(loader)  # neither a reader nor a source, but in its package

    def samples(self, batch: Any) -> int | None:
        """The batch size of the first output; 1 for single samples."""
        for output in self._outputs(batch):
            return int(output.batch_size) if isinstance(output, self._dynamic.Batch) else 1
        return super().samples(batch)

    def nbytes(self, batch: Any) -> int | None:
        """Bytes of all outputs."""
        outputs = self._outputs(batch)
        return sum(map(self._nbytes_of, outputs)) if outputs else super().nbytes(batch)

    def keep(self, batch: Any) -> Any:
        """Evaluated copies of all outputs, on their device."""
        if not self._outputs(batch):
            return super().keep(batch)
        if isinstance(batch, dict):
            return {name: self._owned(output) for name, output in batch.items()}
        return tuple(map(self._owned, batch)) if isinstance(batch, tuple) else self._owned(batch)

    def describe(self, loader: Any) -> LoaderInfo:
        """A reader's batch size and queue, and its length where that is the same for all epochs."""
        info = super().describe(loader)
        if not hasattr(loader, "next_epoch"):
            return info
        ahead = loader._init_args.get("prefetch_queue_depth")  # noqa: SLF001 - a reader tells it nowhere else
        return replace(
            info,
            workers=1,  # a reader reads ahead in a thread of its own
            prefetch_depth=1 if ahead is None else ahead,
            batch_size=loader._batch_size,  # noqa: SLF001 - DALI has no public name
            length=_reader_length(loader),
        )

    def _outputs(self, batch: Any) -> list[Any]:
        """The Batches and Tensors of a batch; empty if it is of another kind."""
        outputs = tuple(batch.values()) if isinstance(batch, dict) else batch
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        kinds = (self._dynamic.Batch, self._dynamic.Tensor)
        return list(outputs) if all(isinstance(output, kinds) for output in outputs) else []

    def _nbytes_of(self, output: Any) -> int:
        shapes = output.shape if isinstance(output, self._dynamic.Batch) else [output.shape]
        return int(output.dtype.bytes) * sum(map(math.prod, shapes))

    def _owned(self, output: Any) -> Any:
        if isinstance(output, self._dynamic.Batch):
            return self._dynamic.batch(output)
        return self._dynamic.tensor(output).evaluate()


def _reader_length(reader: Any) -> int | None:
    """Batches of all shards, or of the one that the reader stays with; None where they differ."""
    batch_size = reader._batch_size  # noqa: SLF001 - DALI has no public name
    if batch_size is None:  # once asked for its length, it could not be given another size
        return None
    meta = reader.get_metadata()
    shards, size = meta["number_of_shards"], meta["epoch_size_padded"]
    taken = [meta["shard_id"]] if meta["stick_to_shard"] else range(shards)
    sizes = (size * (shard + 1) // shards - size * shard // shards for shard in taken)
    lengths = {math.ceil(samples / batch_size) for samples in sizes}
    return lengths.pop() if len(lengths) == 1 else None
