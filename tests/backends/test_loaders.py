"""Each backend's code, run by itself and measured, on files of all sorts."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.choice import MOST_DIFFERENCE, UNITS, Kind, OnBadFile, Standing
from loadeval.backends.catalogue import IMAGES
from loadeval.backends.check import Reading, difference_of
from loadeval.backends.code import Work, code_of
from loadeval.backends.data import find_data
from loadeval.backends.kinds import KINDS
from loadeval.backends.samples import truncated_copy
from loadeval.backends.served import ServedBackend
from tests.backends.folders import COUNT, FOLDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from loadeval.backends.catalogue import WrittenBackend
    from loadeval.backends.samples import Sample
    from loadeval.backends.served import Loaded

pytestmark = pytest.mark.check

OTHER_IMAGES = [
    each.name for each in IMAGES if each.name != "pillow" and each.unavailable({".jpg"}) is None
]


def unavailable(backend: WrittenBackend) -> list[pytest.MarkDecorator]:
    """Skips what is not installed, or does not import."""
    lacks = backend.unavailable(backend.suffixes)
    reason = f"{backend.name} is {lacks and lacks.value}: pip install {backend.install}"
    if lacks is None and backend.name == "torchcodec":  # needs FFmpeg, and a torch that fits
        try:
            importlib.import_module("torchcodec")
        except (OSError, RuntimeError) as error:
            lacks, reason = Standing.FAILED, f"torchcodec does not import: {error}"
    return [] if lacks is None else [pytest.mark.skip(reason)]


CASES = [
    pytest.param(
        (kind, backend.name), id=f"{kind.name.lower()}-{backend.name}", marks=unavailable(backend)
    )
    for kind in FOLDERS
    for backend in KINDS[kind].backends
    if backend.device == "cpu" or backend.unavailable(()) is None
]


class Served:
    """Each backend of a kind in its process, started when it is first asked for."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.folder = folder
        (folder / "data").mkdir()
        FOLDERS[kind].make(folder / "data")
        self.data = find_data(folder / "data")
        text = FOLDERS[kind].transforms.format(folder=self.data.folder)
        self.transforms = KINDS[kind].parse(text)
        self._work = Work(
            folder=self.data.folder,
            transforms=self.transforms,
            batch_size=8,
            workers=1,
            kind=kind,
            suffixes=self.data.suffixes,
            label=self.data.label,
            field=self.data.field,
        )
        self._started: dict[str, ServedBackend] = {}

    def code(self, name: str) -> Path:
        path = self.folder / f"load_{self.data.kind.name.lower()}_{name.replace('-', '_')}.py"
        (backend,) = (each for each in KINDS[self.data.kind].backends if each.name == name)
        path.write_text(code_of(backend, self._work))
        return path

    def given(self, samples: Sequence[Sample]) -> list[Any]:
        return KINDS[self.data.kind].given(samples, self.folder)

    def load(self, name: str, samples: Sequence[Sample]) -> Loaded:
        return self[name].load(self.given(samples))

    def loaded(self, name: str, samples: Sequence[Sample]) -> npt.NDArray[Any]:
        answer = self.load(name, samples)
        assert answer.samples is not None, answer.error
        return answer.samples

    def __getitem__(self, name: str) -> ServedBackend:
        if name not in self._started:
            self._started[name] = ServedBackend(self.code(name))
        return self._started[name]

    def close(self) -> None:
        for backend in self._started.values():
            backend.close()


@pytest.fixture(name="kinds", scope="module")
def _kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Kind], Served]]:
    """The backends of a kind, which are made when they are first asked for."""
    made: dict[Kind, Served] = {}

    def served(kind: Kind) -> Served:
        if kind not in made:
            made[kind] = Served(tmp_path_factory.mktemp(kind.name.lower()), kind)
        return made[kind]

    yield served
    for each in made.values():
        each.close()


@pytest.fixture(name="case", params=CASES)
def _case(request: pytest.FixtureRequest, kinds: Callable[[Kind], Served]) -> tuple[Served, str]:
    """All backends of a kind, and the name of one."""
    kind, name = request.param
    return kinds(kind), name


def test_all_load_the_same(case: tuple[Served, str]) -> None:
    """Shape, type and order are those of the reference, and what is loaded nearly so."""
    served, name = case
    kind, samples = served.data.kind, served.data.samples
    reference, own = served.loaded(KINDS[kind].reference, samples), served.loaded(name, samples)
    assert own.dtype == reference.dtype
    difference = difference_of(own, reference, served.transforms)
    assert difference is not None
    assert difference.mean <= MOST_DIFFERENCE[kind]


