"""install(): every known loader of this process is measured until it is closed."""

from __future__ import annotations

import gc
import inspect
import json
import multiprocessing
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import loadeval
from loadeval import LoaderEvaluator, UsageError, read_run
from loadeval.data.folder import processes_in
from loadeval.launch import hook
from tests.launch.installing import install, uninstall
from tests.launch.test_one_loader import numbers
from tests.launch.test_roles import train

installed = pytest.mark.usefixtures("folder")
MAKES = DataLoader.__init__


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """The folder of the logs of what is measured."""
    return install(output=tmp_path / "logs")


def dataset(samples: int = 20) -> TensorDataset:
    return TensorDataset(torch.arange(float(samples)))


def counted(folder: Path) -> dict[str, int]:
    """Batches in each log, once it is closed."""
    uninstall()
    return {path.name: read_run(path).batches for path in sorted(folder.glob("*.jsonl"))}


class Own(DataLoader[Any]):
    """A constructor and an iterator of the program's own."""

    def __init__(self) -> None:
        super().__init__(dataset(), batch_size=4)

    def __iter__(self) -> Any:
        return super().__iter__()


@installed
@pytest.mark.filterwarnings("ignore:.set_vital. is deprecated:UserWarning")  # torchdata, of torch
@pytest.mark.parametrize("make", [DataLoader, StatefulDataLoader, lambda _: Own()])
def test_the_line_that_makes_a_loader_is_recorded(make: Any, folder: Path) -> None:
    loader, here = make(dataset()), sys._getframe().f_lineno
    numbers(loader)
    uninstall()
    (log,) = folder.glob("*.jsonl")
    path, _, line = str(read_run(log).header.loader.made_at).rpartition(":")
    assert path.endswith("test_install.py")
    in_own = Own.__init__.__code__.co_firstlineno + 1
    assert int(line) == (in_own if type(loader) is Own else here)


@installed
def test_what_a_constructor_raises_is_the_programs() -> None:
    """It keeps its signature too."""
    with pytest.raises(ValueError, match="num_workers"):
        DataLoader(dataset(), num_workers=-1)
    assert inspect.signature(DataLoader.__init__) == inspect.signature(MAKES)


def test_a_loader_made_anew_each_epoch_goes_on(folder: Path) -> None:
    for _ in range(3):
        train(DataLoader(dataset(), 4, sampler=RandomSampler(dataset())))
        gc.collect()
    assert counted(folder) == {"rank0.jsonl": 15}
    (process,) = processes_in(folder)
    assert process.loaders[0].epochs == 3


@pytest.mark.parametrize("gradients", [True, False])
def test_loaders_over_datasets_that_look_alike_are_told_apart(
    folder: Path, gradients: bool
) -> None:
    """Two tasks in turn, each with a loader that is made anew: as long, and of one class."""
    tasks = [dataset(), dataset()]
    with torch.set_grad_enabled(gradients):
        for _ in range(2):
            for task in tasks:
                numbers(DataLoader(task, 4))
    assert list(counted(folder).values()) == [10, 10]


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(8.0))


def test_a_stream_of_each_evaluation_goes_on(folder: Path) -> None:
    """Trainer makes one for each, and Accelerate keeps them all."""
    kept = [Stream() for _ in range(3)]
    with torch.no_grad():
        for stream in kept:
            assert len(list(DataLoader(stream, 4))) == 2
    assert counted(folder) == {"rank0-validation.jsonl": 6}


def test_loaders_that_are_read_at_once_are_told_apart(tmp_path: Path) -> None:
    """One alternates at a time."""
    folder = install("alternate", output=tmp_path / "logs")
    pairs = zip(DataLoader(dataset(), 4), DataLoader(dataset(), 4), strict=True)
    assert len(list(pairs)) == 5
    assert counted(folder) == {"rank0-2.jsonl": 5, "rank0.jsonl": 5}
    modes = [read_run(folder / name).header.mode for name in ("rank0.jsonl", "rank0-2.jsonl")]
    assert modes == ["alternate", "log"]


def test_an_epoch_that_is_not_dropped_yet_is_the_same_loaders(folder: Path) -> None:
    """Lightning knows the length, and does not ask for the end."""
    loader = DataLoader(dataset(), 4)
    first = iter(loader)
    next(first)
    assert len(list(loader)) == 5
    assert counted(folder) == {"rank0.jsonl": 6}


class Nested(IterableDataset[torch.Tensor]):
    """Reads another loader."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for (batch,) in DataLoader(dataset(), 4):
            yield from batch


@pytest.mark.parametrize("workers", [0, 1])
def test_of_nested_loaders_the_outer_counts(folder: Path, workers: int) -> None:
    assert len(list(DataLoader(Nested(), 5, num_workers=workers))) == 4
    assert counted(folder) == {"rank0.jsonl": 4}


def test_a_process_that_a_training_has_forked_adds_no_logs(folder: Path) -> None:
    """Even where it imports another framework."""
    assert len(list(DataLoader(dataset(), 4))) == 5

    def forked() -> None:
        hook.patch("torch.utils.data", "loadeval_adapters.torch:PyTorchAdapter")
        with torch.no_grad():
            assert len(list(DataLoader(dataset(), 4))) == 5

    process = multiprocessing.get_context("fork").Process(target=forked)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert counted(folder) == {"rank0.jsonl": 5}


class Repeating(DataLoader[Any]):
    """Keeps one iterator for all epochs, as timm's and YOLO's loaders do."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kept = super().__iter__()

    def __iter__(self) -> Any:
        for _ in range(2):
            yield next(self.kept)


