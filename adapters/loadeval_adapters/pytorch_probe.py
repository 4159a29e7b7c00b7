"""Loads a few samples again, in a worker, to see from which transform on they differ."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from loadeval_adapters.pytorch_sizes import WHOLE, is_image, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    State = tuple[Callable[[], Any], Callable[[Any], object]]
    """What reads the state of a generator of random numbers, and what sets it."""

GENERATORS = (random.Random, np.random.RandomState, np.random.Generator, torch.Generator)
SAMPLES, TIMES = 4, 3
"""So many samples are loaded so many times more."""


class Probe:
    """Compares what each transform makes of the same sample, time after time.

    `varies` tells of each, and of the whole sample, whether that differed or random numbers were
    drawn meanwhile; None is not known. The state of random numbers is afterwards as it was: that of
    Python, NumPy and torch, and that of `generators`.
    """

    def __init__(self, generators: Sequence[Any]) -> None:
        self.varies: dict[str, bool | None] = {}
        self._states = _states_of(generators)
        self._first: dict[tuple[str, int], bytes | None] = {}
        self._calls: Counter[str] = Counter()

    def run(self, dataset: Any, indices: Sequence[Any]) -> None:
        """Load some samples of `dataset`, each several times. Raises what loading raises."""
        before = [get() for get, _ in self._states]
        try:
            for index in indices[:SAMPLES]:
                self._first.clear()
                for _ in range(TIMES):
                    self._calls.clear()
                    self.note(WHOLE, None)(dataset[index])
        finally:
            for (_, restore), state in zip(self._states, before, strict=True):
                restore(state)

    def note(self, name: str, _: Any) -> Callable[[Any], None]:
        """A call of a transform begins; what it returns is to be called with its result."""
        self._calls[name] += 1
        place, drawn = (name, self._calls[name]), self._drawn()

        def compare(result: Any) -> None:
            digest = digest_of(result)
            first = self._first.setdefault(place, digest)
            if digest != first or self._drawn() != drawn:
                self.varies[name] = True
            elif digest is None:
                self.varies[name] = self.varies.get(name) or None
            else:
                self.varies.setdefault(name, False)

        return compare

    def _drawn(self) -> list[bytes]:
        """What differs once random numbers were drawn."""
        states = [get() for get, _ in self._states]
        return [
            state.numpy().tobytes() if issubclass(type(state), Tensor) else pickle.dumps(state)
            for state in states
        ]


def _states_of(generators: Sequence[Any]) -> list[State]:
    states: list[State] = [
        (random.getstate, random.setstate),
        (partial(np.random.get_state, legacy=False), np.random.set_state),
        (torch.get_rng_state, torch.set_rng_state),
    ]
    for own in generators:
        if issubclass(type(own), random.Random):
            states.append((own.getstate, own.setstate))
        elif issubclass(type(own), np.random.Generator):
            bits = own.bit_generator
            states.append((partial(getattr, bits, "state"), partial(setattr, bits, "state")))
        else:
            states.append((own.get_state, own.set_state))
    return states


def digest_of(x: Any) -> bytes | None:
    """The same for the same content; None where a part has none that is known."""
    digest = blake2b()
    try:
        for part in parts_of(x):
            digest.update(_content_of(part))
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        return None
    return digest.digest()


def _content_of(x: Any) -> bytes:
    kind = type(x)
    if issubclass(kind, Tensor):
        numbers: bytes = x.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        return f"{x.dtype} {tuple(x.shape)} ".encode() + numbers
    if issubclass(kind, (np.ndarray, np.generic)) and not x.dtype.hasobject:
        return f"{x.dtype} {x.shape} ".encode() + bytes(x.tobytes())
    if is_image(kind):
        return f"{x.mode} {x.size} ".encode() + bytes(x.tobytes())
    if x is None or issubclass(kind, (bytes, bytearray, str, bool, int, float)):
        return repr(x).encode()
    raise ValueError
