"""Why no batch comes: which process owes it, what that one waits in, and whether it ever ends.

Two looks at a training and all processes below it tell, some time apart: what hangs does not move
between them. `CAUSES` has every cause, with its words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from signal import Signals

from loadeval.attach.marks import OURS, Mark, Marks, own_frames
from loadeval.frames import PACKAGES
from loadeval.probes.looks import SHARED, Look, LookedAt, ThreadFigures
from loadeval.probes.stacks import NO_STACKS, Frame
from loadeval.words import counted, printable, span

BUSY = 0.05
"""Who was on a CPU for that share of the time between two looks, with what it started, works."""
WAKES_PER_S = 2.0
"""Who goes to sleep so often gets something in between, such as the bytes of a large file."""
NO_LOCKS = re.compile(r"QueueFeederThread|.*\(_serve\)$|loadeval|$")
"""Threads of multiprocessing's and ours, which hold no lock of the program's."""
POOL, QUEUES = "multiprocessing/pool.py", "multiprocessing/queues.py"
SPAWN, FORK = "multiprocessing/spawn.py", "multiprocessing/popen_fork.py"
EVENT_LOOP = re.compile(r"<(coroutine|\w*EventLoop|uvloop\.Loop) at ")
"""So begins what stands for a coroutine, or the loop that runs it, among a function's variables."""
POOLS = tuple(
    Mark(file, function, does, line, "")
    for file, function in ((POOL, "worker"), ("concurrent/futures/process.py", "_process_worker"))
    for does, line in (("fetches", ""), ("asks", "get("))
)
"""Processes that a program itself starts to load for it."""
THREADING = ("/threading.py", "/queue.py", "concurrent/futures/_base.py")
SERVING = "/loadeval/core/loop.py"
"""Where training waits for a loader that no mark knows, under `loadeval run` or wrapped."""
STANDARD = re.compile(rf"/lib/python3[^/]*/(?!site-packages|dist-packages)|^<|{OURS.pattern}")
"""Files of Python's own library, and of a loadeval that measures the training."""
SLEEPS = {"nanosleep", "clock_nanosleep"}
WRITES = {"write", "writev", "pwrite64", "sendto", "sendmsg"}

