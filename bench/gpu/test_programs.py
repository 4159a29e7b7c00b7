"""`loadeval run` of whole programs that train on the device, as people write them."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from bench.gpu.claims import PROGRAMS, PROGRAMS_LOADER, PROGRAMS_VERDICT, RANKS
from bench.judge import COMMAND, JudgeError, batches_in, compared, loaders_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.gpu.conftest import Notes

ROOT = Path(__file__).parents[2]
PROGRAMS_FOLDER = Path(__file__).with_name("programs")
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"),
)
REFUSAL = re.compile("Duplicate GPU detected.*")
LIMIT_S = 48
"""The limit for all programs of a test, which run side by side."""
EPOCHS = "12"
"""The epochs of an alternating run."""
WIDEST = 4
"""An interval that spans more than this factor agrees with anything: nothing was measured."""
IMAGES = {"train": 40, "val": 8}
"""The images of each class."""
CLASSES = 4
SHOWN = ("loss", "validation", "parameters")
"""What begins the lines that programs print of their training."""
PROGRAM_NAMES = ("mnist", "imagenet")

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(LIMIT_S + 10)]


@dataclass(frozen=True)
class Ended:
    """What a program has printed, and what went wrong with it, if anything did."""

    problem: str
    out: str
    err: str

    @property
    def training(self) -> list[str]:
        """The lines about its training: each kind by itself, in order."""
        lines = [line for line in self.out.splitlines() if line.startswith(SHOWN)]
        return sorted(lines, key=lambda line: line.rpartition(" ")[0])


class Programs:
    """Runs programs side by side, as many as there are CPUs; together they have LIMIT_S."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)) - 2))
        self.until_s = time.monotonic() + LIMIT_S

    def start(self, name: str, command: list[str]) -> Future[Ended]:
        return self.pool.submit(self._run, self.folder / name, command)

    def bare(self, name: str, command: list[str]) -> Future[Ended]:
        return self.start(f"{name}-bare", command)

    def measured(self, name: str, command: list[str], *options: str) -> Future[Ended]:
        """The same by `loadeval run`."""
        run = [*COMMAND, "run", "-o", str(self.logs(name)), *options, "--"]
        return self.start(f"{name}-measured", [*run, *command])

    def logs(self, name: str) -> Path:
        return self.folder / f"{name}-logs"

    def _run(self, stem: Path, command: list[str]) -> Ended:
        """Its output goes to files beside `stem`."""
        paths = stem.with_suffix(".out"), stem.with_suffix(".err")
        with paths[0].open("wb") as out, paths[1].open("wb") as err:
            code = self._code(
                subprocess.Popen(
                    command,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=environment(),
                )
            )
        printed, said = (path.read_text(errors="replace") for path in paths)
        last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
        ended = f"exit code {code}" if code is not None else f"not done after {LIMIT_S} s"
        return Ended("" if code == 0 else f"{ended}: {last[:200]}", printed, said)

    def _code(self, child: subprocess.Popen[bytes]) -> int | None:
        """Its exit code; None if it took too long."""
        try:
            return child.wait(max(0.1, self.until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.terminate()  # launchers pass it on
            try:
                child.wait(3)
            except subprocess.TimeoutExpired:
                child.kill()
            return None


def environment() -> dict[str, str]:
    """One in which programs find loadeval, and compute alike each time."""
    places = {"RANK", "WORLD_SIZE", "LOCAL_RANK"}
    inherited = {name: value for name, value in os.environ.items() if name not in places}
    paths = [str(ROOT), str(ROOT / "adapters"), os.environ.get("PYTHONPATH", "")]
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
        "HF_HUB_OFFLINE": "1",
        "GLOO_SOCKET_IFNAME": "lo",  # a machine without a network may not know its own name
        "NCCL_SOCKET_IFNAME": "lo",
    }


@pytest.fixture(name="programs")
def _programs(tmp_path: Path) -> Iterator[Programs]:
    """None goes on after the test."""
    programs = Programs(tmp_path)
    yield programs
    programs.pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module", name="images")
def _images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random JPEGs in a folder for each class, for training and validation."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for part, count in IMAGES.items():
        for label in range(CLASSES):
            place = folder / part / f"class{label}"
            place.mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 256, (48, 56, 3), np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.jpg")
    return folder


def program(name: str, images: Path, *options: str) -> list[str]:
    data = [str(images)] if name == "imagenet" else []
    return [sys.executable, str(PROGRAMS_FOLDER / f"train_{name}.py"), *data, *options]


def alike(first: Ended, second: Ended) -> str:
    """How many lines are the same."""
    same = sum(map(str.__eq__, first.training, second.training))
    return f"{same} of {max(len(first.training), len(second.training))} the same"


def trained_alike(
    bare: Ended, measured: Ended, bare_again: Callable[[], Future[Ended]]
) -> tuple[bool | None, str]:
    """Whether both trained the same, and what shows it.

    None where the program fails without loadeval, or does not repeat itself without loadeval.
    """
    if bare.problem:
        return None, f"without loadeval: {bare.problem}"
    if measured.problem:
        return False, measured.problem
    if bare.training and bare.training == measured.training:
        return True, alike(bare, measured)
    again = bare_again().result()
    repeats = bool(again.problem) or again.training == bare.training
    comparison = f"{alike(bare, measured)}; without loadeval, {alike(bare, again)}"
    return False if repeats else None, comparison


def test_losses_are_the_same_to_the_bit(note: Notes, programs: Programs, images: Path) -> None:
    """Each validation and the last parameters are compared too, and which loader is training."""
    started = {}
    for name in PROGRAM_NAMES:
        command = program(name, images)
        started[name] = command, programs.bare(name, command), programs.measured(name, command)
    for name, (command, bare, measured) in started.items():
        again = partial(programs.bare, f"{name}-again", command)
        held, comparison = trained_alike(bare.result(), measured.result(), again)
        expected = "all losses and parameters the same"
        note(PROGRAMS, name, expected=expected, measured=comparison, held=held)
        if not measured.result().problem:
            losses = sum(line.startswith("loss ") for line in measured.result().training)
            note_loaders(note, name, programs.logs(name), losses)


def note_loaders(note: Notes, name: str, logs: Path, losses: int) -> None:
    """One loader is called training, and has a row for each loss.

    Others are for validation.
    """
    loaders = loaders_in(logs)
    batches = {loader.log: batches_in(loader.log) for loader in loaders}
    training = [loader for loader in loaders if loader.role == "training"]
    summary = ", ".join(f"{loader.role} {batches[loader.log]}" for loader in loaders)
    note(
        PROGRAMS_LOADER,
        name,
        expected=f"training {losses}, and others",
        measured=summary or "nothing",
        held=len(training) == 1
        and training[0].optimizer_steps > 0
        and batches[training[0].log] == losses > 0,
    )


def test_verdicts_are_plausible(note: Notes, programs: Programs, images: Path) -> None:
    """An alternating run of each program ends well, with a speed-up that may be real."""
    alternate = ("--mode", "alternate")
    started = {
        name: programs.measured(name, program(name, images, "--epochs", EPOCHS), *alternate)
        for name in PROGRAM_NAMES
    }
    for name, future in started.items():
        measured = future.result().problem
        interval, verdict = None, ""
        if not measured:
            try:
                said = compared(programs.logs(name))
            except JudgeError as error:
                measured = str(error)
            else:
                verdict, speedup = said.verdict, said.speedup
                value = math.nan if speedup is None else speedup.value
                measured = f"{value:.2f}x, {verdict}, {said.pairs} pairs"
                if speedup is not None and speedup.low is not None and speedup.high is not None:
                    interval = speedup.low, speedup.high
        says_something = interval is not None and interval[1] <= WIDEST * interval[0]
        is_plausible = interval is not None and interval[1] >= 1 and bool(verdict)
        note(
            PROGRAMS_VERDICT,
            name,
            expected="exit code 0, a verdict, 1x or more",
            measured=measured,
            held=None if is_plausible and not says_something else is_plausible,
            interval=interval,
        )


def test_ranks_share_the_device(note: Notes, programs: Programs) -> None:
    """NCCL is used where it lets two processes share a device, and gloo."""
    started = {}
    for backend in ("nccl", "gloo"):
        command = [*TORCHRUN, str(PROGRAMS_FOLDER / "train_ranks.py"), "--backend", backend]
        started[backend] = (
            command,
            programs.bare(backend, command),
            programs.measured(backend, command),
        )
    for backend, (command, bare, measured) in started.items():
        refusal = REFUSAL.search(bare.result().err)
        if bare.result().problem and refusal:
            note(RANKS, backend, expected="-", measured=f"NCCL: {refusal[0]}", held=None)
            continue
        again = partial(programs.bare, f"{backend}-again", command)
        held, comparison = trained_alike(bare.result(), measured.result(), again)
        try:
            ranks = list(compared(programs.logs(backend)).ranks)
            shown = f"ranks {ranks} in the job"
        except JudgeError as error:
            ranks, shown = [], str(error)
        note(
            RANKS,
            backend,
            expected="all losses the same, ranks [0, 1] in the job",
            measured=f"{comparison}, {shown}",
            held=held and ranks == [0, 1],
        )
