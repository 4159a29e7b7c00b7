"""Why no batch comes, in words, and the stacks of all that were looked at."""

from __future__ import annotations

from signal import Signals
from typing import TYPE_CHECKING

from loadeval.analysis.hangs.hang import Cause, Exhausted
from loadeval.analysis.hangs.stack import text_of
from loadeval.report.formatting import counted, printable
from loadeval.report.wording.attach import NO_STACKS
from loadeval.words import span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.hangs.hang import Hang
    from loadeval.probes.looks import Look, LookedAt
    from loadeval.probes.stacks import Frame

CAUSES = {
    Cause.IO: "{who} is stuck in a call that is not answered",
    Cause.FORKED_LOCK: (
        "{who} waits for a lock that was held when it was forked; nothing in it can release that"
    ),
    Cause.FORKED_THREAD: (
        "{who} waits for a thread that it does not have: a forked process has none of its parent's"
    ),
    Cause.LOCK: "{who} waits for a lock or for another thread, and nothing moves",
    Cause.FULL: "{who} cannot put more into a pipe or a queue: it is full, and nobody empties it",
    Cause.KILLED: "a process that loads is gone, and its batch never comes",
    Cause.COLLECTIVE: "training waits for other ranks in {collective}, not for its loader",
    Cause.STARTING: "{who} has not finished starting",
    Cause.STOPPED: "{who} is stopped, by SIGSTOP or a debugger",
    Cause.UNKNOWN: "{who} does nothing, and what it waits for is not known",
    Cause.SLEEPING: "{who} sleeps because its code says so",
    Cause.SLOW: "{who} is at work",
    Cause.STEP: "training has not asked for one: its step has not ended",
}
NO_HANG = {Cause.SLEEPING: "; that is not called a hang", Cause.SLOW: "; that is no hang"}
TO_TRY = {
    Cause.IO: (
        "give the call a time limit, as with socket.setdefaulttimeout(60) in worker_init_fn; "
        "DataLoader(timeout=600) ends a training that waits for longer"
    ),
    Cause.FORKED_LOCK: (
        "start the thread that holds it after the workers, make the lock in the worker, or pass "
        'multiprocessing_context="spawn"'
    ),
    Cause.FORKED_THREAD: "make the pool or the thread in the worker, as worker_init_fn can",
    Cause.LOCK: "the stacks of the other threads and processes show who holds it",
    Cause.FULL: "let the reader go on, or drop what does not fit",
    Cause.KILLED: (
        "torch's DataLoader and concurrent.futures notice that a worker is gone; "
        "multiprocessing.Pool and a queue of your own do not"
    ),
    Cause.COLLECTIVE: (
        "give each rank as many batches: DistributedSampler, drop_last=True, or "
        "torch.distributed.algorithms.Join"
    ),
    Cause.STARTING: "see what its import or worker_init_fn waits for",
    Cause.STOPPED: "kill -CONT {pid}",
}
SHORTAGES = {
    Exhausted.MEMORY: (
        "the kernel killed it to get memory: take fewer workers, or smaller batches; loadeval "
        "doctor RUN says what they need"
    ),
    Exhausted.SHARED_MEMORY: (
        "shared memory is full: make /dev/shm larger (--shm-size in Docker), or take fewer workers"
    ),
}
WITHOUT_STACKS = "what training waits for is not known without stacks"
STATES = {"T": "stopped", "Z": "dead", "R": "running", "D": "waiting for a disk", "S": "asleep"}
ABORTED = "loadeval: ended the program, which hung, for --abort-on-hang"


def headline(hang: Hang) -> str:
    """For how long there was no batch, and why."""
    who, rank = _who(hang), "" if hang.rank is None else f"rank {hang.rank}: "
    why = CAUSES[hang.cause].format(who=who, collective=hang.collective)
    why += NO_HANG.get(hang.cause, "")
    if hang.problem is not None:
        why = WITHOUT_STACKS
    return printable(f"{rank}no batch for {span(hang.silent_ns)}: {why}")


def no_batch_came(hang: Hang) -> str:
    """What held up a training in which no batch came between two looks, and since when."""
    who, where = _who(hang), []
    if hang.stays and hang.sample is not None:
        where.append(f"on sample {hang.sample}")
    elif hang.stays and hang.batch is not None:
        where.append(f"on batch {hang.batch:,} of the epoch")
    if hang.stays and hang.place.line is not None:
        where.append(f"in {hang.place.line}")
    since = ""
    if where:
        name = who if hang.worker is None else f"worker {hang.worker}"
        since = f"{name} is {', '.join(where)}, since before the look began; "
        who = "it" if hang.worker is None else f"it (process {hang.pid})"
    why = CAUSES[hang.cause].format(who=who, collective=hang.collective)
    return printable(f"No batch came in the {span(hang.seen_ns)}: {since}{why}.")


