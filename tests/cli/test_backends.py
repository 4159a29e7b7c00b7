"""`loadeval backends`."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest

from loadeval.backends import choose
from tests.backends.folders import shards, texts, videos, write_tar
from tests.cli.commands import runner
from tests.runs.measured import record

if TYPE_CHECKING:
    from pathlib import Path

run = runner("backends", columns=200)
PROGRAM = """
import numpy as np
from PIL import Image

NOTHING = 1

def decode(path):
    with Image.open(path) as file:
        return np.asarray(file.convert("RGB").resize((32, 32))).transpose(2, 0, 1).copy()

def step(batch):
    images, labels = batch
    if images.shape[1:] != (3, 32, 32):
        raise ValueError("no images")
"""


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photographs, and a module beside them in the working folder."""
    from loadeval.demo.photographs import make_photographs

    (tmp_path / "program_with_step.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "program_with_step", raising=False)
    make_photographs(tmp_path / "photographs", 20)
    return tmp_path / "photographs"


def test_the_code_of_a_backend_is_printed(folder: Path) -> None:
    """And nothing else: it can be redirected into a file."""
    code, out, err = run(folder, "--transform", "resize 40, crop 32", "--code", "dali")
    assert (code, err) == (0, "")
    compile(out, "loader.py", "exec")
    assert f'FOLDER = Path("{folder}")' in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--transform", "blur"], "Error: transform 'blur' is not known"),
        (["--code", "x"], "Error: there is no backend 'x'; expected one of pillow, "),
        (["--only", "x"], "Error: there is no backend 'x'"),
        (["-o", "page.doc"], "Error: cannot write 'page.doc': its extension is '.doc'"),
        (["--step", "program_with_step:missing"], "has no 'missing'"),
        (["--step", "program_with_step:NOTHING"], "cannot be called with a batch"),
        (["--decode", "program_with_step:missing"], "has no 'missing'"),
        (["--like", "missing.jsonl"], "missing.jsonl"),
    ],
)
def test_wrong_arguments_are_named(folder: Path, arguments: list[str], message: str) -> None:
    """In one line, before anything is measured."""
    code, out, err = run(folder, *arguments)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_empty_folder_is_one_clear_error(tmp_path: Path) -> None:
    code, out, err = run(tmp_path)
    assert (code, out) == (1, "")
    assert err == (
        f"Error: {tmp_path} has no file that is known, of 0; expected images: .jpg, .jpeg, .png; "
        "or WebDataset shards: .tar; or audio: .wav, .flac; or text: .txt, .jsonl; "
        "or video: .mp4\n"
    )


def test_two_steps_are_wrong_usage(folder: Path) -> None:
    code, _, err = run(folder, "--step", "a:b", "--like", "run.jsonl")
    assert code == 2
    assert "--step and --like both name a training step" in err


