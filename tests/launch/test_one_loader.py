"""install(loader): a DataLoader is measured where it is, and where it was built anew."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
)
from torchdata.stateful_dataloader import StatefulDataLoader

from loadeval import (
    LoaderEvaluator,
    LoadevalWarning,
    RunLogError,
    UsageError,
    install,
    read_run,
)
from loadeval.launch import hook

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAIN = DataLoader.__iter__


def loader(dataset: Any = None) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(20.0)) if dataset is None else dataset, 4)


def in_order(count: int, batch_size: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(float(count))), batch_size)


def is_complete(log_file: Path) -> bool:
    return '{"type":"end"' in log_file.read_text(encoding="utf-8")


def numbers(batches: Any) -> list[float]:
    return [float(value) for (batch,) in batches for value in batch]


every_mode = pytest.mark.parametrize("mode", ["log", "replay", "alternate"])


@every_mode
def test_the_loader_itself_is_measured(mode: str) -> None:
    own = loader()
    evaluator = install(own, mode)
    assert type(own) is DataLoader
    assert numbers(own) == list(range(20))
    assert len(evaluator.recorded().steps) == 5
    evaluator.close()


class Halving(BatchSampler):
    """Wraps a batch sampler, as Accelerate's do to skip batches or to share them out."""

    def __init__(self, batch_sampler: BatchSampler) -> None:
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Iterator[list[int]]:
        return islice(self.batch_sampler, len(self))

    def __len__(self) -> int:
        return (len(self.batch_sampler) + 1) // 2


def halved(own: DataLoader[Any]) -> DataLoader[Any]:
    """A loader that a framework builds from `own`, with its first three batches."""
    assert own.batch_sampler is not None
    return DataLoader(own.dataset, batch_sampler=Halving(own.batch_sampler))  # type: ignore[arg-type]  # torch's own class


# torchdata's StatefulDataLoader warns so about torch.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@every_mode
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_a_loader_built_from_it_is_measured(kind: Any, mode: str) -> None:
    """One that draws from its batch sampler, by the adapter for the class of the new one."""
    own = kind(TensorDataset(torch.arange(20.0)), 4)
    with install(own, mode, num_cached_batches=1) as evaluator:
        assert len(list(halved(own))) == 3
        assert len(evaluator.recorded().steps) == 3


@every_mode
def test_validation_on_the_same_dataset_is_not_measured(mode: str) -> None:
    """It has a sampler of its own; in replay it is served its own batches too."""
    dataset = TensorDataset(torch.arange(20.0))
    training, validation = (
        DataLoader(dataset, 4, sampler=SubsetRandomSampler(half))
        for half in (range(12), range(12, 20))
    )
    with install(training, mode) as evaluator:
        assert sorted(numbers(validation)) == list(range(12, 20))
        assert len(list(training)) == 3
        assert len(evaluator.recorded().steps) == 3


def test_loaders_that_share_a_sampler_are_told_apart_by_gradients() -> None:
    """A framework may have made the second for training; without gradients it is none."""
    dataset = TensorDataset(torch.arange(20.0))
    sampler = SequentialSampler(dataset)
    own, other = (DataLoader(dataset, 4, sampler=sampler) for _ in range(2))
    with install(own) as evaluator:
        with torch.no_grad():
            assert len(list(other)) == 5
        assert len(evaluator.recorded().steps) == 0
        assert len(list(other)) == 5
        assert len(evaluator.recorded().steps) == 5


def test_one_of_the_same_dataset_can_be_measured_beside_it() -> None:
    dataset = TensorDataset(torch.arange(20.0))
    training, validation = DataLoader(dataset, 4), DataLoader(dataset, 10)
    with install(training) as of_training, install(validation) as of_validation:
        list(training)
        list(validation)
        assert len(of_training.recorded().steps) == 5
        assert len(of_validation.recorded().steps) == 2


@pytest.mark.parametrize("is_shared", [True, False])
def test_threads_that_iterate_at_once_are_all_measured(is_shared: bool) -> None:
    """The same loader, or each one that was built from it."""
    own = loader()
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with install(own) as evaluator, ThreadPoolExecutor(4) as pool:
            served = pool.map(lambda _: len(list(own if is_shared else halved(own))), range(100))
            assert sum(served) == len(evaluator.recorded().steps)
    finally:
        sys.setswitchinterval(switch_s)


