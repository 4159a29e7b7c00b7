"""Why no batch comes: each cause, what is like it, and what is no hang."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.hangs.hang import Cause, Exhausted, Hang, hang_of, hang_of_job
from loadeval.probes.looks import KernelMemory
from loadeval.probes.stacks import StackProblem
from tests.analysis.hangs.seen import (
    CONDITION,
    FORKED,
    LOGGING,
    PACKAGES,
    POLL,
    READ,
    SECOND,
    SPAWNED,
    STANDARD,
    TRAINING,
    fetching,
    frame,
    idle,
    in_call,
    loading_itself,
    looks,
    loop,
    native,
    observed,
    waiting,
)
from tests.attached import MARKS

if TYPE_CHECKING:
    from loadeval.probes.looks import LookedAt
    from loadeval.probes.stacks import Frame

WAITS = observed(TRAINING, waiting(worker_id=0), parent=1)
PIPE = "pipe:[77]"
POOL = frame("worker", f"{STANDARD}/multiprocessing/pool.py")
ALL_REDUCE = frame("all_reduce", f"{PACKAGES}/torch/distributed/distributed_c10d.py")
STEP = frame("backward", "/home/me/train.py", 40)


def judged(training: LookedAt, *others: LookedAt, **options: Any) -> Hang:
    return hang_of(looks(training, *others, **options), MARKS, 33 * SECOND)


def of_worker(frames: tuple[Frame, ...], *arguments: Any, **options: Any) -> Hang:
    """What is said where worker 0 owes the batch, and worker 1 is done."""
    return judged(WAITS, observed(7, frames, *arguments, **options), observed(8, idle(1)))


def test_a_read_that_is_not_answered() -> None:
    """With who owes the batch, which it is, where, and who waits behind."""
    hang = of_worker(fetching(READ), in_call("recvfrom", "socket:[9]", 5))
    assert hang.is_hang
    assert (hang.cause, hang.silent_ns, hang.training) == (Cause.IO, 33 * SECOND, TRAINING)
    assert (hang.pid, hang.worker, hang.batch, hang.sample) == (7, 0, 4, 9)
    assert hang.place.line == "data.py:31 Photographs.__getitem__"
    assert (hang.idle, hang.alike, hang.seen_ns) == ((1,), (), SECOND)


@pytest.mark.parametrize(
    ("inner", "call", "cause"),
    [
        (LOGGING, "futex", Cause.FORKED_LOCK),
        (CONDITION, "futex", Cause.FORKED_THREAD),
        (POLL[1], "futex", Cause.LOCK),
        (native("_multiprocessing_SemLock_acquire"), "futex", Cause.LOCK),
        (frame("Queue.put", f"{STANDARD}/multiprocessing/queues.py"), "futex", Cause.FULL),
        (READ, in_call("write", PIPE, 5), Cause.FULL),
        (READ, in_call("write", "/data/cache", 5), Cause.IO),
        (READ, in_call("sched_yield"), Cause.UNKNOWN),
        (READ, "clock_nanosleep", Cause.SLEEPING),
    ],
)
def test_what_the_worker_waits_in(inner: Frame, call: Any, cause: Cause) -> None:
    hang = of_worker(fetching(inner), call)
    assert (hang.cause, hang.is_hang) == (cause, cause is not Cause.SLEEPING)


@pytest.mark.parametrize(
    ("frames", "call"),
    [
        (fetching(READ), "clock_nanosleep"),
        (fetching(READ), "futex"),
        (fetching(READ), in_call("read", "/data/fifo", 5)),
        (fetching(READ), in_call("recvfrom", "socket:[9]", 5)),
        (fetching(READ, sample="<function>"), "clock_nanosleep"),
    ],
)
def test_a_worker_that_stays_on_a_sample_is_stuck(frames: tuple[Frame, ...], call: Any) -> None:
    """Whatever it waits in; a sample that is not known is taken for the same at the same line."""
    hang = of_worker(frames, call)
    assert (hang.stays, hang.is_stuck, hang.idle) == (True, True, (1,))


def test_a_worker_that_computes_on_one_sample_is_stuck() -> None:
    """No batch came, though it is at work, at another line each time."""
    first, last = looks(WAITS, observed(7, fetching(READ), "futex", "R", cpu_ns=0))
    later = fetching(frame("decode", "/home/me/data.py", 44))
    last = replace(last, others=(observed(7, later, "futex", "R", cpu_ns=SECOND),))
    hang = hang_of([first, last], MARKS, SECOND)
    assert (hang.cause, hang.is_hang, hang.is_stuck) == (Cause.SLOW, False, True)


@pytest.mark.parametrize(
    "before",
    [
        observed(7, fetching(READ, sample=8), "clock_nanosleep"),
        observed(7, fetching(READ, batch=3), "clock_nanosleep"),
        observed(7, idle(0)),
    ],
)
def test_a_worker_that_went_on_to_a_sample_is_not_stuck(before: LookedAt) -> None:
    first, last = looks(WAITS, observed(7, fetching(READ), "clock_nanosleep"))
    hang = hang_of([replace(first, others=(before,)), last], MARKS, SECOND)
    assert (hang.stays, hang.is_stuck) == (False, False)


def test_who_owed_another_batch_before_got_that_one() -> None:
    """Training waited for worker 1 at the first look, so a batch came since."""
    workers = observed(7, fetching(READ), "clock_nanosleep"), observed(8, fetching(worker=1))
    first, last = looks(WAITS, *workers)
    owed_by_1 = observed(TRAINING, waiting(worker_id=1), parent=1)
    assert not hang_of([replace(first, training=owed_by_1), last], MARKS, SECOND).is_stuck


def test_training_that_stays_on_a_sample_is_stuck_if_it_never_woke() -> None:
    """Without workers no batch has a number: the next one may have the same sample."""
    asleep = observed(
        TRAINING, loading_itself(READ), "clock_nanosleep", parent=1, sleeps=((TRAINING, 5),)
    )
    assert judged(asleep).is_stuck
    first, last = looks(asleep)
    woken = replace(last, training=replace(asleep, sleeps=((TRAINING, 6),)))
    assert not hang_of([first, woken], MARKS, SECOND).is_stuck


@pytest.mark.parametrize("inner", [LOGGING, CONDITION])
def test_a_lock_that_another_thread_may_hold(inner: Frame) -> None:
    """A thread of the worker's own, or where it was not forked."""
    assert of_worker(fetching(inner), "futex", threads=("reader",)).cause is Cause.LOCK
    assert of_worker(fetching(inner, below=SPAWNED), "futex").cause is Cause.LOCK


