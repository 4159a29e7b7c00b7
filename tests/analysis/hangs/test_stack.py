"""What a process does, by the frames of its threads and the kernel's figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadeval.analysis.attach.marks import Marks, Told, marks_of
from loadeval.analysis.hangs.stack import (
    Doing,
    StuckAt,
    WaitsIn,
    collective_of,
    is_in_loader,
    of_process,
    of_training,
    others_of,
    own_frames,
    text_of,
    training_stack,
    waits_in,
)
from loadeval.probes.stacks import Frame, ProcessStacks, ThreadStack
from tests.analysis.hangs.seen import (
    CONDITION,
    FORKED,
    LOGGING,
    PACKAGES,
    POLL,
    READ,
    SPAWNED,
    STANDARD,
    TORCH,
    TRAINING,
    fetching,
    frame,
    idle,
    in_call,
    loading_itself,
    loop,
    native,
    observed,
    waiting,
)
from tests.attached import MARKS

OURS = f"{PACKAGES}/loadeval_adapters/pytorch_worker.py"
COLLECTIVE = f"{PACKAGES}/torch/distributed/distributed_c10d.py"


def test_a_forked_process_has_its_parents_frames_below() -> None:
    """What its parent was doing when it forked is not what it does."""
    process = observed(7, fetching(READ))
    assert process.stacks is not None
    frames = own_frames(process.stacks.main)
    assert frames[-1] == loop(0, idx=4)
    assert own_frames(None) == ()
    assert of_process(process, MARKS).is_forked
    assert not of_process(observed(7, fetching(READ, below=SPAWNED)), MARKS).is_forked


@pytest.mark.parametrize(
    ("frames", "doing", "batch", "sample"),
    [
        (fetching(READ), Doing.FETCHING, 4, 9),
        (fetching(READ, sample="'a key'"), Doing.FETCHING, 4, None),
        ((frame("fetch", f"{TORCH}/_utils/fetch.py"), loop(0, idx=4)), Doing.FETCHING, 4, None),
        (idle(0), Doing.IDLE, None, None),
        (
            (frame("Queue.put", f"{STANDARD}/multiprocessing/queues.py"), loop(0, idx=4)),
            Doing.SENDING,
            4,
            None,
        ),
        ((READ, loop(0)), Doing.STARTING, None, None),
        ((loop(0),), Doing.STARTING, None, None),
        ((READ, *SPAWNED), Doing.STARTING, None, None),
        ((READ, *FORKED), Doing.OTHER, None, None),
        ((), Doing.OTHER, None, None),
        (None, Doing.OTHER, None, None),
    ],
)
def test_what_a_worker_does(
    frames: tuple[Frame, ...] | None, doing: Doing, batch: int | None, sample: int | None
) -> None:
    loading = of_process(observed(7, frames), MARKS)
    assert (loading.doing, loading.batch, loading.sample) == (doing, batch, sample)


@pytest.mark.parametrize(
    ("function", "variables", "sample"),
    [
        ("map_fetch", {"sample_index": 12}, 12),
        ("map_fetch", {"sample_index": 12, "read": 5}, None),
        ("iterable_fetch", {"place": 3}, 3),
        ("whole_fetch", {}, None),
    ],
)
def test_the_sample_where_we_time_the_worker(
    function: str, variables: dict[str, int], sample: int | None
) -> None:
    """Of a batch that is collated there is none."""
    frames = (READ, frame(function, OURS, **variables), loop(1, idx=6), *FORKED)
    loading = of_process(observed(7, frames), MARKS)
    expected = (Doing.FETCHING, 1, 6, sample)
    assert (loading.doing, loading.worker, loading.batch, loading.sample) == expected


def test_the_workers_of_another_framework() -> None:
    """What its adapter declares is enough."""
    file = "toy/loader.py"
    marks = marks_of(
        [
            (file, "work", "loads", "", "ToyLoader"),
            (file, "work", "asks", "tasks.take(", "ToyLoader"),
            (file, "work", "sends", "results.offer(", "ToyLoader"),
            (file, "read", "fetches", "", "ToyLoader"),
        ],
        [(file, "work", "worker", "rank"), (file, "work", "batch", "step")],
    )
    work = frame("work", f"{PACKAGES}/{file}", rank=2, step=5)
    called = {
        Doing.IDLE: frame("Tasks.take", f"{PACKAGES}/{file}"),
        Doing.SENDING: frame("Results.offer", f"{PACKAGES}/{file}"),
        Doing.FETCHING: frame("read", f"{PACKAGES}/{file}"),
        Doing.STARTING: frame("connect", f"{PACKAGES}/{file}"),
    }
    for doing, inner in called.items():
        loading = of_process(observed(7, (READ, inner, work, *FORKED)), marks)
        assert (loading.doing, loading.worker) == (doing, 2)
        assert loading.batch == (5 if doing in (Doing.SENDING, Doing.FETCHING) else None)


@pytest.mark.parametrize(
    ("file", "function"),
    [("multiprocessing/pool.py", "worker"), ("concurrent/futures/process.py", "_process_worker")],
)
def test_a_process_of_a_pool_is_idle_or_loads(file: str, function: str) -> None:
    member = frame(function, f"{STANDARD}/{file}")
    assert of_process(observed(7, (*POLL, member, *FORKED)), MARKS).doing is Doing.IDLE
    assert of_process(observed(7, (READ, member, *FORKED)), MARKS).doing is Doing.FETCHING
    assert of_process(observed(7, (member, *FORKED)), MARKS).doing is Doing.FETCHING


@pytest.mark.parametrize(
    ("call", "state", "frames", "waits"),
    [
        ("recvfrom", "S", (READ,), WaitsIn.READ),
        ("write", "S", (READ,), WaitsIn.WRITE),
        ("clock_nanosleep", "S", (READ,), WaitsIn.SLEEP),
        ("sched_yield", "S", (READ,), WaitsIn.UNKNOWN),
        (None, "S", (READ,), WaitsIn.UNKNOWN),
        (None, "R", (READ,), WaitsIn.NOTHING),
        (None, "D", (READ,), WaitsIn.READ),
        ("recvfrom", "T", (READ,), WaitsIn.STOPPED),
        ("futex", "S", (LOGGING,), WaitsIn.LOCK),
        ("futex", "S", (), WaitsIn.LOCK),
        ("futex", "S", (CONDITION,), WaitsIn.THREAD),
        ("futex", "S", (POLL[1],), WaitsIn.QUEUE),
        ("futex", "S", (native("_multiprocessing_SemLock_acquire"), READ), WaitsIn.SHARED_LOCK),
        (
            "futex",
            "S",
            (frame("SemLock.__enter__", f"{STANDARD}/multiprocessing/synchronize.py"),),
            WaitsIn.SHARED_LOCK,
        ),
        ("read", None, (), WaitsIn.READ),
    ],
)
def test_what_a_thread_waits_in(
    call: str | None, state: str | None, frames: tuple[Frame, ...], waits: WaitsIn
) -> None:
    process = observed(7, frames, call, state)
    assert waits_in(process.state.main, frames) is waits


def test_nothing_is_known_of_a_thread_that_is_gone() -> None:
    assert waits_in(None, ()) is WaitsIn.UNKNOWN


def test_a_place_has_the_programs_own_line() -> None:
    """And what it has called, the system call, and the other end of the connection."""
    call = in_call("recvfrom", "socket:[9]", 5)
    inner = frame("socket.readinto", f"{STANDARD}/socket.py", 706)
    client = frame("get", f"{PACKAGES}/requests/api.py")
    frames = fetching(native("0x7f12"), native("recv(int)"), inner, client, READ)
    process = observed(7, frames, call, connections=((5, "10.0.0.1:443"),))
    assert of_process(process, MARKS).place == StuckAt(
        line="data.py:31 Photographs.__getitem__",
        called="socket.py:706 socket.readinto",
        native="recv",
        call="recvfrom",
        path="socket:[9] connected to 10.0.0.1:443",
        wchan="a_function",
    )


def test_a_place_in_an_installed_package() -> None:
    """Where no line is the program's own; a file has no other end."""
    package = frame("load", f"{PACKAGES}/PIL/Image.py", 9)
    process = observed(7, fetching(package), in_call("read", "/data/9.jpg", 5))
    place = of_process(process, MARKS).place
    assert (place.line, place.called, place.native) == ("Image.py:9 load", None, None)
    assert place.path == "/data/9.jpg"


