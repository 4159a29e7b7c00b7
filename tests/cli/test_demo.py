"""`loadeval demo`: what it prints, and what it says when it cannot run."""

from __future__ import annotations

import gzip
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loadeval.demo.run import run_demo
from tests.cli.commands import runner

# From Python 3.12 on, forking a process in which torch has threads gives this warning.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
BEFORE = Path(__file__).parents[1] / "recorded" / "before-demo.jsonl.gz"


run = runner("demo")


@pytest.mark.check
def test_the_screen_names_what_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadeval.demo.run.run_demo", partial(run_demo, photographs=64, epochs=4))
    code, out, err = run("--output", tmp_path)
    assert code == 0, err
    log = tmp_path / "run.jsonl"
    assert out.splitlines()[-3:] == [
        f"More: loadeval compare {log} --full; as a page: loadeval report {log}",
        f"Figure written to {tmp_path / 'comparison.png'}",
        f"The first change, made and measured: loadeval demo --after -o {tmp_path}",
    ]


def test_after_trains_with_the_first_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was to bring stands beside what it brought: here nothing, of the same log."""
    (tmp_path / "photographs").mkdir()
    (tmp_path / "run.jsonl").write_bytes(gzip.decompress(BEFORE.read_bytes()))
    given: dict[str, Any] = {}

    def same(log: Path, **settings: Any) -> None:
        given.update(settings)
        shutil.copy(tmp_path / "run.jsonl", log)

    monkeypatch.setattr("loadeval.demo.run.run_demo", same)
    _, out, _ = run("--after", "-o", tmp_path)
    assert given == {"device": "cpu", "num_workers": 3}
    assert out.splitlines()[-2:] == [
        "num_workers 2 -> 3: predicted 1.30x [1.22x, 1.40x], measured 1.00x [0.98x, 1.02x].",
        f"More: loadeval compare {tmp_path}/run.jsonl {tmp_path}/after.jsonl",
    ]


def test_measurements_of_others_are_kept(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("measured")
    assert "no demo wrote it; give --output another folder" in run("-o", tmp_path)[2]
    assert (tmp_path / "run.jsonl").read_text() == "measured"


def test_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("loadeval.demo.run.run_demo", interrupted)
    code, _, err = run("--output", tmp_path)
    assert code == 130
    assert err.endswith("Interrupted.\n")


def test_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = run("--output", tmp_path / "demo", "--device", "cuda")
    assert code == 1
    assert "Error: cannot train on a GPU: torch " in err
    assert err.endswith("or train on the CPU with --device cpu\n")
    assert not (tmp_path / "demo").exists()


def test_package_missing(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from loadeval.cli.main import app; app()"
    command = [sys.executable, "-c", code, "demo", "--output", str(tmp_path / "demo")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "torch is not installed" in result.stderr
    assert "pip install torch pillow matplotlib" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "demo").exists()
