"""One tiny training, for each framework to run with us and without us."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from loadeval import LoaderEvaluator, install
from loadeval.evaluator import Measured

Measure = Callable[..., tuple[Any, Measured]]
Train = Callable[["Task", Callable[[Any], Any]], None]
SameTraining = Callable[..., Measured]
ReadAhead = Callable[..., list[int]]

os.environ["KERAS_BACKEND"] = "torch"  # read when Keras is imported

SAMPLES = 83
BATCH_SIZE = 4


class Task:
    """A dataset, a shuffling loader, a model and its optimiser, always the same; notes its steps.

    `seen` is the numbers of the samples of each batch that was trained on, in order.
    """

    def __init__(self, samples: int = SAMPLES, **loader_options: Any) -> None:
        torch.manual_seed(0)
        numbers = torch.arange(samples)
        self.dataset = TensorDataset(torch.randn(samples, 2), numbers)
        options = {"batch_size": BATCH_SIZE, "shuffle": True, **loader_options}
        self.loader: DataLoader[Any] = DataLoader(self.dataset, **options)
        self.model = nn.Linear(2, 1)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.seen: list[list[int]] = []
        self._updates: list[None] = []
        updates = self._updates
        self.on_batch: Callable[[], None] = lambda: None
        self.optimiser.register_step_post_hook(lambda *_: updates.append(None))

    def updated(self, steps: int) -> None:
        """Another optimiser has made so many steps."""
        self._updates += [None] * steps

    @property
    def updates(self) -> int:
        """Steps of the optimiser."""
        return len(self._updates)

    def loss(self, batch: Any, model: Any = None) -> torch.Tensor:
        """The loss of `batch`, which is noted, by `model` where a framework has wrapped ours."""
        inputs, numbers = batch
        self.note(numbers)
        predicted = (model or self.model)(inputs)
        return nn.functional.mse_loss(predicted.squeeze(1), numbers / SAMPLES)

    def note(self, numbers: torch.Tensor) -> None:
        """Training has come to the batch of these samples."""
        self.seen.append(numbers.tolist())
        self.on_batch()

    def step(self, batch: Any) -> None:
        """Train on `batch`."""
        self.optimiser.zero_grad()
        self.loss(batch).backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        self.optimiser.step()

    def stop(self) -> None:
        """Stop the loader's workers: in a cycle, which frameworks make, torch takes seconds."""
        if self.loader._iterator is not None:
            self.loader._iterator._shutdown_workers()  # type: ignore[attr-defined]  # with workers

    def trace(self) -> tuple[list[list[int]], int, list[Any]]:
        """What must be the same with us and without: batches, updates, parameters to the bit."""
        parameters = [parameter.tolist() for parameter in self.model.parameters()]
        assert self.seen
        return self.seen, self.updates, parameters


@pytest.fixture(name="task")
def _task() -> Task:
    return Task()


@pytest.fixture
def measure() -> Iterator[Measure]:
    """Measures a loader in a way and a mode: gives what to iterate now, and the evaluator.

    All are closed when the test is over, so that no class stays changed.
    """
    with ExitStack() as stack:

        def begin(loader: Any, way: str, mode: str = "log") -> tuple[Any, Measured]:
            make = install if way == "in place" else LoaderEvaluator
            evaluator = stack.enter_context(make(loader, mode))
            return loader if way == "in place" else evaluator, evaluator

        yield begin


@pytest.fixture
def same_training(measure: Measure) -> SameTraining:
    """Runs a training without us and with us, and checks that they are the same.

    The training is given a task, and a function for it to put its loader through where that is
    to be measured. Checks batches, their order, the number of updates and the parameters, and
    that each batch that was trained on has its row. Returns the evaluator.
    """

    def check(train: Train, way: str, mode: str = "log", **loader_options: Any) -> Measured:
        plain = Task(**loader_options)
        train(plain, lambda loader: loader)
        plain.stop()
        task = Task(**loader_options)
        made: list[Measured] = []

        def measured(loader: Any) -> Any:
            served, evaluator = measure(loader, way, mode)
            made.append(evaluator)
            return served

        train(task, measured)
        task.stop()
        assert task.updates == plain.updates
        if mode == "replay":
            assert len(task.seen) == len(plain.seen)
        else:
            assert task.trace() == plain.trace()
        (evaluator,) = made
        check_rows(evaluator, task)
        return evaluator

    return check


@pytest.fixture
def read_ahead(measure: Measure) -> ReadAhead:
    """Runs a training, in log mode: how many batches were read beyond each that is trained on."""

    def count(train: Train, way: str, **loader_options: Any) -> list[int]:
        task = Task(**loader_options)
        ahead: list[int] = []

        def measured(loader: Any) -> Any:
            served, evaluator = measure(loader, way)
            task.on_batch = lambda: ahead.append(len(evaluator.recorded().steps) - len(task.seen))
            return served

        train(task, measured)
        task.on_batch = lambda: None
        return ahead

    return count


def check_rows(evaluator: Measured, task: Task) -> None:
    """Each batch that was trained on has its row, with its number of samples and its wait."""
    run = evaluator.recorded()
    steps = run.steps
    assert steps.samples.tolist() == [len(batch) for batch in task.seen]
    assert (steps.wait_ns >= 0).all()
    assert steps.wait_ns.sum() > 0
    if run.header.mode == "alternate":
        assert set(steps.arm.tolist()) == {0, 1}


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """One thread, so that sums are the same to the bit; and no Accelerate of the test before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
