"""JPEGs by DALI, in its threads on the CPU; with device="mixed" a GPU decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

if TYPE_CHECKING:
    import torch


@pipeline_def
def decoded(samples: list[tuple[str, int]], resized: int, cropped: int) -> tuple[Any, Any]:
    """Images, 3 x `cropped` x `cropped` bytes, and their classes."""
    paths, classes = map(list, zip(*samples, strict=True))
    data, labels = fn.readers.file(name="files", files=paths, labels=classes, random_shuffle=True)
    as_stored = {"adjust_orientation": False}  # not turned as EXIF says
    images = fn.decoders.image(data, device="cpu", output_type=types.RGB, **as_stored)
    images = fn.resize(images, resize_shorter=resized, interp_type=types.INTERP_LINEAR)
    images = fn.crop_mirror_normalize(
        images, crop=(cropped, cropped), rounding="truncate", dtype=types.UINT8, output_layout="CHW"
    )
    return images, labels


class Batches(DALIGenericIterator):
    """Batches of images and their classes, as a DataLoader has them."""

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        (batch,) = super().__next__()
        return batch["images"], batch["labels"].flatten().long()


def make_loader(
    samples: list[tuple[str, int]],
    batch_size: int,
    workers: int,
    resized: int = 256,  # the shorter side
    cropped: int = 224,  # a square in the middle
) -> Batches:
    """Batches of images and their classes, in random order."""
    threads = max(workers, 1)
    pipeline = decoded(
        samples, resized, cropped, batch_size=batch_size, num_threads=threads, device_id=None
    )
    return Batches(
        pipeline,
        ["images", "labels"],
        reader_name="files",
        last_batch_policy=LastBatchPolicy.PARTIAL,
        auto_reset=True,
    )
