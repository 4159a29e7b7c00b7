"""Accelerate: gradients are accumulated as without loadeval, and what would go wrong is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch.utils.data import DataLoader, TensorDataset

from loadeval import LoaderEvaluator, UsageError, evaluate_in_place
from loadeval_adapters.pytorch import PyTorchAdapter

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(20, 3, generator=generator)
    return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), 4)


def train(prepared: Any, accelerator: Accelerator) -> tuple[list[bool], torch.Tensor]:
    """Whether gradients were synchronised at each of five batches; the weights at the end."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    synced = []
    for inputs, targets in prepared:
        with accelerator.accumulate(model):
            accelerator.backward(((model(inputs) - targets) ** 2).mean())
            synced.append(accelerator.sync_gradients)
            optimizer.step()
            optimizer.zero_grad()
    return synced, model.weight.detach().clone()


def accelerated() -> Accelerator:
    return Accelerator(cpu=True, gradient_accumulation_steps=2)


@pytest.fixture
def bare() -> tuple[list[bool], torch.Tensor]:
    accelerator = accelerated()
    found = train(accelerator.prepare(loader()), accelerator)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    return found


@pytest.mark.parametrize("mode", ["log", "alternate"])
@pytest.mark.parametrize("first", ["measured", "prepared"])
def test_in_place_trains_as_without(
    bare: tuple[list[bool], torch.Tensor], mode: str, first: str
) -> None:
    """Before prepare() or after it: the same synchronisations and weights, each batch timed."""
    accelerator, own = accelerated(), loader()
    if first == "measured":
        evaluator = evaluate_in_place(own, mode)
        prepared = accelerator.prepare(own)
    else:
        prepared = accelerator.prepare(own)
        evaluator = evaluate_in_place(prepared, mode)
    with evaluator:
        synced, weights = train(prepared, accelerator)
        assert synced == bare[0] == [False, True, False, True, True]
        assert torch.equal(weights, bare[1])
        assert len(evaluator.recorded().steps) == 5


def test_a_prepared_loader_can_be_wrapped(bare: tuple[list[bool], torch.Tensor]) -> None:
    """In log mode, by the adapter of torch's DataLoader."""
    accelerator = accelerated()
    evaluator = LoaderEvaluator(accelerator.prepare(loader()))
    assert isinstance(evaluator._measurement.adapter, PyTorchAdapter)
    synced, weights = train(evaluator, accelerator)
    assert synced == bare[0]
    assert torch.equal(weights, bare[1])
    assert len(evaluator.recorded().steps) == 5


def test_reading_a_prepared_loader_ahead_is_refused() -> None:
    """It would tell the end of the epoch too early: alternate in place."""
    evaluator = LoaderEvaluator(accelerated().prepare(loader()), mode="alternate")
    with pytest.raises(UsageError, match="gradients would be accumulated wrongly"):
        iter(evaluator)


def test_what_prepare_passes_over_is_refused() -> None:
    """A LoaderEvaluator that was given to prepare() says where to wrap instead."""
    evaluator = accelerated().prepare(LoaderEvaluator(loader()))
    with pytest.raises(UsageError, match="or wrap what prepare"):
        iter(evaluator)
