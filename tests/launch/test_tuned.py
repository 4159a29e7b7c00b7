"""A program's training loader is tuned within its epochs, and others are left alone."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

from loadeval.errors import UsageError
from loadeval.launch import hook, tuned
from loadeval.launch.settings import RunSettings, TuneOptions
from loadeval.launch.tuned import RESULT, ProgramTuning
from loadeval.runtime import whole_epochs
from loadeval.tuning import in_training, tuner
from loadeval.tuning.ranks import MARK
from tests.launch.installing import install, uninstall

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
        uninstall()
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
        folder = install(output=tmp_path / "logs")
        session: Any = hook.current()
        session._tuning = ProgramTuning(options, folder)
        return Program(folder)

    yield program_with
    uninstall()


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
    uninstall()
    assert not (program.folder / RESULT).exists()


class Stream(IterableDataset[Any]):
    """Samples that are divided among the workers, unless `repeats`.

    One of them may be bad, and so many workers too many.
    """

    def __init__(self, samples: int = 120, repeats: bool = False, too_many: int = 99) -> None:
        self._samples, self._repeats, self._too_many = samples, repeats, too_many
        self.bad: int | None = None

    def __iter__(self) -> Any:
        worker: Any = get_worker_info()
        first, step = (0, 1) if worker is None or self._repeats else (worker.id, worker.num_workers)
        if step == self._too_many:
            raise OSError("too many open files")
        for number in range(first, self._samples, step):
            if number == self.bad:
                raise ValueError("a bad sample")
            yield torch.tensor(number)


def streamed(stream: Stream, workers: int) -> list[list[int]]:
    """The batches of an epoch with so many workers, without loadeval."""
    loader: Any = DataLoader(stream, batch_size=2, num_workers=workers)
    return [batch.tolist() for batch in loader]


@pytest.mark.check
def test_epochs_of_an_iterable_style_dataset_take_turns(program: Program) -> None:
    """Each is what the program would get with one of the settings; then come those of the best."""
    loader: Any = DataLoader(Stream(), batch_size=2, num_workers=1)
    of_setting = {workers: streamed(Stream(), workers) for workers in (0, 1, 2)}
    epochs = []
    for _ in range(40):
        epochs.append([batch.tolist() for batch in stepped(program, loader)])
        session: Any = hook.current()
        if session._tuning._tuner.is_over:
            break
    epochs.append([batch.tolist() for batch in stepped(program, loader)])
    assert all(epoch in of_setting.values() for epoch in epochs)
    assert of_setting[2] in epochs
    found = program.found
    assert {trial["settings"]["num_workers"] for trial in found["tuning"]["trials"]} >= {1, 2}
    assert epochs[-1] == of_setting[found["tuning"]["settings"]["num_workers"]]


@pytest.mark.check
def test_workers_that_repeat_the_samples_are_no_gain(program: Program) -> None:
    """A setting that would make another epoch has failed."""
    loader: Any = DataLoader(Stream(60, repeats=True), batch_size=2, num_workers=1)
    for _ in range(40):
        assert len(list(stepped(program, loader))) in {30, 60}
    errors = {
        trial["settings"]["num_workers"]: trial["error"]
        for trial in program.found["tuning"]["trials"]
    }
    assert "an epoch has 60 batches, and one with the present settings 30" in errors[2]


@pytest.mark.check
def test_a_setting_that_cannot_begin_an_epoch_is_a_result(program: Program) -> None:
    """Another one serves the epoch."""
    loader: Any = DataLoader(Stream(60, too_many=2), batch_size=2, num_workers=1)
    for _ in range(30):
        assert len(list(stepped(program, loader))) == 30
    errors = {
        trial["settings"]["num_workers"]: trial["error"]
        for trial in program.found["tuning"]["trials"]
    }
    assert "too many open files" in errors[2]


def test_an_error_in_an_epoch_that_had_its_turn_passes(program: Program) -> None:
    """As without loadeval; so do the next epochs, and the reason is known."""
    loader: Any = DataLoader(Stream(), batch_size=2)
    assert len(list(stepped(program, loader))) == 60
    loader.dataset.bad = 50
    for _ in range(2):
        seen: list[int] = []
        with pytest.raises(ValueError, match="a bad sample"):
            seen.extend(n for batch in stepped(program, loader) for n in batch.tolist())
        assert seen == list(range(50))
    assert "a bad sample" in program.found["why_not"]


def test_epochs_that_take_turns_may_be_left_early(program: Program) -> None:
    """The next one begins with its first batch."""
    loader: Any = DataLoader(Stream(), batch_size=2)
    whole = streamed(Stream(), 0)
    for _ in range(4):
        batches = [batch.tolist() for batch in islice(stepped(program, loader), 20)]
        assert batches == whole[:20]


def test_long_epochs_do_not_take_turns(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason; the training goes on as it is."""
    monkeypatch.setattr(whole_epochs, "LONGEST_EPOCH_NS", 0)
    loader: Any = DataLoader(Stream(), batch_size=2)
    epochs = [[batch.tolist() for batch in stepped(program, loader)] for _ in range(4)]
    assert epochs == 4 * [streamed(Stream(), 0)]
    assert "only take turns by whole epochs" in program.found["why_not"]


def test_a_stream_of_several_ranks_is_refused(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader: Any = DataLoader(Stream(), batch_size=2)
    for _ in range(2):
        assert len(list(stepped(program, loader))) == 60
    assert "only within epochs" in program.found["why_not"]


def stepped(program: Program, loader: Any) -> Iterator[Any]:
    for batch in loader:
        yield batch
        program._optimizer.step()


def test_a_rank_waits_for_no_other(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 alone, of two, has the present settings, and says why."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert sorted(program.epoch(program.loader())) == list(range(2 * BATCHES))
    assert "of the training's 2 ranks only 1" in program.found["why_not"]


def test_the_first_rank_alone_writes_what_was_found(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one leaves a mark as long as it follows."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = program.loader()
    assert sorted(program.epoch(loader)) == list(range(2 * BATCHES))
    mark = program.folder / MARK.format(1)
    assert mark.exists()
    session: Any = hook.current()
    monkeypatch.setattr(session._tuning, "_feeding_of", broken_now)
    assert sorted(program.epoch(loader)) == list(range(2 * BATCHES))
    assert not mark.exists()
    uninstall()
    assert not (program.folder / RESULT).exists()


def test_ranks_that_do_not_know_their_number_are_refused(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert sorted(program.epoch(program.loader())) == list(range(2 * BATCHES))
    assert "not known which one this is" in program.found["why_not"]


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


def test_a_fault_of_ours_at_the_end_is_the_reason(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other logs are finished."""
    program.epoch(program.loader(num_workers=1), 10)
    monkeypatch.setattr(in_training.TrainingTuner, "end", broken_now)
    assert "a fault of ours" in program.found["why_not"]


def test_a_program_that_has_ended_is_not_interrupted(program_with: Any) -> None:
    """It was to be ended once it is tuned, and ends before."""
    program = program_with(TuneOptions(dict(OPTIONS.space), 24, 3, stops=True))
    program.epoch(program.loader(num_workers=1), 250)
    assert program.found["tuning"]["trials"]


def test_a_report_that_fails_is_said(
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program goes on."""
    loader = program.loader()
    monkeypatch.setattr(ProgramTuning, "_found", broken_now)
    for _ in range(2):
        assert sorted(program.epoch(loader)) == list(range(2 * BATCHES))
    uninstall()
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
