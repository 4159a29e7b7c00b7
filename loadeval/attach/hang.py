"""Why no batch comes: which process owes it, what that one waits in, and whether it ever ends.

Two looks at a training and all processes below it tell, some time apart: what hangs does not move
between them. `Judgement.why` has every cause, with its words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from signal import Signals
from typing import NamedTuple

from loadeval.attach.marks import Marks
from loadeval.attach.process import (
    POLLS,
    POOL,
    Doing,
    StuckAt,
    doing_of,
    frame_text,
    is_in_loader,
    is_of,
)
from loadeval.probes.looks import KernelMemory, Look, LookedAt, with_native_frames
from loadeval.probes.stacks import StackProblem
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
STATES = {"T": "stopped", "Z": "dead", "R": "running", "D": "waiting for a disk", "S": "asleep"}
NO_HANG = {"sleeping": "; that is not called a hang", "slow": "; that is no hang", "step": ""}
"""Causes that may end by themselves, and what is said of them."""
NO_STACKS = {
    StackProblem.NOT_INSTALLED: 'py-spy is not installed: pip install "loadeval[attach]"',
    StackProblem.NOT_PERMITTED: (
        "reading the stacks of another process is not permitted here: use sudo, start the "
        "container with --cap-add SYS_PTRACE, or set sysctl kernel.yama.ptrace_scope=0"
    ),
    StackProblem.GONE: "the process ended before its stack was read",
    StackProblem.NOT_PYTHON: "the process runs no Python program",
    StackProblem.UNSUPPORTED_PYTHON: "this py-spy does not know its Python: pip install -U py-spy",
    StackProblem.TIMEOUT: "py-spy did not answer in time",
    StackProblem.FAILED: "py-spy could not read its stacks",
}
MOST_NAMED = 8
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
        if self.cause in {"collective", "step"}:
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


class Why(NamedTuple):
    """A cause, what the process does in words that follow on its name, and what may help."""

    cause: str
    says: str
    to_try: str = ""


UNKNOWN = Why("unknown", "does nothing, and what it waits for is not known")
SLOW = Why("slow", "is at work")
STEP = Why("step", "has not asked for one: its step has not ended")


def gone(shortage: str | None = None) -> Why:
    """Whoever owed the batch has ended, for want of something perhaps."""
    to_try = (
        "torch's DataLoader and concurrent.futures notice that a worker is gone; "
        "multiprocessing.Pool and a queue of your own do not"
    )
    if shortage == "memory":
        to_try = (
            "the kernel killed it to get memory: take fewer workers, or smaller batches; "
            "loadeval doctor RUN says what they need"
        )
    elif shortage is not None:
        to_try = (
            "shared memory is full: make /dev/shm larger (--shm-size in Docker), or take fewer "
            "workers"
        )
    return Why("killed", "is gone, and its batch never comes", to_try)


class Judgement:
    """What the last of some looks shows, compared with the first.

    `own` is what training does, `below` what each process below it does.
    """

    def __init__(self, looks: Sequence[Look], marks: Marks, before: KernelMemory | None) -> None:
        self.first, self.last = looks[0], looks[-1]
        self.marks, self.before = marks, before
        self.own = doing_of(self.last.training, marks, trains=True)
        self.below = [doing_of(process, marks) for process in self.last.others]
        self.elapsed_s = self.last.time_s - self.first.time_s

    def hang(self, silent_ns: int) -> Hang:  # noqa: C901, PLR0911 - one question after another
        """Which process owes the batch, and why it does not come."""
        own, below, training = self.own, self.below, self.last.training
        hang = Hang(
            "unknown",
            silent_ns,
            own.pid,
            UNKNOWN.says,
            seen_ns=round(1e9 * self.elapsed_s),
            no_stacks=None if training.problem is None else training.problem.value,
        )
        if own.waits_in == "stopped":
            return self._of(hang, own)
        if training.stacks is None:
            # The kernel alone tells which process below is in no call that has an end.
            return self._of(hang, next((p for p in below if p.place.call not in POLLS), own))
        if not is_in_loader(own.frames, self.marks):
            # It is in a step, or in one that waits for other ranks.
            operation, why = self.marks.collective(own.frames), STEP
            if operation is not None and not self.is_woken(own):
                why = Why(
                    "collective",
                    f"waits for other ranks in {operation}, not for its loader",
                    "give each rank as many batches: DistributedSampler, drop_last=True, or "
                    "torch.distributed.algorithms.Join",
                )
            return replace(self._of(hang, own, why), collective=operation)
        number = self.marks.number(own.frames, "owed by")
        workers = [each for each in below if each.worker is not None]
        starting = [each for each in below if each.what == "starting"]
        owner = next((each for each in workers if each.worker == number), None)
        if number is None:
            fetching = (each for each in workers if each.what == "fetching")
            owner = next(iter(starting), next(fetching, None))
        elif owner is None:
            owner = next((each for each in starting if each.worker is None), None)
            unread = [each.problem for each in self.last.others if each.stacks is None]
            if owner is None and unread:
                problem = None if unread[0] is None else unread[0].value
                return replace(hang, worker=number, no_stacks=problem)
            if owner is None:
                return replace(self._killed(hang), worker=number)
        if owner is not None:
            return self._of(hang, owner)
        if self.marks.show(own.frames, "awaits"):  # none of them owes anything
            return self._of(hang, own, UNKNOWN)
        # The training process fetches, perhaps from processes of the program's own.
        busy = next((each for each in below if each.what == "fetching"), None)
        found = self._of(hang, busy or own)
        is_pool_idle = own.waits_in == "thread" and any(is_of(each, POOL) for each in own.frames)
        if busy or found.cause in NO_HANG or not (self.last.killed or is_pool_idle):
            return found
        return self._killed(found)

    def _killed(self, hang: Hang) -> Hang:
        """A process is gone, with the batch that it owed."""
        pid, signal = next(iter(self.last.killed), (None, None))
        now, was = self.last.memory, None if self.before is None else self.before.oom_kills
        free, size = now.free_shared_bytes, now.shared_bytes
        shortage = None
        if was is not None and now.oom_kills not in (None, was):
            shortage = "memory" if signal in (None, KILLED_BY_KERNEL) else None
        if shortage is None and free is not None and size and free < FULL * size:
            shortage = "shared memory" if signal in (None, BUS_ERROR) else None
        why = gone(shortage)
        return replace(hang, pid=pid, signal=signal, shortage=shortage, **why._asdict())

    def _of(self, hang: Hang, owner: Doing, why: Why | None = None) -> Hang:
        """`hang` with what is known of the process that owes the batch."""
        why = why or self.why(owner)
        others = [each for each in self.below if each.worker != owner.worker]
        where = owner.waits_in, owner.place.line
        alike = [each.worker for each in others if (each.waits_in, each.place.line) == where]
        idle = [each.worker for each in others if each.what == "idle"]
        return replace(
            hang,
            **why._asdict(),
            pid=owner.pid,
            worker=owner.worker,
            batch=owner.batch,
            sample=owner.sample,
            waits_in=owner.waits_in,
            place=owner.place,
            idle=tuple(sorted(number for number in idle if number is not None)),
            alike=tuple(sorted(number for number in alike if number is not None)),
            others=self.other_ends(owner),
            stays=self._stays(owner),
        )

    def why(self, it: Doing) -> Why:  # noqa: C901, PLR0911 - one question after another
        """Why the batch that a process owes does not come."""
        waits_in, path = it.waits_in, it.place.path or ""
        if waits_in == "stopped":
            return Why("stopped", "is stopped, by SIGSTOP or a debugger", f"kill -CONT {it.pid}")
        if (waits_in == "nothing" and it.what in {"fetching", "other"}) or self.works(it):
            return SLOW
        if it.what == "starting":
            to_try = "see what its import or worker_init_fn waits for"
            return Why("starting", "has not finished starting", to_try)
        if it.what in {"idle", "sending"}:  # its batch is on the way
            return UNKNOWN
        if waits_in == "sleep":
            return Why("sleeping", "sleeps because its code says so")
        is_pipe = path.startswith("pipe:")
        if waits_in == "read" and is_pipe and not (self.other_ends(it) or it.other_threads):
            return gone()  # nobody can write to it
        puts = waits_in == "queue" and "put" in (it.place.called or "")
        if puts or (waits_in == "write" and path.startswith(("pipe:", "socket:"))):
            return Why(
                "full",
                "cannot put more into a pipe or a queue: it is full, and nobody empties it",
                "let the reader go on, or drop what does not fit",
            )
        if waits_in in {"read", "write"}:
            return Why(
                "io",
                "is stuck in a call that is not answered",
                "give the call a time limit, as with socket.setdefaulttimeout(60) in "
                "worker_init_fn; DataLoader(timeout=600) ends a training that waits for longer",
            )
        is_alone = it.is_forked and not it.other_threads
        if waits_in == "lock" and is_alone:
            return Why(
                "forked lock",
                "waits for a lock that was held when it was forked; nothing in it can release that",
                "start the thread that holds it after the workers, make the lock in the worker, or "
                'pass multiprocessing_context="spawn"',
            )
        if waits_in == "thread" and is_alone:
            return Why(
                "forked thread",
                "waits for a thread that it does not have: a forked process has none of its "
                "parent's",
                "make the pool or the thread in the worker, as worker_init_fn can",
            )
        if waits_in in {"lock", "thread", "shared lock", "queue"}:
            return Why(
                "lock",
                "waits for a lock or for another thread, and nothing moves",
                "the stacks of the other threads and processes show who holds it",
            )
        return UNKNOWN

    def works(self, it: Doing) -> bool:
        """Whether it has moved between the looks, was on a CPU, or has got something."""
        used_ns = self._cpu_ns(self.last, it.pid) - self._cpu_ns(self.first, it.pid)
        return self.is_woken(it) or used_ns > BUSY * 1e9 * self.elapsed_s

    def is_woken(self, it: Doing) -> bool:
        """Whether it has moved, is new, or has got something again and again."""
        was = self._earlier(it)
        wakes = _sleeps(self.last, it.tid) - _sleeps(self.first, it.tid)
        return was is None or was.at != it.at or wakes > WAKES_PER_S * self.elapsed_s

    def _stays(self, it: Doing) -> bool:
        """Whether it was at the same sample of the same batch at the first look.

        At the same line of the same batch, where the sample is not known. Who loads batches that
        have no number may be at another one with the same sample, unless it slept all the time.
        """
        was = self._earlier(it)
        if was is None or it.what != "fetching":
            return False
        if (was.what, was.batch, was.sample) != (it.what, it.batch, it.sample):
            return False
        if it.batch is not None and it.sample is not None:
            return True
        slept = _sleeps(self.first, it.tid) == _sleeps(self.last, it.tid)
        return was.place.line == it.place.line and (it.batch is not None or slept)

    def _earlier(self, it: Doing) -> Doing | None:
        """What it did at the first look; None where it is new."""
        trains = it.pid == self.first.training.state.pid
        looked_at = (self.first.training, *self.first.others)
        found = next((each for each in looked_at if each.state.pid == it.pid), None)
        return None if found is None else doing_of(found, self.marks, trains=trains)

    @staticmethod
    def _cpu_ns(look: Look, pid: int) -> int:
        """CPU time of a process' threads that may load, and of all processes below it."""
        family, total = {pid}, 0
        for process in (look.training, *look.others):  # parents come before their children
            if process.state.pid == pid or process.state.parent in family:
                family.add(process.state.pid)
                stacks = () if process.stacks is None else process.stacks.threads
                idle = {thread.tid for thread in stacks if SUPERVISORS.match(thread.name)}
                threads = [each for each in process.state.threads if each.tid not in idle]
                total += sum(thread.cpu_ns or 0 for thread in threads)
        return total

    def other_ends(self, it: Doing) -> tuple[tuple[int, str], ...]:
        """The other processes that have the other end of the pipe that it reads or writes."""
        end = it.place.path or "", it.waits_in != "write"
        return tuple(
            (each.state.pid, (each.state.main.state if each.state.main else None) or "?")
            for each in (self.last.training, *self.last.others)
            if each is not it.process and end in each.pipes
        )


