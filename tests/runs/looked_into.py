"""Alternating runs whose loader was looked into; no clock runs.

The loader is that of `tests.runs.loader_model`: training waits as the model says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loadeval.data.columns import Column, Values
from loadeval.data.lines import CodeSamples
from loadeval.data.run import Run
from tests.runs.given import MS, alternating
from tests.runs.loader_model import LoaderModel, iterations_ns
from tests.runs.tables import Rows, altered, replace

FIRST, COUNTED = 20, 80
"""Batches before those that count, and those that do."""
COUNT = FIRST + COUNTED
STAGES = ("index", "fetch", "collate", "pickle", "receive", "pin")


def stage_times(
    *,
    workers: int = 2,
    prefetch: int = 2,
    step: float = 20.0,
    blocked: float = 0.0,
    run_queue: float = 0.0,
    others: float = 0.0,
    transforms: Mapping[str, float] | None = None,
    sizes: Mapping[str, tuple[float, float]] | None = None,
    samples: int | Column = 4,
    slowest: float | Values = 0.0,
    slowest_index: int | Column = 0,
    count: int = COUNT,
    **ms: float | Sequence[float] | Values,
) -> Rows:
    """Batches of what `ms` says for each stage: one time for all, or one for each, in ms.

    `blocked` and `run_queue` are shares of fetching and collating, `others` the CPU time of other
    threads beside that of its own; `transforms` are shares of fetching, with a call for each of
    four samples, and `sizes` how many numbers go in and come out. What names a column of
    StageTimes has its values.
    """
    taken = {
        f"{stage}_ns": (np.broadcast_to(ms.pop(stage, 0.0), count) * MS).astype(int).tolist()
        for stage in STAGES
    }
    pins = any(taken["pin_ns"])
    model = LoaderModel(
        workers=workers,
        prefetch_factor=prefetch,
        step_ns=int(step * MS),
        pins=pins,
        pickles_apart=False,
        **taken,
    )
    times = model.times()
    work_ns = times.fetch_ns + times.collate_ns
    cpu_ns = ((1 - blocked - run_queue) * work_ns).astype(np.int64)

    def column(value: Any) -> Column:
        values: Column = np.broadcast_to(value, count).astype(np.int64)
        return values

    shares = transforms or {}
    known = {name: column(value) for name, value in ms.items()}
    columns: dict[str, Any] = {
        "samples": column(samples),
        "cpu_ns": cpu_ns,
        "run_queue_ns": (run_queue * work_ns).astype(np.int64),
        "other_cpu_ns": (others * cpu_ns).astype(np.int64),
        "slowest_ns": column(np.asarray(slowest) * MS),
        "slowest_index": column(slowest_index),
        "transform_ns": {name: part * times.fetch_ns for name, part in shares.items()},
        "transform_calls": {name: np.full(count, 4.0) for name in shares},
        "elements_before": {name: np.full(count, size[0]) for name, size in (sizes or {}).items()},
        "elements_after": {name: np.full(count, size[1]) for name, size in (sizes or {}).items()},
    }
    return times.replace(**{**columns, **known})


def code(
    seen: Mapping[str, int] | None = None, blocked: Mapping[str, int] | None = None
) -> tuple[CodeSamples, ...]:
    """How often workers were seen where, on a CPU and blocked."""
    return (CodeSamples(0, seen or {}, blocked or {}),)


def waits_ns(times: Rows) -> Column:
    """The waits of the batches that count."""
    counted: Column = (times.delivered_ns - times.requested_ns)[-COUNTED:]
    return counted


def looked_into(
    *,
    workers: int = 2,
    prefetch: int = 2,
    step: float = 20.0,
    real: float | None = None,
    seen: tuple[CodeSamples, ...] = (),
    loader: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    pairs: int = 10,
    **given: Any,
) -> Run:
    """An alternating run; `real` is the step beside loading, where that is slower."""
    times = stage_times(workers=workers, prefetch=prefetch, step=step, **given)
    alone = stage_times(workers=workers, prefetch=prefetch, step=0.0, **given)
    run = alternating(
        real=step if real is None else real,
        ideal=step,
        alone=float(iterations_ns(alone)[-COUNTED:].mean()) / MS,
        pairs=pairs,
        environment=environment,
        **{"workers": workers, "prefetch_depth": workers * prefetch, **(loader or {})},
    )
    real_rows = np.flatnonzero(run.steps.arm == 0)
    wait_ns = altered(run.steps.wait_ns, real_rows, waits_ns(times)[: len(real_rows)])
    steps = run.steps.replace(wait_ns=wait_ns)
    looked_into: Run = replace(run, steps=steps, stages=(times,), code=seen)
    return looked_into
