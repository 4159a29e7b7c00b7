"""What loadeval does with each kind of data: its files, its transforms and its backends."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.analysis.choice import Kind
from loadeval.backends import audio, catalogue, images, shards, text, video

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.backends.catalogue import WrittenBackend
    from loadeval.backends.check import Transforms
    from loadeval.backends.samples import Sample


def as_listed(samples: Sequence[Sample], _folder: Path) -> list[Any]:
    """Loaders take the samples themselves."""
    return list(samples)


@dataclass(frozen=True, slots=True)
class KindOfData:
    """How loadeval measures a kind of data.

    `suffixes` are those of its files. `transforms` is what is done where the user names none, and
    `parse` reads what they name. What the `reference` loads is what the other `backends` are
    compared with. `given` turns samples into what loaders take, and may write into a folder.
    """

    suffixes: tuple[str, ...]
    transforms: str
    parse: Callable[[str], Transforms]
    reference: str
    backends: tuple[WrittenBackend, ...]
    given: Callable[[Sequence[Sample], Path], list[Any]] = as_listed


def in_a_shard(samples: Sequence[Sample], folder: Path) -> list[Any]:
    """Loaders of shards take shards: one with all of `samples`."""
    descriptor, path = tempfile.mkstemp(shards.SUFFIX, dir=folder)
    os.close(descriptor)
    with shards.SampleWriter(Path(path)) as writer:
        for place, offset in samples:
            writer.write(shards.members_at(place, offset))
    return [path]


KINDS = {
    Kind.IMAGES: KindOfData(
        suffixes=(".jpg", ".jpeg", ".png"),
        transforms="resize 256, crop 224",
        parse=images.parse_transforms,
        reference="pillow",
        backends=catalogue.IMAGES,
    ),
    Kind.SHARDS: KindOfData(
        suffixes=(shards.SUFFIX,),
        transforms="resize 256, crop 224",
        parse=images.parse_transforms,
        reference="pillow",
        backends=catalogue.SHARDS,
        given=in_a_shard,
    ),
    Kind.AUDIO: KindOfData(
        suffixes=(".wav", ".flac"),
        transforms="mono, resample 16000, crop 3s",
        parse=audio.parse_transforms,
        reference="soundfile",
        backends=catalogue.AUDIO,
    ),
    Kind.TEXT: KindOfData(
        suffixes=(".txt", text.LINES),
        transforms="tokenize bert-base-uncased",
        parse=text.parse_transforms,
        reference="tokenizers",
        backends=catalogue.TEXT,
    ),
    Kind.VIDEO: KindOfData(
        suffixes=(".mp4",),
        transforms="frames 16, resize 128, crop 112",
        parse=video.parse_transforms,
        reference="pyav",
        backends=catalogue.VIDEO,
    ),
}
KIND_OF = {suffix: kind for kind, known in KINDS.items() for suffix in known.suffixes}
