"""DALI's iterators for PyTorch and sources of batches, and what a training loop gets of them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator


def iterator(pipelines: Any, policy: str = "PARTIAL", **options: Any) -> Any:
    """Of images and their numbers."""
    last = LastBatchPolicy[policy]
    options = {"reader_name": "Reader", **options}
    return DALIGenericIterator(pipelines, ["image", "number"], last_batch_policy=last, **options)


def numbers(batch: Any) -> list[int]:
    """The number of each image."""
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


def numbered(size: int) -> list[Any]:
    """Batches of 4 samples that have the batch's number."""
    return [[np.full((3,), number, np.int32)] * 4 for number in range(size)]