def test_the_code_runs_by_itself(case: tuple[Served, str]) -> None:
    """It loads the whole folder once, and says how fast."""
    served, name = case
    command = [sys.executable, str(served.code(name))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    unit = UNITS[served.data.kind]
    assert re.fullmatch(rf"{COUNT} {unit} in \d+\.\d\d s: \d+ {unit}/s\n", done.stdout)


BATCHES = """
import sys
import numpy as np
sys.path.insert(0, {folder!r})
import {module} as code
if __name__ == "__main__":
    find = getattr(code, "find_shards", None) or code.find_samples
    loader = code.make_loader(find(code.FOLDER), shuffle=False)
    stop = getattr(loader, "auto_stop", None)
    if stop is None:
        samples, others = zip(*loader)
    else:
        with stop():
            samples, others = zip(*loader)
    np.savez({output!r}, samples=np.concatenate(samples), others=np.concatenate(others))
"""


def test_batches_of_the_printed_code_are_those_that_were_measured(
    case: tuple[Served, str], tmp_path: Path
) -> None:
    """To the bit, and with their classes; texts with masks."""
    served, name = case
    path, output = served.code(name), tmp_path / "batches.npz"
    script = BATCHES.format(folder=str(path.parent), module=path.stem, output=str(output))
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(output) as batches:
        assert np.array_equal(batches["samples"], served.loaded(name, served.data.samples))
        labels = FOLDERS[served.data.kind].labels
        if labels is not None:
            assert batches["others"].tolist() == labels
        else:
            assert batches["others"].shape == batches["samples"].shape
            assert not batches["samples"][batches["others"] == 0].any()


def test_half_a_sample_ends_nothing(case: tuple[Served, str], tmp_path: Path) -> None:
    """Each raises, skips it or fills in the rest, and reads the good ones around it."""
    served, name = case
    first, *others = served.data.samples
    half = truncated_copy(first, tmp_path)
    reading = Reading(partial(served.load, name), [others[0], half, others[1]])
    assert [others[0], others[1]] == [sample for sample in reading.good if sample != half]
    if half not in reading.good:
        assert reading.bad[0].outcome is not OnBadFile.FILLS


def test_a_loader_by_itself_has_a_rate_and_memory(case: tuple[Served, str]) -> None:
    served, name = case
    alone = served[name].alone(served.given(served.data.samples) * 100, [0], 0.2)
    assert alone.error is None
    assert alone.samples_per_s is not None
    assert alone.samples_per_s > 0
    assert alone.memory_bytes is not None


@pytest.fixture(name="served")
def _served(kinds: Callable[[Kind], Served]) -> Served:
    """The backends of images."""
    return kinds(Kind.IMAGES)


@pytest.fixture(name="odd", scope="module")
def _odd(tmp_path_factory: pytest.TempPathFactory, kinds: Callable[[Kind], Served]) -> Path:
    """Images that are no plain RGB JPEG, each named after what it is."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("odd")
    with Image.open(kinds(Kind.IMAGES).data.samples[0][0]) as file:
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


@pytest.mark.parametrize("name", OTHER_IMAGES)
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
        difference = difference_of(
            answer.samples, served.loaded("pillow", [sample]), served.transforms
        )
        assert difference is not None
        assert file not in SAME or difference.mean < MOST_DIFFERENCE[Kind.IMAGES], (
            file,
            difference,
        )


def test_a_sample_that_ends_the_process_does_not_end_the_backend(tmp_path: Path) -> None:
    """The next one is loaded by a process of its own."""
    path = tmp_path / "ends_once.py"
    path.write_text(
        "import os, torch\ndef make_loader(samples, workers, shuffle):\n"
        "    return [(torch.zeros(1), 0)] if samples[0] else os._exit(7)\n"
    )
    backend = ServedBackend(path)
    try:
        assert backend.load([False]).ended
        loaded = backend.load([True])
        assert loaded.samples is not None
        assert not loaded.ended
    finally:
        backend.close()


def test_warnings_of_what_is_loaded_are_kept(tmp_path: Path) -> None:
    """Each once, of the process that loads and not of what it imports."""
    path = tmp_path / "warns.py"
    path.write_text(
        "import torch, warnings\nwarnings.warn('imported')\n"
        "def make_loader(samples, workers, shuffle):\n"
        "    for sample in samples:\n        warnings.warn(sample)\n"
        "    return [(torch.zeros(1), 0)]\n"
    )
    backend = ServedBackend(path)
    try:
        assert backend.load(["large", "large"]).warned == ("UserWarning: large",)
        assert backend.load(["larger"]).warned == ("UserWarning: larger",)
        assert list(backend.warned) == ["UserWarning: large", "UserWarning: larger"]
    finally:
        backend.close()


def test_code_that_does_not_import_is_tried_once(tmp_path: Path) -> None:
    """What its library raised is the answer to all that is asked."""
    path = tmp_path / "imports.py"
    path.write_text("open(__file__ + '.tries', 'a').write('1')\nraise RuntimeError('no FFmpeg')\n")
    backend = ServedBackend(path)
    try:
        answers = [backend.load([]).error, backend.alone([], [0], 0.1).error, backend.lost]
        assert answers == ["RuntimeError: no FFmpeg"] * 3
        assert (tmp_path / "imports.py.tries").read_text() == "1"
    finally:
        backend.close()


def test_a_backend_that_ends_its_process_is_told(tmp_path: Path) -> None:
    """Each time, and it does not hang."""
    path = tmp_path / "ends.py"
    path.write_text("import os\ndef make_loader(samples, workers, shuffle):\n    os._exit(7)\n")
    backend = ServedBackend(path)
    try:
        assert backend.load([]).error == "it ended its process, with exit code 7"
        assert backend.alone([], [0], 0.1).error == "it ended its process, with exit code 7"
    finally:
        backend.close()
