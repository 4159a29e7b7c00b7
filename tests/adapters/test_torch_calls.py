"""Counting the files, connections and requests of a batch."""

from __future__ import annotations

import os
import sys
import time
import tracemalloc
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from loadeval_adapters.torch_trace.kernel import CallCounter
from loadeval_adapters.torch_trace.worker import fingerprint
from tests.adapters.loaders import recorded
from tests.runs.tables import rows_of


class Answer(BaseHTTPRequestHandler):
    """Answers with nothing."""

    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """Where a server answers."""
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def counted(call: Callable[[], object], batch_ns: int = 10**9) -> tuple[int, ...]:
    """What is counted while it is called."""
    counter = CallCounter()
    counter.start(batch_ns)
    call()
    return tuple(counter.stop().values())


def open_three(folder: Path) -> None:
    with (folder / "a").open("wb") as file:
        np.save(file, np.zeros(3))
    np.load(folder / "a")
    os.close(os.open(folder / "a", os.O_RDONLY))


def test_files_count_however_python_opens_them(tmp_path: Path) -> None:
    assert counted(lambda: open_three(tmp_path)) == (3, 0, 0)


def test_a_request_counts_and_its_connection(port: int) -> None:
    url = f"http://127.0.0.1:{port}/"
    urllib.request.urlopen(url).close()  # what it imports and reads at first
    assert counted(lambda: urllib.request.urlopen(url).close()) == (0, 1, 1)


def test_a_batch_of_many_calls_is_not_counted(tmp_path: Path) -> None:
    """It would take more than half as long again: 40 us for 80 calls and returns."""
    assert counted(lambda: open_three(tmp_path), batch_ns=80_000) == ()
    assert sys.getprofile() is None


def test_a_profiler_of_the_users_goes_on() -> None:

    def ours(*_: Any) -> None:
        pass

    sys.setprofile(ours)
    try:
        assert counted(lambda: None) == ()
        assert sys.getprofile() is ours
    finally:
        sys.setprofile(None)


