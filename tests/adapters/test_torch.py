"""torch's DataLoader, with real workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from loadeval import LoaderEvaluator
from tests.adapters.loaders import adapter_of, contract, describe

Tensors = TensorDataset(torch.arange(80.0).reshape(40, 2), torch.arange(40))


class Stream(IterableDataset[torch.Tensor]):
    """40 samples in a stream, or without end; split among the workers."""

    def __init__(self, *, endless: bool = False) -> None:
        self.endless = endless

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        numbers = count(first, step) if self.endless else range(first, 40, step)
        return (torch.tensor([float(number)]) for number in numbers)


def shared_memory() -> set[str]:
    """What this process holds of shared memory: descriptors, and mapped segments."""
    held = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor that lists the folder
            held.add(str(descriptor.readlink()))
    return {name for name in held if "torch_" in name}


TestLoaders = contract(
    adapter_of("torch.utils.data"),
    quick=["in_process", "workers"],
    in_process=lambda: DataLoader(Tensors, batch_size=8),
    workers=lambda: DataLoader(Tensors, batch_size=8, num_workers=2),
    persistent_workers=lambda: DataLoader(
        Tensors, batch_size=8, num_workers=2, persistent_workers=True
    ),
    stream=lambda: DataLoader(Stream(), batch_size=8, num_workers=1),
)


def test_the_description_is_the_loaders() -> None:
    loader = DataLoader(
        Tensors, batch_size=8, num_workers=2, prefetch_factor=3, persistent_workers=True
    )
    info = describe(loader)
    assert info.backend == "torch.utils.data.dataloader.DataLoader"
    assert (info.workers, info.prefetch_depth, info.batch_size, info.length) == (2, 6, 8, 5)
    assert (info.pinned, info.persistent_workers) == (False, True)
    assert info.start_method is not None
    plain = describe(DataLoader(Tensors))
    assert (plain.workers, plain.prefetch_depth, plain.start_method) == (0, 0, None)
    assert describe(DataLoader(Stream())).length is None


def test_shards_are_those_that_the_dataset_tells() -> None:
    """A property that fails, or another kind of value, tells none."""

    class OfShards(Stream):
        def __init__(self, **told: Any) -> None:
            super().__init__()
            vars(self).update(told)

    class Failing(Stream):
        @property
        def num_shards(self) -> int:
            raise RuntimeError("the files are not listed yet")

    assert describe(DataLoader(OfShards(num_shards=5))).shards == 5
    for dataset in (Stream(), OfShards(num_shards="5"), Failing(), Tensors):
        assert describe(DataLoader(dataset)).shards is None


def test_a_loader_of_sentence_transformers_has_the_arguments_of_its_trainer() -> None:
    """It is known by its collator, and is made in no line of the program."""
    collator = type("Collator", (), {"__module__": "sentence_transformers.data_collator"})
    info = describe(DataLoader(Tensors, collate_fn=collator()))
    assert (info.setting_names or {})["num_workers"] == "dataloader_num_workers"
    assert info.made_at is None


def test_a_batch_sampler_tells_the_batch_size() -> None:
    sampler = torch.utils.data.BatchSampler(range(40), batch_size=10, drop_last=False)
    loader = DataLoader(Tensors, batch_sampler=sampler)
    assert describe(loader).batch_size == 10


def test_a_dataset_is_iterated_by_itself() -> None:
    evaluator = LoaderEvaluator(Tensors)
    assert len(list(zip(evaluator, range(40), strict=False))) == 40
    assert evaluator.recorded().header.loader.workers is None


@pytest.mark.check
def test_describing_does_not_fix_the_start_method() -> None:
    script = (
        "import multiprocessing\n"
        "from torch.utils.data import DataLoader\n"
        "from loadeval import LoaderEvaluator\n"
        "LoaderEvaluator(DataLoader([1], num_workers=1))\n"
        "multiprocessing.set_start_method('spawn')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_cache_holds_no_shared_memory() -> None:
    before = shared_memory()
    loader = DataLoader(Tensors, batch_size=8, num_workers=2)
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=4)
    assert shared_memory() <= before
    assert not any(leaf.is_shared() for batch in evaluator.cached_batches for leaf in batch)


class Short(IterableDataset[int]):
    """Says that it has four samples, and has twenty."""

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[int]:
        return iter(range(20))


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
def test_nobody_but_the_user_asks_for_the_length_of_a_stream(mode: str) -> None:
    """Torch warns where a stream is longer than it said, but only who has asked for its length."""
    loader = DataLoader(Short(), batch_size=2)
    evaluator = LoaderEvaluator(loader, mode)
    assert evaluator.recorded().header.loader.length == 2
    for _ in chain(evaluator, loader):  # a list would ask
        pass
    assert len(evaluator) == 2
    with pytest.warns(UserWarning, match="Length of IterableDataset"):
        list(loader)
