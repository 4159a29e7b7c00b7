"""Samples of each kind: what is passed about, what they are called, and halves of them."""

from __future__ import annotations

from pathlib import Path

from loadeval.backends.shards import SUFFIX, SampleWriter, image_of, members_at
from loadeval.backends.text import LINES, line_at

Sample = tuple[str, int]
"""The path of a file and the number of its class; in shards and lines the byte where it begins."""


def name_of(sample: Sample) -> str:
    """The name of its file, and of a sample in a shard or of a line, which of it."""
    path, number = sample
    name = Path(path).name
    if name.lower().endswith(LINES):
        return f"{name}, byte {number}"
    if name.lower().endswith(SUFFIX):
        return f"{name}/{image_of(members_at(path, number)).name}"
    return name


def truncated_copy(sample: Sample, folder: Path) -> Sample:
    """A sample in `folder` that has the first half of the bytes of `sample`."""
    path, number = sample
    copy = folder / f"half{Path(path).suffix}"
    if path.lower().endswith(SUFFIX):
        members = members_at(path, number)
        image = image_of(members)
        half = image._replace(data=image.data[: len(image.data) // 2])
        with SampleWriter(copy) as writer:
            writer.write([half if member is image else member for member in members])
        return str(copy), 0
    is_line = path.lower().endswith(LINES)
    data = line_at(path, number) if is_line else Path(path).read_bytes()
    copy.write_bytes(data[: len(data) // 2])
    return str(copy), 0 if is_line else number
