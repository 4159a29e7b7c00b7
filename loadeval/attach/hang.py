"""Why no batch comes: which process owes it, what that one waits in, and whether it ever ends.

Two looks at a training and all processes below it tell, some time apart: what hangs does not move
between them. `CAUSES` has every cause, with its words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from signal import Signals

from loadeval.attach.marks import Marks, own_frames, plain_name
from loadeval.probes.looks import KernelMemory, Look, LookedAt, ThreadFigures, with_native_frames
from loadeval.probes.stacks import NO_STACKS, Frame
from loadeval.words import counted, printable, span

BUSY = 0.05
"""Who was on a CPU for that share of the time between two looks, with what it started, works."""
WAKES_PER_S = 2.0
"""Who goes to sleep so often gets something in between, such as the bytes of a large file."""
FULL = 0.01
"""Shared memory of which no more than this share is free is full."""
KILLED_BY_KERNEL, BUS_ERROR = 9, 7
"""SIGKILL, by which the kernel makes room, and SIGBUS, which full shared memory causes."""
SUPERVISORS = re.compile(r".*\(_handle_(workers|tasks|results)\)$|loadeval")
"""Threads of a pool of multiprocessing's, and ours: they may be busy while nothing is loaded."""
HELPERS = re.compile(r"QueueFeederThread|.*\(_serve\)$|loadeval|py-spy|$")
"""Threads of multiprocessing's and ours, which hold no lock of the program's."""
STATES = {"T": "stopped", "Z": "dead", "R": "running", "D": "waiting for a disk", "S": "asleep"}
POOL, QUEUES = "multiprocessing/pool.py", "multiprocessing/queues.py"
SPAWN, FORK = "multiprocessing/spawn.py", "multiprocessing/popen_fork.py"
POOLS = ((POOL, "worker"), ("concurrent/futures/process.py", "_process_worker"))
THREADING = ("/threading.py", "/queue.py", "concurrent/futures/_base.py")
SHARED_LOCKS, NATIVE_SEMAPHORE = "multiprocessing/synchronize.py", "SemLock_acquire"
SERVING = re.compile(r"/loadeval/core/loop\.py")
"""Where training waits for a loader that no mark knows, under `loadeval run` or wrapped."""
STANDARD = re.compile(r"/lib/python3[^/]*/(?!site-packages|dist-packages)|^<")
INSTALLED = re.compile(r"/(site|dist)-packages/|/loadeval/(core|launch)/|/loadeval_adapters/")
OF_CALL = {
    "read": "poll ppoll select pselect6 epoll_wait epoll_pwait restart_syscall read readv pread64 "
    "recvfrom recvmsg recvmmsg open openat stat newfstatat statx fstat getdents64 connect accept "
    "accept4 flock fcntl io_getevents io_uring_enter splice wait4 waitid sendfile copy_file_range",
    "write": "write writev pwrite64 sendto sendmsg",
    "sleep": "nanosleep clock_nanosleep",
}
OF_STATE = {"T": "stopped", "t": "stopped", "R": "nothing", "D": "read"}
"""What a thread waits in, by the kernel's letter; D is of a disk or a network file system."""

