"""What of a sample is random is told apart, and nothing of a training changes meanwhile."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from loadeval import LoaderEvaluator
from loadeval_adapters.pytorch_probe import Probe, digest_of
from tests.adapters import stage_datasets as some

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval import Run


class Flipped:
    """It is seldom flipped, but drawn for each time."""

    def __call__(self, x: Any) -> Any:
        return x.flip(0) if random.random() < 1e-9 else x


class Noisy:
    """Has generators of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.older = np.random.RandomState(3)
        self.plain = random.Random(3)
        self.torchs = torch.Generator().manual_seed(3)

    def __call__(self, x: Any) -> Any:
        drawn = self.rng.normal() + self.older.normal() + self.plain.random()
        return x + float(drawn) + torch.rand(1, generator=self.torchs)


class Drawing(Dataset[Any]):
    """Each sample draws from the generators of all libraries."""

    def __init__(self, *transforms: Any) -> None:
        self.transform = some.Composed(list(transforms))
        self.loaded: set[int] = set()
        self.only_once = False

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        if self.only_once and index in self.loaded:
            raise RuntimeError("no more")
        self.loaded.add(index)
        whole = self.transform(torch.arange(10.0) + index)
        return whole, np.random.rand(), random.random(), torch.rand(1)  # noqa: NPY002 - those that are global


class Together(Drawing):
    """Samples come together."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def double(x: Any) -> Any:
    return 2 * x


def loaded(dataset: Any, *, workers: int = 2, probe: bool = True) -> tuple[list[Any], Run]:
    """The batches of two epochs, and the run."""
    torch.manual_seed(0)
    loader = DataLoader(dataset, batch_size=4, num_workers=workers, shuffle=True)
    with LoaderEvaluator(loader, stages=True, probe_transforms=probe) as evaluator:
        batches = [batch for _ in range(2) for batch in evaluator]
    return batches, evaluator.recorded()


def varies(run: Run) -> dict[str, float]:
    """What is known of each transform."""
    return {
        name: float(column[~np.isnan(column)].mean())
        for times in run.stages
        for name, column in times.varies.items()
        if not np.isnan(column).all()
    }


def test_it_is_told_from_which_transform_on_samples_differ() -> None:
    """The one that draws alone is among them; it is looked at once."""
    _, run = loaded(Drawing(double, Flipped(), some.shifted))
    assert varies(run) == {
        "double": 0,
        "Flipped": 1,
        "shifted": 0,
        "Composed.__call__": 1,
        "__getitem__": 1,
    }
    assert not run.stages[1].varies


def test_batches_are_the_same_with_and_without() -> None:
    """Also where a transform has generators of its own."""
    torch.manual_seed(0)
    dataset = Drawing(double, Flipped(), Noisy())
    loader = DataLoader(dataset, batch_size=4, num_workers=2, shuffle=True)
    plain = [batch for _ in range(2) for batch in loader]
    for probe in (False, True):
        batches, run = loaded(Drawing(double, Flipped(), Noisy()), probe=probe)
        assert bool(varies(run)) is probe
        for batch, other in zip(plain, batches, strict=True):
            assert all(torch.equal(*both) for both in zip(batch, other, strict=True))


@pytest.mark.parametrize(
    ("dataset", "workers"),
    [(Drawing(double), 0), (Together(double), 2)],
    ids=["training process", "samples together"],
)
def test_only_workers_look_and_only_at_samples_by_themselves(dataset: Any, workers: int) -> None:
    _, run = loaded(dataset, workers=workers)
    assert len(run.steps) == 16
    assert not varies(run)


def test_an_error_ends_it_and_training_goes_on() -> None:
    """The note says which."""
    dataset = Drawing(double)
    dataset.only_once = True
    batches, run = loaded(dataset)
    assert len(batches) == 16
    assert not varies(run)
    (note,) = (event.message for event in run.events if "random" in event.message)
    assert note == "what is random of a sample is not known (RuntimeError: no more)"


def test_what_cannot_be_compared_is_not_known() -> None:
    """Unless random numbers were drawn."""

    class Pair(Drawing):
        def __getitem__(self, index: int) -> Any:
            return object()

    probe = Probe(())
    probe.run(Pair(), [0])
    assert probe.varies == {"__getitem__": None}
    after = probe.note("drawing", None)
    random.random()
    after(object())
    probe.note("drawing", None)(object())
    assert probe.varies["drawing"] is True


@pytest.mark.parametrize(
    "content",
    [
        lambda: Image.new("RGB", (5, 4), "red"),
        lambda: np.ones((3, 4)),
        lambda: np.float32(2),
        lambda: torch.ones(3, 4).bool(),
        lambda: torch.tensor(1.0),
        lambda: {"text": "abc", "more": [b"ab", None, 1.5]},
    ],
    ids=["image", "array", "scalar", "tensor", "number", "nested"],
)
def test_the_same_content_has_the_same_digest(content: Callable[[], Any]) -> None:
    digest = digest_of(content())
    assert digest is not None
    assert digest == digest_of(content())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(4), np.zeros((2, 2))),
        (torch.zeros(4), torch.zeros(4, dtype=torch.int32)),
        (torch.zeros(2), torch.tensor([0.0, 1e-30])),
        ([1, 2], [2, 1]),
    ],
    ids=["shape", "type", "value", "order"],
)
def test_other_content_has_another_digest(one: Any, other: Any) -> None:
    assert digest_of(one) != digest_of(other)


def test_arrays_of_objects_have_none() -> None:
    """Their bytes are addresses."""
    assert digest_of(np.array([object()])) is None
