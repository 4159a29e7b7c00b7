"""What workers wait for: locks, the disk, a server, and shards that are divided unequally."""

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

from bench.zoo.costs import burn, slowness
from bench.zoo.programs import (
    BATCHES,
    STEP_MS,
    Program,
    Samples,
    Stream,
    Training,
    of_this_worker,
    train,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from socketserver import BaseServer

READ_MS = 1.6 * STEP_MS
"""What a batch costs a worker: too much for one, little for three."""
MB = 1 << 20
FILE_MB = 48


def locked(lock: Callable[[], AbstractContextManager[Any]]) -> Training:
    """One batch a sample, read while the lock is held."""

    def read_archive(index: int) -> torch.Tensor:
        with lock():
            burn(READ_MS)
            return torch.full((8,), index)

    return train(Samples(read_archive, BATCHES), batch_size=1, workers=3)


def behind_one_lock(_: Path) -> Training:
    lock = get_context("fork").Lock()
    return locked(lambda: lock)


def behind_file(folder: Path) -> Training:
    """A lock of a file, which each holder opens anew."""

    @contextmanager
    def flocked() -> Iterator[None]:
        with (folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    return locked(flocked)


class Counted(Samples):
    """Counts in a database how often each sample was used, in the same transaction as it reads."""

    def __init__(self, path: Path, *, at_once: bool) -> None:
        self.path, self.at_once, self.count = path, at_once, BATCHES
        self.database: sqlite3.Connection | None = None
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE used (number INTEGER PRIMARY KEY, times INTEGER)")
            database.executemany("INSERT INTO used VALUES (?, 0)", ((n,) for n in range(BATCHES)))
        database.close()

    def read(self, index: int) -> torch.Tensor:
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


def counted(folder: Path, *, at_once: bool) -> Training:
    return train(Counted(folder / "used.db", at_once=at_once), batch_size=1, workers=3)


class Blocks(Samples):
    """Blocks of 1 MB of one file, past the page cache or from it."""

    def __init__(self, folder: Path, *, direct: bool) -> None:
        (self.path,) = write_random(folder, 1, FILE_MB * MB)
        self.direct, self.count = direct, BATCHES
        self.opened: tuple[int, mmap.mmap] | None = None

    def read(self, index: int) -> torch.Tensor:
        if self.opened is None:
            file = os.open(self.path, os.O_RDONLY | (os.O_DIRECT if self.direct else 0))
            self.opened = file, mmap.mmap(-1, MB)  # aligned, as O_DIRECT wants it
        file, buffer = self.opened
        for read in range(36):
            os.preadv(file, [buffer], (index * 7 + read * 5) % FILE_MB * MB)
        return torch.tensor(buffer[0])


def blocks(folder: Path, *, direct: bool) -> Training:
    return train(Blocks(folder, direct=direct), batch_size=1)


def write_random(folder: Path, files: int, size: int) -> list[Path]:
    """Files of so many bytes of real data, which are on the disk when this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    megabyte = hashlib.shake_128(b"loadeval").digest(MB)
    paths = [folder / f"{number}.bin" for number in range(files)]
    for path in paths:
        with path.open("wb") as file:
            for number in range(size // MB):
                file.write(number.to_bytes(8, "big") + megabyte[8:])
            file.flush()
            os.fsync(file.fileno())
    return paths


def read_anew(path: Path) -> bytes:
    """What the page cache has forgotten, as of a data set larger than memory."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


def small_files(folder: Path, load: Callable[[Path], bytes]) -> Training:
    """Sixteen files of 1 MB for a batch."""
    paths = write_random(folder, 64, MB)

    def read(index: int) -> torch.Tensor:
        numbers = range(index * 16, index * 16 + 16)
        return torch.tensor([load(paths[number % 64])[0] for number in numbers])

    return train(Samples(read, BATCHES), batch_size=1)


class Server:
    """Serves in a process of its own, until it is closed."""

    def __init__(self, server: BaseServer) -> None:
        slowness()  # measured here, before anybody computes
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


class NearerRanges(Ranges):
    latency_s = 0.7 * LATENCY_S


class HTTPServer(ThreadingHTTPServer):
    daemon_threads = True


class TCPServer(ThreadingTCPServer):
    daemon_threads = True


class Downloads(Samples):
    """Objects, over one connection for each worker."""

    def __init__(self, port: int, batch_size: int) -> None:
        self.port, self.count = port, batch_size * BATCHES
        self.connection: HTTPConnection | None = None

    def read(self, index: int) -> torch.Tensor:
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


def over_http(
    handler: type[Store], workers: int = 2, dataset: Any = Downloads, batch_size: int = OBJECTS
) -> Training:
    server = Server(HTTPServer(("127.0.0.1", 0), handler))
    downloads = dataset(server.port, batch_size)
    return train(downloads, batch_size=batch_size, workers=workers, close=server.close)


def connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_range(connection: socket.socket, number: int) -> torch.Tensor:
    connection.sendall(f"{number}\n".encode())
    received = bytearray()
    while len(received) < len(CONTENT):
        received += connection.recv(len(CONTENT) - len(received))
    return torch.frombuffer(received, dtype=torch.uint8)


class Ranged(Stream):
    """Asks for one range after the other, as a reader of remote shards does."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __iter__(self) -> Iterator[torch.Tensor]:
        with connected(self.port) as connection:
            for number in of_this_worker(OBJECTS * BATCHES):
                yield read_range(connection, number)


class Shards(Ranged):
    """Each is read by one worker; `lengths` are their batches."""

    def __init__(self, port: int, lengths: tuple[int, ...]) -> None:
        super().__init__(port)
        self.lengths, self.num_shards = lengths, len(lengths)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for shard in of_this_worker(self.num_shards):
            with connected(self.port) as connection:
                for number in range(OBJECTS * self.lengths[shard]):
                    yield read_range(connection, number)


def over_tcp(
    handler: type[Ranges], workers: int = 2, dataset: Callable[[int], Any] = Ranged
) -> Training:
    server = Server(TCPServer(("127.0.0.1", 0), handler))
    ranges = dataset(server.port)
    return train(ranges, batch_size=OBJECTS, workers=workers, close=server.close)


def in_shards(*lengths: int, workers: int) -> Training:
    return over_tcp(NearerRanges, workers, lambda port: Shards(port, lengths))


PROGRAMS = (
    Program(
        "a lock around an archive",
        "lock",
        "read_archive",
        faulty=behind_one_lock,
        healthy=lambda _: locked(nullcontext),
        cpus=4,
    ),
    Program(
        "a lock of a file",
        "lock",
        "flock",
        faulty=behind_file,
        healthy=lambda _: locked(nullcontext),
        cpus=4,
    ),
    Program(
        "one writer of a database",
        "lock",
        "count_use",
        faulty=partial(counted, at_once=False),
        healthy=partial(counted, at_once=True),
        cpus=4,
    ),
    Program(
        "a file past the page cache",
        "disk",
        "",
        faulty=partial(blocks, direct=True),
        healthy=partial(blocks, direct=False),
    ),
    Program(
        "files that the page cache forgot",
        "disk",
        "",
        faulty=partial(small_files, load=read_anew),
        healthy=partial(small_files, load=lambda path: path.read_bytes()),
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
        follows="requests at once",
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
    Program(
        "one shard for four workers",
        "few shards",
        "the dataset has 1 shard",
        faulty=lambda _: in_shards(160, workers=4),
        healthy=lambda _: in_shards(*[40] * 4, workers=4),
    ),
    Program(
        "one shard for two workers",
        "few shards",
        "the dataset has 1 shard",
        faulty=lambda _: in_shards(160, workers=2),
        healthy=lambda _: in_shards(*[40] * 4, workers=4),
        fixed=lambda _: in_shards(80, 80, workers=2),
    ),
    Program(
        "one large shard among small ones",
        "uneven shards",
        "equal",
        faulty=lambda _: in_shards(140, 40, 40, 40, workers=4),
        healthy=lambda _: in_shards(*[65] * 4, workers=4),
    ),
)