CAUSES = {
    "unknown": ("does nothing, and what it waits for is not known", ""),
    "slow": ("is at work", ""),
    "step": ("has not asked for one: its step has not ended", ""),
    "collective": (
        "waits for other ranks in {collective}, not for its loader",
        (
            "give each rank as many batches: DistributedSampler, drop_last=True, or "
            "torch.distributed.algorithms.Join"
        ),
    ),
    "stopped": ("is stopped, by SIGSTOP or a debugger", "kill -CONT {pid}"),
    "starting": (
        "has not finished starting",
        "see what its import or worker_init_fn waits for",
    ),
    "sleeping": ("sleeps because its code says so", ""),
    "killed": (
        "is gone, and its batch never comes",
        (
            "torch's DataLoader and concurrent.futures notice that a worker is gone; "
            "multiprocessing.Pool and a queue of your own do not"
        ),
    ),
    "full": (
        "cannot put more into a pipe or a queue: it is full, and nobody empties it",
        "let the reader go on, or drop what does not fit",
    ),
    "io": (
        "is stuck in a call that is not answered",
        (
            "give the call a time limit, as with socket.setdefaulttimeout(60) in worker_init_fn; "
            "DataLoader(timeout=600) ends a training that waits for longer"
        ),
    ),
    "forked lock": (
        "waits for a lock that was held when it was forked; nothing in it can release that",
        (
            "start the thread that holds it after the workers, make the lock in the worker, or "
            'pass multiprocessing_context="spawn"'
        ),
    ),
    "forked thread": (
        "waits for a thread that it does not have: a forked process has none of its parent's",
        "make the pool or the thread in the worker, as worker_init_fn can",
    ),
    "lock": (
        "waits for a lock or for another thread, and nothing moves",
        "the stacks of the other threads and processes show who holds it",
    ),
}
"""What a process does, in words that follow on its name, and what may help."""
NOT_LOADING = {"collective", "step"}
"""Causes that are outside of the loader."""
NO_HANG = {"sleeping": "; that is not called a hang", "slow": "; that is no hang", "step": ""}
"""Causes that may end by themselves, and what is said of them."""
SHORTAGES = {
    "memory": (
        "the kernel killed it to get memory: take fewer workers, or smaller batches; "
        "loadeval doctor RUN says what they need"
    ),
    "shared memory": (
        "shared memory is full: make /dev/shm larger (--shm-size in Docker), or take fewer workers"
    ),
}
"""Why a process was killed, and what may help."""
MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class StuckAt:
    """Where a thread is; None is not known.

    `line` is the innermost line of the program's own code, of an installed package where there is
    none. `called` is the innermost function, where that is another one, and `native` the compiled
    one that it is in. `call` is the system call, `path` the file that it is of, with the other end
    of a connection, and `wchan` the kernel's function that the thread sleeps in.
    """

    line: str | None = None
    called: str | None = None
    native: str | None = None
    call: str | None = None
    path: str | None = None
    wchan: str | None = None


NOWHERE = StuckAt()


@dataclass(frozen=True, slots=True)
class Hang:
    """Why the training process `training` got no batch for `silent_ns`; None is not known.

    It got `batches` until then. `pid` is the process that owes the batch, or in which training is
    stuck: a worker with the number `worker` in its loader, the training process itself, or
    another that it started. `who` does what it `says`, and `to_try` is what may help. It fetches
    batch `batch`, and in it the sample `sample`. `waits_in` is what it waits in, such as "read" or
    "lock". The workers in `idle` are done and wait behind it, and those in `alike` are in the same
    place. `signal` is what killed it, and `shortage`, of "memory" or "shared memory", why. `others`
    are the processes that have the other end of its pipe, with the kernel's letter for their state.
    `collective` is the operation that training waits in. `seen_ns` is how long it was seen so, and
    `stays` tells that it already was at this sample at the first look. Where stacks could not be
    read, `no_stacks` says why.
    """

    cause: str
    silent_ns: int
    training: int
    says: str = ""
    to_try: str = ""
    rank: int | None = None
    batches: int | None = None
    pid: int | None = None
    worker: int | None = None
    batch: int | None = None
    sample: int | None = None
    waits_in: str = "unknown"
    place: StuckAt = NOWHERE
    idle: tuple[int, ...] = ()
    alike: tuple[int, ...] = ()
    signal: int | None = None
    shortage: str | None = None
    others: tuple[tuple[int, str], ...] = ()
    collective: str | None = None
    seen_ns: int = 0
    no_stacks: str | None = None
    stays: bool = False

    @property
    def who(self) -> str:
        """What owes the batch, or is otherwise waited for."""
        process = "" if self.pid is None else f" (process {self.pid})"
        if self.cause in NOT_LOADING:
            return "training"
        if self.worker is not None and self.cause != "killed":
            return f"worker {self.worker}{process}"
        if self.pid is None or self.cause == "killed":
            return "a process that loads"
        return (
            f"the training process{process}" if self.pid == self.training else f"process {self.pid}"
        )

    @property
    def is_hang(self) -> bool:
        """Whether it does not end by itself; False too where two looks did not tell that."""
        return self.cause not in NO_HANG and self.no_stacks is None and self.seen_ns > 0

    @property
    def is_stuck(self) -> bool:
        """Whether no batch came between the looks: it hangs, or stays where it is, if asleep."""
        return self.is_hang or (self.stays and self.seen_ns > 0)

    def because(self, cause: str) -> Hang:
        """The same with this cause and its words."""
        says, to_try = CAUSES[cause]
        if self.shortage is not None:
            to_try = SHORTAGES[self.shortage]
        return replace(
            self,
            cause=cause,
            says=says.format(collective=self.collective),
            to_try=to_try.format(pid=self.pid),
        )