@pytest.mark.parametrize("first", [0, 1])
def test_the_class_is_left_as_it_was(first: int) -> None:
    """It is, once the last of several is closed, whichever that is."""
    loaders = [loader(), loader()]
    evaluators = [install(one) for one in loaders]
    own = loaders[1 - first]
    with pytest.warns(LoadevalWarning, match="nothing was measured"):
        evaluators[first].close()
    assert DataLoader.__iter__ is not PLAIN
    assert numbers(own) == list(range(20))
    assert len(evaluators[1 - first].recorded().steps) == 5
    evaluators[1 - first].close()
    assert DataLoader.__iter__ is PLAIN
    assert numbers(own) == list(range(20))


def test_the_patch_of_another_tool_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made meanwhile, it is there after close(), and what is measured later goes through it."""
    own, seen = loader(), []
    evaluator = install(own)
    ours = DataLoader.__iter__

    def another_tools(self: DataLoader[Any]) -> Iterator[Any]:
        seen.append(self)
        yield from ours(self)  # when the first batch is asked for

    with monkeypatch.context() as patch:
        patch.setattr(DataLoader, "__iter__", another_tools)
        list(own)
        assert len(evaluator.recorded().steps) == 5
        evaluator.close()
        assert DataLoader.__iter__ is another_tools
        assert numbers(own) == list(range(20))
        with install(own) as later:
            list(own)
            assert len(later.recorded().steps) == 5
    assert seen == [own] * 3  # once for each epoch
    with install(own) as later:  # now that ours stands there again
        list(own)
        assert len(later.recorded().steps) == 5
    assert DataLoader.__iter__ is PLAIN


@pytest.mark.check
def test_the_interpreters_exit_completes_the_log(tmp_path: Path) -> None:
    script = """
import torch
from torch.utils.data import DataLoader
from loadeval import install
loader = DataLoader(torch.arange(20), 4)
install(loader, log_file="run.jsonl")
list(loader)
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    assert is_complete(tmp_path / "run.jsonl")


def test_a_loader_is_measured_without_its_evaluator(tmp_path: Path) -> None:
    """A loader built from it is too, when it is gone itself; without both, all is as it was."""
    own = loader()
    install(own, log_file=tmp_path / "run.jsonl")
    built = halved(own)
    list(own)
    del own
    list(built)
    assert not is_complete(tmp_path / "run.jsonl")
    del built
    assert is_complete(tmp_path / "run.jsonl")
    assert len(read_run(tmp_path / "run.jsonl").steps) == 8
    assert DataLoader.__iter__ is PLAIN


@every_mode
def test_an_epoch_is_measured_to_its_end(mode: str, tmp_path: Path) -> None:

    def measured() -> DataLoader[Any]:
        own = loader()
        install(own, mode, log_file=tmp_path / "run.jsonl")
        return own

    assert len(list(measured())) == 5
    assert len(read_run(tmp_path / "run.jsonl").steps) == 5
    assert DataLoader.__iter__ is PLAIN


def test_a_batch_sampler_that_is_a_list_will_do() -> None:
    """Though nothing can tell when it is gone."""
    own = DataLoader(TensorDataset(torch.arange(4.0)), batch_sampler=[[0, 1], [2], [3]])
    with install(own) as evaluator:
        assert numbers(halved(own)) == [0, 1, 2]
        assert len(evaluator.recorded().steps) == 2


def test_installing_again_ends_the_earlier_measurement() -> None:
    """As in a notebook, where a cell is run again; what was measured is not lost."""
    own = loader()
    earlier = install(own)
    list(own)
    with install(own) as again:
        list(own)
    for measured in (earlier, again):
        assert measured.recorded().batches == 5
    assert DataLoader.__iter__ is PLAIN


