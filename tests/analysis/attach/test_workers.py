"""What loads for a training, by stage, by line and by the kernel's figures."""

from __future__ import annotations

import pytest

from loadeval.analysis.attach.marks import Activity
from loadeval.analysis.attach.workers import (
    BlockedIn,
    WorkersReport,
    threads_loading,
    workers_report,
)
from loadeval.analysis.inside.stages import Blockage
from loadeval.probes.observing import ObservedProcess, ProcessGrowth
from loadeval.probes.stacks import ProcessSamples, ThreadSamples
from tests import attached
from tests.attached import MARKS, SOURCES, frame, growth, moment, process

POOL = "/usr/lib/python3.11/concurrent/futures/thread.py"
POOL_WORK = (frame("decode", "/home/me/train/data.py", 7), frame("_worker", POOL, 83))
POOL_IDLE = (frame("_worker", POOL, 81),)


def report(*workers: ObservedProcess) -> WorkersReport:
    seen = workers_report(workers, len(workers), MARKS, SOURCES)
    assert seen is not None
    return seen


def test_a_training_without_workers_has_no_report_of_them() -> None:
    assert workers_report((), 0, MARKS, SOURCES) is None


def test_stages_are_shares_of_the_time_of_all_workers() -> None:
    seen = report(
        process(101, *(attached.FETCH,) * 6, *(attached.COLLATE,) * 2, attached.LOOP),
        process(102, *(attached.ASK,) * 8, *(attached.SEND,) * 3),
    )
    shares = {stage: share.value for stage, share in seen.loading.stages.items()}
    assert shares == {
        Activity.ASKS: 0.4,
        Activity.FETCHES: 0.3,
        Activity.COLLATES: 0.1,
        Activity.SENDS: 0.15,
        Activity.LOADS: 0.05,
    }
    assert seen.count == seen.loading.count == 2


def test_lines_are_shares_of_loading_alone() -> None:
    """What waits or hands over is not in them; the function of a library that is called is."""
    seen = report(process(101, *(attached.FETCH,) * 3, attached.COLLATE, *(attached.ASK,) * 6))
    first, second = seen.loading.lines
    assert (first.place, first.leaf) == ("train/data.py:12 __getitem__", "open")
    assert first.share.value == 0.75
    assert first.function == "__getitem__"
    assert (second.place, second.leaf) == ("train/data.py:40 pad", "")
    assert seen.loading.line == first


def test_a_function_has_the_line_in_which_it_was_seen_most() -> None:
    def at(line: int) -> attached.Stack:
        return (frame("load", "/home/me/train/data.py", line), attached.FETCHING, *attached.LOOP)

    (line,) = report(process(101, at(3), at(4), at(4), at(5))).loading.lines
    assert line.place == "train/data.py:4 load"
    assert line.share.value == 1.0


def test_where_no_line_is_the_programs_it_is_the_librarys_outermost() -> None:
    inner = frame("open", f"{attached.PACKAGES}/PIL/Image.py", 3)
    outer = frame("ImageFolder.__getitem__", f"{attached.PACKAGES}/torchvision/folder.py", 8)
    seen = report(
        process(101, (inner, outer, attached.FETCHING, *attached.LOOP)),
        process(102, (outer, attached.FETCHING, *attached.LOOP)),
    )
    assert {(line.place, line.leaf) for line in seen.loading.lines} == {
        ("torchvision/folder.py:8 __getitem__", "open")
    }


def test_a_fetch_that_calls_nothing_has_no_line() -> None:
    assert report(process(101, (attached.FETCHING, *attached.LOOP))).loading.line is None


def test_a_line_that_was_hardly_seen_is_left_out() -> None:
    seen = report(process(101, *(attached.FETCH,) * 99, attached.COLLATE))
    assert len(seen.loading.lines) == 1


def test_the_times_of_the_kernel_are_shares_of_the_work() -> None:
    """Half of the time they wait for what to load: the rest is work, and of it CPU takes 0.2."""
    stacks = (attached.FETCH, attached.ASK) * 10
    seen = report(process(101, *stacks, growth=growth(0.2, 0.1, read_bytes=500)))
    assert seen.cpu_cores == 0.2
    assert seen.run_queue == pytest.approx(0.2)
    assert seen.blocked == pytest.approx(0.4)
    assert seen.read_bytes_per_s == 500
    assert seen.disk_bytes_per_s is None