class Doing:
    """What a process does: the thread of it that loads, or of one that `trains` that asks.

    `what` is "starting", "idle", "fetching", "sending" or "other"; `activities` are those of its
    marks. `worker` is its number in the loader, None for the training process and for processes
    that the program itself started. `batch` is the number of the batch, from 0 in the epoch,
    `sample` the index in the dataset, or the place in the worker's own epoch.
    """

    def __init__(self, process: LookedAt, marks: Marks, *, trains: bool = False) -> None:
        threads = () if process.stacks is None else process.stacks.threads
        thread = None if process.stacks is None else process.stacks.main
        if trains:
            thread = next((each for each in threads if _is_asking(each.stacks[-1], marks)), thread)
        stack = () if thread is None else thread.stacks[-1]
        self.process, self.pid = process, process.pid
        self.frames = own_frames(stack)
        self.python = [frame for frame in self.frames if not frame.native]
        self.activities = marks.read(self.python).activities
        tids = {process.pid if thread is None else thread.tid}
        self.state = next((each for each in process.threads if each.tid in tids), process.main)
        self.sleeps = 0 if self.state is None else self.state.sleeps or 0
        # Whether the program itself began threads beside the main one.
        names = [each.name for each in threads if each.tid != process.pid]
        self.has_threads = any(not HELPERS.match(name) for name in names)
        is_forked = any(frame.file.endswith(FORK) for frame in stack)
        self.is_alone = is_forked and not self.has_threads
        self.worker = None if trains else marks.number(self.frames, "worker")
        self.what = "fetching" if {"fetches", "collates"} & {*self.activities} else "other"
        if not trains:
            self.what = self._what()
        self.batch = self.sample = None
        if self.what in {"fetching", "sending"} and not trains:
            self.batch = marks.number(self.frames, "batch")
        if self.what == "fetching" and marks.number(self.frames, "all read") is None:
            self.sample = marks.number(self.frames, "sample")
        self.waits_in = self._waits_in()
        self.place = self._place()

    def _what(self) -> str:
        if self.worker is not None:
            told = {"asks": "idle", "sends": "sending", "loads": "starting"}
            return told.get(self.activities[-1] if self.activities else "loads", "fetching")
        # It is no loader's worker yet, or never will be.
        for place, frame in enumerate(self.python):
            if any(frame.file.endswith(file) and plain_name(frame) == name for file, name in POOLS):
                is_idle = place and plain_name(self.python[place - 1]) == "get"
                return "idle" if is_idle else "fetching"
            if frame.file.endswith(SPAWN) and plain_name(frame) == "spawn_main":
                return "starting"
        return "other"

    def _waits_in(self) -> str:
        state = None if self.state is None else self.state.state
        if state is None or state in OF_STATE:
            return OF_STATE.get(state or "", "unknown")
        call = "?" if self.state is None else self.state.call or "?"
        if call != "futex":
            what = (what for what, calls in OF_CALL.items() if call in calls.split())
            return next(what, "unknown")
        # Locks, queues and other threads are waited for by a futex.
        file = self.python[0].file if self.python else ""
        if file.endswith(QUEUES):
            return "queue"
        is_shared = any(NATIVE_SEMAPHORE in frame.function for frame in self.frames)
        if is_shared or file.endswith(SHARED_LOCKS):
            return "shared lock"
        return "thread" if file.endswith(THREADING) else "lock"

    def _place(self) -> StuckAt:
        own = [frame for frame in self.python if not STANDARD.search(frame.file)]
        line = next((frame for frame in own if not INSTALLED.search(frame.file)), None)
        line = line or next(iter(own), None)
        inner = next((each for each in self.frames if not each.function.startswith("0x")), None)
        is_deeper = bool(self.python) and self.python[0] is not line
        state = self.state or ThreadFigures(self.pid, "", None)
        path, peers = state.path, dict(self.process.connections)
        if path is not None and state.descriptor in peers:
            path = f"{path} connected to {peers[state.descriptor]}"
        return StuckAt(
            line=None if line is None else frame_text(line),
            called=frame_text(self.python[0]) if is_deeper else None,
            native=frame_text(inner) if inner is not None and inner.native else None,
            call=state.call,
            path=path,
            wchan=state.wchan,
        )