def test_after_an_exception_the_loader_can_be_measured_again(tmp_path: Path) -> None:
    """Nobody can close the evaluator of the first time; its log is completed."""
    own = loader()

    def measured() -> None:
        evaluator = install(own, log_file=tmp_path / "run.jsonl")
        raise KeyError(evaluator.log)

    with pytest.raises(KeyError) as failed:
        measured()
    del failed
    with install(own) as again:
        assert is_complete(tmp_path / "run.jsonl")
        list(own)
        assert len(again.recorded().steps) == 5
    assert DataLoader.__iter__ is PLAIN


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_second_log_goes_beside_the_first(overwrite: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    loaders = [loader(), in_order(6, 2)]
    evaluators = [install(own, log_file=path, overwrite=overwrite) for own in loaders]
    for own, evaluator in zip(loaders, evaluators, strict=True):
        list(own)
        evaluator.close()
    assert [len(read_run(tmp_path / f"{name}.jsonl").steps) for name in ("run", "run-1")] == [5, 3]


def test_a_complete_log_of_this_process_is_overwritten_on_demand_alone(tmp_path: Path) -> None:
    """A second training logs beside the first by itself; a notebook may want the same file."""
    path = tmp_path / "run.jsonl"
    for overwrite, count in ((False, 5), (False, 5), (True, 2)):
        own = in_order(4 * count, 4)
        with install(own, log_file=path, overwrite=overwrite):
            list(own)
    assert len(read_run(path).steps) == 2
    assert len(read_run(tmp_path / "run-1.jsonl").steps) == 5
    assert len(list(tmp_path.iterdir())) == 2


def test_a_log_of_another_process_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("something", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(RunLogError, match="exists"):
            install(loader(), log_file=path)


class Doubling(DataLoader[Any]):
    """Has an `__iter__` of its own, on top of DataLoader's."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield [2 * leaf for leaf in batch]


class Prefetching(DataLoader[Any]):
    """Is its own iterator."""

    def __iter__(self) -> Any:
        self._batches = super().__iter__()
        return self

    def __next__(self) -> Any:
        return next(self._batches)


@pytest.mark.parametrize("mode", ["log", "alternate"])
@pytest.mark.parametrize(("kind", "factor"), [(Doubling, 2), (Prefetching, 1)])
def test_a_subclass_is_measured_once(kind: Any, factor: int, mode: str) -> None:
    """What it serves itself counts; reading on begins no other epoch of its own iterator."""
    own = kind(TensorDataset(torch.arange(400.0)), 4)
    with install(own, mode) as evaluator:
        assert sorted(numbers(own)) == [factor * value for value in range(400)]
        assert evaluator.recorded().steps.epoch.tolist() == [0] * 100


def test_a_loader_of_another_class_is_not_measured_silently() -> None:
    own = loader()
    evaluator = install(own)
    assert numbers(Doubling(own.dataset, 4)) == [2.0 * value for value in range(20)]
    with pytest.warns(LoadevalWarning, match="nothing was measured"):
        evaluator.close()


def test_what_cannot_be_measured_in_place_is_refused() -> None:
    for other in ([1, 2], loader().dataset, LoaderEvaluator(loader())):
        with pytest.raises(UsageError, match=r"a torch DataLoader; wrap other loaders with Load"):
            install(other)


def test_an_evaluator_that_served_nothing_says_so() -> None:
    """A warning says so when it is closed, and an event in the run; a copy has nothing to say."""
    evaluator = LoaderEvaluator(loader())
    with pytest.warns(LoadevalWarning, match="another loader in its place"):
        evaluator.close()
    assert "nothing was measured" in evaluator.recorded().events[0].message


def test_a_prepared_loader_is_measured_below_what_a_framework_does() -> None:
    own = loader()
    prepared = type("Prepared", (), {"__module__": "accelerate.data_loader"})()
    prepared.base_dataloader = own
    with install(prepared) as evaluator:
        assert numbers(own) == list(range(20))
        assert len(evaluator.recorded().steps) == 5


def test_a_measurement_ends_once() -> None:
    """It also ends once where its loader is freed while it is closed."""
    own = loader()
    evaluator = install(own)
    numbers(own)
    (one,) = hook.ones()
    evaluator.close()
    one.end()
    assert DataLoader.__iter__ is PLAIN
