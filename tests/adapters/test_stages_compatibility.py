"""Looking inside a DataLoader changes nothing: batches, random numbers, errors, processes."""

from __future__ import annotations

import gc
import multiprocessing
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Subset, TensorDataset

from loadeval import LoaderEvaluator, Run
from tests.adapters import stage_datasets as some
from tests.adapters.children import still_running
from tests.adapters.stage_datasets import stateful
from tests.runs.tables import Rows, rows_of

Tensors = TensorDataset(torch.arange(80.0).reshape(40, 2), torch.arange(40))


pytestmark = pytest.mark.check


def hugging_face() -> Any:
    datasets = pytest.importorskip("datasets")

    dataset = datasets.Dataset.from_dict({"x": list(range(40))})
    return dataset.with_format("torch")


def of(dataset: Callable[[], Any], kind: Any = DataLoader, **options: Any) -> Callable[..., Any]:
    """Makes loaders of a new data set with these options and some more."""
    return lambda **how: kind(dataset(), **options, **how)


INDICES: Any = torch.arange(3, 30)
CASES: dict[str, Callable[..., Any]] = {
    "transforms of all kinds": of(
        some.Picky, batch_size=4, shuffle=True, worker_init_fn=some.seed_numpy
    ),
    "a Compose of its own": of(some.Tailored, batch_size=4, shuffle=True),
    "random collate": of(some.Picky, batch_size=4, collate_fn=some.with_random),
    "tensors": of(lambda: Tensors, batch_size=8),
    "__getitems__": of(some.WithItems, batch_size=4),
    "Subset of ConcatDataset": of(
        lambda: Subset(ConcatDataset([some.Picky(), some.Picky()]), range(10, 70)), batch_size=4
    ),
    "Subset of Subset of Tensors": of(
        lambda: Subset(Subset(Tensors, list(range(40))), INDICES), batch_size=4
    ),
    "indices of a Subset that can be read once": lambda **how: DataLoader(
        Subset(some.WithItems(), range(5, 25)),
        batch_sampler=[iter([0, 1]), iter([2])],  # type: ignore[list-item]
        **how,
    ),
    "string keys": of(some.Keys, batch_sampler=[["a", "bb"], ["ccc"]]),
    "no batching": of(some.Picky, batch_size=None),
    "batches by sampler": of(
        lambda: Tensors, batch_size=None, sampler=BatchSampler(range(40), 8, drop_last=False)
    ),
    "uneven stream": of(some.Uneven, batch_size=2),
    "stream without batching": of(some.Uneven, batch_size=None),
    "a Dataset that pickles itself": of(some.Repickling, batch_size=2),
    "Hugging Face": of(hugging_face, batch_size=4),
    "stateful": of(some.Picky, stateful, batch_size=4, shuffle=True),
    "stateful stream": of(some.Countdown, stateful, batch_size=4),
}
FAILING = {
    "a sample": of(some.Broken, batch_size=4),
    "StopIteration of a sample": of(some.Stops, batch_size=4),
    "a stream": of(some.BrokenStream, batch_size=4),
}
LAMBDAS = {
    "collate and init": of(
        some.Picky, batch_size=4, collate_fn=lambda x: x, worker_init_fn=lambda _: None
    ),
    "transforms": of(lambda: some.Uneven(lambda x: x + 1), batch_size=4),
}


class Outcome:
    """What a training sees of one epoch of a loader."""

    def __init__(self, make: Callable[[], Any], wrap: Callable[[Any], Any]) -> None:
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 - what users draw from
        torch.manual_seed(0)
        self.batches: list[Any] = []
        self.error: tuple[type, str] | None = None
        with warnings.catch_warnings(record=True) as self.warnings:
            warnings.simplefilter("always")
            self.wrapped = wrap(make())
            try:
                for batch in self.wrapped:
                    self.batches.append(batch)
            except Exception as error:  # noqa: BLE001 - whatever the loader raises
                self.error = type(error), str(error).splitlines()[-1]
        numbers = random.random(), np.random.rand(), torch.rand(()).item()  # noqa: NPY002
        self.random = numbers


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and str(a.dtype) == str(b.dtype)
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def looked_into(loader: Any) -> LoaderEvaluator:
    return LoaderEvaluator(loader, stages=True)


def check(make: Callable[[], Any]) -> Run:
    """The run of a loader that is looked into, after it was compared with one that is not."""
    before = set(multiprocessing.active_children())  # workers that a test before left
    plain, measured = Outcome(make, lambda loader: loader), Outcome(make, looked_into)
    assert same(plain.batches, measured.batches)
    assert plain.error == measured.error
    assert plain.random == measured.random
    assert [str(warning.message) for warning in plain.warnings] == [
        str(warning.message) for warning in measured.warnings if "batch" not in str(warning.message)
    ]
    run: Run = measured.wrapped.recorded()
    measured.wrapped.close()
    assert not [event for event in run.events if event.kind == "stages missing"]
    if plain.batches:
        (stages,) = rows_of(run)
        assert stages.batch.tolist() == list(range(len(plain.batches)))
        check_figures(stages)
    has_failed = plain.error is not None or len(plain.batches) < 2
    del plain, measured
    if has_failed:  # torch's own traceback holds the iterator
        gc.collect()
    assert not still_running(before)
    return run


def check_figures(stages: Rows) -> None:
    assert (stages.fetch_ns >= 0).all()
    assert (stages.collate_ns >= 0).all()
    assert (stages.slowest_ns <= stages.fetch_ns).all()
    in_transforms_ns = sum(map(np.nan_to_num, stages.transform_ns.values()))
    assert (in_transforms_ns <= stages.fetch_ns).all()
    assert (stages.requested_ns <= stages.delivered_ns).all()
    assert (stages.index_ns >= 0).all()
    assert (stages.fetch_start_ns <= stages.delivered_ns).all()
    if (stages.worker >= 0).all():
        assert (stages.fetch_start_ns + stages.fetch_ns <= stages.pickle_start_ns).all()
        assert (stages.pickle_start_ns + stages.pickle_ns <= stages.received_ns).all()
        assert (stages.received_ns <= stages.delivered_ns).all()
        assert (stages.pickled_bytes > 0).all()
        assert (stages.receive_ns >= 0).all()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_changed(case: str, workers: int) -> None:
    check(lambda: CASES[case](num_workers=workers))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", LAMBDAS)
def test_what_cannot_be_pickled_is_left_alone(case: str, workers: int) -> None:
    check(lambda: LAMBDAS[case](num_workers=workers))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("case", FAILING)
def test_errors_are_the_same(case: str, workers: int) -> None:
    check(lambda: FAILING[case](num_workers=workers))


@pytest.mark.parametrize("case", ["uneven stream", "stateful", "transforms of all kinds"])
def test_with_persistent_workers(case: str) -> None:
    check(lambda: CASES[case](num_workers=2, persistent_workers=True))


def test_an_error_of_the_users_worker_init_fn() -> None:
    check(lambda: DataLoader(Tensors, worker_init_fn=some.raise_in_worker, num_workers=1))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize(
    "case",
    [
        *("transforms of all kinds", "a Compose of its own", "uneven stream"),
        "a Dataset that pickles itself",
    ],
)
def test_other_start_methods(case: str, method: str) -> None:
    check(lambda: CASES[case](num_workers=1, multiprocessing_context=method))
