"""What binds a training to a CPU after it started is seen by `loadeval run`, which began before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loadeval.estimate.cpus import cpus as cpus_of

if TYPE_CHECKING:
    from tests.launch.conftest import Launch

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is but one CPU"),
]
BOUND = Path(__file__).with_name("bound.py")


@pytest.mark.parametrize(
    ("by", "variables", "set_by"),
    [("library", [], "process"), ("OpenMP", ["OMP_PROC_BIND"], "process"), ("", [], None)],
)
def test_what_a_training_and_its_workers_may_use(
    launch: Launch,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    variables: list[str],
    set_by: str | None,
) -> None:
    """A library that binds it at its import, OpenMP that does with `import torch`, or nothing."""
    if by == "OpenMP":
        monkeypatch.setenv("OMP_PROC_BIND", "close")
    launched = launch(["python", str(BOUND), by], "--mode", "alternate")
    assert launched.code == 0, launched.err
    run = launched.run()
    cpus = len(os.sched_getaffinity(0))
    environment = run.header.environment
    assert environment["cpus_at_start"] == cpus
    assert environment["cpu_binding"] == variables
    allowed = cpus_of(run)
    assert allowed.kept_by == set_by
    assert allowed.theirs == (1 if by else cpus)
