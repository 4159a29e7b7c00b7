"""DALI that decodes on the device: the same batches, and DALI as one of two backends."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from bench.gpu.claims import DALI, DALI_BACKENDS
from bench.gpu.device import Products
from bench.judge import backends, lines_of
from loadeval import Backend, LoaderEvaluator, compare_backends
from tests.images import crops, decode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench.gpu.conftest import Notes

    Images = dict[int, torch.Tensor]

dali: Any = None
with suppress(ImportError, OSError):
    from nvidia import dali
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

pytestmark = pytest.mark.gpu

IMAGES, BATCH_SIZE, SIDE = 96, 16, 128
BATCHES = IMAGES // BATCH_SIZE
EPOCHS, KEPT = 4, 2
STEP_MS = 5.0
THREADS = min(4, len(os.sched_getaffinity(0)))
"""Threads of DALI; processes of torch."""
REPEATED = 8
"""How often an epoch of compare_backends has each image: shorter ones are all warm-up."""


@pytest.fixture(scope="module", name="files")
def _files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Crops of a photograph, all of them different."""
    folder = tmp_path_factory.mktemp("jpegs")
    boxes = [(number, number, number + 400, number + 400) for number in range(IMAGES)]
    paths = [folder / f"{number:02d}.jpg" for number in range(IMAGES)]
    for path, jpeg in zip(paths, crops(*boxes), strict=True):
        path.write_bytes(jpeg)
    return paths


def iterator(files: list[Path]) -> Any:
    """Over images of SIDE x SIDE pixels and their numbers, not shuffled; decoded on the device."""
    fn, types = dali.fn, dali.types

    @dali.pipeline_def(  # type: ignore[untyped-decorator]  # it may be missing
        batch_size=BATCH_SIZE, num_threads=THREADS, device_id=0
    )
    def images_and_numbers() -> Any:
        encoded, number = fn.readers.file(
            files=list(map(str, files)), labels=list(range(len(files))), name="Reader"
        )
        # The hardware decoders take what share they can, and round otherwise than the others.
        image = fn.decoders.image(encoded, device="mixed", hw_decoder_load=0.0)
        image = fn.resize(image, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR)
        return fn.transpose(image, perm=[2, 0, 1]), number

    return DALIGenericIterator(
        images_and_numbers(), ["image", "number"], reader_name="Reader", auto_reset=True
    )


def epoch(loader: Iterable[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Numbers and images of its batches, copied without waiting for the device."""
    return [
        (outputs["number"].flatten().clone(), outputs["image"].clone()) for (outputs,) in loader
    ]


def images_of(
    epochs: Iterable[tuple[torch.Tensor, torch.Tensor]],
) -> list[tuple[int, torch.Tensor]]:
    """Each image with its number, in order."""
    return [
        (int(number), image)
        for numbers, images in epochs
        for number, image in zip(numbers.cpu(), images.cpu(), strict=True)
    ]


def same(images: list[tuple[int, torch.Tensor]], files: list[tuple[int, torch.Tensor]]) -> int:
    """How many images are those that DALI serves for their number."""
    served = dict(files)
    return sum(torch.equal(image, served[number]) for number, image in images)


@pytest.mark.parametrize("mode", ["log", "alternate", "replay"])
def test_batches_are_those_of_dali(
    mode: str, files: list[Path], tmp_path: Path, note: Notes
) -> None:
    """The same images come, in order, on the same device, with all their pixels."""
    if dali is None:
        note(DALI, mode, expected="-", measured="DALI is not installed", held=None)
        return
    bare = images_of(epoch(iterator(files)))
    log = tmp_path / "run.jsonl"
    options: dict[str, Any] = {"num_cached_batches": KEPT} if mode == "replay" else {}
    options["log_file"] = log
    with LoaderEvaluator(iterator(files), mode, probes=(), **options) as evaluator:
        batches = [batch for _ in range(EPOCHS) for batch in epoch(evaluator)]
    served = images_of(batches)
    numbers = [number for number, _ in served]
    per_epoch = {
        "log": list(range(IMAGES)),
        "alternate": sorted(numbers[:IMAGES]),
        "replay": list(range(KEPT * BATCH_SIZE)) * (BATCHES // KEPT),
    }[mode]
    if mode == "alternate":  # each once, in an order of its own
        numbers = [n for e in range(EPOCHS) for n in sorted(numbers[e * IMAGES : (e + 1) * IMAGES])]
        per_epoch = list(range(IMAGES))
    right = same(served, bare)
    devices = sorted({str(images.device) for _, images in batches})
    (header,) = lines_of(log, "header")
    named_device = header["loader"]["device"]
    arms = {"log": {"real"}, "alternate": {"real", "ideal"}, "replay": {"ideal"}}[mode]
    note(
        DALI,
        mode,
        expected=f"{EPOCHS * IMAGES} images right and in place, on cuda:0",
        measured=f"{right} right{'' if numbers == per_epoch * EPOCHS else ', not in place'}, on "
        f"{', '.join(devices)}, called {named_device}",
        held=right == len(served) == EPOCHS * IMAGES
        and numbers == per_epoch * EPOCHS
        and devices == ["cuda:0"]
        and named_device == "cuda:0"
        and {block["arm"] for block in lines_of(log, "block")} == arms,
    )


class Photographs(Dataset[tuple[torch.Tensor, int]]):
    """The same images, decoded by Pillow."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = torch.from_numpy(np.array(decode(self.files[index].read_bytes())))
        pixels = pixels.permute(2, 0, 1)
        resized = functional.interpolate(pixels[None].float(), (SIDE, SIDE))[0]
        return resized.to(torch.uint8), index


def from_dali(batch: list[dict[str, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    (outputs,) = batch
    return outputs["image"], outputs["number"].squeeze(1).long()


def test_backends_are_compared(files: list[Path], tmp_path: Path, note: Notes) -> None:
    """A DataLoader whose workers decode, and DALI, under one step on the device."""
    if dali is None:
        note(DALI_BACKENDS, "-", expected="-", measured="DALI is not installed", held=None)
        return
    files = files * REPEATED
    products = Products(STEP_MS)

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        images, _ = batch
        images.to("cuda", non_blocking=True).float().mean()
        products()

    loader = DataLoader(
        Photographs(files), BATCH_SIZE, shuffle=True, num_workers=THREADS, pin_memory=True
    )
    compare_backends(
        {"torch": loader, "dali": Backend(iterator(files), from_dali)},
        step,
        batches=60,
        rounds=4,
        log_dir=tmp_path,
        probes=(),
    )
    for backend in backends(sorted(tmp_path.iterdir())):
        real, speedup = backend.real, backend.speedup
        measured = backend.error or "nothing"
        interval = None
        if real is not None and speedup is not None:
            measured = f"{real.value:,.0f} images/s, {speedup.value:.2f}x if loading were free"
            if speedup.low is not None and speedup.high is not None:
                interval = speedup.low, speedup.high
        note(
            DALI_BACKENDS,
            backend.name,
            expected="a throughput, and a speed-up of 1x or more",
            measured=measured,
            held=interval is not None and interval[1] >= 1,
            interval=interval,
        )
