"""The code that is written for each backend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loadeval.backends.catalogue import IMAGES, OWN, WrittenBackend
from loadeval.backends.code import Work, code_of
from loadeval.backends.transforms import parse_transforms

ALL = [*IMAGES, WrittenBackend(OWN, "own", ("torch",), "torch")]
TRANSFORMS = [
    "resize 256, crop 224, flip, normalize imagenet",
    "resize 64x48",
    "resize 64x48, flip",
    "resize 40, crop 32x24, normalize 0.5 0.5",
]


def written(backend: WrittenBackend, transforms: str, folder: Path = Path("photos")) -> str:
    work = Work(folder, parse_transforms(transforms), 32, 2, "train:decode")
    return code_of(backend, work)


@pytest.mark.parametrize("transforms", TRANSFORMS)
def test_the_code_is_as_one_would_write_it(tmp_path: Path, transforms: str) -> None:
    """It is formatted, imports what it uses and nothing else, and has no undefined name."""
    for backend in ALL:
        (tmp_path / f"load_{backend.name}.py").write_text(written(backend, transforms))
    (tmp_path / "train.py").touch()  # where its user's function is
    ruff = [Path(sys.executable).with_name("ruff")]
    rules = [
        "--isolated",
        f"--config=src=[{str(tmp_path)!r}]",
        "--line-length=100",
        "--no-cache",
        str(tmp_path),
    ]
    for command in (["format", "--check"], ["check", "--select=E,F,I,W", "--ignore=E402"]):
        done = subprocess.run(
            [*ruff, *command, *rules], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ['a "quoted" folder', "a\\folder", "line\nbreak", "Fotos ä"])
def test_a_folder_of_any_name_is_a_text_of_the_code(name: str) -> None:
    code = written(ALL[0], "resize 8x8", Path(name))
    scope: dict[str, object] = {"Path": Path}
    begin = code.index("FOLDER = ")
    exec(code[begin : code.index("\n", begin)], scope)
    assert scope["FOLDER"] == Path(name)


def test_the_code_names_the_function_of_its_user() -> None:
    assert "from train import decode\n" in written(ALL[-1], "resize 8x8")
