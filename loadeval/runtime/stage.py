"""What the hot loop serves without looking up: some batches of one arm."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from loadeval.runlog.model import Arm
    from loadeval.runtime.counting import Count

CHUNK = 4096
"""Batches between two looks at anything but the clock, at most."""
CHUNK_GROWTH = 8
"""By how much the first chunks of an epoch grow."""


@dataclass(slots=True)
class Stage:
    """At most `size` batches of `source`.

    `since_ns` is when the first of them was asked for; None is now, or when the stage before was
    asked for a batch that it did not have. `marks` and `counts` are those of its Chunk, where the
    hot loop notes its batches; `asked_ns`, once it was served, is when the next one was asked for.
    """

    source: Iterator[Any]
    size: int
    arm: Arm = "real"
    pair: int | None = None
    since_ns: int | None = None
    marks: list[int] = field(default_factory=list)
    counts: list[tuple[int, Count]] = field(default_factory=list)
    asked_ns: int = 0

    @property
    def served(self) -> int:
        """How many batches were served."""
        return len(self.marks) // 2

    @property
    def fell_short(self) -> bool:
        """Whether `source` had fewer batches."""
        return self.served < self.size


def chunk_sizes() -> Iterator[int]:
    """Batches in each chunk of an epoch: one, and then more and more, CHUNK at most.

    What waits for a chunk's end then waits no longer than a few times what the epoch has lasted,
    be its batches quick or slow.
    """
    size = 1
    while True:
        yield size
        size = min(size * CHUNK_GROWTH, CHUNK)


def going_on(batches: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """The batches of the generator that `batches` makes, and after an exception of another one.

    A generator is over once it has raised. A chain of them goes on, where the loader does.
    """
    return chain.from_iterable(_until_one_ends(batches))


def _until_one_ends(batches: Callable[[], Iterator[Any]]) -> Iterator[Iterator[Any]]:
    has_ended: list[bool] = []
    while not has_ended:
        yield _noting_its_end(batches(), has_ended)


def _noting_its_end(batches: Iterator[Any], has_ended: list[bool]) -> Iterator[Any]:
    yield from batches
    has_ended.append(True)


class Plan(Protocol):
    """How an epoch is served: in stages, and what is left of it afterwards unmeasured.

    `rest` is None when the stages end with the epoch. `asked_ns` is when the batch was asked for
    that no stage has; None if the hot loop knows best.
    """

    rest: Iterator[Any] | None
    asked_ns: int | None

    def stages(self, epoch: int) -> Generator[Stage, None, None]:
        """The stages of epoch number `epoch`; each was served when the next one is asked for."""

    def remainder(self) -> Iterator[Any]:
        """What is left to serve if the stages themselves were broken off by an exception."""


class WholeEpoch:
    """All of `source`: its first batch, by which counting is chosen, and chunks of the others.

    `opened_ns`, the time that opening the source took, counts as part of the first wait. Where
    `source` has more than `most` batches, what `then` returns follows those; None is nothing.
    """

    asked_ns: int | None = None

    def __init__(
        self,
        source: Iterator[Any],
        clock: Callable[[], int],
        opened_ns: int,
        most: float = math.inf,
        then: Callable[[], Iterator[Any] | None] | None = None,
    ) -> None:
        self.rest: Iterator[Any] | None = None
        self._source = source
        self._clock = clock
        self._opened_ns = opened_ns
        self._most = most
        self._then = then
        self._stages: list[Stage] = []

    @property
    def served(self) -> int:
        """How many batches of `source` were served so far."""
        return sum(stage.served for stage in self._stages)

    def stages(self, epoch: int) -> Generator[Stage, None, None]:  # noqa: ARG002 - see Plan
        """See Plan."""
        since_ns: int | None = self._clock() - self._opened_ns
        left = self._most
        for size in chunk_sizes():
            stage = Stage(self._source, int(min(size, left)), since_ns=since_ns)
            self._stages += [stage] if self._then is not None else []
            yield stage
            since_ns = None
            left -= stage.served
            if stage.fell_short or not left:
                break
        if self._then is not None and not left:
            self.rest = self._then()

    def remainder(self) -> Iterator[Any]:
        """See Plan."""
        return self._source
