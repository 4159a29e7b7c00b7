"""Objects in memory: texts whose pages a forked worker copies as it reads them, and a cache."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Dataset

from bench.faults.programs import BATCHES, SIZE, Program, train
from bench.faults.transforms import photographs

if TYPE_CHECKING:
    from bench.faults.programs import Training

LENGTH = 4000
"""Of a text, in bytes: nearly a page."""
OF_SAMPLE = 75
TEXTS = BATCHES * SIZE * OF_SAMPLE
"""Each is read once."""
IN_SECONDS = 2400
"""Batches that take 19 seconds or more, for growth to be told from a start."""


class Texts(Dataset[Any]):
    """Some texts from anywhere in the dataset are a sample, of which it returns the first letters.

    They are a list of Python's strings, or the rows of one array of bytes.
    """

    def __init__(self, *, as_strings: bool) -> None:
        letters = np.random.default_rng(0).integers(97, 123, TEXTS, dtype=np.uint8)
        self.texts: Any
        if as_strings:
            self.texts = [letter * LENGTH for letter in letters.tobytes().decode()]
        else:
            self.texts = np.repeat(letters[:, None], LENGTH, axis=1)
        self.order = np.random.default_rng(1).permutation(TEXTS).reshape(-1, OF_SAMPLE)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> list[int]:
        chosen = self.order[index]
        if isinstance(self.texts, list):
            return [ord(self.texts[text][0]) for text in chosen.tolist()]
        first: list[int] = self.texts[chosen, 0].tolist()
        return first


class Cached(Dataset[Any]):
    """Keeps up to so many of its photographs decoded, in each worker; None is any number."""

    def __init__(self, most: int | None) -> None:
        self.image = photographs()[0]
        self.pixels = lru_cache(most)(self.decoded)

    def __len__(self) -> int:
        return 4 * IN_SECONDS

    def decoded(self, _index: int) -> np.ndarray[Any, Any]:
        return np.array(self.image)

    def __getitem__(self, index: int) -> int:
        return int(self.pixels(index)[0, 0, 0])


def train_on_texts(*, as_strings: bool) -> Training:
    texts = Texts(as_strings=as_strings)
    return train(texts, step_ms=3.4, workers=1, prefetch_factor=4, multiprocessing_context="fork")


def train_with_cache(most: int | None) -> Training:
    return train(Cached(most), batch_size=4, multiprocessing_context="fork")


PROGRAMS = (
    Program(
        "texts that are strings in a forked worker",
        "copied pages",
        "NumPy",
        faulty=lambda _: train_on_texts(as_strings=True),
        healthy=lambda _: train_on_texts(as_strings=False),
    ),
    Program(
        "a cache that is never full",
        "worker memory",
        "lru_cache",
        faulty=lambda _: train_with_cache(None),
        healthy=lambda _: train_with_cache(64),
        costs_time=False,
    ),
)
