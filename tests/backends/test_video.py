"""Videos: what is done with them, and which of their frames are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.choice import MOST_DIFFERENCE, Kind
from loadeval.backends.catalogue import VIDEO
from loadeval.backends.check import Reading
from loadeval.backends.code import Work, code_of
from loadeval.backends.data import find_data
from loadeval.backends.images import Transforms
from loadeval.backends.served import ServedBackend, module_of
from loadeval.backends.video import parse_transforms
from loadeval.errors import UsageError
from tests.backends.folders import videos
from tests.backends.test_loaders import unavailable

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from loadeval.backends.catalogue import WrittenBackend

BACKENDS = [pytest.param(each, id=each.name, marks=unavailable(each)) for each in VIDEO]
TEXT = "frames 6, every 2, resize 48x64"


def code_for(backend: WrittenBackend, folder: Path) -> Path:
    path = folder / f"load_video_with_{backend.name}.py"
    path.write_text(code_of(backend, Work(folder, parse_transforms(TEXT), 4, 1, kind=Kind.VIDEO)))
    return path


def test_frames_come_before_what_is_done_with_each() -> None:
    assert parse_transforms("frames 8, every 2, resize 40x50, crop 32, flip") == Transforms(
        resized=(40, 50), cropped=(32, 32), flipped=True, frames=8, every=2
    )
    assert parse_transforms("frames 8, resize 40x50").every == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "do not say how many frames"),
        ("resize 8x8", "do not say how many frames"),
        ("frames", "has no number of frames"),
        ("frames 0, resize 8x8", "has no number of frames"),
        ("frames 2, every x, resize 8x8", "has no number of frames"),
        ("frames 2", "do not resize"),
        ("frames 2, resize 8", "leaves the longer side as it comes"),
        ("resize 8x8, frames 2", "'frames 2' comes after resize"),
        ("frames 2, blur", "transform 'blur' is not known; expected frames 16"),
    ],
)
def test_what_cannot_be_done_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_transforms(text)


def test_the_worst_video_is_told_apart() -> None:
    """Frames are compared in levels of 255, as images are."""
    frames = np.zeros((2, 3, 3, 4, 4), np.uint8)
    other = frames.copy()
    other[1, 2] = 30
    assert parse_transforms(TEXT).difference(other, frames) == (5.0, 30.0, 10.0, 2)


def frames_in_order(folder: Path) -> npt.NDArray[Any]:
    """All frames of the video in `folder`, by the decoder of the reference."""
    av = pytest.importorskip("av")
    with av.open(find_data(folder).samples[0][0]) as file:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])


@pytest.mark.check
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_short_video_repeats_its_last_frame(tmp_path: Path, backend: WrittenBackend) -> None:
    """Of seven frames every other one makes four, and two more of the seventh."""
    videos(tmp_path, [7], size=(48, 64))
    code = module_of(code_for(backend, tmp_path))
    ((frames, _),) = list(code.make_loader(code.find_samples(tmp_path), 1, shuffle=False))
    expected = frames_in_order(tmp_path)[[0, 2, 4, 6, 6, 6]].transpose(0, 3, 1, 2)
    apart = np.abs(frames[0].numpy().astype(int) - expected).mean()
    assert apart <= MOST_DIFFERENCE[Kind.VIDEO]


@pytest.mark.check
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_codec_is_read_or_refused(tmp_path: Path, backend: WrittenBackend) -> None:
    """DALI does not decode H.264 on the CPU, and names the file; nothing ends its process."""
    videos(tmp_path, [12, 12], codec="libx264")
    served = ServedBackend(code_for(backend, tmp_path))
    try:
        reading = Reading(served.load, find_data(tmp_path).samples)
    finally:
        served.close()
    if backend.name == "dali":
        assert "Failed to create video decoder for " in (reading.bad[0].error or "")
    else:
        assert not reading.bad
