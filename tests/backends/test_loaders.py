"""Each backend's code, run by itself and measured, on files of all sorts."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.choice import MOST_DIFFERENCE, OnBadFile
from loadeval.backends.catalogue import IMAGES, REFERENCE
from loadeval.backends.check import Reading, difference_of, truncated_copy
from loadeval.backends.code import Work, code_of
from loadeval.backends.data import find_data
from loadeval.backends.served import ServedBackend
from loadeval.backends.transforms import parse_transforms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from loadeval.backends.data import Sample

pytestmark = pytest.mark.slow

TEXT = "resize 64, crop 56, flip, normalize imagenet"
TRANSFORMS = parse_transforms(TEXT)
HERE = [each for each in IMAGES if each.unavailable({".jpg"}) is None]
NAMES = [each.name for each in HERE]
OTHERS = [name for name in NAMES if name != REFERENCE]


@pytest.fixture(name="photographs", scope="module")
def _photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from loadeval.demo.photographs import make_photographs

    folder = tmp_path_factory.mktemp("photographs")
    make_photographs(folder, 12)
    return folder


class Served:
    """Each backend in its process, started when it is first asked for."""

    def __init__(self, folder: Path, photographs: Path) -> None:
        self.folder = folder
        self.work = Work(photographs, TRANSFORMS, 8, 1)
        self._started: dict[str, ServedBackend] = {}

    def code(self, name: str) -> Path:
        path = self.folder / f"load_with_{name.replace('-', '_')}.py"
        (backend,) = (each for each in HERE if each.name == name)
        path.write_text(code_of(backend, self.work))
        return path

    def __getitem__(self, name: str) -> ServedBackend:
        if name not in self._started:
            self._started[name] = ServedBackend(self.code(name))
        return self._started[name]

    def close(self) -> None:
        for backend in self._started.values():
            backend.close()


@pytest.fixture(name="served", scope="module")
def _served(tmp_path_factory: pytest.TempPathFactory, photographs: Path) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("code"), photographs)
    yield served
    served.close()


def loaded(served: Served, name: str, samples: list[Sample]) -> npt.NDArray[Any]:
    answer = served[name].load(samples)
    assert answer.samples is not None, answer.error
    return answer.samples


@pytest.mark.parametrize("name", OTHERS)
def test_all_load_the_same(served: Served, photographs: Path, name: str) -> None:
    """Shape, type and order are those of Pillow's, and pixels nearly so."""
    samples = list(find_data(photographs).samples)
    reference, own = loaded(served, REFERENCE, samples), loaded(served, name, samples)
    assert own.dtype == reference.dtype == np.float32
    difference = difference_of(own, reference, TRANSFORMS)
    assert difference is not None
    assert difference.mean < MOST_DIFFERENCE


@pytest.mark.parametrize("name", NAMES)
def test_the_code_runs_by_itself(served: Served, name: str) -> None:
    """It loads the whole folder once, and says how fast."""
    command = [sys.executable, str(served.code(name))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"12 images in \d+\.\d\d s: \d+ images/s\n", done.stdout)


BATCHES = """
import sys
import numpy as np
sys.path.insert(0, {folder!r})
import {module} as code
if __name__ == "__main__":
    samples = code.find_samples(code.FOLDER)
    loader = code.make_loader(samples, shuffle=False)
    stop = getattr(loader, "auto_stop", None)
    if stop is None:
        images, labels = zip(*loader)
    else:
        with stop():
            images, labels = zip(*loader)
    np.savez({output!r}, images=np.concatenate(images), labels=np.concatenate(labels))
"""


