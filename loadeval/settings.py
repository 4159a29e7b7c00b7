"""The arguments of a LoaderEvaluator, validated."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Literal, get_args

from loadeval.data.lines import Mode
from loadeval.errors import UsageError

Tool = Literal["nvtx", "torch"]
"""Ranges are made for these profilers."""
TrackerName = Literal["mlflow", "wandb", "tensorboard"]
"""These trackers get scalars while a run goes on."""
DEFAULT_PROBE_INTERVAL_S = 0.1
DEFAULT_CACHE_BYTES = 4 * 2**30
"""Twenty batches of 256 images of 224 x 224 in float32 take 3.1 GB."""
LOWEST = {
    **dict.fromkeys(("num_cached_batches", "replay_after", "seed", "warmup"), 0),
    **dict.fromkeys(("max_cache_bytes", "epoch_batches", "pairs", "batches"), 1),
}
"""What numbers are at least; replay keeps one batch more."""
MAY_BE_NONE = {"warmup", "epoch_batches", "pairs", "batches"}
ONLY_IN: dict[str, tuple[Mode, ...]] = {
    "replay_after": ("replay",),
    "epoch_batches": ("replay",),
    "pairs": ("alternate",),
    "stages": ("log", "alternate"),
    "batches": ("log", "alternate"),
}
"""Not every mode uses these options."""


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
    samples: Callable[[Any], int | None] | None = None
    unit: str = "samples"
    max_cache_bytes: int = DEFAULT_CACHE_BYTES
    name: str | None = None
    epoch_batches: float | None = None
    replay_after: int = 0
    overwrite: bool = False
    pairs: int | None = None
    batches: int | None = None
    seed: int = 0
    clock: Callable[[], int] = perf_counter_ns
    probes: Iterable[Any] = ()
    probe_interval_s: float = DEFAULT_PROBE_INTERVAL_S
    annotate: Tool | None = None
    stages: bool | None = None
    redact: bool = False
    track: TrackerName | Callable[[int, dict[str, float]], object] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "probes", tuple(self.probes))
        if self.clock is not perf_counter_ns and type(self.clock) is not NeverBack:
            object.__setattr__(self, "clock", NeverBack(self.clock))
        track = None if callable(self.track) else self.track
        for name, value, known in (
            ("mode", self.mode, get_args(Mode)),
            ("annotate", self.annotate, (*get_args(Tool), None)),
            ("track", track, (*get_args(TrackerName), None)),
        ):
            _expect(value in known, name, value, " or ".join(map(repr, known)))
        for name, least in LOWEST.items():
            value = getattr(self, name)
            lowest = least + (name == "num_cached_batches" and self.mode == "replay")
            is_none = value is None and name in MAY_BE_NONE
            is_count = type(value) is int and value >= lowest
            is_infinite = name == "epoch_batches" and value == math.inf
            expected = f"a whole number, {lowest} or more"
            _expect(is_none or is_count or is_infinite, name, value, expected)
        is_choice = isinstance(self.stages, bool | None)
        _expect(is_choice, "stages", self.stages, "True, False, or None")
        _expect(isinstance(self.redact, bool), "redact", self.redact, "True or False")
        for name, modes in ONLY_IN.items():
            value = getattr(self, name)
            if value and self.mode not in modes:
                words = " and ".join(map(repr, modes))
                raise UsageError(
                    f"{name}={value!r} works only in mode{'s' * (len(modes) > 1)} {words}, and the "
                    f"mode is {self.mode!r}; pass mode={modes[0]!r}, or omit {name}="
                )
        seconds = "seconds, such as 0.1; pass probes=() to record no system metrics"
        _expect(self.probe_interval_s > 0, "probe_interval_s", self.probe_interval_s, seconds)
        counts = "a function that returns a batch's number of samples, such as len"
        _expect(self.samples is None or callable(self.samples), "samples", self.samples, counts)
        is_word = self.unit and isinstance(self.unit, str)
        _expect(is_word, "unit", self.unit, "a word such as 'images'")

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


def _expect(is_right: object, name: str, value: object, expected: str) -> None:
    if not is_right:
        raise UsageError(f"{name} is {value!r}; expected {expected}")
