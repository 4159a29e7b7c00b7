"""Why no batch comes, in lines for a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadeval.analysis.hangs.hang import Cause, Exhausted, Hang
from loadeval.analysis.hangs.stack import StuckAt
from loadeval.probes.looks import Look
from loadeval.probes.stacks import StackProblem
from loadeval.report.terminal.hangs import hang_lines
from loadeval.report.wording.hangs import CAUSES, TO_TRY, no_batch_came, stacks_text
from tests.analysis.hangs.seen import READ, SECOND, fetching, in_call, native, observed, waiting

STUCK = Hang(
    Cause.IO,
    34 * SECOND,
    100,
    pid=7,
    worker=0,
    batch=4,
    sample=9,
    place=StuckAt(
        "data.py:31 Photographs.__getitem__", None, "recv", "recvfrom", "socket:[9]", "wait"
    ),
    idle=(1, 2),
    seen_ns=SECOND,
)


def test_who_where_and_who_waits_behind() -> None:
    assert hang_lines(STUCK, 89, (STUCK,), "logs/hang-1.txt") == [
        "loadeval: no batch for 34 s: worker 0 (process 7) is stuck in a call that is not answered",
        "  sample     9, in batch 4 of the epoch",
        "  line       data.py:31 Photographs.__getitem__",
        "  call       recvfrom of socket:[9] (in recv, wait)",
        "  behind it  workers 1, 2 done, waiting",
        "  to try     give the call a time limit, as with socket.setdefaulttimeout(60) in",
        "             worker_init_fn; DataLoader(timeout=600) ends a training that waits for",
        "             longer",
        "  stacks     logs/hang-1.txt",
    ]


def test_no_line_is_wider_than_the_terminal() -> None:
    lines = hang_lines(replace(STUCK, alike=tuple(range(20))), 60, (STUCK, STUCK), "logs")
    assert max(map(len, lines)) <= 60
    assert any("4, 5, 6, 7 and 12 more" in " ".join(lines[n : n + 2]) for n in range(len(lines)))


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_a_sentence(cause: Cause) -> None:
    """And each that is a hang, whose cause is known, something to try."""
    hang = replace(STUCK, cause=cause, collective="all_reduce")
    assert len(hang_lines(hang, 200)[0]) > len("loadeval: no batch for 34 s: ")
    assert cause in CAUSES
    assert (cause in TO_TRY) is (hang.is_hang and cause is not Cause.UNKNOWN)


def said(**changes: object) -> str:
    return "\n".join(hang_lines(replace(STUCK, **changes), 200))  # type: ignore[arg-type]  # any of them


def test_where_it_stays_since_before_the_look() -> None:
    stuck = replace(STUCK, stays=True, seen_ns=10 * SECOND)
    at = "data.py:31 Photographs.__getitem__, since before the look began"
    asleep = "it sleeps because its code says so"
    why = "it (process 7) is stuck in a call that is not answered"
    for known, said in (
        (stuck, f"worker 0 is on sample 9, in {at}; {why}"),
        (replace(stuck, sample=None), f"worker 0 is on batch 4 of the epoch, in {at}; {why}"),
        (
            replace(stuck, pid=100, worker=None, batch=None, cause=Cause.SLEEPING),
            f"the training process (process 100) is on sample 9, in {at}; {asleep}",
        ),
        (
            replace(stuck, stays=False, cause=Cause.KILLED),
            "a process that loads is gone, and its batch never comes",
        ),
    ):
        assert no_batch_came(known) == f"No batch came in the 10 s: {said}."


def test_a_process_that_was_killed() -> None:
    """By which signal, and what there was too little of."""
    text = said(cause=Cause.KILLED, pid=9, signal=9, shortage=Exhausted.MEMORY)
    assert "killed by  SIGKILL (process 9)" in text
    assert "to try     the kernel killed it to get memory" in text
    text = said(cause=Cause.KILLED, pid=None, signal=40, shortage=Exhausted.SHARED_MEMORY)
    assert "signal 40" in text
    assert "make /dev/shm larger" in text


def test_who_has_the_other_end() -> None:
    pipe = StuckAt(call="write", path="pipe:[7]")
    text = said(cause=Cause.FULL, place=pipe, others=((5, "T"), (6, "X")))
    assert "other end  process 5, stopped, process 6, X" in text
    assert "no other process has it open" in said(cause=Cause.FULL, place=pipe)
    assert "other end" not in said(cause=Cause.FULL)


def test_ranks_beside_each_other() -> None:
    """What each waits for, and how many batches it had."""
    waits = Hang(
        Cause.COLLECTIVE, SECOND, 1, rank=0, batches=11, collective="all_reduce", seen_ns=SECOND
    )
    stuck = replace(STUCK, rank=1, batches=None)
    lines = hang_lines(stuck, 200, (waits, stuck))
    assert lines[0].startswith("loadeval: rank 1: no batch for 34 s: worker 0")
    assert "  rank 0     11 batches; all_reduce" in lines
    assert "  rank 1     worker 0 (process 7) is stuck in a call" in "\n".join(lines)


def test_a_step_that_waits_for_ranks_elsewhere() -> None:
    """The operation is named, though nobody knows whether it hangs."""
    text = said(cause=Cause.STEP, collective="all_reduce")
    assert "its step has not ended" in text
    assert "in         all_reduce" in text


def test_who_is_meant() -> None:
    assert "the training process (process 100) is stuck" in said(worker=None, pid=100)
    assert "process 8 is stuck" in said(worker=None, pid=8)
    assert "a process that loads is stuck" in said(worker=None, pid=None)
    assert "sample     9\n" in said(batch=None)
    assert "sample     batch 4 of the epoch" in said(sample=None)


def test_without_stacks() -> None:
    """What would allow them stands below."""
    text = said(problem=StackProblem.NOT_INSTALLED)
    assert "what training waits for is not known without stacks" in text
    assert 'no stacks  py-spy is not installed: pip install "loadeval[attach]"' in text
    assert "SYS_PTRACE" in said(problem=StackProblem.NOT_PERMITTED)
    assert "to try" not in text
    assert "no stacks  py-spy did not answer in time" in said(problem=StackProblem.TIMEOUT)
    assert "call" not in said(place=StuckAt(), cause=Cause.SLOW)
    assert "call       not known (wait)" in said(place=StuckAt(wchan="wait"))
    assert "call       read\n" in said(place=StuckAt(call="read"))


def test_all_stacks_as_text() -> None:
    """Each process with its threads, and what each is in."""
    worker = observed(7, fetching(native("recv(int)"), READ), in_call("read", "/data/9.jpg", 5))
    unread = observed(8, None, problem=StackProblem.FAILED, threads=("pool",))
    training = observed(100, waiting(), None, None, parent=1)
    look = Look(1.0, training, (worker, unread), killed=((9, 9),))
    text = stacks_text([STUCK], [look], redact=False)
    assert text.startswith("no batch for 34 s: worker 0 (process 7) is stuck in a call")
    assert "process 7, started by 100: python train.py" in text
    assert "  thread 7 MainThread: asleep, in read of /data/9.jpg, a_function\n    recv\n" in text
    assert "    /home/me/data.py:31 Photographs.__getitem__" in text
    assert "  no stacks: failed" in text
    assert "  thread 1008 pool: asleep\n" in text
    assert "  thread 100 MainThread: not known, a_function" in text
    assert "process 9: killed by signal 9" in text
    redacted = stacks_text([STUCK], [look], redact=True)
    assert "/home/me" not in redacted
    assert "/data" not in redacted
    assert "    data.py:31 Photographs.__getitem__" in redacted
