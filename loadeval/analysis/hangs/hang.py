"""Why no batch comes: which process owes it, what that one waits in, and whether it ever ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from loadeval.analysis.attach.marks import Activity, Told
from loadeval.analysis.hangs.stack import (
    Doing,
    Loading,
    StuckAt,
    WaitsIn,
    asks_pool,
    collective_of,
    is_in_loader,
    of_process,
    of_training,
    others_of,
    own_frames,
    supervisors_of,
    training_stack,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.attach.marks import Marks
    from loadeval.probes.looks import KernelMemory, Look, LookedAt
    from loadeval.probes.stacks import StackProblem

BUSY = 0.05
"""Who was on a CPU for that share of the time between two looks, with what it started, works."""
WAKES_PER_S = 2.0
"""Who goes to sleep so often gets something in between, such as the bytes of a large file."""
FULL = 0.01
"""Shared memory of which no more than this share is free is full."""
POLLS = ("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "restart_syscall")
"""Idle workers wait in one of these for the next index, with a time limit."""
KILLED_BY_KERNEL, BUS_ERROR = 9, 7
"""SIGKILL, by which the kernel makes room, and SIGBUS, which full shared memory causes."""


class Cause(Enum):
    """Why no batch comes. The last three are no hang: what is waited for may yet come."""

    IO = "io"
    FORKED_LOCK = "forked lock"
    FORKED_THREAD = "forked thread"
    LOCK = "lock"
    FULL = "full"
    KILLED = "killed"
    COLLECTIVE = "collective"
    STARTING = "starting"
    STOPPED = "stopped"
    UNKNOWN = "unknown"
    SLEEPING = "sleeping"
    SLOW = "slow"
    STEP = "step"


NOWHERE = StuckAt()
NO_HANG = (Cause.SLEEPING, Cause.SLOW, Cause.STEP)


class Exhausted(Enum):
    """What there was too little of when a process was killed."""

    MEMORY = "memory"
    SHARED_MEMORY = "shared memory"


@dataclass(frozen=True, slots=True)
class Hang:
    """Why the training process `training` got no batch for `silent_ns`; None is not known.

    It got `batches` until then. `pid` is the process that owes the batch, or in which training is
    stuck: a worker with the number `worker` in its loader, the training process itself, or
    another that it started. It fetches batch `batch`, and in it the sample `sample`. The
    workers in `idle` are done and wait behind it, and those in `alike` are in the same place.
    `signal` is what killed it, and `shortage` why. `others` are the processes that have the other
    end of its pipe, with the kernel's letter for their state. `collective` is the operation that
    training waits in. `seen_ns` is how long it was seen so, and `stays` tells that it already was
    at this sample at the first look. Where stacks could not be read, `problem` says why.
    """

    cause: Cause
    silent_ns: int
    training: int
    rank: int | None = None
    batches: int | None = None
    pid: int | None = None
    worker: int | None = None
    batch: int | None = None
    sample: int | None = None
    waits: WaitsIn = WaitsIn.UNKNOWN
    place: StuckAt = NOWHERE
    idle: tuple[int, ...] = ()
    alike: tuple[int, ...] = ()
    signal: int | None = None
    shortage: Exhausted | None = None
    others: tuple[tuple[int, str], ...] = ()
    collective: str | None = None
    seen_ns: int = 0
    problem: StackProblem | None = None
    stays: bool = False

    @property
    def is_hang(self) -> bool:
        """Whether it does not end by itself; False too where two looks did not tell that."""
        return self.cause not in NO_HANG and self.problem is None and self.seen_ns > 0

    @property
    def is_stuck(self) -> bool:
        """Whether no batch came between the looks: it hangs, or stays where it is, if asleep."""
        return self.is_hang or (self.stays and self.seen_ns > 0)


def hang_of(
    looks: Sequence[Look],
    marks: Marks,
    silent_ns: int,
    rank: int | None = None,
    batches: int | None = None,
    before: KernelMemory | None = None,
) -> Hang:
    """Why a training got no batch for `silent_ns`, by one look at it, or two some time apart.

    Only two looks can tell that nothing moves. By `marks` adapters know who loads, and who
    waits; `rank` and `batches` are what is known of the training, and `before` has the kernel's
    counts from before the silence.
    """
    hang = Judgement(looks, marks, before).hang(silent_ns)
    earlier = Judgement(looks[:1], marks, before).hang(silent_ns)
    # Processes are looked at one after the other: one may have ended, as at the end of an epoch.
    if hang.is_hang and _who(hang) != _who(earlier):
        hang = replace(hang, cause=Cause.SLOW)
    if (hang.pid, hang.worker) != (earlier.pid, earlier.worker):
        hang = replace(hang, stays=False)  # another one owed the batch before
    return replace(hang, rank=rank, batches=batches)


def _who(hang: Hang) -> tuple[object, ...]:
    """What is the same in each look at a hang."""
    is_gone = hang.cause is Cause.KILLED
    return is_gone, hang.pid, hang.worker, hang.batch, hang.sample, hang.place.line


class Judgement:
    """What the last of some looks shows, compared with the first."""

    def __init__(self, looks: Sequence[Look], marks: Marks, before: KernelMemory | None) -> None:
        self._first, self._last = looks[0], looks[-1]
        self._marks, self._before = marks, before
        training = self._last.training
        stack = training_stack(training, marks)
        self._frames = own_frames(stack)
        self._own = of_training(training, stack, marks)
        self._below = [of_process(process, marks) for process in self._last.others]

    def hang(self, silent_ns: int) -> Hang:
        """See hang_of."""
        training = self._last.training
        seen_ns = round(1e9 * (self._last.time_s - self._first.time_s))
        pid, problem = training.state.pid, training.problem
        hang = Hang(Cause.UNKNOWN, silent_ns, pid, seen_ns=seen_ns, problem=problem)
        if self._own.waits is WaitsIn.STOPPED:
            return self._of(hang, self._own, Cause.STOPPED)
        if training.stacks is None:
            return self._without_stacks(hang)
        if not is_in_loader(self._frames, self._marks):
            operation = collective_of(self._frames, self._marks)
            waits = operation is not None and not self._is_woken(self._own)
            cause = Cause.COLLECTIVE if waits else Cause.STEP
            return replace(self._of(hang, self._own, cause), collective=operation)
        return self._in_loader(hang)

    def _without_stacks(self, hang: Hang) -> Hang:
        """What the kernel alone tells: the process below that is in no call which has an end."""
        stuck = (each for each in self._below if each.place.call not in POLLS)
        owner = next(stuck, self._own)
        return self._of(hang, owner, self._cause(owner))

    def _in_loader(self, hang: Hang) -> Hang:
        workers = [each for each in self._below if each.worker is not None]
        number = self._marks.number(self._frames, Told.OWED_BY)
        starting = [each for each in self._below if each.doing is Doing.STARTING]
        owner = next((each for each in workers if each.worker == number), None)
        if number is None:
            fetching = (each for each in workers if each.doing is Doing.FETCHING)
            owner = next(iter(starting), next(fetching, None))
        elif owner is None:
            owner = next((each for each in starting if each.worker is None), None)
            unread = [each.problem for each in self._last.others if each.stacks is None]
            if owner is None and unread:
                return replace(hang, worker=number, problem=unread[0])
            if owner is None:
                return replace(self._killed(hang), worker=number)
        if owner is not None:
            return self._of(hang, owner)
        if self._marks.show(self._frames, Activity.AWAITS):  # none of them owes anything
            return self._of(hang, self._own, Cause.UNKNOWN)
        return self._by_training_itself(hang)

    def _by_training_itself(self, hang: Hang) -> Hang:
        """The training process fetches, perhaps from processes of the program's own."""
        busy = next((each for each in self._below if each.doing is Doing.FETCHING), None)
        if busy is not None:
            return self._of(hang, busy)
        own = self._of(hang, self._own)
        is_pool_idle = self._own.waits is WaitsIn.THREAD and asks_pool(self._frames)
        if own.cause not in NO_HANG and (self._last.killed or is_pool_idle):
            return self._killed(own)
        return own

    def _killed(self, hang: Hang) -> Hang:
        """A process is gone, with the batch that it owed."""
        pid, signal = next(iter(self._last.killed), (None, None))
        shortage = self._shortage(signal)
        return replace(hang, cause=Cause.KILLED, pid=pid, signal=signal, shortage=shortage)

    def _shortage(self, signal: int | None) -> Exhausted | None:
        now = self._last.memory
        before = None if self._before is None else self._before.oom_kills
        has_killed = None not in (before, now.oom_kills) and now.oom_kills != before
        if has_killed and signal in (None, KILLED_BY_KERNEL):
            return Exhausted.MEMORY
        room, size = now.free_shared_bytes, now.shared_bytes
        is_full = room is not None and size and room < FULL * size
        return Exhausted.SHARED_MEMORY if is_full and signal in (None, BUS_ERROR) else None

    def _of(self, hang: Hang, owner: Loading, cause: Cause | None = None) -> Hang:
        """`hang` with what is known of the process that owes the batch."""
        where = owner.waits, owner.place.line
        others = [each for each in self._below if each.worker != owner.worker]
        alike = [each.worker for each in others if (each.waits, each.place.line) == where]
        idle = [each.worker for each in others if each.doing is Doing.IDLE]
        cause = cause or self._cause(owner)
        return replace(
            hang,
            cause=cause,
            pid=owner.process.state.pid,
            worker=owner.worker,
            batch=owner.batch,
            sample=owner.sample,
            waits=owner.waits,
            place=owner.place,
            idle=tuple(sorted(number for number in idle if number is not None)),
            alike=tuple(sorted(number for number in alike if number is not None)),
            others=self._other_ends(owner),
            stays=self._stays(owner),
        )

    def _cause(self, owner: Loading) -> Cause:
        if owner.waits is WaitsIn.STOPPED:
            return Cause.STOPPED
        if self._works(owner):
            return Cause.SLOW
        if owner.doing is Doing.STARTING:
            return Cause.STARTING
        if owner.doing in (Doing.IDLE, Doing.SENDING):  # its batch is on the way
            return Cause.UNKNOWN
        is_alone = owner.is_forked and not others_of(owner.process)
        causes = {
            WaitsIn.NOTHING: Cause.SLOW,
            WaitsIn.SLEEP: Cause.SLEEPING,
            WaitsIn.READ: Cause.KILLED if self._is_deserted(owner) else Cause.IO,
            WaitsIn.WRITE: Cause.FULL if self._is_channel(owner) else Cause.IO,
            WaitsIn.QUEUE: Cause.FULL if "put" in (owner.place.called or "") else Cause.LOCK,
            WaitsIn.LOCK: Cause.FORKED_LOCK if is_alone else Cause.LOCK,
            WaitsIn.THREAD: Cause.FORKED_THREAD if is_alone else Cause.LOCK,
            WaitsIn.SHARED_LOCK: Cause.LOCK,
        }
        return causes.get(owner.waits, Cause.UNKNOWN)

    def _works(self, owner: Loading) -> bool:
        """Whether it has moved between the looks, was on a CPU, or has got something."""
        pid, elapsed_s = owner.process.state.pid, self._last.time_s - self._first.time_s
        used_ns = self._cpu_ns(self._last, pid) - self._cpu_ns(self._first, pid)
        return self._is_woken(owner) or used_ns > BUSY * 1e9 * elapsed_s

    def _is_woken(self, owner: Loading) -> bool:
        """Whether it has moved, or has got something again and again."""
        elapsed_s = self._last.time_s - self._first.time_s
        wakes = _sleeps(self._last, owner.tid) - _sleeps(self._first, owner.tid)
        return self._moves(owner) or wakes > WAKES_PER_S * elapsed_s

    def _moves(self, owner: Loading) -> bool:
        """Whether it is at another sample or line than it was at the first look, or is new."""
        was = self._earlier(owner)
        return was is None or (was.batch, was.sample, was.place.line) != (
            owner.batch,
            owner.sample,
            owner.place.line,
        )

    def _stays(self, owner: Loading) -> bool:
        """Whether it was at the same sample of the same batch at the first look.

        At the same line of the same batch, where the sample is not known. Who loads batches that
        have no number may be at another one with the same sample, unless it slept all the time.
        """
        was = self._earlier(owner)
        if was is None or owner.doing is not Doing.FETCHING:
            return False
        if (was.doing, was.batch, was.sample) != (owner.doing, owner.batch, owner.sample):
            return False
        if owner.batch is not None and owner.sample is not None:
            return True
        slept = _sleeps(self._first, owner.tid) == _sleeps(self._last, owner.tid)
        return was.place.line == owner.place.line and (owner.batch is not None or slept)

    def _earlier(self, owner: Loading) -> Loading | None:
        """What it did at the first look; None where it is new."""
        pid, training = owner.process.state.pid, self._first.training
        if pid == training.state.pid:
            return of_training(training, training_stack(training, self._marks), self._marks)
        earlier = (each for each in self._first.others if each.state.pid == pid)
        return next((of_process(process, self._marks) for process in earlier), None)

    @staticmethod
    def _cpu_ns(look: Look, pid: int) -> int:
        """CPU time of a process' threads that may load, and of all processes below it."""
        family, total = {pid}, 0
        for process in (look.training, *look.others):  # parents come before their children
            if process.state.pid == pid or process.state.parent in family:
                family.add(process.state.pid)
                idle = supervisors_of(process)
                total += sum(
                    thread.cpu_ns or 0 for thread in process.state.threads if thread.tid not in idle
                )
        return total

    def _other_ends(self, owner: Loading) -> tuple[tuple[int, str], ...]:
        """The other processes that have the other end of the pipe that it reads or writes."""
        path, writes = owner.place.path or "", owner.waits is WaitsIn.WRITE
        looked_at = (self._last.training, *self._last.others)
        return tuple(
            (process.state.pid, _letter(process))
            for process in looked_at
            if process is not owner.process and (path, not writes) in process.pipes
        )

    def _is_deserted(self, owner: Loading) -> bool:
        """Whether it reads a pipe that nobody can write to: no process, and no other thread."""
        is_pipe = owner.waits is WaitsIn.READ and (owner.place.path or "").startswith("pipe:")
        return is_pipe and not self._other_ends(owner) and not others_of(owner.process)

    @staticmethod
    def _is_channel(owner: Loading) -> bool:
        return (owner.place.path or "").startswith(("pipe:", "socket:"))


def hang_of_job(hangs: Sequence[Hang], world_size: int | None = None) -> Hang:
    """Of what the ranks of one job wait for, that which the others wait behind.

    A rank that is stuck in its loader, or outside of it, keeps all others waiting in a collective.
    Where some of `world_size` ranks were not looked at, a collective may yet end.
    """
    first = min(hangs, key=_order)
    is_whole = world_size is None or len(hangs) >= world_size
    if first.cause is Cause.COLLECTIVE and not is_whole:
        return replace(first, cause=Cause.STEP)
    return first


def _order(hang: Hang) -> int:
    """Which of several ranks holds up the others: not one that waits for them."""
    if hang.cause is Cause.COLLECTIVE:
        return 2
    return 1 if hang.cause in NO_HANG else 0


def _sleeps(look: Look, tid: int) -> int:
    """How often thread `tid` went to sleep until then; 0 where that is not known."""
    return sum(dict(process.sleeps).get(tid, 0) for process in (look.training, *look.others))


def _letter(process: LookedAt) -> str:
    return (None if process.state.main is None else process.state.main.state) or "?"