def test_a_place_without_frames() -> None:
    process = observed(7, None, None)
    assert of_process(process, MARKS).place == StuckAt(wchan="a_function")
    nothing = replace(process, state=replace(process.state, threads=()))
    assert of_process(nothing, MARKS).place == StuckAt()


def test_frames_as_text() -> None:
    assert text_of(LOGGING) == "logging/__init__.py:927 Handler.acquire"
    assert text_of(frame("run", "/a/b.py", None)) == "b.py run"
    assert text_of(native("std::wait<int>(char)")) == "std::wait"


def test_the_training_thread_need_not_be_the_main_one() -> None:
    """It is the one that is in the loader, else the main one."""
    main = ThreadStack(TRAINING, "MainThread", (CONDITION,))
    beside = ThreadStack(TRAINING + 1000, "trains", waiting(worker_id=1))
    process = observed(TRAINING, (), threads=("trains",))
    both = replace(process, stacks=ProcessStacks(TRAINING, (main, beside)))
    assert training_stack(both, MARKS) is beside
    loading = of_training(both, beside, MARKS)
    assert (loading.doing, loading.waits) == (Doing.OTHER, WaitsIn.UNKNOWN)
    alone = replace(process, stacks=ProcessStacks(TRAINING, (main,)))
    assert training_stack(alone, MARKS) is main
    assert training_stack(observed(TRAINING, None), MARKS) is None
    assert of_training(observed(TRAINING, None), None, MARKS).waits is WaitsIn.READ


