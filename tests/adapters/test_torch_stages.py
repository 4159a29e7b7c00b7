"""What is found inside a DataLoader: rows, transforms, lines of code, starts and deaths."""

from __future__ import annotations

import copy
import gc
import math
import mmap
import multiprocessing
import multiprocessing.queues
import os
import pickle
import queue
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset
from torch.utils.data import _utils as torch_utils
from torch.utils.data._utils import fetch, pin_memory, signal_handling
from torch.utils.data._utils import worker as torch_workers
from torch.utils.data.dataloader import _BaseDataLoaderIter

from loadeval import LoaderEvaluator, Run, StageNote, StageTimes
from loadeval_adapters.torch_trace import iterators as torch_iterators
from loadeval_adapters.torch_trace import kernel
from loadeval_adapters.torch_trace import worker as torch_worker
from loadeval_adapters.torch_trace.code import Activity, CodeSampler
from loadeval_adapters.torch_trace.iterators import DataLoaderStages
from tests.adapters import stage_datasets as some
from tests.adapters.loaders import recorded
from tests.adapters.stage_datasets import needs_in_order
from tests.runs.tables import rows_of

Tensors = TensorDataset(torch.arange(80.0).reshape(40, 2), torch.arange(40))
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")


def messages(run: Run, kind: str = "stages missing") -> list[str]:
    return [event.message for event in run.events if event.kind == kind]


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    yield
    gc.collect()
    gc.freeze()  # what lives need not be looked at again by the next test
    assert fetch._MapDatasetFetcher.fetch.__module__ == fetch.__name__
    assert pin_memory._pin_memory_loop.__module__ == pin_memory.__name__


def test_each_batch_has_a_row() -> None:
    run = recorded(DataLoader(Tensors, batch_size=8, num_workers=2))
    (stages,) = rows_of(run)
    assert stages.batch.tolist() == [0, 1, 2, 3, 4]
    assert stages.worker.tolist() == [0, 1, 0, 1, 0]
    assert stages.samples.tolist() == [8] * 5
    assert (stages.pin_ns == -1).all()


def test_indices_may_be_negative() -> None:
    """As Python's are; the slowest sample has no number then."""
    loader = DataLoader(Tensors, batch_size=2, sampler=[-1, -2, -3, -4], num_workers=1)
    run = recorded(loader)
    (stages,) = rows_of(run)
    assert messages(run) == []
    assert stages.samples.tolist() == [2, 2]
    assert (stages.slowest_ns >= 0).all()
    assert (stages.slowest_index == -1).all()


def test_three_epochs_of_persistent_workers() -> None:
    loader = DataLoader(Tensors, batch_size=8, num_workers=2, persistent_workers=True)
    run = recorded(loader, epochs=3)
    assert [(stages.epoch, len(stages)) for stages in rows_of(run)] == [(0, 5), (1, 5), (2, 5)]
    assert all((stages.fetch_ns >= 0).all() for stages in rows_of(run))
    assert sorted((start.epoch, start.worker) for start in run.worker_starts) == [(0, 0), (0, 1)]


def test_workers_start_in_each_epoch() -> None:
    run = recorded(DataLoader(Tensors, batch_size=8, num_workers=2), epochs=2)
    starts = run.worker_starts  # each as soon as it is there
    assert {(start.epoch, start.worker) for start in starts} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert all(start.start_ns < start.ready_ns and start.init_ns >= 0 for start in starts)
    assert all(start.starting_ns > 0 for start in starts)