def _is_asking(frames: Sequence[Frame], marks: Marks) -> bool:
    """Whether a thread of the training process waits for a batch, or begins an epoch."""
    frames = own_frames(frames)
    is_served = any(SERVING.search(frame.file) for frame in frames)
    return is_served or bool({"waits", "starts"} & {*marks.read(frames).activities})


def frame_text(frame: Frame) -> str:
    """A frame as `data.py:31 Photographs.__getitem__`; compiled code by its name alone."""
    if frame.native:
        return frame.function.partition("(")[0].partition("<")[0]
    line = "" if frame.line is None else f":{frame.line}"
    parts = frame.file.split("/")
    file = "/".join(parts[-2 if parts[-1] == "__init__.py" else -1 :])
    return f"{file}{line} {frame.function}"


class Judgement:
    """What a last look shows, compared with a first; `before` are counts from before the silence.

    `own` is what training does, `below` what each process below it does, and `was` what each did at
    the first look.
    """

    def __init__(self, first: Look, last: Look, marks: Marks, before: KernelMemory | None) -> None:
        self.first, self.last, self.marks, self.before = first, last, marks, before
        self.elapsed_s = last.time_s - first.time_s
        self.own = Doing(last.training, marks, trains=True)
        self.below = [Doing(process, marks) for process in last.others]
        self.was = {each.pid: Doing(each, marks) for each in first.others}
        self.was[self.own.pid] = Doing(first.training, marks, trains=True)

    def hang(self, silent_ns: int) -> Hang:
        """Which process owes the batch, and why it does not come."""
        number = self.marks.number(self.own.frames, "owed by")
        owner, cause = self._owner(number)
        no_stacks, shortage, signal = self.last.training.problem, None, None
        pid: int | None = owner.pid
        worker = owner.worker
        unread = [each.problem for each in self.last.others if each.stacks is None]
        if cause == "killed" and number is not None and unread:
            pid, worker, no_stacks, cause = None, number, unread[0], "unknown"
        elif cause == "killed":  # with the batch that it owed
            pid, signal = next(iter(self.last.killed), (None, None))
            worker, shortage = number, self._shortage(signal)
        others = [each for each in self.below if each.worker not in {None, owner.worker}]
        where = owner.waits_in, owner.place.line
        alike = [each.worker for each in others if (each.waits_in, each.place.line) == where]
        idle = [each.worker for each in others if each.what == "idle"]
        return Hang(
            "",
            silent_ns,
            self.own.pid,
            pid=pid,
            worker=worker,
            batch=owner.batch,
            sample=owner.sample,
            waits_in=owner.waits_in,
            place=owner.place,
            idle=tuple(sorted(each for each in idle if each is not None)),
            alike=tuple(sorted(each for each in alike if each is not None)),
            signal=signal,
            shortage=shortage,
            others=self._other_ends(owner),
            collective=self.marks.collective(self.own.frames) if cause in NOT_LOADING else None,
            seen_ns=round(1e9 * self.elapsed_s),
            no_stacks=no_stacks,
            stays=self._stays(owner),
        ).because(cause or self._cause(owner))

    def _owner(self, number: int | None) -> tuple[Doing, str | None]:  # noqa: PLR0911 - one question after another
        """The process that owes the batch, or else training; and why, where that shows already.

        `number` is that of the worker that owes it, where that is known.
        """
        own, below = self.own, self.below
        if own.waits_in == "stopped" or own.process.stacks is None:
            return own, None
        if not _is_asking(own.frames, self.marks):
            # It is in a step, or in one that waits for other ranks.
            is_collective = self.marks.collective(own.frames) and not self._is_woken(own)
            return own, "collective" if is_collective else "step"
        starting = [each for each in below if each.what == "starting"]
        fetching = [each for each in below if each.what == "fetching"]
        loading = [each for each in fetching if each.worker is not None]
        if number is not None:
            loading = [each for each in below if each.worker == number]
            starting = [each for each in starting if each.worker is None and not loading]
        if starting or loading:
            return [*starting, *loading][0], None
        if number is not None:
            return own, "killed"
        if "awaits" in own.activities:  # none of them owes anything
            return own, "unknown"
        if fetching:  # a process of the program's own
            return fetching[0], None
        is_pool_idle = own.waits_in == "thread" and any(f.file.endswith(POOL) for f in own.frames)
        cause = self._cause(own)
        is_lost = cause not in NO_HANG and (self.last.killed or is_pool_idle)
        return own, "killed" if is_lost else cause

    def _shortage(self, signal: int | None) -> str | None:
        """Of what there was too little, where that is why a process was killed."""
        now, was = self.last.memory, None if self.before is None else self.before.oom_kills
        free, size = now.free_shared_bytes, now.shared_bytes
        is_counted = was is not None and now.oom_kills is not None
        if signal in {None, KILLED_BY_KERNEL} and is_counted and now.oom_kills != was:
            return "memory"
        if signal in {None, BUS_ERROR} and free is not None and size and free < FULL * size:
            return "shared memory"
        return None

    def _cause(self, it: Doing) -> str:  # noqa: PLR0911 - one question after another
        """Why the batch that a process owes does not come."""
        waits_in, path = it.waits_in, it.place.path or ""
        if waits_in == "stopped":
            return "stopped"
        if (waits_in == "nothing" and it.what in {"fetching", "other"}) or self._works(it):
            return "slow"
        if it.what == "starting":
            return "starting"
        if it.what in {"idle", "sending"}:  # its batch is on the way
            return "unknown"
        if waits_in == "sleep":
            return "sleeping"
        is_of_pipe = waits_in == "read" and path.startswith("pipe:")
        if is_of_pipe and not (self._other_ends(it) or it.has_threads):
            return "killed"  # nobody can write to it
        puts = waits_in == "queue" and "put" in (it.place.called or "")
        if puts or (waits_in == "write" and path.startswith(("pipe:", "socket:"))):
            return "full"
        if waits_in in {"read", "write"}:
            return "io"
        if waits_in in {"lock", "thread"} and it.is_alone:
            return f"forked {waits_in}"
        return "lock" if waits_in in {"lock", "thread", "shared lock", "queue"} else "unknown"

    def _works(self, it: Doing) -> bool:
        """Whether it has moved between the looks, was on a CPU, or has got something."""
        used_ns = _cpu_ns(self.last, it.pid) - _cpu_ns(self.first, it.pid)
        return self._is_woken(it) or used_ns > BUSY * 1e9 * self.elapsed_s

    def _is_woken(self, it: Doing) -> bool:
        """Whether it has moved, is new, or has got something again and again."""
        was = self.was.get(it.pid)
        if was is None:
            return True
        moved = (was.batch, was.sample, was.place.line) != (it.batch, it.sample, it.place.line)
        return moved or it.sleeps - was.sleeps > WAKES_PER_S * self.elapsed_s

    def _stays(self, it: Doing) -> bool:
        """Whether it was at the same sample of the same batch at the first look.

        At the same line of the same batch, where the sample is not known. Who loads batches that
        have no number may be at another one with the same sample, unless it slept all the time.
        """
        was = self.was.get(it.pid, it)
        is_same = (was.what, was.batch, was.sample) == ("fetching", it.batch, it.sample)
        if it.batch is None or it.sample is None:
            is_asleep = it.batch is not None or was.sleeps == it.sleeps
            is_same = is_same and is_asleep and was.place.line == it.place.line
        return is_same and it.pid in self.was and it.what == "fetching"

    def _other_ends(self, it: Doing) -> tuple[tuple[int, str], ...]:
        """The other processes that have the other end of the pipe that it reads or writes."""
        end = it.place.path or "", it.waits_in != "write"
        return tuple(
            (each.pid, (each.main.state if each.main else None) or "?")
            for each in (self.last.training, *self.last.others)
            if each is not it.process and end in each.pipes
        )


