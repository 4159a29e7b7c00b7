"""A program's training loader is tuned within its epochs, and others are left alone."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import loadeval
from loadeval.errors import UsageError
from loadeval.launch import hook, tuned
from loadeval.launch.settings import RunSettings, TuneOptions
from loadeval.launch.tuned import RESULT, ProgramTuning
from loadeval.tuning import in_training, tuner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
BATCHES = 400
OPTIONS = TuneOptions({"num_workers": [0, 1, 2], "prefetch_factor": [2]}, 24, 3)


class Program:
    """Trains in this process as a program under `loadeval tune` does; notes its samples."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[int] = []
        model = nn.Linear(1, 1)
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def loader(self, **options: Any) -> DataLoader[Any]:
        dataset = TensorDataset(torch.arange(2 * BATCHES))
        torch.manual_seed(1)
        return DataLoader(dataset, batch_size=2, shuffle=True, **options)

    def epoch(self, loader: Any, most: int | None = None) -> list[int]:
        """The samples that were trained on."""
        seen: list[int] = []
        for (batch,) in islice(loader, most):
            seen += batch.tolist()
            self._optimizer.step()
        return seen

    @property
    def found(self) -> dict[str, Any]:
        """What was found, once the measurement has ended."""
        loadeval.uninstall()
        found: dict[str, Any] = json.loads((self.folder / RESULT).read_text())
        return found


@pytest.fixture(name="program_with")
def _program_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[TuneOptions], Program]]:
    """Installs, with these options; nothing is predicted, so that neighbours are tried."""

    class Without:
        @classmethod
        def of(cls, _runs: object) -> Without:
            raise UsageError("nothing is known of the inside")

    monkeypatch.setattr(tuner, "LoaderModel", Without)
    monkeypatch.setattr(tuner, "cpus", lambda: 2)

    def program_with(options: TuneOptions) -> Program:
        folder = loadeval.install(output=tmp_path / "logs")
        session: Any = hook.current()
        session._tuning = ProgramTuning(options, folder)
        return Program(folder)

    yield program_with
    loadeval.uninstall()


@pytest.fixture(name="program")
def _program(program_with: Callable[[TuneOptions], Program]) -> Program:
    return program_with(OPTIONS)


def bare(epochs: int, **options: Any) -> tuple[list[list[int]], float]:
    """The samples of epochs without loadeval, and the next random number."""
    program = Program.__new__(Program)
    loader = program.loader(**options)
    return [[n for (batch,) in loader for n in batch.tolist()] for _ in range(epochs)], torch.rand(
        1
    ).item()


@pytest.mark.parametrize("options", [{"num_workers": 1}, {}], ids=["worker", "in_process"])
def test_each_batch_comes_once_in_the_samplers_order(
    program: Program, options: dict[str, Any]
) -> None:
    """With 0, 1 and 2 workers in turns; torch's generator is where it would be without us."""
    loader = program.loader(**options)
    epochs = [program.epoch(loader) for _ in range(2)]
    after = torch.rand(1).item()
    found = program.found
    tried = {trial["settings"]["num_workers"] for trial in found["tuning"]["trials"]}
    assert tried >= ({0, 1, 2} if options else {0, 1})
    assert (epochs, after) == bare(2, **options)
    assert found["made_at"].rpartition(":")[0] in __file__


def test_an_epoch_that_is_left_early_starts_anew(program: Program) -> None:
    """While settings take turns, and the validation between two epochs is none of theirs."""
    loader = program.loader(num_workers=1)
    validation = DataLoader(TensorDataset(torch.arange(8)), batch_size=2)
    first = program.epoch(loader, 50)
    with torch.no_grad():
        assert [n for (batch,) in validation for n in batch.tolist()] == list(range(8))
    whole = program.epoch(loader)
    assert len(set(first)) == len(first) == 100
    assert sorted(whole) == list(range(2 * BATCHES))


def test_later_epochs_have_the_best_settings(program_with: Any, monkeypatch: Any) -> None:
    """A DataLoader that has them, made once."""
    program = program_with(TuneOptions({"num_workers": [0], "prefetch_factor": [2]}, 24, 3))
    loader = program.loader(num_workers=1)
    program.epoch(loader)
    session: Any = hook.current()
    monkeypatch.setattr(in_training.TrainingTuner, "changes", {"num_workers": 0})
    made = [session._tuning._best_of(loader, session._tuning._tuner) for _ in range(2)]
    assert made[0] is made[1]
    assert made[0].num_workers == 0
    assert sorted(program.epoch(loader)) == list(range(2 * BATCHES))


def test_a_training_that_ends_first_has_a_reason(program: Program) -> None:
    """Or what was found until then."""
    program.epoch(program.loader(), 20)
    assert "before its present settings were measured" in program.found["why_not"]