@pytest.mark.parametrize(
    "worker",
    [
        process(101, growth=None),
        process(101, growth=growth(0.2)),
        process(101, attached.FETCH, growth=ProcessGrowth(0, 1, 1)),
        process(101, attached.ASK),
    ],
    ids=["nothing", "no stacks", "no time", "no work"],
)
def test_what_cannot_be_told_apart_is_not_known(worker: ObservedProcess) -> None:
    seen = report(worker)
    assert seen.run_queue is None
    assert seen.blocked is None


def test_workers_that_start_anew_in_each_epoch_are_as_many_as_there_are_at_a_time() -> None:
    workers = [process(pid, attached.FETCH, growth=growth(read_bytes=100)) for pid in range(1, 7)]
    seen = workers_report(workers, 2, MARKS, SOURCES)
    assert seen is not None
    assert (seen.count, seen.loading.count) == (2, 2)
    assert seen.read_bytes_per_s == pytest.approx(200)


def test_a_worker_loads_in_another_thread_where_that_is_seen() -> None:
    other = ThreadSamples(7, "loader", (attached.FETCH,) * 2)
    main = ThreadSamples(101, "MainThread", (attached.STEP,) * 2)
    seen = report(process(101, samples=(ProcessSamples(101, (main, other), 0),)))
    assert seen.loading.stages[Activity.FETCHES].value == 1.0


def test_a_worker_that_was_not_seen_to_load_is_in_no_stage() -> None:
    seen = report(process(101, attached.STEP))
    assert seen.loading.stages == {}
    assert seen.loading.asks is None


def test_threads_of_a_pool_load_beside_the_training_thread() -> None:
    main = ThreadSamples(attached.PID, "MainThread", (attached.WAIT,) * 4)
    pool = [
        ThreadSamples(number, f"pool-{number}", (POOL_WORK,) * 3 + (POOL_IDLE,))
        for number in (7, 8)
    ]
    training = process(attached.PID, samples=(ProcessSamples(attached.PID, (main, *pool), 0),))
    seen = threads_loading(training, MARKS, {(POOL, 81): "work_queue.get(block=True)"})
    assert seen is not None
    assert seen.count == 2
    assert seen.stages[Activity.ASKS].value == 0.25
    assert seen.line is not None
    assert seen.line.place == "train/data.py:7 decode"


def test_a_training_process_without_such_threads_has_none() -> None:
    assert threads_loading(process(attached.PID, attached.WAIT), MARKS, SOURCES) is None


def test_where_workers_are_blocked() -> None:
    """The kernel's function, the call and the file, of most moments."""
    reading = moment("folio_wait_bit_common", "D", "pread64", "/data/train.bin")
    seen = report(
        process(
            101,
            attached.FETCH,
            moments=(reading, reading, moment("futex_do_wait"), moment(None, "R")),
        )
    )
    assert seen.blocked_in == BlockedIn(0.5, "folio_wait_bit_common", "pread64", "/data/train.bin")
    assert seen.blockage is Blockage.DISK


def test_waiting_for_what_to_load_is_no_blockage() -> None:
    """In the kernel it is a poll: as many of these as stacks show."""
    polls = (moment("poll_schedule_timeout"),) * 6
    stacks = (attached.FETCH, attached.ASK) * 10
    blocked = report(process(101, *stacks, moments=(*polls, *(moment("futex_do_wait"),) * 4)))
    assert blocked.blocked_in is not None
    assert blocked.blocked_in.kernel == "futex_do_wait"
    assert blocked.blocked_in.call is None
    assert blocked.blockage is Blockage.LOCK
    idle = report(process(101, *(attached.ASK,) * 10, moments=polls))
    assert idle.blocked_in is None
    assert idle.blockage is Blockage.OTHER


def test_what_is_mostly_read_from_the_disk_is_blocked_by_it() -> None:
    """Wherever the kernel says that it sleeps."""
    seen = report(
        process(
            101,
            attached.FETCH,
            growth=growth(read_bytes=1_000_000, disk_read_bytes=900_000),
        )
    )
    assert seen.blockage is Blockage.DISK
