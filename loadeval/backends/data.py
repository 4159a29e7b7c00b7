"""What lies in a folder, and which of it is measured."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Sample = tuple[str, int]
"""The path of a file, and the number of its class."""
MOST_FILES = 200_000
"""So many files are listed of a folder that has more."""


class Kind(Enum):
    """A kind of data, by the extensions of its files."""

    IMAGES = "images"
    SHARDS = "WebDataset shards"
    AUDIO = "audio"
    TEXT = "text"
    VIDEO = "video"


SUFFIXES = {
    ".jpg": Kind.IMAGES,
    ".jpeg": Kind.IMAGES,
    ".png": Kind.IMAGES,
    ".tar": Kind.SHARDS,
    ".wav": Kind.AUDIO,
    ".flac": Kind.AUDIO,
    ".txt": Kind.TEXT,
    ".jsonl": Kind.TEXT,
    ".mp4": Kind.VIDEO,
}
SUPPORTED = (Kind.IMAGES,)


@dataclass(frozen=True, slots=True)
class Data:
    """The files of one kind in a folder, with the number of the class of each.

    `suffixes` are the extensions that they have, and `whole` tells whether all were listed.
    """

    folder: Path
    kind: Kind
    samples: tuple[Sample, ...]
    classes: int
    suffixes: frozenset[str]
    whole: bool = True

    def chosen(self, count: int, seed: int = 0) -> list[Sample]:
        """At most `count` samples, drawn at random, in their order."""
        if len(self.samples) <= count:
            return list(self.samples)
        drawn = random.Random(seed).sample(range(len(self.samples)), count)  # noqa: S311 - no secret
        return [self.samples[number] for number in sorted(drawn)]


def find_data(folder: Path) -> Data:
    """The data in `folder`: of the kind that most of its files have; subfolders are classes.

    Raises UsageError where there is none that can be measured.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; expected one with images: JPEG or PNG files")
    paths_of: dict[Kind, list[str]] = {}
    count = 0
    for path in _files(folder):
        count += 1
        kind = SUFFIXES.get(os.path.splitext(path)[1].lower())  # noqa: PTH122 - of many files
        if kind is not None:
            paths_of.setdefault(kind, []).append(path)
        if count == MOST_FILES:
            break
    if not paths_of:
        raise UsageError(
            f"{folder} has no file that is known, of {count:,}; expected images, by the extension: "
            ".jpg, .jpeg or .png"
        )
    kind = max(paths_of, key=lambda each: len(paths_of[each]))
    if kind not in SUPPORTED:
        raise UsageError(
            f"{folder} has {kind.value}, and backends are measured for images alone; expected a "
            "folder with JPEG or PNG files"
        )
    paths = sorted(paths_of[kind])
    folders = sorted({os.path.dirname(path) for path in paths})  # noqa: PTH120 - of many files
    numbers = {name: number for number, name in enumerate(folders)}
    samples = tuple((path, numbers[os.path.dirname(path)]) for path in paths)  # noqa: PTH120 - the same
    suffixes = frozenset(os.path.splitext(path)[1].lower() for path in paths)  # noqa: PTH122 - the same
    return Data(folder, kind, samples, len(folders), suffixes, count < MOST_FILES)


def _files(folder: Path) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (os.path.join(root, name) for name in sorted(names))  # noqa: PTH118 - of many files
