"""LitData, with a dataset that it has optimised itself."""

from __future__ import annotations

import multiprocessing
import signal
from typing import Any

import litdata  # type: ignore[import-untyped]  # it ships no marker of its types
import numpy as np
import pytest

from tests.adapters.loaders import adapter_of, contract, counted, describe

SAMPLES = 40


def sample(number: int) -> dict[str, Any]:
    return {"x": np.full((3, 2), number, np.float32), "y": number}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset of 40 samples in four chunks."""
    path = str(tmp_path_factory.mktemp("optimised"))
    on_interrupt = signal.getsignal(signal.SIGINT)
    litdata.optimize(
        fn=sample,
        inputs=list(range(SAMPLES)),
        output_dir=path,
        num_workers=1,
        chunk_size=10,
        # LitData sets it for the whole process, to "spawn" unless told.
        start_method=multiprocessing.get_start_method(),
    )
    signal.signal(signal.SIGINT, on_interrupt)  # LitData's would end the process without a word
    return path


def loader_of(folder: str, **options: Any) -> Any:
    return litdata.StreamingDataLoader(litdata.StreamingDataset(folder), batch_size=8, **options)


TestLoaders = contract(
    adapter_of("torch.utils.data"),
    given="folder",
    dataloader=loader_of,
    workers=lambda folder: loader_of(folder, num_workers=2),
    persistent_workers=lambda folder: loader_of(folder, num_workers=2, persistent_workers=True),
)
TestDataset = contract(
    adapter_of("litdata.streaming.dataset"), given="folder", dataset=litdata.StreamingDataset
)


def test_a_loader_is_described_as_a_dataloader(folder: str) -> None:
    info = describe(loader_of(folder, num_workers=2, prefetch_factor=3))
    assert info.backend == "litdata.streaming.dataloader.StreamingDataLoader"
    assert info.adapter.endswith(".PyTorchAdapter")
    assert (info.workers, info.prefetch_depth, info.batch_size) == (2, 6, 8)
    assert info.length == len(loader_of(folder, num_workers=2))
    assert info.start_method == multiprocessing.get_start_method()


def test_a_dataset_has_no_workers_of_its_own(folder: str) -> None:
    """Its `num_workers` and `batch_size` are those of a loader that may read it."""
    info = describe(litdata.StreamingDataset(folder))
    assert info.backend == "litdata.streaming.dataset.StreamingDataset"
    assert (info.workers, info.prefetch_depth) == (None, None)
    assert (info.batch_size, info.length) == (1, SAMPLES)


def test_samples_are_counted(folder: str) -> None:
    assert counted(loader_of(folder, drop_last=False)) == [8] * 5
    assert counted(litdata.StreamingDataset(folder)) == [1] * SAMPLES
