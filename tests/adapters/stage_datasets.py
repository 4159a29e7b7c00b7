"""Data sets that tell whether looking inside their loader changes anything. All can be pickled."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import multiprocessing
import os
import pickle
import random
import select
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

needs_in_order = pytest.mark.skipif(
    "in_order" not in inspect.signature(DataLoader).parameters, reason="torch before 2.6"
)


def stateful(*args: Any, **how: Any) -> Any:
    """Torchdata's loader, where that is."""
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    return torchdata.StatefulDataLoader(*args, **how)


class Doubled:
    def __init__(self) -> None:
        self.factor = 2

    def __call__(self, x: Any) -> Any:
        return x * self.factor


class Slotted:
    __slots__ = ("a", "transform")

    def __init__(self) -> None:
        self.transform = Doubled()

    def __call__(self, x: Any) -> Any:
        return self.transform(x)


class Registering(type):
    """Like in libraries of augmentations: each class is noted, and none may be changed."""

    known: tuple[type, ...] = ()

    def __init__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> None:
        super().__init__(name, bases, names)
        Registering.known += (cls,)

    def __setattr__(cls, name: str, value: Any) -> None:
        raise AttributeError(f"{name} of a registered class")


class Registered(metaclass=Registering):
    def __call__(self, x: Any) -> Any:
        assert len(Registering.known) == 1
        return x + random.random()


class Composed:
    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x


class Called:
    def __call__(*args: Any, **kwargs: Any) -> Any:  # noqa: N805, RUF100 - so that any name may be passed
        return args[1:], kwargs


