"""The code that is written for each backend."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loadeval.analysis.choice import Kind
from loadeval.backends.catalogue import IMAGES, OWN, WrittenBackend
from loadeval.backends.code import Work, code_of
from loadeval.backends.images import parse_transforms
from loadeval.backends.kinds import KINDS
from loadeval.backends.shards import Label

YOURS = WrittenBackend(OWN, "own", ("torch",), "torch")
TRANSFORMS = [
    "resize 256, crop 224, flip, normalize imagenet",
    "resize 64x48",
    "resize 64x48, flip",
    "resize 40, crop 32x24, normalize 0.5 0.5",
]
LABELS = [Label("cls"), Label("json", "label"), None]


def written(backend: WrittenBackend, work: Work, folder: Path) -> None:
    kind = work.kind.name.lower()
    (folder / f"load_{kind}_{backend.name.replace('-', '_')}.py").write_text(code_of(backend, work))


def work_on_images(transforms: str, folder: Path = Path("photos")) -> Work:
    return Work(folder, parse_transforms(transforms), 32, 2, "train:decode")


def check_style(folder: Path) -> None:
    """All code in `folder` is formatted, imports what it uses alone, and has no undefined name."""
    (folder / "train.py").touch()  # where its user's function is
    ruff = [Path(sys.executable).with_name("ruff")]
    rules = [
        "--isolated",
        f"--config=src=[{str(folder)!r}]",
        "--line-length=100",
        "--no-cache",
        str(folder),
    ]
    for command in (
        ["format", "--check", "--diff"],
        ["check", "--select=E,F,I,W", "--ignore=E402"],
    ):
        done = subprocess.run(
            [*ruff, *command, *rules], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("transforms", TRANSFORMS)
def test_the_code_is_as_one_would_write_it(tmp_path: Path, transforms: str) -> None:
    for backend in [*IMAGES, YOURS]:
        written(backend, work_on_images(transforms), tmp_path)
    check_style(tmp_path)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("transforms", TRANSFORMS[:2])
def test_the_code_for_shards_is_too(tmp_path: Path, transforms: str, label: Label | None) -> None:
    """With classes as numbers, in JSON, or none; of JPEGs alone, and of all."""
    suffixes = {".jpg", ".jpeg", ".png"} if label is None else {".jpg"}
    work = replace(
        work_on_images(transforms), kind=Kind.SHARDS, suffixes=frozenset(suffixes), label=label
    )
    for backend in KINDS[Kind.SHARDS].backends:
        written(backend, work, tmp_path)
    check_style(tmp_path)


@pytest.mark.parametrize(
    ("kind", "transforms"),
    [
        (Kind.AUDIO, "mono, resample 16000, crop 3s"),
        (Kind.AUDIO, "resample 44100, crop 0.25s"),
        (Kind.TEXT, "tokenize bert-base-uncased"),
        (Kind.VIDEO, "frames 16, every 4, resize 128, crop 112, flip, normalize imagenet"),
        (Kind.VIDEO, "frames 16, resize 64x48"),
        (Kind.VIDEO, "frames 16, resize 64x48, crop 32, flip"),
    ],
)
def test_the_code_for_other_data_is_too(tmp_path: Path, kind: Kind, transforms: str) -> None:
    work = Work(Path("data"), KINDS[kind].parse(transforms), 32, 2, kind=kind)
    for field in ("", "text"):
        for backend in KINDS[kind].backends:
            written(backend, replace(work, field=field), tmp_path)
        check_style(tmp_path)


@pytest.mark.parametrize("name", ['a "quoted" folder', "a\\folder", "line\nbreak", "Fotos ä"])
def test_a_folder_of_any_name_is_a_text_of_the_code(name: str) -> None:
    code = code_of(IMAGES[0], work_on_images("resize 8x8", Path(name)))
    scope: dict[str, object] = {"Path": Path}
    begin = code.index("FOLDER = ")
    exec(code[begin : code.index("\n", begin)], scope)
    assert scope["FOLDER"] == Path(name)


def test_the_code_names_the_function_of_its_user() -> None:
    assert "from train import decode\n" in code_of(YOURS, work_on_images("resize 8x8"))