@pytest.mark.parametrize("name", NAMES)
def test_batches_of_the_printed_code_are_those_that_were_measured(
    served: Served, photographs: Path, tmp_path: Path, name: str
) -> None:
    """To the bit, and with the classes of their folders."""
    path, output = served.code(name), tmp_path / "batches.npz"
    script = BATCHES.format(folder=str(path.parent), module=path.stem, output=str(output))
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    samples = list(find_data(photographs).samples)
    with np.load(output) as batches:
        assert np.array_equal(batches["images"], loaded(served, name, samples))
        assert batches["labels"].tolist() == [label for _, label in samples]


@pytest.mark.parametrize("name", NAMES)
def test_half_a_file_ends_nothing(
    served: Served, photographs: Path, tmp_path: Path, name: str
) -> None:
    """Each raises, skips it or fills in the rest, and reads the good files around it."""
    first, *others = find_data(photographs).samples
    half = truncated_copy(first, tmp_path)
    reading = Reading(served[name], [others[0], half, others[1]])
    assert [others[0], others[1]] == [sample for sample in reading.good if sample != half]
    if half not in reading.good:
        assert reading.bad[0].outcome in {OnBadFile.RAISES, OnBadFile.SKIPS}


@pytest.fixture(name="odd", scope="module")
def _odd(tmp_path_factory: pytest.TempPathFactory, photographs: Path) -> Path:
    """Images that are no plain RGB JPEG, each named after what it is."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("odd")
    with Image.open(find_data(photographs).samples[0][0]) as file:
        image = file.convert("RGB").resize((200, 160))
    image.save(folder / "progressive.jpg", progressive=True)
    image.convert("L").save(folder / "gray.jpg")
    image.convert("CMYK").save(folder / "cmyk.jpg")
    turned = Image.Exif()
    turned[0x0112] = 6
    image.save(folder / "turned.jpg", exif=turned)
    image.resize((1, 1)).save(folder / "one-pixel.jpg")
    image.save(folder / "rgb.png")
    image.convert("RGBA").save(folder / "alpha.png")
    levels = np.asarray(image.convert("L")).astype(np.uint16) * 257
    Image.fromarray(levels).save(folder / "16-bit.png")
    return folder


SAME = ["progressive.jpg", "gray.jpg", "turned.jpg", "one-pixel.jpg", "rgb.png"]
"""What all read as Pillow does; of CMYK, alpha and 16 bits each has an opinion."""


@pytest.mark.parametrize("name", OTHERS)
def test_odd_images_are_read_or_refused(served: Served, odd: Path, name: str) -> None:
    """None ends the process; what is read has the shape of the others, and mostly the pixels."""
    for sample in find_data(odd).samples:
        answer = served[name].load([sample])
        file = sample[0].rpartition("/")[2]
        if answer.samples is None:
            assert answer.error
            assert "ended its process" not in answer.error
            assert file not in SAME or name == "simplejpeg", (file, answer.error)
            continue
        assert answer.samples.shape[1:] == (3, 56, 56), file
        difference = difference_of(answer.samples, loaded(served, REFERENCE, [sample]), TRANSFORMS)
        assert difference is not None
        assert file not in SAME or difference.mean < MOST_DIFFERENCE, (file, difference)


@pytest.mark.parametrize("name", NAMES)
def test_a_loader_by_itself_has_a_rate_and_memory(
    served: Served, photographs: Path, name: str
) -> None:
    samples = list(find_data(photographs).samples) * 100
    alone = served[name].alone(samples, [0], 0.2)
    assert alone.error is None
    assert alone.samples_per_s is not None
    assert alone.samples_per_s > 0
    assert alone.memory_bytes is not None


def test_a_backend_that_ends_its_process_is_told(tmp_path: Path) -> None:
    """It answers no more, and does not hang."""
    path = tmp_path / "ends.py"
    path.write_text("import os\ndef make_loader(samples, workers, shuffle):\n    os._exit(7)\n")
    backend = ServedBackend(path)
    try:
        assert backend.load([]).error == "it ended its process, with exit code 7"
        assert backend.alone([], [0], 0.1).error == "it ended its process, with exit code 7"
    finally:
        backend.close()
