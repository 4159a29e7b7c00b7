"""What a DataLoader's workers tell the training process, in memory that both map."""

from __future__ import annotations

import marshal
from multiprocessing.sharedctypes import RawArray
from typing import Any

from loadeval.errors import in_words

Record = dict[str, Any]
"""What is known of a batch; what is not in it is not.

It has columns of StageTimes, by name; of each transform nanoseconds and calls, in `transforms`, and
how many numbers go in and come out, in `sizes`; and in `code` how often which line was seen.
"""
CLOSED, LOOKING, PAUSED = range(3)
"""Whether somebody looks into the loader. While it is paused, torch's own code runs."""
WORD, PLACE = 8, 8192
"""Bytes of a number, and of a place. A record takes one or two thousand, as a rule."""
NOTHING = -1
LONGEST_REASON = 300


class Channel:
    """A place for each batch that is under way, and one for each worker.

    A place has a dict of Python's own values, and a number: torch's number of the batch, or how
    often the worker has told something. New processes can be given a channel, however they start.
    """

    def __init__(self, workers: int, batches: int) -> None:
        self.workers, self._batches = workers, batches
        self._memory: Any = RawArray("q", (1 + batches + workers) * PLACE // WORD)
        self._map()
        for place in range(1, 1 + batches + workers):
            self._words[place * PLACE // WORD] = NOTHING

    def _map(self) -> None:
        self._bytes = memoryview(self._memory).cast("B")
        self._words = self._bytes.cast("q")

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in {"_bytes", "_words"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._map()

    @property
    def state(self) -> int:
        """CLOSED, LOOKING or PAUSED."""
        return self._words[0]

    @state.setter
    def state(self, state: int) -> None:
        self._words[0] = state

    def of_batch(self, idx: int) -> int:
        """The place of the batch with this number, whichever worker loads it."""
        return 1 + idx % self._batches

    def of_worker(self, worker: int) -> int:
        """The place of a worker."""
        return 1 + self._batches + worker

    def tell(self, place: int, number: int, content: Record) -> None:
        """Put `content` into a place. Raises ValueError if there is no room for it."""
        text, word = marshal.dumps(content), place * PLACE // WORD
        if len(text) > PLACE - 2 * WORD:
            raise ValueError(f"{len(text)} bytes are too many for one batch")
        start = (word + 2) * WORD
        self._words[word] = NOTHING  # until it is whole
        self._words[word + 1] = len(text)
        self._bytes[start : start + len(text)] = text
        self._words[word] = number

    def take(self, place: int, number: int | None = None) -> Record | None:
        """Take the content out of a place; None if it is empty, or has another number."""
        word = place * PLACE // WORD
        present, start = self._words[word], (word + 2) * WORD
        if present == NOTHING or (number is not None and number != present):
            return None
        text = bytes(self._bytes[start : start + self._words[word + 1]])
        if self._words[word] != present:  # in_order=False lets a batch overtake so many others
            return None
        self._words[word] = NOTHING
        content: Record = marshal.loads(text)  # noqa: S302 - a process of this loader wrote it
        return content


def reason(error: Exception) -> str:
    """Why something has failed, short enough for a place."""
    return in_words(error)[:LONGEST_REASON]
