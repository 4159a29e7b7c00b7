"""How much longer an alternating run takes than a plain one of as many batches.

Both in turn, twice; the ratio of their totals. Prefetching does not overlap with steps, so
it costs most where loading is hidden behind them.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from bench.tables import show
from bench.zoo.costs import Sleep
from bench.zoo.truth import InProcess, Items, numbered
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BATCHES = 300
TIMES = 2
MOST = 1.5


def in_process(load_ms: float) -> Callable[[], Any]:
    return lambda: InProcess(BATCHES, numbered, Sleep(load_ms))


def workers(count: int, load_ms: float) -> Callable[[], Any]:
    items = Items(BATCHES, numbered, Sleep(load_ms))
    return lambda: DataLoader(items, batch_size=None, num_workers=count)


CASES: dict[str, tuple[Callable[[], Any], float]] = {
    "in process 15 ms, step 10": (in_process(15), 10),
    "in process 2 ms, step 20": (in_process(2), 20),
    "2 workers x 30 ms, step 10": (workers(2, 30), 10),
    "2 workers x 20 ms, step 10": (workers(2, 20), 10),
    "2 workers x 10 ms, step 10": (workers(2, 10), 10),
    "4 workers x 36 ms, step 10": (workers(4, 36), 10),
    "2 workers x 2 ms, step 10": (workers(2, 2), 10),
    "2 workers x 4 ms, step 2": (workers(2, 4), 2),
    "2 workers x 50 ms, step 30": (workers(2, 50), 30),
}


def seconds(loader: Iterable[Any], step: Sleep) -> float:
    """The time of a whole loop."""
    began = time.perf_counter()
    for _ in loader:
        step(0)
    return time.perf_counter() - began


def measured(make: Callable[[], Any], step: Sleep) -> float:
    """The ratio of the totals."""
    plain_s = alternating_s = 0.0
    for _ in range(TIMES):
        plain_s += seconds(make(), step)
        with LoaderEvaluator(make(), mode="alternate") as evaluator:
            alternating_s += seconds(evaluator, step)
    return alternating_s / plain_s


def main() -> None:
    """Print the table."""
    logging.getLogger("loadeval").setLevel(logging.ERROR)
    rows = []
    for name, (make, step_ms) in CASES.items():
        ratio = measured(make, Sleep(step_ms))
        rows.append((name, f"{ratio:.2f}", "MISSED" if ratio > MOST else ""))
    show((f"{BATCHES} batches", "alternating / plain", ""), rows)


if __name__ == "__main__":
    main()
