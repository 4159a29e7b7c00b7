"""SPDL's loaders and pipeline builders, made again with other settings."""

from __future__ import annotations

from typing import Any

import pytest
from spdl.dataloader import CacheDataLoader, DataLoader, get_pytorch_dataloader
from spdl.pipeline import PipelineBuilder
from spdl.pipeline.defs import Aggregator, Merge, PipelineConfig, SinkConfig, SourceConfig

from loadeval import LoaderEvaluator, UsageError
from loadeval.adapter import adapter_for
from loadeval_adapters.spdl import ThreadedBuilder
from tests.adapters.loaders import describe
from tests.spdl_pipelines import NEVER_RUN, TOLD_ITS_THREADS, pipeline, source

pytestmark = NEVER_RUN


class Mine(DataLoader[Any, Any]):
    """Has a constructor of its own."""

    def __init__(self) -> None:
        super().__init__(range(8))


class Later(DataLoader[Any, Any]):
    """Keeps what it was given elsewhere, as another version may."""

    def __setattr__(self, name: str, given: Any) -> None:
        super().__setattr__("_where" if name == "_src" else name, given)


class Other(PipelineBuilder[Any, Any]):
    """May build pipelines of its own."""


class Pairs(Aggregator):
    def accumulate(self, item: Any) -> Any:
        return [item, item]

    def flush(self) -> Any:
        return None


def doubled(number: int) -> int:
    return 2 * number


def builder(items: Any = range(20), size: Any = 3) -> Any:
    made = source(items).pipe(doubled, concurrency=2, output_order="input")
    return made.aggregate(size).add_sink(2)


def tunable(loader: Any) -> dict[str, Any]:
    return dict(adapter_for(loader).tunable(loader))


def reconfigured(loader: Any, **settings: Any) -> Any:
    return adapter_for(loader).reconfigured(loader, settings)


def served(loader: Any) -> list[Any]:
    return list(adapter_for(loader).epoch(loader))


def test_a_data_loader_has_other_threads_and_buffer() -> None:
    options: Any = {"preprocessor": doubled, "batch_size": 3, "output_order": "input"}
    loader = DataLoader(range(20), drop_last=True, timeout=60, **options)
    assert tunable(loader) == {"num_threads": 8, "buffer_size": 3}
    again = reconfigured(loader, num_threads=2, buffer_size=5)
    assert tunable(again) == {"num_threads": 2, "buffer_size": 5}
    assert served(again) == served(loader)
    assert len(served(again)) == 6


def test_a_pytorch_data_loader_has_other_workers() -> None:
    """Its buffer has `prefetch_factor` batches of each."""
    dataset: Any = range(20)
    loader: Any = get_pytorch_dataloader(dataset, batch_size=4, num_workers=2, in_order=True)
    assert tunable(loader) == {"num_workers": 2, "prefetch_factor": 2}
    again = reconfigured(loader, num_workers=1)
    assert tunable(again) == {"num_workers": 1, "prefetch_factor": 2}
    assert tunable(reconfigured(loader, prefetch_factor=4))["prefetch_factor"] == 4
    assert [str(batch) for batch in served(again)] == [str(batch) for batch in served(loader)]


def test_what_is_cached_has_other_threads() -> None:
    inside: Any = DataLoader(range(8), batch_size=2, num_threads=1)
    cached: Any = CacheDataLoader(inside, num_caches=2, return_caches_after=2, stop_after=5)
    again = reconfigured(cached, num_threads=3)
    assert tunable(again) == {"num_threads": 3, "buffer_size": 3}
    assert served(again) == [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1]]


def test_a_builder_has_other_threads_and_buffer() -> None:
    made = builder()
    assert tunable(made) == {"num_threads": 2, "buffer_size": 2}
    again = reconfigured(made, num_threads=4, buffer_size=6)
    assert tunable(again) == {"num_threads": 4, "buffer_size": 6}
    assert describe(again).workers == 4
    assert served(again) == served(made)


@TOLD_ITS_THREADS
def test_a_builder_that_was_made_again_is_measured() -> None:
    evaluator = LoaderEvaluator(reconfigured(builder(), num_threads=3))
    assert len(list(evaluator)) == 7
    assert evaluator.recorded().header.loader.workers == 3


def test_two_pipelines_do_not_share_an_aggregation() -> None:
    made = builder()
    both = [adapter_for(source).epoch(source) for source in (made, reconfigured(made))]
    in_turns = list(zip(*both, strict=True))
    assert [len(batch) for batch, _ in in_turns] == [3] * 6 + [2]
    assert all(batch == other for batch, other in in_turns)


def test_a_builder_that_was_made_again_is_built_by_hand() -> None:
    again = reconfigured(builder(), buffer_size=6)
    built = again.build(num_threads=2)
    with built.auto_stop():
        assert len(list(built)) == 7


def merging() -> Any:
    sink: Any = SinkConfig(2)
    inner = PipelineConfig(SourceConfig(range(4)), [], sink)
    return ThreadedBuilder(PipelineConfig(Merge([inner]), [], sink), 1)


@pytest.mark.parametrize(
    "made",
    [
        Mine,
        lambda: Later(range(8)),
        lambda: DataLoader(iter(range(8))),
        lambda: builder(iter(range(8))),
        lambda: builder(size=Pairs()),
        merging,
        Other,
        pipeline,
        lambda: CacheDataLoader([1, 2], num_caches=2, return_caches_after=2),
    ],
    ids=[
        "own_constructor",
        "another_version",
        "iterator",
        "iterator_of_builder",
        "own_aggregator",
        "merge",
        "own_builder",
        "pipeline",
        "cached_list",
    ],
)
def test_what_cannot_be_made_again_says_so(made: Any) -> None:
    loader = made()
    assert tunable(loader) == {}
    with pytest.raises(UsageError, match="only where it is made"):
        reconfigured(loader)
