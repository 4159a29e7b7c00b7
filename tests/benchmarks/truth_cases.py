"""Loaders and steps whose speed-up is measured apart, hard ones above all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.truth_loaders import (
        Burn,
        Content,
        Cost,
        HeavyTail,
        InProcess,
        Items,
        Reusing,
        Sleep,
        Step,
        changing_in_place,
        converting,
        every,
        growing_with_content,
        growing_with_time,
        labelled,
        numbered,
        photographs,
        rounds_per_ms,
    )
else:  # a script finds its siblings by their plain names
    from truth_loaders import (
        Burn,
        HeavyTail,
        InProcess,
        Items,
        Reusing,
        Sleep,
        changing_in_place,
        converting,
        every,
        growing_with_content,
        growing_with_time,
        labelled,
        numbered,
        photographs,
        rounds_per_ms,
    )


@dataclass(frozen=True)
class Case:
    """A loader of `loader(batches)`, and the steps of a run of `step(batches)`.

    `content(i)` is batch i, made at no cost. A `steady` case asks for a narrow interval.
    """

    name: str
    what: str
    loader: Callable[[int], Any]
    step: Callable[[int], Step]
    content: Content = numbered
    steady: bool = False
    truth_batches: int = 100
    drifts: bool = False
    slow_start: bool = False


def cases() -> list[Case]:
    """All of them; S1 to S6 are those on which the peers' failures were first seen."""
    speed = rounds_per_ms()

    def in_process(cost: Cost, opening_s: float = 0.0) -> Callable[[int], Any]:
        return lambda n: InProcess(n, numbered, cost, opening_s)

    def workers(cost: Cost) -> Callable[[int], Any]:
        return lambda n: DataLoader(Items(n, numbered, cost), batch_size=None, num_workers=2)

    def burn(ms: float) -> Burn:
        return Burn(round(ms * speed))

    free, ten = Sleep(0), every(Sleep(10))
    return [
        Case("S1", "in process 15 ms, step 10", in_process(Sleep(15)), ten, steady=True),
        Case("S2", "2 workers x 15 ms, step 10", workers(Sleep(15)), ten, steady=True),
        Case("S2b", "2 workers x 30 ms, step 10", workers(Sleep(30)), ten, steady=True),
        Case("S3", "200 ms at every 20th, step 10", in_process(Sleep(0, 200, 20)), ten),
        Case(
            "S4",
            "1 ms, step of 8 converts its batch",
            lambda n: InProcess(n, photographs, Sleep(1)),
            converting,
            photographs,
            steady=True,
        ),
        Case("S5", "free, step grows with content", in_process(free), growing_with_content),
        Case(
            "S6",
            "2 CPU-bound workers, CPU-bound step",
            workers(burn(20)),
            every(burn(10)),
        ),
        Case(
            "tail",
            "Pareto waits in process, step 5",
            in_process(HeavyTail.drawn()),
            every(Sleep(5)),
            truth_batches=200,
        ),
        Case(
            "slow sample",
            "2 workers x 5 ms, 300 at every 50th",
            workers(Sleep(5, 300, 50)),
            ten,
        ),
        Case(
            "in place",
            "10 ms, step pops and scales",
            lambda n: InProcess(n, labelled, Sleep(10)),
            changing_in_place,
            labelled,
        ),
        Case(
            "buffer",
            "8 ms, buffer reused, step by content",
            lambda n: Reusing(n, numbered, Sleep(8)),
            growing_with_content,
        ),
        Case(
            "start",
            "opens in 2 s, 5 ms, step 10",
            in_process(Sleep(5), 2.0),
            ten,
            slow_start=True,
        ),
        Case("growing", "10 ms, step grows 2 to 18", in_process(Sleep(10)), growing_with_time),
        Case(
            "drift",
            "CPU-bound, core shared for a third",
            in_process(burn(8)),
            every(burn(8)),
            drifts=True,
        ),
    ]
