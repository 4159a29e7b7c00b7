"""Which loader trains this network fastest, and how far is each from ideal loading?

Reads one folder of JPEGs with torch (Pillow, in processes), DALI (on the CPU, and on the GPU where
there is one) and SPDL (Pillow, in threads). Needs torch, nvidia-dali-cuda120 and spdl-core. Writes
the photographs, a run log of each backend and backends.png to the given folder.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from spdl.pipeline import Pipeline, PipelineBuilder
from torch import nn
from torch.utils.data import DataLoader, default_collate

from loadeval import Backend, compare_backends
from loadeval.demo.photographs import make_photographs
from loadeval.demo.run import Photographs, small_network

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH_SIZE = 16
SIDE = 224
WORKERS = 2
"""These are processes of torch, and threads of DALI and SPDL."""
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

Batch = tuple[torch.Tensor, torch.Tensor]


def torch_loader(photographs: Photographs) -> DataLoader[tuple[torch.Tensor, int]]:
    """Decodes in worker processes."""
    return DataLoader(
        photographs,
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=WORKERS,
        pin_memory=DEVICE.type == "cuda",
    )


def spdl_maker(photographs: Photographs) -> Callable[[], Pipeline[Batch]]:
    """A pipeline serves one epoch, so this returns a function that makes one."""

    def make_pipeline() -> Pipeline[Batch]:
        order = random.sample(range(len(photographs)), len(photographs))
        builder: Any = PipelineBuilder()
        builder.add_source(order)
        builder.pipe(photographs.__getitem__, concurrency=WORKERS)
        builder.aggregate(BATCH_SIZE).pipe(default_collate).add_sink(2)
        pipeline: Pipeline[Batch] = builder.build(num_threads=WORKERS)
        return pipeline

    return make_pipeline


def dali_iterator(photographs: Photographs, decoder: str) -> DALIGenericIterator:
    """`decoder` is "cpu", or "mixed" for the GPU."""

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=WORKERS)
    def read_and_resize() -> tuple[Any, Any]:
        files, labels = fn.readers.file(
            name="files",
            files=[str(path) for path in photographs.paths],
            labels=[photographs.classes.index(path.parent.name) for path in photographs.paths],
            random_shuffle=True,
        )
        images: Any = fn.decoders.image(files, device=decoder)
        cubic = types.DALIInterpType.INTERP_CUBIC  # as Pillow does
        images = fn.resize(images, size=(SIDE, SIDE), interp_type=cubic)
        return fn.transpose(images, perm=[2, 0, 1]), labels

    pipeline = read_and_resize(device_id=None if decoder == "cpu" else 0)
    return DALIGenericIterator(pipeline, ["images", "labels"], reader_name="files")


def from_dali(batch: list[dict[str, torch.Tensor]]) -> Batch:
    """Converts DALI's batches: a dictionary per GPU, with int32 labels of shape (16, 1)."""
    (outputs,) = batch
    return outputs["images"], outputs["labels"].squeeze(1).long()


def make_step() -> Callable[[Batch], object]:
    """The training step, the same for all backends."""
    torch.manual_seed(0)
    model = small_network(classes=4).to(DEVICE)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(batch: Batch) -> None:
        images, labels = (tensor.to(DEVICE, non_blocking=True) for tensor in batch)
        loss = criterion(model(images / 255), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def main() -> None:
    """Make the photographs and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=200, help="real batches of each backend")
    parser.add_argument("--output", type=Path, default=Path("backends"), help="a folder")
    options = parser.parse_args()

    torch.set_num_threads(1)  # more would compete with the loaders for cores
    photographs = Photographs(make_photographs(options.output / "photographs", 512))
    backends: dict[str, Any] = {
        "torch": torch_loader(photographs),
        "dali-cpu": Backend(dali_iterator(photographs, "cpu"), convert=from_dali),
        "spdl": spdl_maker(photographs),
    }
    if DEVICE.type == "cuda":
        backends["dali-gpu"] = Backend(dali_iterator(photographs, "mixed"), convert=from_dali)

    result = compare_backends(
        backends,
        make_step(),
        batches=options.batches,
        unit="images",
        log_dir=options.output,
        overwrite=True,
    )
    print(result)
    print(f"\nFigure written to {result.plot(options.output / 'backends.png')}")


if __name__ == "__main__":
    main()
