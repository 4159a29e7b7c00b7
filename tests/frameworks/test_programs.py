"""`loadeval run` of whole programs, as people write and launch them: nothing of theirs changes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from tests.launch.conftest import Launched, environment, launched

if TYPE_CHECKING:
    from collections.abc import Callable

    Ran = Callable[["Program"], "Outcome"]

SCRIPTS = Path(__file__).with_name("scripts")
BIN = Path(sys.executable).parent
TORCHRUN = (str(BIN / "torchrun"), "--standalone")
CLASSES, TRAINING, VALIDATION = 4, 12, 4
"""Images of each class."""
DIGITS = {"train": 64, "t10k": 32}
TIMEOUT_S = 100


@dataclass(frozen=True)
class Program:
    """How it is launched: `command` is followed by the folders of its data and of its losses.

    `batches` has those of each log in two epochs, of the logs that `role_of` tells apart.
    """

    name: str
    command: tuple[str, ...]
    batches: dict[str, int] = field(hash=False)

    @property
    def parameter(self) -> object:
        """That of a test that runs where others of this program do: it is run once."""
        return pytest.param(self, id=self.name, marks=pytest.mark.xdist_group(self.name))


def script(name: str) -> str:
    return str(SCRIPTS / name)


def of_ranks(count: int) -> dict[str, int]:
    """Of imagenet.py: the ranks share the training images, and all of them validate."""
    each = CLASSES * TRAINING // 4 // count
    training = {f"rank{rank}.jsonl": 2 * each for rank in range(count)}
    return {**training, **{f"rank{rank}-validation.jsonl": 2 * 4 for rank in range(count)}}


MNIST = {"rank0.jsonl": 2 * 8, "rank0-validation.jsonl": 2 * 2}
ONE_BY_ONE = {
    **of_ranks(1),
    **{name.replace("rank0", "rank0-run2"): count for name, count in MNIST.items()},
}
PROGRAMS = [
    Program("mnist", (sys.executable, script("mnist.py")), MNIST),
    Program("imagenet", (sys.executable, script("imagenet.py")), of_ranks(1)),
    Program(
        "torchrun, 2 ranks", (*TORCHRUN, "--nproc-per-node=2", script("imagenet.py")), of_ranks(2)
    ),
    Program(
        "torchrun, 4 ranks",
        (*TORCHRUN, "--nproc-per-node=4", script("imagenet.py"), "--workers=0"),
        of_ranks(4),
    ),
    Program(
        "a launcher of its own",
        (sys.executable, script("launcher.py"), script("imagenet.py"), "--workers=1"),
        of_ranks(2),
    ),
    Program("a shell script", ("sh", script("train.sh")), ONE_BY_ONE),
]
EACH = pytest.mark.parametrize("program", [one.parameter for one in PROGRAMS])


@dataclass(frozen=True)
class Outcome:
    """A program that was run by itself, and with `loadeval run`; the losses of each by file."""

    bare: dict[str, str]
    losses: dict[str, str]
    done: Launched


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


@pytest.fixture(scope="module", name="ran")
def _ran(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Runs a program twice, once."""

    @cache
    def ran(program: Program) -> Outcome:
        bare, measured = (tmp_path_factory.mktemp(name) for name in ("bare", "measured"))
        subprocess.run(
            [*program.command, str(data), str(bare)],
            env=found_first(environment()),
            capture_output=True,
            check=True,
            timeout=TIMEOUT_S,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "environ", found_first(dict(os.environ)))
            done = launched(
                tmp_path_factory.mktemp("run"), [*program.command, str(data), str(measured)]
            )
        return Outcome(losses_in(bare), losses_in(measured), done)

    return ran


def found_first(variables: dict[str, str]) -> dict[str, str]:
    """With this Python as `python`."""
    return {**variables, "PATH": f"{BIN}{os.pathsep}{variables['PATH']}"}


def losses_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")}


@EACH
def test_the_losses_are_the_same(program: Program, ran: Ran) -> None:
    """To the bit, on each rank, those of validation too."""
    outcome = ran(program)
    assert outcome.done.code == 0, outcome.done.err
    assert outcome.bare
    assert outcome.losses == outcome.bare


@EACH
def test_each_batch_has_its_row(program: Program, ran: Ran) -> None:
    """In the log of its rank and loader, and there is no other log."""
    assert ran(program).done.batches == program.batches


@EACH
def test_the_training_loader_is_found(program: Program, ran: Ran) -> None:
    """It made an optimizer step of each batch; the other is told as validation."""
    for process in ran(program).done.processes:
        training, validation = process.loaders
        assert process.main is training
        assert (training.role, validation.role) == ("training", "validation")
        assert training.optimizer_steps == program.batches[training.log]
        assert validation.optimizer_steps == 0


@EACH
def test_each_process_has_closed_its_logs(program: Program, ran: Ran) -> None:
    done = ran(program).done
    assert all(process.ended for process in done.processes)
    assert all(done.run(log).closed for log in program.batches)


def test_a_program_without_a_loader_is_told_in_one_line(ran: Ran) -> None:
    """As nanoGPT, which draws its batches by itself; its losses are the same."""
    outcome = ran(Program("nanogpt", (sys.executable, script("nanogpt.py")), {}))
    assert outcome.losses == outcome.bare
    assert outcome.done.batches == {}
    began, told = outcome.done.err.splitlines()
    assert began.startswith("loadeval: logs in ")
    assert told.startswith("Nothing was measured: the program iterated no data loader that")
