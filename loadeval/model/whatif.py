"""What if: one change of a recorded loader, and all that can be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadeval.data.run import Run
from loadeval.errors import UsageError
from loadeval.estimate.memory import last_read
from loadeval.estimate.stats import Estimate
from loadeval.model.costs import Change, full_name, worker_bytes
from loadeval.model.model import AS_IT_IS, UNLIKE, Model
from loadeval.words import share, size, times

LEAST = {"num_workers": 0, "prefetch_factor": 1, "batch_size": 1, "cpus": 0.01}
"""The least that may be asked for of a setting."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is predicted of one change, as reports tell it.

    `settings` are all that the loader would have, as far as they are known, and `faster` the parts
    that would be so many times as fast, by their full names. `throughput` is in `unit` a second and
    `speedup` over the run as it was, both over whole epochs. `limit` is what training is held up
    by then. Of the `memory_bytes` that workers and batches in the queue take `shared_memory_bytes`
    lie in /dev/shm; None is not known. `shortages` says of what there is too little, and
    `assumptions` what is taken for granted.
    """

    settings: Mapping[str, Any]
    faster: Mapping[str, float]
    throughput: Estimate
    unit: str
    speedup: Estimate
    limit: str
    memory_bytes: float | None
    shared_memory_bytes: float | None
    shortages: tuple[str, ...]
    assumptions: tuple[str, ...]


def whatif(
    run: Run | Model,
    *,
    num_workers: int | None = None,
    prefetch_factor: int | None = None,
    batch_size: int | None = None,
    cpus: float | None = None,
    in_order: bool | None = None,
    faster: Mapping[str, float] | None = None,
) -> WhatIf:
    """What training would do under other settings; None leaves one as it was.

    `run` is one that alternated, or its model, and `cpus` are those that training and its workers
    may share. `faster` maps a transform or function, or "fetch", "collate", "indices", "hand-over",
    "pin" or "step", to how many times as fast it becomes. The last part of a name, behind a dot,
    will do where no other ends so.

    Raises UsageError where a run does not tell what happens inside the loader, or what a training
    step takes without loading, and for a value that no loader can have.
    """
    model = run if isinstance(run, Model) else Model.of(run)
    given = {
        "num_workers": num_workers,
        "prefetch_factor": prefetch_factor,
        "batch_size": batch_size,
        "cpus": cpus,
        "in_order": in_order,
    }
    settings = {name: each for name, each in given.items() if each is not None}
    for name, least in LEAST.items():
        if name in settings and not settings[name] >= least:
            raise UsageError(f"{name} is {settings[name]!r}; expected {least} or more")
    if prefetch_factor is not None and not {**model.settings, **settings}["num_workers"]:
        raise UsageError(
            f"prefetch_factor is {prefetch_factor} and num_workers is 0; expected workers, for "
            "only they prefetch: leave it out, or ask for 1 worker or more"
        )
    parts = dict[str, float]()
    for part, speed in (faster or {}).items():
        if not speed > 0:
            raise UsageError(
                f"faster has {speed!r} for {part!r}; expected how many times as fast it becomes, "
                "above 0: 2 is twice as fast"
            )
        parts[full_name(model.costs, part)] = speed
    return predicted(model, Change(settings, parts))


def predicted(model: Model, change: Change = AS_IT_IS) -> WhatIf:
    """What `model` says of a change."""
    memory, shared = memory_bytes(model, change)
    present = {**model.settings, "batch_size": model.run.loader.batch_size}
    return WhatIf(
        settings={**present, **model.settings_with(change)},
        faster={} if callable(change.costs) else change.costs,
        throughput=model.throughput(change),
        unit=model.unit,
        speedup=model.simulate(change),
        limit=model.limit(change),
        memory_bytes=memory,
        shared_memory_bytes=shared,
        shortages=tuple(shortages(model.run, memory, shared)),
        assumptions=tuple(assumptions(model, change)),
    )


def memory_bytes(model: Model, change: Change) -> tuple[float | None, float | None]:
    """What workers and batches in the queue take, and what of it lies in /dev/shm.

    None where that is not known.
    """
    settings = model.settings_with(change)
    workers, batch_bytes = settings["num_workers"], model.batch_bytes
    if batch_bytes is None:
        return None, None if workers else 0.0
    queued = (workers * settings["prefetch_factor"] + 1) * batch_bytes * model.batches_in(change)
    if not workers:
        return queued, 0.0
    each = worker_bytes(model.run)
    is_piped = 2 * (model.stages.pickled_bytes or 0.0) >= batch_bytes
    return None if each is None else workers * each + queued, 0.0 if is_piped else queued


def shortages(run: Run, memory: float | None, shared: float | None) -> list[str]:
    """What of it the machine of the run has too little for, of memory and /dev/shm."""
    there = last_read(run, "memory_limit_bytes")
    free = run.header.environment.get("shm_free_bytes")
    told = []
    if memory and there and memory > there:
        told.append(
            f"That takes {size(memory)} of memory, and the machine of the run has {size(there)}."
        )
    if shared and free and shared > free:
        told.append(
            f"That takes {size(shared)} of /dev/shm, and {size(free)} of it were free when the run "
            "began."
        )
    return told


def assumptions(model: Model, change: Change) -> list[str]:
    """What a prediction takes for granted, for the run does not show it."""
    now, told = model.settings["num_workers"], list[str]()
    workers = change.settings.get("num_workers", now)
    if workers > max(now, 1):
        if model.blockage == "lock":
            told.append(
                f"Workers wait for a lock for {share(model.blocked)} of fetching. However many "
                "there are, they get through it no faster than now."
            )
        elif len(model.in_turn) > 1:
            told.append(
                f"Workers are blocked for {share(model.blocked)} of fetching, and it is not known "
                "whether that takes longer with more workers. One end of the range assumes that "
                "the storage is no faster in total, the other that each worker waits as now. "
                "Training with more workers would tell."
            )
        growths = [guess.growth for guess in model.guesses]
        told.append(
            f"For each further CPU in use, a batch takes {min(growths):.0%} to {max(growths):.0%} "
            "more CPU time."
        )
    if workers and not now:
        told.append(
            "Workers start, and hand over batches, as fast as usual: the run has none to show it."
        )
    if model.batches_in(change) != 1:
        told.append("The training step takes the same time for a sample as in the run.")
    if abs(model.unlike - 1) > UNLIKE:
        told.append(
            f"Of the run as it is, the simulation takes {times(model.unlike)} the time that was "
            "measured. The range covers that the rest stays as it is, and that it goes with what "
            "loading computes."
        )
    return told
