"""JPEGs by DALI, in its threads on the CPU; with device="mixed" a GPU decodes."""

from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator


@pipeline_def
def decoded(samples, resized, cropped):
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

    def __next__(self):
        (batch,) = super().__next__()
        return batch["images"], batch["labels"].flatten().long()


def make_loader(samples, batch_size, workers, resized=256, cropped=224):
    """Batches of images and their classes, in random order."""
    of_pipeline = {"batch_size": batch_size, "num_threads": max(workers, 1), "device_id": None}
    return Batches(
        decoded(samples, resized, cropped, **of_pipeline),
        ["images", "labels"],
        reader_name="files",
        last_batch_policy=LastBatchPolicy.PARTIAL,
        auto_reset=True,
    )
