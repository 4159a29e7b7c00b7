"""System metrics in words: quantities in their units, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import (
    BYTE_UNITS,
    NOT_MEASURED,
    number,
    printable,
    scaled,
    short_name,
)
from loadeval.report.wording.verdict import NO_CUDA_DEVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loadeval.analysis.backends import BackendResult
    from loadeval.analysis.estimate.metrics import Level, Metrics, Quantity

NO_DEVICE = f"{NOT_MEASURED}: {NO_CUDA_DEVICE}"
NO_READINGS = f"{NOT_MEASURED}: no reading while measured batches were served"
LONGEST_SUBJECT = 40


def _bytes(value: float, per: str = "") -> tuple[str, str]:
    count, unit = scaled(value, BYTE_UNITS)
    return count, f" {unit}{per}"


UNITS: dict[str, Callable[[float], tuple[str, str]]] = {
    "_bytes_per_s": lambda value: _bytes(value, "/s"),
    "_per_s": lambda value: (number(value), "/s"),
    "_bytes": _bytes,
    "_percent": lambda value: (f"{value:.0f}%", ""),
    "_share": lambda value: (f"{value:.1%}", ""),
    "_flag": lambda value: (f"{value:.0%}", " of the time"),
    "_watts": lambda value: (number(value), " W"),
    "_celsius": lambda value: (f"{value:.0f}", " C"),
    "_hz": lambda value: (number(value / 1e9), " GHz"),
    "_cores": lambda value: (number(value), " cores"),
}
"""The number and the unit of a quantity whose name ends so; the first that fits."""


def gpus_in_words(metrics: Metrics) -> list[str]:
    """How busy each GPU was, real against ideal, a sentence each."""
    sentences = []
    for quantity in metrics.quantities:
        if quantity.name == "kernel_busy_percent":
            levels = (("real", quantity.real), ("ideal", quantity.ideal))
            known = [
                f"{value_of(quantity.name, level.mean)} {arm}" for arm, level in levels if level
            ]
            sentences.append(f"{_subject(quantity)}: GPU busy {', '.join(known)}.")
    return sentences


def gpus_of_backends(backends: Iterable[BackendResult]) -> list[str]:
    """How busy the GPUs of each backend were, behind its name."""
    return [
        f"{printable(backend.name)}: {sentence}"
        for backend in backends
        if backend.metrics is not None
        for sentence in gpus_in_words(backend.metrics)
    ]


def name_in_words(quantity: Quantity) -> str:
    """The subject and the quantity, without its unit: GPU 0 kernel busy."""
    return f"{_subject(quantity)} {quantity_in_words(quantity.name)}"


def quantity_in_words(name: str) -> str:
    """The quantity without its unit: kernel busy."""
    return printable(name.removesuffix(_end(name)).replace("_", " "))


def value_of(name: str, value: float) -> str:
    """A value of the quantity `name`, in the unit that its name ends in."""
    return "".join(_parts(name, value))


def level_in_words(name: str, level: Level | None) -> str:
    """The mean with p50 and p95, with their unit once where all three have the same."""
    if level is None:
        return NOT_MEASURED
    parts = [_parts(name, value) for value in (level.mean, level.p50, level.p95)]
    if len({unit for _, unit in parts}) == 1:
        (mean, unit), (p50, _), (p95, _) = parts
        return f"{mean} ({p50}, {p95}){unit}"
    mean, p50, p95 = map("".join, parts)
    return f"{mean} ({p50}, {p95})"


def difference_in_words(quantity: Quantity) -> str:
    """The ideal mean minus the real one, in points where it is a percentage."""
    if quantity.difference is None:
        return NOT_MEASURED
    sign = "-" if quantity.difference < 0 else "+"
    if quantity.name.endswith("_percent"):
        return f"{sign}{abs(quantity.difference):.0f} points"
    return f"{sign}{value_of(quantity.name, abs(quantity.difference))}"


def _end(name: str) -> str:
    return next((end for end in UNITS if name.endswith(end)), "")


def _parts(name: str, value: float) -> tuple[str, str]:
    end = _end(name)
    return UNITS[end](value) if end else (number(value), "")


def _subject(quantity: Quantity) -> str:
    return short_name(quantity.subject, LONGEST_SUBJECT) or quantity.probe