class Files(Dataset[Any]):
    """Opens a list of names once in each worker, and two files for each sample."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: list[str] = []

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> int:
        if not self.names:
            self.names = self.path.read_text().split()
        time.sleep(0.001)
        for _ in range(2):
            self.path.read_bytes()
        return index


@pytest.mark.parametrize("persistent", [True, False])
def test_the_second_batch_of_each_first_worker_is_counted(
    tmp_path: Path, *, persistent: bool
) -> None:
    """No other one, nor any of workers that are started later."""
    path = tmp_path / "names"
    path.write_text("a b")
    loader = DataLoader(Files(path), batch_size=4, num_workers=2, persistent_workers=persistent)
    first, second = rows_of(recorded(loader, epochs=2))
    known = first.opened_files >= 0
    assert first.opened_files[known].tolist() == [8, 8]
    assert sorted(first.worker[known]) == [0, 1]
    assert [np.flatnonzero(known & (first.worker == worker))[0] for worker in (0, 1)] == [
        np.flatnonzero(first.worker == worker)[1] for worker in (0, 1)
    ]
    assert first.connections[known].tolist() == first.requests[known].tolist() == [0, 0]
    assert (second.opened_files < 0).all()


class Stream(IterableDataset[Any]):
    """Decodes numbers, in the way that is named."""

    def __init__(self, way: str) -> None:
        self.way = way

    def decode(self, number: int) -> torch.Tensor:
        time.sleep(0.0001)
        return torch.full((30,), number)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        all_of, own = range(160), slice(info.id, None, info.num_workers)
        if self.way == "all, and keeps its own":
            return islice(map(self.decode, all_of), own.start, own.stop, own.step)
        return getattr(self, f"of_{self.way}")(all_of, all_of[own])

    def of_labelled_ones(self, all_of: range, own: range) -> Iterator[Any]:
        def labelled(number: int) -> dict[str, Any]:
            return {"label": number, "image": torch.full((30,), number)}

        yield from islice(map(labelled, all_of), own.start, None, own.step)

    def of_parts(self, _: range, own: range) -> Iterator[Any]:
        yield from map(self.decode, own)

    def of_augmented(self, all_of: range, _: range) -> Iterator[Any]:
        for number in all_of:
            yield self.decode(number) * torch.rand(30), torch.tensor([number, number + 1])

    def of_good_ones(self, all_of: range, _: range) -> Iterator[Any]:
        for number in all_of:
            sample = self.decode(number)
            if number % 4:
                yield sample, number

    def of_chained_stages(self, all_of: range, _: range) -> Iterator[Any]:
        """Each is a generator; labels are read with what is not decoded yet."""
        read = ({"label": torch.full((9,), number), "image": number} for number in all_of)
        decoded = ({**each, "image": torch.zeros(30) + each["image"]} for each in read)
        return (each for each in decoded if each["image"][0] % 4 == 1)

    def of_chosen_before(self, all_of: range, _: range) -> Iterator[Any]:
        """Of these the labels alone are read for nothing."""
        read = ({"label": torch.full((9,), number), "image": number} for number in all_of)
        chosen = (each for each in read if each["image"] % 4 == 1)
        return ({**each, "image": torch.zeros(30) + each["image"]} for each in chosen)

    def of_like_parts(self, _: range, own: range) -> Iterator[Any]:
        """No sample is another's, and they have the same content."""
        yield from (self.decode(number // 2 % 6) for number in own)

    def of_a_buffer(self, _: range, own: range) -> Iterator[Any]:
        """Which is still being filled: two are decoded for each one that it gives."""
        buffer = [*map(self.decode, own[:40])]
        for number in own[40:]:
            buffer += [self.decode(number), self.decode(number)]
            yield buffer.pop(0)


@pytest.mark.parametrize(
    ("way", "made"),
    [
        ("all, and keeps its own", 8),
        ("labelled_ones", 8),
        ("parts", 4),
        ("good_ones", 5),
        ("chained_stages", 16),
        ("chosen_before", 4),
        ("a_buffer", -1),
    ],
)
def test_samples_that_are_made_and_not_served(way: str, made: int) -> None:
    """Those that stay in a buffer may be served later: of these nothing is known."""
    (stages,) = rows_of(recorded(DataLoader(Stream(way), batch_size=4, num_workers=2)))
    counted = stages.opened_files >= 0
    assert set(stages.made[counted]) <= {made, made + (way == "good_ones")}
    assert counted.sum() == 2


def test_where_a_workers_own_samples_are_alike_those_of_others_may_be() -> None:
    (stages,) = rows_of(recorded(DataLoader(Stream("like_parts"), batch_size=4, num_workers=2)))
    assert (stages.fingerprint >= 0).sum() == 2  # of the first batch of each worker


def test_workers_that_serve_the_same_samples_begin_with_the_same_fingerprints() -> None:
    for way, alike in (("good_ones", True), ("augmented", True), ("parts", False)):
        (stages,) = rows_of(recorded(DataLoader(Stream(way), batch_size=4, num_workers=2)))
        first, second = (
            stages.fingerprint[stages.worker == worker].tolist() for worker in range(2)
        )
        assert first[4:] == [-1] * len(first[4:])
        assert len({*first[:4]}) == 4
        assert (first[:4] == second[:4]) is alike


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.arange(50_000), torch.arange(50_000) + 1),
        ({"x": np.zeros(3), "name": ["a", "b"]}, {"x": np.zeros(3), "name": ["a", "c"]}),
        ([torch.eye(3).to_sparse(), 1], [torch.eye(3).to_sparse(), 2]),
    ],
)
def test_a_fingerprint_tells_batches_apart(one: Any, other: Any) -> None:
    assert fingerprint(one) == fingerprint(one)
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(object()) == {}


def test_a_fingerprint_takes_no_copy_of_a_batch() -> None:
    """Nor of images whose channels were moved."""
    images = np.zeros((1000, 1000)).T
    tracemalloc.start()
    fingerprint((images, torch.from_numpy(images)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < images.nbytes / 10
