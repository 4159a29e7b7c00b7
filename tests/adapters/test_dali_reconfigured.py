"""DALI's iterators, made again with other settings, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from loadeval import UsageError
from loadeval.adapter import adapter_for
from tests.dali_loaders import iterator, numbered, sourced, trained

Make = Callable[..., Any]


class Mine(DALIGenericIterator):
    """Has a constructor of its own."""

    def __init__(self, pipeline: Any) -> None:
        super().__init__(pipeline, ["image", "number"], reader_name="Reader")


@pipeline_def(batch_size=2, num_threads=1, device_id=None, exec_pipelined=False, exec_async=False)
def _by_python() -> Any:
    return fn.python_function(fn.random.uniform(range=(0, 1)), function=lambda sample: sample)


@pipeline_def(batch_size=4, num_threads=1, device_id=None, seed=7)
def _random() -> Any:
    return fn.random.uniform(range=(0, 1))


def tunable(loader: Any) -> dict[str, Any]:
    return dict(adapter_for(loader).tunable(loader))


def reconfigured(loader: Any, **settings: Any) -> Any:
    return adapter_for(loader).reconfigured(loader, settings)


def executor(loader: Any) -> tuple[bool, ...]:
    (pipe,) = loader._pipes
    return pipe.exec_pipelined, pipe.exec_async, pipe.exec_dynamic, pipe.exec_separated


DEPTHS = {"cpu_size": 3, "gpu_size": 2}
EXECUTORS: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "pipelined": {"exec_dynamic": False},
    "separated": {"exec_dynamic": False, "prefetch_queue_depth": DEPTHS},
    "simple": {"exec_dynamic": False, "exec_pipelined": False, "exec_async": False},
}


@pytest.mark.parametrize("options", EXECUTORS.values(), ids=list(EXECUTORS))
def test_an_iterator_keeps_its_executor_and_batches(dali_pipeline: Make, options: Any) -> None:
    loader = iterator(dali_pipeline(**options))
    again = reconfigured(loader, num_threads=3)
    assert executor(again) == executor(loader)
    assert tunable(again) == {**tunable(loader), "num_threads": 3}
    assert trained(again) == trained(loader)


def test_a_seed_is_kept() -> None:
    loader = DALIGenericIterator(_random(), ["x"])
    drawn = [next(each)[0]["x"].tolist() for each in (reconfigured(loader, num_threads=2), loader)]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("policy", ["FILL", "DROP", "PARTIAL"])
@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.filterwarnings("ignore:Please set `reader_name`:Warning")
def test_an_iterator_serves_the_same_epochs(dali_pipeline: Make, policy: str, sized: bool) -> None:
    options: Any = {"reader_name": None, "size": 30} if sized else {}
    loader = iterator(dali_pipeline(), policy, auto_reset=True, **options)
    again = reconfigured(loader, num_threads=3, prefetch_queue_depth=1)
    assert tunable(again) == {"num_threads": 3, "prefetch_queue_depth": 1}
    assert trained(again) == trained(loader)


def test_an_iterator_that_was_read_begins_at_the_start(dali_pipeline: Make) -> None:
    loader = iterator(dali_pipeline())
    next(loader)
    assert len(trained(reconfigured(loader), epochs=1)[0]) == 30


@pytest.mark.parametrize("make", [lambda: sourced(numbered(5)), _by_python])
def test_python_is_not_serialised(make: Make) -> None:
    loader = DALIGenericIterator(make(), ["x"])
    assert tunable(loader) == {}
    with pytest.raises(UsageError, match="only where it is made"):
        adapter_for(loader).reconfigure(loader, {"num_threads": 3})


def test_an_iterator_with_a_constructor_is_not_made_again(dali_pipeline: Make) -> None:
    loader = Mine(dali_pipeline())
    assert tunable(loader) == {}
    with pytest.raises(UsageError, match="this Mine can get other settings only where it is made"):
        adapter_for(loader).reconfigure(loader, {"num_threads": 3})
