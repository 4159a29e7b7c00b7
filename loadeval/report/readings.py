"""Readings of the machine in words: the main quantities of each arm, and what is missing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from loadeval.analysis.memory import growths
from loadeval.analysis.metrics import missing, quantities
from loadeval.analysis.summary import gpu_idle_ns
from loadeval.report.formatting import NOT_MEASURED, duration, number, printable, shortened, size
from loadeval.report.json import growth_as_dict
from loadeval.report.wording import growth_advice, growth_reason
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from loadeval.analysis.backends import BackendResult
    from loadeval.analysis.metrics import Quantity
    from loadeval.report.facts import Rows
    from loadeval.runlog.model import Arm, Run

UNITS: dict[str, Callable[[float], str]] = {
    "_bytes_per_s": lambda value: f"{size(value)}/s",
    "_per_s": lambda value: f"{number(value)}/s",
    "_bytes": size,
    "_percent": lambda value: f"{value:.0f}%",
    "_share": lambda value: f"{value:.1%}",
    "_flag": lambda value: f"{value:.0%} of the time",
    "_watts": lambda value: f"{number(value)} W",
    "_celsius": lambda value: f"{value:.0f} C",
    "_hz": lambda value: f"{number(value / 1e9)} GHz",
    "_cores": lambda value: f"{number(value)} cores",
}
"""How a quantity is told whose name ends so; the first that fits."""
MAIN = (
    "kernel_busy_percent",
    "sm_busy_percent",
    "memory_used_bytes",
    "power_watts",
    "cpu_cores",
    "disk_read_bytes_per_s",
    "cgroup_throttled_share",
)
"""What is told of each subject; the rest is in JSON, and in what `loadeval export` writes."""
LONGEST_SUBJECT = 40
NO_DEVICE = f"{NOT_MEASURED}: no CUDA device was in use"
TOO_SHORT = f"{NOT_MEASURED}: nothing was read while batches were served that count"


def readings_rows(runs: Sequence[tuple[Run, Arm]]) -> list[Rows]:
    """For each run, and the arm of it that is told, rows with the labels that all have."""
    told = [dict(_rows(run, arm)) for run, arm in runs]
    labels = list(dict.fromkeys(label for rows in told for label in rows))
    return [[(label, rows.get(label, NOT_MEASURED)) for label in labels] for rows in told]


def gpus_in_words(run: Run) -> list[str]:
    """Of each GPU how busy it was, real against ideal, a sentence each."""
    said = []
    for found in quantities(run):
        if found.name == "kernel_busy_percent":
            arms = [_mean(found, arm) for arm in ARMS]
            known = [f"{value} {arm}" for arm, value in zip(ARMS, arms, strict=True) if value]
            said.append(f"{_subject(found)}: GPU busy {', '.join(known)}.")
    return said


def gpus_of_backends(backends: Iterable[BackendResult]) -> list[str]:
    """Of each backend's GPUs how busy they were, behind its name."""
    return [
        f"{printable(one.name)}: {sentence}"
        for one in backends
        if one.run is not None
        for sentence in gpus_in_words(one.run)
    ]


def readings_as_dict(run: Run) -> dict[str, Any]:
    """Every quantity of each arm, what is missing and why, and how memory grows, for JSON."""
    return {
        "gpu_idle_ns": {arm: gpu_idle_ns(run, arm) for arm in ARMS},
        "quantities": [
            {**asdict(found), "difference": found.difference} for found in quantities(run)
        ],
        "missing": [{"probe": probe, "reason": why} for probe, why in missing(run)],
        "growth": [growth_as_dict(found) for found in growths(run)],
    }


def growth_in_words(run: Run) -> list[str]:
    """Of the process and the workers, that their memory grows, where it does."""
    return [
        f"Memory of the {found.subject} grows: {growth_reason(found)}. {growth_advice(found)}"
        for found in growths(run)
        if found.grows
    ]


def name_in_words(found: Quantity) -> str:
    """The subject and the quantity, without its unit: GPU 0 kernel busy."""
    return f"{_subject(found)} {_plain(found.name)}"


def value_of(name: str, value: float) -> str:
    """A value of the quantity `name`, in the unit that its name ends in."""
    told = (tell for end, tell in UNITS.items() if name.endswith(end))
    return next(told, number)(value)


def _rows(run: Run, arm: Arm) -> Iterable[tuple[str, str]]:
    starved = gpu_idle_ns(run, arm)
    yield "GPU idle while waiting, mean", NO_DEVICE if starved is None else duration(starved)
    found = [one for one in quantities(run) if one.name in MAIN and getattr(one, arm)]
    for one in found:
        yield name_in_words(one), _mean(one, arm)
    for probe, why in missing(run):
        yield probe, f"{NOT_MEASURED}: {printable(shortened(why, 2 * LONGEST_SUBJECT))}"
    if not found and not missing(run):
        yield "readings", TOO_SHORT


def _mean(found: Quantity, arm: Arm) -> str:
    level = getattr(found, arm)
    return "" if level is None else value_of(found.name, level.mean)


def _subject(found: Quantity) -> str:
    return printable(shortened(found.subject, LONGEST_SUBJECT)) or found.probe


def _plain(name: str) -> str:
    """The name without its unit: kernel busy."""
    ends = (end for end in UNITS if name.endswith(end))
    return printable(name.removesuffix(next(ends, "")).replace("_", " "))
