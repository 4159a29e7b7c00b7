"""Why no batch comes: each cause, what is like it, and what is no hang."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadeval.attach.hang import Hang, hang_of, hang_of_job, headline, rows
from loadeval.attach.marks import Mark, Marks, Variable
from loadeval.attach.observe import with_hang
from loadeval.probes.looks import SHARED, LookedAt
from loadeval.probes.stacks import NOT_PERMITTED, Frame, ProcessStacks, ThreadStacks
from tests.attach.seen import (
    CONDITION,
    FORKED,
    LOGGING,
    MARKS,
    PACKAGES,
    PID,
    POLL,
    READ,
    STANDARD,
    TORCH,
    fetching,
    frame,
    half_waiting,
    idle,
    loading_itself,
    looks,
    loop,
    observed,
    waiting,
)
from tests.attach.seen import SECOND_NS as SECOND

WAITS = observed(PID, waiting(worker_id=0), parent=1)
PIPE = "pipe:[77]"
POOL = frame("worker", f"{STANDARD}/multiprocessing/pool.py")
ALL_REDUCE = frame("all_reduce", f"{PACKAGES}/torch/distributed/distributed_c10d.py")
STEP = frame("backward", "/home/me/train.py", 40)


def judged(training: LookedAt, *others: LookedAt, **options: Any) -> Hang:
    return hang_of(looks(training, *others, **options), MARKS, 33 * SECOND)


def of_worker(frames: tuple[Frame, ...], *arguments: Any, **options: Any) -> Hang:
    """What is said where worker 0 owes the batch, and worker 1 is done."""
    return judged(WAITS, observed(7, frames, *arguments, **options), observed(8, idle(1)))


def moved(frames: tuple[Frame, ...], *arguments: Any, **options: Any) -> Hang:
    """What is said where worker 0 read a sample at the first look, and then has these frames."""
    first, _ = looks(WAITS, observed(7, fetching(READ), "read"))
    _, last = looks(WAITS, observed(7, frames, *(arguments or ("read",)), **options))
    return hang_of([first, last], MARKS, 33 * SECOND)


@pytest.mark.parametrize(
    ("frames", "call"),
    [
        (fetching(READ), "clock_nanosleep"),
        (fetching(READ), "recvfrom"),
        (fetching(READ, sample="<function>"), "futex"),
    ],
)
def test_a_worker_that_stays_on_a_sample_is_stuck(frames: tuple[Frame, ...], call: str) -> None:
    """Whatever it waits in; a sample that is not known is taken for the same at the same line."""
    hang = of_worker(frames, call)
    assert (hang.stays, hang.is_stuck, hang.idle) == (True, True, (1,))


def test_a_worker_that_computes_on_one_sample_is_stuck() -> None:
    """No batch came, though it is at work, at another line each time."""
    first, last = looks(WAITS, observed(7, fetching(READ), "futex", state="R", cpu_ns=0))
    later = fetching(frame("decode", "/home/me/data.py", 44))
    last = replace(last, others=(observed(7, later, "futex", state="R", cpu_ns=SECOND),))
    hang = hang_of([first, last], MARKS, SECOND)
    assert (hang.cause, hang.is_hang, hang.is_stuck) == ("slow", False, True)


@pytest.mark.parametrize("before", [fetching(READ, sample=8), fetching(READ, batch=3), idle(0)])
def test_a_worker_that_went_on_to_a_sample_is_not_stuck(before: tuple[Frame, ...]) -> None:
    first, last = looks(WAITS, observed(7, fetching(READ), "clock_nanosleep"))
    was = replace(first, others=(observed(7, before, "clock_nanosleep"),))
    hang = hang_of([was, last], MARKS, SECOND)
    assert (hang.stays, hang.is_stuck) == (False, False)


def test_who_owed_another_batch_before_got_that_one() -> None:
    """Training waited for worker 1 at the first look, so a batch came since."""
    workers = observed(7, fetching(READ), "clock_nanosleep"), observed(8, fetching(worker=1))
    first, last = looks(WAITS, *workers)
    owed_by_1 = observed(PID, waiting(worker_id=1), parent=1)
    assert not hang_of([replace(first, training=owed_by_1), last], MARKS, SECOND).is_stuck


def test_training_that_stays_on_a_sample_is_stuck_if_it_never_woke() -> None:
    """Without workers no batch has a number: the next one may have the same sample."""
    asleep = observed(PID, loading_itself(READ), "clock_nanosleep", parent=1, sleeps=5)
    assert judged(asleep).is_stuck
    first, last = looks(asleep)
    woken = observed(PID, loading_itself(READ), "clock_nanosleep", parent=1, sleeps=6)
    assert not hang_of([first, replace(last, training=woken)], MARKS, SECOND).is_stuck


def test_a_pipe_to_which_nobody_can_write() -> None:
    """Whoever wrote to it is gone."""
    assert of_worker(fetching(READ), "read", PIPE).cause == "killed"
    assert of_worker(fetching(READ), "read", PIPE, threads=("writer",)).cause == "io"
    writer = observed(9, FORKED, pipes=frozenset({(PIPE, True)}))
    assert judged(WAITS, observed(7, fetching(READ), "read", PIPE), writer).cause == "io"


def test_a_worker_that_was_stopped() -> None:
    """Whatever call it was in: that one is answered once it goes on."""
    assert of_worker(fetching(READ), "recvfrom", state="T").cause == "stopped"


def test_nobody_is_known_to_owe_a_batch() -> None:
    """The one that fetches does, else it is not known, as where its batch is on the way."""
    training = observed(PID, waiting(), parent=1)
    hang = judged(training, observed(8, idle(1)), observed(7, fetching(READ), "read"))
    assert (hang.cause, hang.worker) == ("io", 0)
    hang = judged(training, observed(8, idle(1)))
    assert (hang.cause, hang.pid) == ("unknown", PID)
    put = frame("Queue.put", f"{STANDARD}/multiprocessing/queues.py")
    hang = of_worker((put, loop(0, idx=4), *FORKED), "futex")
    assert (hang.cause, hang.batch) == ("unknown", 4)


def test_stacks_that_could_not_be_read() -> None:
    """Of a worker, which may be the one that owes the batch; of training."""
    hang = judged(WAITS, observed(8, idle(1)), observed(7, None, problem="failed"))
    assert (hang.cause, hang.pid, hang.is_hang) == ("unread", 7, False)
    training = observed(PID, None, parent=1, problem=NOT_PERMITTED)
    hang = judged(training, observed(8, None, "recvfrom"))
    assert (hang.cause, hang.pid, hang.is_hang) == ("unread", PID, False)
    assert "cannot be looked into: reading the stacks of another process" in headline(hang)


def test_who_moves_or_is_new_does_not_hang() -> None:
    """Another sample, another line; a process that was not there."""
    assert moved(fetching(READ)).cause == "io"
    assert moved(fetching(READ, sample=10)).cause == "slow"
    assert moved(fetching(replace(READ, line=32))).cause == "slow"
    first, last = looks(WAITS, observed(7, fetching(READ), "read"))
    assert hang_of([replace(first, others=()), last], MARKS, SECOND).cause == "slow"


def test_who_was_on_a_cpu_does_not_hang() -> None:
    """It, or a process that it has started; a thread of ours does not count."""
    assert moved(fetching(READ), cpu_ns=SECOND // 10).cause == "slow"
    assert moved(fetching(READ), cpu_ns=SECOND // 100).cause == "io"
    assert moved(fetching(READ), None, state="R").cause == "slow"
    stuck = observed(7, fetching(READ), "wait4", threads=("loadeval-code",))
    first, last = looks(WAITS, stuck, observed(9, None, None, state="R", parent=7))
    decoder = observed(9, None, None, state="R", parent=7, cpu_ns=SECOND // 2)
    assert hang_of([first, replace(last, others=(stuck, decoder))], MARKS, SECOND).cause == "slow"
    main, ours = stuck.threads
    sampled = replace(stuck, threads=(main, replace(ours, cpu_ns=SECOND // 2)))
    assert hang_of([first, replace(last, others=(sampled,))], MARKS, SECOND).cause == "io"


def test_who_gets_something_does_not_hang() -> None:
    """It is woken again and again by the bytes of a large file, at the same line."""
    assert moved(fetching(READ), "recvfrom", sleeps=2).cause == "io"
    assert moved(fetching(READ), "recvfrom", sleeps=3).cause == "slow"


def test_a_worker_that_ended_between_the_looks_is_not_said_to_be_gone() -> None:
    """At the end of an epoch training was looked at before its workers ended."""
    first, last = looks(WAITS, observed(7, fetching(READ), "clock_nanosleep"))
    hang = hang_of([first, replace(last, others=())], MARKS, SECOND)
    assert (hang.cause, hang.is_hang) == ("slow", False)


def test_a_lock_that_processes_share_may_be_released() -> None:
    """By another one than that which waits; only a lock of its own is lost by a fork."""
    assert of_worker(fetching(READ), "futex").cause == "forked lock"
    assert of_worker(fetching(READ), "futex", SHARED).cause == "lock"
    helpers = ("QueueFeederThread", "Thread-1 (_serve)", "loadeval-code")
    assert of_worker(fetching(LOGGING), "futex", threads=helpers).cause == "forked lock"


@pytest.mark.parametrize(
    ("file", "function"),
    [("multiprocessing/pool.py", "worker"), ("concurrent/futures/process.py", "_process_worker")],
)
def test_the_process_of_a_pool_that_has_a_task(file: str, function: str) -> None:
    member = frame(function, f"{STANDARD}/{file}")
    training = observed(PID, loading_itself(CONDITION), "futex", parent=1)
    idles = observed(8, (*POLL, member, *FORKED))
    hang = judged(training, idles, observed(9, (READ, member, *FORKED), "connect"))
    assert (hang.cause, hang.pid) == ("io", 9)


def test_a_task_of_a_pool_was_lost() -> None:
    """None of its processes has one, and training waits for one: it went with a process."""
    asks = frame("IMapIterator.next", f"{STANDARD}/multiprocessing/pool.py")
    training = observed(PID, loading_itself(CONDITION, asks), "futex", parent=1)
    hang = judged(training, observed(9, (*POLL, POOL, *FORKED)))
    assert (hang.cause, hang.pid, hang.signal) == ("killed", PID, None)
    training = observed(PID, loading_itself(CONDITION), "futex", parent=1)
    assert judged(training).cause == "lock"


def collective(**options: Any) -> Hang:
    return judged(observed(PID, (ALL_REDUCE, STEP), "futex", parent=1), **options)


def test_a_collective_that_not_all_ranks_reached() -> None:
    hang = collective()
    assert (hang.cause, hang.collective, hang.is_hang) == ("collective", "all_reduce", True)
    first, last = looks(observed(PID, (ALL_REDUCE, STEP), "futex", parent=1))
    before = observed(PID, (replace(STEP, line=41),), "futex", parent=1)
    hang = hang_of([replace(first, training=before), last], MARKS, SECOND)
    assert (hang.cause, hang.collective) == ("step", "all_reduce")


def test_attach_says_what_holds_up_a_training_that_asks_for_no_batch() -> None:
    """A collective, and a backward pass in which nothing moves; not a step that goes on."""
    training_seen = half_waiting()
    backward = frame("_engine_run_backward", "/x/site-packages/torch/autograd/graph.py")
    in_backward = judged(observed(PID, (backward, STEP), "futex", parent=1))
    said = "No batch came in the 1 s: training "
    for hang, why in ((collective(), "waits for other ranks"), (in_backward, "has not asked")):
        assert with_hang(training_seen, hang).headline.startswith(said + why)
    goes_on = judged(observed(PID, (STEP,), "futex", parent=1))
    assert with_hang(training_seen, goes_on).headline == training_seen.headline


def test_an_import_is_no_collective() -> None:
    """As of torch.distributed, which torch imports once it is needed."""
    first, last = (
        looks(observed(PID, (frame(name, ALL_REDUCE.file), STEP), "futex", parent=1))[place]
        for place, name in enumerate(("register", "is_written"))
    )
    assert hang_of([first, last], MARKS, SECOND).cause == "step"


def test_of_several_ranks_the_one_that_others_wait_for() -> None:
    """It is stuck, or in a step; where all wait in a collective, none is."""
    waits = replace(collective(), rank=1)
    stuck = replace(of_worker(fetching(READ), "read"), rank=0)
    step = replace(judged(observed(PID, (STEP,), "futex", parent=1)), rank=2)
    assert hang_of_job([waits, stuck, step], 3, {}) is stuck
    assert hang_of_job([waits, step], 2, {}) is step
    assert hang_of_job([waits, waits], 2, {}) is waits


def test_a_rank_that_has_no_more_batches() -> None:
    """One that had as many is none that is waited for."""
    waits = replace(collective(), rank=0, batches=11)
    hang = hang_of_job([waits], 2, {1: 10})
    assert (hang.cause, hang.is_hang) == ("uneven", True)
    assert hang_of_job([waits, waits], 2, {1: 11}) is waits


def test_a_backward_pass_waits_for_a_rank_that_has_no_more_batches() -> None:
    """Which waits in a barrier, does something else, or is gone; in it no collective shows."""
    backward = frame("_engine_run_backward", "/x/site-packages/torch/autograd/graph.py", 979)
    step = replace(judged(observed(PID, (backward, STEP), "futex", parent=1)), batches=11)
    at_barrier = replace(collective(), batches=10)
    hang = hang_of_job([at_barrier, step], 2, {1: 10})
    assert (hang.cause, hang.is_hang) == ("uneven", True)
    assert "waits in the backward pass for a rank that has no more" in headline(hang)
    assert hang_of_job([at_barrier, step], 2, {}) is step
    assert hang_of_job([step], 2, {1: 10}) == hang


@pytest.mark.parametrize("variable", ["<coroutine at 0x7f8f>", "<_UnixSelectorEventLoop at 0x7f>"])
def test_an_event_loop_whose_thread_was_lost_by_a_fork(variable: str) -> None:
    sync = frame("Client.sync", "/home/me/client.py", 9, work=variable)
    hang = of_worker(fetching(CONDITION, sync, READ), "futex")
    assert (hang.cause, hang.line) == ("forked loop", "client.py:9 Client.sync")
    other = frame("Client.sync", "/home/me/client.py", 9, work="<Task at 0x7f8f>")
    assert of_worker(fetching(CONDITION, other, READ), "futex").cause == "forked thread"


def test_ranks_that_were_not_looked_at_may_come() -> None:
    hang = hang_of_job([collective()], 2, {})
    assert (hang.cause, hang.collective, hang.is_hang) == ("step", "all_reduce", False)


def test_the_workers_of_another_framework() -> None:
    """What its adapter declares is enough."""
    file = "toy/loader.py"
    marks = Marks(
        (
            Mark(file, "next_batch", "waits", "", "ToyLoader"),
            Mark(file, "work", "loads", "", "ToyLoader"),
            Mark(file, "work", "asks", "tasks.take(", "ToyLoader"),
            Mark(file, "read", "fetches", "", "ToyLoader"),
        ),
        (
            Variable(file, "work", "worker", "rank"),
            Variable(file, "work", "batch", "step"),
            Variable(file, "next_batch", "owed by", "turn"),
        ),
        (),
    )
    path = f"{PACKAGES}/{file}"
    training = observed(PID, (*POLL, frame("next_batch", path, turn=2)), parent=1)
    reads = (READ, frame("read", path), frame("work", path, rank=2, step=5), *FORKED)
    takes = (*POLL, frame("Tasks.take", path), frame("work", path, rank=1), *FORKED)
    seen = looks(training, observed(7, reads, "read"), observed(8, takes))
    hang = hang_of(seen, marks, SECOND)
    assert (hang.cause, hang.worker, hang.batch, hang.idle) == ("io", 2, 5, (1,))


def test_a_training_that_we_serve_is_in_its_loader() -> None:
    """Though no adapter knows the loader; the thread that pins batches is not the training's."""
    serves = frame("__next__", "/home/me/loadeval/core/loop.py")
    pins = frame("_pin_memory_loop", f"{TORCH}/_utils/pin_memory.py")
    assert judged(observed(PID, (READ, serves), "read", parent=1)).cause == "io"
    assert judged(observed(PID, (CONDITION, pins), "read", parent=1)).cause == "step"


def test_a_training_that_asks_in_another_thread_than_the_main_one() -> None:
    main = ThreadStacks(PID, "MainThread", ((CONDITION,),))
    beside = ThreadStacks(PID + 1000, "trains", (waiting(worker_id=0),))
    training = observed(PID, (), "futex", parent=1, threads=("trains",))
    both = replace(training, stacks=ProcessStacks(PID, (main, beside)))
    assert judged(both, observed(7, fetching(READ), "read")).worker == 0


def test_a_place_is_a_packages_where_none_is_the_programs_own() -> None:
    package = frame("load", f"{PACKAGES}/PIL/Image.py", 9)
    assert of_worker(fetching(package), "read").line == "Image.py:9 load"


def test_workers_that_are_done() -> None:
    done = [observed(10 + number, idle(number)) for number in range(1, 4)]
    hang = judged(WAITS, observed(7, fetching(READ), "read"), *done)
    assert dict(rows(hang))["behind it"] == "workers 1, 2, 3 done, waiting"
