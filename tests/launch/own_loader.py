"""A loader as fastai's: a class of its own, which makes torch's iterators for itself.

fastai 2.8 gives them an object with a DataLoader's attributes, whose dataset yields batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import dataloader, get_worker_info

if TYPE_CHECKING:
    from collections.abc import Iterator

ITERATORS: tuple[Any, Any] = (
    dataloader._MultiProcessingDataLoaderIter,
    dataloader._SingleProcessDataLoaderIter,
)


class Settings:
    """What torch's iterators ask of a DataLoader."""

    _IterableDataset_len_called = generator = multiprocessing_context = None
    _auto_collation = drop_last = pin_memory = persistent_workers = False
    in_order, prefetch_factor, timeout, pin_memory_device = True, 2, 0, ""
    dataset_kind = _dataset_kind = dataloader._DatasetKind.Iterable

    def __init__(self, loader: OwnLoader, num_workers: int) -> None:
        self.loader, self.num_workers = loader, num_workers
        self.dataset, self._index_sampler = self, iter(int, 1)

    def worker_init_fn(self, worker: int) -> None:
        self.worker = worker

    def collate_fn(self, batch: Any) -> Any:
        return batch

    def _get_shared_seed(self) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(list(self.loader.batches())[first::step])


class OwnLoader:
    def __init__(self, samples: int, bs: int = 4, num_workers: int = 0) -> None:
        self.dataset, self.bs = torch.arange(float(samples)), bs
        self.settings = Settings(self, num_workers)

    def __len__(self) -> int:
        return len(self.dataset) // self.bs

    def batches(self) -> Iterator[list[torch.Tensor]]:
        data: Any = self.dataset
        return ([chunk] for chunk in data.split(self.bs))

    def __iter__(self) -> Iterator[Any]:
        yield from ITERATORS[self.settings.num_workers == 0](self.settings)