def _cpu_ns(look: Look, pid: int) -> int:
    """CPU time of a process' threads that may load, and of all processes below it."""
    family, total = {pid}, 0
    for process in (look.training, *look.others):  # parents come before their children
        if {process.pid, process.parent} & family:
            family.add(process.pid)
            stacks = () if process.stacks is None else process.stacks.threads
            idle = {thread.tid for thread in stacks if SUPERVISORS.match(thread.name)}
            total += sum(each.cpu_ns or 0 for each in process.threads if each.tid not in idle)
    return total


def hang_of(
    looks: Sequence[Look], marks: Marks, silent_ns: int, before: KernelMemory | None = None
) -> Hang:
    """Why a training got no batch for `silent_ns`, by one look at it, or two some time apart.

    Only two looks can tell that nothing moves. By `marks` adapters know who loads, and who
    waits; `before` has the kernel's counts from before the silence.
    """
    hang = Judgement(looks[0], looks[-1], marks, before).hang(silent_ns)
    was = Judgement(looks[0], looks[0], marks, before).hang(silent_ns)
    # Processes are looked at one after the other: one may have ended, as at the end of an epoch.
    is_same = (hang.cause == "killed") is (was.cause == "killed")
    for name in ("pid", "worker", "batch", "sample"):
        is_same = is_same and getattr(hang, name) == getattr(was, name)
    if hang.is_hang and not (is_same and hang.place.line == was.place.line):
        hang = replace(hang, shortage=None).because("slow")
    if (hang.pid, hang.worker) != (was.pid, was.worker):
        return replace(hang, stays=False)  # another one owed the batch before
    return hang


