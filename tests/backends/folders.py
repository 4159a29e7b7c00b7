"""A small folder of each kind of data, and what is done with it."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, NamedTuple

import pytest

from loadeval.analysis.choice import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

COUNT = 12
"""Samples in each folder."""


def write_tar(path: Path, files: Iterable[tuple[str, bytes]]) -> Path:
    """A tar of `files`, each a name and what it holds."""
    with tarfile.open(path, "w") as tar:
        for name, data in files:
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return path


def photographs(folder: Path) -> None:
    from loadeval.demo.photographs import make_photographs

    make_photographs(folder, COUNT)


def shards(folder: Path, *, described: bool = False) -> None:
    """Photographs in two shards, with their class; if `described`, as JSON."""
    files = folder / "files"
    photographs(files)
    paths = sorted(files.rglob("*.jpg"))
    for shard, of_shard in enumerate((paths[:8], paths[8:])):
        members = []
        for number, path in enumerate(of_shard):
            label = shard * 100 + number
            members.append((f"images/{number:04}.jpg", path.read_bytes()))
            text = json.dumps({"caption": "", "label": label}) if described else str(label)
            members.append((f"images/{number:04}.{'json' if described else 'cls'}", text.encode()))
        write_tar(folder / f"{shard:03}.tar", members)
    for path in paths:
        path.unlink()


def recordings(folder: Path) -> None:
    """Plucked strings: WAV and FLAC, stereo, at several rates, some shorter than the crop."""
    import numpy as np

    soundfile = pytest.importorskip("soundfile")
    random = np.random.default_rng(0)
    for number in range(COUNT):
        rate = (16_000, 22_050, 44_100, 48_000)[number % 4]
        times = np.arange(int(rate * (0.4 + 0.05 * number))) / rate
        waveform = random.normal(0, 1e-3, (len(times), 2))
        for start in np.arange(0, times[-1], 0.2):
            on = np.clip(times - start, 0, None)
            pitch = 110 * 2 ** (random.integers(36) / 12)
            harmonics = np.arange(1, 9)[:, None]
            tones = np.sin(2 * np.pi * pitch * harmonics * on) * np.exp(-on * (2 + harmonics))
            waveform += (tones / harmonics).sum(axis=0)[:, None] * random.uniform(0.05, 0.15, 2)
        path = folder / f"{number // 6}" / f"{number:02}.{('wav', 'flac')[number % 2]}"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, waveform, rate)


class Folder(NamedTuple):
    """How to make a folder, what is done with its data, and with what classes it comes."""

    make: Callable[[Path], None]
    transforms: str
    labels: list[int]


FOLDERS = {
    Kind.IMAGES: Folder(
        photographs,
        "resize 64, crop 56, flip, normalize imagenet",
        [number // 3 for number in range(COUNT)],
    ),
    Kind.SHARDS: Folder(
        shards,
        "resize 64, crop 56, flip, normalize imagenet",
        [*range(8), *range(100, 104)],
    ),
    Kind.AUDIO: Folder(
        recordings,
        "mono, resample 16000, crop 0.5s",
        [number // 6 for number in range(COUNT)],
    ),
}