def test_an_epoch_broken_off_by_persistent_workers() -> None:
    loader = DataLoader(Tensors, batch_size=4, num_workers=2, persistent_workers=True)
    with LoaderEvaluator(loader, stages=True) as evaluator:
        assert len(list(islice(evaluator, 2))) == 2
        assert len(list(evaluator)) == 10
    first, second = rows_of(evaluator.recorded())
    assert (len(first), len(second)) == (2, 10)
    assert second.slowest_index.min() >= 0
    assert (second.slowest_index // 4).tolist() == list(range(10))


def test_two_iterators_at_once_without_workers() -> None:
    dataset = some.Picky()
    with LoaderEvaluator(DataLoader(dataset, batch_size=8), stages=True) as evaluator:
        for _ in zip(evaluator, evaluator, strict=True):
            pass
    assert [len(stages) for stages in rows_of(evaluator.recorded())] == [5, 5]
    assert "__wrapped__" not in vars(some.Doubled.__call__)


def test_an_abandoned_iterator_ends_its_workers_at_once() -> None:
    gc.collect()
    gc.disable()
    try:
        with LoaderEvaluator(DataLoader(Tensors, num_workers=2), stages=True) as evaluator:
            batches = iter(evaluator)
            next(batches)
            del batches
            assert not multiprocessing.active_children()
    finally:
        gc.enable()
    assert len(rows_of(evaluator.recorded())[0]) == 1


class SlowToBegin(Sampler[int]):
    """Takes 50 ms before its first index."""

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[int]:
        time.sleep(0.05)
        yield from range(8)


@pytest.mark.parametrize(
    "settings", [{}, {"num_workers": 1}, {"num_workers": 2, "persistent_workers": True}]
)
def test_what_a_sampler_takes_before_its_first_index(settings: dict[str, Any]) -> None:
    """It is with the first batch of each epoch, whoever loads; torch's class is as it was after."""
    draw = _BaseDataLoaderIter._next_index
    loader = DataLoader(
        TensorDataset(torch.arange(8)), batch_size=2, sampler=SlowToBegin(), **settings
    )
    evaluator = LoaderEvaluator(loader, stages=True)
    for _ in range(3):
        assert len(list(evaluator)) == 4
    run = evaluator.recorded()
    evaluator.close()
    for times in rows_of(run):
        assert times.index_ns[0] >= 50e6
        assert (times.index_ns[1:] < 50e6).all()
    assert _BaseDataLoaderIter._next_index is draw


@needs_in_order
def test_batches_that_overtake_one_another() -> None:
    loader = DataLoader(some.Slow(), batch_size=1, num_workers=2, in_order=False)
    with LoaderEvaluator(loader, stages=True) as evaluator:
        served = [int(batch) for batch in evaluator]
    (stages,) = rows_of(evaluator.recorded())
    assert served != sorted(served)
    assert stages.slowest_index.tolist() == served


def test_transforms_have_the_names_that_a_user_knows() -> None:
    run = recorded(DataLoader(some.Picky(), batch_size=8, num_workers=1))
    (stages,) = rows_of(run)
    assert list(stages.transform_ns) == [
        *("Slotted", "abs", "shifted", "shifted (2)", "Doubled"),
        *("Doubled (2)", "Registered", "Composed.__call__", "Doubled (3)"),
    ]
    assert (stages.transform_calls["shifted"] == 8).all()


def test_a_line_is_seen_in_its_stage() -> None:
    """However often: what gives up Python's lock is seen more often than what keeps it."""
    loader = DataLoader(some.Busy(), batch_size=8, num_workers=1, collate_fn=some.slowly)
    seen = {
        (sampled.stage, place.partition(" ")[2])
        for sampled in recorded(loader).code
        for place in (*sampled.running, *sampled.blocked)
    }
    assert {stage for stage, function in seen if function.startswith("slowly")} == {"collate"}
    assert {stage for stage, function in seen if function.startswith("Busy")} == {"start", "fetch"}


@pytest.mark.parametrize("persistent", [False, True])
def test_lines_are_seen_as_epochs_start_and_end(persistent: bool) -> None:
    """What a stream does when it is asked for an epoch, and after its last sample."""
    loader = DataLoader(some.Framed(), batch_size=2, num_workers=1, persistent_workers=persistent)
    seen = {
        (sampled.stage, place.partition(" ")[2])
        for sampled in recorded(loader, epochs=2).code
        for place in (*sampled.running, *sampled.blocked)
    }
    told = {stage: {function for at, function in seen if at == stage} for stage, _ in seen}
    assert told["start"] >= {"Framed.open"}
    assert told["end"] == {"Framed.close"}


def test_the_line_is_seen_in_which_a_stream_ends_that_training_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Training waits for it, and the end of the epoch has that time."""
    monkeypatch.setattr(torch_utils, "MP_STATUS_CHECK_INTERVAL", 5.0)  # as torch has it
    loader = DataLoader(some.Closing(), batch_size=2, num_workers=1)
    with LoaderEvaluator(loader, stages=True) as evaluator:
        for _ in range(2):
            next(iter(evaluator))
        run = evaluator.recorded()
    ends = [sampled for sampled in run.code if sampled.stage == "end"]
    places = {place for each in ends for place in (*each.running, *each.blocked)}
    assert {place.partition(" ")[2] for place in places} == {"Framed.close"}
    assert min(end.wait_ns or 0 for end in run.ends) >= 0.25e9


def test_lines_of_code_are_told_without_workers() -> None:
    run = recorded(DataLoader(some.Busy(), batch_size=8))
    places = [place for sampled in run.code for place in sampled.running]
    assert {sampled.worker for sampled in run.code} == {None}
    assert any("stage_datasets.py:" in place and "__getitem__" in place for place in places)


def test_functions_that_lines_call_are_told() -> None:
    run = recorded(DataLoader(some.Parsed(), batch_size=8, num_workers=1))
    calls = {place.partition(" > ")[2] for sampled in run.code for place in sampled.calls}
    assert "json.loads" in calls
    assert sys.version_info < (3, 11) or "torch.tensor" in calls


def test_code_that_keeps_pythons_lock_is_told() -> None:
    run = recorded(DataLoader(some.Greedy(), batch_size=8, num_workers=1))
    counts = {name: n for sampled in run.code for name, n in sampled.running.items()}
    assert sum(n for name, n in counts.items() if "keep_lock" in name) > 0.5 * sum(counts.values())


def sampler_of_this() -> CodeSampler:
    """What looks at this thread, which fetches for ever."""
    activity = Activity()
    activity.thread = threading.get_ident()
    return CodeSampler(activity, sampler_of_this.__code__, in_training=True)


def no_code_is_looked_at() -> None:
    """Any more, once this returns."""
    for thread in threading.enumerate():
        if thread.name == "loadeval-code":
            thread.join(10)


def test_only_a_thread_that_lives_is_asked_for_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask for that of one that has ended may crash the training."""
    clock_of, asked = time.pthread_getcpuclockid, list[int]()

    def noted(thread: int) -> int:
        asked.append(threading.get_ident())
        return clock_of(thread)

    monkeypatch.setattr(time, "pthread_getcpuclockid", noted)
    sampler = sampler_of_this()
    sampler.start(threading.get_ident(), threading.get_native_id())
    sampler.stop()
    no_code_is_looked_at()
    assert asked == [threading.get_ident()]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="not of this Python")
