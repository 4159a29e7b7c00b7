"""The JSON that DALI's LoaderEvaluator saves, as a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.errors import RunLogError
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.log_file.fields import unexpected
from loadeval.runlog.model import (
    NOT_RECORDED,
    SECOND_NS,
    Arm,
    Block,
    CacheInfo,
    Cause,
    EpochEnd,
    Header,
    LoaderInfo,
    Run,
    Steps,
)

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_S = 1e9
"""32 years: more is no time that a batch took."""
STEPS_ARE_MEANS = (
    "every step is the mean over its epoch, the loader's epoch start included: DALI's file has the "
    "time of the whole epoch, and of the waits"
)
NO_STEPS = (
    "steps were not measured: DALI's class has the time of an epoch only when that ran to its "
    "end, by a clock that was not set back meanwhile"
)


def is_dali(content: dict[str, Any]) -> bool:
    """Whether `content`, parsed from JSON, looks like what DALI's class writes."""
    return not content or "batch_times" in content


def run_from_dali(metrics: dict[str, Any], path: Path) -> Run:
    """The last epoch that DALI's class measured, its file at `path` parsed from JSON.

    Of the steps the file has the sum alone: each step gets the mean of them.
    Raises RunLogError when there is no epoch, or something else where seconds belong.
    """
    try:
        return _run(metrics, path)
    except RunLogError as error:
        raise RunLogError(
            f"{path}, as a file of DALI's LoaderEvaluator, {error}; measure an epoch, and save "
            "its metrics, again"
        ) from None


def _run(metrics: dict[str, Any], path: Path) -> Run:
    if not metrics:
        raise RunLogError("is empty, where metrics were expected: it was saved before any batch")
    _check(metrics)
    mode, waits = metrics["mode"], metrics["batch_times"]
    wait_ns = np.rint(np.array(waits, dtype=float) * SECOND_NS).astype(np.int64)
    total_ns = round(metrics["total_time"] * SECOND_NS)
    stepped_ns = total_ns - int(wait_ns.sum())
    measured = total_ns > 0 and stepped_ns >= 0
    cause: Cause = "exhausted" if measured else "broken off"
    unknown = step_ns = np.full(len(wait_ns), UNKNOWN)
    if measured:
        each, over = divmod(stepped_ns, len(wait_ns))
        step_ns = each + (np.arange(len(wait_ns)) < over)
    arm: Arm = "real" if mode == "log" else "ideal"
    block = Block(0, arm, unknown, wait_ns, step_ns, unknown, unknown)
    return Run(
        header=Header(
            run_id=path.stem,
            name=path.stem,
            mode=mode,
            created=NOT_RECORDED,
            unit="samples",
            warmup=1,
            loader=LoaderInfo(backend=NOT_RECORDED, adapter="DALI's LoaderEvaluator"),
            cache=CacheInfo(metrics["cached_batches"], None, None) if mode == "replay" else None,
        ),
        steps=Steps.from_blocks([block], []),
        ends=(EpochEnd(0, cause),),
        closed=True,
        notes=(STEPS_ARE_MEANS if measured else NO_STEPS,),
        path=path,
    )


def _check(metrics: dict[str, Any]) -> None:
    waits = metrics["batch_times"]
    count = len(waits) if isinstance(waits, list) else None
    for name, expected, valid in (
        ("mode", "'log' or 'replay'", lambda mode: mode in ("log", "replay")),
        ("batch_times", "a list of seconds, 0 or more,", _are_waits),
        ("total_time", "a number of seconds", lambda total: _is_seconds(total, -LONGEST_S)),
        ("total_batches", f"{count}, the length of 'batch_times',", lambda total: total == count),
        ("cached_batches", "a whole number", lambda kept: type(kept) is int and kept >= 0),
    ):
        if not valid(metrics.get(name)):
            raise unexpected(name, metrics.get(name), expected)


def _are_waits(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(map(_is_seconds, values))


def _is_seconds(value: Any, lowest: float = 0.0) -> bool:
    return type(value) in {int, float} and lowest <= value <= LONGEST_S