def owed_by(hang: Hang) -> str:
    """Which worker owes the batch that training waits for, and which ones are done."""
    return f"{_who(hang)}, at the end of the look; {_workers(hang.idle)} done"


def _who(hang: Hang) -> str:
    process = "" if hang.pid is None else f" (process {hang.pid})"
    if hang.worker is not None:
        return f"worker {hang.worker}{process}"
    if hang.pid == hang.training:
        return f"the training process{process}"
    return "a process that loads" if hang.pid is None else f"process {hang.pid}"


def rows(hang: Hang, ranks: Sequence[Hang] = (), path: str | None = None) -> list[tuple[str, str]]:
    """What else is known of it, each with its label."""
    known = [
        ("sample", _sample(hang)),
        ("line", hang.place.line),
        ("in", hang.collective or hang.place.called),
        ("call", _call(hang)),
        ("other end", _other_ends(hang)),
        ("killed by", _killed_by(hang)),
        ("behind it", _behind(hang)),
        *((f"rank {other.rank}", _of_rank(other)) for other in ranks if len(ranks) > 1),
        ("no stacks", None if hang.problem is None else NO_STACKS[hang.problem]),
        ("to try", _to_try(hang)),
        ("stacks", path),
    ]
    return [(label, printable(text)) for label, text in known if text]


def _sample(hang: Hang) -> str | None:
    batch = None if hang.batch is None else f"batch {hang.batch:,} of the epoch"
    if hang.sample is None:
        return batch
    return f"{hang.sample}" if batch is None else f"{hang.sample}, in {batch}"


def _call(hang: Hang) -> str | None:
    place = hang.place
    if place.call is None and place.wchan is None:
        return None
    call = f"{place.call or 'not known'}{'' if place.path is None else f' of {place.path}'}"
    inside = [f"in {place.native}" if place.native else "", place.wchan or ""]
    details = ", ".join(filter(None, inside))
    return f"{call} ({details})" if details else call


def _other_ends(hang: Hang) -> str | None:
    if hang.cause is not Cause.FULL or not (hang.place.path or "").startswith("pipe:"):
        return None
    if not hang.others:
        return "no other process has it open"
    return ", ".join(f"process {pid}, {STATES.get(state, state)}" for pid, state in hang.others)


def _killed_by(hang: Hang) -> str | None:
    if hang.signal is None:
        return None
    try:
        name = Signals(hang.signal).name
    except ValueError:  # of real-time signals only the first and last have names
        name = f"signal {hang.signal}"
    return f"{name} (process {hang.pid})"


def _behind(hang: Hang) -> str | None:
    parts = [
        f"{_workers(numbers)} {what}"
        for numbers, what in (
            (hang.idle, "done, waiting" if hang.is_stuck else "done"),
            (hang.alike, "at the same line"),
        )
        if numbers
    ]
    return "; ".join(parts) or None


def _workers(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:8]))
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""  # noqa: PLR2004 - as many
    return f"worker {named}{more}" if len(numbers) == 1 else f"workers {named}{more}"


def _of_rank(hang: Hang) -> str:
    count = "" if hang.batches is None else f"{counted(hang.batches, 'batch', 'batches')}; "
    what = hang.collective or CAUSES[hang.cause].format(who=_who(hang), collective="")
    line = "" if hang.place.line is None else f", at {hang.place.line}"
    return f"{count}{what}{line}"


def _to_try(hang: Hang) -> str | None:
    if hang.problem is not None:
        return None
    if hang.shortage is not None:
        return SHORTAGES[hang.shortage]
    advice = TO_TRY.get(hang.cause)
    return None if advice is None else advice.format(pid=hang.pid)


def stacks_text(ranks: Sequence[Hang], looks: Sequence[Look], *, redact: bool) -> str:
    """The stacks of all threads of all processes, as plain text.

    With `redact` there are no command lines and no folders.
    """
    parts = []
    for hang, look in zip(ranks, looks, strict=True):
        parts.append(f"{headline(hang)}\n")
        parts += [_process(process, redact=redact) for process in (look.training, *look.others)]
        parts += [f"process {pid}: killed by signal {signal}\n" for pid, signal in look.killed]
    return "\n".join(parts)


def _process(process: LookedAt, *, redact: bool) -> str:
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
        lines += [
            f"    {_frame(frame, redact=redact)}"
            for frame in (() if stack is None else stack.frames)
        ]
    return "\n".join(map(printable, lines)) + "\n"


def _frame(frame: Frame, *, redact: bool) -> str:
    if frame.native or redact:
        return text_of(frame)
    return f"{frame.file}:{frame.line or '?'} {frame.function}"
