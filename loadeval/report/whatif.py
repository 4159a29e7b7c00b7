"""What training would do under other settings of its loader: as sections, and as a figure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loadeval.data.columns import Columns
from loadeval.estimate.stats import Estimate
from loadeval.model.changes import Change
from loadeval.model.model import LIMITS, Model
from loadeval.model.whatif import WhatIf, predicted
from loadeval.report.blocks import Block, Cell, Chart, Number, Section, Table, Text
from loadeval.words import counted, cpus

SETTINGS = ("num_workers", "prefetch_factor", "in_order", "batch_size", "cpus")
"""Those of a prediction that a user can ask for, in the order in which they are told."""
BRACKETS = "Brackets: 95% CI of what is measured, expected range of what is predicted."
SPEEDUPS = "Speed-ups are of whole epochs, over the run as it was."
MEMORY = {
    "memory": "Memory is that of the workers and of prefetched batches.",
    "/dev/shm": "/dev/shm holds prefetched batches.",  # noqa: S108 - the name of a column
}


def whatif_sections(model: Model, asked: WhatIf | None = None) -> list[Section]:
    """What is predicted of the settings `asked` for; without any, of each number of workers."""
    every = by_workers(model) if asked is None else [predicted(model), asked]
    memory = [kind for kind in MEMORY if any(_memory(each, kind) for each in every)]
    notes = " ".join([BRACKETS, SPEEDUPS, *(MEMORY[kind] for kind in memory)])
    assumed = dict.fromkeys(each for one in every for each in one.assumptions)
    if asked is None:
        measured, now = model.measured(), model.settings["num_workers"]
        rows: list[list[Cell]] = []
        for each in every:
            workers = each.settings["num_workers"]
            rate = measured.get(workers)
            speedup = each.speedup if rate is None else rate / measured[now]
            cells: list[Cell] = [
                f"{workers} {'predicted' if rate is None else 'measured'}",
                Number(rate or each.throughput, "number"),
                "present" if workers == now else Number(speedup, "times"),
                _limit(each),
            ]
            rows.append([*cells, *(_memory(each, kind) for kind in memory)])
        head = ["workers", f"{model.unit}/s", "speed-up", "held up by", *memory]
        short = next((each for each in every if each.shortages), None)
        said = [Text(f"{_cpus_there(model)} {notes}".strip(), "note")]
        if short is not None:
            least = counted(short.settings["num_workers"], "worker")
            said.append(Text(f"From {least} on: {' '.join(short.shortages)}", "caution"))
        headline = _headline(model)
        blocks: list[Block] = [Table(head, rows), worker_curve(model, every)]
    else:
        present, before = every[0], _settings(every[0])
        rows = [
            [name, before.get(name, ""), value]
            for name, value in _settings(asked).items()
            if name == "num_workers" or value != before.get(name)
        ]
        rows += [
            [f"{model.unit}/s", *(Number(each.throughput, "number") for each in every)],
            ["speed-up", "", Number(asked.speedup, "times")],
            ["held up by", _limit(present), _limit(asked)],
        ]
        rows += [[kind, *(_memory(each, kind) for each in every)] for kind in memory]
        said = [Text(LIMITS[asked.limit])]
        said += [*(Text(each, "caution") for each in asked.shortages), Text(notes, "note")]
        head = ["", "present, measured", "what if, predicted"]
        headline, blocks = _says(model, asked), [Table(head, rows)]
    parts = [Section(headline, priority=1), Section("", blocks), Section("", said)]
    if assumed:
        parts.append(Section("assumed", [Text(each, "entry") for each in assumed]))
    return parts


def whatif_as_dict(model: Model, asked: WhatIf | None = None) -> dict[str, object]:
    """What is measured and predicted, for `as_json`; `asked` are the settings that were given."""
    return {
        "measured": [
            {"num_workers": workers, "throughput": rate}
            for workers, rate in sorted(model.measured().items())
        ],
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


def plot_worker_curve(
    model: Model,
    output: str | os.PathLike[str] = "whatif.png",
    chosen: WhatIf | None = None,
) -> Path:
    """Draw throughput against the number of workers; returns the path of the figure written.

    Args:
        model: the model of a run: `Model.of(read_run("run.jsonl"))`.
        output: where the figure goes, replacing what is there: a PNG, an SVG or a PDF by its
            extension.
        chosen: what `whatif` predicted under some settings, which is marked.

    Raises:
        UsageError: `output` has another extension or cannot be written.
    """
    from loadeval.report import charts  # noqa: PLC0415 - matplotlib takes a second to import

    every, path = by_workers(model), Path(output)
    shown = every if chosen is None else [*every, chosen]
    assumed = dict.fromkeys(assumption for each in shown for assumption in each.assumptions)
    headline = _headline(model) if chosen is None else _says(model, chosen)
    notes = [BRACKETS, *(["Assumed: " + " ".join(assumed)] if assumed else [])]
    charts.save(path, headline, [worker_curve(model, every, chosen)], notes)
    return path


def worker_curve(model: Model, every: Sequence[WhatIf], chosen: WhatIf | None = None) -> Chart:
    """The chart of throughput against the number of workers."""

    def points(rates: Mapping[int, Estimate]) -> Columns:
        rows = [
            (workers, rate.value, *((np.nan, np.nan) if rate.low is None else rate.bounds))
            for workers, rate in sorted(rates.items())
        ]
        names = ("workers", "value", "low", "high")
        return Columns(dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True)))

    tables = {
        "measured": points(model.measured()),
        "predicted": points({each.settings["num_workers"]: each.throughput for each in every}),
    }
    if chosen is not None:
        tables["chosen"] = points({chosen.settings["num_workers"]: chosen.throughput})
    there = model.settings["cpus"]
    if there is not None:
        tables["marks"] = Columns({"workers": np.array([there]), "label": np.array([cpus(there)])})
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
    before = _settings(predicted(model))
    changed = [
        f"{value} faster" if name == "faster" else f"{name}={value}"
        for name, value in _settings(one).items()
        if value != before.get(name)
    ]
    if not changed:
        return "These are the present settings: nothing would change."
    return f"With {', '.join(changed)}, training would be {one.speedup:times} as fast."


def _settings(one: WhatIf) -> dict[str, str]:
    """The settings of a prediction that are known, by the names that a DataLoader gives them."""
    known: dict[str, Any] = {name: one.settings.get(name) for name in SETTINGS}
    if known["cpus"] is not None:
        others = f"{one.settings['others_cpus']:.1f}"
        used = "" if others == "0.0" else f", {others} used by others"
        known["cpus"] = f"{known['cpus']:g}{used}"
    if one.settings.get("persistent_workers"):
        known["persistent_workers"] = True
    faster = ", ".join(f"{name} {factor:g}x" for name, factor in one.faster.items())
    known["faster"] = faster or None
    return {name: f"{value}" for name, value in known.items() if value is not None}


def _limit(one: WhatIf) -> str:
    """What holds training up, for a table."""
    if one.limit == "loading in the training process":
        return "no workers"
    return one.limit.removeprefix("the ")


def _memory(one: WhatIf, kind: str) -> Cell:
    """What workers and prefetched batches take of a kind; without workers nothing is said."""
    taken = one.memory_bytes if kind == "memory" else one.shared_memory_bytes
    return Number(taken, "size") if one.settings["num_workers"] and taken else ""


def _cpus_there(model: Model) -> str:
    """How many CPUs there are, and what of them others use; "" where that is not known."""
    there, others = model.settings["cpus"], f"{model.settings['others_cpus']:.1f}"
    if there is None:
        return ""
    used = "" if others == "0.0" else f"; other programs use {others} of them"
    return f"Training may use {cpus(there)}{used}."
