"""What a run's loader takes of memory."""

from __future__ import annotations

import numpy as np
import pytest

from loadeval.analysis.doctor import DEFAULT_BATCH_BYTES
from loadeval.analysis.run_memory import plan_of_run
from loadeval.data.lines import WorkerStart
from tests.runs.given import MS, level
from tests.runs.looked_into import COUNT, looked_into
from tests.runs.tables import replace, with_steps

MB = 1_000_000
NUMBER = np.arange(COUNT)
READ = (
    level("host", "process", "anonymous_bytes", 300 * MB),
    replace(
        level("host", "workers", "pss_bytes", 80 * MB),
        values={
            name: np.full(2000, float(value))
            for name, value in {"pss_bytes": 80 * MB, "alive_workers": 2}.items()
        },
    ),
)


def test_a_run_that_was_read() -> None:
    """Its settings, the size of its batches, and what training and each worker take."""
    run = replace(looked_into(fetch=60), readings=READ)
    plan = plan_of_run(run)
    assert (plan.workers, plan.prefetch) == (2, 2)
    assert plan.memory is not None
    assert (plan.memory.process_bytes, plan.memory.worker_bytes) == (300 * MB, 40 * MB)
    assert (plan.memory.kept_bytes, plan.memory.start_anew) == (0, False)
    assert plan.memory.iteration_ns == pytest.approx(30 * MS, rel=0.1)


def test_what_workers_keep() -> None:
    """2 MB of each batch, as read at a few of them; they are started anew in a second epoch."""
    is_read = np.isin(NUMBER, [0, 6, 12, 24, 48, 96, 1, 7, 13, 25, 49, 97])
    private = np.where(is_read, 2 * MB * NUMBER, -1)
    run = looked_into(fetch=60, private_bytes=private, shared_bytes=np.where(is_read, 0, -1))
    starts = tuple(WorkerStart(epoch, worker, 0, 1, 2, 0) for epoch in (0, 1) for worker in (0, 1))
    memory = plan_of_run(replace(run, worker_starts=starts)).memory
    assert memory is not None
    assert memory.kept_bytes == pytest.approx(4 * MB, rel=0.1)
    assert memory.start_anew


def test_batches_that_are_pickled() -> None:
    """They go through a pipe, where a tensor leaves a handle of shared memory."""
    for pickled, by_pipe in ((600_000, True), (800, False)):
        run = with_steps(looked_into(fetch=60, pickled_bytes=pickled), nbytes=MB)
        plan = plan_of_run(run)
        assert plan.memory is not None
        assert (plan.batch_bytes, plan.memory.by_pipe) == (MB, by_pipe)


def test_a_run_without_readings_stages_or_sizes() -> None:
    """What is not known stays so, and a batch is taken to be as large as without a run."""
    unread = level("host", "process", "anonymous_bytes", np.full(2000, np.nan))
    for readings in ((), (unread,), (level("host", "process", "cpu_cores", 1.0),)):
        plan = plan_of_run(replace(looked_into(fetch=60), readings=readings, stages=()))
        assert plan.batch_bytes == DEFAULT_BATCH_BYTES
        assert plan.memory is not None
        assert (plan.memory.process_bytes, plan.memory.worker_bytes) == (None, None)
        assert not plan.memory.by_pipe