def judged(
    looks: Sequence[Look], marks: Marks, silent_ns: int, before: KernelMemory | None = None
) -> tuple[Hang, Look]:
    """Why no batch comes, as `hang_of` says it, and the last look that it says it by.

    What hangs is paused for some milliseconds, for the names of compiled functions; not where it
    writes, for its call would return early.
    """
    hang = hang_of(looks, marks, silent_ns, before)
    if hang.is_hang and hang.pid is not None and hang.waits_in != "write":
        looks = [looks[0], with_native_frames(looks[-1], hang.pid)]
        hang = hang_of(looks, marks, silent_ns, before)
    return hang, looks[-1]


def hang_of_job(hangs: Sequence[Hang], world_size: int | None = None) -> Hang:
    """Of what the ranks of one job wait for, that which the others wait behind.

    A rank that is stuck in its loader, or outside of it, keeps all others waiting in a collective.
    Where some of `world_size` ranks were not looked at, a collective may yet end.
    """
    first = min(hangs, key=lambda hang: 2 if hang.cause == "collective" else hang.cause in NO_HANG)
    if first.cause == "collective" and len(hangs) < (world_size or 0):
        return first.because("step")
    return first


def headline(hang: Hang) -> str:
    """For how long there was no batch, and why."""
    rank = "" if hang.rank is None else f"rank {hang.rank}: "
    why = f"{hang.who} {hang.says}{NO_HANG.get(hang.cause, '')}"
    if hang.no_stacks is not None:
        why = "what training waits for is not known without stacks"
    return f"{rank}no batch for {span(hang.silent_ns)}: {why}"


def no_batch_came(hang: Hang) -> str:
    """What held up a training in which no batch came between two looks, and since when."""
    who, where = hang.who, []
    if hang.stays and hang.sample is not None:
        where.append(f"on sample {hang.sample}")
    elif hang.stays and hang.batch is not None:
        where.append(f"on batch {hang.batch:,} of the epoch")
    if hang.stays and hang.place.line is not None:
        where.append(f"in {hang.place.line}")
    since = ""
    if where:
        name = who if hang.worker is None else f"worker {hang.worker}"
        if hang.cause == "killed" and hang.worker is None:  # it is training that waits there
            name = f"the training process (process {hang.training})"
        since = f"{name} is {', '.join(where)}, since before the look began; "
        if hang.cause != "killed":
            who = "it" if hang.worker is None else f"it (process {hang.pid})"
    return f"No batch came in the {span(hang.seen_ns)}: {since}{who} {hang.says}."


def owed_by(hang: Hang) -> str:
    """Which worker owes the batch that training waits for, and which ones are done."""
    return f"{hang.who}, at the end of the look; {_numbered(hang.idle)} done"


