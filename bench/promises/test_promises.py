"""Advice is a promise: what it predicts is what training gains when it is followed to the letter.

Loaders and steps sleep, for far longer than a slow machine could blur.
"""

import time
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from bench.judge import Action, Said, compared
from bench.zoo.costs import MS, Both, Pause, Sleep
from bench.zoo.programs import Samples, Training
from loadeval import Estimate

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


@dataclass(frozen=True)
class Settings:
    """Batches of four samples, of some tensors each, and a step that sleeps.

    A sample waits for storage, one in 32 much longer, and is blurred.
    """

    options: dict[str, Any] = field(default_factory=lambda: {"num_workers": 1})
    samples: int = 1600
    epochs: int = 1
    step_ms: float = 5.0
    waits_ms: float = 0.5
    rare_ms: float = 0.0
    blur_ms: float = 0.0
    tensors: int = 1

    def training(self) -> Training:
        wait = Both(Sleep(self.waits_ms), Sleep(self.rare_ms), every=32)

        def read(index: int) -> list[torch.Tensor]:
            wait(index)
            sample = samples.transform(torch.tensor(index))
            return [sample.clone() for _ in range(self.tensors)]

        samples: Any = Samples(read, self.samples)
        samples.transform = Blur(self.blur_ms)
        loader = DataLoader(samples, batch_size=4, **self.options)
        return Training(loader, Pause(self.step_ms), self.epochs)

    def said(self, folder: Path) -> Said:
        return compared(self.training().logged(folder / "run.jsonl"))

    def seconds(self) -> float:
        """Of plain epochs, with the starts of workers."""
        began_s = time.perf_counter()
        self.training().run()
        return time.perf_counter() - began_s


def followed(settings: Settings, action: Action) -> Settings:
    if action.setting is not None:
        return replace(settings, options={**settings.options, action.setting: action.proposed})
    assert "Blur" in action.says
    return replace(settings, blur_ms=settings.blur_ms / (action.times or 1))


def speedup(before: Settings, after: Settings) -> float:
    """How many times as fast plain epochs are with others."""
    return median(before.seconds() / after.seconds() for _ in range(ROUNDS))


def is_as_promised(promised: Estimate | None, measured: float, blur: float = BLUR) -> bool:
    assert promised is not None
    low, high = promised.bounds
    return low / blur <= measured <= high * blur


GRAPHS = partial(Settings, {}, samples=96, epochs=8, step_ms=4.0)
"""Without workers, in epochs so short that starting workers shows."""
TRAININGS = {
    "more workers": ("num_workers", Settings(waits_ms=5)),
    "workers": ("num_workers", Settings({"num_workers": 0}, waits_ms=4)),
    "a faster transform": ("twice as fast", Settings(blur_ms=3)),
    "any order": ("in_order", Settings({"num_workers": 3}, blur_ms=1, rare_ms=100)),
}
"""What the advice says that is followed, with all that comes before it."""


@pytest.mark.parametrize("case", TRAININGS)
def test_following_advice_brings_what_it_promises(case: str, tmp_path: Path) -> None:
    words, settings = TRAININGS[case]
    actions = settings.said(tmp_path).actions
    wanted = [number for number, each in enumerate(actions, 1) if words in each.says]
    assert wanted, actions
    actions = actions[: wanted[0]]
    measured = speedup(settings, reduce(followed, actions, settings))
    assert is_as_promised(actions[-1].speedup, measured), (actions, measured)


def test_first_workers_that_stay_bring_what_is_promised(tmp_path: Path) -> None:
    graphs = GRAPHS(waits_ms=4, tensors=2)
    said = graphs.said(tmp_path)
    advice = said.findings[0].do
    options = {str(each.setting): each.proposed for each in advice if each.setting}
    assert options.keys() == {"num_workers", "persistent_workers"}
    measured = speedup(graphs, replace(graphs, options=options))
    assert is_as_promised(said.actions[0].speedup, measured, BLUR_OF_STARTS), (said, measured)


def test_many_small_tensors_are_not_promised_to_gain(tmp_path: Path) -> None:
    """With a worker each epoch takes longer, whether it lives on or not."""
    graphs = GRAPHS(waits_ms=0.5, tensors=64)
    actions = graphs.said(tmp_path).actions
    assert not any(each.setting == "num_workers" for each in actions)
    for more in ({}, {"persistent_workers": True}):
        assert speedup(graphs, replace(graphs, options={"num_workers": 1, **more})) < 1
