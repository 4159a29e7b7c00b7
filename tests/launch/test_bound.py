"""What binds a training to a CPU after it started is seen by `loadeval run`, which began before."""

from __future__ import annotations

import os

import pytest

from loadeval.estimate.metrics import cpus as cpus_of
from tests.launch.conftest import Launch

PROGRAM = """
import os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import torch
weight = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([weight])
data = torch.utils.data.TensorDataset(torch.ones(400, 1))
for (batch,) in torch.utils.data.DataLoader(data, num_workers=2):
    (batch * weight).sum().backward()
    optimizer.step()
    time.sleep(0.01)
"""


@pytest.mark.check
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is but one CPU")
def test_what_a_training_and_its_workers_may_use(launch: Launch) -> None:
    """A library may bind it when it is imported."""
    launched = launch(["python", "-c", PROGRAM], "--mode", "alternate")
    assert launched.code == 0, launched.err
    run = launched.run()
    assert run.header.environment["cpus_at_start"] == len(os.sched_getaffinity(0))
    allowed = cpus_of(run)
    assert (allowed.kept_by, allowed.theirs) == ("process", 1)
