"""Epochs one by one, what started in them, and the batches that took far longer than others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.lines import EpochEnd
from loadeval.data.run import STAGES, Run
from loadeval.estimate.steady import epochs, first_waits, outliers, workers_started
from tests.builder import MS, alternating, logged, run_of, steps


def test_a_table_by_epoch() -> None:
    """Of 3 and 2 batches; the second epoch was left while its last step was open."""
    run = run_of(
        [steps("real", [100, 5, 5], [10, 10, 20]), steps("real", [50, 5], [10, -1], epoch=1)],
        mode="log",
        ends=(EpochEnd(0, "exhausted", None, 10 * MS), EpochEnd(1, "broken off")),
    )
    table = epochs(run)
    assert {name: table[name].tolist() for name in ("epoch", "batches", "total_ns")} == {
        "epoch": [0, 1],
        "batches": [3, 2],
        "total_ns": [160 * MS, 65 * MS],
    }
    assert table.mean_ns.tolist() == [50 * MS, 60 * MS]
    assert table.std_ns[0] == pytest.approx(np.std([110, 15, 25], ddof=1) * MS)
    assert np.isnan(table.std_ns[1])
    assert table.samples_per_s.tolist() == pytest.approx([12 / 0.16, 8 / 0.065])
    assert table.batches_per_s.tolist() == pytest.approx([3 / 0.16, 2 / 0.065])


def test_epoch_starts_are_those_of_the_loader() -> None:
    """A batch that was ready when the loader was wrapped shows none."""
    run = alternating(wait=5, first=105)
    assert first_waits(run).tolist() == [105 * MS] * 8
    ready = alternating(wait=5, first=105, ready_batches=3)
    assert first_waits(ready).tolist() == [105 * MS] * 7


@pytest.mark.parametrize(
    ("known", "count"),
    [
        ({"start_method": "fork"}, 16),
        ({"start_method": "fork", "persistent_workers": True}, 2),
        ({"start_method": None}, None),
    ],
    ids=["in each epoch", "persistent", "threads, maybe"],
)
def test_how_many_workers_were_started(known: dict[str, Any], count: int | None) -> None:
    assert workers_started(alternating(first=105, **known)) == count


def looked_into(run: Run) -> Columns:
    """Two workers load in turns."""
    count = len(run.steps)
    columns = {name: np.full(count, UNKNOWN) for name in STAGES}
    delivered_ns = run.steps.request_ns + run.steps.wait_ns
    return Columns({**columns, "delivered_ns": delivered_ns, "worker": np.arange(count) % 2})


def test_the_worker_of_each_outlier() -> None:
    waits = np.full(60, 5.0)
    waits[[20, 41]] = 40, 100
    run = logged(waits)
    found = outliers(run)
    assert (found.row.tolist(), found.worker.tolist()) == ([20, 41], [UNKNOWN, UNKNOWN])
    assert found.times_median.tolist() == pytest.approx([50 / 15, 110 / 15])
    assert (found.batch.tolist(), found.wait_ns.tolist()) == (
        [20, 41],
        run.steps.wait_ns[[20, 41]].tolist(),
    )
    seen = logged(waits, stages=looked_into(run))
    assert outliers(seen).worker.tolist() == [0, 1]
