"""What a user asked a LoaderEvaluator to do, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from loadeval.errors import UsageError
from loadeval.runlog.model import Mode

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

Tool = Literal["nvtx", "torch"]
"""What shows ranges, see annotate.py."""
DEFAULT_PROBE_INTERVAL_S = 0.1
DEFAULT_CACHE_BYTES = 4 * 2**30
"""Twenty batches of 256 images of 224 x 224 in float32 take 3.1 GB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of LoaderEvaluator, whose docstring describes them. Raises UsageError."""

    mode: Mode
    num_cached_batches: int = 1
    metrics_file: str | os.PathLike[str] | None = None
    log_file: str | os.PathLike[str] | None = None
    warmup: int | None = None
    samples: Callable[[Any], int | None] | None
    unit: str
    max_cache_bytes: int
    name: str | None = None
    epoch_batches: float | None = None
    replay_after: int = 0
    overwrite: bool
    pairs: int | None
    batches: int | None
    precision: float | None = None
    seed: int
    clock: Callable[[], int]
    probes: tuple[Any, ...] = ()
    probe_interval_s: float = DEFAULT_PROBE_INTERVAL_S
    annotate: Tool | None = None
    every: int = 1

    def __post_init__(self) -> None:
        _one_of(get_args(Mode), "mode", self.mode)
        _at_least(1 if self.mode == "replay" else 0, "num_cached_batches", self.num_cached_batches)
        _at_least(0, "replay_after", self.replay_after)
        if self.replay_after and self.mode != "replay":
            raise UsageError(
                f"replay_after is {self.replay_after} in mode {self.mode!r}, which replays "
                "nothing; expected mode='replay', or no replay_after="
            )
        _at_least(1, "max_cache_bytes", self.max_cache_bytes)
        if self.warmup is not None:
            _at_least(0, "warmup", self.warmup)
        if self.epoch_batches is not None and self.epoch_batches != math.inf:
            _at_least(1, "epoch_batches", self.epoch_batches)
        _at_least(0, "seed", self.seed)
        self._check_end()
        _at_least(1, "every", self.every)
        if self.every > 1 and self.mode != "log":
            raise UsageError(
                f"every is {self.every} in mode {self.mode!r}, which needs every batch; expected "
                "mode='log', or every=1"
            )
        if not self.probe_interval_s > 0:
            raise UsageError(
                f"probe_interval_s is {self.probe_interval_s!r}; expected seconds between two "
                "readings, such as 0.1; pass probes=() for no readings"
            )
        _one_of((*get_args(Tool), None), "annotate", self.annotate)
        if self.samples is not None and not callable(self.samples):
            raise UsageError(
                f"samples is {self.samples!r}; expected a callable from a batch to its number of "
                "samples, such as len"
            )
        if not self.unit or not isinstance(cast("object", self.unit), str):
            raise UsageError(f"unit is {self.unit!r}; expected a word such as 'images'")

    def _check_end(self) -> None:
        ends = {"pairs": self.pairs, "batches": self.batches, "precision": self.precision}
        for name in ("pairs", "batches"):
            if ends[name] is not None:
                _at_least(1, name, ends[name])
        if self.precision is not None and not 0 < self.precision < 1:
            raise UsageError(
                f"precision is {self.precision!r}; expected a share of the speed-up, such as 0.05"
            )
        given = [name for name, value in ends.items() if value is not None]
        if given and self.mode != "alternate":
            raise UsageError(
                f"{' and '.join(given)} was given in mode {self.mode!r}, which does not end by it; "
                "expected mode='alternate', or none of pairs=, batches= and precision="
            )

    def warmup_for(self, prefetch_depth: int | None) -> int:
        """How many batches of an epoch are not steady: while a queue of that depth settles.

        Replay leaves out one more, whose wait holds the comparison of the first batch.
        """
        if self.warmup is not None:
            return self.warmup
        return (prefetch_depth or 0) + (2 if self.mode == "replay" else 1)


def _one_of(known: tuple[object, ...], name: str, value: object) -> None:
    if value not in known:
        raise UsageError(f"{name} is {value!r}; expected {' or '.join(map(repr, known))}")


def _at_least(lowest: int, name: str, value: object) -> None:
    if type(value) is not int or value < lowest:
        raise UsageError(f"{name} is {value!r}; expected a whole number, {lowest} or more")
