"""CPUs, starts, GPUs and runs as a whole: what is said, and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from loadeval.data.columns import Columns
from loadeval.data.lines import CodeSamples, EpochEnd, Event, OperatorTimes, WorkerStart
from loadeval.data.run import Run
from loadeval.estimate.gap import gap
from loadeval.findings.engine import diagnose
from tests.builder import (
    MS,
    alternating,
    cores_read,
    logged,
    looked_into,
    run_of,
    stage_rows,
    steps,
)
from tests.estimate.test_metrics import padded
from tests.findings import told
from tests.runs.looked_into import looked_into as simulated
from tests.runs.tables import replace

TWO, FOUR, EIGHT = ({"cpus_usable": count, "cpus": count} for count in (2, 4, 8))
LIVE_ON = "persistent_workers False -> True"
PARTS_OF_IT = "give each worker its own part of the samples: all come 2 times"


def test_contention_of_a_rank() -> None:
    """It waits for others in its step, so that its own log does not tell."""
    rank = alternating(step=12, environment={"rank": 0, "world_size": 8})
    assert told("contention", rank) == (
        (
            "A step takes 2.00 ms [2.00 ms, 2.00 ms] longer while batches are loaded: it waits for "
            "ranks whose batches are late, or loading competes with it."
        ),
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
    assert told("Python lock", run)[0].startswith("Threads that load batches hold Python's lock")


def test_threads_of_workers_that_wait_for_a_cpu() -> None:
    crowded = simulated(fetch=100, run_queue=0.4, others=0.9, environment=TWO)
    says, do = told("oversubscription", crowded)
    assert says.startswith("Loading is ready to run but waits for a CPU 40.0% of its time")
    assert do == "try OMP_NUM_THREADS=1: let each worker compute in one thread"


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
    assert len([action for action in diagnosis.actions if "other" in action.says]) == 1


def growing(
    wait_ms: Sequence[float] = (0,) * 2000,
    workers: int = 2,
    subject: str = "process",
    **of_subject: Any,
) -> Run:
    """A run of batches of 2 MB, whose process or workers are read ten times a second for 20 s."""
    process = {name: np.broadcast_to(values, 200) for name, values in of_subject.items()}
    machine = {"memory_limit_bytes": [np.nan, 64e9], "memory_available_bytes": [np.nan, 32e9]}
    readings = {
        ("host", subject): Columns({"time_ns": np.arange(200) * 100 * MS, **process}),
        ("host", "machine"): Columns({"time_ns": [0, 1], **machine}),
    }
    batches = [steps("real", wait_ms, 10.0, nbytes=2_000_000)]
    return run_of(batches, mode="log", workers=workers, readings=readings)


def test_batches_that_are_all_kept() -> None:
    """As by itertools.cycle: they are told within seconds, and are in shared memory."""
    flat, kept = np.full(200, 5e8), 2e7 * np.arange(200)
    assert told("process memory", growing(anonymous_bytes=flat, shared_memory_bytes=kept)) == (
        (
            "The training process keeps more and more: 3.98 GB in 20 s, in shared memory, in which "
            "tensors come from workers. That is as much as its batches hold: all of them are still "
            "alive. At this rate the 32.0 GB that are left are full in 2 min 40 s, after 16,000 "
            "batches."
        ),
        "let go of each batch after its step",
    )
    waits = growing([30] * 2000, anonymous_bytes=flat, shared_memory_bytes=kept)
    assert diagnose(waits).actions[0].findings == ("process memory",)


def test_workers_that_keep_more_and_more_or_copy_pages() -> None:
    """What is theirs alone is no copy of what they shared with the training process."""
    own = {"anonymous_bytes": 2e7 * np.arange(200)}
    says = (
        "The workers keep more and more: 3.98 GB in 20 s. At this rate the 32.0 GB that are left "
        "are full in 2 min 40 s, after 16,000 batches."
    )
    find, copy = "find what the dataset keeps", "keep dataset lists in arrays, and bound caches"
    assert told("worker memory", growing(subject="workers", **own)) == (says, find)
    copied = growing(subject="workers", pss_bytes=own["anonymous_bytes"])
    assert told("worker memory", copied) == (says, copy)


def test_batches_may_be_what_a_dataset_without_workers_keeps() -> None:
    run = growing(workers=0, anonymous_bytes=2e7 * np.arange(200))
    assert told("process memory", run) == (
        (
            "The training process keeps more and more: 3.98 GB in 20 s. At this rate the 32.0 GB "
            "that are left are full in 2 min 40 s, after 16,000 batches."
        ),
        "find what training keeps",
    )


def test_files_that_are_never_closed() -> None:
    """They are told where they are a tenth of the limit."""
    files = 11 + 3 * np.arange(200)
    for workers, do in (
        (2, "keep no tensors that workers sent, or clone() them"),
        (0, "close the files that samples are read from"),
    ):
        made = growing(workers=workers, open_files=files, open_files_limit=1024)
        assert told("open files", made) == (
            (
                "The training process has 608 open files of the 1,024 that it may have, 597 more "
                "than 20 s before: at this rate there are no more in 14 s."
            ),
            do,
        )
    assert told("open files", growing(open_files=files, open_files_limit=2**20)) == ()
    faster = 11 + np.concatenate([np.arange(100), 100 + 5 * np.arange(100)])
    says, _ = told("open files", growing(open_files=faster, open_files_limit=1024))
    assert "606 open files of the 1,024 that it may have, 595 more than" in says


# Starts


def test_epochs_that_begin_slowly_though_workers_live_on() -> None:
    first = [steps("real", [100] + [0] * 19, 10, epoch=epoch) for epoch in range(4)]
    assert told(
        "epoch boundaries", run_of(first, mode="log", persistent_workers=True, length=20)
    ) == (
        "Each epoch starts with a wait of 100 ms, 33.3% of its time.",
        "make the first batch of an epoch cheaper, or epochs longer",
    )


OPEN, DRAINS = "data.py:42 Entries.open", "data.py:50 Shards.__iter__"


def epochs_of_slow_first_batches(**known: Any) -> Run:
    """Of four epochs, in each of which worker 0 takes 300 ms for its first batch, others 5 ms."""
    first = CodeSamples(0, {OPEN: 90, "data.py:31 read": 9}, {}, {}, "start")
    code = (first, CodeSamples(0, {"data.py:31 read": 9}, {}, {}, "fetch"))
    epochs, begin_ms = list[Columns](), 0.0
    for epoch in range(4):
        fetch_ms = np.where(np.arange(20) == 0, 300, 5)
        rows = stage_rows(fetch_ms, step_ms=10, epoch=epoch, begin_ms=begin_ms)
        begin_ms = rows.delivered_ns[-1] / MS + 10
        epochs.append(rows)
    return looked_into(*epochs, code=code, length=20, **known)


@pytest.mark.parametrize(
    ("loader", "do"),
    [
        ({"sampler": "RandomSampler", "persistent_workers": False}, LIVE_ON),
        ({"sampler": None, "persistent_workers": False}, "make Entries.open twice as fast"),
    ],
)
def test_first_batches_of_workers(loader: dict[str, Any], do: str) -> None:
    """Workers that stay keep what they have opened; a stream begins anew in each epoch."""
    said = told("workers' first batch", epochs_of_slow_first_batches(**loader))
    assert said[:2] == (
        (
            "In each epoch a worker takes 295 ms longer for its first batch than for others: the "
            f"dataset is then mostly in {OPEN}."
        ),
        do,
    )


def test_how_workers_start_is_said_where_it_is_known() -> None:
    """The adapter of another loader may not tell it."""
    run = epochs_of_slow_first_batches()
    asked_ns = run.stages.where(batch=0).requested_ns.tolist()
    starts = [WorkerStart(at, 0, ns, 0, ns + 200 * MS, 0) for at, ns in enumerate(asked_ns)]
    says = "Each epoch starts 200 ms late: starting its workers takes that long."
    assert told("worker start", replace(run, worker_starts=tuple(starts)))[0] == says


def test_no_shuffle_buffer_is_made_smaller_where_a_sampler_shuffles() -> None:
    """The first samples may be larger, in the line that all are in."""
    slow = epochs_of_slow_first_batches(sampler="RandomSampler", persistent_workers=True)
    slow = replace(slow, code=(CodeSamples(0, {OPEN: 90}, {}, {}, "fetch"),))
    assert told("workers' first batch", slow)[1:] == (
        "make the first batch of an epoch cheaper, or epochs longer",
    )


def test_ends_of_epochs() -> None:
    """Workers are where they were seen after the last batch; what else they do is not known."""
    code = CodeSamples(0, {}, {f"{DRAINS} > futex": 9}, {}, "end")
    threads = {f"{DRAINS} > concurrent.futures._base.Executor.__exit__": 9}
    ends = tuple(EpochEnd(epoch, "exhausted", None, 100 * MS) for epoch in range(4))
    epochs = [steps("real", [10] + [0] * 19, 10, epoch=epoch) for epoch in range(4)]
    run = run_of(epochs, mode="log", length=20, ends=ends)
    says = "Each epoch ends with a wait of 100 ms, 32.3% of its time, after its last batch"
    for seen, does, do in (
        ((), "end", "do less in the dataset after its last sample"),
        ((code,), f"are in {DRAINS}", "do less at the end of Shards.__iter__"),
        (
            (replace(code, calls=threads),),
            f"wait for threads of their own in {next(iter(threads))}",
            "end the threads of Shards.__iter__ with its last sample",
        ),
    ):
        assert told("epoch ends", replace(run, code=seen)) == (f"{says}: its workers {does}.", do)
    alone = {"workers": 0, "sampler": "RandomSampler", "persistent_workers": False}
    known = {"mode": "log", "length": 20, "ends": ends, **alone}
    do = "do less in the dataset after its last sample"
    assert told("epoch ends", run_of(epochs, **known)) == (f"{says}.", do)
    assert told("epoch ends", run_of(epochs, mode="log", length=20)) == ()


def test_ends_of_epochs_that_training_leaves() -> None:
    """Their threads go on with what nobody wants; a loader that is made for a batch is no epoch."""
    threads = {f"{DRAINS} > concurrent.futures._base.Executor.__exit__": 9}
    code = CodeSamples(0, {}, {f"{DRAINS} > futex": 9}, threads, "end")
    ends = tuple(EpochEnd(epoch, "broken off", None, 100 * MS) for epoch in range(6))
    known = {"mode": "log", "ends": ends, "code": (code,)}
    epochs = [steps("real", [10] + [0] * 19, 10, epoch=epoch) for epoch in range(6)]
    assert told("epoch ends", run_of(epochs, **known)) == (
        (
            "Each epoch ends with a wait of 100 ms, 32.3% of its time, after its last batch: its "
            f"workers wait for threads of their own in {next(iter(threads))}."
        ),
        "end the threads of Shards.__iter__ once training has left the epoch",
    )
    left = alternating(first=10, step=10, ideal=10, **{**known, "mode": "alternate"})
    assert gap(left).share("epoch starts") > 0.1
    anew = [steps("real", 10, 10, 1, epoch=epoch) for epoch in range(6)]
    assert told("epoch ends", run_of(anew, **known)) == ()


# The run as a whole


def test_stalls() -> None:
    stalls = logged([200 if n % 100 == 50 else 0.5 for n in range(400)])
    assert told("stalls", stalls)[1:] == ("find what slows a few batches", "prefetch_factor 2 -> 4")


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


@pytest.mark.parametrize(
    ("first", "second", "times"),
    [([5, 6, 7], [5, 6, 7, 8], 2), ([5, 6], [7, 8], 0), ([5, 5], [5, 5], 0), ([5], [5], 0)],
)
def test_samples_served_twice(first: list[int], second: list[int], times: int) -> None:
    """Its workers begin with the same batches. Where all batches are alike, who knows."""
    prints = np.full(100, -1)
    prints[0 : 2 * len(first) : 2], prints[1 : 2 * len(second) : 2] = first, second
    says = "The first batches of all workers are the same: every sample comes 2 times an epoch,"
    says += " which"
    expected = (f"{says} takes as many times as long.", PARTS_OF_IT) if times else ()
    run = simulated(fetch=5, fingerprint=prints)
    assert told("samples served twice", run) == expected
    if times:
        assert diagnose(run).findings[0].cost == 0.5
        assert diagnose(run).actions[0].says == PARTS_OF_IT


def with_steps_of_optimizers(step_ms: npt.ArrayLike, first: int | None, **known: Any) -> Run:
    """A log whose batches are waited for 10 ms each, and the first step was at that batch."""
    run = logged([10] * len(np.asarray(step_ms)), step_ms, **known)
    events = [Event(0, "watched", "optimizer")]
    if first is not None:
        came_ns = run.steps.request_ns + run.steps.wait_ns
        events.append(Event(int(came_ns[first]) + 1, "stepped", "optimizer"))
    return replace(run, events=tuple(events))


def test_batches_passed_over() -> None:
    """By a run that resumes; later steps are those of training, and of these alone the figures."""
    for sampler, skip in ((None, "raw records"), ("RandomSampler", "indices")):
        run = with_steps_of_optimizers([0.2] * 60 + [20] * 40, first=60, sampler=sampler)
        assert told("batches passed over", run) == (
            (
                "The first 60 of 100 batches were loaded and passed over, without a step of an "
                "optimizer: training waited 600 ms for them."
            ),
            f"skip {skip}: 60 batches are loaded for nothing",
        )
    assert diagnose(run).findings[0].cost == pytest.approx(600 / 1800, rel=0.001)
    step: Any = gap(run).real_step
    assert step.value == 20 * MS


@pytest.mark.parametrize(
    ("step_ms", "first"),
    [
        ([20] * 100, 7),
        (([0.002] * 7 + [80]) * 12, 7),
        ([0.002] * 2 + [20] * 98, 2),
        ([0.4] * 100, 0),
        ([2] * 100, None),
        ([0.6] * 100, None),
    ],
)
def test_batches_that_are_not_passed_over(step_ms: list[float], first: int | None) -> None:
    """Of steps that add up gradients, and of those for which several batches are taken at once.

    Of a look at two batches before training, and of quick steps, whose optimizer may not be seen.
    """
    assert told("batches passed over", with_steps_of_optimizers(step_ms, first)) == ()


def test_an_epoch_before_training_is_not_passed_over() -> None:
    """It may be for a mean. Nor is what comes before there is an optimizer."""
    run = with_steps_of_optimizers([0.2] * 60 + [20] * 40, first=60)
    epochs = run.steps.replace(epoch=np.repeat([0, 1], [60, 40]))
    assert told("batches passed over", replace(run, steps=epochs)) == ()
    late = told("batches passed over", replace(run, events=run.events[1:]))
    assert late[0].startswith("steps of optimizers were not seen")


def test_all_batches_may_be_passed_over_so_far() -> None:
    run = with_steps_of_optimizers([0.2] * 100, None)
    says = "All 100 batches were loaded and passed over, without a step of an optimizer: training "
    assert told("batches passed over", run)[0] == f"{says}waited 1.00 s for them."
    assert told("batches passed over", replace(run, events=()))[0].startswith("steps of optimizers")


def seen_saving(step_ms: Sequence[float], calls: str = "") -> tuple[CodeSamples, ...]:
    """Looks at such steps in a log: what is over 5 ms is in `save`, the rest in `main`."""
    ends_ns = np.cumsum(np.asarray(step_ms) * MS)
    looks = []
    for number in range(90):
        at_ns = (number + 0.5) / 90 * ends_ns[-1]
        part = 1 - 5 / step_ms[int(np.searchsorted(ends_ns, at_ns))]
        place = "log.py:9 Log.save" if number * 0.618 % 1 < part else "train.py:31 main"
        calls_of = {f"{place} > {calls}": 1} if calls else {}
        looks.append(CodeSamples(None, {place: 1}, {}, calls_of, "step", int(at_ns)))
    return tuple(looks)


def test_growing_step() -> None:
    """By the line that grows, where the training was looked at, and without one."""
    growing = np.linspace(5, 15, 400).tolist()
    says = (
        "A step takes 6.27 ms at the start of the run and 13.8 ms at its end, and waits do not "
        "grow: it is not loading that becomes slower."
    )
    assert told("growing step", logged([0] * 400, growing)) == (says, "find what grows in the step")
    assert told("drift", logged([0] * 400, growing)) == ()
    looks = seen_saving(growing, "write")
    assert told("growing step", logged([0] * 400, growing, code=looks)) == (
        f"{says} In it Log.save > write grows from 2.44 ms to 8.75 ms.",
        "let Log.save > write go over what is new alone, or call it less often",
    )


def test_growing_step_along_an_epoch() -> None:
    growing = np.linspace(5, 15, 200).tolist()
    epochs = [steps("real", [0] * 200, growing, epoch=epoch) for epoch in range(3)]
    says, _ = told("growing step", run_of(epochs, mode="log"))
    assert says.startswith("A step takes 6.28 ms at the start of an epoch and 13.8 ms at its end")


def test_steps_that_grow_for_another_reason() -> None:
    """With their batches, or beside waits that grow; or once, at some batch."""
    growing = np.linspace(5, 15, 400).tolist()
    larger = run_of([steps("real", [0] * 400, growing, nbytes=np.arange(400))], mode="log")
    jumping = [*np.linspace(10, 10.4, 200), *np.linspace(15, 15.4, 200)]
    once = logged([0] * 400, jumping, code=seen_saving(jumping))
    for run in (larger, logged(growing, growing), logged([0] * 400, jumping), once):
        assert told("growing step", run) == ()


def test_long_waits_that_are_explained_are_no_outliers() -> None:
    """Nor is it said that there were none."""
    wait_ms, step_ms = np.ones(200), np.full(200, 10.0)
    wait_ms[20::50], step_ms[[45, 145]] = 200, 60
    run = logged(wait_ms, step_ms)
    assert told("stalls", run)
    assert told("outliers", run) == (
        (
            "In 199 batches 2 long steps made an iteration take over twice the median. That costs "
            "3.2% of the training time."
        ),
        "find what slows a few steps",
    )


def test_drift() -> None:
    """One step is no trend."""
    slower = [10] * 100 + [13 + n % 3 for n in range(100)]
    assert told("drift", logged([0] * 200, slower)) == (
        (
            "An iteration took 10.0 ms in the first half of the run, and 14.0 ms in the second: "
            "figures of the whole run average the two."
        ),
        "look for what began meanwhile",
    )


def test_padding_to_one_length() -> None:
    assert told("padding", padded(length=512)) == (
        (
            "75.0% [74.2%, 75.7%] of the tokens are padding: every batch is padded to 512, and the "
            "longest sequence of a batch is 93 at the median."
        ),
        "pad to the longest of each batch",
        "put samples of like length into a batch",
    )


def test_slow_validation() -> None:
    training = logged([1] * 200)
    slow = logged([10] * 60, 1, workers=0, prefetch_depth=0, made_at="train.py:20")
    assert told("slow validation", training, validation=slow) == (
        "21.0% of this run is waiting for batches of validation.",
        "num_workers 0 -> 2 for validation",
    )
    assert told("slow validation", training, validation=logged([0.1] * 60, 1)) == ()
    seen = (CodeSamples(0, {"data.py:31 Photos.read": 9}, {}),)
    with_workers = looked_into(stage_rows(30, 100, step_ms=1), code=seen)
    assert told("slow validation", training, validation=with_workers) == (
        "37.9% of this run is waiting for batches of validation.",
        "make Photos.read twice as fast: 100.0% of loading, for validation",
    )
    uneven_ms = np.random.default_rng(0).uniform(20, 40, 100)  # some wait for those before them
    uneven = looked_into(stage_rows(uneven_ms, step_ms=1), code=seen, in_order=True)
    assert diagnose(uneven).findings[-1].rule == "head-of-line blocking"
    assert told("slow validation", training, validation=uneven)[1:] == (
        "make Photos.read twice as fast: 100.0% of loading, for validation",
    )
    anew = [steps("real", [100, 0, 0, 0], 1, epoch=epoch) for epoch in range(20)]
    short = run_of(anew, mode="log", persistent_workers=False, length=4)
    assert told("slow validation", training, validation=short)[1:] == (
        f"{LIVE_ON}, for validation",
    )
    assert told("slow validation", training) == (
        "no validation loader was measured: `loadeval run -- COMMAND` measures it too",
    )


@pytest.mark.parametrize(("wait_ms", "is_ahead"), [(1, True), (20, False)])
def test_what_is_no_part_of_the_time_lost_is_ahead_of_it_where_it_costs_more(
    wait_ms: float, is_ahead: bool
) -> None:
    slow = logged([10] * 60, 1, workers=0, prefetch_depth=0)
    diagnosis = diagnose(logged([wait_ms] * 200), validation=slow)
    assert (diagnosis.findings[0].rule == "slow validation") is is_ahead
    assert (diagnosis.actions[0].findings == ("slow validation",)) is is_ahead


# The order of rules

TOLD = """
import {first}
from loadeval.findings.engine import diagnose
from tests.builder import alternating
diagnosis = diagnose(alternating())
print(*diagnosis.nothing, *diagnosis.skipped, sep=", ")
"""


def test_rules_are_told_in_one_order_whatever_was_imported_first() -> None:
    """Attaching to a process imports some of the rooms of rules, and not the first one first."""
    told = [
        subprocess.run(
            [sys.executable, "-c", TOLD.format(first=first)], stdout=subprocess.PIPE, check=True
        )
        for first in ("loadeval.findings.engine", "loadeval.findings.run")
    ]
    assert told[0].stdout == told[1].stdout


def test_rules_that_need_a_longer_run_say_so_together() -> None:
    """Forty steady batches do for all that judge by them alone."""
    short, longer = diagnose(logged([0.1] * 11)), diagnose(logged([0.1] * 41))
    assert {"stalls", "outliers", "drift"} <= short.more_batches.keys()
    assert max(short.more_batches.values()) == 33
    assert longer.more_batches == {}
