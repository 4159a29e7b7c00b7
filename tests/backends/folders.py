"""A small folder of each kind of data, and what is done with it."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, NamedTuple

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
}
