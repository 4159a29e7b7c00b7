"""`loadeval run` of whole programs, as people write and launch them: nothing of theirs changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from PIL import Image

from tests.launch.conftest import environment, launched

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.launch.conftest import Launched

    Losses = dict[str, str]
    Trained = Callable[[list[str]], tuple[Losses, Losses, Launched]]

SCRIPTS = Path(__file__).with_name("scripts")
BIN = Path(sys.executable).parent
TORCHRUN = (str(BIN / "torchrun"), "--standalone")
CLASSES, TRAINING, VALIDATION = 4, 12, 4
"""Images of each class."""
DIGITS = {"train": 64, "t10k": 32}


class Program(NamedTuple):
    """`command` is followed by the folders of its data and of its losses.

    `batches` are those of each log, in two epochs.
    """

    command: list[str]
    batches: dict[str, int]


def script(name: str) -> str:
    return str(SCRIPTS / name)


def of_ranks(count: int) -> dict[str, int]:
    """Batches of imagenet.py: the ranks share the training images, and all of them validate."""
    each = CLASSES * TRAINING // 4 // count
    training = {f"rank{rank}.jsonl": 2 * each for rank in range(count)}
    return {**training, **{f"rank{rank}-validation.jsonl": 2 * 4 for rank in range(count)}}


MNIST = {"rank0.jsonl": 2 * 8, "rank0-validation.jsonl": 2 * 2}
ONE_BY_ONE = {
    **of_ranks(1),
    **{name.replace("rank0", "rank0-run2"): count for name, count in MNIST.items()},
}
PROGRAMS = {
    "mnist": Program([sys.executable, script("mnist.py")], MNIST),
    "imagenet": Program([sys.executable, script("imagenet.py")], of_ranks(1)),
    "torchrun, 2 ranks": Program(
        [*TORCHRUN, "--nproc-per-node=2", script("imagenet.py"), "--workers=1"], of_ranks(2)
    ),
    "torchrun, 4 ranks": Program(
        [*TORCHRUN, "--nproc-per-node=4", script("imagenet.py"), "--workers=0"], of_ranks(4)
    ),
    "a launcher of its own": Program(
        [sys.executable, script("launcher.py"), script("imagenet.py"), "--workers=0"], of_ranks(2)
    ),
    "a shell script": Program(["sh", script("train.sh")], ONE_BY_ONE),
}


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as MNIST's, JPEGs as ImageNet's, and tokens: random ones."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    for part, count in DIGITS.items():
        pixels = random.integers(0, 256, (count, 28, 28))
        labels = random.integers(0, 10, count)
        for name, header, values in (
            ("images-idx3-ubyte", (0x803, count, 28, 28), pixels),
            ("labels-idx1-ubyte", (0x801, count), labels),
        ):
            beginning = np.array(header, ">u4").tobytes()
            (folder / f"{part}-{name}").write_bytes(beginning + values.astype(np.uint8).tobytes())
    for part, count in {"train": TRAINING, "val": VALIDATION}.items():
        for label in range(CLASSES):
            place = folder / part / f"class{label}"
            place.mkdir(parents=True)
            for number in range(count):
                image = random.integers(0, 256, (40, 48, 3)).astype(np.uint8)
                Image.fromarray(image).save(place / f"{number}.jpg")
    random.integers(0, 64, 2000).astype(np.uint16).tofile(folder / "tokens.bin")
    return folder


@pytest.fixture(name="trained")
def _trained(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    """Runs a command by itself, and with `loadeval run`: the losses of both, and the latter."""
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")

    def trained(command: list[str]) -> tuple[Losses, Losses, Launched]:
        bare, measured = tmp_path / "bare", tmp_path / "measured"
        bare.mkdir()
        measured.mkdir()
        subprocess.run(
            [*command, str(data), str(bare)],
            env=environment(),
            capture_output=True,
            check=True,
            timeout=100,
        )
        done = launched(tmp_path, [*command, str(data), str(measured)])
        return losses_in(bare), losses_in(measured), done

    return trained


def losses_in(folder: Path) -> Losses:
    """The losses of each file."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_trains_the_same_and_is_measured(name: str, trained: Trained) -> None:
    """All losses to the bit; a row of each batch; training and validation told apart."""
    command, batches = PROGRAMS[name]
    bare, losses, done = trained(command)
    assert done.code == 0, done.err
    assert bare
    assert losses == bare
    assert done.batches == batches, done.err
    assert all(done.run(log).closed for log in batches)
    for process in done.processes:
        training, validation = process.loaders
        assert process.ended
        assert process.main is training
        assert (training.role, validation.role) == ("training", "validation")
        assert training.optimizer_steps == batches[training.log]
        assert validation.optimizer_steps == 0


def test_a_program_without_a_loader_is_told_in_one_line(trained: Trained) -> None:
    """One is nanoGPT, which draws its batches by itself; its losses are the same."""
    bare, losses, done = trained([sys.executable, script("nanogpt.py")])
    assert bare
    assert losses == bare
    assert done.batches == {}
    began, reason = done.err.splitlines()
    assert began.startswith("loadeval: logs in ")
    assert reason.startswith("Nothing was measured: the program iterated no data loader that")
