"""Loaders of other libraries that run on torch's iterators, as fastai's does."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from torch.utils.data import dataloader

from loadeval import read_run
from loadeval.data.folder import processes_in
from loadeval.launch import hook
from tests.launch.installing import install, uninstall
from tests.launch.own_loader import OwnLoader
from tests.launch.test_roles import evaluate, train

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAMPLES = 200
WORKERS = pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.check)])


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = [vars(kind)["__init__"] for kind in iterators()]
    yield
    uninstall()
    assert [vars(kind)["__init__"] for kind in iterators()] == before


def iterators() -> list[type]:
    return [getattr(dataloader, name) for name in hook.MADE_BY_OTHERS]


@WORKERS
@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_its_epochs_are_measured(mode: str, workers: int, tmp_path: Path) -> None:
    """Training and evaluation apart, the batches as without loadeval, under the loader's name."""
    plain = evaluate(OwnLoader(SAMPLES, num_workers=workers))
    folder = install(mode, output=tmp_path / "logs")
    loader, held = (OwnLoader(SAMPLES, num_workers=workers) for _ in range(2))
    for _ in range(3):
        assert sorted(train(loader)) == sorted(plain)
        assert evaluate(held) == plain
    uninstall()
    (process,) = processes_in(folder)
    by_role = {
        record.role: (record.epochs, record.optimizer_steps, record.mode)
        for record in process.loaders
    }
    assert by_role == {"training": (3, 150, mode), "validation": (3, 0, "log")}
    run = read_run(folder / process.loaders[0].log)
    assert run.batches == 150
    info = run.header.loader
    assert info.backend == "tests.launch.own_loader.OwnLoader"
    assert (info.workers, info.prefetch_depth) == (workers, 2 * workers)
    assert (info.batch_size, info.length, info.dataset) == (4, 50, "Tensor")
    assert info.persistent_workers is None


@WORKERS
def test_a_replay_has_no_workers(workers: int, tmp_path: Path) -> None:
    """Its iterators are made by the loader, and have nothing to do."""
    folder = install("replay", output=tmp_path / "logs")
    loader = OwnLoader(SAMPLES, num_workers=workers)
    for _ in range(2):
        assert len(train(loader)) == SAMPLES
    uninstall()
    run = read_run(folder / "rank0.jsonl")
    assert run.batches == 100
    assert set(run.steps.arm.tolist()) == {1}


def test_an_epoch_that_is_dropped_is_over(tmp_path: Path) -> None:
    """It is over without the garbage collector: the steps that follow are the next epoch's."""
    folder = install(output=tmp_path / "logs")
    gc.disable()
    try:
        loader = OwnLoader(SAMPLES)
        next(iter(loader))
        train(loader)
    finally:
        gc.enable()
    uninstall()
    (process,) = processes_in(folder)
    assert [(record.log, record.epochs) for record in process.loaders] == [("rank0.jsonl", 2)]


def test_what_is_not_measured_is_the_loaders_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(output=tmp_path / "logs")
    monkeypatch.setattr("loadeval.launch.measured.LoaderEvaluator", None)
    assert len(train(OwnLoader(SAMPLES))) == SAMPLES
    assert "loadeval: not measured (TypeError" in capsys.readouterr().err


# Torch's own finalizer fails for an iterator that was not made.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_of_making_the_iterator_passes_through(tmp_path: Path) -> None:
    install(output=tmp_path / "logs")
    loader = OwnLoader(SAMPLES)
    loader.settings.num_workers = -1
    with pytest.raises(AssertionError, match="num_workers"):
        list(loader)
