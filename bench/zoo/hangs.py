"""Trainings in which a hang is planted, and slow ones that do not hang.

python -m bench.zoo.hangs NAME [ARGUMENT...]
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

if __name__ == "__mp_main__" and "endless_import" in sys.argv:
    os.read(os.pipe()[0], 1)  # workers that are spawned import this module, and never get done

SAMPLES = 64
STUCK, KILLED = 9, 20
"""The samples at which a worker is stuck, or a process is killed."""
REPORT = b"." * 9000
SECONDS, PAUSE_S = 2.5, 0.05
FORK = multiprocessing.get_context("fork")


def train(batches: Iterable[torch.Tensor], *, in_ranks: bool = False) -> None:
    """Make a step for each batch; ranks share their gradients."""
    torch.set_num_threads(1)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).mean().backward()
        for parameter in model.parameters() if in_ranks else ():
            dist.all_reduce(parameter.grad)
        optimizer.step()


class Numbers(Dataset[torch.Tensor]):
    """Reads samples as quickly as can be; a hang is planted in a subclass."""

    def __init__(self, planted: Any = None, count: int = SAMPLES) -> None:
        self.planted = planted
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((8,), float(index))


def loader(dataset: Dataset[torch.Tensor], workers: int = 2, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=2, num_workers=workers, **options)


class Remote(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == STUCK:
            with socket.create_connection(("127.0.0.1", self.planted)) as connection:
                connection.sendall(b"GET\n")
                connection.recv(100)
        return super().__getitem__(index)


def stuck_socket() -> None:
    """A worker asks a server for its sample, and the server never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        train(loader(Remote(server.getsockname()[1])))


