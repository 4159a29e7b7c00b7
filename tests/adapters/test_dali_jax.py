"""DALI's iterators for JAX, which stack or join the arrays of several pipelines."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from loadeval import LoaderEvaluator
from tests.adapters.loaders import adapter_of, contract
from tests.dali_loaders import GoesOnContract

jax_plugin = pytest.importorskip("nvidia.dali.plugin.jax", reason="JAX is not installed")

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]


def iterator(pipelines: Any, **options: Any) -> Any:
    options = {"output_map": ["image", "number"], "reader_name": "Reader", **options}
    return jax_plugin.DALIGenericIterator(pipelines, **options)


TestGenericIterator = contract(
    adapter_of("nvidia.dali.plugin"),
    GoesOnContract,
    "dali_pipeline",
    iterator=lambda pipeline: iterator(pipeline(batch_size=6)),
)


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
@pytest.mark.parametrize(
    ("shards", "options", "shape"),
    [(1, {}, (5,)), (1, {"pmap_compatible": True}, (1, 5)), (2, {}, (2, 5))],
)
def test_samples_of_stacked_arrays_are_counted(
    dali_pipeline: Make, mode: str, shards: int, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    """Where the first dimension counts pipelines, the samples are those of all of them."""
    pipelines = [dali_pipeline(5, shard_id=n, num_shards=shards) for n in range(shards)]
    evaluator = LoaderEvaluator(iterator(pipelines, **options), mode=mode)
    for batch in evaluator:
        assert batch["image"].shape == (*shape, 16, 16, 3)
    samples = evaluator.recorded().steps.samples
    assert samples.tolist() == [5 * shards] * (6 // shards)


def test_a_peek_breaks_nothing_off(dali_pipeline: Make) -> None:
    """A batch that was looked at is still to be served: the epoch is whole, without a warning."""
    clu = pytest.importorskip("nvidia.dali.plugin.jax.clu", reason="CLU is not installed")
    loader = clu.DALIGenericPeekableIterator(
        dali_pipeline(batch_size=10), ["image", "number"], reader_name="Reader"
    )
    loader.peek()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(1 for _ in LoaderEvaluator(loader)) == 3