@pytest.fixture(name="_quick")
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures for as short as there is something to show."""
    monkeypatch.setattr("loadeval.backends.choose.Budget", lambda: QUICK)


QUICK = choose.Budget(rounds=2, seconds=0.05, step_rounds=3, step_batches=6)
SMALL = ("--transform", "resize 40, crop 32, flip", "--batch-size", 4, "--only", "spdl")


@pytest.mark.check
@pytest.mark.usefixtures("_quick")
def test_everything_is_written(folder: Path, tmp_path: Path) -> None:
    """A table and the code of the fastest; the page, the figure, JSON and the code as files."""
    (folder / "broken.jpg").write_bytes(b"no image")
    names = ["page.html", "figure.png", "all.json", "loader.py"]
    files = [word for name in names for word in ("-o", tmp_path / name)]
    code, out, err = run(folder, *SMALL, *files)
    assert code == 0, err
    assert "20 of 21 images (5 classes)" in out
    assert "pillow does not read 1 file, which are left out: broken.jpg" in out
    assert "spdl, given these: skips it" in out
    assert 'if __name__ == "__main__":' in out
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "all.json").read_text())
    assert content["fastest"] in {"pillow", "spdl"}
    assert content["code"] == (tmp_path / "loader.py").read_text()
    assert content["trained"] is None


@pytest.mark.check
@pytest.mark.usefixtures("_quick")
def test_images_of_100_megapixels_are_measured_and_told(folder: Path) -> None:
    """Pillow warns of one, and refuses one with more than 178; the comparison goes on."""
    from PIL import Image

    Image.new("L", (10_000, 10_000)).save(folder / "large.jpg")
    Image.new("L", (13_400, 13_400)).save(folder / "larger.jpg")
    options = ("--transform", "resize 40, crop 32", "--batch-size", 4, "--only", "opencv")
    code, out, err = run(folder, *options)
    assert code == 0, err
    assert "21 of 22 images" in out
    assert "which are left out: larger.jpg (PIL.Image.DecompressionBombError: " in out
    assert "pillow warns: DecompressionBombWarning: Image size (100000000 pixels) exceeds" in out
    assert "opencv warns" not in out
    assert "opencv failed" not in out


@pytest.mark.check
@pytest.mark.usefixtures("_quick")
def test_shards_are_measured_as_files_are(tmp_path: Path) -> None:
    """What is broken in them is told: an image, and a shard that ends early."""
    shards(tmp_path)
    write_tar(tmp_path / "002.tar", [("broken.jpg", b"no image"), ("broken.cls", b"1")])
    (tmp_path / "003.tar").write_bytes((tmp_path / "000.tar").read_bytes()[:50_000])
    code, out, err = run(tmp_path, *SMALL, "--only", "dali")
    assert code == 0, err
    assert " images in shards in " in out
    assert "pillow does not read 2 files" in out
    assert "003.tar (ReadError: unexpected end of data), 002.tar/broken.jpg (" in out
    assert "spdl, given these: skips it" in out
    assert "dali failed" not in out
    assert "import webdataset as wds" in out or "fn.readers.webdataset" in out


@pytest.mark.check
@pytest.mark.usefixtures("_quick")
def test_texts_are_tokenized(tmp_path: Path) -> None:
    """All token ids are equal; a line that is broken is told."""
    texts(tmp_path)
    with (tmp_path / "verses.jsonl").open("a") as file:
        file.write('{"text": "That mine own\n')
    transform = f"tokenize {tmp_path}/tokenizer.json, length 8"
    code, out, err = run(tmp_path, "--transform", transform, "--batch-size", 4)
    assert code == 0, err
    assert "12 of 13 texts in " in out
    assert "does not read 1 file, which are left out: verses.jsonl, byte " in out
    for name in ("tokenizers", "tokenizers-batch", "token-file"):
        assert re.search(rf"^{name} .* 0\.0, at most 0 .* raises$", out, re.MULTILINE)


@pytest.mark.check
@pytest.mark.parametrize(
    ("tokenizer", "error"),
    [
        ("no-such-tokenizer", "LocalEntryNotFoundError: "),
        ("{folder}/other.json", "Exception: Model missing"),
    ],
)
def test_a_tokenizer_that_cannot_be_had_is_one_clear_error(
    tmp_path: Path, tokenizer: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for once, and not for each text."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    texts(tmp_path)
    (tmp_path / "other.json").write_text("{}")
    transform = f"tokenize {tokenizer.format(folder=tmp_path)}"
    code, out, err = run(tmp_path, "--transform", transform)
    assert (code, out) == (1, "")
    assert err.startswith("loadeval: reading texts with tokenizers\n")
    assert f"Error: tokenizers fails at '{transform}': {error}" in err
    assert err.count("\n") == 2


@pytest.mark.check
@pytest.mark.usefixtures("_quick")
def test_videos_are_measured_as_images_are(tmp_path: Path) -> None:
    """One that is broken is told, and what each backend does with it."""
    videos(tmp_path)
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    transform = "frames 4, resize 32, crop 32"
    code, out, err = run(tmp_path, "--transform", transform, "--batch-size", 4, "--only", "dali")
    assert code == 0, err
    assert "12 of 13 videos (3 classes) in " in out
    assert "pyav does not read 1 file, which are left out: broken.mp4 (av.error.Inva" in out
    assert "dali, given these: raises" in out
    assert re.search(r"^dali .* raises$", out, re.MULTILINE)


@pytest.mark.check
def test_what_videos_are_compared_with_has_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how."""
    monkeypatch.setattr("loadeval.backends.catalogue._is_installed", lambda module: module != "av")
    (tmp_path / "a.mp4").touch()
    code, out, err = run(tmp_path, "--only", "pyav")
    assert (code, out) == (1, "")
    assert err == (
        "Error: backends are compared with pyav, which is not installed; install it with: pip "
        "install av\n"
    )


@pytest.mark.check
@pytest.mark.usefixtures("_quick")
def test_the_own_function_is_measured_and_the_reference(folder: Path) -> None:
    """Others are compared with what it loads."""
    options = ("--decode", "program_with_step:decode", "--only", "pillow", "--json")
    code, out, err = run(folder, "--transform", "resize 32x32", *options)
    assert code == 0, err
    content = json.loads(out)
    assert content["reference"] == "yours"
    assert [each["name"] for each in content["candidates"]] == ["yours", "pillow"]


@pytest.mark.check
@pytest.mark.usefixtures("_quick")
def test_a_step_that_fails_is_told(folder: Path, tmp_path: Path) -> None:
    """For each backend whose batches it does not take; none ends the command, nor its figure."""
    options = ("--transform", "resize 40, crop 36", "--step", "program_with_step:step")
    figure = tmp_path / "figure.png"
    code, out, err = run(folder, *options, "--batch-size", 4, "--only", "pillow", "-o", figure)
    assert code == 0, err
    assert figure.exists()
    assert out.startswith("No backend was measured\n")
    assert "pillow failed: ValueError: no images" in out


@pytest.mark.check
@pytest.mark.usefixtures("_quick")
def test_what_training_would_do_with_each(folder: Path, tmp_path: Path) -> None:
    """Under the step of a run: real and ideal throughput, and the loss."""
    like = record(tmp_path / "run.jsonl", "alternate")
    code, out, err = run(folder, *SMALL, "--like", like)
    assert code == 0, err
    assert "Under the training step" in out
    assert "The step is that of the run with ideal loading" in out
    assert "if loading were free" in out
