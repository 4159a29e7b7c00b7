"""A small folder of each kind of data, and what is done with it."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, NamedTuple

import pytest

from loadeval.analysis.choice import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
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


TEXT = """
Now is the winter of our discontent
Made glorious summer by this sun of York;
And all the clouds that lour'd upon our house
In the deep bosom of the ocean buried.
Now are our brows bound with victorious wreaths;
Our bruised arms hung up for monuments;
Our stern alarums changed to merry meetings,
Our dreadful marches to delightful measures.
Grim-visaged war hath smooth'd his wrinkled front;
And now, instead of mounting barded steeds
To fright the souls of fearful adversaries,
He capers nimbly in a lady's chamber
"""


def texts(folder: Path, *, lines: bool = True) -> None:
    """Verses, as lines of JSON or as files, and a tokenizer that was trained on them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    verses = TEXT.split("\n")[1:-1]
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))  # noqa: S106 - of a tokenizer, no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=200, special_tokens=["[UNK]", "[PAD]"], show_progress=False
    )
    tokenizer.train_from_iterator(verses, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    if lines:
        content = "\n".join(json.dumps({"id": 0, "text": verse}) for verse in verses)
        (folder / "verses.jsonl").write_text(f"{content}\n\n")
        return
    for number, verse in enumerate(verses):
        (folder / f"{number:02}.txt").write_text(verse)


def videos(
    folder: Path,
    lengths: Sequence[int] = range(6, 6 + COUNT),
    *,
    codec: str = "libvpx-vp9",
    size: tuple[int, int] | None = None,
) -> None:
    """Waves that move, of so many frames each; high ones and wide ones unless `size` is given."""
    import numpy as np

    av = pytest.importorskip("av")
    random = np.random.default_rng(0)
    for number, length in enumerate(lengths):
        height, width = size or ((96, 128), (120, 90))[number % 2]
        rows, columns = np.mgrid[:height, :width]
        path = folder / f"{number // 6}" / f"{number:02}.mp4"
        path.parent.mkdir(exist_ok=True)
        waves = random.uniform(4, 16, (3, 2))
        with av.open(str(path), "w") as file:
            stream = file.add_stream(codec, rate=25)
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            stream.thread_count = 1
            for time in range(length):
                levels = [127 + 100 * np.sin(columns / a + rows / b + time / 2) for a, b in waves]
                pixels = np.stack(levels, axis=-1).astype(np.uint8)
                file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
            file.mux(stream.encode())


class Folder(NamedTuple):
    """How to make a folder, what is done with its data, and its classes, if it has some."""

    make: Callable[[Path], None]
    transforms: str
    labels: list[int] | None


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
    Kind.VIDEO: Folder(
        videos,
        "frames 8, every 2, resize 64, crop 56, flip, normalize imagenet",
        [number // 6 for number in range(COUNT)],
    ),
    Kind.TEXT: Folder(texts, "tokenize {folder}/tokenizer.json, length 16", None),
}
