"""DALI's loaders, their contract, and what a training loop gets of them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from loadeval.testing import AdapterContract


class GoesOnContract(AdapterContract):
    """DALI cannot end an epoch before its time: the next goes on where it was left."""

    lacks = 1
    """How many batches fewer that next epoch has."""

    test_an_epoch_after_a_broken_one_is_whole = None  # type: ignore[assignment]  # it goes on

    def test_a_released_loader_serves_again(self) -> None:
        adapter, loader = self.make_adapter(), self.make_loader()
        whole = sum(1 for _ in adapter.epoch(self.make_loader()))
        epoch = adapter.epoch(loader)
        next(epoch)
        adapter.release(loader, epoch)
        assert sum(1 for _ in adapter.epoch(loader)) == whole - self.lacks
        if self.lacks:
            assert sum(1 for _ in adapter.epoch(loader)) == whole


def iterator(pipelines: Any, policy: str = "PARTIAL", **options: Any) -> Any:
    """Of images and their numbers."""
    last = LastBatchPolicy[policy]
    options = {"reader_name": "Reader", **options}
    return DALIGenericIterator(pipelines, ["image", "number"], last_batch_policy=last, **options)


def numbers(batch: Any) -> list[int]:
    """The number of each image, of an iterator's batch or of a pipeline's outputs."""
    if isinstance(batch, tuple):
        return [int(number) for number in batch[-1].as_array()[:, 0]]
    return [int(number) for outputs in batch for number in outputs["number"]]


def trained(loader: Any, epochs: int = 3, batches: int | None = None) -> list[list[int]]:
    """The numbers that a training loop gets in each epoch, of at most `batches`."""
    return [[n for batch in islice(loader, batches) for n in numbers(batch)] for _ in range(epochs)]


@pipeline_def
def _from_source(source: Any, cycle: str | None) -> Any:
    return fn.external_source(source=source, cycle=cycle, batch=True)


def sourced(source: Any, cycle: str | None = "raise", batch_size: int = 4) -> Any:
    """A pipeline whose epochs end as its source's do."""
    return _from_source(source, cycle, batch_size=batch_size, num_threads=1, device_id=None)


def batch_of(number: int) -> list[Any]:
    return [np.full((3,), number, np.int32)] * 4


def numbered(size: int) -> list[Any]:
    """Batches of 4 samples that have the batch's number."""
    return [batch_of(number) for number in range(size)]