def test_workers_at_the_same_line() -> None:
    stuck = [observed(7 + n, fetching(LOGGING, READ, worker=n), "futex") for n in range(3)]
    hang = judged(WAITS, *stuck)
    assert (hang.worker, hang.alike, hang.idle) == (0, (1, 2), ())


def test_who_could_empty_the_pipe() -> None:
    """Its other end is open in a process that was stopped."""
    reader = observed(9, FORKED, None, "T", pipes=frozenset({(PIPE, False)}))
    writer = observed(8, idle(1), pipes=frozenset({(PIPE, True)}))
    stuck = observed(7, fetching(READ), in_call("write", PIPE, 5))
    hang = judged(WAITS, stuck, writer, reader)
    assert (hang.cause, hang.others) == (Cause.FULL, ((9, "T"),))
    gone = replace(reader, state=replace(reader.state, threads=()))
    assert judged(WAITS, stuck, gone).others == ((9, "?"),)


def test_a_pipe_to_which_nobody_can_write() -> None:
    """Whoever wrote to it is gone."""
    read = in_call("read", PIPE, 5)
    assert of_worker(fetching(READ), read).cause is Cause.KILLED
    assert of_worker(fetching(READ), read, threads=("writer",)).cause is Cause.IO
    writer = observed(9, FORKED, pipes=frozenset({(PIPE, True)}))
    assert judged(WAITS, observed(7, fetching(READ), read), writer).cause is Cause.IO