def test_a_subclass_is_measured_by_its_own_iter(folder: Path) -> None:
    loader = Repeating(dataset(), 4)
    assert numbers(loader) == list(range(8))
    assert numbers(loader) == list(range(8, 16))
    assert counted(folder) == {"rank0.jsonl": 4}


@installed
@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"persistent_workers": True}])
def test_the_iterator_is_like_the_loaders_own(options: dict[str, Any]) -> None:
    """Its length and attributes; and it ends when it is dropped."""
    options |= {"num_workers": 1} if options else {}
    iterator: Any = iter(DataLoader(dataset(), 4, **options))
    assert len(iterator) == 5
    assert iterator._index_sampler is not None
    assert iter(iterator) is iterator
    assert numbers(iterator) == list(range(20))
    gone = weakref.ref(iterator)
    del iterator
    assert gone() is None


def test_an_epoch_that_is_read_when_measuring_ends_is_served_to_its_end(tmp_path: Path) -> None:
    """What was prefetched of it is served, and it is measured again after another install()."""
    install("alternate", output=tmp_path / "logs")
    iterator = iter(DataLoader(dataset(400), 4))
    first = [float(value) for _ in range(50) for value in next(iterator)[0]]
    uninstall()
    folder = install(output=tmp_path / "again")
    assert sorted([*first, *numbers(iterator)]) == list(range(400))
    assert numbers(DataLoader(dataset(), 4)) == list(range(20))
    assert counted(folder) == {"rank0.jsonl": 5}


class Unready(DataLoader[Any]):
    def __iter__(self) -> Any:
        raise KeyError("no data")


@installed
def test_the_error_of_a_beginning_is_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError, match="no data"):
        iter(Unready(dataset()))
    assert "loadeval" not in capsys.readouterr().err


def test_a_loader_that_is_measured_already_is_left_to_that(folder: Path) -> None:
    loader = DataLoader(dataset(), 4)
    evaluator = LoaderEvaluator(loader)
    assert numbers(evaluator) == list(range(20))
    evaluator.close()
    with loadeval.install(loader) as other:
        assert numbers(loader) == list(range(20))
        assert other.recorded().batches == 5
    assert counted(folder) == {}


@pytest.mark.filterwarnings("ignore:.set_vital. is deprecated:UserWarning")  # torchdata, of torch
def test_a_stateful_loader_stays_where_it_is(tmp_path: Path) -> None:
    """It is logged where others alternate: its state would run ahead."""
    folder = install("alternate", output=tmp_path / "logs")
    loader = StatefulDataLoader(dataset(), 4)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    del iterator
    loader.load_state_dict(state)
    assert numbers(loader) == list(range(4, 20))
    uninstall()
    assert {read_run(path).header.mode for path in folder.glob("*.jsonl")} == {"log"}


def test_what_was_measured_so_far_can_be_asked_for(tmp_path: Path) -> None:
    """Of the training loader; after it is closed, too, which it may be twice."""
    with loadeval.install(mode="alternate", output=tmp_path) as installed:
        with pytest.raises(UsageError, match="nothing was measured yet"):
            installed.headroom()
        train(DataLoader(dataset(400), 4))
        assert installed.headroom().speedup is not None
        assert installed.report().result
    installed.close()
    assert installed.recorded().batches == 100
    assert installed.folder == tmp_path


def test_installing_again_ends_what_was_installed_before(folder: Path, tmp_path: Path) -> None:
    """As in a notebook, where a cell is run again."""
    numbers(DataLoader(dataset(), 4))
    again = install(output=tmp_path / "again")
    assert json.loads((folder / "rank0.json").read_text())["ended"] is True
    numbers(DataLoader(dataset(8), 4))
    assert [counted(again), counted(folder)] == [{"rank0.jsonl": 2}, {"rank0.jsonl": 5}]


@installed
def test_installing_again_makes_no_import_slower(tmp_path: Path) -> None:
    """Two finders that ask each other for a module that is missing would ask all others twice."""
    finders = len(sys.meta_path)
    install(output=tmp_path / "again")
    assert len(sys.meta_path) == finders


@pytest.mark.parametrize(
    "given",
    [{"loader": 1, "output": "logs"}, {"loader": 1, "allow_changes": True}, {"log_file": "a"}],
)
def test_what_is_for_one_loader_or_for_all_is_told_apart(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="for all loaders of a process, and log_file= and other"):
        loadeval.install(**given)


def test_the_folder_has_a_name_and_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one at the same time gets a number."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("loadeval.launch.install.time.strftime", lambda _: "now")
    monkeypatch.setattr("sys.argv", ["/x/train a.py"])
    first = install()
    uninstall()
    second = install()
    uninstall()
    assert [first.name, second.name] == ["train_a-now", "train_a-now-2"]
    assert first.parent == tmp_path / "loadeval-runs"


def test_an_embedded_python_has_no_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [])
    assert install().name.startswith("python-")


def test_a_dataset_is_not_kept_once_there_is_another(folder: Path) -> None:
    data = dataset()
    gone = weakref.ref(data)
    numbers(DataLoader(data, 4))
    del data
    numbers(DataLoader(dataset(), 4))
    gc.collect()
    assert gone() is None
    assert counted(folder) == {"rank0.jsonl": 10}


@pytest.mark.parametrize(("rank", "log"), [("1", "rank1.jsonl"), ("abc", "rank0.jsonl")])
def test_a_rank_names_the_logs_where_it_is_a_number(
    rank: str, log: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever sets such variables, training goes on, and is measured."""
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.setenv(name, rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert numbers(DataLoader(dataset(), 4)) == list(range(20))
    assert counted(folder) == {log: 5}
