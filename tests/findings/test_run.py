"""CPUs, starts, GPUs and runs as a whole: what is said, and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadeval.data.columns import Columns
from loadeval.data.lines import OperatorTimes
from loadeval.findings.engine import diagnose
from tests.builder import MS, alternating, logged, run_of, steps
from tests.estimate.test_metrics import padded
from tests.findings import told
from tests.runs.given import cores_read
from tests.runs.looked_into import looked_into as simulated
from tests.runs.tables import replace

TWO, FOUR, EIGHT = ({"cpus_usable": count, "cpus": count} for count in (2, 4, 8))
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


def test_contention_of_a_step_of_several_threads() -> None:
    """Fewer threads come first, where they and the workers are more than the CPUs."""
    lighter = "make loading lighter: cheaper transforms, fewer threads, fewer copies"
    for cpus, do in ((FOUR, ("try OMP_NUM_THREADS=2", lighter)), (EIGHT, (lighter,))):
        run = alternating(step=12, workers=2, environment=cpus)
        assert told("contention", cores_read(run, process=3.0, workers=0.2))[1:] == do


def test_a_pipeline_that_waits_for_a_stage_not_for_pythons_lock() -> None:
    """What the stages do not wait for the lock is left to the slow one."""
    run = alternating(wait=10, step=12)
    end_ns = int(run.steps.request_ns[-1])
    decode = OperatorTimes(
        0, "decode", 1, end_ns, end_ns, 100, end_ns, end_ns, end_ns, concurrency=1
    )
    time_ns = np.arange(0, end_ns, MS)
    is_ideal = run.steps.arm[np.searchsorted(run.steps.request_ns, time_ns, side="right") - 1] == 1
    lock = Columns({"time_ns": time_ns, "lock_wait_ns": np.where(is_ideal, 1e4, 1e6)})
    run = replace(run, operators=(decode,), readings={("threads", "python lock"): lock})
    found = {each.rule for each in diagnose(run).findings}
    assert {"Python lock", "slow operator"} <= found


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


def test_no_cpu_is_called_free_that_was_not_read() -> None:
    """The machine's CPUs tell; without them others may use what training and workers do not."""
    slower = alternating(step=12, environment=FOUR)
    for machine, because in (
        (np.nan, ""),
        (1.2, "a CPU is free: it is memory bandwidth, Python's lock or the GPU that both need"),
    ):
        run = cores_read(slower, process=1.0, workers=0.2, machine=machine)
        (found,) = (each for each in diagnose(run).findings if each.rule == "contention")
        assert [do.because for do in found.do] == [because]


def test_other_programs_are_told_to_go_once() -> None:
    """Not to free their CPUs, and to measure again without them."""
    crowded = simulated(fetch=100, run_queue=0.4, environment=TWO)
    diagnosis = diagnose(cores_read(crowded, process=0.2, workers=0.8, machine=2.0))
    assert {"oversubscription", "shared machine"} <= {each.rule for each in diagnosis.findings}
    about = [action.says for action in diagnosis.actions if "machine" in str(action.findings)]
    assert about == []


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
    used = {"pss_bytes": 8e9 + grown, "anonymous_bytes": 8e9 + grown}
    readings = read(machine=limit, **{subject: {"time_ns": times, **used}})
    assert told(
        f"{subject.removesuffix('s') if subject == 'workers' else subject} memory",
        logged([0] * 40, readings=readings),
    ) == (
        f"The memory of the {who} grows by 5.00 GB an hour, of 100 GB in all.",
        do,
    )


# Starts


def test_epoch_boundaries() -> None:
    first = [steps("real", [100] + [0] * 19, 10, epoch=epoch) for epoch in range(4)]
    says = "Each epoch starts with a wait of 100 ms, 33.3% of its time."
    for live_on, do in (
        (False, LIVE_ON),
        (True, "make the first batch of an epoch cheaper, or epochs longer"),
    ):
        run = run_of(first, mode="log", persistent_workers=live_on, length=20)
        assert told("epoch boundaries", run) == (says, do)
    others = diagnose(run_of(first, mode="log", length=20)).findings
    assert [each.sure for each in others if each.rule == "epoch boundaries"] == [False]


# The run as a whole


def test_stalls() -> None:
    assert told("stalls", logged([200 if n % 100 == 50 else 0.5 for n in range(400)])) == (
        "4 of 399 batches cause 80.2% of the waiting, 16.0% of the training time.",
        "find what slows a few batches",
        "prefetch_factor 2 -> 4",
    )


def test_stalls_in_few_pairs() -> None:
    """They are named by their number, without a cost, where pairs do not show that time is lost."""
    run = alternating(wait=0.3, step=9, ideal=9, pairs=6, real=10, batches=10)
    stalled = np.flatnonzero((run.steps.arm == 0) & (run.steps.pair >= 0))[[5, 8, 33]]
    waits_ns = run.steps.wait_ns.copy()
    waits_ns[stalled] = 77 * MS
    run = replace(run, steps=run.steps.replace(wait_ns=waits_ns))
    says = "3 of 60 batches cause 93.1% of the waiting, 29.3% of the training time."
    assert told("stalls", run) == (says, "find what slows a few batches")
    (found,) = diagnose(run).findings
    assert (found.cost, found.sure) == (None, False)


def test_samples_served_twice() -> None:
    """An epoch is as many times too long as there are workers."""
    twice = logged([0.1] * 80, workers=2, length=40)
    assert told("samples served twice", twice) == (
        (
            "An epoch has 80 batches, 2 times the 40 that the loader says it has: each of its 2 "
            "workers serves all samples."
        ),
        "give each worker its own part of the samples",
    )
    assert told("samples served twice", logged([0.1] * 80, workers=2, length=80)) == ()


def test_samples_served_twice_by_a_stream_that_has_no_length() -> None:
    """Batches of both workers have the same sizes, one for one; where all are alike, who knows."""
    sizes, same = np.arange(40) % 7 * 100, "The batches of all workers have the same sizes"
    for nbytes, says in (
        (
            np.repeat(sizes, 2),
            (
                f"{same}, one for one: each of its 2 workers serves all samples.",
                "give each worker its own part of the samples",
            ),
        ),
        (np.append(sizes, sizes), ()),
        (
            np.full(80, 100),
            (
                (
                    "the loader does not say how long it is, and its batches do not differ enough "
                    "in size"
                ),
            ),
        ),
    ):
        epoch = steps("real", [0.1] * 80, 10.0, nbytes=nbytes)
        assert told("samples served twice", run_of([epoch], mode="log", workers=2)) == says
        unordered = run_of([epoch], mode="log", workers=2, in_order=False)
        assert told("samples served twice", unordered)[0].endswith("nor which worker made a batch")


def test_drift() -> None:
    """One step is no trend."""
    slower = [10] * 100 + [13 + n % 3 for n in range(100)]
    assert told("drift", logged([0] * 200, slower)) == (
        (
            "The second half of the run was 33.1% slower than the first: figures of the whole run "
            "average the two."
        ),
        "look for other work on the machine, heat and growing memory",
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
