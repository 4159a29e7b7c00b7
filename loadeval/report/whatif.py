"""What training would do under other settings of its loader: in all, as sections, as a figure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loadeval.data.columns import Columns, mean_known
from loadeval.data.run import Run
from loadeval.errors import UsageError
from loadeval.estimate.memory import last_read
from loadeval.estimate.stats import Estimate
from loadeval.model.costs import Change, full_name, worker_bytes
from loadeval.model.model import AS_IT_IS, NOTHING_GAINED, UNLIKE, Model
from loadeval.report.blocks import Cell, Chart, Number, Section, Table, Text
from loadeval.words import counted, share, size, times
from loadeval.words import cpus as cpus_in_words

LEAST = {"num_workers": 0, "prefetch_factor": 1, "in_order": 0, "batch_size": 1, "cpus": 0.01}
"""The settings that a user can ask for, in the order in which they are told; and the least."""
BRACKETS = "Brackets: 95% CI of what is measured, expected range of what is predicted."
SPEEDUPS = "Speed-ups are of whole epochs, over the run as it was."
MEMORY = {
    "memory_bytes": ("memory", "Memory is that of the workers and of prefetched batches."),
    "shared_memory_bytes": ("/dev/shm", "/dev/shm holds prefetched batches."),  # noqa: S108 - a name
}


@dataclass(frozen=True)
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
    shortages: Sequence[str]
    assumptions: Sequence[str]


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
    may share. `faster` maps a transform or function, or "fetch", "collate", "indices", "transfer",
    "pin" or "step", to how many times as fast it becomes. The last part of a name, behind a dot,
    will do where no other ends so.

    Raises UsageError where a run does not tell what happens inside the loader, or what a training
    step takes without loading, and for a value that no loader can have.
    """
    model = run if isinstance(run, Model) else Model.of(run)
    settings = {name: each for name, each in locals().items() if name in LEAST and each is not None}
    for name, value in settings.items():
        if not value >= LEAST[name]:
            raise UsageError(f"{name} is {value!r}; expected {LEAST[name]} or more")
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
    memory_bytes, shared_bytes, shortages = memory(model, change)
    present = {**model.settings, "batch_size": model.run.loader.batch_size}
    return WhatIf(
        settings={**present, **model.settings_with(change)},
        faster={} if callable(change.costs) else change.costs,
        throughput=model.throughput(change),
        unit=model.unit,
        speedup=model.simulate(change),
        limit=model.limit(change),
        memory_bytes=memory_bytes,
        shared_memory_bytes=shared_bytes,
        shortages=shortages,
        assumptions=assumptions(model, change),
    )


def memory(model: Model, change: Change) -> tuple[float | None, float | None, list[str]]:
    """What workers and batches in the queue take of memory, and what of it lies in /dev/shm.

    None where that is not known. And of which the machine of the run has too little.
    """
    settings, batch_bytes = model.settings_with(change), mean_known(model.run.steps.nbytes)
    workers = settings["num_workers"]
    if batch_bytes is None:
        return None, None if workers else 0.0, []
    queued = (workers * settings["prefetch_factor"] + 1) * batch_bytes * model.batches_in(change)
    is_shared = workers and 2 * (model.stages.pickled_bytes or 0.0) < batch_bytes  # not piped
    shared, each = queued if is_shared else 0.0, worker_bytes(model.run) if workers else 0.0
    taken, told = None if each is None else workers * each + queued, list[str]()
    there = last_read(model.run, "memory_limit_bytes")
    free = model.run.header.environment.get("shm_free_bytes")
    if taken and there and taken > there:
        told.append(
            f"That takes {size(taken)} of memory, and the machine of the run has {size(there)}."
        )
    if shared and free and shared > free:
        told.append(
            f"That takes {size(shared)} of /dev/shm, and {size(free)} of it were free when the run "
            "began."
        )
    return taken, shared, told


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


def whatif_sections(model: Model, asked: WhatIf | None = None) -> list[Section]:
    """What is predicted of the settings `asked` for; without any, of each number of workers."""
    every = by_workers(model) if asked is None else [predicted(model)]
    if asked is not None and asked.speedup != NOTHING_GAINED:
        every.append(asked)
    with_workers = [each for each in every if each.settings["num_workers"]]
    kinds = [kind for kind in MEMORY if any(getattr(each, kind) for each in with_workers)]
    rows: list[tuple[Cell, ...]] = []
    for each in every:
        is_present = each.speedup == NOTHING_GAINED
        how = "measured" if is_present else "predicted"
        name = how if asked else f"{each.settings['num_workers']} {how}"
        rate, speedup = Number(each.throughput, "number"), Number(each.speedup, "times")
        limit = each.limit.removeprefix("the ")
        if limit == "loading in the training process":
            limit = "no workers"
        memory = (
            Number(getattr(each, kind), "size") if each in with_workers else "" for kind in kinds
        )
        rows.append((name, rate, "present" if is_present else speedup, limit, *memory))
    head = ["" if asked else "workers", f"{model.unit}/s", "speed-up", "held up by"]
    head += [MEMORY[kind][0] for kind in kinds]
    headline, said = _headline(model), list[Text]()
    if asked is None:
        for short in [each for each in every if each.shortages][:1]:
            least = counted(short.settings["num_workers"], "worker")
            said.append(Text(f"From {least} on: {' '.join(short.shortages)}", "caution"))
    else:
        headline = _says(model, asked)
        said += [Text(each, "caution") for each in asked.shortages]
    notes = (_cpus_there(model), BRACKETS, SPEEDUPS, *(MEMORY[kind][1] for kind in kinds))
    said.append(Text(" ".join(filter(None, notes)), "note"))
    parts = [Section(headline, priority=1), Section("", [Table(head, rows)]), Section("", said)]
    if assumed := _assumed(every):
        parts.append(Section("assumed", [Text(each, "entry") for each in assumed]))
    return parts