def test_nothing_is_collected_while_frames_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that runs on meanwhile may free them, which ends the process."""
    current_frames, collections = sys._current_frames, list[int]()

    def with_many_objects() -> Any:
        before = gc.get_stats()[0]["collections"]
        assert [[] for _ in range(10 * gc.get_threshold()[0])]
        collections.append(gc.get_stats()[0]["collections"] - before)
        return current_frames()

    monkeypatch.setattr(sys, "_current_frames", with_many_objects)
    sampler = sampler_of_this()
    sampler.start(threading.get_ident(), threading.get_native_id())
    while not sampler.take():
        pass
    sampler.stop()
    no_code_is_looked_at()
    assert set(collections) == {0}
    assert gc.isenabled()


def descriptors() -> list[str]:
    """What is open here.

    Without pipes: torch closes those of its queues later, in threads. And without the memory of
    multiprocessing, which keeps some of it for its next user.
    """
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the folder itself
            names.append(str(descriptor.readlink()))
    return [name for name in names if not name.startswith("pipe:") and "/pym-" not in name]


def left() -> list[str]:
    """What is open once what looked at code has ended."""
    gc.collect()
    no_code_is_looked_at()
    return descriptors()


def left_of_kernel() -> list[str]:
    return [name for name in left() if name.startswith("/proc/")]


@needs_proc
class TestDescriptors:
    """Files that are open in the training process. Each batch is slow enough to be looked at."""

    @pytest.fixture(autouse=True)
    def _all_are_slow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch_worker, "WORTH_NS", 0)

    @pytest.mark.parametrize("how", [{}, {"num_workers": 2}], ids=["training", "workers"])
    def test_they_do_not_grow_with_epochs(self, how: dict[str, Any]) -> None:
        loader = DataLoader(Tensors, batch_size=8, **how)
        recorded(loader)
        before = left()
        recorded(loader, epochs=5)
        assert len(left()) <= len(before)

    def test_none_of_the_kernels_is_left_after_an_epoch(self) -> None:
        before = left_of_kernel()
        with LoaderEvaluator(DataLoader(Tensors, batch_size=8), stages=True) as evaluator:
            batches = iter(evaluator)
            next(batches)
            during = {name.rpartition("/")[2] for name in descriptors()}
            list(batches)
            assert left_of_kernel() == before
        assert during >= {"schedstat", "io"}


@needs_proc
def test_a_forked_worker_copies_the_pages_of_objects_that_it_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it shared when it started it has as its own in the end, page by page."""
    monkeypatch.setattr(kernel, "LEAST_GAP_NS", 0)
    monkeypatch.setattr(kernel, "MEMORY_SHARE", math.inf)
    loader = DataLoader(some.Strings(), batch_size=8, num_workers=1, multiprocessing_context="fork")
    (stages,) = rows_of(recorded(loader))
    first, *_, last = (stages.private_bytes >= 0).nonzero()[0].tolist()
    copied = stages.shared_bytes[first] - stages.shared_bytes[last]
    assert copied > 0.6 * some.Strings.COUNT * mmap.PAGESIZE * last / len(stages)
    assert stages.private_bytes[last] - stages.private_bytes[first] >= 0.8 * copied
    assert stages.minor_faults[: last + 1].sum() * mmap.PAGESIZE >= 0.6 * copied
    assert stages.system_ns[1:].sum() > 0


