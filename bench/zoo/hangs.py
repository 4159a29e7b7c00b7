"""Trainings in which a hang is planted, and slow ones that do not hang.

python -m bench.zoo.hangs NAME [ARGUMENT...]
"""

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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, IterableDataset

from bench.zoo.whole import train

if __name__ == "__mp_main__" and "endless_import" in sys.argv:
    os.read(os.pipe()[0], 1)  # workers that are spawned import this module, and never get done

SAMPLES = 64
STUCK, KILLED = 9, 20
"""The samples at which a worker is stuck, or a process is killed."""
REPORT = b"." * 9000
SECONDS, PAUSE_S = 2.5, 0.05
FORK = multiprocessing.get_context("fork")


class Numbers(Dataset[torch.Tensor]):
    """Samples that are read as quickly as can be, each after a call of what is `planted`."""

    def __init__(self, planted: Any = int, count: int = SAMPLES) -> None:
        self.planted, self.count = planted, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.planted(index)
        return torch.full((8,), float(index))


def loader(dataset: Dataset[torch.Tensor], workers: int = 2, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=2, num_workers=workers, **options)


def at(stuck: int, do: Callable[[], object]) -> Callable[[int], object]:
    """Does it at one sample."""
    return lambda index: index == stuck and do()


def stuck_socket() -> None:
    """A worker asks a server for its sample, and the server never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def ask() -> None:
            with socket.create_connection(server.getsockname()) as connection:
                connection.sendall(b"GET\n")
                connection.recv(100)

        train(loader(Numbers(at(STUCK, ask))))


def stuck_fifo() -> None:
    """A worker opens a named pipe as the file of its sample, and nobody ever writes to it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "9.bin"
        os.mkfifo(path)
        train(loader(Numbers(at(STUCK, path.read_bytes))))


class SlowHandler(logging.Handler):
    """Holds its lock as long as its storage takes."""

    is_logging, may_end = threading.Event(), threading.Event()

    def createLock(self) -> None:  # noqa: N802 - as logging has it
        self.lock = threading.Lock()  # type: ignore[assignment]  # logging makes its own free after a fork

    def emit(self, record: logging.LogRecord) -> None:
        if record.threadName == "monitor":
            self.is_logging.set()
            self.may_end.wait()


def forked_lock() -> None:
    """A thread logs while the workers are forked, and so holds the handler's lock in each."""
    logger = logging.getLogger("planted")
    logger.addHandler(SlowHandler())
    logger.propagate = False
    threading.Thread(target=logger.warning, args=("alive",), name="monitor", daemon=True).start()
    SlowHandler.is_logging.wait()
    batches = iter(loader(Numbers(lambda index: logger.warning("sample %d", index))))
    SlowHandler.may_end.set()
    train(batches)


def forked_thread() -> None:
    """A pool of threads was made before the workers were forked, which have none of its threads."""
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()  # its thread runs from now on
    train(loader(Numbers(lambda index: pool.submit(int, index).result())))


class Store:
    """A client with an event loop in a thread, as those of s3fs and gcsfs have."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def get(self, index: int) -> int:
        return asyncio.run_coroutine_threadsafe(self.read(index), self.loop).result()

    async def read(self, index: int) -> int:
        await asyncio.sleep(0)
        return index


def forked_loop() -> None:
    """The event loop of a client runs in a thread of the training process, and in no worker."""
    store = Store()
    store.get(0)
    train(loader(Numbers(store.get)))


def full_pipe() -> None:
    """Workers report each sample to a process that was stopped, through a pipe that fills up."""
    receiving, sending = os.pipe()
    stop = partial(signal.raise_signal, signal.SIGSTOP)
    FORK.Process(target=stop, daemon=True).start()  # it has the pipe's other end open too
    os.close(receiving)
    train(loader(Numbers(lambda _: os.write(sending, REPORT))))


def full_queue() -> None:
    """Workers put statistics into a queue of three places, whose reader has ended."""
    train(loader(Numbers(FORK.Queue(3).put)))


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


def uneven_ranks(then: Callable[[], object] = dist.monitored_barrier) -> None:
    """Rank 1 of a job has fewer batches, and rank 0 waits for it in a collective."""
    dist.init_process_group("gloo")
    train(loader(Numbers(count=SAMPLES if dist.get_rank() == 0 else 20), 1), in_ranks=True)
    then()


def rank_without_batches() -> None:
    """Rank 1 has fewer batches and goes on to something else, which rank 0 does not know of."""
    uneven_ranks(lambda: time.sleep(1000))


def ended_worker(by: signal.Signals) -> None:
    """A worker is killed, as by the kernel where memory runs out, or dies in compiled code."""
    train(loader(Numbers(at(STUCK, lambda: os.kill(os.getpid(), by)))))


killed_worker = partial(ended_worker, signal.SIGKILL)
crashed_worker = partial(ended_worker, signal.SIGSEGV)


def many_descriptors() -> None:
    """Each tensor of a batch that is kept keeps a descriptor open, of which there are few."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    kept: list[torch.Tensor] = []
    train(loader(Numbers(count=1000), 1), kept.append)


def locked_dataset() -> None:
    """What spawned workers are sent has a lock, which cannot be pickled."""
    train(loader(Numbers({"lock": threading.Lock()}), multiprocessing_context="spawn"))


def prepare(worker: int) -> None:
    if worker == 1:
        threading.Event().wait()


def endless_init() -> None:
    """The `worker_init_fn` of one worker waits for something that never happens."""
    train(loader(Numbers(), worker_init_fn=prepare))


def endless_import() -> None:
    """Workers are spawned, and import a module that never gets done."""
    train(loader(Numbers(), multiprocessing_context="spawn"))


def receive(_index: int) -> None:
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


def compute(_index: int) -> None:
    end_s = time.monotonic() + SECONDS
    while time.monotonic() < end_s:
        sum(range(1000))


def sleep(_index: int) -> None:
    time.sleep(SECONDS)


def slow(how: str, workers: str) -> None:
    """A healthy loader whose batches take some seconds: asleep, computing, or receiving bytes."""
    train(loader(Numbers(globals()[how], 8), int(workers)))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
