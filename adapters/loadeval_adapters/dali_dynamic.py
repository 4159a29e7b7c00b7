"""nvidia.dali.experimental.dynamic: readers and sources of DALI's dynamic mode."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nvidia.dali.experimental import dynamic as ndd

from loadeval_adapters.dali import ForwardAdapter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval import LoaderInfo

SOURCES: Any = getattr(ndd, "ExternalSource", ())  # older versions have none


class DALIDynamicAdapter(ForwardAdapter):
    """Calls `next_epoch()` of a reader for each epoch, and an ExternalSource for each batch.

    A reader's batches have the size that it was made with, `max_batch_size`; without one it
    hands out single samples. What a training loop then makes of them, decoding above all, is its
    step: to have that counted as loading, wrap a generator function that does it.
    """

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The next epoch of a reader; a source until it raises StopIteration."""
        if hasattr(loader, "next_epoch"):
            return self.forward(loader, iter(loader.next_epoch()).__next__, _length(loader))
        if isinstance(loader, SOURCES):
            return self.forward(loader, loader, None)
        return super().epoch(loader)  # neither, but in its package

    def samples(self, batch: Any) -> int | None:
        """The batch size of the first output; of single samples, 1."""
        for output in _outputs(batch):
            return int(output.batch_size) if isinstance(output, ndd.Batch) else 1
        return super().samples(batch)

    def nbytes(self, batch: Any) -> int | None:
        """Bytes of all outputs."""
        outputs = _outputs(batch)
        return sum(map(_nbytes_of, outputs)) if outputs else super().nbytes(batch)

    def keep(self, batch: Any) -> Any:
        """Evaluated copies of all outputs, on their device."""
        if not _outputs(batch):
            return super().keep(batch)
        if isinstance(batch, dict):
            return {name: _owned(output) for name, output in batch.items()}
        return tuple(map(_owned, batch)) if isinstance(batch, tuple) else _owned(batch)

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
            batch_size=loader._batch_size,  # noqa: SLF001 - as above
            length=_length(loader),
        )


def _outputs(batch: Any) -> list[Any]:
    """The Batches and Tensors of a batch; none where it is of another kind."""
    found = tuple(batch.values()) if isinstance(batch, dict) else batch
    found = found if isinstance(found, tuple) else (found,)
    return list(found) if all(isinstance(one, (ndd.Batch, ndd.Tensor)) for one in found) else []


def _nbytes_of(output: Any) -> int:
    shapes = output.shape if isinstance(output, ndd.Batch) else [output.shape]
    return int(output.dtype.bytes) * sum(map(math.prod, shapes))


def _owned(output: Any) -> Any:
    return ndd.batch(output) if isinstance(output, ndd.Batch) else ndd.tensor(output).evaluate()


def _length(reader: Any) -> int | None:
    """Batches of all shards, or of the one that the reader stays with; None where they differ."""
    batch_size = reader._batch_size  # noqa: SLF001 - as above
    if batch_size is None:  # asked for its length, it could not be given another size later
        return None
    meta = reader.get_metadata()
    shards, size = meta["number_of_shards"], meta["epoch_size_padded"]
    taken = [meta["shard_id"]] if meta["stick_to_shard"] else range(shards)
    sizes = (size * (shard + 1) // shards - size * shard // shards for shard in taken)
    lengths = {math.ceil(samples / batch_size) for samples in sizes}
    return lengths.pop() if len(lengths) == 1 else None