def whatif_as_dict(model: Model, asked: WhatIf | None = None) -> dict[str, object]:
    """What is measured and predicted, for `as_json`; `asked` are the settings that were given."""
    now = model.settings["num_workers"]
    return {
        "measured": [{"num_workers": now, "throughput": model.throughput()}],
        "predicted": by_workers(model),
        "best": enough(model),
        "with_options": asked,
        "unit": model.unit,
        "cpus": model.settings["cpus"],
        "others_cpus": model.settings["others_cpus"],
    }


def by_workers(model: Model) -> list[WhatIf]:
    """What is predicted for each number of workers, all else as it is."""
    return [predicted(model, Change({"num_workers": count})) for count in model.worker_counts()]


def enough(model: Model) -> WhatIf:
    """What is predicted for the fewest workers that come near the best."""
    return predicted(model, model.with_workers(model.best_workers()))


def plot_worker_curve(model: Model, output: str | os.PathLike[str] = "whatif.png") -> Path:
    """Draw throughput against the number of workers; returns the path of the figure written.

    Args:
        model: the model of a run: `Model.of(read_run("run.jsonl"))`.
        output: where the figure goes, replacing what is there: a PNG, an SVG or a PDF by its
            extension.

    Raises:
        UsageError: `output` has another extension or cannot be written.
    """
    from loadeval.report import charts  # noqa: PLC0415 - matplotlib takes a second to import

    every, path = by_workers(model), Path(output)
    notes = [BRACKETS, " ".join(["Assumed:", *_assumed(every)])]
    charts.save(path, _headline(model), [worker_curve(model, every)], notes)
    return path


def worker_curve(model: Model, every: Sequence[WhatIf]) -> Chart:
    """The chart of throughput against the number of workers."""
    tables = {
        kind: Columns(
            {
                "workers": [each.settings["num_workers"] for each in shown],
                "rate": np.array([each.throughput for each in shown]),
            }
        )
        for kind, shown in (("measured", [predicted(model)]), ("predicted", every))
    }
    says = f"In {model.unit} per second, over whole epochs. {_cpus_there(model)}"
    title = "Throughput by number of workers"
    return Chart("worker curve", title, says.rstrip(), tables, f"{model.unit}/s")


def _headline(model: Model) -> str:
    """How many workers are enough, and what they would bring."""
    best, now = enough(model), model.settings["num_workers"]
    if best.settings["num_workers"] == now:
        return f"No other number of workers is predicted to train faster than the present {now}."
    if (best.speedup.low or 0.0) <= 1:
        unsure = f"No other number of workers is sure to train faster than the present {now}."
        return f"{unsure} {_says(model, best)}"
    return f"{_says(model, best)} More workers would bring no more."


def _says(model: Model, one: WhatIf) -> str:
    """The settings that change, and how fast training is predicted to be with them."""
    present, changed = predicted(model).settings, list[str]()
    for name in (*LEAST, "persistent_workers"):
        value, before = one.settings.get(name), present.get(name)
        # CPUs that are asked for are used by no others.
        shared = name == "cpus" and one.settings["others_cpus"] != present["others_cpus"]
        if value is not None and (value != before or shared):
            changed.append(f"{name}={f'{value:g}' if name == 'cpus' else value}")
    if one.faster:
        faster = ", ".join(f"{name} {times:g}x" for name, times in one.faster.items())
        changed.append(f"{faster} faster")
    if not changed:
        return "These are the present settings: nothing would change."
    return f"With {', '.join(changed)}, training would be {one.speedup:times} as fast."


def _assumed(every: Sequence[WhatIf]) -> list[str]:
    return list(dict.fromkeys(each for one in every for each in one.assumptions))


def _cpus_there(model: Model) -> str:
    """How many CPUs there are, and what of them others use; "" where that is not known."""
    there, others = model.settings["cpus"], f"{model.settings['others_cpus']:.1f}"
    if there is None:
        return ""
    used = "" if others == "0.0" else f"; other programs use {others} of them"
    return f"Training may use {cpus_in_words(there)}{used}."
