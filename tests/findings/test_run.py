"""CPUs, starts, GPUs and runs as a whole: what is said, and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadeval.data.columns import Columns
from loadeval.data.lines import EpochEnd, WorkerStart
from loadeval.data.run import Run
from tests.builder import MS, alternating, logged, looked_into, run_of, stage_rows, steps
from tests.estimate.test_metrics import padded
from tests.findings import told
from tests.runs.looked_into import looked_into as simulated

TWO = {"cpus_usable": 2, "cpus": 2}
LIVE_ON = "persistent_workers False -> True"


def test_contention() -> None:
    """A rank waits for others in its step, so that its own log does not tell."""
    slower = "A step takes 2.00 ms [2.00 ms, 2.00 ms] longer while batches are loaded: {}."
    assert told("contention", alternating(step=12)) == (
        slower.format("loading competes for CPUs, memory bandwidth or the GPU"),
        "make loading lighter: cheaper transforms, fewer threads, fewer copies",
    )
    rank = alternating(step=12, environment={"rank": 0, "world_size": 8})
    assert told("contention", rank) == (
        slower.format("it waits for ranks whose batches are late, or loading competes with it"),
        "compare the logs of all ranks: a step waits for the slowest one",
    )


def test_oversubscription() -> None:
    """By how long workers wait for a CPU, or else by their number."""
    many = logged([0] * 40, workers=8, environment=TWO)
    assert told("oversubscription", many) == (
        "The loader has 8 workers for 2 CPUs: they compete for these, and each uses memory.",
        "num_workers 8 -> 2",
    )
    crowded = simulated(fetch=100, run_queue=0.4, others=0.9, environment=TWO)
    assert told("oversubscription", crowded) == (
        (
            "Loading is ready to run but waits for a CPU 40.0% of its time: more threads compute "
            "than there are CPUs."
        ),
        "try OMP_NUM_THREADS=1: let each worker compute in one thread",
    )


def read(**subjects: dict[str, Any]) -> dict[tuple[str, str], Columns]:
    """Readings of the host, one each ten milliseconds, or as `time_ns` says."""
    times = {"time_ns": np.arange(4000) * 10 * MS}
    return {
        ("host", subject): Columns(
            {
                name: np.broadcast_to(values, np.size({**times, **known}["time_ns"]))
                for name, values in {**times, **known}.items()
            }
        )
        for subject, known in subjects.items()
    }


def test_shared_machine() -> None:
    readings = read(process={"cpu_cores": 1.0}, machine={"cpu_cores": 3.0})
    assert told("shared machine", logged([0] * 400, readings=readings)) == (
        (
            "Other programs used up to 2.00 CPUs during this run: results may change with what "
            "else runs."
        ),
        "measure again while nothing else runs",
    )


@pytest.mark.parametrize(
    ("subject", "who", "do"),
    [
        ("process", "training process", "find what training keeps"),
        ("workers", "workers", "keep dataset lists in arrays, and bound caches"),
    ],
)
def test_memory(subject: str, who: str, do: str) -> None:
    times, grown = (np.arange(120) * 5e9).astype(np.int64), 5e9 * np.arange(120) / 720
    limit = {"time_ns": [0, 1], "memory_limit_bytes": [np.nan, 100e9]}
    readings = read(machine=limit, **{subject: {"time_ns": times, "pss_bytes": 8e9 + grown}})
    assert told(
        f"{subject.removesuffix('s') if subject == 'workers' else subject} memory",
        logged([0] * 40, readings=readings),
    ) == (
        f"The memory of the {who} grows by 5.00 GB an hour, of 100 GB in all.",
        do,
    )


# Starts


def epochs(
    begun_ms: float = 0, init_ms: float = 0, index_ms: float = 0, first_ms: float = 1
) -> Run:
    """Four epochs of 20 batches, whose first one comes after all of this."""
    tables, starts = [], list[WorkerStart]()
    for epoch in range(4):
        rows = stage_rows(
            [first_ms] + [1] * 19,
            step_ms=10,
            index_ms=[index_ms] + [0] * 19,
            workers=0 if index_ms else 2,
            epoch=epoch,
            begin_ms=1000 * epoch,
            slowest_index=np.arange(20),
            slowest_ns=np.array([first_ms] + [1] * 19) * MS,
        )
        began_ns, late_ns = int(rows.requested_ns[0]), int((begun_ms + init_ms) * MS)
        late = np.where(np.arange(20) == 0, late_ns, 0)
        tables.append(rows.replace(delivered_ns=rows.delivered_ns + late))
        if begun_ms:
            ready_ns = began_ns + int(begun_ms * MS)
            starts += [
                WorkerStart(epoch, n, began_ns, 0, ready_ns, int(init_ms * MS)) for n in (0, 1)
            ]
    known = {"worker_init": "load_words", "persistent_workers": False, "start_method": "fork"}
    return looked_into(*tables, worker_starts=tuple(starts), length=20, **known)


@pytest.mark.parametrize(
    ("rule", "run", "says", "do"),
    [
        (
            "worker start",
            epochs(20, 80),
            "Each epoch starts with 80.0 ms of load_words, the worker_init_fn, in every worker.",
            (LIVE_ON, "make load_words cheaper"),
        ),
        (
            "worker start",
            epochs(80),
            "Each epoch starts 80.0 ms late: starting its workers by fork takes that long.",
            (LIVE_ON,),
        ),
        (
            "sampler start",
            epochs(index_ms=100),
            (
                "Each epoch starts with 100 ms in which the sampler makes its first indices, in "
                "the training process."
            ),
            ("yield indices as they are made",),
        ),
        (
            "shuffle buffer",
            epochs(first_ms=100),
            (
                "In each epoch the first sample of a worker takes 100 ms: the dataset fills a "
                "shuffle buffer, or opens files."
            ),
            ("make the shuffle buffer smaller",),
        ),
    ],
)
def test_why_epochs_start_slowly(rule: str, run: Run, says: str, do: tuple[str, ...]) -> None:
    assert told(rule, run) == (says, *do)
    assert told("epoch boundaries", run) == ()


def test_epoch_boundaries() -> None:
    first = [steps("real", [100] + [0] * 19, 10, epoch=epoch) for epoch in range(4)]
    says = "Each epoch starts with a wait of 100 ms, 33.3% of its time."
    for live_on, do in (
        (False, LIVE_ON),
        (True, "make the first batch of an epoch cheaper, or epochs longer"),
    ):
        run = run_of(first, mode="log", persistent_workers=live_on, length=20)
        assert told("epoch boundaries", run) == (says, do)


def test_loader_recreated() -> None:
    ends = tuple(EpochEnd(epoch, "broken off") for epoch in range(20))
    blocks = [steps("real", 50, 10, 1, epoch=epoch) for epoch in range(20)]
    assert told("loader re-created", run_of(blocks, mode="log", ends=ends)) == (
        (
            "iter(loader) is called for every batch (20 times), and each call waits 50.0 ms for a "
            "first batch."
        ),
        "keep the iterator between steps",
    )


def test_slow_first_batch() -> None:
    assert told("slow first batch", logged([2000] + [0] * 99, length=100)) == (
        (
            "The first batch came after 2.00 s: 66.7% of this run, and 66.7% of a whole epoch of "
            "100 batches. That happens once, and matters in short runs."
        ),
        "keep file lists and indexes in a file",
    )


# GPUs


def test_gpu() -> None:
    """Waits that the GPU did not feel cost nothing."""
    waited = run_of([steps("real", 5, 10, 40, gpu_idle_ms=0.1)], mode="log", pinned=False)
    assert told("hidden waits", waited) == (
        (
            "Training waits 5.00 ms for a batch, but the GPU is idle for only 100 us of it: it has "
            "work from the step before."
        ),
        "leave the loader as it is",
    )
    assert told("waiting", waited) == ()
    assert told("unpinned memory", waited) == (
        "Batches are copied to the GPU from memory that is not pinned.",
        "pin_memory False -> True",
    )
    assert told("unpinned memory", logged([5] * 40)) == ("there is no CUDA device",)


# The run as a whole


def test_stalls() -> None:
    """Regular ones are of the worker, or of what the loader does so often."""
    assert told("stalls", logged([200 if n % 100 == 50 else 0.5 for n in range(400)])) == (
        "4 of 399 batches cause 80.2% of the waiting, 16.0% of the training time.",
        "find what slows a few batches",
        "prefetch_factor 2 -> 4",
    )
    _, do, _ = told("stalls", logged([200 if n % 101 == 50 else 0.5 for n in range(600)]))
    assert do == "find what the loader does every 101 batches"


def test_outliers() -> None:
    assert told("outliers", logged([0] * 100, [300 if n == 50 else 10 for n in range(100)])) == (
        (
            "1 of 99 batches took over twice the median: 1 step was slow. That costs 22.7% of the "
            "training time."
        ),
        "find what slows a few steps",
    )


def test_drift_of_all_the_run() -> None:
    rising = np.linspace(0, 20, 200)
    says = (
        "Training keeps getting slower: an iteration takes {} at the end of the run, and {} at its "
        "start."
    )
    assert told("drift", logged([0] * 200, 10 + rising / 2)) == (
        says.format("18.8 ms", "11.3 ms"),
        "find what grows in the step",
    )
    assert told("drift", logged(rising, 10)) == (
        says.format("27.6 ms", "12.6 ms"),
        "find what grows in the loader",
    )


def test_drift_of_one_half() -> None:
    """One step is no trend."""
    slow, fast = [13 + n % 3 for n in range(100)], [10] * 100
    says = (
        "The second half of the run was {} than the first: figures of the whole run average the "
        "two."
    )
    assert told("drift", logged([0] * 200, fast + slow)) == (
        says.format("33.1% slower"),
        "look for other work on the machine, heat and growing memory",
    )
    assert told("drift", logged([0] * 200, slow + fast)) == (
        says.format("33.0% faster"),
        "run an epoch before the one that you measure",
    )


def test_not_representative() -> None:
    replayed = logged([0] * 100, 5, mode="replay")
    assert told("not representative", logged([0] * 100, np.linspace(1, 9, 100)), replayed) == (
        (
            "How long a step takes depends on its batch, so those that were replayed may not stand "
            "for the epoch."
        ),
        "measure with `loadeval diagnose -- COMMAND`",
    )


def test_padding() -> None:
    alike = "put samples of like length into a batch"
    assert told("padding", padded(ms_per_token=0.5)) == (
        "74.9% [74.1%, 75.7%] of the tokens are padding.",
        alike,
    )
    assert told("padding", padded(length=512)) == (
        (
            "75.0% [74.2%, 75.7%] of the tokens are padding: every batch is padded to 512, and the "
            "longest sequence of a batch is 93 at the median."
        ),
        "pad to the longest of each batch",
        alike,
    )


def test_slow_validation() -> None:
    training = logged([1] * 200)
    slow = logged([10] * 60, 1, workers=0, prefetch_depth=0, made_at="train.py:20")
    assert told("slow validation", training, validation=slow) == (
        "Of this run 21.0% is waiting for batches of validation.",
        "num_workers 0 -> 2 for validation",
    )
    assert told("slow validation", training, validation=logged([0.1] * 60, 1)) == ()
    assert told("slow validation", training) == (
        "no validation loader was measured: `loadeval run -- COMMAND` measures it too",
    )
