"""Which loader trains: told by gradients and optimizer steps, over many epochs and in each mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from loadeval import Run, read_run
from loadeval.data.folder import LoaderRecord, processes_in
from tests.launch.installing import install, uninstall

SAMPLES, BATCH = 200, 4
BATCHES = SAMPLES // BATCH


@pytest.fixture(name="folder", params=["log", "alternate"])
def _folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return install(request.param, output=tmp_path / "logs")


def made(samples: int = SAMPLES, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(float(samples))), BATCH, **options)


def train(loader: Any) -> list[float]:
    """An epoch with an optimizer step on each batch; its samples."""
    model = nn.Linear(1, 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    seen = []
    for (batch,) in loader:
        model(batch[:, None]).sum().backward()
        optimiser.step()
        seen += batch.tolist()
    return seen


@torch.no_grad()
def evaluate(loader: Any) -> list[float]:
    """Evaluate like most programs: gradients are off when the iterator is asked for."""
    return [float(value) for (batch,) in loader for value in batch]


def evaluate_by_batch(loader: Any) -> list[float]:
    """Evaluate like Trainer and skorch: gradients are off once a batch is there."""
    seen = []
    for (batch,) in loader:
        with torch.no_grad():
            seen += batch.tolist()
    return seen


def loaders_by_role(folder: Path) -> dict[str, LoaderRecord]:
    """The loaders of the only process, by role."""
    uninstall()
    (process,) = processes_in(folder)
    assert len({record.role for record in process.loaders}) == len(process.loaders)
    return {record.role: record for record in process.loaders}


def log(folder: Path, record: LoaderRecord) -> Run:
    return read_run(folder / record.log)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param(
            {"num_workers": 1, "persistent_workers": True}, marks=pytest.mark.check, id="persistent"
        ),
    ],
)
def test_a_loader_that_trains_is_evaluated_too(options: dict[str, Any], folder: Path) -> None:
    """Each role has its epochs, steps, batches and stages; training alone alternates."""
    loader, epochs, samples = made(**options), 4, list(range(SAMPLES))
    for _ in range(epochs):
        assert sorted(train(loader)) == samples
        assert evaluate(loader) == samples
    roles = loaders_by_role(folder)
    training, validation = roles["training"], roles["validation"]
    assert (training.epochs, training.optimizer_steps) == (epochs, epochs * BATCHES)
    assert (validation.epochs, validation.optimizer_steps) == (epochs, 0)
    for record in (training, validation):
        run = log(folder, record)
        assert run.batches == epochs * BATCHES
        assert {end.cause for end in run.ends} == {"exhausted"}
    assert log(folder, validation).header.mode == "log"
    run = log(folder, training)
    looked_into = set(range(epochs))
    if run.header.mode == "alternate":  # in the blocks for it alone
        looked_into = set(run.steps.epoch[run.steps.instrumented].tolist())
        assert len(set(run.steps.pair.tolist())) > 2
    assert set(run.stages.epoch.tolist()) == looked_into


def test_what_is_read_before_training(tmp_path: Path) -> None:
    """A sanity check, as Lightning has one, is validation; data may be read for its statistics."""
    folder = install(output=tmp_path / "logs")
    held = made(20)
    evaluate(held)
    evaluate_by_batch(made(40))
    train(made())
    evaluate(held)
    roles = loaders_by_role(folder)
    assert {role: record.epochs for role, record in roles.items()} == {
        "validation": 2,
        "other": 1,
        "training": 1,
    }
    assert roles["training"].optimizer_steps == BATCHES


def test_evaluation_with_gradients_on_is_validation(tmp_path: Path) -> None:
    """It comes after optimizer steps, and has none itself; its first epoch alone alternates."""
    folder = install("alternate", output=tmp_path / "logs")
    loader, held = made(40), made()
    for _ in range(3):
        train(loader)
        assert sorted(evaluate_by_batch(held)) == list(range(SAMPLES))
    roles = loaders_by_role(folder)
    assert (roles["training"].epochs, roles["validation"].epochs) == (3, 3)
    run = log(folder, roles["validation"])
    assert set(run.steps.pair[run.steps.epoch > 0].tolist()) == {-1}


def test_a_loader_that_is_read_within_a_step_is_noted(folder: Path) -> None:
    """With the loader that is trained on, at that time."""
    loader, held = made(), made(40)
    model = nn.Linear(1, 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    evaluate(held)
    for number, (batch,) in enumerate(loader):
        model(batch[:, None]).sum().backward()
        optimiser.step()
        if number == 20:
            evaluate(held)
    evaluate(held)
    run = log(folder, loaders_by_role(folder)["training"])
    (event,) = (each for each in run.events if each.kind != "optimizer")
    assert (event.kind, event.message) == ("within a step", "rank0-validation.jsonl was read")
    assert run.steps.request_ns[20] < event.time_ns < run.steps.request_ns[21]
