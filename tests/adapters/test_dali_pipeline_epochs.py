"""Training loops over DALI pipelines by themselves: epochs, breaks, sources, errors."""

from __future__ import annotations

import warnings
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def

from loadeval import LoaderEvaluator, LoadevalWarning, UsageError
from loadeval_adapters.dali import DALIPipelineAdapter
from tests.adapters.dali_iterators import numbered, sourced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[..., Any]

BYTES = 16 * 16 * 3 + 4
"""Of an image, and its number."""


def numbers(batch: Any) -> list[int]:
    """The number of each image."""
    return [int(number) for number in batch[-1].as_array()[:, 0]]


def trained(loader: Any, epochs: int, batches: int | None = None) -> list[list[int]]:
    """The numbers that a training loop gets in each epoch, of at most `batches`."""
    return [[n for batch in islice(loader, batches) for n in numbers(batch)] for _ in range(epochs)]


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
@pytest.mark.parametrize("exec_dynamic", [True, False])
def test_a_training_loop_gets_the_pipelines_batches(
    dali_pipeline: Make, mode: str, exec_dynamic: bool
) -> None:
    """Three epochs of 15 batches, each counted, of the right images whatever is overwritten."""
    pipeline = dali_pipeline(batch_size=2, exec_dynamic=exec_dynamic)
    with LoaderEvaluator(pipeline, mode=mode, num_cached_batches=15) as evaluator:
        epochs = trained(evaluator, 3)
    assert [sorted(epoch) for epoch in epochs] == [[*range(30)]] * 3
    steps = evaluator.recorded().steps
    assert steps.samples.tolist() == [2] * 45
    assert steps.nbytes.tolist() == [2 * BYTES] * 45


def test_a_break_is_warned_of_in_the_training_loop(dali_pipeline: Make) -> None:
    """One warning, at the line that iterates; the images go on where they were left."""
    evaluator = LoaderEvaluator(dali_pipeline(batch_size=10))
    assert trained(evaluator, 1, batches=1) == [[*range(10)]]
    with pytest.warns(LoadevalWarning, match="broken off") as raised:
        assert trained(evaluator, 1) == [[*range(10, 30), *range(10)]]
    assert [warning.filename for warning in raised] == [__file__]
    assert trained(evaluator, 1) == [[*range(10, 30), *range(10)]]


def test_no_warning_follows_a_break_at_the_last_batch(dali_pipeline: Make) -> None:
    """Whoever reads as many batches as there are has broken nothing off."""
    evaluator = LoaderEvaluator(dali_pipeline(batch_size=10))
    assert trained(evaluator, 3, batches=3) == [[*range(30)]] * 3


def test_a_callable_measures_whole_epochs_after_a_break(dali_pipeline: Make) -> None:
    """What the warning advises: each epoch is a new pipeline, which nobody broke off."""
    evaluator = LoaderEvaluator(lambda: dali_pipeline(batch_size=10))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trained(evaluator, 2, batches=1) == [[*range(10)]] * 2
        assert trained(evaluator, 1) == [[*range(30)]]


@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_a_source_that_ends_is_served_epoch_by_epoch(mode: str) -> None:
    """Each epoch has all of the source's batches, and no length is told."""
    evaluator = LoaderEvaluator(sourced(numbered(7)), mode=mode)
    whole = [number for number in range(7) for _ in range(4)]
    assert [sorted(epoch) for epoch in trained(evaluator, 3)] == [whole] * 3
    run = evaluator.recorded()
    assert run.header.loader.length is None
    assert run.steps.samples.tolist() == [4] * 21


def test_the_end_of_a_source_is_not_lost_by_a_break() -> None:
    """What was prefetched when the source ended is served, before the source begins anew."""
    evaluator = LoaderEvaluator(sourced(numbered(3)))
    assert trained(evaluator, 1, batches=2) == [[0] * 4 + [1] * 4]
    with pytest.warns(LoadevalWarning, match="broken off"):
        assert trained(evaluator, 1) == [[2] * 4]
    assert trained(evaluator, 1) == [[0] * 4 + [1] * 4 + [2] * 4]


def test_a_source_without_end_has_no_length() -> None:
    """It is served as long as it is asked; replay needs a number of batches."""
    assert DALIPipelineAdapter().describe(sourced(numbered(2), "quiet")).length is None
    logged = LoaderEvaluator(sourced(numbered(2), "quiet"))
    assert len(list(islice(logged, 20))) == 20
    replayed = LoaderEvaluator(
        sourced(numbered(2), "quiet"), mode="replay", num_cached_batches=2, epoch_batches=3
    )
    assert trained(replayed, 2) == [[0] * 4 + [1] * 4 + [0] * 4] * 2


def test_readers_of_different_lengths_are_refused(jpegs: Path) -> None:
    """Where two readers disagree nobody knows what an epoch is: the user is told what to do."""

    @pipeline_def
    def disagreeing() -> Any:
        every, _ = fn.readers.file(file_root=str(jpegs), name="every")
        some, _ = fn.readers.file(file_root=str(jpegs), name="some", dir_filters="class 0")
        return every, some

    pipeline = disagreeing(batch_size=5, num_threads=1, device_id=None)
    with pytest.raises(UsageError, match=r"\(every 6, some 2\).*reader_name="):
        LoaderEvaluator(pipeline)


def test_a_sources_exception_passes_through() -> None:
    """The user sees the error of a source's own code, unchanged, after the batches before it."""
    error = KeyError("batch 5")

    def failing() -> Any:
        yield from numbered(5)
        raise error

    evaluator = LoaderEvaluator(sourced(failing, None))
    with pytest.raises(KeyError) as raised:
        list(evaluator)
    assert raised.value is error
    assert evaluator.recorded().ends[0].cause == "failed"


def test_an_operators_exception_passes_through(tmp_path: Path) -> None:
    """A file that is no image is DALI's own error."""
    (tmp_path / "no.jpg").write_bytes(b"not an image")

    @pipeline_def
    def decoding() -> Any:
        encoded, _ = fn.readers.file(files=[str(tmp_path / "no.jpg")])
        return fn.decoders.image(encoded, device="cpu")

    evaluator = LoaderEvaluator(decoding(batch_size=1, num_threads=1, device_id=None))
    with pytest.raises(RuntimeError, match="image"):
        list(evaluator)
