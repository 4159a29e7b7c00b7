"""What loadeval costs a training on a device."""

from __future__ import annotations

from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader

from bench.gpu.claims import OVERHEAD_ALTERNATE, OVERHEAD_LOG, OVERHEAD_REPLAY
from bench.gpu.device import Products, host_s
from bench.zoo import device
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.gpu.conftest import Notes

pytestmark = pytest.mark.gpu

ROUNDS = 5
MOST_OF_FLOOR = 3.0
MOST_OF_RUN = 1.5
WITHIN = 0.05
SPREAD = 0.1
"""The spread between rounds of what two events cost."""


def test_logging_costs_little_more_than_the_floor(note: Notes) -> None:
    """The least of some rounds of what each adds to a bare loop over the same batches, in turn."""
    try:
        from bench import overhead
    except ImportError as error:
        note(OVERHEAD_LOG, "", expected="at most 3x the floor", measured=str(error), held=None)
        return
    torch.cuda.synchronize()  # the device is in use: there are events
    batches: list[Any] = [{name: tensor.to("cuda") for name, tensor in overhead.TENSORS.items()}]
    subjects = [
        overhead.Subject("bare for", batches, iter),
        overhead.Subject("floor", batches, overhead.floor),
        overhead.Subject("log", batches, LoaderEvaluator),
        overhead.Subject("events", batches, overhead.gpu_idle_timed),
    ]
    rounds: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    for _ in range(ROUNDS):
        for subject in subjects:
            rounds[subject.name].append(overhead.ns_per_batch(subject))
            torch.cuda.synchronize()
    bare_ns = min(rounds["bare for"])
    floor_ns, log_ns, events_ns = (
        min(rounds[name]) - bare_ns for name in ("floor", "log", "events")
    )
    most_ns = (MOST_OF_FLOOR * floor_ns + events_ns) * (1 + SPREAD)
    note(
        OVERHEAD_LOG,
        f"a floor of {floor_ns:.0f} ns, two events of {events_ns:.0f} ns",
        expected=f"at most {most_ns:.0f} ns a batch",
        measured=f"{log_ns:.0f} ns",
        held=log_ns <= most_ns,
    )


@pytest.mark.parametrize(("batches", "load_ms", "syncs"), [(400, 10.0, False), (200, 24.0, True)])
def test_alternating_takes_little_longer(
    note: Notes, batches: int, load_ms: float, syncs: bool
) -> None:
    """The same run without is compared: two workers load faster than a step of 10 ms, or slower."""
    work = Products(10.0)

    def loader() -> DataLoader[torch.Tensor]:
        data = device.batches(batches, partial(device.of_size, 0.25), load_ms)
        return DataLoader(data, batch_size=None, num_workers=2, pin_memory=True)

    def epoch(loader: Iterable[torch.Tensor]) -> None:
        for batch in loader:
            moved = batch.to("cuda", non_blocking=True)
            work()
            if syncs:
                moved[0].item()

    def alternating() -> None:
        with LoaderEvaluator(loader(), mode="alternate") as evaluator:
            epoch(evaluator)

    plain_s = host_s(lambda: epoch(loader()))
    ratio = host_s(alternating) / plain_s
    note(
        OVERHEAD_ALTERNATE,
        f"2 workers of {load_ms:g} ms, {'synced' if syncs else 'asynchronous'} steps of 10 ms",
        expected=f"at most {MOST_OF_RUN}x of {plain_s:.2f} s",
        measured=f"{ratio:.2f}x",
        held=ratio <= MOST_OF_RUN,
    )


class InMemory:
    """Twenty batches on the device, over and over."""

    def __init__(self, batches: list[torch.Tensor], count: int) -> None:
        self.batches, self.count = batches, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Any:
        return islice(cycle(self.batches), self.count)


@pytest.mark.parametrize("syncs", [False, True], ids=["asynchronous", "syncs"])
def test_replay_is_as_fast_as_batches_in_memory(note: Notes, syncs: bool) -> None:
    """The least of some turns, of steps of 2 ms on batches of the device's memory."""
    work = Products(2.0)
    kept = [torch.full((2**16,), float(number), device="cuda") for number in range(20)]
    loader = InMemory(kept, 100)

    def epoch(batches: Iterable[torch.Tensor]) -> None:
        for batch in batches:
            work()
            if syncs:
                batch[0].item()

    plain_s, replay_s = [], []
    with LoaderEvaluator(loader, mode="replay", probes=()) as evaluator:
        epoch(evaluator)
        for _ in range(ROUNDS):
            plain_s.append(host_s(partial(epoch, loader)))
            replay_s.append(host_s(partial(epoch, evaluator)))
    ratio = min(replay_s) / min(plain_s)
    note(
        OVERHEAD_REPLAY,
        f"steps of 2 ms, {'synced' if syncs else 'asynchronous'}",
        expected=f"1.00x, within {WITHIN:.0%}",
        measured=f"{ratio:.3f}x",
        held=abs(ratio - 1) <= WITHIN,
    )