def test_a_slow_batch_after_quick_ones_has_the_kernels_figures() -> None:
    run = recorded(DataLoader(some.Late(), batch_size=2, num_workers=1))
    (stages,) = rows_of(run)
    assert stages.cpu_ns[-1] >= 0
    assert stages.run_queue_ns[-1] >= 0
    assert stages.cpu_ns[-1] + stages.run_queue_ns[-1] <= 2 * stages.fetch_ns[-1]


def test_blocked_lines_are_told() -> None:
    run = recorded(DataLoader(some.Blocked(), batch_size=2, num_workers=1))
    blocked = {name: n for sampled in run.code for name, n in sampled.blocked.items()}
    running = {name: n for sampled in run.code for name, n in sampled.running.items()}
    assert sum(blocked.values()) > sum(running.values())
    assert "stage_datasets.py:" in max(blocked, key=lambda name: blocked[name])


@pytest.mark.parametrize("workers", [0, 2])
def test_looking_is_paused_and_goes_on_over_epochs(workers: int) -> None:
    """Batches have the numbers that they have in their epoch; while it is paused none is noted."""

    class Plain(Dataset[torch.Tensor]):
        """Tells whether its transform is as it was found."""

        def __init__(self) -> None:
            self.transform = some.Doubled()

        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> torch.Tensor:
            is_timed = some.Doubled.__call__ is not FOUND
            return torch.tensor([self.transform(index), is_timed])

    loader = DataLoader(Plain(), batch_size=2, num_workers=workers)
    stages = DataLoaderStages(lambda loader: loader)
    looks, timed = False, []
    stages.look(looks)
    for number in range(3):
        known = stages.begin(loader)
        iterator = iter(loader)
        known(number)
        for at, batch in enumerate(iterator):
            timed.append((number, at, bool(batch[0, 1])))
            if at in (4, 11):
                looks = not looks
                stages.look(looks)
        del iterator  # and it is not taken from at once
    taken = stages.take()
    stages.close()
    assert not [each for each in taken if isinstance(each, StageNote)]
    rows = [each for each in taken if isinstance(each, StageTimes)]
    assert [(each.epoch, each.batch) for each in rows] == [
        (number, list(range(5, 12))) for number in range(3)
    ]
    if not workers:  # with some, it depends on what they had loaded ahead
        assert [(n, at) for n, at, is_timed in timed if is_timed] == [
            (n, at) for n in range(3) for at in range(5, 12)
        ]


FOUND = some.Doubled.__call__


def test_closing_while_an_iterator_lives() -> None:
    evaluator = LoaderEvaluator(DataLoader(Tensors, batch_size=4, num_workers=1), stages=True)
    batches = iter(evaluator)
    next(batches)
    evaluator.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(list(batches)) == 9
    assert len(rows_of(evaluator.recorded())[0]) == 1


def test_a_loader_can_be_copied_and_pickled_while_it_is_measured() -> None:
    loader = DataLoader(Tensors, batch_size=8, num_workers=1, worker_init_fn=some.seed_numpy)
    with LoaderEvaluator(loader, stages=True) as evaluator:
        batches = iter(evaluator)
        next(batches)
        for twin in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
            assert twin.worker_init_fn is some.seed_numpy
            assert len(list(twin)) == 5
        list(batches)
    assert [len(stages) for stages in rows_of(evaluator.recorded())] == [5]