class Files(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == STUCK:
            Path(self.planted, "9.bin").read_bytes()
        return super().__getitem__(index)


def stuck_fifo() -> None:
    """A worker opens a named pipe as the file of its sample, and nobody ever writes to it."""
    with TemporaryDirectory() as folder:
        os.mkfifo(Path(folder) / "9.bin")
        train(loader(Files(folder)))


class SlowHandler(logging.Handler):
    """Holds its lock as long as its storage takes."""

    is_logging, may_end = threading.Event(), threading.Event()

    def createLock(self) -> None:  # noqa: N802 - as logging has it
        self.lock = threading.Lock()  # type: ignore[assignment]  # logging makes its own free after a fork

    def emit(self, record: logging.LogRecord) -> None:
        if record.threadName == "monitor":
            self.is_logging.set()
            self.may_end.wait()


class Logged(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        self.planted.warning("sample %d", index)
        return super().__getitem__(index)


def forked_lock() -> None:
    """A thread logs while the workers are forked, and so holds the handler's lock in each."""
    logger = logging.getLogger("planted")
    logger.addHandler(SlowHandler())
    logger.propagate = False
    threading.Thread(target=logger.warning, args=("alive",), name="monitor", daemon=True).start()
    SlowHandler.is_logging.wait()
    batches = iter(loader(Logged(logger)))
    SlowHandler.may_end.set()
    train(batches)


class Threaded(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        sample: torch.Tensor = self.planted.submit(super().__getitem__, index).result()
        return sample


def forked_thread() -> None:
    """A pool of threads was made before the workers were forked, which have none of its threads."""
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()  # its thread runs from now on
    train(loader(Threaded(pool)))


class Store:
    """A client with an event loop in a thread, as those of s3fs and gcsfs have."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def get(self, index: int) -> torch.Tensor:
        coroutine = self.read(index)
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def read(self, index: int) -> torch.Tensor:
        await asyncio.sleep(0)
        return torch.full((8,), float(index))


class Stored(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        return self.planted.get(index)  # type: ignore[no-any-return]


def forked_loop() -> None:
    """The event loop of a client runs in a thread of the training process, and in no worker."""
    store = Store()
    store.get(0)
    train(loader(Stored(store)))


class Reported(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        os.write(self.planted, REPORT)
        return super().__getitem__(index)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def full_pipe() -> None:
    """Workers report each sample to a process that was stopped, through a pipe that fills up."""
    receiving, sending = os.pipe()
    FORK.Process(target=stop, daemon=True).start()  # it has the pipe's other end open too
    os.close(receiving)
    train(loader(Reported(sending)))


class Counted(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        self.planted.put(index)
        return super().__getitem__(index)


def full_queue() -> None:
    """Workers put statistics into a queue of three places, whose reader has ended."""
    train(loader(Counted(FORK.Queue(3))))


def load(index: int) -> list[float]:
    if index == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    return [float(index)] * 8


class Pooled(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        with FORK.Pool(2) as pool:
            yield from map(torch.tensor, pool.imap(load, range(SAMPLES)))


def killed_pool() -> None:
    """A process of a multiprocessing pool that loads is killed, and its sample never comes."""
    train(loader(Pooled(), 0))


class Queued(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        samples: Any = FORK.SimpleQueue()
        FORK.Process(target=feed, args=(samples,), daemon=True).start()
        for _ in range(SAMPLES):
            yield torch.tensor(samples.get())


def feed(samples: Any) -> None:
    for index in range(SAMPLES):
        samples.put(load(index))


def killed_process() -> None:
    """A process that loads into a queue is killed, and who reads it does not look after it."""
    train(loader(Queued(), 0))


def uneven_ranks() -> None:
    """Rank 1 of a job has fewer batches, and rank 0 waits for it in a collective."""
    dist.init_process_group("gloo")
    samples = range(SAMPLES if dist.get_rank() == 0 else 20)
    train(loader(Subset(Numbers(), samples), 1), in_ranks=True)
    dist.monitored_barrier()


def rank_without_batches() -> None:
    """Rank 1 has fewer batches and goes on to something else, which rank 0 does not know of."""
    dist.init_process_group("gloo")
    samples = range(SAMPLES if dist.get_rank() == 0 else 20)
    train(loader(Subset(Numbers(), samples), 1), in_ranks=True)
    time.sleep(1000)


class Ending(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == STUCK:
            self.planted()
        return super().__getitem__(index)


def killed_worker() -> None:
    """A worker is killed, as by the kernel where memory runs out."""
    train(loader(Ending(lambda: os.kill(os.getpid(), signal.SIGKILL))))


def crashed_worker() -> None:
    """A worker dies of a fault in compiled code."""
    train(loader(Ending(lambda: os.kill(os.getpid(), signal.SIGSEGV))))


def many_descriptors() -> None:
    """Each tensor of a batch that is kept keeps a descriptor open, of which there are few."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    kept = []

    def keep(batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
        for batch in batches:
            kept.append(batch)
            yield batch

    train(keep(loader(Numbers(count=1000), 1)))


class Locked(Numbers):
    def __init__(self) -> None:
        super().__init__({"lock": threading.Lock()})


def locked_dataset() -> None:
    """What spawned workers are sent has a lock, which cannot be pickled."""
    train(loader(Locked(), multiprocessing_context="spawn"))


def prepare(worker: int) -> None:
    if worker == 1:
        threading.Event().wait()


def endless_init() -> None:
    """The `worker_init_fn` of one worker waits for something that never happens."""
    train(loader(Numbers(), worker_init_fn=prepare))


def endless_import() -> None:
    """Workers are spawned, and import a module that never gets done."""
    train(loader(Numbers(), multiprocessing_context="spawn"))


class Slow(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        self.planted()
        return super().__getitem__(index)


def receive() -> None:
    """Receive one byte after the other, as of a large file over a slow line."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with theirs:
            for _ in range(round(SECONDS / PAUSE_S)):
                time.sleep(PAUSE_S)
                theirs.sendall(b".")

    threading.Thread(target=send).start()
    with ours:
        while ours.recv(1):
            pass


def compute() -> None:
    end_s = time.monotonic() + SECONDS
    while time.monotonic() < end_s:
        sum(range(1000))


def sleep() -> None:
    time.sleep(SECONDS)


def slow(how: str, workers: str) -> None:
    """A healthy loader whose batches take some seconds: asleep, computing, or receiving bytes."""
    ways: dict[str, Callable[[], None]] = {"sleep": sleep, "receive": receive, "compute": compute}
    train(loader(Slow(ways[how], 8), int(workers)))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
