"""MLflow with its local store, and W&B offline, as their users have them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import COMMAND

PROGRAM = """
import sys, time
import numpy as np
from loadeval import LoaderEvaluator
from loadeval import track
{before}
track.INTERVAL_S = 0.2

class Batches:
    def __len__(self):
        return 100

    def __iter__(self):
        for _ in range(100):
            time.sleep(0.003)
            yield np.zeros((4, 2))

with LoaderEvaluator(Batches(), sys.argv[1], track=sys.argv[2], name="ours", warmup=1) as loader:
    for epoch in range(4):
        for batch in loader:
            time.sleep(0.003)
{after}
"""
UNEDITED = """
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
{before}
for epoch in range(2):
    for (batch,) in DataLoader(TensorDataset(torch.zeros(160, 2)), batch_size=4):
        model(batch).sum().backward()
        optimizer.step()
{after}
"""
FILE_HEADER, PART_HEADER, BLOCK = 7, 7, 32_768
LAST_PARTS = (1, 4)
"""The types of a part that is a whole record, and of the last one of several."""


def trained(
    folder: Path, *arguments: str, before: str = "", after: str = "", program: str = PROGRAM
) -> subprocess.CompletedProcess[str]:
    """A program of that text, run in `folder`; with arguments that name it by `loadeval`."""
    path = folder / "program.py"
    path.write_text(program.format(before=before, after=after))
    environment = {key: value for key, value in os.environ.items() if "WANDB" not in key}
    environment |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    command = [sys.executable, str(path), *arguments]
    if arguments[0] == "run":
        command = [str(COMMAND), *arguments, "--", sys.executable, str(path)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "gets nothing more" not in done.stderr
    return done


class OfMLflow:
    """The runs in the store of a folder."""

    def __init__(self, store: str) -> None:
        mlflow = pytest.importorskip("mlflow")
        self.client: Any = mlflow.MlflowClient(store)
        experiments = self.client.search_experiments()
        self.runs = self.client.search_runs([one.experiment_id for one in experiments])


@pytest.fixture(name="files")
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where it kept them before, which is there sooner."""
    pytest.importorskip("mlflow")
    store = (tmp_path / "mlruns").as_uri()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    return store


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_the_active_run_of_mlflow_is_joined(tmp_path: Path, files: str) -> None:
    """Though it was begun after the evaluator's module was imported; it stays active after us."""
    before = (
        "import mlflow; mlflow.set_experiment('theirs'); mlflow.start_run(run_name='their run')"
    )
    after = "assert mlflow.active_run() is not None; mlflow.log_metric('loss', 1.5)"
    trained(tmp_path, "log", "mlflow", before=before, after=after)
    of = OfMLflow(files)
    (run,) = of.runs
    assert run.info.run_name == "their run"
    assert {"loss", "loadeval/wait_share"} <= set(run.data.metrics)


def test_a_program_that_nobody_edited_is_tracked_by_mlflow(tmp_path: Path, files: str) -> None:
    """In the run that it has begun, though that has ended when the last scalars are there."""
    before, after = "import mlflow; run = mlflow.start_run()", "mlflow.end_run()"
    options = ("run", "--track", "mlflow", "--output", "logs")
    trained(tmp_path, *options, before=before, after=after, program=UNEDITED)
    of = OfMLflow(files)
    (run,) = of.runs
    assert run.data.metrics["loadeval/epoch"] == 1


def of_wandb(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """What the only run would send: rows, and the project."""
    from wandb.proto import wandb_internal_pb2

    make_record: Any = vars(wandb_internal_pb2)["Record"]  # its types do not tell
    rows, project = [], ""
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    for text in records_in(path.read_bytes()):
        record = make_record()
        record.ParseFromString(text)
        project = record.run.project or project
        if record.history.item:
            items = record.history.item
            names = [item.key or "/".join(item.nested_key) for item in items]
            values = [json.loads(item.value_json) for item in items]
            rows.append(dict(zip(names, values, strict=True)))
    return rows, project


def records_in(content: bytes) -> Iterator[bytes]:
    """The records of a log of LevelDB: in blocks, each part under a checksum, a size and a type."""
    place, parts = FILE_HEADER, list[bytes]()
    while place < len(content):
        left = BLOCK - place % BLOCK
        if left < PART_HEADER:  # it is filled up
            place += left
            continue
        size, kind = struct.unpack("<HB", content[place + 4 : place + PART_HEADER])
        place += PART_HEADER + size
        parts.append(content[place - size : place])
        if kind in LAST_PARTS:
            yield b"".join(parts)
            parts = []


@pytest.fixture(name="wandb")
def _wandb() -> None:
    pytest.importorskip("wandb")


@pytest.mark.usefixtures("wandb")
def test_the_run_of_wandb_is_joined_and_keeps_its_steps(tmp_path: Path) -> None:
    """Ours are in rows that the program logs, and no row more is there."""
    before = "import wandb; run = wandb.init(project='theirs')"
    after = "[run.log({'loss': 1.0}, step=step) for step in range(3)]; run.finish()"
    trained(tmp_path, "log", "wandb", before=before, after=after)
    rows, project = of_wandb(tmp_path)
    assert project == "theirs"
    assert [row["_step"] for row in rows if "loss" in row] == [0, 1, 2]
    assert any("loadeval/wait_share" in row for row in rows)
    assert len(rows) == 3