def rows(hang: Hang, ranks: Sequence[Hang] = (), path: str | None = None) -> list[tuple[str, str]]:
    """What else is known of it, each with its label; `path` is of the file with all stacks."""
    place, batch = hang.place, None if hang.batch is None else f"batch {hang.batch:,} of the epoch"
    sample = batch if hang.sample is None else ", in ".join(filter(None, (str(hang.sample), batch)))
    call = f"{place.call or 'not known'}{'' if place.path is None else f' of {place.path}'}"
    inside = ", ".join(filter(None, (f"in {place.native}" if place.native else "", place.wchan)))
    other_ends = signal = None
    if hang.cause == "full" and (place.path or "").startswith("pipe:"):
        ends = (f"process {pid}, {STATES.get(state, state)}" for pid, state in hang.others)
        other_ends = ", ".join(ends) or "no other process has it open"
    if hang.signal is not None:  # of real-time signals only the first and last have names
        is_named = hang.signal in {*Signals}
        name = Signals(hang.signal).name if is_named else f"signal {hang.signal}"
        signal = f"{name} (process {hang.pid})"
    behind = (
        f"{_numbered(numbers)} {what}"
        for numbers, what in (
            (hang.idle, "done, waiting" if hang.is_stuck else "done"),
            (hang.alike, "at the same line"),
        )
        if numbers
    )
    known = [
        ("sample", sample),
        ("line", place.line),
        ("in", hang.collective or place.called),
        ("call", (f"{call} ({inside})" if inside else call) if place.call or place.wchan else None),
        ("other end", other_ends),
        ("killed by", signal),
        ("behind it", "; ".join(behind)),
        *((f"rank {other.rank}", _of_rank(other)) for other in ranks if len(ranks) > 1),
        ("no stacks", None if hang.no_stacks is None else NO_STACKS[hang.no_stacks]),
        ("to try", hang.to_try if hang.no_stacks is None else None),
        ("stacks", path),
    ]
    return [(label, text) for label, text in known if text]


def _of_rank(hang: Hang) -> str:
    count = "" if hang.batches is None else f"{counted(hang.batches, 'batch', 'batches')}; "
    line = "" if hang.place.line is None else f", at {hang.place.line}"
    return f"{count}{hang.collective or f'{hang.who} {hang.says}'}{line}"


def _numbered(workers: Sequence[int]) -> str:
    named = ", ".join(map(str, workers[:MOST_NAMED]))
    more = f" and {len(workers) - MOST_NAMED} more" if len(workers) > MOST_NAMED else ""
    return f"worker {named}{more}" if len(workers) == 1 else f"workers {named}{more}"


def stacks_text(ranks: Sequence[Hang], looks: Sequence[Look], *, redact: bool) -> str:
    """The stacks of all threads of all processes, as plain text.

    With `redact` there are no command lines and no folders.
    """
    lines = []
    for hang, look in zip(ranks, looks, strict=True):
        lines += [headline(hang), ""]
        for process in (look.training, *look.others):
            lines += [*_stacks_of(process, redact=redact), ""]
        for pid, signal in look.killed:
            lines += [f"process {pid}: killed by signal {signal}", ""]
    return "\n".join(map(printable, lines[:-1])) + "\n"


def _stacks_of(process: LookedAt, *, redact: bool) -> list[str]:
    command = "" if redact or process.command is None else f": {' '.join(process.command)}"
    lines = [f"process {process.pid}, started by {process.parent}{command}"]
    stacks = {} if process.stacks is None else {t.tid: t for t in process.stacks.threads}
    if process.problem is not None:
        lines.append(f"  no stacks: {process.problem}")
    for thread in process.threads:
        call = "" if thread.call is None else f", in {thread.call}"
        if thread.path is not None and not redact:
            call += f" of {thread.path}"
        stack = stacks.get(thread.tid)
        name = thread.name if stack is None or not stack.name else stack.name
        kernel = "" if thread.wchan is None else f", {thread.wchan}"
        doing = STATES.get(thread.state or "", thread.state or "not known")
        lines.append(f"  thread {thread.tid} {name}: {doing}{call}{kernel}")
        for frame in () if stack is None else stack.stacks[-1]:
            is_short = frame.native or redact
            place = f"{frame.file}:{frame.line or '?'} {frame.function}"
            lines.append(f"    {frame_text(frame) if is_short else place}")
    return lines
