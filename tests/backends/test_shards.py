"""Samples in WebDataset shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadeval.backends.catalogue import SHARDS
from loadeval.backends.code import Work, code_of
from loadeval.backends.data import find_data
from loadeval.backends.images import parse_transforms
from loadeval.backends.kinds import in_a_shard
from loadeval.backends.samples import name_of, truncated_copy
from loadeval.backends.served import module_of, opened
from loadeval.backends.shards import Label, Member, label_of, members_at, read_shard
from loadeval.errors import UsageError
from tests.backends.folders import shards, write_tar

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.backends.samples import Sample

FILES = [
    ("a/0.jpg", b"first"),
    ("a/0.cls", b"3"),
    ("__meta__", b"of the shard"),
    ("a/1.txt", b"no image"),
    ("b/0.cls", b"4"),
    ("b/0.PNG", b"second" * 500),
]


def samples_of(path: Path) -> list[Sample]:
    return [(str(path), start) for start in read_shard(str(path)).starts]


def test_files_of_one_name_are_a_sample(tmp_path: Path) -> None:
    """Of those with an image, whatever comes first."""
    path = write_tar(tmp_path / "1.tar", FILES)
    shard = read_shard(str(path))
    assert (shard.suffixes, shard.error) == (frozenset({".jpg", ".png"}), "")
    first, second = samples_of(path)
    assert members_at(*first) == [Member("a/0", "jpg", b"first"), Member("a/0", "cls", b"3")]
    assert [member.suffix for member in members_at(*second)] == ["cls", "png"]
    assert [name_of(first), name_of(second)] == ["1.tar/a/0.jpg", "1.tar/b/0.png"]


def test_of_half_a_shard_whole_samples_are_read(tmp_path: Path) -> None:
    """The rest is told, with the reason."""
    path = write_tar(tmp_path / "1.tar", FILES)
    path.write_bytes(path.read_bytes()[:5000])
    data = find_data(tmp_path)
    assert len(data.samples) == 1
    (bad,) = data.broken
    assert (bad.name, bad.error) == ("1.tar", "ReadError: unexpected end of data")


def test_shards_without_images_are_an_error(tmp_path: Path) -> None:
    write_tar(tmp_path / "1.tar", FILES[2:5])
    with pytest.raises(UsageError, match=r"have no images; expected \.jpg, \.jpeg or \.png in"):
        find_data(tmp_path)


def test_samples_of_several_shards_come_into_one(tmp_path: Path) -> None:
    """With all of their files, and a key of their own."""
    first = samples_of(write_tar(tmp_path / "1.tar", FILES))[0]
    second = samples_of(write_tar(tmp_path / "2.tar", FILES))[0]
    (path,) = in_a_shard([second, first], tmp_path)
    again = read_shard(path)
    assert [[member.name for member in members_at(path, start)] for start in again.starts] == [
        ["00000000.jpg", "00000000.cls"],
        ["00000001.jpg", "00000001.cls"],
    ]


def test_half_a_sample_has_half_an_image_and_its_class(tmp_path: Path) -> None:
    sample = samples_of(write_tar(tmp_path / "1.tar", FILES))[1]
    members = members_at(*truncated_copy(sample, tmp_path))
    assert [(member.suffix, len(member.data)) for member in members] == [("cls", 1), ("png", 1500)]


@pytest.mark.parametrize(
    ("suffix", "data", "label"),
    [
        ("cls", "12\n", Label("cls")),
        ("cls", "cat", None),
        ("json", '{"id": 1, "label": 7}', Label("json", "label")),
        ("json", '{"class": 7}', Label("json", "class")),
        ("json", '{"label": "cat"}', None),
        ("json", "[1]", None),
        ("json", "{", None),
        ("txt", "1", None),
    ],
)
def test_where_the_class_is(suffix: str, data: str, label: Label | None) -> None:
    assert label_of([Member("0", suffix, data.encode())]) == label


@pytest.mark.check
# WebDataset leaves it to Python to close a shard.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["pillow", "dali", "spdl"])
@pytest.mark.parametrize("described", [True, False])
def test_classes_come_from_json_or_are_zero(tmp_path: Path, name: str, described: bool) -> None:
    """Shards need not say what is in them."""
    shards(tmp_path, described=True)
    if not described:
        for path in tmp_path.glob("*.tar"):
            members = [member for start in samples_of(path) for member in members_at(*start)]
            write_tar(path, [(each.name, each.data) for each in members if each.suffix == "jpg"])
    data = find_data(tmp_path)
    (backend,) = (each for each in SHARDS if each.name == name)
    work = Work(
        folder=tmp_path,
        transforms=parse_transforms("resize 8x8"),
        batch_size=12,
        workers=1,
        kind=data.kind,
        suffixes=data.suffixes,
        label=data.label,
    )
    path = tmp_path / f"load_{name}_{described}.py"
    path.write_text(code_of(backend, work))
    loader = module_of(path).make_loader(in_a_shard(data.samples, tmp_path), 1, shuffle=False)
    with opened(loader) as batches:
        ((images, labels),) = batches
    assert len(images) == 12
    assert labels.tolist() == ([*range(8), *range(100, 104)] if described else [0] * 12)
