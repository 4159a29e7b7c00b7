"""Backends: the look at the first batch, and in what batches of several differ."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import (
    Backend,
    IterableAdapter,
    LoaderInfo,
    LoadevalWarning,
    UsageError,
)
from loadeval.runtime.alternation.backends import (
    Layout,
    Source,
    differences,
    layout_of,
)
from loadeval.testing import FakeClock
from tests.scripted import SerialLoader, register

if TYPE_CHECKING:
    from collections.abc import Iterator


BATCHES = [np.zeros((4, 2))] * 3


def serial_loader() -> SerialLoader:
    return SerialLoader(BATCHES, [0] * len(BATCHES), FakeClock())


class Grumbling(list[Any]):
    """A loader whose adapter warns at each epoch, and has batches ready once it was read."""

    read = False


class GrumblingAdapter(IterableAdapter):
    def epoch(self, loader: Any) -> Iterator[Any]:
        loader.read = True
        warnings.warn("the epoch before was broken off", LoadevalWarning, stacklevel=2)
        return iter(loader)

    def describe(self, loader: Any) -> LoaderInfo:
        return LoaderInfo("Grumbling", ready_batches=int(loader.read))


def test_a_converter_is_callable() -> None:
    with pytest.raises(UsageError, match="convert is 3; expected a callable"):
        Backend([1], convert=3)  # type: ignore[arg-type]  # the error is what is tested


def test_an_iterator_that_starts_over_is_a_backend() -> None:
    """It has as many epochs as are asked for, where `iter()` resets it."""

    class Rewinding:
        def __iter__(self) -> Rewinding:
            self.left = [2, 1]
            return self

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            return self.left.pop()

    source = Source(Backend(Rewinding()))
    assert [list(source.open()), list(source.open())] == [[1, 2], [1, 2]]


def test_the_look_is_at_the_converted_batch() -> None:
    look = Source(Backend(BATCHES, convert=lambda batch: batch[:2])).look(None)
    assert (look.layout.samples, look.layout.in_words()) == (2, "(2, 2) float64")
    assert Source(Backend(["ab"])).look(None).layout.samples is None
    assert Source(Backend(["ab"], convert=lambda text: 2 * text)).look(len).layout.samples == 4


def test_the_look_tells_what_is_ready_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it will be in each round. Of epochs broken off there is no warning: all of them are."""
    register(monkeypatch, __name__, GrumblingAdapter)
    assert Source(Backend(Grumbling(BATCHES))).look(None).info.ready_batches == 1
    made_anew = Source(Backend(lambda: iter([1])))
    assert made_anew.look(None).info.ready_batches == 0


def test_what_dali_logs_of_an_unfinished_epoch_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It warns through the root logger. Errors are shown, and so is all that is logged later."""

    class Logging:
        def __iter__(self) -> Iterator[int]:
            logging.warning("the epoch is not finished")  # noqa: LOG015 - as DALI does
            logging.error("there is no epoch")  # noqa: LOG015 - the same
            return iter([1])

    list(Source(Backend(Logging())).open())
    logging.warning("later")  # noqa: LOG015 - the same
    assert [record.message for record in caplog.records] == ["there is no epoch", "later"]


def test_the_workers_of_a_dataloader_end_with_the_epoch() -> None:
    dataset = TensorDataset(torch.zeros(8, 2))
    loader = DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=True)
    source = Source(Backend(loader))
    assert source.look(None).info.workers == 1
    next(source.open())
    source.adapter.fence()
    source.close()
    assert loader._iterator is None


class Framework:
    """An array whose framework has its own names of types."""

    shape, dtype, nbytes = (2,), "DALIDataType.FLOAT", 8


IMAGES, LABELS = np.zeros((4, 3, 8, 8), np.uint8), np.zeros(4, np.int64)
SIX = [f"({n},) float64" for n in range(6)]


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ((IMAGES, LABELS), "(4, 3, 8, 8) uint8, (4,) int64"),
        ({"images": IMAGES, "labels": LABELS}, "(4, 3, 8, 8) uint8, (4,) int64"),
        ([torch.zeros(2, 3)], "(2, 3) float32"),
        ([np.zeros((2, 3), np.float32)], "(2, 3) float32"),
        ([Framework()], "(2,) float32"),
        ([["a", "b", "c"], 1], "3 x str, int"),
        ([], "empty"),
        ([np.zeros(n) for n in range(9)], ", ".join(SIX) + " and 3 more"),
    ],
)
def test_a_batch_in_words(batch: Any, words: str) -> None:
    """Arrays by shape and type, whatever holds them; other leaves by class, equal ones once."""
    assert layout_of(batch, None, None).in_words() == words


def test_a_nested_tensor_in_words() -> None:
    """Its class alone is told, for its rows have different lengths."""
    batch = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
    assert layout_of(batch, None, None).in_words() == "NestedTensor"


ONE, OTHER = Layout(4, ("(4,) uint8",), 10), Layout(8, ("(8,) int64",), 1005)


@pytest.mark.parametrize(
    ("layouts", "told"),
    [
        ({}, []),
        ({"torch": ONE}, []),
        ({"torch": ONE, "dali": ONE}, []),
        (
            {"torch": ONE, "dali": OTHER, "spdl": ONE},
            [
                "dali: batch 0 is (8,) int64 where torch has (4,) uint8",
                "dali: batch 0 has 8 samples where torch has 4",
                "dali: an epoch has 1,005 batches where torch has 10",
            ],
        ),
        ({"torch": Layout(4, ("str",), 10), "spdl": Layout(None, ("str",), None)}, []),
        ({"spdl": Layout(None, ("str",), None), "torch": Layout(4, ("str",), 10)}, []),
    ],
)
def test_each_difference_from_the_first_is_told(
    layouts: dict[str, Layout], told: list[str]
) -> None:
    """Leaves, samples and batches per epoch count; what is not known is no difference."""
    assert differences(layouts) == told
