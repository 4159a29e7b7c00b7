"""What workers wait for: locks, the disk, and a server."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import socket
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import local
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from bench.faults.programs import BATCHES, STEP_MS, Program, Training, burn, slowness, train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from socketserver import BaseServer

READ_MS = 1.6 * STEP_MS
"""What a batch costs a worker: too much for one, little for three."""


class Archive(Dataset[Any]):
    """One batch a sample, read while `lock` is held."""

    def __init__(self, lock: Callable[[], AbstractContextManager[Any]]) -> None:
        self.lock = lock

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        return read_archive(index, self.lock())


def read_archive(index: int, lock: AbstractContextManager[Any]) -> torch.Tensor:
    with lock:
        burn(READ_MS)
        return torch.full((8,), index)


class Shared:
    """A lock of multiprocessing's, to pass on."""

    def __init__(self) -> None:
        self.lock = get_context("fork").Lock()

    def __call__(self) -> AbstractContextManager[Any]:
        return self.lock


class Flock:
    """A lock of a file, which each holder opens anew."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class Counted(Dataset[Any]):
    """Counts in a database how often each sample was used, in the same transaction as it reads."""

    def __init__(self, path: Path, *, at_once: bool) -> None:
        self.path = path
        self.at_once = at_once
        self.database: sqlite3.Connection | None = None
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE used (number INTEGER PRIMARY KEY, times INTEGER)")
            database.executemany("INSERT INTO used VALUES (?, 0)", ((n,) for n in range(BATCHES)))
        database.close()

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.database is None:
            self.database = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self.database.execute("PRAGMA synchronous = OFF")
            self.database.execute("PRAGMA journal_mode = MEMORY")
        if self.at_once:
            burn(READ_MS)
        self.count_use(self.database, index)
        return torch.full((8,), index)

    def count_use(self, database: sqlite3.Connection, index: int) -> None:
        database.execute("BEGIN IMMEDIATE")
        if not self.at_once:
            burn(READ_MS)
        database.execute("UPDATE used SET times = times + 1 WHERE number = ?", (index,))
        database.execute("COMMIT")


MB = 1 << 20
FILE_MB = 48


class Blocks(Dataset[Any]):
    """Blocks of 1 MB of one file, past the page cache or from it."""

    def __init__(self, folder: Path, reads: int, *, direct: bool) -> None:
        self.path = folder / "blocks"
        self.reads = reads
        self.direct = direct
        self.opened: int | None = None
        self.buffer: mmap.mmap | None = None
        write_random(self.path, FILE_MB)

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.opened is None or self.buffer is None:
            self.opened = os.open(self.path, os.O_RDONLY | (os.O_DIRECT if self.direct else 0))
            self.buffer = mmap.mmap(-1, MB)  # aligned, as O_DIRECT wants it
        for read in range(self.reads):
            block = (index * 7 + read * 5) % FILE_MB
            os.preadv(self.opened, [self.buffer], block * MB)
        return torch.tensor(self.buffer[0])


def write_random(path: Path, size_mb: int) -> None:
    """Real data, which is on the disk when this returns."""
    megabyte = hashlib.shake_128(b"loadeval").digest(MB)
    with path.open("wb") as file:
        for number in range(size_mb):
            file.write(number.to_bytes(8, "big") + megabyte[8:])
        file.flush()
        os.fsync(file.fileno())


class Dropped(Dataset[Any]):
    """Files of 512 KB that the page cache has forgotten, as in a data set larger than memory."""

    def __init__(self, folder: Path, reads: int, *, dropped: bool) -> None:
        self.paths = [folder / str(number) for number in range(64)]
        self.reads = reads
        self.dropped = dropped
        for path in self.paths:
            write_random(path, 1)

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(
            [self.load_file(index * self.reads + read) for read in range(self.reads)]
        )

    def load_file(self, number: int) -> int:
        with self.paths[number % len(self.paths)].open("rb") as file:
            if self.dropped:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return file.read()[0]


class Server:
    """Serves in a process of its own, until it is closed."""

    def __init__(self, server: BaseServer) -> None:
        self.port: int = server.server_address[1]  # type: ignore[assignment, index]
        self.process = get_context("fork").Process(target=server.serve_forever, daemon=True)
        self.process.start()
        server.socket.close()  # type: ignore[attr-defined]

    def close(self) -> None:
        self.process.terminate()
        self.process.join()
        self.process.close()


CONTENT = bytes(4096)
LATENCY_S = 0.010
OBJECTS = 3
"""The objects in a batch."""
MANY = 6
"""More of them."""
PIECE = 50_000
PIECE_S = PIECE / 40e6


class Store(BaseHTTPRequestHandler):
    """Answers each request after a while, as a store far away does."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    latency_s = LATENCY_S
    content = CONTENT

    def do_GET(self) -> None:
        time.sleep(self.latency_s * slowness())
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.send_content()

    def send_content(self) -> None:
        self.wfile.write(self.content)

    def log_message(self, *_: Any) -> None:
        pass


