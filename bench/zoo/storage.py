"""What workers wait for: locks, the disk, a server, and shards that are divided unequally."""

import fcntl
import hashlib
import io
import os
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from threading import local
from typing import Any
from urllib.request import urlopen

import numpy as np
import torch

from bench.zoo.costs import burn, slowness
from bench.zoo.programs import (
    BATCHES,
    STEP_MS,
    Program,
    Samples,
    Stream,
    Training,
    nothing,
    of_this_worker,
    train,
)

MB = 1 << 20
OBJECTS, MANY = 3, 6
"""In a batch."""
OBJECT = bytes(4096)
LISTED, IN_BUFFER = 6000, 80
"""Files of a folder that is listed; members of an archive in a shuffle buffer."""


def annotated(folder: Path, *, faulty: bool) -> Training:
    """Files whose annotations have names that are looked for among all, or made."""
    for number in range(LISTED):
        (folder / f"{number:06}.txt").write_bytes(OBJECT[:64])

    def read(index: int) -> torch.Tensor:
        name = f"{index % LISTED:06}"
        path = folder / f"{name}.txt"
        if faulty:
            (path,) = folder.glob(f"{name}.*")
        return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)

    return train(Samples(read, BATCHES * 4), batch_size=4, workers=1)


class Members(Stream):
    """Members of an archive from a shuffle buffer; their bytes are read before it, or after."""

    def __init__(self, path: Path, *, after: bool) -> None:
        self.path, self.after = path, after

    def __iter__(self) -> Iterator[torch.Tensor]:
        draw, buffer = np.random.default_rng(0), list[Any]()
        archive = tarfile.open(self.path)  # noqa: SIM115 - its members are read until the end
        for file in map(archive.extractfile, archive):
            buffer.append(file if self.after or file is None else io.BytesIO(file.read()))
            if len(buffer) == IN_BUFFER:
                yield self.decode(buffer.pop(int(draw.integers(IN_BUFFER))))
        draw.shuffle(buffer)
        yield from map(self.decode, buffer)

    def decode(self, file: Any) -> torch.Tensor:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def shuffled_members(folder: Path, *, faulty: bool) -> Training:
    draw, path = np.random.default_rng(0), folder / "members.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for number in range(BATCHES):
            member = tarfile.TarInfo(f"{number:04}.bin")
            member.size = 16_384
            content = draw.integers(0, 40, member.size, dtype=np.uint8).tobytes()
            archive.addfile(member, io.BytesIO(content))
    return train(Members(path, after=faulty), batch_size=1, workers=1, epochs=2)