def _sleeps(look: Look, tid: int) -> int:
    """How often thread `tid` went to sleep until then; 0 where that is not known."""
    return sum(dict(process.sleeps).get(tid, 0) for process in (look.training, *look.others))


def hang_of(
    looks: Sequence[Look],
    marks: Marks,
    silent_ns: int,
    before: KernelMemory | None = None,
) -> Hang:
    """Why a training got no batch for `silent_ns`, by one look at it, or two some time apart.

    Only two looks can tell that nothing moves. By `marks` adapters know who loads, and who
    waits; `before` has the kernel's counts from before the silence.
    """
    last = Judgement(looks, marks, before)
    hang, earlier = last.hang(silent_ns), Judgement(looks[:1], marks, before).hang(silent_ns)

    def who(seen: Hang) -> tuple[object, ...]:
        is_gone = seen.cause == "killed"
        return is_gone, seen.pid, seen.worker, seen.batch, seen.sample, seen.place.line

    # Processes are looked at one after the other: one may have ended, as at the end of an epoch.
    if hang.is_hang and who(hang) != who(earlier):
        hang = replace(hang, **SLOW._asdict())
    if (hang.pid, hang.worker) != (earlier.pid, earlier.worker):
        return replace(hang, stays=False)  # another one owed the batch before
    return hang


