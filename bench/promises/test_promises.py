"""Advice is a promise: what it predicts is what training gains when it is followed to the letter.

Loaders and steps sleep, for far longer than a slow machine could blur.
"""

from __future__ import annotations

import inspect
import os
import time
from dataclasses import dataclass, field, replace
from functools import reduce
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader

from bench.judge import compared
from bench.zoo.costs import MS, Both, Sleep
from bench.zoo.programs import Samples
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from pathlib import Path

    from bench.judge import Action

pytestmark = [
    pytest.mark.timeout(360),
    # Workers that sleep may be more than the CPUs.
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

ANY_ORDER = "in_order" in inspect.signature(DataLoader).parameters
ROUNDS = 3
SETTLING, COUNTED = 16, 160
"""Batches of a round before those that are timed, and these."""
BLUR = 1.1
"""What plain loops may be off by, beside the range of the prediction."""


class Blur:
    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __call__(self, sample: torch.Tensor) -> torch.Tensor:
        end_s = time.perf_counter() + self.ms * MS
        while time.perf_counter() < end_s:
            pass
        return sample


class Numbers(Samples):
    """Some tensors each; waits for storage, for one in `rare_every` much longer, and is blurred."""

    def __init__(
        self, waits_ms: float, rare_ms: float, rare_every: int, blur_ms: float, tensors: int
    ) -> None:
        self.wait = Both(Sleep(waits_ms), Sleep(rare_ms), every=rare_every or 1)
        self.transform, self.tensors, self.count = Blur(blur_ms), tensors, 1600

    def read(self, index: int) -> list[torch.Tensor]:
        self.wait(index)
        sample = torch.tensor(index)
        return [self.transform(sample)] * self.tensors


@dataclass(frozen=True)
class Training:
    """A loader, a step that sleeps, and what the advice says that is followed."""

    advice: str
    settings: dict[str, Any] = field(default_factory=lambda: {"num_workers": 1})
    step_ms: float = 5.0
    waits_ms: float = 0.5
    rare_ms: float = 0.0
    rare_every: int = 0
    blur_ms: float = 0.0
    tensors: int = 1
    sharing: str = "file_descriptor"

    def loader(self) -> DataLoader[list[torch.Tensor]]:
        torch.multiprocessing.set_sharing_strategy(self.sharing)  # type: ignore[no-untyped-call]
        dataset = Numbers(self.waits_ms, self.rare_ms, self.rare_every, self.blur_ms, self.tensors)
        return DataLoader(dataset, batch_size=4, **self.settings)

    def step(self) -> None:
        time.sleep(self.step_ms * MS)

    def following(self, action: Action) -> Training:
        setting = action.setting
        if setting is not None:
            return replace(self, settings={**self.settings, setting: action.proposed})
        if "set_sharing_strategy" in action.says:
            return replace(self, sharing="file_system")
        assert "Blur" in action.says
        return replace(self, blur_ms=self.blur_ms / (action.times or 1))

    def seconds(self) -> float:
        """For a batch of a plain loop, before its workers are ended."""
        began_s = 0.0
        for number, _ in enumerate(self.loader()):
            if number == SETTLING:
                began_s = time.perf_counter()
            if number == SETTLING + COUNTED:
                return (time.perf_counter() - began_s) / COUNTED
            self.step()
        return pytest.fail("the epoch is too short")


TRAININGS = {
    "more workers": Training("num_workers", waits_ms=5),
    "workers": Training("num_workers", {"num_workers": 0}, waits_ms=4),
    "a faster transform": Training("twice as fast", blur_ms=3),
    "any order": Training("in_order", {"num_workers": 3}, blur_ms=1, rare_ms=100, rare_every=32),
    "tensors by file": Training(
        "set_sharing_strategy",
        {"num_workers": 3, "in_order": False},
        waits_ms=0,
        blur_ms=3,
        tensors=4,
    ),
}


@pytest.mark.parametrize("case", TRAININGS)
def test_following_advice_brings_what_it_promises(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = TRAININGS[case]
    if case in {"any order", "tensors by file"} and not ANY_ORDER:
        pytest.skip("this torch serves batches in order alone")
    cpus = len(os.sched_getaffinity(0))
    if case == "tensors by file" and cpus <= training.settings["num_workers"]:
        pytest.skip("the workers compute, and leave training no CPU of its own")
    monkeypatch.setattr(torch.multiprocessing, "_sharing_strategy", "file_descriptor")
    actions = advised(training, tmp_path / "run.jsonl")
    followed = reduce(Training.following, actions, training)
    speedup = median(training.seconds() / followed.seconds() for _ in range(ROUNDS))
    predicted = actions[-1].speedup
    assert predicted is not None, actions
    low, high = predicted.bounds
    assert low / BLUR <= speedup <= high * BLUR, (actions, speedup)


def advised(training: Training, log: Path) -> tuple[Action, ...]:
    """What to do after one epoch, up to the first that says so: it is predicted with all of it."""
    with LoaderEvaluator(training.loader(), mode="alternate", log_file=log) as loader:
        for _ in loader:
            training.step()
    actions = compared(log).actions
    wanted = [number for number, each in enumerate(actions, 1) if training.advice in each.says]
    assert wanted, actions
    return actions[: wanted[0]]