def test_a_worker_that_is_still_starting() -> None:
    """In its init function, or spawned and importing."""
    hang = of_worker((CONDITION, READ, loop(0), *FORKED), "futex")
    assert (hang.cause, hang.worker, hang.idle) == (Cause.STARTING, 0, (1,))
    importing = observed(7, (READ, *SPAWNED), "read")
    for training in (WAITS, observed(TRAINING, waiting(), parent=1)):
        hang = judged(training, importing)
        assert (hang.cause, hang.pid, hang.worker) == (Cause.STARTING, 7, None)


def test_a_worker_or_the_training_was_stopped() -> None:
    hang = of_worker(fetching(READ), None, "T")
    assert (hang.cause, hang.pid) == (Cause.STOPPED, 7)
    hang = judged(observed(TRAINING, waiting(worker_id=0), None, "T"))
    assert (hang.cause, hang.pid) == (Cause.STOPPED, TRAINING)


def test_a_worker_that_has_nothing_to_do() -> None:
    """Its batch is on the way, and why it does not come is not known."""
    assert of_worker(idle(0)).cause is Cause.UNKNOWN


def test_nobody_is_known_to_owe_a_batch() -> None:
    """The one that fetches does, else it is not known."""
    training = observed(TRAINING, waiting(), parent=1)
    hang = judged(training, observed(8, idle(1)), observed(7, fetching(READ), "read"))
    assert (hang.cause, hang.worker) == (Cause.IO, 0)
    hang = judged(training, observed(8, idle(1)))
    assert (hang.cause, hang.pid) == (Cause.UNKNOWN, TRAINING)


def test_the_worker_that_owes_the_batch_is_gone() -> None:
    hang = judged(WAITS, observed(8, idle(1)))
    assert (hang.cause, hang.worker, hang.pid, hang.is_hang) == (Cause.KILLED, 0, None, True)


def test_its_stacks_could_not_be_read() -> None:
    """One that was not looked into may be the one that owes the batch."""
    unread = observed(7, None, problem=StackProblem.FAILED)
    hang = judged(WAITS, observed(8, idle(1)), unread)
    assert (hang.cause, hang.problem) == (Cause.UNKNOWN, StackProblem.FAILED)
    assert not hang.is_hang


def moved(frames: tuple[Frame, ...], *arguments: Any, **options: Any) -> Hang:
    """What is said where worker 0 read a sample at the first look, and then has these frames."""
    first, _ = looks(WAITS, observed(7, fetching(READ), "read"))
    _, last = looks(WAITS, observed(7, frames, *(arguments or ("read",)), **options))
    return hang_of([first, last], MARKS, 33 * SECOND)


def test_who_moves_does_not_hang() -> None:
    """Another sample, another batch, another line."""
    assert moved(fetching(READ)).cause is Cause.IO
    assert moved(fetching(READ, sample=10)).cause is Cause.SLOW
    assert moved(fetching(READ, batch=5)).cause is Cause.SLOW
    assert moved(fetching(replace(READ, line=32))).cause is Cause.SLOW
    assert not moved(fetching(READ, sample=10)).is_hang


