"""The demo on a device: its screen, its page, and what `loadeval doctor` says of the machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from bench.gpu.claims import DEMO, DEMO_DOCTOR, DEMO_PAGE
from bench.gpu.device import driver_version, is_stand_in
from bench.judge import column, lines_of

if TYPE_CHECKING:
    from bench.gpu.conftest import Notes

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
PHOTOGRAPHS, BATCH_SIZE, EPOCHS = (32, 8, 4) if is_stand_in() else (160, 32, 8)
"""A part of the demo: what is learned from it in seconds."""
COMMAND = f"""
from functools import partial
from bench.gpu.device import missing
missing()  # puts the stand-in in place where it is wanted
import loadeval.demo.run as demo
demo.BATCH_SIZE = {BATCH_SIZE}
demo.run_demo = partial(demo.run_demo, photographs={PHOTOGRAPHS}, epochs={EPOCHS})
from loadeval.cli.main import app
app()
"""
MOST_S = 250 if is_stand_in() else 50
NEEDED = ("typer", "rich", "PIL", "matplotlib")


def loadeval(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command, as a terminal runs it."""
    is_whole = arguments[0] == "report" or (arguments[0] == "doctor" and not is_stand_in())
    python = [
        sys.executable,
        "-W",
        "ignore",
        *(["-m", "loadeval"] if is_whole else ["-c", COMMAND]),
    ]
    command = [*python, *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "100"}
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=MOST_S,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"took over {MOST_S} s")


def lacking(*packages: str) -> str:
    """Those of `packages` that are not installed, in words; empty where all are."""
    absent = [name for name in packages if find_spec(name) is None]
    return f"{', '.join(absent)} not installed" if absent else ""


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a command said last, which is its error where it has one."""
    return next(iter((done.stderr or done.stdout).splitlines()[-1:]), "nothing was printed")


@dataclass
class Demo:
    """A demo that has run, and its files."""

    folder: Path
    done: subprocess.CompletedProcess[str]
    seconds: float

    @property
    def log(self) -> Path:
        """The run log."""
        return self.folder / "run.jsonl"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo | None:
    """The demo; None where it cannot run here."""
    if lacking(*NEEDED):
        return None
    folder = tmp_path_factory.mktemp("demo")
    began = time.perf_counter()
    done = loadeval("demo", "--device", "cuda", "--output", folder)
    finished = Demo(folder, done, time.perf_counter() - began)
    keep(folder / "run.jsonl")
    kept_text("demo.txt", done.stdout + done.stderr)
    return finished


def keep(*paths: Path) -> None:
    """Copy files to where the machine's user will look at them."""
    out = os.environ.get("OUT")
    for path in paths:
        if out and path.exists():
            shutil.copy(path, out)


def kept_text(name: str, text: str) -> None:
    """Keep a text like `keep` does a file."""
    if os.environ.get("OUT"):
        (Path(os.environ["OUT"]) / name).write_text(text)


def test_the_demo_trains_on_the_gpu(note: Notes, demo: Demo | None) -> None:
    if demo is None:
        note(DEMO, "runs", expected="exit code 0", measured=lacking(*NEEDED), held=None)
        return
    code = demo.done.returncode
    said = f"exit code {code} in {demo.seconds:.0f} s" if code == 0 else last_line(demo.done)
    note(DEMO, "runs", expected="exit code 0", measured=said, held=code == 0)
    if code:
        return
    gpu_idle_ns = column(demo.log, "gpu_idle_ns")
    idle = int((gpu_idle_ns >= 0).sum())
    subjects = {
        line["subject"] for line in lines_of(demo.log, "readings") if line["probe"] == "gpu"
    }
    (header,) = lines_of(demo.log, "header")
    name = torch.cuda.get_device_name(0)
    screen = " ".join(demo.done.stdout.split())
    pinned = "pinned" if header["loader"]["pinned"] else "not pinned"
    for case, expected, measured, held in (
        ("batches", "pinned", pinned, pinned == "pinned"),
        ("batches with GPU idle while waiting", "some", f"{idle} of {len(gpu_idle_ns)}", idle > 0),
        (
            "readings",
            name,
            ", ".join(sorted(subjects)) or "none",
            any(name in subject for subject in subjects),
        ),
        (
            "screen",
            "GPU idle while waiting",
            _around(screen, "GPU idle while waiting"),
            "GPU idle while waiting" in screen,
        ),
    ):
        note(DEMO, case, expected=expected, measured=measured, held=held)


def _around(text: str, words: str) -> str:
    _, matched, after = text.partition(words)
    return f"{matched}{after[:30]}" if matched else "not there"


def test_the_page_has_the_gpus_part(note: Notes, demo: Demo | None, tmp_path: Path) -> None:
    """The error says what to install, where plotly is missing."""
    lacks = lacking(*NEEDED)
    if demo is None or demo.done.returncode:
        note(DEMO_PAGE, "page", expected="a page", measured=lacks or "no demo", held=None)
        return
    page = tmp_path / "report.html"
    done = loadeval("report", demo.log, "--output", page)
    if lacking("plotly"):
        said = last_line(done)
        held = None if "loadeval[report]" in said else False
        note(DEMO_PAGE, "page", expected="a page", measured=said, held=held)
        return
    keep(page)
    text = page.read_text().split("<script")[0] if page.exists() else last_line(done)
    name = torch.cuda.get_device_name(0)
    for words in ("System metrics", f"GPU 0 ({name})"[:40], "GPU idle while waiting"):
        measured = "there" if words in text else "not there"
        note(DEMO_PAGE, words, expected="there", measured=measured, held=words in text)


def test_doctor_names_the_gpu_and_its_driver(note: Notes) -> None:
    if lacking("typer", "rich"):
        note(DEMO_DOCTOR, "driver", expected="", measured=lacking("typer", "rich"), held=None)
        return
    done = loadeval("doctor", "--json")
    checks = json.loads(done.stdout)["checks"] if done.stdout.startswith("{") else []
    texts = [check["says"] for check in checks if check["name"] == "NVIDIA driver"]
    said = texts[0] if texts else last_line(done)
    name, version = torch.cuda.get_device_name(0), driver_version() or "no version"
    held = name in said and version in said
    note(DEMO_DOCTOR, "driver", expected=f"{version}, {name}", measured=said, held=held)
