"""Ray Data, on a Ray of this process's own."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import ray
import ray.data

from loadeval import IterableAdapter, LoaderEvaluator, UsageError
from loadeval.testing import AdapterContract, same_batch
from loadeval_adapters.ray_stages import iterator_of
from tests.adapters.loaders import adapter_of, contract, counted, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval import Run

# Ray's own: settings of its data context that it has given up, but sets itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`use_push_based_shuffle` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`use_polars` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`use_arrow_tensor_v2` is deprecated:DeprecationWarning"),
    pytest.mark.check,
]
ROWS = 40


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100_000_000,
    )
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True  # else batches come in any order
    context.enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def dataset(_ray: None) -> Any:
    """Rows of six numbers each and their own number, made by a task of Ray's."""
    return ray.data.range(ROWS, override_num_blocks=2).map(
        lambda row: {"x": np.full((3, 2), row["id"], np.float32), "y": row["id"]}
    )


TestLoaders = contract(
    adapter_of("ray.data"),
    given="dataset",
    tensors=lambda dataset: dataset.iter_torch_batches(batch_size=8),
    arrays_in_shared_memory=lambda dataset: dataset.iter_batches(batch_size=8, prefetch_batches=2),
    rows=lambda dataset: dataset.iter_rows(),
)


class Tables(AdapterContract):
    def content(self, batch: Any) -> Any:
        return {"x": np.stack(list(batch["x"])), "y": batch["y"].to_numpy()}


TestTables = contract(
    adapter_of("ray.data"),
    Tables,
    "dataset",
    pandas=lambda dataset: dataset.iter_batches(batch_size=8, batch_format="pandas"),
)


def test_ray_tells_nothing_of_what_it_returns(dataset: Any) -> None:
    info = describe(dataset.iter_torch_batches(batch_size=8))
    assert info.backend == "ray.data.iterator._IterableFromIterator"
    assert info.adapter.endswith(".RayDataAdapter")
    assert (info.length, info.batch_size) == (None, None)
    assert (info.workers, info.prefetch_depth, info.ready_batches) == (None, None, None)


def test_samples_are_the_rows_of_batches_and_tables(dataset: Any) -> None:
    assert counted(dataset.iter_torch_batches(batch_size=16)) == [16, 16, 8]
    for batch_format in ("numpy", "pandas", "pyarrow"):
        loader = dataset.iter_batches(batch_size=16, batch_format=batch_format)
        assert counted(loader) == [16, 16, 8]
    assert counted(dataset.iter_rows()) == [1] * ROWS


def test_an_arrow_table_tells_its_bytes(dataset: Any) -> None:
    """The bytes of arrays and of Arrow are counted; what a pandas table takes is unknown."""
    adapter: IterableAdapter = adapter_of("ray.data")()

    def nbytes(batch_format: str) -> int | None:
        return adapter.nbytes(
            next(iter(dataset.iter_batches(batch_size=8, batch_format=batch_format)))
        )

    assert nbytes("numpy") == 8 * (6 * 4 + 8)
    assert (nbytes("pyarrow") or 0) >= 8 * (6 * 4 + 8)
    assert nbytes("pandas") is None


def test_a_replayed_epoch_needs_no_length(dataset: Any) -> None:
    """`epoch_batches` says how long it is, and what is kept is the trainer's to write to."""
    loader = dataset.iter_batches(batch_size=8)
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=2, epoch_batches=7)
    for _ in range(2):
        epoch = list(evaluator)
        assert len(epoch) == 7
        assert all(batch["x"].flags.writeable for batch in epoch)


def test_a_shard_of_a_split_is_served(dataset: Any) -> None:
    (shard,) = dataset.streaming_split(1)
    evaluator = LoaderEvaluator(shard.iter_torch_batches(batch_size=8))
    assert sum(len(batch["y"]) for batch in evaluator) == ROWS


def test_a_dataset_itself_is_refused(dataset: Any) -> None:
    for itself in (dataset, dataset.iterator()):
        with pytest.raises(UsageError, match="pass what its iter_torch_batches"):
            LoaderEvaluator(itself)


