"""Readers and sources of DALI's dynamic mode, on the CPU."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvidia.dali.experimental import dynamic as ndd

from loadeval import LoaderEvaluator
from loadeval.testing import same_batch
from tests.adapters.loaders import adapter_of, contract, describe
from tests.dali_loaders import GoesOnContract


def reader(jpegs: Path, max_batch_size: int | None = 8, **options: Any) -> Any:
    """A reader of 30 files, each with its number."""
    files = sorted(map(str, jpegs.rglob("*.jpg")), key=lambda path: path[-6:])
    numbers = list(range(len(files)))
    return ndd.readers.File(files=files, labels=numbers, max_batch_size=max_batch_size, **options)


def arrays(output: Any) -> list[Any]:
    """The samples of a Batch, or the one that a Tensor is, as arrays that share its memory."""
    tensors = output.tensors if isinstance(output, ndd.Batch) else [output]
    return [np.asarray(tensor.evaluate()) for tensor in tensors]


def trained(loader: Any, epochs: int, batches: int | None = None) -> list[list[int]]:
    """The numbers of the files that a training loop decodes in each epoch."""
    served: list[list[int]] = []
    for _ in range(epochs):
        served.append([])
        for encoded, numbers in islice(loader, batches):
            assert ndd.decoders.image(encoded, device="cpu").evaluate().dtype == ndd.uint8
            served[-1] += [int(number.item()) for number in arrays(numbers)]
    return served


class Contents(GoesOnContract):
    """Batches and Tensors are compared by what is in them."""

    lacks = 0

    def content(self, batch: Any) -> list[Any]:
        outputs = batch if isinstance(batch, tuple) else (batch,)
        return [array for output in outputs for array in arrays(output)]


class EndingContents(Contents):
    lacks = 1


ADAPTER = adapter_of("nvidia.dali.experimental.dynamic")
TestReaders = contract(
    ADAPTER,
    Contents,
    "jpegs",
    batches=reader,
    samples=lambda jpegs: reader(jpegs, max_batch_size=None),
)
TestExternalSource = contract(
    ADAPTER,
    EndingContents,
    source=lambda: ndd.ExternalSource(
        [ndd.batch([np.full((3,), n)] * 4) for n in range(6)], cycle="raise"
    ),
)


def test_the_description_is_the_readers(jpegs: Path) -> None:
    info = describe(reader(jpegs, prefetch_queue_depth=3))
    assert info.backend == "nvidia.dali.experimental.dynamic.readers.File"
    assert (info.workers, info.prefetch_depth, info.batch_size) == (1, 3, 8)
    assert describe(reader(jpegs)).prefetch_depth == 1


@pytest.mark.parametrize("shards", [1, 2, 3, 4])
@pytest.mark.parametrize("batch_size", [4, 7, 8])
@pytest.mark.parametrize("stick_to_shard", [True, False])
def test_epochs_are_the_readers_own(
    jpegs: Path, shards: int, batch_size: int, stick_to_shard: bool
) -> None:
    options = {"num_shards": shards, "stick_to_shard": stick_to_shard}
    bare = reader(jpegs, batch_size, **options)
    evaluator = LoaderEvaluator(reader(jpegs, batch_size, **options))
    for _ in range(5):
        assert trained(evaluator, 1) == trained(bare.next_epoch(), 1)


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
def test_a_training_loop_gets_the_readers_batches(jpegs: Path, mode: str) -> None:
    with LoaderEvaluator(reader(jpegs, 2), mode=mode, num_cached_batches=15) as evaluator:
        assert [sorted(epoch) for epoch in trained(evaluator, 3)] == [[*range(30)]] * 3
    steps = evaluator.recorded().steps
    assert steps.samples.tolist() == [2] * 45
    files = sum(path.stat().st_size for path in jpegs.rglob("*.jpg"))
    assert steps.nbytes.sum() == 3 * (files + 30 * 4)


def test_a_kept_batch_is_evaluated(jpegs: Path) -> None:
    images = ndd.decoders.image(next(reader(jpegs).next_epoch())[0], device="cpu")
    with ndd.EvalMode.deferred:
        lazy = ndd.resize(images, size=(16, 16))
        kept = ADAPTER().keep((lazy,))[0]
    assert kept._storage is not None
    assert same_batch(arrays(kept), arrays(lazy))
