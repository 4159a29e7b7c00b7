"""What lies in a folder, and which of it is measured."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from loadeval.analysis.choice import BadFile, Kind, OnBadFile
from loadeval.backends.kinds import KIND_OF, KINDS
from loadeval.backends.shards import label_of, members_at, read_shard
from loadeval.backends.text import FIELDS, LINES, field_of, line_at, starts_of
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from loadeval.backends.samples import Sample
    from loadeval.backends.shards import Label

MOST_FILES = 200_000
"""So many files, or samples in shards, are listed of a folder that has more."""
EXPECTED = "; or ".join(
    f"{kind.value}: {', '.join(known.suffixes)}" for kind, known in KINDS.items()
)


@dataclass(frozen=True, slots=True)
class Data:
    """The samples of one kind in a folder, and the number of classes; None is not known.

    `suffixes` are the extensions of what is decoded, and `whole` tells whether all were listed.
    Shards have the class of a sample where `label` tells; `broken` are those that are read in part.
    Lines of JSON have their text in `field`.
    """

    folder: Path
    kind: Kind
    samples: tuple[Sample, ...]
    classes: int | None
    suffixes: frozenset[str]
    whole: bool = True
    label: Label | None = None
    broken: tuple[BadFile, ...] = ()
    field: str = ""

    def chosen(self, count: int, seed: int = 0) -> list[Sample]:
        """At most `count` samples, drawn at random, in their order."""
        if len(self.samples) <= count:
            return list(self.samples)
        drawn = random.Random(seed).sample(range(len(self.samples)), count)  # noqa: S311 - no secret
        return [self.samples[number] for number in sorted(drawn)]


def find_data(folder: Path) -> Data:
    """The data in `folder`, of the kind that most of its files have.

    Raises UsageError where there is none that can be measured.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; expected one with {EXPECTED}")
    paths_of: dict[Kind, list[str]] = {}
    count = 0
    for path in _files(folder):
        count += 1
        kind = KIND_OF.get(os.path.splitext(path)[1].lower())  # noqa: PTH122 - of many files
        if kind is not None:
            paths_of.setdefault(kind, []).append(path)
        if count == MOST_FILES:
            break
    if not paths_of:
        raise UsageError(f"{folder} has no file that is known, of {count:,}; expected {EXPECTED}")
    kind = max(paths_of, key=lambda each: len(paths_of[each]))
    paths, whole = sorted(paths_of[kind]), count < MOST_FILES
    if kind is Kind.SHARDS:
        return _in_shards(folder, paths, whole)
    if kind is Kind.TEXT:
        return _texts(folder, paths, whole)
    return _files_of(folder, kind, paths, whole)


def _files_of(folder: Path, kind: Kind, paths: Sequence[str], whole: bool) -> Data:
    """Each file is a sample, and each subfolder a class."""
    folders = sorted({os.path.dirname(path) for path in paths})  # noqa: PTH120 - of many files
    numbers = {name: number for number, name in enumerate(folders)}
    samples = tuple((path, numbers[os.path.dirname(path)]) for path in paths)  # noqa: PTH120 - the same
    suffixes = frozenset(os.path.splitext(path)[1].lower() for path in paths)  # noqa: PTH122 - the same
    return Data(folder, kind, samples, len(folders), suffixes, whole)


def _in_shards(folder: Path, paths: Sequence[str], whole: bool) -> Data:
    """Each image in a shard is a sample."""
    samples: list[Sample] = []
    suffixes: set[str] = set()
    broken: list[BadFile] = []
    for path in paths:
        shard = read_shard(path)
        samples += [(path, start) for start in shard.starts]
        suffixes |= shard.suffixes
        if shard.error:
            broken.append(BadFile(os.path.basename(path), OnBadFile.RAISES, shard.error))  # noqa: PTH119 - a text, as it was listed
        if len(samples) >= MOST_FILES:
            whole = False
            break
    if not samples:
        error = f": {broken[0].name}: {broken[0].error}" if broken else ""
        raise UsageError(
            f"the shards in {folder} have no images{error}; expected .jpg, .jpeg or .png in them"
        )
    label = label_of(members_at(*samples[0]))
    return Data(
        folder,
        Kind.SHARDS,
        tuple(samples),
        None,
        frozenset(suffixes),
        whole,
        label,
        tuple(broken),
    )


def _texts(folder: Path, paths: Sequence[str], whole: bool) -> Data:
    """Each line is a text where there are as many files of lines as others, else each file."""
    of_lines = [path for path in paths if path.lower().endswith(LINES)]
    if len(of_lines) * 2 < len(paths):
        samples = [(path, 0) for path in paths if not path.lower().endswith(LINES)]
        return Data(folder, Kind.TEXT, tuple(samples), None, frozenset({".txt"}), whole)
    starts = ((path, start) for path in of_lines for start in starts_of(path))
    samples = list(islice(starts, MOST_FILES))
    field = field_of(line_at(*samples[0])) if samples else ""
    if not field:
        raise UsageError(
            f"the lines of {LINES} files in {folder} have no text; expected JSON with "
            f"{', '.join(FIELDS[:-1])} or {FIELDS[-1]}"
        )
    whole = whole and len(samples) < MOST_FILES
    return Data(folder, Kind.TEXT, tuple(samples), None, frozenset({LINES}), whole, field=field)


def _files(folder: Path) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (os.path.join(root, name) for name in sorted(names))  # noqa: PTH118 - of many files