class Ahead(DataLoader[Any]):
    """Loads in a way of its own."""

    def __iter__(self) -> Any:
        return iter(super().__iter__() if self.batch_size == 1 else [1, 2])


def test_a_loader_that_makes_no_iterator_of_torchs_can_be_copied_and_pickled() -> None:
    loader = Ahead(Tensors, batch_size=8)
    with LoaderEvaluator(loader, stages=True) as evaluator:
        assert list(evaluator) == [1, 2]
        for twin in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
            vars(twin)["batch_size"] = 1
            for _ in range(2):
                assert len(list(twin)) == 5
    assert "_get_iterator" not in vars(loader)


def test_a_fork_in_training_keeps_no_rows() -> None:
    loader = DataLoader(Tensors, batch_size=8)
    stages = DataLoaderStages(lambda loader: loader)
    known = stages.begin(loader)
    batches = iter(loader)
    known(0)
    next(batches)
    child = os.fork()
    if child == 0:
        rows = (
            len(list(batches)),
            [len(each.batch) for each in stages.take() if isinstance(each, StageTimes)],
        )
        os._exit(rows != (4, [1]))
    assert os.waitpid(child, 0)[1] == 0
    stages.close()


def test_persistent_workers_that_were_started_before() -> None:
    loader = DataLoader(Tensors, batch_size=8, num_workers=1, persistent_workers=True)
    list(loader)
    run = recorded(loader)
    assert messages(run) == [torch_iterators.STARTED_BEFORE]
    assert len(run.stages) == 0


class ThreadContext(multiprocessing.context.SpawnContext):
    """Its processes are threads, as MONAI's ThreadDataLoader makes them."""

    class Process(threading.Thread):  # type: ignore[assignment]
        """A thread that has what torch asks of a process."""

        pid = os.getpid() + 1  # nobody's

    Event = threading.Event  # type: ignore[assignment]

    def Queue(self, maxsize: int = 0) -> Any:  # noqa: N802 - as multiprocessing has it
        made: Any = queue.Queue(maxsize)
        made.cancel_join_thread = made.close = lambda: None
        return made


def test_threads_as_workers_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their batches are right, and so are the classes of the process that trains."""
    monkeypatch.setattr(torch_workers, "_worker_info", None)  # a worker sets it, here too
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setattr(signal_handling, "_set_worker_signal_handlers", lambda: None)
    fetches = {kind: vars(kind)["fetch"] for kind in torch_worker.FETCHERS}
    loader = DataLoader(Tensors, batch_size=8, num_workers=2)
    vars(loader)["_DataLoader__multiprocessing_context"] = ThreadContext()
    with LoaderEvaluator(loader, stages=True) as evaluator:
        served = []
        for numbers, _ in evaluator:
            served += numbers.tolist()
            assert {kind: vars(kind)["fetch"] for kind in torch_worker.FETCHERS} == fetches
    run = evaluator.recorded()
    assert served == Tensors.tensors[0].tolist()
    assert messages(run) == [torch_worker.IN_THREADS]
    assert (rows_of(run)[0].fetch_ns == -1).all()


def test_a_torch_that_fetches_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    original: Any = fetch._MapDatasetFetcher.fetch

    def another(self: Any, index: Any) -> Any:
        return original(self, list(index))

    monkeypatch.setattr(fetch._MapDatasetFetcher, "fetch", another)
    run = recorded(DataLoader(Tensors, batch_size=8, num_workers=1))
    assert messages(run) == [torch_worker.UNEXPECTED]
    (stages,) = rows_of(run)
    assert (stages.fetch_ns > 0).all()
    assert (stages.slowest_ns == -1).all()
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("kind", "method"), [(kernel.Consumption, "since_start"), (kernel.CallCounter, "stop")]
)
def test_a_failure_of_ours_ends_looking_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, kind: type, method: str
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("planted")

    monkeypatch.setattr(kind, method, fail)
    loader = DataLoader(Tensors, batch_size=8, num_workers=1)
    with LoaderEvaluator(loader, stages=True) as evaluator:
        assert len(list(evaluator)) == 5
    (message,) = messages(evaluator.recorded())
    assert message.endswith("(ValueError: planted)")
