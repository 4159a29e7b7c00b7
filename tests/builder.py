"""Runs on the types of `loadeval.data`, made of a few numbers: nothing is served, no clock runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.lines import Arm, EpochEnd, Header, LoaderInfo, Prefetch
from loadeval.data.run import ARMS, STAGES, Run

MS = 1_000_000
ALTERNATELY: Sequence[tuple[Arm, Arm]] = (("real", "ideal"), ("ideal", "real"))


def make_header(**changes: Any) -> Header:
    """A header of an alternating run, with `changes`; those of its loader by their own names."""
    of_loader = {
        name: changes.pop(name) for name in LoaderInfo.__dataclass_fields__ if name in changes
    }
    loader = {"backend": "torch.utils.data.DataLoader", "workers": 2, "prefetch_depth": 4}
    known: dict[str, Any] = {
        "run_id": "1a2b",
        "name": "a run",
        "mode": "alternate",
        "created": "2026-01-31T12:00:00+00:00",
        "unit": "images",
        "warmup": 1,
        "loader": LoaderInfo(**{**loader, **of_loader}),
    }
    return Header(**{**known, **changes})


def steps(
    arm: Arm,
    wait_ms: npt.ArrayLike,
    step_ms: npt.ArrayLike,
    count: int | None = None,
    *,
    pair: int = UNKNOWN,
    epoch: int = 0,
    samples: npt.ArrayLike = 4,
    nbytes: npt.ArrayLike = 100,
    instrumented: bool = False,
    gpu_idle_ms: npt.ArrayLike | None = None,
    gpu_step_ms: npt.ArrayLike | None = None,
) -> Columns:
    """Consecutive batches: each column has one value for all of them, or one for each.

    A step of -1 was still open.
    """
    if count is None:
        count = max(np.size(column) for column in (wait_ms, step_ms, samples, nbytes))

    def ns(times_ms: npt.ArrayLike | None) -> npt.NDArray[np.int64]:
        if times_ms is None:
            return np.full(count, UNKNOWN)
        times = np.broadcast_to(np.asarray(times_ms, dtype=np.float64), count)
        return np.where(times < 0, UNKNOWN, np.rint(times * MS)).astype(np.int64)

    return Columns(
        {
            "epoch": np.full(count, epoch),
            "arm": np.full(count, ARMS.index(arm)),
            "pair": np.full(count, UNKNOWN if instrumented else pair),
            "instrumented": np.full(count, instrumented),
            "wait_ns": ns(wait_ms),
            "step_ns": ns(step_ms),
            "samples": np.full(count, samples),
            "nbytes": np.full(count, nbytes),
            "gpu_idle_ns": ns(gpu_idle_ms),
            "gpu_step_ns": ns(gpu_step_ms),
        }
    )


def run_of(blocks: Iterable[Columns], **known: Any) -> Run:
    """The run of these batches, each asked for when the step before it ends.

    `known` are fields of the run, of its header, or of its loader. Every epoch is exhausted,
    without a wait at its end, unless `ends` are given.
    """
    of_run = {name: known.pop(name) for name in [*known] if name in Run.__dataclass_fields__}
    table = Columns.concat([*blocks])
    table = table.take(np.argsort(table.epoch, kind="stable"))
    iteration_ns = table.wait_ns + np.maximum(table.step_ns, 0)
    epochs, starts = np.unique(table.epoch, return_index=True)
    lengths = np.diff(starts, append=len(table))
    table = table.replace(
        request_ns=np.cumsum(iteration_ns) - iteration_ns,
        batch=np.arange(len(table)) - np.repeat(starts, lengths),
    )
    ends = tuple(EpochEnd(epoch, "exhausted", None, 0) for epoch in epochs.tolist())
    return Run(make_header(**known), table, **{"ends": ends, "closed": True, **of_run})


def alternating(
    *,
    wait: float = 0.0,
    step: float = 10.0,
    ideal: float = 10.0,
    pairs: int = 8,
    real: int = 24,
    batches: int = 8,
    spread: float = 0.0,
    alone: float | None = None,
    first: float | None = None,
    **known: Any,
) -> Run:
    """Pairs of blocks in turns: a real wait, a real and an ideal step, each in ms.

    All of them vary by `spread`. `alone` is what a batch takes the loader alone. Each pair is an
    epoch, if `first` is what its first batch waits for.
    """
    noise = np.random.default_rng(0)

    def times(mean: float, count: int) -> npt.NDArray[np.float64]:
        return np.maximum(noise.normal(mean, spread * mean, count), 0.0)

    blocks = []
    for pair in range(pairs):
        place: dict[str, int] = {"epoch": pair if first is not None else 0}
        blocks.append(steps("real", wait if first is None else first, step, 1, **place))
        for arm in ALTERNATELY[pair % 2]:
            is_real = arm == "real"
            count = real if is_real else batches
            waits, taken = (
                times(wait if is_real else 0.0, count),
                times(step if is_real else ideal, count),
            )
            blocks.append(steps(arm, waits, taken, count, pair=pair, **place))
    prefetches = [
        Prefetch(pair, 0, batches, batches, int(batches * (alone or 0.0) * MS), 4 * batches)
        for pair in range(pairs if alone is not None else 0)
    ]
    return run_of(blocks, **{"prefetches": tuple(prefetches), **known})


def cores_read(run: Run, **subjects: float | tuple[float, float]) -> Run:
    """The run with the CPUs in use, each the same in both arms, or a pair: real and ideal.

    The machine's are those of the others, unless they are given: nobody else is at work.
    """
    pairs = {subject: np.broadcast_to(cores, 2) for subject, cores in subjects.items()}
    pairs = {"machine": np.sum([*pairs.values()], axis=0), **pairs}
    time_ns = np.arange(2000) * 10 * MS
    arm = run.steps.arm[(np.searchsorted(run.steps.request_ns, time_ns) - 1).clip(min=0)]
    readings = {
        ("host", subject): Columns({"time_ns": time_ns, "cpu_cores": cores[arm].astype(float)})
        for subject, cores in pairs.items()
    }
    return replace(run, readings=readings)


def logged(
    wait_ms: npt.ArrayLike, step_ms: npt.ArrayLike = 10.0, mode: str = "log", **known: Any
) -> Run:
    """A run in one epoch that served everything as it came, or replayed."""
    arm: Arm = "ideal" if mode == "replay" else "real"
    return run_of([steps(arm, wait_ms, step_ms)], mode=mode, **known)


def stage_rows(
    fetch_ms: npt.ArrayLike,
    count: int | None = None,
    *,
    workers: int = 2,
    prefetch: int = 2,
    step_ms: float = 0.0,
    epoch: int = 0,
    begin_ms: float = 0.0,
    **known: npt.ArrayLike,
) -> Columns:
    """Batches that a DataLoader loads in order, as `Run.stages` has them.

    What each stage takes, one value for all batches or one for each, is named `index_ms`,
    `collate_ms`, `pickle_ms`, `receive_ms` or `pin_ms`; what else is `known` are columns as they
    are. Workers have `prefetch` batches each to do; batch n is the task of worker n modulo workers.
    """
    takes = {"fetch_ms": fetch_ms}
    takes |= {f"{name}_ms": known.pop(f"{name}_ms", 0) for name in STAGES_AFTER_FETCH}
    count = count or max(np.size(column) for column in (*takes.values(), *known.values()))
    fetch, index, collate, pickle, receive, pin = (
        np.broadcast_to(np.rint(np.asarray(ms) * MS).astype(np.int64), count).tolist()
        for ms in takes.values()
    )
    now = round(begin_ms * MS)
    free, feeder, asked = [now] * workers, [now] * workers, [now] * prefetch * workers
    rows = []
    for number in range(count):
        requested, worker = now, number % workers if workers else UNKNOWN
        if workers:
            start = max(free[worker], asked[number])
            free[worker] = start + fetch[number] + collate[number]
            pickles = max(free[worker], feeder[worker])
            feeder[worker] = pickles + pickle[number]
            received = max(now, feeder[worker]) + receive[number]
            now = received + pin[number] + index[number]
            asked.append(now)
        else:
            pickles = received = UNKNOWN
            start = now + index[number]
            now = start + fetch[number] + collate[number]
        rows.append((number, worker, requested, now, start, pickles, received))
        now += round(step_ms * MS)
    names = ("batch", "worker", "requested_ns", "delivered_ns", "fetch_start_ns")
    moments = zip(*rows, strict=True)
    columns = dict(zip((*names, "pickle_start_ns", "received_ns"), moments, strict=True))
    columns |= {"epoch": epoch, "samples": 4, "fetch_ns": fetch, "collate_ns": collate}
    columns |= {"index_ns": index, **({"pin_ns": pin} if any(pin) else {})}
    columns |= {"pickle_ns": pickle, "receive_ns": receive} if workers else {}
    every = dict.fromkeys(STAGES, UNKNOWN) | columns | known
    return Columns({name: np.broadcast_to(values, count) for name, values in every.items()})


STAGES_AFTER_FETCH = ("index", "collate", "pickle", "receive", "pin")


def looked_into(*epochs: Columns, **known: Any) -> Run:
    """The run of a log whose loader loaded these rows; each step lasts until the next request."""
    blocks = []
    for rows in epochs:
        step_ns = np.append(rows.requested_ns[1:] - rows.delivered_ns[:-1], 0)
        wait_ms = (rows.delivered_ns - rows.requested_ns) / MS
        blocks.append(steps("real", wait_ms, step_ns / MS, epoch=int(rows.epoch[0])))
    of_run = {"mode": "log", "warmup": 1, "stages": Columns.concat(epochs), **known}
    return run_of(blocks, **of_run)