CAUSES = {
    "unread": ("cannot be looked into: {why}", ""),
    "unknown": ("does nothing, and what it waits for is not known", ""),
    "slow": ("is at work", ""),
    "step": ("has not asked for one: its step has not ended", ""),
    "collective": (
        "waits for other ranks in {collective}, not for its loader",
        "compare the lines of all ranks: they call the same collectives, in the same order",
    ),
    "uneven": (
        "waits in {collective} for a rank that has no more batches",
        (
            "give each rank as many batches: DistributedSampler, drop_last=True, or "
            "torch.distributed.algorithms.Join"
        ),
    ),
    "stopped": ("is stopped, by SIGSTOP or a debugger", "kill -CONT with its number"),
    "starting": (
        "has not finished starting",
        "see what its import or worker_init_fn waits for",
    ),
    "sleeping": ("sleeps because its code says so", ""),
    "killed": (
        "is gone, and its batch never comes",
        (
            "the kernel sends SIGKILL where memory runs out, SIGBUS where /dev/shm is full: take "
            "fewer workers or smaller batches; torch's DataLoader and concurrent.futures notice "
            "that a worker is gone, multiprocessing.Pool and a queue of your own do not"
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
    "forked loop": (
        "waits for an event loop that runs in a thread which it does not have: none was forked",
        (
            "make the client, and so its event loop, in the worker: on first use, or where "
            'os.getpid() has changed; or pass multiprocessing_context="spawn"'
        ),
    ),
    "lock": (
        "waits for a lock or for another thread, and nothing moves",
        "the stacks of the other threads and processes show who holds it",
    ),
}
"""What a process does, in words that follow on its name, and what may help."""
NOT_LOADING = {"collective", "uneven", "step"}
"""Causes that are outside of the loader."""
BACKWARD = "the backward pass"
NO_HANG = {"unread", "sleeping", "slow", "step"}
"""Causes that may end by themselves, as far as is known."""


@dataclass(frozen=True)
class Hang:
    """Why the training process `training` got no batch for `silent_ns`; None is not known.

    It got `batches` until then. `pid` is the process that owes the batch, or in which training is
    stuck: a worker with the number `worker` in its loader, the training process itself, or
    another that it started. `who` does what it `says`, and `to_try` is what may help. It fetches
    batch `batch`, and in it the sample `sample`. `line` is the innermost line of the program's own
    code, of an installed package where there is none, `called` the innermost function, and `call`
    the system call with what it is of. The workers in `idle` are done and wait behind it. `signal`
    is what killed it. `collective` is the operation that training waits in. `seen_ns` is how long
    it was seen so, and `stays` tells that it already was at this sample at the first look.
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
    line: str | None = None
    called: str | None = None
    call: str | None = None
    idle: tuple[int, ...] = ()
    signal: int | None = None
    collective: str | None = None
    seen_ns: int = 0
    stays: bool = False

    @property
    def who(self) -> str:
        """What owes the batch, or is otherwise waited for."""
        if self.cause in NOT_LOADING:
            return "training"
        if self.cause == "killed":
            return "a process that loads"
        process = f"process {self.pid}"
        if self.worker is not None:
            return f"worker {self.worker} ({process})"
        return f"the training process ({process})" if self.pid == self.training else process

    @property
    def is_hang(self) -> bool:
        """Whether it does not end by itself."""
        return self.cause not in NO_HANG

    @property
    def is_stuck(self) -> bool:
        """Whether no batch came between the looks: it hangs, or stays where it is, if asleep."""
        return self.is_hang or self.stays or self.collective == BACKWARD


class Activity:
    """What a process does, by its thread that loads; if it `trains`, by the one that asks.

    `what` is "starting", "idle", "fetching", "sending" or "other". `worker` is its number in the
    loader, None for the training process and for processes that the program itself started.
    `batch` is the number of the batch, from 0 in the epoch, `sample` the index in the dataset, or
    the place in the worker's own epoch. `waits_in` is such as "read" or "lock".
    """

    def __init__(self, process: LookedAt, marks: Marks, *, trains: bool = False) -> None:
        threads = () if process.stacks is None else process.stacks.threads
        thread = None if process.stacks is None else process.stacks.main
        if trains:
            thread = next((each for each in threads if asks(each.stacks[-1], marks)), thread)
        else:
            marks = replace(marks, functions=marks.functions + POOLS)
        stack = () if thread is None else thread.stacks[-1]
        self.process, self.pid, self.frames = process, process.pid, own_frames(stack)
        self.activities = marks.read(self.frames).activities
        tid = None if thread is None else thread.tid
        state = next((each for each in process.threads if each.tid == tid), process.main)
        self.state = state or ThreadFigures(process.pid, "", None)
        names = [each.name for each in threads if each.tid != process.pid]
        self.has_threads = any(not NO_LOCKS.match(name) for name in names)
        self.is_forked = any(frame.file.endswith(FORK) for frame in stack)
        self.worker = None if trains else marks.number(self.frames, "worker")
        states = {"asks": "idle", "sends": "sending", "loads": "starting"}
        is_new = any(frame.file.endswith(SPAWN) for frame in self.frames)
        self.what = "starting" if is_new else "other"
        if self.worker is not None or {"fetches", "collates"} & {*self.activities}:
            self.what = states.get(self.activities[-1], "fetching")
        loads = self.what in {"fetching", "sending"} and not trains
        self.batch = marks.number(self.frames, "batch") if loads else None
        self.sample = marks.number(self.frames, "sample") if self.what == "fetching" else None
        self.waits_in = self._waits_in()
        variables = (text for frame in self.frames for _, text in frame.variables)
        self.awaits_loop = any(map(EVENT_LOOP.match, variables))
        own = [frame for frame in self.frames if not STANDARD.search(frame.file)]
        line = next((frame for frame in own if PACKAGES not in frame.file), next(iter(own), None))
        self.line = None if line is None else frame_text(line)
        is_deeper = bool(self.frames) and self.frames[0] is not line
        self.called = frame_text(self.frames[0]) if is_deeper else None

    def _waits_in(self) -> str:
        state, call = self.state.state, self.state.call
        if state in {"R", "T", "t"}:
            return "nothing" if state == "R" else "stopped"
        if call in SLEEPS:
            return "sleep"
        if call != "futex":
            # D is of a disk or a network file system.
            is_known = state == "D" or call is not None
            return "write" if call in WRITES else "read" if is_known else "unknown"
        # Locks, queues and other threads are waited for by a futex.
        file = self.frames[0].file if self.frames else ""
        if file.endswith(QUEUES) or self.state.path == SHARED:
            return "queue" if file.endswith(QUEUES) else "shared lock"
        return "thread" if file.endswith(THREADING) else "lock"

    def cause(self, look: Look) -> str:  # noqa: PLR0911 - one question after another
        """Why the batch that it owes does not come, if it does not move."""
        waits_in, path = self.waits_in, self.state.path or ""
        if waits_in in {"nothing", "stopped"}:
            return "slow" if waits_in == "nothing" else "stopped"
        if self.what in {"starting", "idle", "sending"}:  # of the latter the batch is on the way
            return "starting" if self.what == "starting" else "unknown"
        if waits_in == "sleep":
            return "sleeping"
        if waits_in == "read" and path.startswith("pipe:") and not self.has_threads:
            others = (each for each in (look.training, *look.others) if each is not self.process)
            if not any((path, True) in each.pipes for each in others):
                return "killed"  # nobody can write to it
        puts = waits_in == "queue" and (self.called or "").endswith("put")
        if puts or (waits_in == "write" and path.startswith(("pipe:", "socket:"))):
            return "full"
        if waits_in in {"read", "write"}:
            return "io"
        if waits_in in {"lock", "thread"} and self.is_forked and not self.has_threads:
            return "forked loop" if self.awaits_loop else f"forked {waits_in}"
        return "unknown" if waits_in == "unknown" else "lock"


def asks(frames: Sequence[Frame], marks: Marks) -> bool:
    """Whether a thread of the training process waits for a batch, or begins an epoch."""
    frames = own_frames(frames)
    is_served = any(frame.file.endswith(SERVING) for frame in frames)
    return is_served or bool({"waits", "starts"} & {*marks.read(frames).activities})


def frame_text(frame: Frame) -> str:
    """A frame as `data.py:31 Photographs.__getitem__`."""
    parts = frame.file.split("/")
    file = "/".join(parts[-2 if parts[-1] == "__init__.py" else -1 :])
    return f"{file}:{frame.line} {frame.function}"


def call_text(thread: ThreadFigures) -> str | None:
    """The system call that a thread is in, what it is of, and the kernel's function."""
    of, wchan = thread.path and f" of {thread.path}", thread.wchan and f" ({thread.wchan})"
    return thread.call and f"{thread.call}{of or ''}{wchan or ''}"


def hang_of(looks: Sequence[Look], marks: Marks, silent_ns: int) -> Hang:
    """Why a training got no batch for `silent_ns`, by two looks at it some time apart.

    By `marks` adapters know who loads, and who waits.
    """
    first, last = looks
    training, below, owner, cause = _suspect(last, marks)
    _, _, before, cause_before = _suspect(first, marks)
    elapsed_s = last.time_s - first.time_s
    places = [(each.pid, each.worker, each.batch, each.sample) for each in (before, owner)]
    is_same = places[0] == places[1]
    # Processes are looked at one after the other: one may have ended, as at the end of an epoch.
    moved = (
        not is_same
        or before.line != owner.line
        or (cause_before == "killed") is not (cause == "killed")
    )
    woken = (owner.state.sleeps or 0) - (before.state.sleeps or 0) > WAKES_PER_S * elapsed_s
    used_ns = _cpu_ns(last, owner.pid) - _cpu_ns(first, owner.pid)
    goes_on = moved or woken or used_ns > BUSY * 1e9 * elapsed_s
    if cause == "collective":
        # An import of torch.distributed stays at the program's line, and goes on in its own.
        stacks = [[(f.function, f.line) for f in each.frames] for each in (before, owner)]
        cause = "step" if moved or woken or stacks[0] != stacks[1] else cause
    elif cause not in {"step", "unread"} and goes_on:
        cause = "slow"
    # Batches without a number may follow each other with the same sample, or at the same line.
    if owner.batch is None or owner.sample is None:
        is_asleep = owner.batch is not None or before.state.sleeps == owner.state.sleeps
        is_same = is_same and is_asleep and before.line == owner.line
    pid, signal = owner.pid, None
    if cause == "killed" and last.killed:
        pid, signal = last.killed[0]
    idle = (each.worker for each in below if each.what == "idle" and each.worker != owner.worker)
    collective = marks.collective(training.frames) if cause in NOT_LOADING else None
    if cause == "step" and not goes_on and str(owner.called).endswith(" _engine_run_backward"):
        collective = BACKWARD
    says, to_try = CAUSES[cause]
    return Hang(
        cause,
        silent_ns,
        training.pid,
        says.format(collective=collective, why=NO_STACKS.get(owner.process.problem or "")),
        to_try,
        pid=pid,
        worker=owner.worker,
        batch=owner.batch,
        sample=owner.sample,
        line=owner.line,
        called=owner.called,
        call=call_text(owner.state),
        idle=tuple(sorted(each for each in idle if each is not None)),
        signal=signal,
        collective=collective,
        seen_ns=round(1e9 * elapsed_s),
        stays=is_same and before.what == owner.what == "fetching" and cause != "killed",
    )


def _suspect(look: Look, marks: Marks) -> tuple[Activity, list[Activity], Activity, str]:
    """Training, what is below it, who of them owes the batch, and why, if that does not move."""
    training = Activity(look.training, marks, trains=True)
    below = [Activity(process, marks) for process in look.others]
    owner, cause = training, ""
    number = marks.number(training.frames, "owed by")
    starting = [each for each in below if each.what == "starting"]
    fetching = [each for each in below if each.what == "fetching"]
    loading = [each for each in fetching if each.worker is not None]
    unread = [each for each in (training, *below) if each.process.stacks is None]
    if number is not None:
        loading = [each for each in below if each.worker == number]
        starting = [each for each in starting if each.worker is None and not loading]
    if training in unread:
        cause = "unread"
    elif not asks(training.frames, marks):
        cause = "collective" if marks.collective(training.frames) else "step"
    elif starting or loading:
        owner = [*starting, *loading][0]
    elif number is not None:
        owner, cause = (unread[0], "unread") if unread else (training, "killed")
    elif "awaits" in training.activities:  # none of them owes anything
        cause = "unknown"
    elif fetching:  # a process of the program's own
        owner = fetching[0]
    else:
        cause = training.cause(look)
        asks_pool = any(frame.file.endswith(POOL) for frame in training.frames)
        is_lost = look.killed or (training.waits_in == "thread" and asks_pool)
        if cause not in NO_HANG and is_lost:
            cause = "killed"
    return training, below, owner, cause or owner.cause(look)


def _cpu_ns(look: Look, pid: int) -> int:
    """CPU time of a process' threads, but for ours, and of all processes below it."""
    family, total = {pid}, 0
    for process in (look.training, *look.others):  # parents come before their children
        if {process.pid, process.parent} & family:
            family.add(process.pid)
            stacks = () if process.stacks is None else process.stacks.threads
            ours = {each.tid for each in stacks if each.name.startswith("loadeval")}
            total += sum(each.cpu_ns or 0 for each in process.threads if each.tid not in ours)
    return total


def hang_of_job(hangs: Sequence[Hang], world_size: int, over: Mapping[int, int]) -> Hang:
    """Of what the ranks of one job wait for, that which the others wait behind.

    A rank that is stuck in its loader, or outside of it, keeps all others waiting in a collective.
    `over` has the batches of the ranks whose epoch is over: for one that had fewer they wait in
    vain, also in a backward pass: DistributedDataParallel's collective is in no stack of Python.
    Where some of `world_size` ranks were not looked at, a collective may yet end.
    """
    for hang in hangs:
        fewer = {r: n for r, n in over.items() if n < (hang.batches or 0)}
        if fewer and (hang.cause == "collective" or hang.collective == BACKWARD):
            rank = min(fewer, key=lambda each: fewer[each])
            (says, to_try), had = CAUSES["uneven"], counted(fewer[rank], "batch", "batches")
            says = says.format(collective=hang.collective)
            says += f": rank {rank} had {had}, and this one {hang.batches:,}"
            return replace(hang, cause="uneven", says=says, to_try=to_try)
    first = min(hangs, key=lambda hang: 2 if hang.cause == "collective" else hang.cause in NO_HANG)
    if first.cause == "collective" and len(hangs) < world_size:
        says, to_try = CAUSES["step"]
        return replace(first, cause="step", says=says, to_try=to_try)
    return first


def headline(hang: Hang) -> str:
    """For how long there was no batch, and why."""
    rank = "" if hang.rank is None else f"rank {hang.rank}: "
    return f"{rank}no batch for {span(hang.silent_ns)}: {hang.who} {hang.says}"


def no_batch_came(hang: Hang) -> str:
    """What held up a training in which no batch came between two looks, and since when."""
    since, who, where = "", hang.who, list[str]()
    if hang.stays and hang.sample is not None:
        where.append(f"on sample {hang.sample}")
    if hang.stays and hang.line is not None:
        where.append(f"in {hang.line}")
    if where:
        name = who if hang.worker is None else f"worker {hang.worker}"
        since = f"{name} is {', '.join(where)}, since before the look began; "
        who = "it" if hang.worker is None else f"it (process {hang.pid})"
    return f"No batch came in the {span(hang.seen_ns)}: {since}{who} {hang.says}."


def rows(hang: Hang, ranks: Sequence[Hang] = (), path: str | None = None) -> list[tuple[str, str]]:
    """What else is known of it, each with its label; `path` is of the file with all stacks."""
    batch = None if hang.batch is None else f"batch {hang.batch:,} of the epoch"
    sample = batch if hang.sample is None else ", in ".join(filter(None, (str(hang.sample), batch)))
    signal = next((each.name for each in Signals if each == hang.signal), f"signal {hang.signal}")
    of_ranks = []
    for rank in ranks if len(ranks) > 1 else ():
        batches = counted(rank.batches or 0, "batch", "batches")
        line = "" if rank.line is None else f", at {rank.line}"
        said = f"{batches}; {rank.collective or f'{rank.who} {rank.says}'}{line}"
        of_ranks.append((f"rank {rank.rank}", said))
    known = [
        ("sample", sample),
        ("line", hang.line),
        ("in", hang.collective or hang.called),
        ("call", hang.call),
        ("killed by", hang.signal and f"{signal} (process {hang.pid})"),
        ("behind it", hang.idle and f"{numbered(hang.idle)} done, waiting"),
        *of_ranks,
        ("to try", hang.to_try),
        ("stacks", path),
    ]
    return [(label, text) for label, text in known if text]


def numbered(workers: Sequence[int]) -> str:
    """Some workers by their numbers."""
    return f"worker{'s' * (len(workers) > 1)} {', '.join(map(str, workers))}"


def stacks_text(ranks: Sequence[Hang], looks: Sequence[Look]) -> str:
    """The stacks of all threads of all processes, as plain text."""
    lines = []
    for hang, look in zip(ranks, looks, strict=True):
        lines += [headline(hang), ""]
        for process in (look.training, *look.others):
            command = " ".join(process.command or ())
            lines.append(f"process {process.pid}, started by {process.parent}: {command}")
            if process.problem is not None:
                lines.append(f"  no stacks: {process.problem}")
            stacks = {} if process.stacks is None else {t.tid: t for t in process.stacks.threads}
            for thread in process.threads:
                stack, call = stacks.get(thread.tid), call_text(thread)
                name = thread.name if stack is None or not stack.name else stack.name
                lines.append(f"  thread {thread.tid} {name}: {thread.state} {call or ''}".rstrip())
                for frame in () if stack is None else stack.stacks[-1]:
                    lines.append(f"    {frame.file}:{frame.line} {frame.function}")
            lines.append("")
        lines += [f"process {pid}: killed by signal {signal}" for pid, signal in look.killed]
    return "\n".join(map(printable, lines)) + "\n"