class SlowStore(Store):
    latency_s = 0.008


class NearStore(Store):
    latency_s = 0.0


class SlowLink(NearStore):
    """Brings each connection `PIECE` bytes in `PIECE_S`, 40 MB/s."""

    content = bytes(8 * PIECE)

    def send_content(self) -> None:
        for start in range(0, len(self.content), PIECE):
            time.sleep(PIECE_S * slowness())
            self.wfile.write(self.content[start : start + PIECE])


class SlowLinkCompressed(SlowLink):
    content = bytes(PIECE)


class SecureStore(Store):
    """Lets each connection wait twice as long as a request, as for TLS."""

    latency_s = 0.003

    def setup(self) -> None:
        super().setup()
        time.sleep(2 * self.latency_s * slowness())


class Ranges(StreamRequestHandler):
    """Sends 4 KB for each line that it gets."""

    disable_nagle_algorithm = True
    latency_s = LATENCY_S

    def handle(self) -> None:
        while self.rfile.readline():
            time.sleep(self.latency_s * slowness())
            self.wfile.write(CONTENT)


class NearRanges(Ranges):
    latency_s = 0.0


class HTTPServer(ThreadingHTTPServer):
    daemon_threads = True


class TCPServer(ThreadingTCPServer):
    daemon_threads = True


class Downloads(Dataset[Any]):
    """Objects, over one connection for each worker."""

    def __init__(self, port: int, batch_size: int = OBJECTS) -> None:
        self.port = port
        self.batch_size = batch_size
        self.connection: HTTPConnection | None = None

    def __len__(self) -> int:
        return self.batch_size * BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        content = torch.frombuffer(bytearray(self.download(index)), dtype=torch.uint8)
        return content[: len(CONTENT)]

    def download(self, index: int) -> bytes:
        if self.connection is None:
            self.connection = HTTPConnection("127.0.0.1", self.port)
        self.connection.request("GET", f"/{index}")
        return self.connection.getresponse().read()


class DownloadsAnew(Downloads):
    """Objects, over a new connection for each."""

    def download(self, index: int) -> bytes:
        with urlopen(f"http://127.0.0.1:{self.port}/{index}") as response:
            content: bytes = response.read()
        return content


class DownloadsAtOnce(Downloads):
    """`at_once` objects of a batch at once, over a connection for each thread."""

    threads: ThreadPoolExecutor | None = None
    at_once = MANY

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        if self.threads is None:
            self.threads = ThreadPoolExecutor(self.at_once)
            self.connections = local()
        return list(self.threads.map(self.__getitem__, indices))

    def download(self, index: int) -> bytes:
        if not hasattr(self.connections, "own"):
            self.connections.own = HTTPConnection("127.0.0.1", self.port)
        connection: HTTPConnection = self.connections.own
        connection.request("GET", f"/{index}")
        return connection.getresponse().read()


class DownloadsInPairs(DownloadsAtOnce):
    """In too few threads."""

    at_once = 2


