"""tune of loaders that their adapters make again, measured for real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from spdl.dataloader import DataLoader as SPDLDataLoader
from torch.utils.data import DataLoader, TensorDataset

from loadeval import tune
from loadeval.analysis.predict.tuning import TrialState
from tests.dali_loaders import iterator
from tests.images import FILES, collate, decode
from tests.spdl_pipelines import NEVER_RUN, TOLD_ITS_THREADS, builder

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval import Tuning

pytestmark = [pytest.mark.check, NEVER_RUN, TOLD_ITS_THREADS]


def tuned(loader: Any, **space: list[int]) -> Tuning:
    options: dict[str, Any] = {"batches": 12, "rounds": 3, "max_trials": 2, "probes": ()}
    return tune(loader, work, space=space, progress=False, **options)


def work(_batch: object) -> int:
    """A step of about a millisecond."""
    return sum(range(50_000))


def measured(tuning: Tuning) -> list[dict[str, Any]]:
    assert {trial.state for trial in tuning.trials} == {TrialState.MEASURED}
    return [dict(trial.settings) for trial in tuning.trials]


def test_a_dataloader() -> None:
    """Predicted: what is made is like it, but for the best settings."""
    dataset = TensorDataset(torch.zeros(400, 4))
    tuning = tuned(DataLoader(dataset, batch_size=8), pin_memory=[False], num_workers=[0, 2])
    assert tuning.predicted
    assert tuning.curve is not None
    assert measured(tuning)[0] == {}
    again = tuning.make()
    assert (again.dataset, again.batch_size) == (dataset, 8)
    assert again.num_workers == tuning.settings.get("num_workers", 0)


def test_an_iterator_of_dalis(dali_pipeline: Callable[..., Any]) -> None:
    tuning = tuned(
        iterator(dali_pipeline(batch_size=1)), num_threads=[1, 2], prefetch_queue_depth=[2]
    )
    assert not tuning.predicted
    assert tuning.curve is None
    assert measured(tuning) == [{}, {"num_threads": 1}]
    assert next(iter(tuning.make()))


def test_a_pipeline_of_dalis(dali_pipeline: Callable[..., Any]) -> None:
    pipe = dali_pipeline(batch_size=1)
    pipe.build()
    tuning = tuned(pipe, num_threads=[1, 2], prefetch_queue_depth=[2])
    assert measured(tuning) == [{}, {"num_threads": 1}]


def test_a_loader_of_spdls() -> None:
    loader: Any = SPDLDataLoader(
        FILES * 10, batch_size=8, preprocessor=decode, aggregator=collate, num_threads=1
    )
    tuning = tuned(loader, num_threads=[1, 2], buffer_size=[loader._buffer_size])
    assert measured(tuning) == [{}, {"num_threads": 2}]
    assert sum(1 for _ in tuning.make()) == 10 * len(FILES) // 8


def test_a_builder_of_spdls() -> None:
    """There is no step: the loader is tuned alone."""
    tuning = tune(
        builder(FILES * 10),
        space={"num_threads": [1, 2], "buffer_size": [2]},
        batches=12,
        rounds=3,
        max_trials=2,
        probes=(),
    )
    assert measured(tuning)[0] == {}
    assert not tuning.step
