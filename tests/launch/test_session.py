"""What a process of `loadeval run` does with its loaders, in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import LoadevalWarning, UsageError, install, read_run
from loadeval.launch import hook, loadeval_inject
from loadeval.launch.loadeval_inject import ENDED_MARK
from loadeval.launch.session import Session
from loadeval.launch.settings import RunSettings


@pytest.fixture(autouse=True)
def _as_python_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook that shows what a program ends with."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(8)), 4)


@pytest.fixture(name="session")
def _session(tmp_path: Path) -> Iterator[Session]:
    """One that has read an epoch."""
    session = Session(RunSettings(), tmp_path, of_command=True)
    own = loader()
    epoch = session.epoch(own, own.__iter__)
    assert epoch is not None
    assert len(list(epoch)) == 2
    yield session
    session.close()


def test_a_folder_that_fails_does_not_end_an_optimizers_step(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is too long fails as a server that is gone does, or a folder of another user."""
    monkeypatch.setattr("loadeval.launch.session.SAVE_INTERVAL_S", -1.0)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    session.folder /= "x" * 300
    with pytest.warns(LoadevalWarning, match="is not up to date"):
        optimizer.step()


def test_the_first_step_of_an_optimizer_is_noted(session: Session) -> None:
    """In the log of the loader whose batches it is made on."""
    own = loader()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    for _ in session.epoch(own, own.__iter__) or ():
        optimizer.step()
    session.close()
    run = read_run(session.folder / "rank0.jsonl")
    assert sum(event.kind == "optimizer" for event in run.events) == 2


def test_with_annotate_waits_and_steps_are_ranges_of_nvtx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    nvtx = SimpleNamespace(range_start=begun.append, range_end=id)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "nvtx", nvtx)
    settings = RunSettings({"mode": "log", "annotate": "nvtx"})
    session, own = Session(settings, tmp_path, of_command=True), loader()
    epoch = session.epoch(own, own.__iter__)
    assert epoch is not None
    assert len(list(epoch)) == 2
    session.close()
    assert begun.count("loadeval.step real") == 2


@pytest.mark.parametrize(
    ("error", "is_ended", "shown"),
    [
        (KeyboardInterrupt(), True, ""),
        (KeyboardInterrupt(), False, "KeyboardInterrupt\n"),
        (ValueError("no such file"), True, "ValueError: no such file\n"),
    ],
)
def test_the_ctrl_c_of_loadeval_has_no_traceback(
    error: BaseException,
    is_ended: bool,
    shown: str,
    session: Session,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was said. Whatever else ends the program has one."""
    if is_ended:
        (session.folder / ENDED_MARK).touch()
    sys.excepthook(type(error), error, None)
    assert capsys.readouterr().err == shown


def test_the_programs_own_excepthook_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def own(*_: object) -> None: ...

    monkeypatch.setattr(sys, "excepthook", own)
    session = Session(RunSettings(), tmp_path, of_command=True)
    session.epoch(loader(), lambda: iter(()))
    assert sys.excepthook is own
    session.close()


@pytest.mark.parametrize("has_read", [True, False])
def test_a_process_of_loadeval_run_is_not_installed(
    has_read: bool, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor before it iterates a loader, and is measured."""
    monkeypatch.setattr(hook, "state", hook.State())
    monkeypatch.setenv("LOADEVAL_RUN", str(session.folder))
    monkeypatch.setitem(sys.modules, "loadeval_inject", loadeval_inject)
    hook.state.session = session if has_read else None
    with pytest.raises(UsageError, match="measured already, by `loadeval run`"):
        install()


@pytest.mark.parametrize("is_forked", [True, False])
def test_what_loadeval_run_does_not_measure_may_install(
    is_forked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked child, and what a program starts with PYTHONPATH but not our other variables."""
    monkeypatch.setattr(hook, "state", hook.State())
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setitem(sys.modules, "loadeval_inject", loadeval_inject)
    if is_forked:
        monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path))
        hook.state.pid += 1
    with install(output=tmp_path / "logs") as installed:
        assert len(list(loader())) == 2
        assert installed.recorded().batches == 2


def test_worker_threads_do_not_make_a_training_process_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of MONAI's ThreadDataLoader: torch's get_worker_info() tells of one in every thread."""
    monkeypatch.setattr(hook, "state", hook.State())
    monkeypatch.setenv("LOADEVAL_RUN", str(tmp_path))
    hook.patch("torch.utils.data", "loadeval_adapters.torch:PyTorchAdapter")
    hook.patch("torch.utils.data.dataloader", None)
    monkeypatch.setattr("torch.utils.data.get_worker_info", object)
    assert len(list(loader())) == 2
    session = hook.state.session
    assert session is not None
    session.close()
    assert read_run(tmp_path / "rank0.jsonl").batches == 2