def locked(folder: Path, lock: str = "") -> Training:
    """One batch a sample, read while a lock is held: of a file, among processes, or none.

    What a batch costs a worker is too much for one, and little for three.
    """
    among_processes = get_context("fork").Lock()

    @contextmanager
    def flocked() -> Iterator[None]:
        with (folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    locks: Any = {"": nullcontext, "file": flocked, "processes": lambda: among_processes}

    def read_archive(index: int) -> torch.Tensor:
        with locks[lock]():
            burn(1.6 * STEP_MS)
            return torch.full((8,), index)

    return train(Samples(read_archive, BATCHES), batch_size=1, workers=3)


def write_random(folder: Path, files: int) -> list[Path]:
    """Files of a megabyte of real data, which are on the disk when this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    megabyte = hashlib.shake_128(b"loadeval").digest(MB)
    paths = [folder / f"{number}.bin" for number in range(files)]
    for path in paths:
        with path.open("wb") as file:
            file.write(megabyte)
            file.flush()
            os.fsync(file.fileno())
    return paths


def read_anew(path: Path) -> bytes:
    """What the page cache has forgotten, as of a data set larger than memory."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


def small_files(folder: Path, *, faulty: bool) -> Training:
    load = read_anew if faulty else Path.read_bytes
    paths = write_random(folder, 64)

    def read(index: int) -> torch.Tensor:
        numbers = range(index * 16, index * 16 + 16)
        return torch.tensor([load(paths[number % 64])[0] for number in numbers])

    return train(Samples(read, BATCHES), batch_size=1)


class Store(BaseHTTPRequestHandler):
    """Answers each request after a while, as a store far away does, piece by piece.

    A connection waits first, as for TLS.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    latency_ms = connect_ms = piece_ms = 0.0
    piece, pieces = OBJECT, 1

    def setup(self) -> None:
        super().setup()
        self.wait(self.connect_ms)

    def wait(self, ms: float) -> None:
        time.sleep(ms / 1000 * slowness())

    def do_GET(self) -> None:
        self.wait(self.latency_ms)
        self.send_response(200)
        self.send_header("Content-Length", str(self.pieces * len(self.piece)))
        self.end_headers()
        for _ in range(self.pieces):
            self.wait(self.piece_ms)
            self.wfile.write(self.piece)

    def log_message(self, *_: Any) -> None:
        pass


class Server:
    """A store in a process of its own, until it is closed."""

    def __init__(self, **of_store: Any) -> None:
        slowness()  # measured here, before anybody computes
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Store", (Store,), of_store))
        self.port = server.server_port
        self.process = get_context("fork").Process(target=server.serve_forever, daemon=True)
        self.process.start()
        server.socket.close()

    def close(self) -> None:
        self.process.terminate()
        self.process.join()
        self.process.close()


def fetched(connection: HTTPConnection, number: int) -> bytes:
    connection.request("GET", f"/{number}")
    return connection.getresponse().read()


class Downloads(Samples):
    """Objects, over one connection for each thread that reads."""

    def __init__(self, port: int, batch_size: int) -> None:
        self.port, self.count = port, batch_size * BATCHES
        self.threads: Any = None

    def read(self, index: int) -> torch.Tensor:
        content = bytearray(self.download(index))
        return torch.frombuffer(content, dtype=torch.uint8)[: len(OBJECT)]

    def download(self, index: int) -> bytes:
        self.threads = self.threads or local()
        if not hasattr(self.threads, "connection"):
            self.threads.connection = HTTPConnection("127.0.0.1", self.port)
        return fetched(self.threads.connection, index)


class DownloadsAnew(Downloads):
    """Objects, over a new connection for each."""

    def download(self, index: int) -> bytes:
        with urlopen(f"http://127.0.0.1:{self.port}/{index}") as response:
            content: bytes = response.read()
        return content


class DownloadsAtOnce(Downloads):
    at_once = MANY
    pool: ThreadPoolExecutor | None = None

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        if self.pool is None:
            self.pool, self.threads = ThreadPoolExecutor(self.at_once), local()
        return list(self.pool.map(self.__getitem__, indices))


class DownloadsInPairs(DownloadsAtOnce):
    at_once = 2


class Shards(Stream):
    """Each is read by one worker; `lengths` are their batches."""

    def __init__(self, port: int, lengths: tuple[int, ...]) -> None:
        self.port, self.lengths, self.num_shards = port, lengths, len(lengths)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for shard in of_this_worker(self.num_shards):
            connection = HTTPConnection("127.0.0.1", self.port)
            for number in range(OBJECTS * self.lengths[shard]):
                content = bytearray(fetched(connection, number))
                yield torch.frombuffer(content, dtype=torch.uint8)


def downloaded(
    _: Path, dataset: Any = Downloads, workers: int = 2, batch_size: int = OBJECTS, **of_store: Any
) -> Training:
    server = Server(**of_store)
    objects = dataset(server.port, batch_size)
    return train(objects, batch_size=batch_size, workers=workers, close=server.close)


def in_shards(folder: Path, lengths: tuple[int, ...]) -> Training:
    return downloaded(folder, lambda port, _: Shards(port, lengths), workers=4, latency_ms=7)


def pictures(_: Path, *, faulty: bool) -> Training:
    """4 MB each that a Manager has for all workers, or that are in memory which they share."""
    shared: Any = torch.zeros(32, 4 * MB, dtype=torch.uint8).share_memory_()
    close = nothing
    if faulty:
        manager = get_context("fork").Manager()
        shared, close = manager.dict(enumerate(shared.numpy())), manager.shutdown

    def read(index: int) -> torch.Tensor:
        return torch.as_tensor(shared[index % 32])[:64].clone()

    return train(Samples(read, 5 * BATCHES), batch_size=5, close=close)


by_six = partial(downloaded, latency_ms=8, batch_size=MANY)
by_threads = partial(downloaded, latency_ms=10, batch_size=MANY)
far_away = partial(downloaded, latency_ms=3, connect_ms=6)
in_pieces = partial(downloaded, piece_ms=1.25, piece=bytes(50_000))
PROGRAMS = {
    "a Manager for all workers": Program("one process serves all", "share_memory_", pictures),
    "a lock around an archive": Program(
        "lock", "read_archive", locked, {"lock": "processes"}, {}, cpus=4
    ),
    "a lock of a file": Program("lock", "flock", locked, {"lock": "file"}, {}, cpus=4),
    "files that the page cache forgot": Program("disk", "", small_files),
    "a folder listed for each sample": Program("slow fetch", "list the folder once", annotated),
    "members of a packed archive, read after a shuffle buffer": Program(
        "data format", "from its start", shuffled_members
    ),
    "downloads that take 10 ms": Program(
        "storage latency", "num_workers", downloaded, {"latency_ms": 10}, {}, {"workers": 6}
    ),
    "downloads one at a time": Program(
        "storage latency", "__getitems__", by_six, {}, {"dataset": DownloadsAtOnce}
    ),
    "downloads by too few threads": Program(
        "storage latency",
        "threads of the same worker",
        by_threads,
        {"dataset": DownloadsInPairs},
        {"dataset": DownloadsAtOnce},
        follows="requests at once",
    ),
    "a new connection for each sample": Program(
        "storage latency", "a session or a pool", far_away, {"dataset": DownloadsAnew}, {}
    ),
    "large downloads over a slow link": Program(
        "storage latency", "bandwidth", in_pieces, {"pieces": 8}, {}
    ),
    "one shard for four workers": Program(
        "few shards", "dataset has 1 shard", in_shards, {"lengths": (160,)}, {"lengths": (40,) * 4}
    ),
    "one large shard among small ones": Program(
        "uneven shards", "equal", in_shards, {"lengths": (140, 40, 40, 40)}, {"lengths": (65,) * 4}
    ),
}