def looked_into(loader: Any, epochs: int = 1) -> tuple[list[Any], Run]:
    """All batches, and the run."""
    with LoaderEvaluator(loader, stages=True, probes=()) as evaluator:
        batches = [batch for _ in range(epochs) for batch in evaluator]
    return batches, evaluator.recorded()


def tasks(run: Run, epoch: int) -> Counter[str]:
    """How many tasks of each operator ended in an epoch."""
    counts: Counter[str] = Counter()
    for times in run.operators:
        if times.epoch == epoch:
            counts[times.operator] += times.tasks
    return counts


@pytest.mark.parametrize(
    "make",
    [
        lambda dataset: dataset.iter_torch_batches(batch_size=8),
        lambda dataset: dataset.streaming_split(1)[0].iter_batches(batch_size=8),
    ],
    ids=["dataset", "shard"],
)
def test_operators_are_told_in_their_order_for_each_epoch(dataset: Any, make: Any) -> None:
    """Blocks of the operators, and batches of what the iterator does in this process."""
    batches, run = looked_into(make(dataset), epochs=2)
    assert len(batches) == 10
    for epoch in range(2):
        counts = tasks(run, epoch)
        (mapped,) = (name for name in counts if "Map(" in name)
        assert counts[mapped] == 2
        assert counts["make batches"] == 5
        orders = {times.operator: times.order for times in run.operators if times.epoch == epoch}
        assert orders[mapped] < orders["get blocks"] < orders["make batches"]
    assert all((times.task_ns or 0) > 0 and times.elapsed_ns > 0 for times in run.operators)
    assert run.events == ()


def test_rows_are_told_like_batches(dataset: Any) -> None:
    rows, run = looked_into(dataset.iter_rows())
    assert len(rows) == ROWS
    assert any("Map(" in times.operator for times in run.operators)


def test_a_dataset_in_memory_has_its_iterator_alone(dataset: Any) -> None:
    """What was computed before is not told as work of the epochs, each of which is."""
    _, run = looked_into(dataset.materialize().iter_batches(batch_size=8), epochs=2)
    for epoch in range(2):
        counts = tasks(run, epoch)
        assert counts["make batches"] == 5
        assert not any("Map(" in name for name in counts)


def test_batches_are_the_same_where_operators_are_timed(dataset: Any) -> None:
    plain = list(dataset.iter_batches(batch_size=8))
    inside, _ = looked_into(dataset.iter_batches(batch_size=8))
    assert all(map(same_batch, plain, inside))
    assert len(plain) == len(inside)


def test_an_epoch_that_is_broken_off_is_told(dataset: Any) -> None:
    evaluator = LoaderEvaluator(dataset.iter_batches(batch_size=8), stages=True, probes=())
    for _ in evaluator:
        break
    assert len(list(evaluator)) == 5
    evaluator.close()
    run = evaluator.recorded()
    assert tasks(run, 0)["make batches"] >= 1
    assert tasks(run, 1)["make batches"] == 5


def test_statistics_of_a_running_epoch_are_read_now_and_then(
    dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statistics of a shard come later: the next reading has them."""
    monkeypatch.setattr("loadeval_adapters.ray_stages.EVERY_NS", 0)
    for loader in (
        dataset.iter_batches(batch_size=8),
        dataset.streaming_split(1)[0].iter_batches(batch_size=8),
    ):
        adapter = adapter_of("ray.data")()
        stages = adapter.stages(loader)
        stages.begin(loader)(0)
        taken = []
        for _ in adapter.epoch(loader):
            taken += stages.take()
        taken += stages.take()
        assert stages.take() == []
        batches = sum(times.tasks for times in taken if times.operator == "make batches")
        assert batches == 5
        stages.close()


def test_another_version_of_ray_is_said_to_be_unknown(dataset: Any) -> None:
    loader = dataset.iter_batches(batch_size=8)
    assert iterator_of(loader) is not None
    assert iterator_of(object()) is None
    stages = adapter_of("ray.data")().stages(object())
    stages.begin(None)(0)
    (note,) = stages.take()
    assert "are not timed: this version of Ray" in note.message
