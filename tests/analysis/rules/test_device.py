"""What the device tells."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.runlog.model import LoaderInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.rules.finding import Finding
    from loadeval.runlog.model import Readings, Run

    MakeRun = Callable[..., Run]
    Find = Callable[..., Finding]
    Ask = Callable[..., tuple[str, str]]

NOTHING = ("nothing found", "")
NO_DEVICE = ("not measured", "no device's clock was read: there was no CUDA device in use")


def starving(run: Run, gpu_idle_ns: int) -> Run:
    """The run, with a device that starved for so long in each wait."""
    column = np.full(len(run.steps), gpu_idle_ns)
    return replace(run, steps=replace(run.steps, gpu_idle_ns=column))


def pinning(make_run: MakeRun, pinned: bool | None, device: str | None, samples: int = 4) -> Run:
    info = LoaderInfo("torch.x", pinned=pinned, device=device)
    return starving(make_run([30] * 40, loader=info, samples=samples), 30)


def test_batches_that_are_not_pinned(make_run: MakeRun, finding: Find) -> None:
    """A CUDA device in use cannot copy them beside the step."""
    found = finding("unpinned memory", pinning(make_run, False, "cpu"))
    assert found.advice.startswith("Pass pin_memory=True")
    assert [fact.value for fact in found.evidence] == [40, 12]


def test_batches_of_a_size_that_is_not_known(make_run: MakeRun, finding: Find) -> None:
    """Their number is the figure to show then."""
    found = finding("unpinned memory", pinning(make_run, False, None, samples=-1))
    assert [fact.value for fact in found.evidence] == [40]


@pytest.mark.parametrize(("pinned", "device"), [(True, "cpu"), (False, "cuda:0"), (False, "gpu")])
def test_batches_that_need_no_pinning(
    make_run: MakeRun, outcome: Ask, pinned: bool, device: str
) -> None:
    """They are pinned, or on the device already."""
    assert outcome("unpinned memory", pinning(make_run, pinned, device)) == NOTHING


def test_pinning_that_is_not_known(make_run: MakeRun, outcome: Ask) -> None:
    """Nothing is said, nor without a device."""
    told, reason = outcome("unpinned memory", pinning(make_run, None, None))
    assert (told, reason[:16]) == ("not measured", "whether the load")
    for rule in ("unpinned memory", "hidden wait"):
        assert outcome(rule, make_run([30] * 40)) == NO_DEVICE


def test_waits_that_the_device_did_not_feel(make_run: MakeRun, finding: Find, outcome: Ask) -> None:
    """They are told as costing nothing, where it starved for less than half of them."""
    found = finding("hidden wait", starving(make_run([30] * 40), 14))
    assert found.cost_share == 0.0
    assert [fact.value for fact in found.evidence] == [30, 14]
    assert outcome("hidden wait", starving(make_run([30] * 40), 15)) == NOTHING


def test_a_device_that_is_idle_all_the_same(
    alternating: MakeRun, finding: Find, level: Callable[..., Readings]
) -> None:
    """Loading is not the limit, so the step is."""
    run = alternating(readings=[level("gpu", "GPU 0", "kernel_busy_percent", 40.0)])
    found = finding("look at the step", run)
    assert "GPU 0 is idle for 60.0% of the time even when batches cost nothing" in found.sentence


def test_a_device_that_is_busy(
    alternating: MakeRun, outcome: Ask, level: Callable[..., Readings]
) -> None:
    """From 70% on nothing is said; nor where loading is the limit."""
    busy = level("gpu", "GPU 0", "kernel_busy_percent", 70.0)
    idle = level("gpu", "GPU 0", "kernel_busy_percent", 40.0)
    assert outcome("look at the step", alternating(readings=[busy])) == NOTHING
    assert outcome("look at the step", alternating(wait=50, readings=[idle])) == NOTHING


def test_a_device_that_was_not_read(make_run: MakeRun, alternating: MakeRun, outcome: Ask) -> None:
    """In the ideal arm, that is."""
    told, reason = outcome("look at the step", alternating())
    assert (told, reason[:10]) == ("not measured", "no GPU was")
    told, reason = outcome("look at the step", make_run([0] * 40))
    assert (told, reason[:11]) == ("not measured", "nothing was")
