"""Alternating runs whose loader was looked into; no clock runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.lines import CodeSamples, EpochEnd, Prefetch
from loadeval.data.run import Run
from tests.builder import MS, run_of, stage_rows, steps

PAIRS, BLOCK, FIRST = 10, 8, 20
"""Pairs of blocks, batches in a block, and batches that were loaded before those that count."""
COUNT = FIRST + PAIRS * BLOCK


def code(
    seen: Mapping[str, int] | None = None, blocked: Mapping[str, int] | None = None
) -> tuple[CodeSamples, ...]:
    """How often workers were seen where, on a CPU and blocked."""
    return (CodeSamples(0, seen or {}, blocked or {}),)


def looked_into(
    *,
    fetch: npt.ArrayLike,
    workers: int = 2,
    step: float = 20.0,
    real: float | None = None,
    blocked: float = 0.0,
    run_queue: float = 0.0,
    others: float = 0.0,
    transforms: Mapping[str, float] | None = None,
    sizes: Mapping[str, tuple[float, float]] | None = None,
    seen: tuple[CodeSamples, ...] = (),
    loader: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    **given: npt.ArrayLike,
) -> Run:
    """A run whose loader takes these times in ms: one for all batches, or one for each of COUNT.

    `real` is the step beside loading, where that is slower. `blocked` and `run_queue` are shares of
    fetching and collating, `others` the CPU time of other threads beside that of its own;
    `transforms` are shares of fetching, with a call for each of four samples, and `sizes` how many
    numbers go in and come out. `given` are `index`, `collate`, `pickle`, `receive`, `pin`,
    `slowest`, or columns of StageTimes.
    """
    stages = ("index", "collate", "pickle", "receive", "pin")
    taken: dict[str, Any] = {f"{name}_ms": given.pop(name) for name in stages if name in given}
    work_ns = np.full(COUNT, (np.asarray(fetch) + np.asarray(taken.get("collate_ms", 0))) * MS)
    cpu_ns = (1 - blocked - run_queue) * work_ns
    columns = {
        "cpu_ns": cpu_ns,
        "run_queue_ns": run_queue * work_ns,
        "other_cpu_ns": others * cpu_ns,
        "slowest_ns": np.asarray(given.pop("slowest", 0)) * MS,
        "slowest_index": 0,
        "pickled_bytes": 1000 if workers else UNKNOWN,
        **given,
    }
    taken |= {name: np.full(COUNT, values).astype(np.int64) for name, values in columns.items()}
    rows, alone = (
        stage_rows(fetch, COUNT, workers=workers, step_ms=each, **taken) for each in (step, 0.0)
    )
    waits_ms = (rows.delivered_ns - rows.requested_ns)[FIRST:].reshape(PAIRS, BLOCK) / MS
    alone_ns = int(BLOCK * np.diff(alone.delivered_ns)[FIRST - COUNT :].mean())
    blocks, unknown = [], np.full(BLOCK, UNKNOWN)
    for pair, wait_ms in enumerate(waits_ms):
        blocks.append(steps("real", wait_ms, step if real is None else real, pair=pair))
        blocks.append(steps("ideal", 0, step, BLOCK, pair=pair))
    numbers = {"epoch": np.zeros(COUNT, np.int64), "batch": np.arange(COUNT)}
    return run_of(
        [block.replace(samples=unknown, nbytes=unknown) for block in blocks],
        stages=rows,
        transforms={
            name: Columns({**numbers, "ns": part * rows.fetch_ns, "calls": np.full(COUNT, 4.0)})
            for name, part in (transforms or {}).items()
        },
        sizes=sizes or {},
        code=seen,
        prefetches=tuple(Prefetch(pair, 0, BLOCK, BLOCK, alone_ns, None) for pair in range(PAIRS)),
        ends=(EpochEnd(0, "broken off"),),
        environment=environment or {"cpus_usable": 8},
        **{"workers": workers, "prefetch_depth": 2 * workers, **(loader or {})},
    )
