"""How a DataLoader's workers tell the training process what they did: memory that both map."""

from __future__ import annotations

import ctypes
import json
import signal
import traceback
from multiprocessing.sharedctypes import RawArray
from typing import Any

UNKNOWN = -1
MOST_TRANSFORMS = 24
"""How many transforms are timed separately."""
RECORD = (
    *("idx", "worker", "samples", "fetch_start_ns", "fetch_ns", "collate_ns"),
    *("slowest_ns", "slowest_index"),
    *("cpu_ns", "other_cpu_ns", "run_queue_ns", "read_bytes", "disk_bytes", "minor_faults"),
    *("system_ns", "private_bytes", "shared_bytes", "opened_files", "connections", "requests"),
    *("pickle_start_ns", "pickle_ns", "pickled_bytes", "same_idx"),
)
"""What a worker tells of a batch, in words of eight bytes; nanoseconds and calls of each of its
transforms follow. `idx`, torch's number of the batch, is at both ends, which shows whether another
record was written over this one while it was read."""
FIXED = len(RECORD)
STRIDE = FIXED + 2 * MOST_TRANSFORMS
WORD = 8

CHANNEL_WORDS = 8
WORKER_WORDS = 8  # a cache line: no two workers write to one
TRIES = 1000
TEXT = 65536
"""Bytes for a worker's text."""


class Channel:
    """Memory for `workers` and records of `slots` batches, which new processes can be given.

    The record of batch `idx` is in slot `idx % slots`, whichever worker loaded it. Where the
    training process loads by itself, it is its own worker 0, in memory that is not `shared`.
    """

    OPEN, COUNTS_CALLS = 0, 1
    """Words that tell whether somebody looks into the loader, and are 1 where calls are counted."""
    CLOSED, LOOKING, PAUSED = 0, 1, 2
    """What OPEN tells. While it is paused, torch's own code runs."""
    READY_NS, INIT_NS, TEXT_VERSION, TEXT_BYTES, UNPICKLING_NS = range(5)
    """A worker's own words: when it was ready, how long the user's `worker_init_fn` took, how often
    its text was changed and how long that is, and how long it unpickled what it was sent."""

    def __init__(self, workers: int, slots: int, *, shared: bool = True) -> None:
        self.workers, self.slots = workers, slots
        self._ring = CHANNEL_WORDS + workers * WORKER_WORDS
        self._texts = self._ring + slots * STRIDE
        words = self._texts + workers * TEXT // WORD
        self._memory: Any = RawArray("q", words) if shared else (ctypes.c_longlong * words)()
        self._map()
        for slot in range(slots):
            self.words[self.slot(slot)] = UNKNOWN

    def _map(self) -> None:
        self.bytes = memoryview(self._memory).cast("B")
        self.words = self.bytes.cast("q")

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in {"bytes", "words"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._map()

    def own(self, worker: int) -> int:
        """The first of a worker's own words."""
        return CHANNEL_WORDS + worker * WORKER_WORDS

    def slot(self, idx: int) -> int:
        """The first word of the record of batch `idx`."""
        return self._ring + idx % self.slots * STRIDE

    def take_record(self, idx: int) -> bytes:
        """The record in the slot of batch `idx`, which is known no more then."""
        slot = self.slot(idx)
        record = bytes(self.bytes[slot * WORD : (slot + STRIDE) * WORD])
        self.words[slot] = UNKNOWN
        return record

    def write_text(self, worker: int, content: dict[str, Any]) -> None:
        """Write `content` as JSON, if there is room for it."""
        text = json.dumps(content, separators=(",", ":")).encode()
        if len(text) <= TEXT:
            own, start = self.own(worker), self._texts * WORD + worker * TEXT
            version = self.words[own + self.TEXT_VERSION]
            self.words[own + self.TEXT_VERSION] = version + 1  # odd while it is written
            self.bytes[start : start + len(text)] = text
            self.words[own + self.TEXT_BYTES] = len(text)
            self.words[own + self.TEXT_VERSION] = version + 2

    def read_text(self, worker: int, known: int) -> tuple[int, dict[str, Any]] | None:
        """The text's version and content; None if that version is `known`, or half written."""
        own, start = self.own(worker), self._texts * WORD + worker * TEXT
        for _ in range(TRIES):
            version = self.words[own + self.TEXT_VERSION]
            if version == known:
                return None
            text = bytes(self.bytes[start : start + self.words[own + self.TEXT_BYTES]])
            if version % 2 == 0 and self.words[own + self.TEXT_VERSION] == version:
                return version, json.loads(text)
        return None


def is_of_a_signal(error: BaseException) -> bool:
    """Whether a signal's handler raised it: torch's for a dead worker, or a user's.

    It may do so while we look, but it is meant for whoever called us.
    """
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = [
        getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers
    ]
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_code in codes for frame in frames)