def judged(
    looks: Sequence[Look],
    marks: Marks,
    silent_ns: int,
    before: KernelMemory | None = None,
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
        return replace(first, **STEP._asdict())
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
    other_ends = None
    if hang.cause == "full" and (place.path or "").startswith("pipe:"):
        ends = (f"process {pid}, {STATES.get(state, state)}" for pid, state in hang.others)
        other_ends = ", ".join(ends) or "no other process has it open"
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
        ("killed by", None if hang.signal is None else f"{_signal(hang)} (process {hang.pid})"),
        ("behind it", "; ".join(behind)),
        *((f"rank {other.rank}", _of_rank(other)) for other in ranks if len(ranks) > 1),
        ("no stacks", None if hang.no_stacks is None else NO_STACKS[StackProblem(hang.no_stacks)]),
        ("to try", hang.to_try if hang.no_stacks is None else None),
        ("stacks", path),
    ]
    return [(label, text) for label, text in known if text]


def _of_rank(hang: Hang) -> str:
    count = "" if hang.batches is None else f"{counted(hang.batches, 'batch', 'batches')}; "
    line = "" if hang.place.line is None else f", at {hang.place.line}"
    return f"{count}{hang.collective or f'{hang.who} {hang.says}'}{line}"


def _signal(hang: Hang) -> str:
    try:
        return Signals(hang.signal or 0).name
    except ValueError:  # of real-time signals only the first and last have names
        return f"signal {hang.signal}"


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
    state = process.state
    command = "" if redact or state.command is None else f": {' '.join(state.command)}"
    lines = [f"process {state.pid}, started by {state.parent}{command}"]
    stacks = {} if process.stacks is None else {t.tid: t for t in process.stacks.threads}
    if process.problem is not None:
        lines.append(f"  no stacks: {process.problem.value}")
    for thread in state.threads:
        call = "" if thread.call is None else f", in {thread.call.name or thread.call.number}"
        if thread.call is not None and thread.call.path is not None and not redact:
            call += f" of {thread.call.path}"
        stack = stacks.get(thread.tid)
        name = thread.name if stack is None or not stack.name else stack.name
        kernel = "" if thread.wchan is None else f", {thread.wchan}"
        doing = STATES.get(thread.state or "", thread.state or "not known")
        lines.append(f"  thread {thread.tid} {name}: {doing}{call}{kernel}")
        for frame in () if stack is None else stack.frames:
            is_short = frame.native or redact
            place = f"{frame.file}:{frame.line or '?'} {frame.function}"
            lines.append(f"    {frame_text(frame) if is_short else place}")
    return lines
