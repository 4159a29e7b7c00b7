"""What a user asks of a measurement: checked once, where it is given, and passed on whole."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from loadeval.data.lines import Mode
from loadeval.errors import UsageError

Tool = Literal["nvtx", "torch"]
File: TypeAlias = "str | os.PathLike[str]"
TrackerName = Literal["mlflow", "wandb", "tensorboard"]

DEFAULT_CACHE_BYTES = 4 * 2**30
DEFAULT_PROBE_INTERVAL_S = 0.1
CHOICES: dict[str, tuple[Any, ...]] = {
    "mode": get_args(Mode),
    "annotate": (*get_args(Tool), None),
    "track": (*get_args(TrackerName), None),
}
WHOLE: dict[str, tuple[Any, ...]] = {
    "warmup": (0, None),
    "num_cached_batches": (1,),
    "max_cache_bytes": (1,),
    "epoch_batches": (1, None, math.inf),
    "replay_after": (0,),
    "pairs": (1, None),
    "batches": (1, None),
    "seed": (0,),
}
"""Settings that are whole numbers: the least of each, and what else it may be."""
ONLY_IN: dict[str, tuple[Mode, ...]] = {
    "epoch_batches": ("replay",),
    "replay_after": ("replay",),
    "pairs": ("alternate",),
    "batches": ("log", "alternate"),
    "stages": ("log", "alternate"),
}
IN_HEADER = (*list(WHOLE)[1:], "annotate", "stages")
"""What the header of a log tells of them; `warmup` has a place of its own there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """See LoaderEvaluator, whose arguments these are. Raises UsageError for what is not valid."""

    mode: Mode
    num_cached_batches: int = 20
    metrics_file: File | None = None
    log_file: File | None = None
    warmup: int | None = None
    samples: Any = None
    unit: str = "samples"
    max_cache_bytes: int = DEFAULT_CACHE_BYTES
    name: str | None = None
    epoch_batches: float | None = None
    replay_after: int = 0
    pairs: int | None = None
    batches: int | None = None
    seed: int = 0
    probes: Iterable[Any] = ()
    probe_interval_s: float = DEFAULT_PROBE_INTERVAL_S
    annotate: Tool | None = None
    stages: bool | None = None
    track: Any = None
    redact: bool = False
    overwrite: bool = False
    clock: Callable[[], int] = time.perf_counter_ns

    def __post_init__(self) -> None:
        given = partial(getattr, self)
        for name, choices in CHOICES.items():
            is_right = given(name) in choices or (name == "track" and callable(self.track))
            self._expect(name, is_right, " or ".join(map(repr, choices)))
        for name, (least, *others) in WHOLE.items():
            is_whole = type(given(name)) is int and given(name) >= least
            is_right = is_whole or given(name) in others
            self._expect(name, is_right, f"a whole number, {least} or more")
        self._expect("samples", self.samples is None or callable(self.samples), "a function")
        self._expect("unit", type(given("unit")) is str and self.unit, "a word")
        self._expect("stages", isinstance(self.stages, bool | None), "True, False or None")
        none = "pass probes=() to record no system metrics"
        probes, interval_s = given("probes"), given("probe_interval_s")
        is_right = isinstance(probes, Iterable) and not isinstance(probes, str)
        self._expect("probes", is_right, f"a list of 'gpu', 'host' or other probes; {none}")
        is_right = isinstance(interval_s, int | float) and 0 < interval_s < math.inf
        self._expect("probe_interval_s", is_right, f"seconds, more than 0; {none}")
        for name, modes in ONLY_IN.items():
            there = " or ".join(map(repr, modes))
            only = f"only in mode {there}, and the mode is {self.mode!r}; omit {name}="
            self._expect(name, not given(name) or self.mode in modes, only)
        object.__setattr__(self, "probes", tuple(probes))  # also of a further run

    def _expect(self, name: str, is_right: object, expected: str) -> None:
        if not is_right:
            raise UsageError(f"{name} is {getattr(self, name)!r}; expected {expected}")

    @property
    def looks_inside(self) -> bool:
        """Whether stages of the loader are timed."""
        return self.mode == "alternate" if self.stages is None else self.stages