def test_a_loader_without_steps_is_left_alone(program: Program) -> None:
    """A loader that is only read is no training loader."""
    loader = program.loader(num_workers=0)
    iterator = iter(loader)
    assert len(iterator) == BATCHES  # as torch's own
    assert iterator._num_workers == 0  # as torch's own
    assert len(list(iterator)) == BATCHES
    loadeval.uninstall()
    assert not (program.folder / RESULT).exists()


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return ((torch.tensor(n),) for n in range(20))


def test_an_iterable_style_dataset_is_refused_with_the_reason(program: Program) -> None:
    """It is trained on as it is."""
    loader: Any = DataLoader(Stream(), batch_size=None)
    seen = [int(n) for (n,) in stepped(program, loader)]
    assert seen == list(range(20))
    assert [int(n) for (n,) in stepped(program, loader)] == seen
    assert "iterable-style" in program.found["why_not"]


def stepped(program: Program, loader: Any) -> Iterator[Any]:
    for batch in loader:
        yield batch
        program._optimizer.step()


def test_several_ranks_are_refused_with_the_reason(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert sorted(program.epoch(program.loader())) == list(range(2 * BATCHES))
    assert "2 ranks" in program.found["why_not"]


def test_what_fails_in_loadeval_does_not_end_the_training(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that fails, an epoch that cannot begin, a file that cannot be written."""

    def fails(*_: object) -> None:
        raise OSError("disk full")

    loader = program.loader()
    program.epoch(loader, 20)
    session: Any = hook.current()
    monkeypatch.setattr(session._tuning, "_feeding_of", fails)
    assert sorted(program.epoch(loader)) == list(range(2 * BATCHES))
    assert sorted(program.epoch(loader)) == list(range(2 * BATCHES))
    assert program.found == {"why_not": "OSError: disk full"}


def test_a_result_that_cannot_be_written_is_said(
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, and the program goes on."""
    session: Any = hook.current()
    session._tuning._file = program.folder / "none" / RESULT
    loader = program.loader()
    monkeypatch.setattr(in_training.TrainingTuner, "_measure", broken)
    assert sorted(program.epoch(loader)) == list(range(2 * BATCHES))
    assert "FileNotFoundError" in capsys.readouterr().err


def broken(*_: object) -> Iterator[Any]:
    """As a generator, it fails in the first turn."""
    yield from broken_now()


def test_a_fault_of_ours_in_a_turn_is_the_reason(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the epoch, and the next one, have the present settings."""
    loader = program.loader(num_workers=1)
    monkeypatch.setattr(in_training.TrainingTuner, "_measure", broken)
    for _ in range(2):
        assert sorted(program.epoch(loader)) == list(range(2 * BATCHES))
    assert "a fault of ours" in program.found["why_not"]


def test_a_report_that_fails_is_said(
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program goes on."""
    loader = program.loader()
    monkeypatch.setattr(ProgramTuning, "_found", broken_now)
    for _ in range(2):
        assert sorted(program.epoch(loader)) == list(range(2 * BATCHES))
    loadeval.uninstall()
    assert "a fault of ours" in capsys.readouterr().err


def broken_now(*_: object) -> Any:
    raise RuntimeError("a fault of ours")


class Bad(Dataset[Any]):
    def __init__(self, index: int) -> None:
        self._index = index

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        if index == self._index:
            raise ValueError("a bad sample")
        return (torch.tensor(index),)


@pytest.mark.parametrize(
    ("index", "workers", "before"),
    [(21, 0, 3), (21, 0, 10**9), (7, 1, 3)],
    ids=["in_turns", "before", "asked_for_before"],
)
def test_an_error_of_the_dataset_passes_and_the_next_batches_come(
    program: Program, monkeypatch: pytest.MonkeyPatch, index: int, workers: int, before: int
) -> None:
    """As with the loader itself, whether settings take turns by then or not."""
    monkeypatch.setattr(tuned, "STEPS_BEFORE", before)
    epoch = iter(DataLoader(Bad(index), batch_size=2, num_workers=workers))
    seen: list[int] = []
    errors = 0
    while True:
        try:
            (batch,) = next(epoch)
        except ValueError:
            errors += 1
            continue
        except StopIteration:
            break
        seen += batch.tolist()
        program._optimizer.step()
    assert errors == 1
    assert seen == [n for n in range(60) if n not in {index - 1, index}]


def test_the_program_may_be_ended_when_it_is_tuned(program_with: Any) -> None:
    """As by Ctrl-C, with the result written."""
    options = TuneOptions(dict(OPTIONS.space), 24, 3, stops=True)
    program = program_with(options)
    loader = program.loader(num_workers=1)
    with pytest.raises(KeyboardInterrupt):
        _ = [program.epoch(loader) for _ in range(3)]
    assert program.found["tuning"]["trials"]


def test_the_options_come_through_the_environment() -> None:
    """As JSON, like the others."""
    settings = RunSettings("folder", tune=OPTIONS)
    assert RunSettings.from_environment(settings.environment()) == settings