def test_a_training_that_loads_itself() -> None:
    process = observed(TRAINING, loading_itself(READ), "read")
    assert of_training(process, training_stack(process, MARKS), MARKS).doing is Doing.FETCHING


def test_who_is_in_the_loader() -> None:
    """Who asks it for a batch or an epoch, or is served by us; not the thread that pins batches."""
    pins = frame("_pin_memory_loop", f"{TORCH}/_utils/pin_memory.py")
    serves = frame("_part", "/home/me/loadeval/runtime/serving/loop.py")
    assert is_in_loader(waiting(), MARKS)
    assert is_in_loader((frame("DataLoader.__iter__", f"{TORCH}/dataloader.py"),), MARKS)
    assert is_in_loader((serves,), Marks())
    assert not is_in_loader((native("__next__"), pins), MARKS)
    assert not is_in_loader((frame("fetch", f"{TORCH}/_utils/fetch.py"), READ), MARKS)
    assert MARKS.number(waiting(worker_id=1), Told.OWED_BY) == 1
    assert MARKS.number(waiting(), Told.OWED_BY) is None


@pytest.mark.parametrize(
    ("frames", "operation"),
    [
        ((frame("all_reduce", COLLECTIVE), frame("wrapper", COLLECTIVE)), "all_reduce"),
        ((frame("wrapper", COLLECTIVE),), None),
        ((frame("init_process_group", COLLECTIVE),), None),
        ((native("c10d::Work::wait"), READ), "c10d::Work::wait"),
        ((READ,), None),
    ],
)
def test_collectives(frames: tuple[Frame, ...], operation: str | None) -> None:
    assert collective_of(frames, MARKS) == operation


def test_threads_of_torch_and_ours_are_not_the_programs() -> None:
    threads = ("QueueFeederThread", "Thread-1 (_serve)", "loadeval-code", "prefetcher")
    process = observed(7, fetching(READ), threads=threads)
    assert [thread.name for thread in others_of(process)] == ["prefetcher"]
    assert others_of(observed(7, None)) == []