class Ranged(IterableDataset[Any]):
    """Asks for one range after the other, as a reader of remote shards does."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        with self.connected() as connection:
            for number in range(first, OBJECTS * BATCHES, workers):
                yield torch.frombuffer(self.read_range(connection, number), dtype=torch.uint8)

    def connected(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def read_range(self, connection: socket.socket, number: int) -> bytearray:
        connection.sendall(f"{number}\n".encode())
        received = bytearray()
        while len(received) < len(CONTENT):
            received += connection.recv(len(CONTENT) - len(received))
        return received


def from_store(dataset: Any, server: Server, workers: int, batch_size: int = OBJECTS) -> Training:
    return train(dataset(server.port), batch_size=batch_size, workers=workers, close=server.close)


def over_http(
    handler: type[Store], workers: int = 2, dataset: Any = Downloads, batch_size: int = OBJECTS
) -> Training:
    server = Server(HTTPServer(("127.0.0.1", 0), handler))
    return from_store(partial(dataset, batch_size=batch_size), server, workers, batch_size)


def over_tcp(handler: type[Ranges], workers: int = 2) -> Training:
    return from_store(Ranged, Server(TCPServer(("127.0.0.1", 0), handler)), workers)


def locked(lock: Callable[[], AbstractContextManager[Any]]) -> Training:
    return train(Archive(lock), batch_size=1, workers=3)


def counted(folder: Path, *, at_once: bool) -> Training:
    dataset = Counted(folder / "used.db", at_once=at_once)
    return train(dataset, batch_size=1, workers=3)


PROGRAMS = (
    Program(
        "a lock around an archive",
        "lock",
        "read_archive",
        faulty=lambda _: locked(Shared()),
        healthy=lambda _: locked(nullcontext),
        cpus=4,
    ),
    Program(
        "a lock of a file",
        "lock",
        "flock",
        faulty=lambda folder: locked(Flock(folder / "lock")),
        healthy=lambda _: locked(nullcontext),
        cpus=4,
    ),
    Program(
        "one writer of a database",
        "lock",
        "count_use",
        faulty=lambda folder: counted(folder, at_once=False),
        healthy=lambda folder: counted(folder, at_once=True),
        cpus=4,
    ),
    Program(
        "a file past the page cache",
        "disk",
        "",
        faulty=lambda folder: train(Blocks(folder, 36, direct=True), batch_size=1),
        healthy=lambda folder: train(Blocks(folder, 36, direct=False), batch_size=1),
    ),
    Program(
        "files that the page cache forgot",
        "disk",
        "",
        faulty=lambda folder: train(Dropped(folder, 16, dropped=True), batch_size=1),
        healthy=lambda folder: train(Dropped(folder, 16, dropped=False), batch_size=1),
    ),
    Program(
        "downloads that take 10 ms",
        "storage latency",
        "num_workers",
        faulty=lambda _: over_http(Store),
        healthy=lambda _: over_http(NearStore),
        fixed=lambda _: over_http(Store, workers=6),
    ),
    Program(
        "downloads one at a time",
        "storage latency",
        "__getitems__",
        faulty=lambda _: over_http(SlowStore, batch_size=MANY),
        healthy=lambda _: over_http(SlowStore, dataset=DownloadsAtOnce, batch_size=MANY),
    ),
    Program(
        "downloads by too few threads",
        "storage latency",
        "threads of the same worker",
        faulty=lambda _: over_http(Store, dataset=DownloadsInPairs, batch_size=MANY),
        healthy=lambda _: over_http(Store, dataset=DownloadsAtOnce, batch_size=MANY),
        follows="more_requests_at_once",
    ),
    Program(
        "a new connection for each sample",
        "storage latency",
        "a session or a pool",
        faulty=lambda _: over_http(SecureStore, dataset=DownloadsAnew),
        healthy=lambda _: over_http(SecureStore),
    ),
    Program(
        "large downloads over a slow link",
        "storage latency",
        "bandwidth",
        faulty=lambda _: over_http(SlowLink),
        healthy=lambda _: over_http(SlowLinkCompressed),
    ),
    Program(
        "ranges from far away in a stream",
        "storage latency",
        "num_workers",
        faulty=lambda _: over_tcp(Ranges),
        healthy=lambda _: over_tcp(NearRanges),
        fixed=lambda _: over_tcp(Ranges, workers=6),
    ),
)
