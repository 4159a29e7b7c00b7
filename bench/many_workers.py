"""What 64 workers cost an alternating run and the readings of the host, beside two.

All of them sleep, so that the machine has time. Prints for how long training was paused in an
alternating run, by what for, and how much of a CPU reading the host takes while a loader is at
work; the last column may be 2.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch.utils.data import DataLoader

from bench.zoo.costs import Sleep
from bench.zoo.truth import Items, numbered
from loadeval import LoaderEvaluator
from loadeval.probes.host import HostProbe
from loadeval.runtime.alternation.alternate import Alternation
from loadeval.runtime.background.metrics_thread import MetricsReader
from loadeval.runtime.settings import DEFAULT_PROBE_INTERVAL_S

if TYPE_CHECKING:
    from collections.abc import Callable

FEW, MANY = 2, 64
BATCHES, EPOCHS = 1_200, 2
LOAD_MS, STEP_MS = 2.0, 5.0
PAUSES: dict[str, tuple[type, str]] = {
    "prefetching": (Alternation, "prefetch"),
    "waiting until idle": (Alternation, "wait_until_idle"),
    "CPU time of workers": (Alternation, "workers_cpu_ns"),
    "system metrics": (MetricsReader, "mark"),
}
READ_FOR_S = 120.0
MOST = 2.0


def loader_with(workers: int, load_ms: float) -> DataLoader[Any]:
    items = Items(BATCHES, numbered, Sleep(load_ms))
    return DataLoader(items, batch_size=None, num_workers=workers, persistent_workers=True)


def pauses_s(workers: int) -> dict[str, float]:
    """The time for which an alternating run paused training, by what for."""
    spent_s: dict[str, float] = defaultdict(float)

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = work(*arguments)
            spent_s[name] += time.perf_counter() - began
            return result

        return measured

    step = Sleep(STEP_MS)
    with ExitStack() as stack:
        for name, (owner, method) in PAUSES.items():
            work = timed(name, getattr(owner, method))
            stack.enter_context(patch.object(owner, method, work))
        loader = loader_with(workers, LOAD_MS)
        evaluator = stack.enter_context(LoaderEvaluator(loader, "alternate", pairs=10_000))
        for _ in range(EPOCHS):
            for _ in evaluator:
                step(0)
    spent_s["all pauses"] = sum(spent_s.values())
    return {f"alternating, {name}": spent_s[name] for name in (*PAUSES, "all pauses")}


def reading_ms_per_s(workers: int) -> float:
    """CPU time for each second of reading the host as often as by default, after the first time.

    The first reading is of all that later ones take in turns.
    """
    batches = iter(loader_with(workers, 1_000 * READ_FOR_S))
    probe = HostProbe()
    probe.open()
    probe.read()
    began, cpu_s = time.perf_counter(), time.thread_time()
    while (took_s := time.perf_counter() - began) < READ_FOR_S:
        probe.read()
        time.sleep(probe.every * DEFAULT_PROBE_INTERVAL_S)
    del batches
    return (time.thread_time() - cpu_s) / took_s * 1e3


def main() -> None:
    """Print the table."""
    logging.getLogger("loadeval").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")  # of more workers than there are CPUs
    torch.set_num_threads(1)
    print(f"| | {FEW} workers | {MANY} workers | ratio |\n|---|---|---|---|")
    few, many = map(pauses_s, (FEW, MANY))
    for name in few:
        ratio = many[name] / few[name]
        missed = " **missed**" * (ratio > MOST and name.endswith("all pauses"))
        print(f"| {name} | {few[name]:.2f} s | {many[name]:.2f} s | {ratio:.1f}{missed} |")
    few_ms, many_ms = map(reading_ms_per_s, (FEW, MANY))
    ratio = many_ms / few_ms
    missed = " **missed**" * (ratio > MOST)
    print(
        f"| reading the host, CPU time a second | {few_ms:.2f} ms | {many_ms:.2f} ms | "
        f"{ratio:.1f}{missed} |"
    )


if __name__ == "__main__":
    main()
