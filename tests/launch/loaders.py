"""Trains on 80 samples in batches of 8, twice, with a loader of one library: `loaders.py NAME`."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

import numpy as np
import torch

SAMPLES, BATCH_SIZE, EPOCHS = 80, 8, 2


def train(batches: Any) -> None:
    """One epoch."""
    model = torch.nn.Linear(4, 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in batches:
        inputs = torch.as_tensor(np.asarray(batch), dtype=torch.float32).reshape(-1, 4)
        model(inputs).sum().backward()
        optimiser.step()
        optimiser.zero_grad()


def data() -> Any:
    """The samples, a row each."""
    return np.ones((SAMPLES, 4), dtype=np.float32)


def sample(_: int) -> Any:
    """One of them."""
    return np.ones(4, dtype=np.float32)


def dali() -> None:
    """An iterator that resets itself."""
    from nvidia.dali import fn
    from nvidia.dali.pipeline import pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    options: Any = {"batch_size": BATCH_SIZE, "num_threads": 1, "device_id": None}
    made: Any = pipeline_def(**options)(lambda: fn.random.uniform(shape=[4]))
    loader: Any = DALIGenericIterator([made()], ["x"], size=SAMPLES, auto_reset=True)
    for _ in range(EPOCHS):
        train(batch[0]["x"] for batch in loader)


def ray() -> None:
    """iter_torch_batches() makes a new iterable for each epoch."""
    import ray  # type: ignore[import-untyped,unused-ignore]

    ray.init(num_cpus=1, include_dashboard=False, logging_level=logging.ERROR)
    dataset = ray.data.from_numpy(data())
    for _ in range(EPOCHS):
        train(batch["data"] for batch in dataset.iter_torch_batches(batch_size=BATCH_SIZE))


def webloader() -> None:
    """WebDataset's pipeline around a DataLoader."""
    import webdataset  # type: ignore[import-untyped]

    pipeline = webdataset.DataPipeline(lambda: iter(data()))
    loader = webdataset.WebLoader(pipeline, batch_size=BATCH_SIZE, num_workers=1)
    for _ in range(EPOCHS):
        train(loader)


def spdl() -> None:
    """A pipeline that is built for each epoch."""
    from spdl.pipeline import PipelineBuilder

    for _ in range(EPOCHS):
        builder: Any = PipelineBuilder()
        builder.add_source(data()).aggregate(BATCH_SIZE).add_sink(2)
        pipeline = builder.build(num_threads=1)
        with pipeline.auto_stop():
            train(pipeline)


def datasets() -> None:
    """iter() of a dataset whose rows were looked at before."""
    from datasets import Dataset  # type: ignore[import-untyped]

    dataset = Dataset.from_dict({"x": data().tolist()}).with_format("torch")
    for row in dataset:
        if row["x"].shape != (4,):
            raise ValueError(row)
    for _ in range(EPOCHS):
        train(batch["x"] for batch in dataset.iter(batch_size=BATCH_SIZE))


def grain() -> None:
    """Grain's DataLoader, without processes."""
    import grain.python as grain  # type: ignore[import-untyped]

    class Source:
        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, index: int) -> Any:
            return sample(index)

    loader = grain.DataLoader(
        data_source=Source(),
        sampler=grain.IndexSampler(SAMPLES, shard_options=grain.NoSharding(), num_epochs=1),
        operations=[grain.Batch(BATCH_SIZE)],
    )
    for _ in range(EPOCHS):
        train(loader)


LOADERS = {program.__name__: program for program in (dali, ray, webloader, spdl, datasets, grain)}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    LOADERS[sys.argv[1]]()
