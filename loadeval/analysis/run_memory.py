"""What a run's loader needs of a machine, for `loadeval doctor` to judge another one by."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.doctor import LoaderPlan, RunMemory
from loadeval.analysis.inside.stages import stages_of
from loadeval.analysis.inside.worker_memory import bytes_kept
from loadeval.analysis.predict.recorded import worker_bytes
from loadeval.analysis.rules.case import Case

if TYPE_CHECKING:
    from loadeval.data.run import Run

HALF = 0.5
"""A batch of which so much is pickled is not in shared memory."""


def plan_of_run(run: Run) -> LoaderPlan:
    """The settings of the run's loader, the size of its batches, and the memory that it took.

    What the log does not say is as `loadeval doctor` assumes it.
    """
    case, loader = Case(run), run.header.loader
    batch_bytes = case.summary.bytes_per_batch
    plan = LoaderPlan(workers=loader.workers)
    if loader.workers and loader.prefetch_depth:
        plan = replace(plan, prefetch=max(loader.prefetch_depth // loader.workers, 1))
    stages = stages_of(run)
    pickled_bytes = 0.0 if stages is None else stages.pickled_bytes or 0.0
    memory = RunMemory(
        process_bytes=_process_bytes(run),
        worker_bytes=worker_bytes(run),
        kept_bytes=bytes_kept(case.real),
        epoch_batches=case.length.batches,
        iteration_ns=float(case.iteration_ns.mean()) if len(case.rows) else 0.0,
        start_anew=len({start.epoch for start in run.worker_starts}) > 1,
        by_pipe=batch_bytes is not None and pickled_bytes >= HALF * batch_bytes,
    )
    if batch_bytes is None:
        return replace(plan, memory=memory)
    return replace(plan, batch_bytes=round(batch_bytes), memory=memory)


def _process_bytes(run: Run) -> float | None:
    """The most memory that training took, without files; None where it was not read."""
    for (_, subject), read in run.readings.items():
        for name in ("anonymous_bytes", "rss_bytes"):
            if subject == "process" and name in read and not np.isnan(read[name]).all():
                return float(np.nanmax(read[name]))
    return None
