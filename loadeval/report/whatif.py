"""What training would do under other settings of its loader: as sections, and as a figure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from loadeval.data.columns import Columns
from loadeval.model.costs import Change
from loadeval.model.model import NOTHING_GAINED, Model
from loadeval.model.whatif import WhatIf, predicted
from loadeval.report.blocks import Cell, Chart, Number, Section, Table, Text
from loadeval.words import counted, cpus

SETTINGS = ("num_workers", "prefetch_factor", "in_order", "batch_size", "cpus")
"""Those of a prediction that a user can ask for, in the order in which they are told."""
BRACKETS = "Brackets: 95% CI of what is measured, expected range of what is predicted."
SPEEDUPS = "Speed-ups are of whole epochs, over the run as it was."
MEMORY = {
    "memory_bytes": ("memory", "Memory is that of the workers and of prefetched batches."),
    "shared_memory_bytes": ("/dev/shm", "/dev/shm holds prefetched batches."),  # noqa: S108 - a name
}


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
    return [predicted(model, Change({"num_workers": count})) for count in model.curve()]


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
        UsageError: `output` has another extension.
        OSError: it cannot be written.
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
    for name in (*SETTINGS, "persistent_workers"):
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
    return f"Training may use {cpus(there)}{used}."
