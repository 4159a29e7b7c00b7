"""nvidia.dali.plugin: DALI's iterators, for PyTorch, JAX and PaddlePaddle."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from loadeval import IterableAdapter, LoaderInfo, is_array, leaves
from loadeval_adapters.dali_epochs import warn_broken_off
from loadeval_adapters.dali_pipeline import ahead_of_run, device_of

if TYPE_CHECKING:
    from collections.abc import Iterator


class DALIAdapter(IterableAdapter):
    """Serves the epochs that DALI itself would: after a `break` the next one is the remainder.

    A built pipeline has no way back: its readers cannot seek, a checkpoint can be restored only
    before it is built, and reading on to the end would take as long as the epoch, and lose
    batches that training would have got. So the remainder is served, with a warning.

    An iterator without `size` and `reader_name` has no length, and may be endless.
    """

    def __init__(self) -> None:
        self._stacked = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """What `for batch in loader` would serve; an iterator that is used up is reset."""
        if not hasattr(loader, "_pipes"):  # no iterator of DALI's, but in its package
            return super().epoch(loader)
        # JAX: the arrays of several pipelines are stacked, unless a sharding joins them.
        several = len(loader._pipes) > 1 or getattr(loader, "_pmap_compatible", False)  # noqa: SLF001 - an iterator tells of its pipelines nowhere else
        self._stacked = several and getattr(loader, "_sharding", loader) is None
        if _is_part_read(loader):
            warn_broken_off()
        return super().epoch(loader)

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
        """Bytes of all tensors; of a sparse one those of its indices and values."""
        return super().nbytes([_dense(leaf) for leaf in leaves(batch)])

    def describe(self, loader: Any) -> LoaderInfo:
        """Threads, queue and batch size of all its pipelines together.

        `ready_batches` is 1 where DALI has prepared a batch, or has begun to: by default it does
        when the iterator is made.
        """
        if not hasattr(loader, "_pipes"):
            return super().describe(loader)
        pipes = loader._pipes  # noqa: SLF001 - as above
        ready = loader._first_batch is not None or not all(pipe.empty() for pipe in pipes)  # noqa: SLF001 - as above
        devices = list(dict.fromkeys(map(device_of, pipes)))
        return LoaderInfo(
            backend=f"{type(loader).__module__}.{type(loader).__qualname__}",
            adapter=f"{type(self).__module__}.{type(self).__qualname__}",
            workers=sum(pipe.num_threads for pipe in pipes),
            # An iterator asks for the next batch before it hands out one.
            prefetch_depth=1 + max(map(ahead_of_run, pipes)),
            batch_size=loader.batch_size * len(pipes),
            pinned=False if devices == ["cpu"] else None,
            device=", ".join(devices),
            length=_length(loader),
            ready_batches=int(ready),
        )


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
    if loader.size < 0:  # it has none, and len() is 0, or fails
        return None
    # Where the last batch is filled with the next epoch's samples, that epoch may be shorter: it
    # is known after the reset, and with `size` not even then.
    carries_over = loader._last_batch_policy.name == "FILL" and not loader._last_batch_padded  # noqa: SLF001 - it has no public name
    at_the_start = loader._counter < loader.size and loader._counter % _step(loader) == 0  # noqa: SLF001 - as above
    return None if carries_over and not at_the_start else len(loader)


def _is_part_read(loader: Any) -> bool:
    # What the epoch before read of this one is counted too, but is less than a batch.
    peeked = getattr(loader, "_peek", None) is not None
    served = loader._counter // _step(loader) - peeked  # noqa: SLF001 - as above
    if served <= 0 or not loader._ever_consumed:  # noqa: SLF001 - DALI's own condition for a reset
        return False
    if loader.size < 0:
        return not all(pipe.empty() for pipe in loader._pipes)  # noqa: SLF001 - as above
    return bool(served < len(loader) and loader._counter < loader.size)  # noqa: SLF001 - as above


def _step(loader: Any) -> int:  # by which the counter goes up with each batch
    return int(loader.batch_size * (1 if loader._reader_name else len(loader._pipes)))  # noqa: SLF001 - as above