def test_who_was_on_a_cpu_does_not_hang() -> None:
    """It, or a process that it has started; a thread of ours does not count."""
    assert moved(fetching(READ), cpu_ns=SECOND // 10).cause is Cause.SLOW
    assert moved(fetching(READ), cpu_ns=SECOND // 100).cause is Cause.IO
    assert moved(fetching(READ), None, "R").cause is Cause.SLOW
    stuck = observed(7, fetching(READ), "wait4", threads=("loadeval-code",))
    first, last = looks(WAITS, stuck, observed(9, None, None, "R", parent=7))
    decoder = observed(9, None, None, "R", parent=7, cpu_ns=SECOND // 2)
    assert (
        hang_of([first, replace(last, others=(stuck, decoder))], MARKS, SECOND).cause is Cause.SLOW
    )
    ours = [
        replace(thread, cpu_ns=SECOND // 2) if thread.tid != 7 else thread
        for thread in stuck.state.threads
    ]
    sampled = replace(stuck, state=replace(stuck.state, threads=tuple(ours)))
    assert hang_of([first, replace(last, others=(sampled,))], MARKS, SECOND).cause is Cause.IO


def test_who_gets_something_does_not_hang() -> None:
    """It is woken again and again by the bytes of a large file, at the same line."""
    assert moved(fetching(READ), "recvfrom", sleeps=((7, 2),)).cause is Cause.IO
    assert moved(fetching(READ), "recvfrom", sleeps=((7, 3),)).cause is Cause.SLOW
    assert moved(fetching(READ), "recvfrom", sleeps=((8, 3),)).cause is Cause.IO


def test_a_process_that_is_new_does_not_hang() -> None:
    first, last = looks(WAITS, observed(7, fetching(READ), "read"))
    assert hang_of([replace(first, others=()), last], MARKS, SECOND).cause is Cause.SLOW


def test_a_worker_that_ended_between_the_looks_is_not_said_to_be_gone() -> None:
    """At the end of an epoch training was looked at before its workers ended."""
    first, last = looks(WAITS, observed(7, fetching(READ), "clock_nanosleep"))
    hang = hang_of([first, replace(last, others=())], MARKS, SECOND)
    assert (hang.cause, hang.is_hang) == (Cause.SLOW, False)


def test_a_pool_that_had_a_task_at_the_first_look_is_slow() -> None:
    asks = frame("IMapIterator.next", f"{STANDARD}/multiprocessing/pool.py")
    training = observed(TRAINING, loading_itself(CONDITION, asks), "futex", parent=1)
    first, last = looks(training, observed(9, (READ, POOL, *FORKED), "read"))
    idles = replace(last, others=(observed(9, (*POLL, POOL, *FORKED)),))
    assert hang_of([first, idles], MARKS, SECOND).cause is Cause.SLOW


def test_one_look_does_not_show_a_hang() -> None:
    _, last = looks(WAITS, observed(7, fetching(READ), "read"))
    hang = hang_of([last], MARKS, SECOND, rank=3, batches=12)
    assert (hang.cause, hang.is_hang) == (Cause.IO, False)
    assert (hang.rank, hang.batches) == (3, 12)


def test_a_training_that_loads_itself() -> None:
    """There is no worker: it is its own call that is not answered."""
    hang = judged(observed(TRAINING, loading_itself(READ), in_call("read", "/data/9"), parent=1))
    assert (hang.cause, hang.pid, hang.worker) == (Cause.IO, TRAINING, None)
    hang = judged(observed(TRAINING, loading_itself(READ), "clock_nanosleep", parent=1))
    assert hang.cause is Cause.SLEEPING


def test_a_process_of_a_pool_is_stuck() -> None:
    training = observed(TRAINING, loading_itself(CONDITION), "futex", parent=1)
    hang = judged(training, observed(9, (READ, POOL, *FORKED), "connect"))
    assert (hang.cause, hang.pid) == (Cause.IO, 9)


def test_a_task_of_a_pool_was_lost() -> None:
    """None of its processes has one, and training waits for one: it went with a process."""
    asks = frame("IMapIterator.next", f"{STANDARD}/multiprocessing/pool.py")
    training = observed(TRAINING, loading_itself(CONDITION, asks), "futex", parent=1)
    hang = judged(training, observed(9, (*POLL, POOL, *FORKED)))
    assert (hang.cause, hang.pid, hang.signal) == (Cause.KILLED, None, None)
    training = observed(TRAINING, loading_itself(CONDITION), "futex", parent=1)
    assert judged(training).cause is Cause.LOCK


def killed(signal: int, memory: KernelMemory, before: KernelMemory | None = None) -> Hang:
    training = observed(TRAINING, loading_itself(READ), in_call("read", PIPE), parent=1)
    first, last = looks(training, killed=((9, signal),), memory=memory)
    pair = [replace(first, killed=last.killed), last]
    return hang_of(pair, MARKS, SECOND, before=before)


@pytest.mark.parametrize(
    ("signal", "now", "before", "shortage"),
    [
        (9, KernelMemory(4, 1000, 1000), KernelMemory(3), Exhausted.MEMORY),
        (9, KernelMemory(3, 1000, 1000), KernelMemory(3), None),
        (9, KernelMemory(4, 1000, 1000), None, None),
        (9, KernelMemory(4, 1000, 1000), KernelMemory(), None),
        (9, KernelMemory(None, None, None), KernelMemory(3), None),
        (7, KernelMemory(4, 1000, 9), KernelMemory(3), Exhausted.SHARED_MEMORY),
        (7, KernelMemory(3, 1000, 11), KernelMemory(3), None),
        (11, KernelMemory(4, 1000, 9), KernelMemory(3), None),
    ],
)
def test_why_a_process_was_killed(
    signal: int, now: KernelMemory, before: KernelMemory | None, shortage: Exhausted | None
) -> None:
    """The kernel's count of processes that it killed has moved, or /dev/shm is full."""
    hang = killed(signal, now, before)
    assert (hang.cause, hang.pid, hang.signal) == (Cause.KILLED, 9, signal)
    assert hang.shortage is shortage


def test_a_step_that_has_not_ended() -> None:
    """Nobody waits for a batch."""
    hang = judged(observed(TRAINING, (STEP,), "futex", parent=1), observed(7, idle(0)))
    assert (hang.cause, hang.is_hang) == (Cause.STEP, False)
    assert hang.place.line == "train.py:40 backward"


def collective(**options: Any) -> Hang:
    return judged(observed(TRAINING, (ALL_REDUCE, STEP), "futex", parent=1), **options)


def test_a_collective_that_not_all_ranks_reached() -> None:
    hang = collective()
    assert (hang.cause, hang.collective, hang.is_hang) == (Cause.COLLECTIVE, "all_reduce", True)
    first, last = looks(observed(TRAINING, (ALL_REDUCE, STEP), "futex", parent=1))
    before = observed(TRAINING, (replace(STEP, line=41),), "futex", parent=1)
    hang = hang_of([replace(first, training=before), last], MARKS, SECOND)
    assert (hang.cause, hang.collective) == (Cause.STEP, "all_reduce")
    woken = replace(last, training=replace(last.training, sleeps=((TRAINING, 100),)))
    assert hang_of([first, woken], MARKS, SECOND).cause is Cause.STEP


def test_without_stacks_the_kernel_tells_who_waits() -> None:
    """But not what training waits for, so that it is not said to hang."""
    training = observed(TRAINING, None, parent=1, problem=StackProblem.NOT_PERMITTED)
    hang = judged(training, observed(7, None), observed(8, None, "recvfrom"))
    assert (hang.pid, hang.place.call) == (8, "recvfrom")
    assert (hang.problem, hang.is_hang) == (StackProblem.NOT_PERMITTED, False)
    assert judged(training, observed(7, None)).pid == TRAINING


def test_of_several_ranks_the_one_that_others_wait_for() -> None:
    """It is stuck, or in a step; where all wait in a collective, none is."""
    waits = replace(collective(), rank=1)
    stuck = replace(of_worker(fetching(READ), "read"), rank=0)
    step = replace(judged(observed(TRAINING, (STEP,), "futex", parent=1)), rank=2)
    assert hang_of_job([waits, stuck, step], 3) is stuck
    assert hang_of_job([waits, step], 2) is step
    assert hang_of_job([waits, waits], 2) is waits
    assert hang_of_job([stuck]) is stuck


def test_ranks_that_were_not_looked_at_may_come() -> None:
    hang = hang_of_job([collective()], 2)
    assert (hang.cause, hang.collective, hang.is_hang) == (Cause.STEP, "all_reduce", False)
