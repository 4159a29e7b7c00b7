"""Real JPEGs, and DALI pipelines that read them, for the tests of adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.images import crops

IMAGES = 30


@pytest.fixture(scope="session", autouse=True)
def _workers_end_soon() -> Iterator[None]:
    """Torch waits for 5 s for each worker of an iterator that the garbage collector finds."""
    from torch.utils.data import _utils

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
        yield


@pytest.fixture(scope="session")
def jpegs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 30 crops of a photograph, of different sizes, in three classes."""
    folder = tmp_path_factory.mktemp("jpegs")
    boxes = [(n, n, 3 * n + 20, 2 * n + 24) for n in range(IMAGES)]
    for number, jpeg in enumerate(crops(*boxes)):
        (folder / f"class {number % 3}").mkdir(exist_ok=True)
        (folder / f"class {number % 3}" / f"{number:02d}.jpg").write_bytes(jpeg)
    return folder


@pytest.fixture(scope="session")
def dali_pipeline(jpegs: Path) -> Callable[..., Any]:
    """Makes CPU pipelines of an image, of 16 x 16 pixels if `resized`, and its number."""
    from nvidia.dali import fn
    from nvidia.dali.pipeline import pipeline_def

    files = sorted(jpegs.rglob("*.jpg"), key=lambda path: path.name)

    @pipeline_def
    def images_and_numbers(reader: dict[str, Any], resized: bool) -> Any:
        names = [str(path) for path in files]
        numbers = list(range(len(names)))
        encoded, number = fn.readers.file(files=names, labels=numbers, name="Reader", **reader)
        image = fn.decoders.image(encoded, device="cpu")
        return (fn.resize(image, size=(16, 16)) if resized else image), number

    def make(batch_size: int = 8, *, resized: bool = True, **options: Any) -> Any:
        of_reader = {
            name: options.pop(name)
            for name in ("shard_id", "num_shards", "stick_to_shard", "pad_last_batch")
            if name in options
        }
        options = {"num_threads": 2, "device_id": None, **options}
        return images_and_numbers(of_reader, resized, batch_size=batch_size, **options)

    return make