def called(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def shifted(x: Any, by: float = 1.0) -> Any:
    return x + by


class Picky(Dataset[float]):
    """Checks what it holds, with a `__getattr__` that would recurse, and draws numbers."""

    def __init__(self, size: int = 40) -> None:
        self.inner = {"a": 1}
        self.size = size
        self.transforms: list[Any] = [
            Slotted(),
            abs,
            shifted,
            functools.partial(shifted, by=2),
            torch.nn.Identity(),
            Doubled(),
            Composed([Doubled(), Registered()]),
        ]
        self.target_transform = Doubled()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        try:
            return self.__dict__["inner"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> float:
        assert type(self.transforms[0]) is Slotted
        assert type(self.transforms[5]) is Doubled
        assert isinstance(self.transforms[4], torch.nn.Identity)
        assert callable(self.transforms[1])
        assert self.transforms[2].__name__ == "shifted"
        assert self.transforms[3].keywords == {"by": 2}
        x = index + np.random.rand() + random.random() + torch.rand(()).item()  # noqa: NPY002
        for transform in self.transforms:
            x = transform(x)
        return float(self.target_transform(x))


class Halved(torch.nn.Module):
    """A module without parameters."""

    def forward(self, x: Any) -> Any:
        return x / 2


class Steady(torch.nn.Module):
    """Calls its child, and a function of each name."""

    def __init__(self) -> None:
        super().__init__()
        self.child = Halved()
        self.smooth = torch.nn.Identity()
        self.by_name: dict[str, Any] = {"shifted": shifted, "abs": abs}

    def forward(self, x: Any) -> Any:
        for function in self.by_name.values():
            x = function(x)
        return self.smooth(self.child(x))


class Tailor:
    """A Compose of one's own: odd names, odd things in them, a different order each time."""

    def __init__(self) -> None:
        self.stages: list[Any] = [Doubled(), shifted, Composed([Doubled(), shifted])]
        self.by_chance: list[tuple[Any, float]] = [(Registered(), 0.5), (shifted, 0.5)]
        self.last: tuple[Any, ...] = (Steady(), abs)
        self.me = [self]
        self.own = [self.negated, self.negated]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # as when it is unpickled
            raise AttributeError(name)
        raise RuntimeError(f"asked for {name}")

    @property
    def lazy(self) -> Any:
        raise RuntimeError("computed")

    def negated(self, x: Any) -> Any:
        return -x

    def __call__(self, x: Any) -> Any:
        random.shuffle(self.stages)
        for stage in self.stages:
            x = stage(x)
        for transform, chance in self.by_chance:
            x = transform(x) if random.random() < chance else x
        for transform in (*self.last, *self.own):
            x = transform(x)
        return x


class Tailored(Dataset[float]):
    def __init__(self, size: int = 40) -> None:
        self.size = size
        self.transform = Tailor()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> float:
        return float(self.transform(index))


class WithItems(Dataset[int]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        raise RuntimeError("never asked")

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [index * 2 for index in indices]


class Keys(Dataset[int]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: str) -> int:
        return len(key)


class Broken(Dataset[int]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        if index == 13:
            raise KeyError("thirteen")
        return index


class Stops(Dataset[int]):
    """A map-style data set that raises what would end an iterable one."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise StopIteration("five")
        return index


class Uneven(IterableDataset[int]):
    """More samples from later workers."""

    def __init__(self, transform: Any = None) -> None:
        self.transform = transform

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        for number in range(5 + 3 * (worker.id if worker else 0)):
            yield number if self.transform is None else self.transform(number)


class BrokenStream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(6)
        raise OSError("the stream is broken")


class Repickling(Dataset[int]):
    """Pickles and copies its transforms in the worker, and itself."""

    def __init__(self) -> None:
        self.transforms: list[Any] = [Doubled(), shifted, torch.nn.Identity()]

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        for transform in self.transforms:
            assert type(pickle.loads(pickle.dumps(transform))) is type(copy.deepcopy(transform))
        twin = pickle.loads(pickle.dumps(copy.deepcopy(self)))
        assert type(twin.transforms[0]) is Doubled
        assert twin.transforms[1] is shifted
        assert type(twin.transforms[2]) is torch.nn.Identity
        return int(twin.transforms[0](index))


class Countdown(IterableDataset[int]):
    """Can be resumed."""

    def __init__(self, size: int = 24) -> None:
        self.size = size
        self.position = 0

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for number in range(first + self.position * step, self.size, step):
            self.position += 1
            yield number
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def seed_numpy(worker: int) -> None:
    np.random.seed(worker)  # noqa: NPY002 - what users draw from


def raise_in_worker(worker: int) -> None:
    raise RuntimeError(f"worker {worker} does not start")


def slowly(samples: list[Any]) -> Any:
    """Without Python's lock."""
    time.sleep(0.1)
    return samples


def with_random(samples: list[Any]) -> Any:
    return torch.tensor(samples) + torch.rand(len(samples))


class Strings(Dataset[int]):
    """Reads strings of a page each, a hundred for a sample."""

    COUNT = 16_000

    def __init__(self) -> None:
        self.strings = [letter * 4000 for letter in "abcd" * (self.COUNT // 4)]

    def __len__(self) -> int:
        return self.COUNT // 100

    def __getitem__(self, index: int) -> int:
        return sum(len(string) for string in self.strings[index * 100 : index * 100 + 100])


class Slow(Dataset[int]):
    """Its first sample waits until others were read."""

    def __init__(self) -> None:
        self.others = multiprocessing.get_context("fork").Semaphore(0)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 0:
            for _ in range(3):
                self.others.acquire()
        else:
            self.others.release()
        return index


class Busy(Dataset[int]):
    """Pure Python for a while."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> int:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return index


class Framed(IterableDataset[int]):
    """Pure Python for a while before its first sample, and after its last."""

    def __iter__(self) -> Iterator[int]:
        self.open()
        return self.samples()

    def samples(self) -> Iterator[int]:
        yield from range(4)
        self.close()

    def open(self) -> None:
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass

    def close(self) -> None:
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass


class Closing(Framed):
    """It has more samples, and the same after the last one that is wanted."""

    def samples(self) -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            self.close()


class Greedy(Dataset[int]):
    """Keeps Python's lock most of the time, and gives it up elsewhere."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> int:
        keep_lock()
        time.sleep(0)
        return index


def keep_lock() -> int:
    """Keep the lock in one call that takes about 4 ms."""
    return sum(range(400_000))


class Late(Dataset[int]):
    """Its last sample takes 5 ms."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        reading, writing = os.pipe()
        if index == 39:
            select.select([reading], [], [], 0.005)
        os.close(reading)
        os.close(writing)
        return index


class Parsed(Dataset[int]):
    """Calls a library's function in Python, and one that is not."""

    def __init__(self) -> None:
        self.numbers = list(range(60_000))
        self.text = json.dumps(self.numbers)

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> int:
        json.loads(self.text)
        torch.tensor(self.numbers)
        return index


class Blocked(Dataset[int]):
    """Waits for what never comes."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        reading, writing = os.pipe()
        select.select([reading], [], [], 0.1)
        os.close(reading)
        os.close(writing)
        return index
