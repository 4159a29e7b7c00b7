"""Advice is a promise: what it predicts is what training gains when it is followed to the letter.

Loaders and steps sleep, for far longer than a slow machine could blur.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from bench.judge import Action, Said, compared
from bench.zoo.costs import MS, Both, Sleep
from bench.zoo.programs import Samples
from loadeval import LoaderEvaluator

pytestmark = [
    pytest.mark.timeout(360),
    # Workers that sleep may be more than the CPUs.
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

ROUNDS = 3
BLUR, BLUR_OF_STARTS = 1.1, 1.15
"""What plain loops may be off by, beside the range of the prediction; where workers start often."""


class Blur:
    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __call__(self, sample: torch.Tensor) -> torch.Tensor:
        end_s = time.perf_counter() + self.ms * MS
        while time.perf_counter() < end_s:
            pass
        return sample


class Numbers(Samples):
    """Some tensors each; waits for storage, for one in 32 much longer, and is blurred."""

    def __init__(
        self, count: int, waits_ms: float, rare_ms: float, blur_ms: float, tensors: int
    ) -> None:
        self.wait = Both(Sleep(waits_ms), Sleep(rare_ms), every=32)
        self.transform, self.tensors, self.count = Blur(blur_ms), tensors, count

    def read(self, index: int) -> list[torch.Tensor]:
        self.wait(index)
        sample = self.transform(torch.tensor(index))
        return [sample.clone() for _ in range(self.tensors)]


@dataclass(frozen=True)
class Training:
    """A loader of batches of four, and a step that sleeps."""

    settings: dict[str, Any] = field(default_factory=lambda: {"num_workers": 1})
    samples: int = 1600
    epochs: int = 1
    step_ms: float = 5.0
    waits_ms: float = 0.5
    rare_ms: float = 0.0
    blur_ms: float = 0.0
    tensors: int = 1

    def loader(self) -> DataLoader[list[torch.Tensor]]:
        samples = Numbers(self.samples, self.waits_ms, self.rare_ms, self.blur_ms, self.tensors)
        return DataLoader(samples, batch_size=4, **self.settings)

    def train(self, batches: Any) -> None:
        for _ in range(self.epochs):
            for _ in batches:
                time.sleep(self.step_ms * MS)

    def following(self, action: Action) -> Training:
        if action.setting is not None:
            return replace(self, settings={**self.settings, action.setting: action.proposed})
        assert "Blur" in action.says
        return replace(self, blur_ms=self.blur_ms / (action.times or 1))

    def seconds(self) -> float:
        """Of plain epochs, with the starts of workers."""
        began_s = time.perf_counter()
        self.train(self.loader())
        return time.perf_counter() - began_s

    def said(self, log: Path) -> Said:
        """What is said after a run."""
        with LoaderEvaluator(self.loader(), mode="alternate", log_file=log) as loader:
            self.train(loader)
        return compared(log)

    def speedup(self, followed: Training) -> float:
        """How many times as fast the other one is."""
        return median(self.seconds() / followed.seconds() for _ in range(ROUNDS))


FIRST = {"settings": {}, "samples": 96, "epochs": 8, "step_ms": 4.0}
"""Without workers, in epochs so short that starting workers shows."""
TRAININGS = {
    "more workers": ("num_workers", Training(waits_ms=5)),
    "workers": ("num_workers", Training({"num_workers": 0}, waits_ms=4)),
    "a faster transform": ("twice as fast", Training(blur_ms=3)),
    "any order": ("in_order", Training({"num_workers": 3}, blur_ms=1, rare_ms=100)),
}
"""What the advice says that is followed, with all that comes before it."""


@pytest.mark.parametrize("case", TRAININGS)
def test_following_advice_brings_what_it_promises(case: str, tmp_path: Path) -> None:
    words, training = TRAININGS[case]
    actions = training.said(tmp_path / "run.jsonl").actions
    wanted = [number for number, each in enumerate(actions, 1) if words in each.says]
    assert wanted, actions
    actions = actions[: wanted[0]]
    followed = reduce(Training.following, actions, training)
    predicted, speedup = actions[-1].speedup, training.speedup(followed)
    assert predicted is not None, actions
    low, high = predicted.bounds
    assert low / BLUR <= speedup <= high * BLUR, (actions, speedup)


def test_first_workers_that_stay_bring_what_is_promised(tmp_path: Path) -> None:
    graphs = Training(**FIRST, waits_ms=4, tensors=2)
    said = graphs.said(tmp_path / "run.jsonl")
    advice = said.finding("zero workers").do
    settings = {str(each.setting): each.proposed for each in advice if each.setting}
    assert settings.keys() == {"num_workers", "persistent_workers"}
    predicted = said.actions[0].speedup
    assert predicted is not None
    low, high = predicted.bounds
    speedup = graphs.speedup(replace(graphs, settings=settings))
    assert low / BLUR_OF_STARTS <= speedup <= high * BLUR_OF_STARTS, (said.actions, speedup)


def test_many_small_tensors_are_not_promised_to_gain(tmp_path: Path) -> None:
    """With a worker each epoch takes longer, whether it lives on or not."""
    graphs = Training(**FIRST, waits_ms=0.5, tensors=64)
    actions = graphs.said(tmp_path / "run.jsonl").actions
    assert not any(each.setting == "num_workers" for each in actions)
    for more in ({}, {"persistent_workers": True}):
        assert graphs.speedup(replace(graphs, settings={"num_workers": 1, **more})) < 1
