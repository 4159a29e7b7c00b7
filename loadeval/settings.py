"""The arguments of a LoaderEvaluator, validated."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Literal, cast, get_args

from loadeval.data.lines import Mode
from loadeval.errors import UsageError

Tool = Literal["nvtx", "torch"]
"""Ranges are made for these profilers."""
TrackerName = Literal["mlflow", "wandb", "tensorboard"]
"""These trackers get scalars while a run goes on."""
DEFAULT_PROBE_INTERVAL_S = 0.1
DEFAULT_CACHE_BYTES = 4 * 2**30
"""Twenty batches of 256 images of 224 x 224 in float32 take 3.1 GB."""
ONLY_IN: dict[str, tuple[Mode, object]] = {
    "replay_after": ("replay", 0),
    "epoch_batches": ("replay", None),
    "pairs": ("alternate", None),
}
"""One mode alone uses each of these options; its value here means "not given"."""


class NeverBack:
    """A clock that stands still where `clock` goes back; whole nanoseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._latest_ns: int | None = None

    def __call__(self) -> int:
        """Now, in nanoseconds."""
        now_ns = int(self._clock())
        self._latest_ns = now_ns if self._latest_ns is None else max(now_ns, self._latest_ns)
        return self._latest_ns


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
    seed: int
    clock: Callable[[], int]
    probes: tuple[Any, ...] = ()
    probe_interval_s: float = DEFAULT_PROBE_INTERVAL_S
    annotate: Tool | None = None
    stages: bool | None = None
    redact: bool = False
    track: TrackerName | Callable[[int, dict[str, float]], object] | None = None

    def __post_init__(self) -> None:
        if self.clock is not perf_counter_ns and type(self.clock) is not NeverBack:
            object.__setattr__(self, "clock", NeverBack(self.clock))
        _one_of(get_args(Mode), "mode", self.mode)
        _at_least(1 if self.mode == "replay" else 0, "num_cached_batches", self.num_cached_batches)
        _at_least(0, "replay_after", self.replay_after)
        _at_least(1, "max_cache_bytes", self.max_cache_bytes)
        _at_least(0, "seed", self.seed)
        for name, lowest in {"warmup": 0, "epoch_batches": 1, "pairs": 1, "batches": 1}.items():
            value = getattr(self, name)
            if value is not None and (name, value) != ("epoch_batches", math.inf):
                _at_least(lowest, name, value)
        if not isinstance(cast("object", self.stages), bool | None):
            raise UsageError(f"stages is {self.stages!r}; expected True, False, or None")
        if not isinstance(cast("object", self.redact), bool):
            raise UsageError(f"redact is {self.redact!r}; expected True or False")
        self._check_mode()
        if not self.probe_interval_s > 0:
            raise UsageError(
                f"probe_interval_s is {self.probe_interval_s!r}; expected seconds, such as 0.1; "
                "pass probes=() to record no system metrics"
            )
        _one_of((*get_args(Tool), None), "annotate", self.annotate)
        track = None if callable(self.track) else self.track
        _one_of((*get_args(TrackerName), None), "track", track)
        if self.samples is not None and not callable(self.samples):
            raise UsageError(
                f"samples is {self.samples!r}; expected a function that returns a batch's number "
                "of samples, such as len"
            )
        if not self.unit or not isinstance(cast("object", self.unit), str):
            raise UsageError(f"unit is {self.unit!r}; expected a word such as 'images'")

    def _check_mode(self) -> None:
        for name, (mode, default) in ONLY_IN.items():
            value = getattr(self, name)
            if value != default and mode != self.mode:
                raise UsageError(
                    f"{name}={value!r} works only in mode {mode!r}, and the mode is "
                    f"{self.mode!r}; pass mode={mode!r}, or omit {name}="
                )
        for name in ("stages", "batches") if self.mode == "replay" else ():
            if getattr(self, name):
                raise UsageError(
                    f"{name}={getattr(self, name)!r} works only in modes 'log' and 'alternate', "
                    f"and the mode is 'replay'; pass mode='log', or omit {name}="
                )

    @property
    def looks_inside(self) -> bool:
        """Whether the stages of the loader are timed; by default where it alternates."""
        return self.mode == "alternate" if self.stages is None else self.stages

    def warmup_for(self, prefetch_depth: int | None) -> int:
        """How many batches at an epoch's start are not steady: those that fill the prefetch queue.

        One more in replay, where the second wait includes checking the first batch for changes.
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
