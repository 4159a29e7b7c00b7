"""WebDataset shards: the samples in a tar, and tars of samples that are measured.

Files whose names are equal up to the first dot, one after the other, are a sample.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from loadeval.errors import in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from typing_extensions import Self

SUFFIX = ".tar"
IMAGES = ("jpg", "jpeg", "png")
KEY = re.compile(r"((?:.*/)?[^./][^.]*)\.([^/]+)")
FIELDS = ("label", "cls", "class", "class_id", "target")
"""Where JSON may have the number of a sample's class."""


class Member(NamedTuple):
    """A file in a shard: the key of its sample, its suffix without a dot, and what it holds."""

    key: str
    suffix: str
    data: bytes

    @property
    def name(self) -> str:
        """The file's name in the shard."""
        return f"{self.key}.{self.suffix}"


class Label(NamedTuple):
    """Where shards have the class of a sample: in files with this suffix, for JSON in `field`."""

    suffix: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class Shard:
    """The samples with an image in one shard: where each begins, and the suffixes of images.

    `error` is why the rest cannot be read; "" if all can.
    """

    starts: tuple[int, ...]
    suffixes: frozenset[str]
    error: str = ""


def read_shard(path: str) -> Shard:
    """Where the samples in the shard `path` begin. Reads headers alone."""
    images: dict[int, str] = {}  # the suffix of the image, by where its sample begins
    key, start, image, error = "", 0, "", ""
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                match = _sample_file(member)
                if match is None:
                    continue
                if match[1] != key:  # the sample before is whole
                    images.update({start: image} if image else {})
                    key, start, image = match[1], member.offset, ""
                suffix = match[2].lower()
                image = image or (suffix if suffix in IMAGES else "")
                tar.members = []  # type: ignore[attr-defined]  # else it keeps all
        images.update({start: image} if image else {})
    except (tarfile.TarError, OSError) as failure:
        error = in_words(failure)
    return Shard(tuple(images), frozenset(f".{suffix}" for suffix in images.values()), error)


def members_at(path: str, offset: int) -> list[Member]:
    """The files of the sample that begins at `offset` in the shard `path`."""
    with open(path, "rb") as file:  # noqa: PTH123 - a text, as it was listed
        file.seek(offset)
        members: list[Member] = []
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                match = _sample_file(member)
                if match is None:
                    continue
                if members and match[1] != members[0].key:
                    break
                content = tar.extractfile(member)
                data = b"" if content is None else content.read()
                members.append(Member(match[1], match[2].lower(), data))
        return members


def image_of(members: Sequence[Member]) -> Member:
    """The first image among the files of a sample."""
    return next(member for member in members if member.suffix in IMAGES)


def label_of(members: Sequence[Member]) -> Label | None:
    """Where a sample has the number of its class; None where it has none."""
    held = {member.suffix: member.data for member in members}
    if held.get("cls", b"").strip().isdigit():
        return Label("cls")
    try:
        content = json.loads(held.get("json", b"null"))
    except ValueError:
        return None
    fields = content if isinstance(content, dict) else {}
    return next((Label("json", name) for name in FIELDS if type(fields.get(name)) is int), None)


class SampleWriter:
    """Writes samples into a shard of its own, `path`."""

    def __init__(self, path: Path) -> None:
        self._tar = tarfile.open(path, "w")  # noqa: SIM115 - closed in the end
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tar.close()

    def write(self, members: Iterable[Member]) -> None:
        """Add a sample, under a key of its own: shards may use the same ones."""
        for member in members:
            header = tarfile.TarInfo(f"{self._count:08}.{member.suffix}")
            header.size = len(member.data)
            self._tar.addfile(header, io.BytesIO(member.data))
        self._count += 1


def _sample_file(member: tarfile.TarInfo) -> re.Match[str] | None:
    """The key and the suffix of a file that belongs to a sample; None for another one."""
    is_meta = re.match(r"__[^/]*__($|/)", member.name)
    return None if is_meta or not member.isreg() else KEY.fullmatch(member.name)
