"""The stages of a DataLoader add up to what the loader alone takes for a batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from bench.judge import compared
from bench.zoo.costs import hashes
from bench.zoo.programs import Samples, Stream, Training

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on few CPUs

COUNT, SIZE = 384, 4
WITHIN = 0.1
WORK = 60
"""Hashes, half a millisecond on a fast core."""


def worked(index: int) -> torch.Tensor:
    """Work for each, and a small tensor."""
    hashes(WORK)
    return torch.full((16,), float(index))


def uneven(index: int) -> torch.Tensor:
    """One in fifty takes twenty times as long."""
    hashes(0 if index % 50 else 20 * WORK)
    return worked(index)


def large_arrays(samples: list[torch.Tensor]) -> Any:
    hashes(400)
    return np.zeros((len(samples), 500_000), dtype=np.float32)


SAMPLES = Samples(worked, COUNT)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "no workers": (SAMPLES, {}),
    "one worker": (SAMPLES, {"num_workers": 1}),
    "three workers that stay": (SAMPLES, {"num_workers": 3, "persistent_workers": True}),
    "a stream": (Stream(worked, COUNT), {"num_workers": 2}),
    "samples out of order": (Samples(uneven, COUNT), {"num_workers": 2, "in_order": False}),
    "slow collate, and a pipe": (SAMPLES, {"num_workers": 2, "collate_fn": large_arrays}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_stages_add_up_to_the_loader_alone(case: str, tmp_path: Path) -> None:
    """Within a tenth; the rest is told as not attributed."""
    dataset, options = CASES[case]
    loader = DataLoader(dataset, batch_size=SIZE, **options)
    training = Training(loader, lambda _: hashes(100), epochs=3)
    said = compared(training.logged(tmp_path / "run.jsonl", probes=()))
    assert said.stages_ns is not None
    assert said.gap.loader_only is not None
    total_ns, charged_ns, not_attributed_ns = said.stages_ns
    assert charged_ns + not_attributed_ns == pytest.approx(total_ns)
    assert charged_ns == pytest.approx(said.gap.loader_only.value, rel=WITHIN)
